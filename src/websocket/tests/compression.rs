//! permessage-deflate: case families 12 and 13 of the Autobahn test suite, the examples of RFC 7692 7.2.3, bombs.

use super::super::deflate::{Agreed, TAIL};
use super::super::{Settings, WebSocket};
use super::peer::*;
use super::{Got, chopped, echo, feed, ignore};

const AGREED: Agreed = Agreed {
    server_bits: 12,
    server_takeover: true,
    client_takeover: true,
    level: 6,
    min_size: 64,
};

fn websocket(max_message: usize, agreed: Agreed) -> WebSocket {
    WebSocket::new(max_message, Some(agreed))
}

/// The client's codec that goes with it.
fn codec(agreed: Agreed) -> Codec {
    Codec::new(
        (15, agreed.client_takeover),
        (agreed.server_bits, agreed.server_takeover),
    )
}

/// Messages there and back, in frames of `size` bytes, in reads of `read` bytes.
fn check_echo(agreed: Agreed, messages: &[Got], size: usize, read: usize) {
    let mut client = codec(agreed);
    let mut websocket = websocket(1 << 20, agreed);
    for message in messages {
        let (opcode, payload) = match message {
            Got::Text(text) => (TEXT, text.as_bytes()),
            Got::Binary(bytes) => (BINARY, &bytes[..]),
            _ => unreachable!(),
        };
        let compressed = client.compress(payload);
        let ends: Vec<_> = (size..compressed.len()).step_by(size).collect();
        let input = fragmented(RSV1 | opcode, &compressed, &ends);
        let outcome = feed(&mut websocket, chopped(&input, read), echo);
        assert_eq!(outcome.failure, None, "{agreed:?}");
        assert!(outcome.events == [message.clone()], "{agreed:?}");

        let [(first, sent)] = &sent(&outcome.out)[..] else {
            panic!("one frame for one message");
        };
        if payload.len() < agreed.min_size {
            assert_eq!((*first, &sent[..]), (FIN | opcode, payload));
        } else {
            assert_eq!(*first, FIN | RSV1 | opcode);
            assert!(client.decompress(sent) == payload, "{agreed:?}");
        }
    }
}

fn messages(count: usize, len: usize) -> Vec<Got> {
    let (text, noise) = (json(len + 7 * count), noise(len + 7 * count));
    (0..count)
        .map(|i| match i % 3 {
            2 => Got::Binary(noise[7 * i..7 * i + len].to_vec()),
            _ => Got::Text(text[7 * i..7 * i + len].into()),
        })
        .collect()
}

#[test]
fn case_12_messages_of_all_sizes() {
    for (i, len) in [
        0, 16, 63, 64, 125, 126, 127, 256, 1024, 4096, 8192, 65535, 65536, 131072,
    ]
    .into_iter()
    .enumerate()
    {
        let count = if len > 10_000 { 6 } else { 60 };
        let size = [usize::MAX / 2, 1000, 37][i % 3];
        check_echo(
            AGREED,
            &messages(count, len),
            size,
            [usize::MAX, 1460][i % 2],
        );
    }
}

#[test]
fn case_13_every_agreement() {
    for server_bits in 9..=15 {
        for (server_takeover, client_takeover) in
            [(true, true), (false, true), (true, false), (false, false)]
        {
            let agreed = Agreed {
                server_bits,
                server_takeover,
                client_takeover,
                ..AGREED
            };
            check_echo(agreed, &messages(5, 3000), 1000, 700);
        }
    }
}

#[test]
fn every_level() {
    for level in 1..=9 {
        let agreed = Agreed { level, ..AGREED };
        check_echo(agreed, &messages(5, 40_000), usize::MAX / 2, usize::MAX);
    }
}

#[test]
fn byte_by_byte_and_with_empty_fragments() {
    let compressed = codec(AGREED).compress(b"abcabcabcabcabc");
    let ends: Vec<_> = (0..compressed.len()).flat_map(|at| [at, at]).collect();
    let input = fragmented(RSV1 | TEXT, &compressed, &ends);
    let outcome = feed(&mut websocket(100, AGREED), chopped(&input, 1), ignore);
    assert_eq!(outcome.events, [Got::Text("abcabcabcabcabc".into())]);
}

/// RFC 7692 7.2.3.1 to 7.2.3.6.
#[test]
fn the_examples() {
    let mut websocket = websocket(100, AGREED);
    let mut check = |frames: &[Vec<u8>], expected: &str| {
        let outcome = feed(&mut websocket, [frames.concat()], ignore);
        assert_eq!(
            (outcome.events, outcome.failure),
            (vec![Got::Text(expected.into())], None)
        );
    };
    let one = |payload: &[u8]| [frame(FIN | RSV1 | TEXT, payload)];
    check(&one(b"\xf2\x48\xcd\xc9\xc9\x07\x00"), "Hello");
    let two = [
        frame(RSV1 | TEXT, b"\xf2\x48\xcd"),
        frame(FIN, b"\xc9\xc9\x07\x00"),
    ];
    check(&two, "Hello");
    check(&one(b"\xf2\x00\x11\x00\x00"), "Hello"); // from the window
    check(
        &one(b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00"),
        "Hello",
    ); // not compressed
    check(
        &one(b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"),
        "Hello",
    ); // two blocks
    check(&one(b"\x00"), "");
    check(&one(b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), "Hello"); // BFINAL
    check(
        &one(b"\xf3\x48\xcd\xc9\xc9\x07\x00\xf3\x48\xcd\xc9\xc9\x07\x00\x00"),
        "HelloHello",
    );
    check(&[text("Hello")], "Hello"); // not compressed at all
}

#[test]
fn rsv1_is_for_the_first_frame_of_a_message() {
    for frames in [
        vec![
            frame(RSV1 | TEXT, b"\xf2\x48\xcd"),
            frame(FIN | RSV1, b"\xc9\xc9\x07\x00"),
        ],
        vec![frame(TEXT, b"a"), frame(FIN | RSV1, b"b")],
        vec![frame(FIN | RSV1 | PING, "")],
        vec![frame(FIN | RSV1 | CLOSE, "")],
        vec![frame(FIN | 0x20 | TEXT, "")],
        vec![frame(FIN | 0x10 | TEXT, "")],
    ] {
        let outcome = feed(&mut websocket(100, AGREED), frames, ignore);
        assert_eq!(outcome.failure.map(|failure| failure.code()), Some(1002));
        assert_eq!(outcome.events, []);
    }
}

#[test]
fn the_limit_is_that_of_the_decompressed_message() {
    for (len, fails) in [
        (99_999, false),
        (100_000, false),
        (100_001, true),
        (10_000_000, true),
    ] {
        for takeover in [true, false] {
            let agreed = Agreed {
                client_takeover: takeover,
                ..AGREED
            };
            let compressed = codec(agreed).compress(&vec![b'*'; len]);
            for (size, read) in [(usize::MAX / 2, usize::MAX), (usize::MAX / 2, 1), (10, 3)] {
                let ends: Vec<_> = (size..compressed.len()).step_by(size).collect();
                let input = fragmented(RSV1 | TEXT, &compressed, &ends);
                let outcome = feed(
                    &mut websocket(100_000, agreed),
                    chopped(&input, read),
                    ignore,
                );
                let failure = outcome.failure.map(|failure| failure.code());
                assert_eq!(failure, fails.then_some(1009), "{len} in pieces of {read}");
                assert_eq!(outcome.events.len(), usize::from(!fails));
            }
        }
    }
}

/// A limit that isn't a power of two, reached exactly by text that doesn't compress.
#[test]
fn the_limit_of_messages_that_do_not_compress() {
    for limit in [1, 1000, 1024, 4097] {
        let bytes = noise(limit + 1);
        for (len, events) in [(limit, 1), (limit + 1, 0)] {
            let input = frame(FIN | RSV1 | BINARY, codec(AGREED).compress(&bytes[..len]));
            let outcome = feed(&mut websocket(limit, AGREED), [input], ignore);
            assert_eq!(outcome.events.len(), events);
        }
    }
}

#[test]
fn text_is_checked_after_decompression() {
    let mut client = codec(AGREED);
    let (valid, invalid) = (
        "grüße ".repeat(100),
        b"valid so far \xed\xa0\x80".repeat(50),
    );
    let input = [
        frame(FIN | RSV1 | TEXT, client.compress(valid.as_bytes())),
        frame(FIN | RSV1 | BINARY, client.compress(&invalid)),
        frame(FIN | RSV1 | TEXT, client.compress(&invalid)),
    ]
    .concat();
    for size in [usize::MAX, 1, 5] {
        let outcome = feed(
            &mut websocket(100_000, AGREED),
            chopped(&input, size),
            ignore,
        );
        assert_eq!(
            outcome.events,
            [Got::Text(valid.clone()), Got::Binary(invalid.clone())]
        );
        assert_eq!(outcome.failure.map(|failure| failure.code()), Some(1007));
    }
    // It ends inside a character.
    let input = frame(FIN | RSV1 | TEXT, codec(AGREED).compress(b"a\xc3"));
    let outcome = feed(&mut websocket(100, AGREED), [input], ignore);
    assert_eq!(outcome.failure.map(|failure| failure.code()), Some(1007));
}

#[test]
fn corrupt_data() {
    for payload in [
        &b"\xff\xff\xff"[..],
        b"\x06",
        b"\x00\x05\x00\x00\x00hello",
        b"\xf2\x48\xcd\xc9\xc9\x07\x07",
    ] {
        for size in [usize::MAX, 1] {
            let input = frame(FIN | RSV1 | BINARY, payload);
            let outcome = feed(&mut websocket(100, AGREED), chopped(&input, size), ignore);
            assert_eq!(
                outcome.failure.map(|failure| failure.code()),
                Some(1007),
                "{payload:x?}"
            );
        }
    }
    // It looks back further than there is anything.
    let mut client = codec(AGREED);
    client.compress(b"Hello, Hello, Hello");
    let input = frame(FIN | RSV1 | TEXT, client.compress(b"Hello, Hello, Hello"));
    let outcome = feed(&mut websocket(100, AGREED), [&input], ignore);
    assert_eq!(outcome.failure.map(|failure| failure.code()), Some(1007));
}

/// What a connection holds between messages.
#[test]
fn streams_live_as_long_as_they_have_to() {
    for server_takeover in [true, false] {
        for client_takeover in [true, false] {
            let agreed = Agreed {
                server_takeover,
                client_takeover,
                ..AGREED
            };
            let mut client = codec(agreed);
            let mut websocket = websocket(1 << 20, agreed);
            assert_eq!(
                websocket.holds(),
                (false, false),
                "nothing before the first message"
            );
            let message = json(2000);
            let input = frame(FIN | RSV1 | TEXT, client.compress(message.as_bytes()));
            let (begin, end) = input.split_at(100);
            feed(&mut websocket, [begin], echo);
            assert_eq!(websocket.holds(), (false, true));
            feed(&mut websocket, [end], echo);
            assert_eq!(websocket.holds(), (server_takeover, client_takeover));
            websocket.release();
            assert_eq!(websocket.holds(), (false, client_takeover));

            // And afterwards, the client still understands.
            let mut out = Vec::new();
            websocket.send_text(&message, &mut out).unwrap();
            assert_eq!(client.decompress(&sent(&out)[0].1), message.as_bytes());
            websocket.end_of_input();
            assert_eq!(websocket.holds(), (false, false));
        }
    }
}

/// With its window, the second of two equal messages is next to nothing.
#[test]
fn context_takeover_is_worth_it() {
    let sizes = |server_takeover| {
        let mut websocket = websocket(
            1 << 20,
            Agreed {
                server_takeover,
                ..AGREED
            },
        );
        let mut size = || {
            let mut out = Vec::new();
            websocket.send_text(&json(1000), &mut out).unwrap();
            out.len()
        };
        (size(), size())
    };
    let (first, second) = sizes(true);
    assert!(second * 4 < first, "{first}, then {second}");
    let (first, second) = sizes(false);
    assert_eq!(first, second);
}

/// Its beginning would be the tail that is left out.
#[test]
fn a_message_that_compresses_to_about_a_header_s_boundary() {
    let mut client = codec(AGREED);
    let mut websocket = websocket(1 << 20, AGREED);
    let noise = noise(70_000);
    for len in (64..200).chain(65_000..65_600).step_by(13) {
        let mut out = b"before".to_vec();
        websocket.send_binary(&noise[..len], &mut out).unwrap();
        let frames = sent(&out[6..]);
        assert_eq!(frames.len(), 1);
        assert!(!frames[0].1.ends_with(&TAIL));
        assert!(client.decompress(&frames[0].1) == noise[..len]);
    }
}

#[test]
fn compression_is_on_by_default() {
    assert!(Settings::default().deflate.is_some());
}
