//! Chunked bodies: what is read, what is refused, the bounds.

use super::request::{Message, message, read_one};
use crate::http1::RequestError::{self, *};
use crate::http1::{CHUNK_LINE, EXTENSIONS, Limits, TRAILERS};

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n";

fn chunked(body: &[u8]) -> Result<Option<Message>, RequestError> {
    message(&[HEAD, body].concat())
}

#[test]
fn bodies() {
    let cases: &[(&[u8], &[u8])] = &[
        (b"0\r\n\r\n", b""),
        (b"000\r\n\r\n", b""),
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"1\r\nh\r\n4\r\nello\r\n0\r\n\r\n", b"hello"),
        (b"a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"0000000000000000000005\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
        (b"3\r\n0\r\n\r\n0\r\n\r\n", b"0\r\n"),
        // extensions, RFC 9112 7.1.1
        (b"5;a\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5;a=b\r\nhello\r\n0;c=d\r\n\r\n", b"hello"),
        (b"5 ;a\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5\t; a = b ; c=\"d\"\t;e\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5;a=\"\"\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5;a=\"b;c,d=e\tf\xff:\"\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5;a=\"\\\"\\\\\\;\"\r\nhello\r\n0\r\n\r\n", b"hello"),
        // trailers, RFC 9112 7.1.2
        (b"0\r\nX: y\r\n\r\n", b""),
        (
            b"0\r\nX:\r\nY:z\r\nContent-Length: 7\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"",
        ),
        (b"0\r\nX: \ty \xe9 \"\\\"\r\n\r\n", b""),
    ];
    for (body, data) in cases {
        let got = chunked(body).unwrap().unwrap();
        assert_eq!(got.body, *data, "{}", body.escape_ascii());
        assert_eq!(got.length, HEAD.len() + body.len());
    }
}

#[test]
fn trailers_do_not_reach_the_head() {
    let got = chunked(b"0\r\nX-Forwarded-For: evil\r\n\r\n")
        .unwrap()
        .unwrap();
    assert_eq!(got.head.fields.len(), 2);
}

#[test]
fn incomplete() {
    let body = b"5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n";
    for cut in 0..body.len() {
        assert_eq!(
            chunked(&body[..cut]),
            Ok(None),
            "{}",
            body[..cut].escape_ascii()
        );
    }
}

#[test]
fn refusals() {
    let cases: &[(&[u8], RequestError)] = &[
        (b"\r\n", ChunkSize),
        (b"\n", ChunkSize),
        (b"g\r\n", ChunkSize),
        (b"-1\r\n", ChunkSize),
        (b"+5\r\nhello", ChunkSize),
        (b"0x5\r\nhello", ChunkSize),
        (b"5_0\r\n", ChunkSize),
        (b" 5\r\nhello", ChunkSize),
        (b"\t5\r\nhello", ChunkSize),
        (b"5.\r\nhello", ChunkSize),
        (b"5\xe9\r\n", ChunkSize),
        (b"5\0\r\n", ChunkSize),
        (b"5\nhello\r\n0\r\n\r\n", ChunkSize), // bare LF
        (b"5\rhello", ChunkSize),
        (b"5\r\r\n", ChunkSize),
        (b"5 \r\nhello\r\n", ChunkExtension), // white space belongs before a `;` only
        (b"5\t\r\nhello\r\n", ChunkExtension),
        (b"5 5\r\nhello\r\n", ChunkExtension),
        (b"5;\r\nhello\r\n", ChunkExtension),
        (b"5;;a\r\nhello\r\n", ChunkExtension),
        (b"5;=b\r\nhello\r\n", ChunkExtension),
        (b"5;a=\r\nhello\r\n", ChunkExtension),
        (b"5;a \r\nhello\r\n", ChunkExtension),
        (b"5;a=b \r\nhello\r\n", ChunkExtension),
        (b"5;a=b c\r\nhello\r\n", ChunkExtension),
        (b"5;a b\r\nhello\r\n", ChunkExtension),
        (b"5;a\n", ChunkExtension),
        (b"5;a=b\nhello", ChunkExtension),
        (b"5;a=\"b\r\n", ChunkExtension), // a quoted string doesn't go over lines
        (b"5;a=\"b\n\"\r\n", ChunkExtension),
        (b"5;a=\"\\\r\n\"", ChunkExtension),
        (b"5;a=\"b\"c\r\n", ChunkExtension),
        (b"5;a=\"b\x01\"\r\n", ChunkExtension),
        (b"5;a\0\r\n", ChunkExtension),
        (b"5;a=b\"\r\n", ChunkExtension),
        (b"5;\xe9\r\n", ChunkExtension),
        (b"5\r\nhelloX", ChunkEnd),
        (b"5\r\nhello\n", ChunkEnd),
        (b"5\r\nhello\r\r", ChunkEnd),
        (b"5\r\nhello0\r\n\r\n", ChunkEnd),
        (b"5\r\nhello \r\n", ChunkEnd),
        (b"0\r\n\n", Trailer),
        (b"0\r\n\r\r", Trailer),
        (b"0\r\n X: y\r\n\r\n", Trailer),
        (b"0\r\nX : y\r\n\r\n", Trailer),
        (b"0\r\nX\r\n\r\n", Trailer),
        (b"0\r\n: y\r\n\r\n", Trailer),
        (b"0\r\nX: y\n\r\n", Trailer),
        (b"0\r\nX: y\rz", Trailer),
        (b"0\r\nX: \0\r\n\r\n", Trailer),
        (b"0\r\nX: a\r\n b\r\n\r\n", Trailer),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n", Trailer),
        (b"10000000000000000\r\n", ChunkSizeOverflow),
        (b"fffffffffffffffff\r\n", ChunkSizeOverflow),
        (b"00010000000000000005\r\nhello", ChunkSizeOverflow),
        (b"ffffffffffffffff\r\n", BodyTooLarge),
        (b"40000001\r\n", BodyTooLarge),
    ];
    for (body, error) in cases {
        assert_eq!(chunked(body), Err(*error), "{}", body.escape_ascii());
        let second = [&b"1;x=\"y\"\r\na\r\n"[..], body].concat();
        assert_eq!(chunked(&second), Err(*error), "{}", second.escape_ascii());
    }
}

fn with_limit(body: &[u8], limit: u64) -> Result<Option<Message>, RequestError> {
    let input = [HEAD, body].concat();
    let limits = Limits {
        body: limit,
        ..Limits::default()
    };
    let whole = read_one(&input, &mut [input.len()].into_iter(), &limits);
    assert_eq!(whole, read_one(&input, &mut std::iter::repeat(1), &limits));
    whole
}

/// 413 as soon as a size line announces too much, over any number of chunks.
#[test]
fn body_limit() {
    let body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(with_limit(body, 5).unwrap().unwrap().body, b"abcde");
    assert_eq!(with_limit(body, 4), Err(BodyTooLarge));
    assert_eq!(with_limit(b"3\r\nabc\r\n2\r\n", 4), Err(BodyTooLarge));
    assert_eq!(
        with_limit(b"3\r\nabc\r\nffffffffffffffff\r\n", 4),
        Err(BodyTooLarge)
    );
    assert_eq!(with_limit(body, 0).unwrap().unwrap().body, b"abcde");
    // Without a limit, sizes that don't fit together are no way around anything.
    assert_eq!(with_limit(b"ffffffffffffffff\r\nabc", 0), Ok(None));
    assert_eq!(BodyTooLarge.status(), 413);
}

#[test]
fn bounds_on_framing() {
    let line = |length: usize| [b"1;", &b"x".repeat(length - 2)[..], b"\r\na\r\n"].concat();
    let longest = CHUNK_LINE as usize;
    let fits = [line(longest), b"0\r\n\r\n".to_vec()].concat();
    assert_eq!(chunked(&fits).unwrap().unwrap().body, b"a");
    assert_eq!(chunked(&line(longest + 1)), Err(ChunkExtensionTooLong));
    let zeros = [&b"0".repeat(longest - 1)[..], b"1\r\na\r\n0\r\n\r\n"].concat();
    assert_eq!(chunked(&zeros).unwrap().unwrap().body, b"a");
    assert_eq!(
        chunked(&[b"0", &zeros[..]].concat()),
        Err(ChunkExtensionTooLong)
    );

    // Every line within its bound, all of them together not.
    let each = longest - 1;
    let lines = EXTENSIONS as usize / each;
    let mut body = line(longest).repeat(lines);
    assert_eq!(chunked(&body), Ok(None));
    body.extend_from_slice(&line(longest));
    assert_eq!(chunked(&body), Err(ChunkExtensionTooLong));

    let bound = TRAILERS as usize;
    let trailer = |length: usize| [b"0\r\nX:", &b"y".repeat(length - 4)[..], b"\r\n\r\n"].concat();
    assert_eq!(chunked(&trailer(bound)).unwrap().unwrap().body, b"");
    assert_eq!(chunked(&trailer(bound + 1)), Err(TrailersTooLarge));
    let many = [&b"0\r\n"[..], &b"X:\r\n".repeat(bound / 4 + 1)].concat();
    assert_eq!(chunked(&many), Err(TrailersTooLarge));
    assert_eq!(TrailersTooLarge.status(), 431);
}

/// A piece is given out as soon as it is there, framing before it included, and never copied.
#[test]
fn events() {
    use crate::http1::{Event, Head, RequestReader};
    let (mut reader, mut head, limits) = (RequestReader::new(), Head::default(), Limits::default());
    reader.next_event(HEAD, &mut head, &limits).unwrap();
    let mut next = |input: &[u8]| reader.next_event(input, &mut head, &limits).unwrap();
    assert_eq!(next(b""), Event::NeedData);
    assert_eq!(next(b"5"), Event::Skip { consumed: 1 });
    assert_eq!(
        next(b"\r\nhe"),
        Event::Data {
            consumed: 4,
            body: 2..4
        }
    );
    assert_eq!(next(b""), Event::NeedData);
    assert_eq!(
        next(b"llo\r\n3;x\r\nabc\r\n0"),
        Event::Data {
            consumed: 3,
            body: 0..3
        }
    );
    assert_eq!(
        next(b"\r\n3;x\r\nabc\r\n0"),
        Event::Data {
            consumed: 10,
            body: 7..10
        }
    );
    assert_eq!(next(b"\r\n0"), Event::Skip { consumed: 3 });
    assert_eq!(next(b"\r\n\r\nGET "), Event::End { consumed: 4 });
}
