//! Requests: each case is run whole, byte by byte, and with bytes of a next message behind it; the
//! outcome has to be the same.

use crate::http1::{Event, Framing, Head, Limits, RequestError, RequestReader, Version};

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub head: Head,
    pub body: Vec<u8>,
    /// Bytes of the whole message.
    pub length: usize,
}

/// One message from `input`, of which `pieces` become visible one after the other. `None`: incomplete.
pub(super) fn read_one(
    input: &[u8],
    pieces: &mut dyn Iterator<Item = usize>,
    limits: &Limits,
) -> Result<Option<Message>, RequestError> {
    let mut reader = RequestReader::new();
    let mut head = Head::default();
    let mut taken = None;
    let mut body = Vec::new();
    let (mut at, mut seen) = (0, 0);
    loop {
        match reader.next_event(&input[at..seen], &mut head, limits)? {
            Event::NeedData => {
                if seen == input.len() {
                    return Ok(None);
                }
                seen = (seen + pieces.next().unwrap_or(usize::MAX).max(1)).min(input.len());
                // A loop shares one Head between its connections.
                head = Head {
                    host: Some(Default::default()),
                    ..Head::default()
                };
            }
            Event::Head { consumed } => {
                assert_eq!(consumed, head.len as usize);
                at += consumed;
                taken = Some(head.clone());
            }
            Event::Data {
                consumed,
                body: range,
            } => {
                assert!(!range.is_empty() && range.end == consumed);
                body.extend_from_slice(&input[at..seen][range]);
                at += consumed;
            }
            Event::Skip { consumed } => {
                assert!(consumed > 0);
                at += consumed;
            }
            Event::End { consumed } => {
                let head = taken.expect("End comes after Head");
                return Ok(Some(Message {
                    head,
                    body,
                    length: at + consumed,
                }));
            }
        }
    }
}

/// The message, the same in every way of running the case.
pub(super) fn message(input: &[u8]) -> Result<Option<Message>, RequestError> {
    let limits = Limits::default();
    let whole = read_one(input, &mut [input.len()].into_iter(), &limits);
    let bytewise = read_one(input, &mut std::iter::repeat(1), &limits);
    assert_eq!(whole, bytewise, "{}", input.escape_ascii());
    if !matches!(whole, Ok(None)) {
        for behind in [
            &b"GET /2 HTTP/1.1\r\nHost: b\r\n\r\n"[..],
            b"\n",
            b"\0",
            b" ",
        ] {
            let longer = [input, behind].concat();
            let trailed = read_one(&longer, &mut [longer.len()].into_iter(), &limits);
            assert_eq!(whole, trailed, "{}", longer.escape_ascii());
        }
    }
    whole
}

#[test]
fn a_get() {
    let input =
        b"GET /a%2Fb?x=1?y HTTP/1.1\r\nHost: example.org:80\r\nX:\t two words \r\nEmpty:\r\n\r\n";
    let got = message(input).unwrap().unwrap();
    let head = &got.head;
    assert_eq!(head.method.of(input), b"GET");
    assert_eq!(head.target.of(input), b"/a%2Fb?x=1?y");
    assert_eq!(head.path.of(input), b"/a%2Fb");
    assert_eq!(head.query.of(input), b"x=1?y");
    assert_eq!(head.host.unwrap().of(input), b"example.org:80");
    assert_eq!(
        (head.version, head.framing),
        (Version::Http11, Framing::None)
    );
    assert!(head.keep_alive && !head.expect_continue && !head.upgrade);
    let fields: Vec<_> = head
        .fields
        .iter()
        .map(|field| (field.name.of(input), field.value.of(input)))
        .collect();
    assert_eq!(
        fields,
        [
            (&b"Host"[..], &b"example.org:80"[..]),
            (b"X", b"two words"),
            (b"Empty", b"")
        ]
    );
    assert_eq!(got.length, input.len());
}

fn head_of(input: &[u8]) -> Head {
    match message(input) {
        Ok(Some(got)) => got.head,
        other => panic!("{}: {other:?}", input.escape_ascii()),
    }
}

/// What is accepted as it is, and the path, query and authority it has.
#[test]
fn targets() {
    type Case = (
        &'static [u8],
        &'static [u8],
        &'static [u8],
        Option<&'static [u8]>,
    );
    let cases: &[Case] = &[
        (b"GET /", b"/", b"", None),
        (b"GET /?", b"/", b"", None),
        (b"GET /a/../b//c", b"/a/../b//c", b"", None),
        (b"GET //b", b"//b", b"", None),
        (b"GET /%c0", b"/%c0", b"", None),
        (b"GET /%C3%B6/", b"/%C3%B6/", b"", None),
        (b"GET /%", b"/%", b"", None),
        (b"GET /%1b[31m%0aFAKE", b"/%1b[31m%0aFAKE", b"", None),
        // granian #490, daphne #12: raw bytes beyond ASCII, UTF-8 or not
        (b"GET /\xe2\x80\xa6", b"/\xe2\x80\xa6", b"", None),
        (b"GET /\xc0?\xff", b"/\xc0", b"\xff", None),
        (
            b"GET /a|b{c}\"d\\e^f`<g>",
            b"/a|b{c}\"d\\e^f`<g>",
            b"",
            None,
        ),
        (b"GET /a:b@c?d/e?f", b"/a:b@c", b"d/e?f", None),
        (b"OPTIONS *", b"*", b"", None),
        (b"GET http://h", b"/", b"", Some(b"h")),
        (b"GET http://h/", b"/", b"", Some(b"h")),
        (b"GET http://h?q", b"/", b"q", Some(b"h")),
        (b"GET http://h?q/x", b"/", b"q/x", Some(b"h")),
        (
            b"GET HTTPS://h.example:443/p/q?r",
            b"/p/q",
            b"r",
            Some(b"h.example:443"),
        ),
        (b"GET http://[::1]:80/p", b"/p", b"", Some(b"[::1]:80")),
        (b"OPTIONS http://h", b"/", b"", Some(b"h")),
        (b"get /", b"/", b"", None),
        (b"M-SEARCH /", b"/", b"", None),
        (b"!#$%&'*+-.^_`|~09 /", b"/", b"", None),
    ];
    for &(start, path, query, authority) in cases {
        let input = [start, b" HTTP/1.1\r\nHost: other\r\n\r\n"].concat();
        let head = head_of(&input);
        let got = (head.path.of(&input), head.query.of(&input));
        assert_eq!(got, (path, query), "{}", start.escape_ascii());
        assert_eq!(head.authority.map(|span| span.of(&input)), authority);
        assert_eq!(head.host.unwrap().of(&input), b"other");
        let sent = [head.method.of(&input), head.target.of(&input)].join(&b' ');
        assert_eq!(sent, start);
    }
}

#[test]
fn hosts() {
    for host in [
        "a",
        "a:80",
        "a:",
        "127.0.0.1",
        "[::1]",
        "[2001:db8::1]:8080",
        "xn--a.b",
        "a_b",
        "%41",
    ] {
        let input = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let head = head_of(input.as_bytes());
        assert_eq!(head.host.unwrap().of(input.as_bytes()), host.as_bytes());
    }
    assert_eq!(head_of(b"GET / HTTP/1.0\r\n\r\n").host, None);
}

/// RFC 9110 2.5: a higher minor version is read as 1.1.
#[test]
fn versions() {
    assert_eq!(
        head_of(b"GET / HTTP/1.2\r\nHost: a\r\n\r\n").version,
        Version::Http11
    );
    assert_eq!(
        head_of(b"GET / HTTP/1.9\r\nHost: a\r\n\r\n").version,
        Version::Http11
    );
    assert_eq!(
        head_of(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n").version,
        Version::Http10
    );
    // The target is what is between the first space and the version.
    let input = b"GET /HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(head_of(input).target.of(input), b"/HTTP/1.1");
}

/// RFC 9112 9.3 and RFC 9110 7.6.1: options are case-insensitive and may be spread over fields.
#[test]
fn keep_alive_and_upgrade() {
    let cases = [
        ("1.1", "", true, false),
        ("1.1", "Connection: close\r\n", false, false),
        ("1.1", "connection: CLOSE\r\n", false, false),
        ("1.1", "Connection: keep-alive\r\n", true, false),
        ("1.1", "Connection: keep-alive, close\r\n", false, false),
        (
            "1.1",
            "Connection: x\r\nConnection: y ,\tClose\r\n",
            false,
            false,
        ),
        ("1.1", "Connection: closed\r\n", true, false),
        ("1.1", "Connection: \"close\"\r\n", true, false),
        ("1.1", "Connection:\r\n", true, false),
        ("1.1", "Connection: ,,close,\r\n", false, false),
        ("1.1", "Proxy-Connection: close\r\n", true, false),
        // Unit #1624: Firefox sends both options in one field.
        (
            "1.1",
            "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
            true,
            true,
        ),
        (
            "1.1",
            "Upgrade: websocket\r\nConnection: UPGRADE\r\n",
            true,
            true,
        ),
        ("1.1", "Connection: Upgrade\r\n", true, false),
        ("1.1", "Upgrade: websocket\r\n", true, false),
        ("1.0", "", false, false),
        ("1.0", "Connection: keep-alive\r\n", true, false),
        ("1.0", "Connection: Keep-Alive, close\r\n", false, false),
        (
            "1.0",
            "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n",
            true,
            false,
        ),
    ];
    for (version, fields, keep_alive, upgrade) in cases {
        let input = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let head = head_of(input.as_bytes());
        assert_eq!(
            (head.keep_alive, head.upgrade),
            (keep_alive, upgrade),
            "{input:?}"
        );
    }
}

/// RFC 9110 10.1.1.
#[test]
fn expectations() {
    let cases = [
        ("1.1", "Content-Length: 2\r\nExpect: 100-continue\r\n", true),
        ("1.1", "Content-Length: 2\r\nexpect: 100-Continue\r\n", true),
        ("1.1", "Content-Length: 2\r\nExpect:\r\n", false),
        (
            "1.1",
            "Content-Length: 0\r\nExpect: 100-continue\r\n",
            false,
        ),
        ("1.1", "Expect: 100-continue\r\n", false),
        (
            "1.0",
            "Content-Length: 2\r\nExpect: 100-continue\r\n",
            false,
        ),
        (
            "1.0",
            "Content-Length: 2\r\nExpect: the unexpected\r\n",
            false,
        ),
    ];
    for (version, fields, expected) in cases {
        let input = format!("POST / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let mut head = Head::default();
        let event =
            RequestReader::new().next_event(input.as_bytes(), &mut head, &Limits::default());
        assert_eq!(
            event,
            Ok(Event::Head {
                consumed: input.len()
            }),
            "{input:?}"
        );
        assert_eq!(head.expect_continue, expected, "{input:?}");
    }
    let chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n0\r\n\r\n";
    assert!(head_of(chunked).expect_continue);
}

#[test]
fn counted_bodies() {
    let cases = [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "hello",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\ncontent-length:\t0005 \r\n\r\nhello",
            "hello",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n\r\n",
            "\r\n",
        ),
        ("POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", "hello"),
        ("POST / HTTP/1.0\r\n\r\n", ""),
    ];
    for (input, body) in cases {
        let got = message(input.as_bytes()).unwrap().unwrap();
        assert_eq!(
            (got.body, got.length),
            (body.as_bytes().to_vec(), input.len()),
            "{input:?}"
        );
    }
}

/// RFC 9112 2.2.
#[test]
fn empty_lines_before_the_request_line() {
    let input = b"\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    let got = message(input).unwrap().unwrap();
    assert_eq!(got.head.path.of(input), b"/x");
    assert_eq!(got.head.host.unwrap().of(input), b"a");
    assert_eq!(
        (got.head.len as usize, got.length),
        (input.len(), input.len())
    );
}

/// More fields than fit on the stack, to the last one that is allowed.
#[test]
fn many_fields() {
    for count in [31, 32, 33, 99] {
        let mut input = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
        for i in 0..count {
            input.extend_from_slice(format!("X-{i}: {i}\r\n").as_bytes());
        }
        input.extend_from_slice(b"\r\n");
        let head = head_of(&input);
        assert_eq!(head.fields.len(), count + 1);
        let last = head.fields[count];
        let text = format!("{}", count - 1);
        assert_eq!(last.name.of(&input), format!("X-{text}").as_bytes());
        assert_eq!(last.value.of(&input), text.as_bytes());
    }
}

/// Pipelined requests of every framing, one reader.
#[test]
fn pipelining() {
    let input = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
        POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
        POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nd\r\n0\r\nT: x\r\n\r\n\
        \r\nGET /4 HTTP/1.1\r\nHost: a\r\n\r\n\
        POST /5 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nef\r\n0\r\n\r\n";
    for step in [1, 2, 3, 7, input.len()] {
        let (mut reader, mut head, limits) =
            (RequestReader::new(), Head::default(), Limits::default());
        let (mut at, mut seen) = (0, 0);
        let mut got = Vec::new();
        let mut ends = 0;
        while ends < 5 {
            match reader
                .next_event(&input[at..seen], &mut head, &limits)
                .unwrap()
            {
                Event::NeedData => seen = (seen + step).min(input.len()),
                Event::Head { consumed } => {
                    let path = String::from_utf8_lossy(head.path.of(&input[at..])).into_owned();
                    got.push((path, Vec::new()));
                    at += consumed;
                }
                Event::Data { consumed, body } => {
                    got.last_mut()
                        .unwrap()
                        .1
                        .extend_from_slice(&input[at..][body]);
                    at += consumed;
                }
                Event::Skip { consumed } => at += consumed,
                Event::End { consumed } => {
                    at += consumed;
                    ends += 1;
                    assert!(!reader.is_between_messages());
                    // Nothing more comes of a message that is over.
                    let again = reader.next_event(&input[at..seen], &mut head, &limits);
                    assert_eq!(again, Ok(Event::NeedData));
                    reader.next_message();
                    assert!(reader.is_between_messages());
                }
            }
        }
        let bodies: Vec<_> = got
            .iter()
            .map(|(path, body)| (path.as_str(), &body[..]))
            .collect();
        let expected = [
            ("/1", &b""[..]),
            ("/2", b"abc"),
            ("/3", b"d"),
            ("/4", b""),
            ("/5", b"ef"),
        ];
        assert_eq!(bodies, expected);
        assert_eq!(at, input.len());
    }
}

/// What the input's end means at every byte of two requests.
#[test]
fn end_of_input() {
    let first = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
    let second =
        b"\r\nPOST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let input = [&first[..], second].concat();
    for cut in 0..=input.len() {
        let (mut reader, mut head, limits) =
            (RequestReader::new(), Head::default(), Limits::default());
        let mut at = 0;
        loop {
            match reader
                .next_event(&input[at..cut], &mut head, &limits)
                .unwrap()
            {
                Event::NeedData => break,
                Event::End { consumed } => {
                    at += consumed;
                    reader.next_message();
                }
                Event::Head { consumed }
                | Event::Skip { consumed }
                | Event::Data { consumed, .. } => at += consumed,
            }
        }
        let between = [
            0,
            first.len(),
            first.len() + 1,
            first.len() + 2,
            input.len(),
        ];
        let clean = between.contains(&cut);
        assert_eq!(reader.is_between_messages(), clean, "at {cut}");
        let end = reader.end_of_input();
        assert_eq!(
            end,
            if clean {
                Ok(())
            } else {
                Err(RequestError::Incomplete)
            },
            "at {cut}"
        );
        if !clean {
            let after = reader.next_event(&input[at..], &mut head, &limits);
            assert_eq!(
                after,
                Err(RequestError::AfterEnd),
                "nothing comes behind the end"
            );
        }
    }
}

/// A half-closed client's request counts, although its End hasn't been fetched yet.
#[test]
fn end_of_input_behind_a_whole_message() {
    for input in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
    ] {
        let (mut reader, mut head, limits) =
            (RequestReader::new(), Head::default(), Limits::default());
        let Event::Head { consumed } = reader.next_event(input, &mut head, &limits).unwrap() else {
            panic!("a head")
        };
        if consumed < input.len() {
            let event = reader
                .next_event(&input[consumed..], &mut head, &limits)
                .unwrap();
            assert_eq!(
                event,
                Event::Data {
                    consumed: 2,
                    body: 0..2
                }
            );
        }
        assert_eq!(reader.end_of_input(), Ok(()));
        assert_eq!(
            reader.next_event(b"", &mut head, &limits),
            Ok(Event::End { consumed: 0 })
        );
        assert_eq!(reader.end_of_input(), Ok(()));
    }
}

/// A head filled in again keeps its room: no allocation per request.
#[test]
fn a_head_is_reused() {
    let input = b"GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\n\r\n";
    let (mut reader, mut head, limits) = (RequestReader::new(), Head::default(), Limits::default());
    reader.next_event(input, &mut head, &limits).unwrap();
    let room = (head.fields.as_ptr(), head.fields.capacity());
    for _ in 0..3 {
        reader = RequestReader::new();
        reader.next_event(input, &mut head, &limits).unwrap();
        assert_eq!((head.fields.as_ptr(), head.fields.capacity()), room);
        assert_eq!(head.fields.len(), 3);
    }
}

/// Going on in the midst of a body is a mistake that must not turn the body into a request.
#[test]
fn next_message_too_early() {
    let input = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (mut reader, mut head, limits) = (RequestReader::new(), Head::default(), Limits::default());
    let Event::Head { consumed } = reader.next_event(input, &mut head, &limits).unwrap() else {
        panic!("a head")
    };
    reader.next_message();
    let after = reader.next_event(&input[consumed..], &mut head, &limits);
    assert_eq!(after, Err(RequestError::AfterEnd));
}
