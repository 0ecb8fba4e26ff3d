//! The targets: each reads its input in several ways and panics when an invariant doesn't hold.
//!
//! Owns: the invariants, and oracles that are slow and plain on purpose. Must not: share code with the
//! parser beyond its public interface.
//!
//! A target gives a number that tells one behaviour of the parser from another, so that a runner
//! without coverage can keep the inputs that do something new.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use m0serve::http1::{
    BodySize, Event, Framing, Head, Limits, RequestError, RequestReader, ResponseHead,
    ResponseWriter, Span, Version,
};

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";
const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[derive(Debug, PartialEq, Eq)]
struct Message {
    head: Head,
    body: Vec<u8>,
    /// Where the message starts and ends in the input.
    start: usize,
    end: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    messages: Vec<Message>,
    /// The head of a message that isn't complete.
    open: Option<Head>,
    /// Whether the input may end where it does, or what is wrong with it.
    end: Result<bool, RequestError>,
}

/// Reads a whole connection's input, of which `piece` bytes more become visible whenever the reader wants
/// more.
fn read(input: &[u8], mut piece: impl FnMut() -> usize, limits: &Limits) -> Outcome {
    let (mut reader, mut head) = (RequestReader::new(), Head::default());
    let (mut messages, mut open, mut body) = (Vec::new(), None, Vec::new());
    let (mut at, mut seen, mut start) = (0, 0, 0);
    loop {
        let window = &input[at..seen];
        let event = reader.next_event(window, &mut head, limits);
        let consumed = match &event {
            Err(_) | Ok(Event::NeedData) => 0,
            Ok(Event::Head { consumed } | Event::Skip { consumed } | Event::End { consumed }) => {
                *consumed
            }
            Ok(Event::Data { consumed, .. }) => *consumed,
        };
        assert!(
            consumed <= window.len(),
            "{event:?} of {} bytes",
            window.len()
        );
        match event {
            Err(error) => {
                // A log line may be made of these. In a body, `head` is that of the message.
                if open.is_none() {
                    for_each_span(&head, |span| _ = span.of(window));
                }
                let again = reader.next_event(window, &mut head, limits);
                assert_eq!(again, Err(RequestError::AfterEnd));
                return Outcome {
                    messages,
                    open,
                    end: Err(error),
                };
            }
            Ok(Event::NeedData) if seen == input.len() => {
                let between = reader.is_between_messages();
                let clean = reader.end_of_input().is_ok();
                assert_eq!(between, clean);
                return Outcome {
                    messages,
                    open,
                    end: Ok(clean),
                };
            }
            Ok(Event::NeedData) => seen = input.len().min(seen + piece().max(1)),
            Ok(Event::Head { consumed }) => {
                assert_eq!(consumed, head.len as usize);
                for_each_span(&head, |span| _ = span.of(&window[..consumed]));
                start = at;
                open = Some(head.clone());
            }
            Ok(Event::Data { body: range, .. }) => {
                assert!(!range.is_empty());
                body.extend_from_slice(&window[range]);
            }
            Ok(Event::Skip { consumed }) => assert!(consumed > 0),
            Ok(Event::End { .. }) => {
                let head = open.take().expect("End comes after Head");
                let body = std::mem::take(&mut body);
                messages.push(Message {
                    head,
                    body,
                    start,
                    end: at + consumed,
                });
                reader.next_message();
            }
        }
        at += consumed;
    }
}

fn for_each_span(head: &Head, mut with: impl FnMut(Span)) {
    for span in [head.method, head.target, head.path, head.query] {
        with(span);
    }
    for span in [head.authority, head.host].into_iter().flatten() {
        with(span);
    }
    for field in &head.fields {
        with(field.name);
        with(field.value);
    }
}

/// The outcome, the same for every way of cutting the input into pieces.
fn read_every_way(input: &[u8], limits: &Limits) -> Outcome {
    let whole = read(input, || input.len(), limits);
    assert_eq!(whole, read(input, || 1, limits), "byte by byte");
    let mut state = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let pieces = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 60) as usize + 1
    };
    assert_eq!(whole, read(input, pieces, limits), "in pieces");
    whole
}

/// Target `head`: the input is a connection's.
pub fn head(input: &[u8]) -> u64 {
    let outcome = read_every_way(input, &Limits::default());
    for message in &outcome.messages {
        let bytes = &input[message.start..message.end];
        assert_valid_head(bytes, &message.head);
        assert_same_after_writing(bytes, message);
    }
    // A message leaves nothing behind in the reader that changes what the next one means.
    if let Some(first) = outcome.messages.first() {
        let rest = read(&input[first.end..], || 9, &Limits::default());
        let (got, expected) = (&rest.messages[..], &outcome.messages[1..]);
        assert_eq!(
            (got.len(), &rest.open, rest.end),
            (expected.len(), &outcome.open, outcome.end)
        );
        for (got, expected) in got.iter().zip(expected) {
            assert_eq!((&got.head, &got.body), (&expected.head, &expected.body));
            assert_eq!(
                (got.start, got.end),
                (expected.start - first.end, expected.end - first.end)
            );
        }
    }
    // Bounds that an input of some hundred bytes can reach. A head that is accepted under them is
    // accepted without them.
    let tight = Limits {
        request_line: 40,
        field_size: 24,
        fields: 4,
        head_size: 120,
        body: 16,
    };
    let bounded = read_every_way(input, &tight);
    for (got, full) in bounded.messages.iter().zip(&outcome.messages) {
        assert_eq!(got, full);
        assert!(got.head.fields.len() <= 4 && got.head.len <= 120 && got.body.len() <= 16);
    }
    assert!(bounded.messages.len() <= outcome.messages.len());
    signature(&outcome) ^ signature(&bounded).rotate_left(1)
}

/// Target `chunked`: the input is a chunked body and what comes behind it.
pub fn chunked(input: &[u8]) -> u64 {
    let whole = [CHUNKED, input].concat();
    let outcome = read_every_way(&whole, &Limits::default());
    if let Some(message) = outcome.messages.first() {
        let (body, length) = plainly_decoded(input).expect("what is accepted is a chunked body");
        assert_eq!(
            (&message.body, message.end),
            (&body, CHUNKED.len() + length)
        );
        assert_same_after_writing(&whole[..message.end], message);
        for end in [CHUNKED.len(), message.end - 1] {
            let cut = read(&whole[..end], || 64, &Limits::default());
            assert_eq!(
                (cut.messages.len(), cut.end),
                (0, Ok(false)),
                "not complete before its end"
            );
        }
        let limit = message.body.len() as u64;
        if limit > 1 {
            let limits = Limits {
                body: limit - 1,
                ..Limits::default()
            };
            assert_eq!(
                read_every_way(&whole, &limits).end,
                Err(RequestError::BodyTooLarge)
            );
        }
    }
    signature(&outcome)
}

/// How the input ended and what its last message was like, in rough figures.
fn signature(outcome: &Outcome) -> u64 {
    let rough = |size: usize| size.checked_ilog2().map_or(0, |log| log + 1);
    let mut hasher = DefaultHasher::new();
    outcome.messages.len().min(3).hash(&mut hasher);
    if let Some(message) = outcome.messages.last() {
        let head = &message.head;
        (
            head.framing == Framing::Chunked,
            head.version == Version::Http10,
        )
            .hash(&mut hasher);
        (head.keep_alive, head.expect_continue, head.upgrade).hash(&mut hasher);
        (head.authority.is_some(), head.query.is_empty()).hash(&mut hasher);
        let framing = message.end - message.start - head.len as usize - message.body.len();
        (
            rough(head.fields.len()),
            rough(message.body.len()),
            rough(framing),
        )
            .hash(&mut hasher);
    }
    outcome
        .open
        .as_ref()
        .map(|head| head.framing == Framing::Chunked)
        .hash(&mut hasher);
    outcome.end.hash(&mut hasher);
    hasher.finish()
}

/// The rules of RFC 9112 for an accepted head, by plain means.
fn assert_valid_head(bytes: &[u8], head: &Head) {
    let text: String = bytes[..head.len as usize]
        .iter()
        .map(|&byte| char::from(byte))
        .collect();
    let lines = text
        .trim_start_matches("\r\n")
        .strip_suffix("\r\n\r\n")
        .expect("an empty line");
    let mut lines = lines.split("\r\n");
    let line = lines.next().unwrap_or_default();
    assert_eq!(line.split(' ').count(), 3, "{line:?}");
    assert!(!line.chars().any(|c| c.is_ascii_control()), "{line:?}");
    let mut hosts = 0;
    let mut framing = Vec::new();
    for field in lines {
        let (name, value) = field.split_once(':').expect("a colon");
        assert!(!name.is_empty(), "{field:?}");
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        assert!(name.chars().all(token), "{field:?}");
        assert!(
            value.chars().all(|c| c == '\t' || !c.is_ascii_control()),
            "{field:?}"
        );
        let value = value.trim_matches([' ', '\t']);
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" => framing.push(Framing::Length(value.parse().expect("a number"))),
            "transfer-encoding" => {
                assert!(value.eq_ignore_ascii_case("chunked"), "{value:?}");
                framing.push(Framing::Chunked);
            }
            _ => {}
        }
    }
    assert!(hosts == 1 || (hosts == 0 && head.version == Version::Http10));
    assert!(
        framing.len() <= 1,
        "one thing at most says how long the body is"
    );
    assert_eq!(framing.pop().unwrap_or(Framing::None), head.framing);
    assert!(head.version == Version::Http11 || head.framing != Framing::Chunked);
}

/// The message written out from what was read of it, read again: nothing may have changed.
fn assert_same_after_writing(bytes: &[u8], message: &Message) {
    let head = &message.head;
    let version = match head.version {
        Version::Http10 => &b"HTTP/1.0"[..],
        Version::Http11 => b"HTTP/1.1",
    };
    let mut out = [head.method.of(bytes), head.target.of(bytes), version].join(&b' ');
    out.extend_from_slice(b"\r\n");
    let mut answer = ResponseHead::new();
    for field in &head.fields {
        let (name, value) = (field.name.of(bytes), field.value.of(bytes));
        out.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        // What a client may send, an application may send back: but not what frames a body.
        if ![&b"content-length"[..], b"transfer-encoding"]
            .iter()
            .any(|n| name.eq_ignore_ascii_case(n))
        {
            answer.field(name, value).expect("a valid field");
        }
    }
    out.extend_from_slice(b"\r\n");
    let head_end = out.len();
    if head.framing == Framing::Chunked {
        // By our own writer, whose head is not wanted here.
        let mut writer = ResponseWriter::new(Version::Http11, false, true);
        let mut coded = Vec::new();
        writer.head(&answer, BodySize::Unknown, DATE, &mut coded);
        assert_eq!(
            coded.windows(4).position(|four| four == b"\r\n\r\n"),
            Some(coded.len() - 4)
        );
        coded.clear();
        for piece in message.body.chunks(7) {
            writer.data(piece, &mut coded);
        }
        writer.end(&mut coded);
        out.extend_from_slice(&coded);
    } else {
        out.extend_from_slice(&message.body);
    }
    let again = read(
        &out,
        || 5,
        &Limits {
            head_size: usize::MAX,
            ..Limits::default()
        },
    );
    assert_eq!((again.messages.len(), again.end), (1, Ok(true)));
    let second = &again.messages[0];
    assert_eq!(
        (second.end, second.head.len as usize),
        (out.len(), head_end)
    );
    assert_eq!(second.body, message.body);
    let said = |head: &Head| {
        (
            head.version,
            head.framing,
            head.keep_alive,
            head.expect_continue,
            head.upgrade,
        )
    };
    assert_eq!(said(&second.head), said(head));
    let texts = |head: &Head, bytes: &[u8]| {
        let mut texts = Vec::new();
        for_each_span(head, |span| texts.push(span.of(bytes).to_vec()));
        texts
    };
    assert_eq!(texts(&second.head, &out), texts(head, bytes));
}

/// A chunked body by plain means: line by line, sizes as `u64::from_str_radix` reads them.
/// More is accepted here than by the parser (extensions aren't looked into); what both accept must be equal.
fn plainly_decoded(input: &[u8]) -> Option<(Vec<u8>, usize)> {
    let line_at = |at: usize| {
        let length = input[at..].windows(2).position(|two| two == b"\r\n")?;
        let line = &input[at..at + length];
        (!line
            .iter()
            .any(|&byte| byte == b'\n' || byte == b'\r' || byte == 0))
        .then_some(line)
    };
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let line = line_at(at)?;
        at += line.len() + 2;
        let size = line
            .split(|&byte| matches!(byte, b';' | b' ' | b'\t'))
            .next()?;
        let size = std::str::from_utf8(size)
            .ok()
            .filter(|text| !text.starts_with('+'))?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            break;
        }
        body.extend_from_slice(input.get(at..at.checked_add(size)?)?);
        at += size;
        if input.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        at += 2;
    }
    loop {
        let line = line_at(at)?;
        at += line.len() + 2;
        if line.is_empty() {
            return Some((body, at));
        }
        let colon = line.iter().position(|&byte| byte == b':')?;
        if colon == 0 || line[..colon].contains(&b' ') {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    /// Every file of the corpus holds, and the corpus shows the parser in more than a few moods.
    #[test]
    fn the_corpus_holds() {
        for (name, target) in [
            ("head", super::head as fn(&[u8]) -> u64),
            ("chunked", super::chunked),
        ] {
            let files = crate::runner::corpus(name);
            let moods: std::collections::HashSet<u64> =
                files.iter().map(|(_, input)| target(input)).collect();
            assert!(
                moods.len() >= 12,
                "{name}: {} of {} files differ",
                moods.len(),
                files.len()
            );
        }
    }
}
