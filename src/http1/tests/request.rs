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
