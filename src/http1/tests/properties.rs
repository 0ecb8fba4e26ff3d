//! Properties over generated inputs: the split doesn't matter, what is accepted is strictly valid,
//! what is written is read back.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::request::{Message, read_one};
use crate::http1::{
    BodySize, Event, Framing, Head, Limits, RequestError, RequestReader, ResponseHead,
    ResponseWriter, Span, Version,
};

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// Pieces that requests, good and bad, are made of.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<&'static [u8]> = vec![
        b"GET / HTTP/1.1\r\n",
        b"POST /x?y HTTP/1.1\r\n",
        b"POST http://h/ HTTP/1.0\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"GET / HTTP/2.0\r\n",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"X: y\r\n",
        b"X : y\r\n",
        b" folded\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b":",
        b"hello",
        b"5\r\nhello\r\n",
        b"5;a=\"b\\\"\"\r\n",
        b"0\r\n\r\n",
        b"0\r\nT: x\r\n\r\n",
        b"ffffffffffffffff\r\n",
    ];
    prop_oneof![
        12 => select(known).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..4),
    ]
}

/// Requests that have a fair chance to be good ones, one or several.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let start = select(vec![
        &b"GET / HTTP/1.1\r\nHost: a\r\n"[..],
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n",
        b"\r\nPOST / HTTP/1.0\r\n",
        b"",
    ]);
    let end = select(vec![
        &b"\r\n"[..],
        b"\r\nhello",
        b"\r\n5\r\nhello\r\n0\r\n\r\n",
        b"\r\n5;a=\"b\\\"\" ; c\r\nhello\r\n00\r\nT: x\r\n\r\n",
        b"",
    ]);
    vec((start, vec(fragment(), 0..3), end), 1..4).prop_map(|messages| {
        let join = |(start, fields, end): (&[u8], Vec<Vec<u8>>, &[u8])| {
            [start, &fields.concat(), end].concat()
        };
        messages.into_iter().flat_map(join).collect()
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let tight = (0..80usize, 0..40usize, 0..6usize, 0..200usize, 0..8u64).prop_map(
        |(request_line, field_size, fields, head_size, body)| Limits {
            request_line,
            field_size,
            fields,
            head_size,
            body,
        },
    );
    prop_oneof![3 => Just(Limits::default()), 1 => tight]
}

/// The messages of a whole connection, to the first error if there is one.
fn read_all(
    input: &[u8],
    pieces: &mut dyn Iterator<Item = usize>,
    limits: &Limits,
) -> (Vec<Message>, Result<bool, RequestError>) {
    let mut messages = Vec::new();
    let mut at = 0;
    // A piece that goes beyond a message's end: what is left of it is seen at once by the next.
    let mut seen = 0;
    let mut reader = RequestReader::new();
    let mut head = Head::default();
    let mut body = Vec::new();
    let (mut start, mut taken) = (0, None);
    loop {
        match reader.next_event(&input[at..seen], &mut head, limits) {
            Err(error) => return (messages, Err(error)),
            Ok(Event::NeedData) if seen == input.len() => {
                return (messages, Ok(reader.end_of_input().is_ok()));
            }
            Ok(Event::NeedData) => {
                seen = (seen + pieces.next().unwrap_or(usize::MAX).max(1)).min(input.len());
            }
            Ok(Event::Head { consumed }) => {
                start = at;
                at += consumed;
                taken = Some(head.clone());
            }
            Ok(Event::Data {
                consumed,
                body: range,
            }) => {
                body.extend_from_slice(&input[at..seen][range]);
                at += consumed;
            }
            Ok(Event::Skip { consumed }) => at += consumed,
            Ok(Event::End { consumed }) => {
                at += consumed;
                messages.push(Message {
                    head: taken.take().expect("End comes after Head"),
                    body: std::mem::take(&mut body),
                    length: at - start,
                });
                reader.next_message();
            }
        }
    }
}

/// The rules for a head, written without regard to speed or to how `head` does it.
fn assert_strictly_valid(input: &[u8], message: &Message, limits: &Limits) {
    let head = &message.head;
    let bytes = &input[..head.len as usize];
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    assert!(text.ends_with("\r\n\r\n"));
    let lines: Vec<&str> = text
        .trim_start_matches("\r\n")
        .trim_end_matches("\r\n")
        .split("\r\n")
        .collect();
    assert!(
        lines.iter().all(|line| !line.contains(['\r', '\n', '\0'])),
        "{text:?}"
    );
    let (line, fields) = lines.split_first().unwrap();
    assert!(line.len() <= limits.request_line && fields.len() <= limits.fields);
    assert_eq!(line.split(' ').count(), 3);
    let modern = !line.ends_with("HTTP/1.0");
    assert_eq!(modern, head.version == Version::Http11);
    let token = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
    };
    let mut named: Vec<(String, &str)> = Vec::new();
    for field in fields {
        assert!(field.len() <= limits.field_size);
        let (name, value) = field.split_once(':').expect("a field has a colon");
        assert!(token(name), "{name:?}");
        assert!(
            value
                .chars()
                .all(|c| c == '\t' || (c >= ' ' && c != '\x7f')),
            "{value:?}"
        );
        named.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])));
    }
    let all = |wanted: &str| -> Vec<&str> {
        named
            .iter()
            .filter(|(name, _)| name == wanted)
            .map(|(_, value)| *value)
            .collect()
    };
    let (hosts, lengths, codings) = (all("host"), all("content-length"), all("transfer-encoding"));
    assert!(hosts.len() == 1 || (hosts.is_empty() && !modern));
    match head.framing {
        Framing::None => assert!(lengths.is_empty() && codings.is_empty()),
        Framing::Length(length) => {
            assert!(codings.is_empty());
            assert_eq!(lengths.len(), 1);
            assert!(lengths[0].chars().all(|c| c.is_ascii_digit()));
            assert_eq!(lengths[0].parse(), Ok(length));
            assert_eq!(message.body.len() as u64, length);
        }
        Framing::Chunked => {
            assert!(modern && lengths.is_empty());
            assert_eq!(codings.len(), 1);
            assert!(codings[0].eq_ignore_ascii_case("chunked"));
        }
    }
    if limits.body != 0 {
        assert!(message.body.len() as u64 <= limits.body);
    }
    // The spans are what the lines say.
    assert_eq!(head.fields.len(), named.len());
    let shown = |span: Span| -> String { span.of(bytes).iter().map(|&b| char::from(b)).collect() };
    for (field, (name, value)) in head.fields.iter().zip(&named) {
        assert_eq!(&shown(field.name).to_ascii_lowercase(), name);
        assert_eq!(shown(field.value), *value);
    }
    assert!(line.starts_with(&format!(
        "{} {} HTTP/",
        shown(head.method),
        shown(head.target)
    )));
}

fn check(input: &[u8], splits: &[usize], limits: &Limits) -> usize {
    let whole = read_all(input, &mut [input.len()].into_iter(), limits);
    assert_eq!(
        whole,
        read_all(input, &mut splits.iter().copied().cycle(), limits)
    );
    assert_eq!(whole, read_all(input, &mut std::iter::repeat(1), limits));
    let mut at = 0;
    for message in &whole.0 {
        assert_strictly_valid(&input[at..], message, limits);
        at += message.length;
    }
    whole.0.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_events(
        input in plausible(),
        splits in vec(1..20usize, 1..6),
        limits in limits(),
    ) {
        check(&input, &splits, &limits);
    }

    #[test]
    fn arbitrary_bytes(input in vec(any::<u8>(), 0..200), splits in vec(1..20usize, 1..6)) {
        check(&input, &splits, &Limits::default());
    }

    /// One byte of a good request changed, inserted or removed: refused or still strictly valid.
    #[test]
    fn a_byte_off(
        place in any::<prop::sample::Index>(),
        byte in prop_oneof![
            select(b"\r\n\0\t :;,=\"\\+-0x".to_vec()), any::<u8>()
        ],
        how in 0..3u8,
        splits in vec(1..20usize, 1..4),
    ) {
        let mut input = b"POST /a?b HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\
            Connection: keep-alive\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nT: x\r\n\r\n\
            POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".to_vec();
        let at = place.index(input.len());
        match how {
            0 => input[at] = byte,
            1 => input.insert(at, byte),
            _ => { input.remove(at); }
        }
        check(&input, &splits, &Limits::default());
    }
}

/// A field's value: no control characters, no white space at its ends.
fn value() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![9 => b' '..=b'~', 2 => 0x80..=0xffu8, 1 => Just(b'\t')],
        0..20,
    )
    .prop_map(|mut value| {
        while matches!(value.last(), Some(b' ' | b'\t')) {
            value.pop();
        }
        let start = value
            .iter()
            .position(|&b| b != b' ' && b != b'\t')
            .unwrap_or(0);
        value.split_off(start)
    })
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    // `X` in front: none of the names that mean something.
    "X[A-Za-z0-9!#$%&'*+.^_`|~-]{0,18}".prop_map(String::into_bytes)
}

fn fields(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    vec((name(), value()), count)
}

proptest! {
    /// What a client means is what is read.
    #[test]
    fn requests_are_read_as_written(
        method in "[A-Z]{1,8}",
        path in "/[!$-~]{0,20}",
        query in proptest::option::of("[!$-~]{0,20}"),
        fields in fields(0..40),
        body in proptest::option::of(vec(any::<u8>(), 0..100)),
        chunks in vec(1..40usize, 0..8),
        splits in vec(1..50usize, 1..4),
    ) {
        prop_assume!(method != "CONNECT");
        let path = path.replace('?', "/");
        let target = query.as_ref().map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut input = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n").into_bytes();
        for (name, value) in &fields {
            input.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
        }
        let mut framing = Framing::None;
        let mut coded = Vec::new();
        if let Some(body) = &body {
            if chunks.is_empty() {
                framing = Framing::Length(body.len() as u64);
                input.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
                coded.clone_from(body);
            } else {
                framing = Framing::Chunked;
                input.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                let mut rest = &body[..];
                for &size in chunks.iter().cycle() {
                    let (chunk, after) = rest.split_at(size.min(rest.len()));
                    coded.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                    coded.extend_from_slice(chunk);
                    coded.extend_from_slice(b"\r\n");
                    rest = after;
                    if chunk.is_empty() {
                        break;
                    }
                }
            }
        }
        input.extend_from_slice(b"\r\n");
        input.extend_from_slice(&coded);

        let got = read_one(&input, &mut splits.iter().copied().cycle(), &Limits::default());
        let got = got.unwrap().unwrap();
        prop_assert_eq!(got.length, input.len());
        prop_assert_eq!(&got.body, &body.unwrap_or_default());
        prop_assert_eq!(got.head.framing, framing);
        prop_assert_eq!(got.head.method.of(&input), method.as_bytes());
        prop_assert_eq!(got.head.path.of(&input), path.as_bytes());
        let query = query.unwrap_or_default();
        prop_assert_eq!(got.head.query.of(&input), query.as_bytes());
        let read: Vec<_> = got.head.fields[1..1 + fields.len()]
            .iter()
            .map(|field| (field.name.of(&input).to_vec(), field.value.of(&input).to_vec()))
            .collect();
        prop_assert_eq!(read, fields);
    }

    /// What is written is read back by httparse and, chunked, by our own strict reader.
    #[test]
    fn answers_are_read_back(
        code in 200..600u16,
        reason in value(),
        fields in fields(0..20),
        announced in proptest::option::of(0..60u64),
        known in any::<bool>(),
        pieces in vec(vec(any::<u8>(), 0..30), 0..5),
        version in select(vec![Version::Http10, Version::Http11]),
        is_head in any::<bool>(),
        keep_alive in any::<bool>(),
    ) {
        let mut head = ResponseHead::new();
        head.status(&[format!("{code} ").as_bytes(), &reason].concat()).unwrap();
        for (name, value) in &fields {
            head.field(name, value).unwrap();
        }
        if let Some(length) = announced {
            head.field(b"Content-Length", length.to_string().as_bytes()).unwrap();
        }
        let body = pieces.concat();
        let size = if known { BodySize::Known(body.len() as u64) } else { BodySize::Unknown };
        let mut writer = ResponseWriter::new(version, is_head, keep_alive);
        let mut out = Vec::new();
        writer.head(&head, size, DATE, &mut out);
        for piece in &pieces {
            writer.data(piece, &mut out);
        }
        writer.end(&mut out);

        let mut room = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut room);
        let length = response.parse(&out).unwrap().unwrap();
        prop_assert_eq!(response.code, Some(code));
        let value_of = |wanted: &str| {
            let mut found = response.headers.iter().filter(|f| f.name.eq_ignore_ascii_case(wanted));
            let first = found.next().map(|field| std::str::from_utf8(field.value).unwrap());
            assert!(found.next().is_none(), "{wanted} twice");
            first
        };
        for wanted in ["Date", "Server"] {
            prop_assert!(value_of(wanted).is_some());
        }
        for ((name, value), field) in fields.iter().zip(response.headers.iter()) {
            prop_assert_eq!(name, field.name.as_bytes());
            prop_assert_eq!(value, field.value);
        }
        let sent = &out[length..];
        let said: Option<usize> = value_of("Content-Length").map(|text| text.parse().unwrap());
        let chunked = value_of("Transfer-Encoding").is_some();
        let closes = match value_of("Connection") {
            Some("close") => true,
            Some("keep-alive") => { prop_assert_eq!(version, Version::Http10); false }
            None => { prop_assert_eq!(version, Version::Http11); false }
            other => panic!("{other:?}"),
        };
        prop_assert!(keep_alive || closes);

        if is_head || [204, 205, 304].contains(&code) {
            prop_assert!(sent.is_empty() && !chunked);
            prop_assert!(code != 204 || said.is_none());
            prop_assert_eq!(writer.keep_alive(), !closes);
        } else if chunked {
            prop_assert!(said.is_none() && version == Version::Http11);
            prop_assert!(announced.is_none() && !known);
            let request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            let request = [&request[..], sent].concat();
            let got = read_one(&request, &mut std::iter::repeat(7), &Limits::default());
            let got = got.unwrap().unwrap();
            prop_assert_eq!(got.length, request.len());
            prop_assert_eq!(got.body, body);
            prop_assert_eq!(writer.keep_alive(), !closes);
        } else if let Some(said) = said {
            prop_assert_eq!(said as u64, announced.unwrap_or(body.len() as u64));
            prop_assert_eq!(sent, &body[..said.min(body.len())]);
            prop_assert_eq!(writer.was_truncated(), body.len() > said);
            prop_assert_eq!(writer.missing() as usize, said - sent.len());
            prop_assert_eq!(writer.keep_alive(), !closes && sent.len() == said);
        } else {
            prop_assert!(closes && version == Version::Http10);
            prop_assert_eq!(sent, &body[..]);
            prop_assert!(!writer.keep_alive());
        }
    }
}

/// The generator of plausible requests is worth its name: a good part of what it makes is accepted.
#[test]
fn plausible_requests_are_often_good() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut messages = 0;
    for _ in 0..1000 {
        let input = plausible().new_tree(&mut runner).unwrap().current();
        messages += check(&input, &[3], &Limits::default());
    }
    assert!(messages > 100, "{messages} messages in 1000 inputs");
}
