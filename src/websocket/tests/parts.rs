//! Frame headers, masks, tables, close frames, and what a connection does beside messages.

use super::super::close::{read_close, write_close};
use super::super::frame::{Opcode, header, read_header};
use super::super::state::{ASSEMBLY_RULES, LINK_RULES, Link, LinkStep};
use super::super::{CloseError, Closed, REASON, WebSocket, code, mask, may_be_sent};
use super::peer::*;
use super::{Got, echo, feed, ignore, plain};

#[test]
fn headers_are_read_as_they_are_written() {
    for len in [
        0_u64,
        1,
        125,
        126,
        127,
        65535,
        65536,
        1 << 40,
        (1 << 63) - 1,
    ] {
        let (bytes, size) = header(Opcode::Binary, false, len as usize);
        let mut bytes = bytes[..size].to_vec();
        bytes[1] |= 0x80;
        bytes.extend([1, 2, 3, 4]);
        for cut in 0..bytes.len() {
            assert_eq!(read_header(&bytes[..cut], false), Ok(None), "{len}");
        }
        let read = read_header(&bytes, false).unwrap().unwrap();
        assert_eq!(
            (read.fin, read.rsv1, read.opcode, read.len),
            (true, false, Opcode::Binary, len)
        );
        assert_eq!((read.mask, read.size), ([1, 2, 3, 4], bytes.len()));
    }
}

#[test]
fn every_pair_of_first_bytes() {
    for first in 0..=255_u8 {
        for second in 0..=255_u8 {
            for deflate in [false, true] {
                let (opcode, short) = (first & 0xf, second & 0x7f);
                let control = opcode & 8 != 0;
                let rsv1 = first & RSV1 != 0;
                let right = matches!(opcode, 0..=2 | 8..=10)
                    && first & 0x30 == 0
                    && (!rsv1 || (deflate && matches!(opcode, TEXT | BINARY)))
                    && second & 0x80 != 0
                    && (!control || (first & FIN != 0 && short <= 125));
                // Lengths that need their form: 2^48.
                let bytes = [first, second, 0, 1, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9];
                let bytes = if short == 126 {
                    [first, second, 1, 0, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0]
                } else {
                    bytes
                };
                assert_eq!(
                    read_header(&bytes, deflate).is_ok(),
                    right,
                    "{first:x} {second:x} {deflate}"
                );
            }
        }
    }
}

#[test]
fn lengths_in_more_bytes_than_they_need() {
    let read =
        |bytes: &[u8]| read_header(bytes, false).map(|header| header.map(|header| header.len));
    assert!(read(&[0x82, 0xfe, 0, 125]).is_err());
    assert!(read(&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).is_err());
    assert!(read(&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]).is_err());
    assert_eq!(read(&[0x82, 0xfe, 0, 126, 0, 0, 0, 0]), Ok(Some(126)));
    assert_eq!(
        read(&[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
        Ok(Some(65536))
    );
}

#[test]
fn faults_are_found_at_their_byte() {
    for (bytes, right) in [
        (&[0x83][..], 0),
        (&[0xc1], 0),
        (&[0x09], 0),
        (&[0x81, 0x05], 1),
        (&[0x89, 0xfe], 1),
    ] {
        assert!(read_header(bytes, false).is_err(), "{bytes:x?}");
        assert_eq!(read_header(&bytes[..right], false), Ok(None), "{bytes:x?}");
    }
}

#[test]
fn masks_of_all_lengths_in_two_pieces() {
    let key = [0x12, 0x34, 0x56, 0x78];
    for len in 0..40 {
        let plain = noise(len);
        let masked: Vec<_> = plain
            .iter()
            .enumerate()
            .map(|(i, byte)| byte ^ key[i % 4])
            .collect();
        for cut in 0..=len {
            let mut bytes = masked.clone();
            let (begin, end) = bytes.split_at_mut(cut);
            mask::unmask(begin, key);
            mask::unmask(end, mask::after(key, cut));
            assert_eq!(bytes, plain);
        }
    }
}

/// No pair twice: the tables say one thing.
#[test]
fn the_tables_are_functions() {
    for (i, (state, part, _)) in ASSEMBLY_RULES.iter().enumerate() {
        assert!(
            !ASSEMBLY_RULES[..i]
                .iter()
                .any(|rule| (&rule.0, &rule.1) == (state, part))
        );
    }
    for (i, (state, step, to)) in LINK_RULES.iter().enumerate() {
        assert!(
            !LINK_RULES[..i]
                .iter()
                .any(|rule| (&rule.0, &rule.1) == (state, step))
        );
        assert_eq!(state.after(*step), *to);
    }
    for step in [
        LinkStep::SendClose,
        LinkStep::PeerClose,
        LinkStep::Fault,
        LinkStep::EndOfInput,
    ] {
        assert_eq!(Link::Closed.after(step), Link::Closed);
    }
}

#[test]
fn close_frames_are_read_as_they_are_written() {
    for code in 0..=u16::MAX {
        let mut out = Vec::new();
        write_close(code, "grüße", &mut out);
        if code == code::NO_STATUS {
            assert_eq!(out, [0x88, 0]);
            assert_eq!(read_close(&[]), Ok((1005, "")));
        } else if may_be_sent(code) {
            assert_eq!(read_close(&out[2..]), Ok((code, "grüße")));
        } else {
            assert_eq!(read_close(&out[2..]).unwrap_err().code(), 1002, "{code}");
        }
    }
}

#[test]
fn long_reasons_are_cut_between_characters() {
    let mut websocket = plain(100);
    let mut out = Vec::new();
    websocket
        .send_close(1000, &"ä".repeat(100), &mut out)
        .unwrap();
    let (_, payload) = &sent(&out)[0];
    assert_eq!(payload[2..], *"ä".repeat(REASON / 2).as_bytes());
}

#[test]
fn this_side_closes_first() {
    let mut websocket = plain(1000);
    let mut out = Vec::new();
    // In the middle of a message of the client's.
    feed(&mut websocket, [frame(TEXT, "begin")], ignore);
    websocket
        .send_close(code::SERVICE_RESTART, "", &mut out)
        .unwrap();
    assert_eq!(sent(&out), [(0x88, 1012_u16.to_be_bytes().to_vec())]);
    assert!(!websocket.is_open() && !websocket.is_closed());
    assert_eq!(websocket.close_code(), None);

    let length = out.len();
    assert_eq!(websocket.send_text("x", &mut out), Err(Closed));
    assert_eq!(websocket.send_binary(b"x", &mut out), Err(Closed));
    assert_eq!(websocket.send_ping(&mut out), Err(Closed));
    assert_eq!(
        websocket.send_close(1000, "", &mut out),
        Err(CloseError::Closed(Closed))
    );
    assert_eq!(out.len(), length);

    // What is under way is dropped; beyond any limit, too, and whatever it contains. A ping has its pong (5.5.2).
    let more = [
        frame(FIN, [0xff; 2000]),
        text(b"\xff"),
        ping("p"),
        close(1012, "bye"),
        text("x"),
    ];
    let outcome = feed(&mut websocket, [more.concat()], ignore);
    assert_eq!(
        outcome.events,
        [Got::Ping(b"p".into()), Got::Close(1012, "bye".into())]
    );
    assert_eq!(
        sent(&outcome.out),
        [(0x8a, b"p".to_vec())],
        "the client's Close was the answer"
    );
    assert!(websocket.is_closed());
    assert_eq!(websocket.close_code(), Some(1012));
}

#[test]
fn a_fault_behind_this_side_s_close_is_not_answered() {
    let mut websocket = plain(1000);
    websocket.send_close(1000, "", &mut Vec::new()).unwrap();
    let outcome = feed(&mut websocket, [[0xff]], ignore);
    assert_eq!(outcome.failure.map(|failure| failure.code()), Some(1002));
    assert_eq!(outcome.out, []);
    assert!(websocket.is_closed());
}

#[test]
fn the_client_closes_first() {
    for (payload, code) in [
        (&b""[..], 1005),
        (b"\x03\xe8", 1000),
        (b"\x0f\xa0reason", 4000),
    ] {
        let mut websocket = plain(1000);
        let outcome = feed(&mut websocket, [frame(FIN | CLOSE, payload)], ignore);
        let reason = String::from_utf8(payload.get(2..).unwrap_or_default().to_vec()).unwrap();
        assert_eq!(outcome.events, [Got::Close(code, reason)]);
        assert_eq!(
            sent(&outcome.out),
            [(0x88, payload.iter().copied().take(2).collect())]
        );
        assert!(websocket.is_closed());
        assert_eq!(websocket.close_code(), Some(code));
        assert_eq!(websocket.send_text("x", &mut Vec::new()), Err(Closed));
        websocket.end_of_input();
        assert_eq!(websocket.close_code(), Some(code));
    }
}

#[test]
fn the_connection_just_ends() {
    let mut websocket = plain(1000);
    websocket.end_of_input();
    assert_eq!(
        (websocket.is_closed(), websocket.close_code()),
        (true, Some(1006))
    );
    let mut websocket = plain(1000);
    websocket.send_close(1001, "", &mut Vec::new()).unwrap();
    websocket.end_of_input();
    assert_eq!(
        (websocket.is_closed(), websocket.close_code()),
        (true, Some(1006))
    );
}

#[test]
fn codes_that_this_side_may_not_send() {
    for code in [0, 999, 1004, 1006, 1015, 1016, 2999, 5000] {
        let (mut websocket, mut out) = (plain(1000), Vec::new());
        assert_eq!(
            websocket.send_close(code, "", &mut out),
            Err(CloseError::Code(code))
        );
        assert!(out.is_empty() && websocket.is_open());
    }
    let (mut websocket, mut out) = (plain(1000), Vec::new());
    websocket
        .send_close(code::NO_STATUS, "dropped", &mut out)
        .unwrap();
    assert_eq!(out, [0x88, 0]);
}

#[test]
fn failures_are_told_to_the_client() {
    let mut websocket = plain(1000);
    let outcome = feed(&mut websocket, [text(b"\xff")], ignore);
    let failure = outcome.failure.unwrap();
    let expected = [&1007_u16.to_be_bytes(), failure.reason().as_bytes()].concat();
    assert_eq!(sent(&outcome.out), [(0x88, expected)]);
    assert_eq!(websocket.close_code(), Some(1007));
    let outcome = feed(&mut websocket, [text("ignored")], ignore);
    assert_eq!(outcome, Default::default());
}

#[test]
fn pings_of_this_side() {
    let mut websocket = plain(1000);
    let mut out = Vec::new();
    assert!(!websocket.awaiting_pong());
    websocket.send_ping(&mut out).unwrap();
    websocket.send_ping(&mut out).unwrap();
    let pings = sent(&out);
    assert_eq!(
        pings.iter().map(|(first, _)| *first).collect::<Vec<_>>(),
        [0x89; 2]
    );
    for wrong in [&b""[..], b"unsolicited", &pings[0].1] {
        feed(&mut websocket, [pong(wrong)], ignore);
        assert!(websocket.awaiting_pong());
    }
    let outcome = feed(&mut websocket, [pong(&pings[1].1)], ignore);
    assert_eq!(outcome.events, [Got::Pong(pings[1].1.clone())]);
    assert!(!websocket.awaiting_pong());
    websocket.send_ping(&mut out).unwrap();
    websocket.end_of_input();
    assert!(!websocket.awaiting_pong());
}

/// A whole message is given out where it lies; nothing is copied, and nothing is kept.
#[test]
fn whole_messages_lie_in_the_input() {
    let mut websocket = plain(1000);
    let mut input = [text("one"), binary([0; 100])].concat();
    let place = input.as_ptr_range();
    let mut at = 0;
    for len in [3, 100] {
        let (used, event) = websocket
            .receive(&mut input[at..], &mut Vec::new())
            .unwrap();
        let bytes = match event.unwrap() {
            super::Event::Text(text) => text.as_bytes(),
            super::Event::Binary(bytes) => bytes,
            event => panic!("{event:?}"),
        };
        assert_eq!(bytes.len(), len);
        assert!(place.contains(&bytes.as_ptr()));
        at += used;
    }
}

/// 10,000 idle connections are 2.5 MB of this.
#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<WebSocket>() <= 256, "{}", size_of::<WebSocket>());
    fn is_send<T: Send>() {}
    is_send::<WebSocket>();
}

#[test]
fn a_message_s_memory_is_given_back() {
    let mut websocket = plain(1 << 20);
    let message = text(vec![b'*'; 1 << 19]);
    let (begin, end) = message.split_at(1000);
    let outcome = feed(&mut websocket, [begin, end], echo);
    assert_eq!(outcome.events.len(), 1);
    assert_eq!(websocket.buffered(), 0);
    // Or, if the caller doesn't ask for more, by `release`.
    let mut buffer = [begin, end].concat();
    let (used, _) = websocket
        .receive(&mut buffer[..1000], &mut Vec::new())
        .unwrap();
    assert_eq!(used, 1000);
    let (_, event) = websocket
        .receive(&mut buffer[1000..], &mut Vec::new())
        .unwrap();
    assert!(event.is_some());
    assert!(websocket.buffered() > 0);
    websocket.release();
    assert_eq!(websocket.buffered(), 0);
}
