//! Answers: what is written, octet for octet, and what an application may not say.

use crate::http1::{
    BodySize, HeadError, ResponseHead, ResponseWriter, Version, continue_100, error_response,
    percent_decode, reason,
};

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";
const DATE_AND_SERVER: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: m0serve\r\n";

fn head(status: &str, fields: &[(&str, &str)]) -> ResponseHead {
    let mut head = ResponseHead::new();
    head.status(status.as_bytes()).unwrap();
    for (name, value) in fields {
        head.field(name.as_bytes(), value.as_bytes()).unwrap();
    }
    head
}

/// The answer's text without Date and Server, and whether another may follow.
fn answer(
    mut writer: ResponseWriter,
    head: &ResponseHead,
    size: BodySize,
    body: &[&str],
) -> (String, bool) {
    let mut out = Vec::new();
    writer.head(head, size, DATE, &mut out);
    assert!(writer.head_written());
    for piece in body {
        writer.data(piece.as_bytes(), &mut out);
    }
    assert!(!writer.is_ended());
    writer.end(&mut out);
    assert!(writer.is_ended());
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches(DATE_AND_SERVER).count(), 1, "{text}");
    (text.replace(DATE_AND_SERVER, ""), writer.keep_alive())
}

const GET11: fn() -> ResponseWriter = || ResponseWriter::new(Version::Http11, false, true);
const GET10: fn() -> ResponseWriter = || ResponseWriter::new(Version::Http10, false, false);
const HEAD11: fn() -> ResponseWriter = || ResponseWriter::new(Version::Http11, true, true);
use BodySize::{Known, Unknown};

#[test]
fn framings() {
    let plain = || head("200 OK", &[("Content-Type", "text/plain")]);
    let announced = |n: &str| head("200 OK", &[("Content-Length", n)]);
    let begin = "HTTP/1.1 200 OK\r\n";
    type Case = (
        ResponseWriter,
        ResponseHead,
        BodySize,
        &'static [&'static str],
        String,
        bool,
    );
    let cases: Vec<Case> = vec![
        (
            GET11(),
            plain(),
            Known(5),
            &["hello"],
            format!("{begin}Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"),
            true,
        ),
        (
            GET11(),
            head("200 OK", &[]),
            Known(0),
            &[],
            format!("{begin}Content-Length: 0\r\n\r\n"),
            true,
        ),
        (
            GET11(),
            head("200 OK", &[]),
            Unknown,
            &["hello", "", "0123456789abcdefX"],
            format!(
                "{begin}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n11\r\n0123456789abcdefX\r\n0\r\n\r\n"
            ),
            true,
        ),
        (
            GET11(),
            head("200 OK", &[]),
            Unknown,
            &[],
            format!("{begin}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            true,
        ),
        // HTTP/1.0: chunked is not known there.
        (
            GET10(),
            head("200 OK", &[]),
            Unknown,
            &["hello"],
            format!("{begin}Connection: close\r\n\r\nhello"),
            false,
        ),
        (
            ResponseWriter::new(Version::Http10, false, true),
            head("200 OK", &[]),
            Unknown,
            &["hello"],
            format!("{begin}Connection: close\r\n\r\nhello"),
            false,
        ),
        (
            GET10(),
            head("200 OK", &[]),
            Known(2),
            &["hi"],
            format!("{begin}Content-Length: 2\r\nConnection: close\r\n\r\nhi"),
            false,
        ),
        (
            ResponseWriter::new(Version::Http10, false, true),
            head("200 OK", &[]),
            Known(2),
            &["hi"],
            format!("{begin}Content-Length: 2\r\nConnection: keep-alive\r\n\r\nhi"),
            true,
        ),
        // gunicorn 27.0.0: the body against the announced length
        (
            GET11(),
            announced("3"),
            Known(5),
            &["hello"],
            format!("{begin}Content-Length: 3\r\n\r\nhel"),
            true,
        ),
        (
            GET11(),
            announced("3"),
            Unknown,
            &["he", "llo", "x"],
            format!("{begin}Content-Length: 3\r\n\r\nhel"),
            true,
        ),
        (
            GET11(),
            announced("0"),
            Unknown,
            &["x"],
            format!("{begin}Content-Length: 0\r\n\r\n"),
            true,
        ),
        (
            GET11(),
            announced("9"),
            Known(5),
            &["hello"],
            format!("{begin}Content-Length: 9\r\n\r\nhello"),
            false,
        ),
        (
            GET11(),
            announced("9"),
            Unknown,
            &[],
            format!("{begin}Content-Length: 9\r\n\r\n"),
            false,
        ),
        // HEAD has what GET would have, as far as it is known
        (
            HEAD11(),
            plain(),
            Known(5),
            &["hello"],
            format!("{begin}Content-Type: text/plain\r\nContent-Length: 5\r\n\r\n"),
            true,
        ),
        (
            HEAD11(),
            announced("9"),
            Known(0),
            &[],
            format!("{begin}Content-Length: 9\r\n\r\n"),
            true,
        ),
        (
            HEAD11(),
            head("200 OK", &[]),
            Known(0),
            &[],
            format!("{begin}\r\n"),
            true,
        ),
        (
            HEAD11(),
            head("200 OK", &[]),
            Unknown,
            &["hello"],
            format!("{begin}\r\n"),
            true,
        ),
        // HTTP/1.0 without a body keeps the connection: its end is known.
        (
            ResponseWriter::new(Version::Http10, true, true),
            head("200 OK", &[]),
            Unknown,
            &["hello"],
            format!("{begin}Connection: keep-alive\r\n\r\n"),
            true,
        ),
    ];
    for (writer, head, size, body, expected, keep_alive) in cases {
        assert_eq!(answer(writer, &head, size, body), (expected, keep_alive));
    }
}

#[test]
fn statuses_without_a_body() {
    let cases = [
        ("204 No Content", "", ""),
        ("204 No Content", "5", ""),
        ("205 Reset Content", "", "Content-Length: 0\r\n"),
        ("205 Reset Content", "5", "Content-Length: 0\r\n"),
        ("304 Not Modified", "", ""),
        ("304 Not Modified", "5", "Content-Length: 5\r\n"),
    ];
    for (status, length, framing) in cases {
        for is_head in [false, true] {
            for (size, body) in [
                (Known(0), &[][..]),
                (Known(5), &["hello"]),
                (Unknown, &["hello"]),
            ] {
                let mut head = head(status, &[]);
                if !length.is_empty() {
                    head.field(b"Content-Length", length.as_bytes()).unwrap();
                }
                let writer = ResponseWriter::new(Version::Http11, is_head, true);
                let expected = format!("HTTP/1.1 {status}\r\n{framing}\r\n");
                assert_eq!(answer(writer, &head, size, body), (expected, true));
            }
        }
    }
}

/// A 103 before the answer: no Date, no framing, and the answer still to come.
#[test]
fn interim_heads() {
    let mut writer = GET11();
    let mut out = Vec::new();
    writer.head(
        &head("103 Early Hints", &[("Link", "</a>")]),
        Known(0),
        DATE,
        &mut out,
    );
    assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    assert!(!writer.head_written() && !writer.is_ended());
    out.clear();
    let (text, keep_alive) = answer(writer, &head("200 OK", &[]), Known(0), &[]);
    assert_eq!(
        (text.as_str(), keep_alive),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true)
    );
    // An interim head is no answer.
    writer.end(&mut out);
    assert!(writer.is_ended() && !writer.keep_alive());
}

#[test]
fn switching_protocols() {
    let fields = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Content-Length", "3"),
    ];
    let head101 = head("101 Switching Protocols", &fields);
    let expected =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    assert_eq!(
        answer(GET11(), &head101, Unknown, &["x"]),
        (expected.into(), false)
    );
    let head426 = head("426 Upgrade Required", &[("Upgrade", "websocket")]);
    let (text, keep_alive) = answer(GET11(), &head426, Known(0), &[]);
    assert!(
        text.contains("\r\nConnection: upgrade\r\n") && keep_alive,
        "{text}"
    );
    let mut closing = GET11();
    closing.close_after();
    let (text, keep_alive) = answer(closing, &head426, Known(0), &[]);
    assert!(
        text.contains("\r\nConnection: close, upgrade\r\n") && !keep_alive,
        "{text}"
    );
}

#[test]
fn closing() {
    let expected =
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi".to_string();
    let ok = head("200 OK", &[]);
    // asked for by the client, by the server, by the application
    let client = ResponseWriter::new(Version::Http11, false, false);
    assert_eq!(
        answer(client, &ok, Known(2), &["hi"]),
        (expected.clone(), false)
    );
    let mut server = GET11();
    server.close_after();
    assert_eq!(
        answer(server, &ok, Known(2), &["hi"]),
        (expected.clone(), false)
    );
    for value in ["close", "Close", "x, close"] {
        let application = head("200 OK", &[("Connection", value)]);
        assert_eq!(
            answer(GET11(), &application, Known(2), &["hi"]),
            (expected.clone(), false)
        );
    }
    // An application can't hold a connection open.
    let application = head("200 OK", &[("Connection", "keep-alive")]);
    let client = ResponseWriter::new(Version::Http11, false, false);
    assert_eq!(
        answer(client, &application, Known(2), &["hi"]),
        (expected, false)
    );
    // Too late for the head, still in time for the connection.
    let (mut writer, mut out) = (GET11(), Vec::new());
    writer.head(&ok, Known(0), DATE, &mut out);
    writer.close_after();
    writer.end(&mut out);
    assert!(!writer.keep_alive());
}

#[test]
fn the_applications_own_fields() {
    let fields = [
        ("date", "yesterday"),
        ("SERVER", "mine"),
        ("Set-Cookie", "a=b"),
        ("Set-Cookie", "c=d"),
        ("Transfer-Encoding", "chunked"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Connection", "X-Foo, keep-alive"),
        ("X-Empty", ""),
    ];
    let head = head("200 Fine By Me", &fields);
    let mut out = Vec::new();
    GET11().head(&head, Known(2), DATE, &mut out);
    let expected = "HTTP/1.1 200 Fine By Me\r\ndate: yesterday\r\nSERVER: mine\r\nSet-Cookie: a=b\r\n\
        Set-Cookie: c=d\r\nX-Empty: \r\nContent-Length: 2\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    let sent: Vec<_> = head.fields().collect();
    let expected: [(&[u8], &[u8]); 5] = [
        (b"date", b"yesterday"),
        (b"SERVER", b"mine"),
        (b"Set-Cookie", b"a=b"),
        (b"Set-Cookie", b"c=d"),
        (b"X-Empty", b""),
    ];
    assert_eq!(sent, expected);
}

/// uvicorn CVE-2020-7695 and its kind: nothing an application says may end a line.
#[test]
fn refused_fields() {
    let mut head = ResponseHead::new();
    for name in ["", "a b", "a:", "a\r\nb", "a\0", "\u{e9}", "a(", " a", "a "] {
        assert_eq!(
            head.field(name.as_bytes(), b"x"),
            Err(HeadError::Name),
            "{name:?}"
        );
    }
    for byte in (0..=31u8).chain([127]).filter(|&byte| byte != b'\t') {
        for value in [
            vec![byte],
            vec![b'a', byte],
            vec![byte, b'b'],
            vec![b'a', byte, b'b'],
        ] {
            assert_eq!(head.field(b"X", &value), Err(HeadError::Value), "{value:?}");
        }
    }
    assert_eq!(head.field(b"X", b"a\r\nX: 1"), Err(HeadError::Value));
    for value in ["", "x", "-1", "+1", "1 1", "1,1", "18446744073709551616"] {
        assert_eq!(
            head.field(b"Content-Length", value.as_bytes()),
            Err(HeadError::Length)
        );
    }
    assert_eq!(
        head.field(b"Transfer-Encoding", b"gzip"),
        Err(HeadError::Coding)
    );
    assert_eq!(
        head.field(b"Transfer-Encoding", b"gzip, chunked"),
        Err(HeadError::Coding)
    );
    assert_eq!(head.fields().count(), 0);
    assert_eq!(head.field(b"Content-Length", b" 7 "), Ok(()));
    assert_eq!(head.field(b"content-length", b"7"), Ok(()));
    assert_eq!(head.field(b"CONTENT-LENGTH", b"8"), Err(HeadError::Length));
    assert_eq!(head.content_length(), Some(7));
    // latin-1 and tabs pass
    assert_eq!(head.field(b"X", b"caf\xe9\tx"), Ok(()));
    assert_eq!(head.fields().next(), Some((&b"X"[..], &b"caf\xe9\tx"[..])));
}

#[test]
fn statuses() {
    let mut head = ResponseHead::new();
    assert_eq!(head.code(), 200);
    for status in [
        "200 OK",
        "200 ",
        "404 a b\tc",
        "599 x",
        "100 y",
        "418 \u{e9}",
    ] {
        assert_eq!(head.status(status.as_bytes()), Ok(()));
        assert_eq!(head.code(), status[..3].parse().unwrap());
    }
    let bad = [
        "",
        "200",
        "20 OK",
        "2000 OK",
        "200OK",
        "099 x",
        "600 x",
        "999 x",
        " 200 OK",
        "2x0 OK",
        "200\tOK",
        "200 OK\r\nX: 1",
        "200 O\nK",
        "200 \0",
        "200 \x7f",
        "OK",
        "-20 x",
    ];
    for status in bad {
        assert_eq!(
            head.status(status.as_bytes()),
            Err(HeadError::Status),
            "{status:?}"
        );
    }
    assert_eq!(head.code(), 418, "a refused status changes nothing");
    // Set again (start_response with exc_info), before or after the fields.
    head.field(b"X", b"y").unwrap();
    head.status(b"500 Oops").unwrap();
    let mut out = Vec::new();
    GET11().head(&head, Known(0), DATE, &mut out);
    assert!(
        out.starts_with(b"HTTP/1.1 500 Oops\r\nX: y\r\n"),
        "{}",
        out.escape_ascii()
    );
    for name in ["Content-Length", "Date", "Server", "Upgrade", "Connection"] {
        let value = if name == "Content-Length" {
            "7"
        } else {
            "close"
        };
        head.field(name.as_bytes(), value.as_bytes()).unwrap();
    }
    head.clear();
    let clean = answer(GET11(), &head, Known(0), &[]);
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(clean, (expected.into(), true));
    assert_eq!(
        (head.code(), head.content_length(), head.fields().count()),
        (200, None, 0)
    );
}

#[test]
fn frames_for_sendfile() {
    let ok = head("200 OK", &[]);
    let start = |mut writer: ResponseWriter, size| {
        writer.head(&ok, size, DATE, &mut Vec::new());
        writer
    };
    let mut out = Vec::new();
    let mut counted = start(GET11(), Known(10));
    assert_eq!(counted.data_frame(8, &mut out), 8);
    counted.data_frame_end(&mut out);
    assert_eq!(counted.missing(), 2);
    assert_eq!(counted.data_frame(8, &mut out), 2);
    counted.data_frame_end(&mut out);
    assert!(out.is_empty() && counted.was_truncated());
    counted.end(&mut out);
    assert!(counted.keep_alive());

    let mut chunked = start(GET11(), Unknown);
    assert_eq!(chunked.data_frame(0, &mut out), 0);
    chunked.data_frame_end(&mut out);
    assert_eq!(chunked.data_frame(u64::MAX, &mut out), u64::MAX);
    chunked.data_frame_end(&mut out);
    chunked.end(&mut out);
    assert_eq!(out, b"ffffffffffffffff\r\n\r\n0\r\n\r\n");

    assert_eq!(start(GET10(), Unknown).data_frame(8, &mut out), 8);
    assert_eq!(start(HEAD11(), Known(8)).data_frame(8, &mut out), 0);
}

/// Steps out of order never produce a second answer, and leave a connection that gets closed.
#[test]
fn out_of_order() {
    let ok = head("200 OK", &[]);
    let broken = |writer: &ResponseWriter| writer.is_ended() && !writer.keep_alive();
    let mut out = Vec::new();
    let mut writer = GET11();
    writer.data(b"x", &mut out);
    assert!(broken(&writer) && out.is_empty());
    writer.head(&ok, Known(1), DATE, &mut out);
    writer.end(&mut out);
    assert!(broken(&writer) && out.is_empty());

    let mut writer = GET11();
    writer.end(&mut out);
    assert!(broken(&writer) && out.is_empty());

    let mut writer = GET11();
    writer.head(&ok, Known(1), DATE, &mut out);
    let length = out.len();
    writer.head(&ok, Known(1), DATE, &mut out);
    assert!(broken(&writer));
    writer.data(b"x", &mut out);
    assert_eq!(out.len(), length);

    let mut writer = GET11();
    writer.head(&ok, Unknown, DATE, &mut out);
    writer.end(&mut out);
    writer.end(&mut out);
    assert!(writer.keep_alive(), "an end twice is an end");
    let length = out.len();
    writer.data(b"x", &mut out);
    assert!(broken(&writer) && out.len() == length);
}

#[test]
fn answers_of_the_servers_own() {
    let mut out = Vec::new();
    continue_100(&mut out);
    assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\n");
    let expected = format!(
        "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n\
         {DATE_AND_SERVER}Connection: close\r\nContent-Length: 9\r\n\r\n"
    );
    for (is_head, body) in [(true, ""), (false, "too much\n")] {
        out.clear();
        error_response(431, "too much", DATE, is_head, &mut out);
        assert_eq!(
            String::from_utf8(out.clone()).unwrap(),
            format!("{expected}{body}")
        );
    }
    for error in crate::http1::RequestError::ALL {
        assert!(!reason(error.status()).is_empty());
    }
    assert_eq!(reason(299), "");
}

#[test]
fn percent_decoding() {
    let cases: &[(&[u8], &[u8])] = &[
        (b"", b""),
        (b"/plain", b"/plain"),
        (b"/a%2Fb%2fc", b"/a/b/c"),
        (b"/%C3%B6/%c0", b"/\xc3\xb6/\xc0"),
        (b"%00%0a%FF", b"\0\n\xff"),
        (b"%", b"%"),
        (b"%4", b"%4"),
        (b"%4g%41", b"%4gA"),
        (b"%%41", b"%A"),
        (b"%25%32%35", b"%25"), // once only
        (b"%+1", b"%+1"),
        (b"a+b", b"a+b"),
        (b"\xe2%80", b"\xe2\x80"),
    ];
    for (path, decoded) in cases {
        let mut out = b"before".to_vec();
        percent_decode(path, &mut out);
        assert_eq!(&out[6..], *decoded, "{}", path.escape_ascii());
    }
}
