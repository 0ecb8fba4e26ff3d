//! Text and its encoding: case family 6 of the Autobahn test suite.

use super::peer::*;
use super::{Got, chopped, feed, ignore, plain};

/// 6.5 to 6.21 and 6.22, 6.23: sequences of RFC 3629, Kuhn's stress test, non-characters.
const VALID: &[&[u8]] = &[
    b"Hello-\xc2\xb5@\xc3\x9f\xc3\xb6\xc3\xa4\xc3\xbc\xc3\xa0\xc3\xa1-UTF-8!!",
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5",
    b"\x00",
    b"\xc2\x80",
    b"\xe0\xa0\x80",
    b"\xf0\x90\x80\x80",
    b"\x7f",
    b"\xdf\xbf",
    b"\xef\xbf\xbf",
    b"\xf4\x8f\xbf\xbf",
    b"\xed\x9f\xbf",
    b"\xee\x80\x80",
    b"\xef\xbf\xbd",
    b"\xef\xbf\xbe",
    b"\xef\xb7\x90",
    b"\xf0\x9f\xbf\xbe",
    b"\xf4\x8f\xbf\xbe",
];

/// Sequences that can't be, with the length of what has to be seen of them.
const INVALID: &[(&[u8], usize)] = &[
    (
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
        13,
    ), // 6.3.1
    (
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
        13,
    ), // 6.4
    (b"\xf8\x88\x80\x80\x80", 1),
    (b"\xfc\x84\x80\x80\x80\x80", 1),
    (b"\xf7\xbf\xbf\xbf", 1),
    (b"\xfb\xbf\xbf\xbf\xbf", 1),
    (b"\xf4\x90\x80\x80", 2),
    (b"\x80", 1),
    (b"\xbf", 1),
    (b"\x80\xbf\x80", 1),
    (b"\xc0 \xc1 ", 1),
    (b"\xe0 \xe1 ", 2),
    (b"\xf0 \xf1 ", 2),
    (b"\xf8 \xf9 ", 1),
    (b"\xc2\xc2", 2),
    (b"\xe1\x80\xe1", 3),
    (b"\xf1\x80\x80\x41", 4),
    (b"\xfe", 1),
    (b"\xff", 1),
    (b"\xc0\xaf", 1),
    (b"\xe0\x80\xaf", 2),
    (b"\xf0\x80\x80\xaf", 2),
    (b"\xc1\xbf", 1),
    (b"\xe0\x9f\xbf", 2),
    (b"\xf0\x8f\xbf\xbf", 2),
    (b"\xed\xa0\x80", 2),
    (b"\xed\xbf\xbf", 2),
    (b"\xed\xa0\x80\xed\xb0\x80", 2),
];

/// Beginnings of characters: wrong at the message's end only.
const CUT: &[&[u8]] = &[
    b"\xc2",
    b"\xe0\xa0",
    b"\xef\xbf",
    b"\xf0\x90\x80",
    b"\xf4\x8f\xbf",
    b"ok \xce",
];

#[test]
fn case_6_valid_text_however_it_is_cut() {
    for &bytes in VALID {
        let expected = [Got::Text(String::from_utf8(bytes.into()).unwrap())];
        for cut in 0..=bytes.len() {
            let input = fragmented(TEXT, bytes, &[cut]);
            for size in [usize::MAX, 1, 2, 3] {
                let outcome = feed(&mut plain(1024), chopped(&input, size), ignore);
                assert_eq!(
                    (&outcome.events[..], outcome.failure),
                    (&expected[..], None),
                    "{bytes:x?} at {cut}"
                );
            }
        }
        let every: Vec<_> = (1..bytes.len()).collect(); // 6.2.3: a frame for each byte
        let outcome = feed(&mut plain(1024), [fragmented(TEXT, bytes, &every)], ignore);
        assert_eq!(outcome.events, expected, "{bytes:x?}");
    }
}

#[test]
fn case_6_1_empty_messages_and_fragments() {
    for ends in [&[][..], &[0], &[0, 0]] {
        let outcome = feed(&mut plain(1024), [fragmented(TEXT, b"", ends)], ignore);
        assert_eq!(outcome.events, [Got::Text("".into())]);
    }
    let outcome = feed(
        &mut plain(1024),
        [fragmented(TEXT, b"middle", &[0, 6])],
        ignore,
    );
    assert_eq!(outcome.events, [Got::Text("middle".into())]);
}

#[test]
fn case_6_3_invalid_text_however_it_is_cut() {
    for &(bytes, _) in INVALID {
        for cut in 0..=bytes.len() {
            let input = fragmented(TEXT, bytes, &[cut]);
            for size in [usize::MAX, 1, 2, 3] {
                let outcome = feed(&mut plain(1024), chopped(&input, size), ignore);
                let failure = outcome.failure.map(|failure| failure.code());
                assert_eq!(
                    (&outcome.events[..], failure),
                    (&[][..], Some(1007)),
                    "{bytes:x?} at {cut}"
                );
            }
        }
    }
}

/// 6.4: the first byte that can't be ends it, in the middle of a message, of a frame, and of a character.
#[test]
fn case_6_4_invalid_text_is_found_at_once() {
    for &(bytes, seen) in INVALID {
        for first in [TEXT, FIN | TEXT] {
            // A byte behind it, so that the frame isn't complete.
            let input = frame(first, [bytes, b"!"].concat());
            let header = input.len() - bytes.len() - 1;
            let outcome = feed(&mut plain(1024), [&input[..header + seen]], ignore);
            let failure = outcome.failure.map(|failure| failure.code());
            assert_eq!(failure, Some(1007), "{bytes:x?}");
            let outcome = feed(&mut plain(1024), [&input[..header + seen - 1]], ignore);
            assert_eq!(
                outcome.failure, None,
                "{bytes:x?} is not wrong before byte {seen}"
            );
        }
    }
}

#[test]
fn case_6_6_characters_that_end_too_early() {
    for &bytes in CUT {
        for ends in [&[][..], &[1], &[1, bytes.len()]] {
            let mut input = fragmented(TEXT, bytes, ends);
            input.extend(text("next"));
            for size in [usize::MAX, 1] {
                let outcome = feed(&mut plain(1024), chopped(&input, size), ignore);
                let failure = outcome.failure.map(|failure| failure.code());
                assert_eq!(
                    (&outcome.events[..], failure),
                    (&[][..], Some(1007)),
                    "{bytes:x?}"
                );
            }
        }
    }
}

#[test]
fn binary_messages_are_any_bytes() {
    for &(bytes, _) in INVALID {
        for size in [usize::MAX, 1] {
            let input = fragmented(BINARY, bytes, &[1]);
            let outcome = feed(&mut plain(1024), chopped(&input, size), ignore);
            assert_eq!(outcome.events, [Got::Binary(bytes.into())]);
        }
    }
}
