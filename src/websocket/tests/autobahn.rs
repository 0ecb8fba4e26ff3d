//! The case families 1 to 5, 7, 9 and 10 of the Autobahn test suite, by their numbers there (6 is in `utf8`, 12 and
//! 13 are in `compression`). Each runs whole, byte by byte, and chopped.

use super::peer::{self, *};
use super::{Got, chopped, echo, feed, plain};

/// What the testee sends, after which nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sends {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Pong(Vec<u8>),
    /// The client closed with this, or without a code; it is sent back.
    Closed(Option<u16>),
    /// The client broke a rule.
    Fails(u16),
}
use Sends::*;

fn observed(frames: Vec<Sent>, failed: bool) -> Vec<Sends> {
    let kind = |(first, payload): Sent| match first {
        0x81 => Text(payload),
        0x82 => Binary(payload),
        0x8a => Pong(payload),
        0x88 => match payload.split_first_chunk::<2>() {
            None => Closed(None),
            Some((code, _)) if failed => Fails(u16::from_be_bytes(*code)),
            Some((code, reason)) => {
                assert_eq!(reason, b"");
                Closed(Some(u16::from_be_bytes(*code)))
            }
        },
        first => panic!("first byte {first:x}"),
    };
    frames.into_iter().map(kind).collect()
}

const MAX: usize = 16 * 1024 * 1024;

fn check_in_pieces(name: &str, input: &[u8], expected: &[Sends], sizes: &[usize]) {
    for &size in sizes {
        let mut websocket = plain(MAX);
        let outcome = feed(&mut websocket, chopped(input, size), echo);
        let observed = observed(sent(&outcome.out), outcome.failure.is_some());
        assert_eq!(observed, expected, "case {name} in pieces of {size}");
        assert_eq!(
            websocket.is_closed(),
            matches!(expected.last(), Some(Fails(_) | Closed(_))),
            "case {name} in pieces of {size}"
        );
        let failure = outcome.failure.map(|failure| failure.code());
        let expected = match expected.last() {
            Some(Fails(code)) => Some(*code),
            _ => None,
        };
        assert_eq!(failure, expected, "case {name} in pieces of {size}");
    }
}

fn check(name: &str, frames: &[Vec<u8>], expected: &[Sends]) {
    check_in_pieces(
        name,
        &frames.concat(),
        expected,
        &[usize::MAX, 1, 2, 3, 7, 997],
    );
}

const HELLO: &[u8] = b"Hello, world!";

fn hello() -> Sends {
    Text(HELLO.into())
}

#[test]
fn case_1_framing() {
    for (i, len) in [0, 125, 126, 127, 128, 65535, 65536]
        .into_iter()
        .enumerate()
    {
        let (letters, bytes) = (vec![b'*'; len], vec![0xfe; len]);
        let i = i + 1;
        check(
            &format!("1.1.{i}"),
            &[text(&letters)],
            &[Text(letters.clone())],
        );
        check(
            &format!("1.2.{i}"),
            &[binary(&bytes)],
            &[Binary(bytes.clone())],
        );
    }
}

#[test]
fn case_2_pings_and_pongs() {
    let bytes = [0x00, 0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0x00, 0xff];
    check("2.1", &[ping("")], &[Pong(vec![])]);
    check("2.2", &[ping(HELLO)], &[Pong(HELLO.into())]);
    check("2.3", &[ping(bytes)], &[Pong(bytes.into())]);
    check("2.4, 2.6", &[ping([0xfe; 125])], &[Pong(vec![0xfe; 125])]);
    check("2.5", &[ping([0xfe; 126])], &[Fails(1002)]);
    check("2.7", &[pong("")], &[]);
    check("2.8", &[pong("unsolicited pong payload")], &[]);
    let ping_9 = "ping payload";
    check(
        "2.9",
        &[pong("unsolicited pong payload"), ping(ping_9)],
        &[Pong(ping_9.into())],
    );
    let pings: Vec<_> = (0..10).map(|i| ping(format!("payload-{i}"))).collect();
    let pongs: Vec<_> = (0..10)
        .map(|i| Pong(format!("payload-{i}").into()))
        .collect();
    check("2.10, 2.11", &pings, &pongs);
}

#[test]
fn case_3_reserved_bits() {
    let fails = Fails(1002);
    check(
        "3.1",
        &[frame(FIN | 1 << 4 | TEXT, HELLO)],
        std::slice::from_ref(&fails),
    );
    let reserved = frame(FIN | 2 << 4 | TEXT, HELLO);
    check(
        "3.2",
        &[text(HELLO), reserved, ping("")],
        &[hello(), fails.clone()],
    );
    let reserved = frame(FIN | 3 << 4 | TEXT, HELLO);
    check(
        "3.3",
        &[text(HELLO), reserved, ping("")],
        &[hello(), fails.clone()],
    );
    let reserved = frame(FIN | 4 << 4 | TEXT, HELLO);
    check(
        "3.4",
        &[text(HELLO), reserved, ping("")],
        &[hello(), fails.clone()],
    );
    check(
        "3.5",
        &[frame(FIN | 5 << 4 | BINARY, [0xff; 8])],
        std::slice::from_ref(&fails),
    );
    check(
        "3.6",
        &[frame(FIN | 6 << 4 | PING, HELLO)],
        std::slice::from_ref(&fails),
    );
    check(
        "3.7",
        &[frame(FIN | 7 << 4 | CLOSE, [])],
        std::slice::from_ref(&fails),
    );
}

#[test]
fn case_4_reserved_opcodes() {
    for opcode in (3..8).chain(11..16) {
        let name = format!("4.{}, opcode {opcode}", 1 + opcode / 8);
        check(&name, &[frame(FIN | opcode, [])], &[Fails(1002)]);
        let frames = [text(HELLO), frame(FIN | opcode, HELLO), ping("")];
        check(&name, &frames, &[hello(), Fails(1002)]);
    }
}

#[test]
fn case_5_fragmentation() {
    let (first, next, last) = (TEXT, CONTINUATION, FIN | CONTINUATION);
    let fails = Fails(1002);
    let both = || Text(b"fragment1fragment2".into());
    let f = |first: u8, payload: &str| frame(first, payload);

    for (name, opcode) in [("5.1", PING), ("5.2", PONG), ("5.2, Close", CLOSE)] {
        check(
            name,
            &[f(opcode, "fragment1"), f(last, "fragment2")],
            std::slice::from_ref(&fails),
        );
    }
    check(
        "5.3, 5.4, 5.5",
        &[f(first, "fragment1"), f(last, "fragment2")],
        &[both()],
    );
    let frames = [f(first, "fragment1"), ping("ping"), f(last, "fragment2")];
    check("5.6, 5.7, 5.8", &frames, &[Pong(b"ping".into()), both()]);

    check(
        "5.9, 5.10, 5.11",
        &[f(last, "non-continuation"), text(HELLO)],
        std::slice::from_ref(&fails),
    );
    check(
        "5.12, 5.13, 5.14",
        &[f(next, "non-continuation"), text(HELLO)],
        std::slice::from_ref(&fails),
    );
    let frames = [
        f(first, "fragment1"),
        f(last, "fragment2"),
        f(next, "fragment3"),
        text("x"),
    ];
    check("5.15", &frames, &[both(), fails.clone()]);
    let frames = [
        f(next, "fragment1"),
        f(first, "fragment2"),
        f(last, "fragment3"),
    ];
    check(
        "5.16",
        &[frames.concat(), frames.concat()],
        std::slice::from_ref(&fails),
    );
    let frames = [
        f(last, "fragment1"),
        f(first, "fragment2"),
        f(last, "fragment3"),
    ];
    check(
        "5.17",
        &[frames.concat(), frames.concat()],
        std::slice::from_ref(&fails),
    );
    check(
        "5.18",
        &[f(first, "fragment1"), text("fragment2")],
        std::slice::from_ref(&fails),
    );

    let frames = [
        f(first, "fragment1"),
        f(next, "fragment2"),
        ping("pongme 1!"),
        f(next, "fragment3"),
        f(next, "fragment4"),
        ping("pongme 2!"),
        f(last, "fragment5"),
    ];
    let expected = [
        Pong(b"pongme 1!".into()),
        Pong(b"pongme 2!".into()),
        Text(b"fragment1fragment2fragment3fragment4fragment5".into()),
    ];
    check("5.19, 5.20", &frames, &expected);
}

#[test]
fn case_7_1_after_the_close() {
    let normal = || Closed(Some(1000));
    check(
        "7.1.1",
        &[text(HELLO), close(1000, "")],
        &[hello(), normal()],
    );
    check("7.1.2", &[close(1000, ""), close(1000, "")], &[normal()]);
    check("7.1.3", &[close(1000, ""), ping("")], &[normal()]);
    check("7.1.4", &[close(1000, ""), text(HELLO)], &[normal()]);
    let frames = [
        frame(TEXT, "fragment1"),
        close(1000, ""),
        frame(FIN, "fragment2"),
    ];
    check("7.1.5", &frames, &[normal()]);
    let big = [
        text(vec![b'*'; 256 * 1024]),
        text(HELLO),
        close(1000, ""),
        ping(""),
    ]
    .concat();
    let expected = [Text(vec![b'*'; 256 * 1024]), hello(), normal()];
    check_in_pieces("7.1.6", &big, &expected, &[usize::MAX, 4096]);
}

#[test]
fn case_7_3_close_payloads() {
    check("7.3.1", &[frame(FIN | CLOSE, "")], &[Closed(None)]);
    check("7.3.2", &[frame(FIN | CLOSE, "a")], &[Fails(1002)]);
    check("7.3.3", &[close(1000, "")], &[Closed(Some(1000))]);
    check("7.3.4", &[close(1000, HELLO)], &[Closed(Some(1000))]);
    check("7.3.5", &[close(1000, [b'*'; 123])], &[Closed(Some(1000))]);
    check("7.3.6", &[close(1000, [b'*'; 124])], &[Fails(1002)]);
    let reason = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited";
    check("7.5.1", &[close(1000, reason)], &[Fails(1007)]);
}

#[test]
fn case_7_7_close_codes() {
    let valid = [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000,
        4999,
    ];
    for code in valid {
        check(
            &format!("7.7, {code}"),
            &[close(code, "")],
            &[Closed(Some(code))],
        );
    }
    let invalid = [
        0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535,
    ];
    for code in invalid {
        check(
            &format!("7.9 and 7.13, {code}"),
            &[close(code, "")],
            &[Fails(1002)],
        );
    }
}

#[test]
fn case_9_big_messages() {
    for (i, kib) in [64, 256, 1024, 4096].into_iter().enumerate() {
        let len = kib * 1024;
        let (letters, bytes) = (vec![b'*'; len], vec![0xfe; len]);
        let (echoed_text, echoed_bytes) = (Text(letters.clone()), Binary(bytes.clone()));
        let i = i + 1;
        for (name, input, expected) in [
            ("9.1", text(&letters), &echoed_text),
            ("9.2", binary(&bytes), &echoed_bytes),
        ] {
            let name = format!("{name}.{i}");
            check_in_pieces(
                &name,
                &input,
                std::slice::from_ref(expected),
                &[usize::MAX, 65536],
            );
        }
    }
}

#[test]
fn case_9_1_6_a_message_of_the_very_limit() {
    let input = text(vec![b'*'; MAX]);
    check_in_pieces("9.1.6", &input, &[Text(vec![b'*'; MAX])], &[65536]);
    let input = text(vec![b'*'; MAX + 1]);
    check_in_pieces(
        "9.1.6 and a byte",
        &input,
        &[Fails(1009)],
        &[usize::MAX, 65536],
    );
}

#[test]
fn case_9_3_big_messages_in_fragments() {
    let payload = noise(1 << 20);
    for (i, size) in [64, 256, 1024, 4096, 16384, 65536, 262144, 1048576]
        .into_iter()
        .enumerate()
    {
        let ends: Vec<_> = (size..payload.len()).step_by(size).collect();
        let input = fragmented(BINARY, &payload, &ends);
        let name = format!("9.4.{}", i + 1);
        check_in_pieces(
            &name,
            &input,
            &[Binary(payload.clone())],
            &[usize::MAX, 65536],
        );
        let text: Vec<u8> = payload.iter().map(|byte| b'a' + byte % 26).collect();
        let input = fragmented(TEXT, &text, &ends);
        let name = format!("9.3.{}", i + 1);
        check_in_pieces(&name, &input, &[Text(text)], &[usize::MAX, 65536]);
    }
}

#[test]
fn case_9_5_big_messages_in_small_reads() {
    let letters = vec![b'*'; 1 << 20];
    for (i, size) in [64, 128, 256, 512, 1024, 2048].into_iter().enumerate() {
        let name = format!("9.5.{}", i + 1);
        check_in_pieces(&name, &text(&letters), &[Text(letters.clone())], &[size]);
        let name = format!("9.6.{}", i + 1);
        check_in_pieces(
            &name,
            &binary(&letters),
            &[Binary(letters.clone())],
            &[size],
        );
    }
}

#[test]
fn case_9_7_a_thousand_messages() {
    for (i, len) in [0, 16, 64, 256, 1024, 4096].into_iter().enumerate() {
        let letters = vec![b'*'; len];
        let name = format!("9.7.{}", i + 1);
        let input = text(&letters).repeat(1000);
        check_in_pieces(
            &name,
            &input,
            &vec![Text(letters.clone()); 1000],
            &[usize::MAX, 1500],
        );
        let name = format!("9.8.{}", i + 1);
        let input = binary(&letters).repeat(1000);
        check_in_pieces(
            &name,
            &input,
            &vec![Binary(letters.clone()); 1000],
            &[usize::MAX, 1500],
        );
    }
}

#[test]
fn case_10_1_1_fragments_of_1300() {
    let letters = vec![b'*'; 65536];
    let ends: Vec<_> = (1300..65536).step_by(1300).collect();
    let input = fragmented(TEXT, &letters, &ends);
    check_in_pieces("10.1.1", &input, &[Text(letters)], &[usize::MAX, 1, 1306]);
}

/// The limit is the message's, not a frame's.
#[test]
fn fragments_beyond_the_limit() {
    let input = [
        frame(BINARY, [0; 60]),
        frame(CONTINUATION, [0; 40]),
        frame(CONTINUATION, [0]),
    ];
    for size in [usize::MAX, 1] {
        let outcome = feed(&mut plain(100), chopped(&input.concat(), size), echo);
        assert_eq!(outcome.failure.map(|failure| failure.code()), Some(1009));
        assert_eq!(outcome.events, []);
    }
    let input = [frame(BINARY, [0; 60]), frame(FIN, [0; 40])].concat();
    let outcome = feed(&mut plain(100), [input], echo);
    assert_eq!(outcome.events, [Got::Binary(vec![0; 100])]);
}

/// A header alone is enough: nothing is kept in memory for a length that isn't allowed.
#[test]
fn an_announced_length_beyond_the_limit() {
    let mut header = vec![FIN | BINARY, 0x80 | 127];
    header.extend((1_u64 << 62).to_be_bytes());
    header.extend([1, 2, 3, 4]);
    let outcome = feed(&mut plain(MAX), [header], echo);
    assert_eq!(outcome.failure.map(|failure| failure.code()), Some(1009));
    assert_eq!(peer::sent(&outcome.out)[0].1[..2], 1009_u16.to_be_bytes());
}
