//! What is refused, with which error: docs/wire-cases.md and more of the same kinds. Every case is
//! run whole, byte by byte and with bytes behind it (`request::message`).

use super::request::message;
use crate::http1::RequestError::{self, *};
use crate::http1::{Head, Limits, RequestReader};

fn assert_refused(input: &[u8], error: RequestError) {
    assert_eq!(
        message(input).err(),
        Some(error),
        "{}",
        input.escape_ascii()
    );
}

fn refused_fields(cases: &[(&str, RequestError)]) {
    for (fields, error) in cases {
        let input = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\nhello");
        assert_refused(input.as_bytes(), *error);
        // Wherever it stands among other fields.
        let input = format!("POST / HTTP/1.1\r\nX: y\r\n{fields}\r\nHost: a\r\nY: z\r\n\r\nhello");
        assert_refused(input.as_bytes(), *error);
    }
}

#[test]
fn request_lines() {
    let cases: &[(&[u8], RequestError)] = &[
        (b"GET", RequestLine),
        (b"GET ", RequestLine),
        (b"GET  ", RequestLine),
        (b"GET /", RequestLine), // HTTP/0.9
        (b"GET HTTP/1.1", RequestLine),
        (b"GET  HTTP/1.1", RequestLine),
        (b" GET / HTTP/1.1", RequestLine),
        (b"\tGET / HTTP/1.1", RequestLine),
        (b"GET\t/ HTTP/1.1", Method),
        (b"GET  / HTTP/1.1", Target),
        (b"GET /  HTTP/1.1", Target),
        (b"GET / HTTP/1.1 ", Version),
        (b"GET /\tHTTP/1.1", RequestLine),
        (b"GET /a b HTTP/1.1", Target),
        (b"GET /a\tb HTTP/1.1", Target),
        (b"GET /a\0b HTTP/1.1", Target),
        (b"GET /a\x7fb HTTP/1.1", Target),
        (b"GET /a\rb HTTP/1.1", Target),
        (b"GET /a\x1b[31m HTTP/1.1", Target),
        (b"GET /#f HTTP/1.1", Fragment),
        (b"GET /?a#f HTTP/1.1", Fragment),
        (b"G(T / HTTP/1.1", Method),
        (b"G\xe9T / HTTP/1.1", Method),
        (b"G\0T / HTTP/1.1", Method),
        (b"GET: / HTTP/1.1", Method),
        (b"\"GET\" / HTTP/1.1", RequestLine),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", RequestLine), // TLS on a plain port
        (b"\x80 / HTTP/1.1", RequestLine),
    ];
    for (line, error) in cases {
        assert_refused(&[line, &b"\r\nHost: a\r\n\r\n"[..]].concat(), *error);
    }
}

#[test]
fn versions() {
    let cases: &[(&str, RequestError)] = &[
        ("HTTP/2.0", UnsupportedVersion),
        ("HTTP/3.0", UnsupportedVersion),
        ("HTTP/3.1", UnsupportedVersion),
        ("HTTP/0.9", UnsupportedVersion),
        ("HTTP/9.9", UnsupportedVersion),
        ("HTTP/2", Version),
        ("HTTP/1", Version),
        ("HTTP/1.", Version),
        ("HTTP/1.10", Version),
        ("HTTP/11.1", Version),
        ("HTTP/01.1", Version),
        ("HTTP/1.1x", Version),
        ("HTTP/1,1", Version),
        ("HTTP/+1.1", Version),
        ("http/1.1", Version),
        ("HTTP /1.1", Version),
        ("HTTPS/1.1", Version),
        ("XTTP/1.1", Version),
        ("ICY/1.0", Version),
    ];
    for (version, error) in cases {
        assert_refused(
            format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes(),
            *error,
        );
    }
    // HTTP/2 with prior knowledge: refused at its first line.
    assert_refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", UnsupportedVersion);
    assert_eq!(UnsupportedVersion.status(), 505);
}

#[test]
fn target_forms() {
    let cases: &[(&[u8], RequestError)] = &[
        (b"GET *", Asterisk),
        (b"options *", Asterisk),
        (b"OPTIONS **", TargetForm),
        (b"OPTIONS */", TargetForm),
        (b"CONNECT a:443", Connect),
        (b"CONNECT /", Connect),
        (b"GET a:443", TargetForm),
        (b"GET a", TargetForm),
        (b"GET ?x", TargetForm),
        (b"GET ./", TargetForm),
        (b"GET \\", TargetForm),
        (b"GET %2F", TargetForm),
        (b"GET \xe2\x80\xa6", TargetForm),
        (b"GET ftp://h/", TargetForm),
        (b"GET http:/h/", TargetForm),
        (b"GET http:", TargetForm),
        (b"GET http://", Authority),
        (b"GET http:///p", Authority),
        (b"GET http://?q", Authority),
        (b"GET http://:80/", Authority),
        (b"GET http://u@h/", Authority),
        (b"GET http://u:p@h/", Authority),
        (b"GET http://h:8o/", Authority),
        (b"GET http://h:123456/", Authority),
        (b"GET http://h\\x/", Authority),
        (b"GET http://[::1/", Authority),
        (b"GET http://h\xe9/", Authority),
    ];
    for (start, error) in cases {
        assert_refused(
            &[start, &b" HTTP/1.1\r\nHost: a\r\n\r\n"[..]].concat(),
            *error,
        );
    }
    assert_eq!(Connect.status(), 501);
}

#[test]
fn line_ends() {
    let cases: &[(&[u8], RequestError)] = &[
        (b"GET / HTTP/1.1\nHost: a\r\n\r\n", BareLineFeed),
        (b"GET / HTTP/1.1\r\nHost: a\n\r\n", BareLineFeed),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\n", BareLineFeed),
        (b"GET / HTTP/1.1\nHost: a\n\n", BareLineFeed),
        (b"GET / HTTP/1.0\r\n\nX: y\r\n\r\n", BareLineFeed),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX:\n\r\n", BareLineFeed),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: b\nContent-Length: 5\r\n\r\n",
            BareLineFeed,
        ),
        (b"GET / HTTP/1.1\n\r\n\r\n", BareLineFeed),
        (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", BareLineFeed),
        (b"\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", BareLineFeed),
        (b"\r\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine),
        (b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", Method),
        (b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", Version),
        (b"GET / HTTP/1.1\rHost: a\r\n\r\n", Version),
        (b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", FieldValue),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n", FieldName),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", FieldValue), // gunicorn #3144
        (
            b"\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            BlankLines,
        ),
    ];
    for (input, error) in cases {
        assert_refused(input, *error);
    }
}

#[test]
fn field_lines() {
    refused_fields(&[
        ("Content-Length : 5", SpaceBeforeColon), // cheroot #714
        ("Content-Length\t: 5", SpaceBeforeColon),
        ("Transfer-Encoding : chunked", SpaceBeforeColon),
        ("X Y: z", FieldName),
        (": z", FieldName),
        ("X", FieldName),
        ("X;: z", FieldName),
        ("X\0: z", FieldName),
        ("X\u{e9}: z", FieldName),
        ("\"X\": z", FieldName),
        ("X/Y: z", FieldName),
        ("X: a\0b", FieldValue),
        ("X: \0", FieldValue),
        ("X: a\x08b", FieldValue),
        ("X: a\x0bb", FieldValue),
        ("X: a\x1b[31m", FieldValue),
        ("X: a\x7fb", FieldValue),
        ("X: \x7f", FieldValue),
        ("X: a\r b", FieldValue),
        ("X: a\r\n b", LineFolding),
        ("X: a\r\n\tb", LineFolding),
        ("X: a\r\n ", LineFolding),
        ("X: a\r\n : b", LineFolding),
        ("Content-Length: 5\r\n 6", LineFolding),
    ]);
    // Before the first field (RFC 9112 2.2).
    assert_refused(b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", LineFolding);
    assert_refused(b"GET / HTTP/1.1\r\n \r\nHost: a\r\n\r\n", LineFolding);
    // The first fault is the one that is named.
    assert_refused(
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\nY : b\r\n\r\n",
        FieldValue,
    );
}

/// Every control character in every place of a value, every separator in a name.
#[test]
fn every_octet() {
    for byte in 0..=255u8 {
        for (before, after) in [(&b""[..], &b""[..]), (b"v", b""), (b"v", b"v"), (b"", b"v")] {
            let input = [
                b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
                before,
                &[byte],
                after,
                b"\r\n\r\n",
            ]
            .concat();
            let good = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
            assert_eq!(message(&input).is_ok(), good, "{}", input.escape_ascii());
        }
        let input = [
            &b"GET / HTTP/1.1\r\nHost: a\r\nX"[..],
            &[byte],
            b"Y: z\r\n\r\n",
        ]
        .concat();
        let good = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:".contains(&byte);
        assert_eq!(message(&input).is_ok(), good, "{}", input.escape_ascii());
        let input = [&b"GET /a"[..], &[byte], b"b HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let good = byte > b' ' && byte != 0x7f && byte != b'#';
        assert_eq!(message(&input).is_ok(), good, "{}", input.escape_ascii());
    }
}

#[test]
fn hosts() {
    assert_refused(b"GET / HTTP/1.1\r\n\r\n", NoHost);
    assert_refused(b"GET / HTTP/1.1\r\nX-Host: a\r\n\r\n", NoHost);
    assert_refused(b"GET http://a/ HTTP/1.1\r\n\r\n", NoHost);
    let several: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", // gunicorn #3366
        b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nX: y\r\nHOST: a\r\n\r\n",
        b"GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    ];
    for input in several {
        assert_refused(input, SeveralHosts);
    }
    let bad = [
        "", "a b", "a, b", "a/b", "a?b", "a#b", "u@a", "a:b", "a:80:80", "a:123456", ":80", "[::1",
        "::1", "[::1]x", "[]", "[g]", "a\\b", "\u{e9}", "a\"", "<a>", "http://a",
    ];
    for host in bad {
        for version in ["1.0", "1.1"] {
            let input = format!("GET / HTTP/{version}\r\nHost: {host}\r\n\r\n");
            assert_refused(input.as_bytes(), Host);
        }
    }
}

#[test]
fn content_lengths() {
    refused_fields(&[
        ("Content-Length: 1\r\nContent-Length: 5", SeveralLengths), // cheroot #737
        ("Content-Length: 5\r\nContent-Length: 5", SeveralLengths),
        (
            "Content-Length: 5\r\nX: y\r\ncontent-length: 5",
            SeveralLengths,
        ),
        ("Content-Length: 5, 5", Length),
        ("Content-Length: 5,", Length),
        ("Content-Length:", Length),
        ("Content-Length: +5", Length),
        ("Content-Length: -5", Length),
        ("Content-Length: -0", Length),
        ("Content-Length: 0x5", Length),
        ("Content-Length: 5 5", Length),
        ("Content-Length: 5.0", Length),
        ("Content-Length: 5e0", Length),
        ("Content-Length: 5_0", Length),
        ("Content-Length: \"5\"", Length),
        ("Content-Length: five", Length),
        ("Content-Length: \u{665}", Length), // ARABIC-INDIC DIGIT FIVE
        ("Content-Length: 18446744073709551616", Length),
        ("Content-Length: 18446744073709551621", Length),
        ("Content-Length: 99999999999999999999999999999999", Length),
        ("Content-Length: 18446744073709551615", BodyTooLarge),
        ("Content-Length: 1073741825", BodyTooLarge),
    ]);
}

#[test]
fn transfer_codings() {
    refused_fields(&[
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            LengthAndCodings,
        ), // uwsgi #2560
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 0",
            LengthAndCodings,
        ),
        (
            "Transfer-Encoding: xchunked\r\nContent-Length: 5",
            LengthAndCodings,
        ),
        ("Transfer-Encoding: xchunked", UnknownCoding), // gunicorn CVE-2024-1135
        ("Transfer-Encoding: identity", UnknownCoding), // gunicorn CVE-2024-6827
        ("Transfer-Encoding: gzip", UnknownCoding),
        ("Transfer-Encoding: gzip, chunked", UnknownCoding),
        (
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
            UnknownCoding,
        ),
        ("Transfer-Encoding: identity, chunked", UnknownCoding),
        ("Transfer-Encoding: chunked2", UnknownCoding),
        ("Transfer-Encoding: gzip;a=\"x, chunked\"", UnknownCoding),
        ("Transfer-Encoding: chunked, chunked", Codings),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            Codings,
        ),
        ("Transfer-Encoding: chunked, identity", Codings),
        ("Transfer-Encoding: chunked, gzip", Codings),
        (
            "Transfer-Encoding: chunked\r\ntransfer-encoding: identity",
            Codings,
        ),
        ("Transfer-Encoding: chunked;q=1", Codings),
        ("Transfer-Encoding: chunked;", Codings),
        ("Transfer-Encoding: chunked,", Codings),
        ("Transfer-Encoding: , chunked", Codings),
        ("Transfer-Encoding:", Codings),
        ("Transfer-Encoding: \"chunked\"", Codings),
        ("Transfer-Encoding: chunked chunked", Codings),
        ("Transfer-Encoding: chun\u{212a}ed", Codings), // KELVIN SIGN
        ("Transfer-Encoding: chunked\x0b", FieldValue),
        ("Transfer-Encoding:\x0bchunked", FieldValue),
        ("Transfer-Encoding\x0b: chunked", FieldName),
    ]);
    for coding in ["chunked", "gzip", ""] {
        let input = format!("POST / HTTP/1.0\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n");
        assert_refused(input.as_bytes(), CodingsInHttp10);
    }
    assert_eq!(UnknownCoding.status(), 501);
}

#[test]
fn expectations() {
    refused_fields(&[
        ("Expect: 200-ok", Expectation),
        ("Expect: 100-continue, x", Expectation),
        ("Expect: 100-continue;x=y", Expectation),
        ("Expect: 100-continue\r\nExpect: x", Expectation),
        // A dangerous fault comes before an unmet expectation.
        (
            "Expect: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
            LengthAndCodings,
        ),
    ]);
    assert_eq!(Expectation.status(), 417);
}

/// The statuses that the contract with the loop names, and no other; no reason is empty or twice.
#[test]
fn statuses_and_reasons() {
    let mut reasons = std::collections::HashSet::new();
    for error in RequestError::ALL {
        assert!(
            [400, 413, 414, 417, 431, 501, 505].contains(&error.status()),
            "{error:?}"
        );
        assert!(
            reasons.insert(error.reason()) && !error.reason().is_empty(),
            "{error:?}"
        );
        assert_eq!(error.to_string(), error.reason());
    }
}

/// What was readable of a refused request is there for the log; nothing of another connection's.
#[test]
fn a_refused_head_names_its_request() {
    let input = b"GET /x HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n";
    let other = b"DELETE /something/else/altogether HTTP/1.1\r\nHost: longer.example.org\r\n\r\n";
    for cut in 0..=input.len() {
        let (mut reader, limits) = (RequestReader::new(), Limits::default());
        let mut head = Head::default();
        RequestReader::new()
            .next_event(other, &mut head, &limits)
            .unwrap();
        if cut < input.len() {
            reader
                .next_event(&input[..cut], &mut head, &limits)
                .unwrap();
            RequestReader::new()
                .next_event(other, &mut head, &limits)
                .unwrap();
        }
        let error = reader.next_event(input, &mut head, &limits).unwrap_err();
        assert_eq!(error, SpaceBeforeColon);
        assert_eq!(
            (head.method.of(input), head.target.of(input)),
            (&b"GET"[..], &b"/x"[..])
        );
        assert_eq!(head.host, None);
    }
    let mut head = Head::default();
    RequestReader::new()
        .next_event(other, &mut head, &Limits::default())
        .unwrap();
    RequestReader::new()
        .next_event(b"\x16\x03", &mut head, &Limits::default())
        .unwrap_err();
    assert!(head.method.is_empty() && head.target.is_empty());
}
