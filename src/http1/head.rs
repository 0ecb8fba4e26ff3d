//! A request's head: where it ends, its fields in place, what they say about framing.
//!
//! Owns: [`Head`], [`Limits`], the refusals of RFC 9112 that httparse leaves to its callers, and the
//! search for the head's end. Must not: copy field bytes (spans only), allocate in the common case.
//! Runs on whichever thread owns the connection.
//!
//! Two ways lead to the same result. A head that the first read has brought whole is parsed at once. If
//! anything is wrong with it, or if it isn't all there, the lines are walked as they come, each byte
//! once, and every line-wise rule is checked in the order of bytes. So the error never depends on how
//! the input was split.
#![forbid(unsafe_code)]

use memchr::memchr;

use super::event::RequestError;
use super::octets::{decimal, is_authority, is_text, is_token, trimmed};
use super::target::{may_start, read_request_line};

/// Byte offsets from the start of the buffer that holds the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// Heads are bounded by `Limits::head_size`, which is never beyond 4 GiB.
    pub(super) fn new(start: usize, end: usize) -> Span {
        Span {
            start: start as u32,
            end: end as u32,
        }
    }

    /// The bytes, of the buffer that the head was parsed in.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }

    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A header field; `value` is without the white space around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    pub name: Span,
    pub value: Span,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    Http10,
    #[default]
    Http11,
}

/// How the request's body is delimited (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    #[default]
    None,
    Length(u64),
    Chunked,
}

/// A request's head, in spans. Made to be reused: filling it in again allocates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub method: Span,
    /// As sent.
    pub target: Span,
    /// Of the origin or absolute form, not decoded; never empty. `*` for the asterisk form.
    pub path: Span,
    /// Without its `?`.
    pub query: Span,
    /// Of the absolute form: it overrides Host (RFC 9112 3.2.2).
    pub authority: Option<Span>,
    /// The Host field's value.
    pub host: Option<Span>,
    pub version: Version,
    pub framing: Framing,
    /// What the client asks for, by version and Connection (RFC 9112 9.3).
    pub keep_alive: bool,
    /// The client waits for a 100 before it sends its body. Only with a body to wait for, and never in
    /// HTTP/1.0 (RFC 9110 10.1.1).
    pub expect_continue: bool,
    /// Connection has `upgrade`, and there is an Upgrade (RFC 9110 7.8); never in HTTP/1.0.
    pub upgrade: bool,
    pub fields: Vec<Field>,
    /// Bytes of the head with the empty line at its end, and empty lines before it.
    pub len: u32,
}

impl Head {
    /// Empty, with the room for fields kept.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Head {
            fields,
            ..Head::default()
        };
    }
}

/// Bounds on what a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request line, without CR LF. 414 beyond. 8190: Apache's LimitRequestLine; RFC 9112 3
    /// asks for 8000 at least.
    pub request_line: usize,
    /// Bytes of one field line, without CR LF. 431 beyond. 8190: gunicorn's and Apache's; a browser's
    /// cookies for one site fit in 4096.
    pub field_size: usize,
    /// How many fields. 431 beyond. 100: gunicorn's and Apache's; browsers send twelve to twenty.
    pub fields: usize,
    /// Bytes of the whole head. 431 beyond. 64 KiB: h11's; without it, the other three allow a client
    /// that never ends its head 800 KiB of this server's memory.
    pub head_size: usize,
    /// Bytes of a body, chunked ones after decoding; 0: no limit. 413 beyond: at the head for a
    /// Content-Length, at the chunk that goes beyond otherwise. 1 GiB: nginx has 1 MiB, but bodies are spooled
    /// to disk here; the figure guards the disk, the application knows what it wants.
    pub body: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_line: 8190,
            field_size: 8190,
            fields: 100,
            head_size: 64 * 1024,
            body: 1 << 30,
        }
    }
}

/// Empty lines skipped before a request line. Old clients send one behind a POST's body (RFC 9112 2.2).
pub const BLANK_LINES: u32 = 4;

/// No head is shorter.
const SHORTEST: usize = b"M / HTTP/1.0\r\n\r\n".len();

/// Fields that fit on the stack. Zeroing more costs every request; more fields cost the rare
/// request that has them a second pass.
const STACK_FIELDS: usize = 32;

/// How far a head has been looked at: nothing is looked at twice while it comes in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadScan {
    /// Bytes looked at.
    at: usize,
    /// Start of the line that `at` is in; <= `at`.
    line: usize,
    /// Start of the request line, once it is whole.
    start: usize,
    /// Start of the field lines; 0 until the request line is whole.
    fields_start: usize,
    /// Field lines seen; <= `Limits::fields`.
    fields: usize,
    /// Empty lines before the request line; <= `BLANK_LINES`.
    blank: u32,
}

impl HeadScan {
    /// Fills in `head` and gives its length once it is whole.
    #[inline]
    pub(super) fn next_head(
        &mut self,
        input: &[u8],
        head: &mut Head,
        limits: &Limits,
    ) -> Result<Option<usize>, RequestError> {
        // The common case: the first read has brought the whole head. Should it be anything else, or
        // wrong, the walk below finds out what; this is tried once only.
        if self.at == 0
            && input.len() >= SHORTEST
            && !input.starts_with(b"\r")
            && read_whole(input, head, limits).is_ok_and(|end| end <= head_size(limits))
        {
            return Ok(Some(head.len as usize));
        }
        self.next_head_in_parts(input, head, limits)
    }

    /// A byte of a request line has been seen.
    pub(super) fn has_begun(&self, input: &[u8]) -> bool {
        self.fields_start != 0 || !matches!(input.get(self.line..), None | Some([] | [b'\r']))
    }

    fn next_head_in_parts(
        &mut self,
        input: &[u8],
        head: &mut Head,
        limits: &Limits,
    ) -> Result<Option<usize>, RequestError> {
        // `head` is this connection's only within one call.
        let read_before = self.fields_start != 0;
        if !read_before {
            head.clear();
        }
        let walked = self.walk(input, head, limits);
        if read_before && !matches!(walked, Ok(None)) {
            head.clear();
            read_request_line(&input[self.start..self.fields_start - 2], self.start, head)?;
        }
        match walked? {
            Some(end) => read_fields(&input[..end], self.fields_start, head, limits).map(Some),
            None => Ok(None),
        }
    }

    /// Walks over the lines that have come in since the last call; the head's end, if it is there.
    fn walk(
        &mut self,
        input: &[u8],
        head: &mut Head,
        limits: &Limits,
    ) -> Result<Option<usize>, RequestError> {
        loop {
            let in_fields = self.fields_start != 0;
            if !in_fields
                && self.line < head_size(limits)
                && input.get(self.line).is_some_and(|&byte| !may_start(byte))
            {
                return Err(RequestError::RequestLine);
            }
            let found = memchr(b'\n', &input[self.at..]).map(|i| self.at + i);
            self.check_size(found, input.len(), limits)?;
            let Some(lf) = found else {
                self.at = input.len();
                return Ok(None);
            };
            if lf == self.line || input[lf - 1] != b'\r' {
                return Err(RequestError::BareLineFeed);
            }
            let line = &input[self.line..lf - 1];
            let next = lf + 1;
            match (in_fields, line.is_empty()) {
                (false, true) => {
                    self.blank += 1;
                    if self.blank > BLANK_LINES {
                        return Err(RequestError::BlankLines);
                    }
                }
                (false, false) => {
                    read_request_line(line, self.line, head)?;
                    self.start = self.line;
                    self.fields_start = next;
                }
                (true, true) => return Ok(Some(next)),
                (true, false) => {
                    self.fields += 1;
                    if self.fields > limits.fields {
                        return Err(RequestError::TooManyFields);
                    }
                }
            }
            self.line = next;
            self.at = next;
        }
    }

    /// The bounds of the present line and of the head. `found` is where the line's LF is; the input's
    /// `length` bounds the line otherwise. What is out of bounds first is what is wrong.
    fn check_size(
        &self,
        found: Option<usize>,
        length: usize,
        limits: &Limits,
    ) -> Result<(), RequestError> {
        let (limit, error) = if self.fields_start == 0 {
            (limits.request_line, RequestError::RequestLineTooLong)
        } else {
            (limits.field_size, RequestError::FieldTooLong)
        };
        // The first byte that is too much, CR allowed for: an LF there would still end the line.
        let line_bound = self.line.saturating_add(limit).saturating_add(1);
        let head_bound = head_size(limits);
        let too_long = found.unwrap_or(length) > line_bound;
        let too_large = found.map_or(length, |lf| lf + 1) > head_bound;
        match (too_long, too_large) {
            (true, true) if head_bound < line_bound => Err(RequestError::HeadTooLarge),
            (true, _) => Err(error),
            (false, true) => Err(RequestError::HeadTooLarge),
            (false, false) => Ok(()),
        }
    }
}

/// Spans are of 32 bits.
fn head_size(limits: &Limits) -> usize {
    limits.head_size.min(u32::MAX as usize)
}

/// A head that starts at the front of `input` and is supposed to be all there.
fn read_whole(input: &[u8], head: &mut Head, limits: &Limits) -> Result<usize, RequestError> {
    head.clear();
    let lf = memchr(b'\n', input).ok_or(RequestError::Incomplete)?;
    let line = input[..lf]
        .strip_suffix(b"\r")
        .ok_or(RequestError::BareLineFeed)?;
    if line.len() > limits.request_line {
        return Err(RequestError::RequestLineTooLong);
    }
    read_request_line(line, 0, head)?;
    read_fields(input, lf + 1, head, limits)
}

/// The field lines from `start` on, with the empty line; gives the head's end.
fn read_fields(
    input: &[u8],
    start: usize,
    head: &mut Head,
    limits: &Limits,
) -> Result<usize, RequestError> {
    let lines = &input[start..];
    let mut few = [httparse::EMPTY_HEADER; STACK_FIELDS];
    let mut many = Vec::new();
    let mut parsed = httparse::parse_headers(lines, &mut few);
    if parsed == Err(httparse::Error::TooManyHeaders) && limits.fields > STACK_FIELDS {
        // No more than there can be: a field line has four bytes at least.
        many.resize(limits.fields.min(lines.len() / 4), httparse::EMPTY_HEADER);
        parsed = httparse::parse_headers(lines, &mut many);
    }
    match parsed {
        Ok(httparse::Status::Complete((length, fields))) => {
            let end = start + length;
            note_fields(input, start, end, fields, head, limits)?;
            head.len = end as u32;
            Ok(end)
        }
        Ok(httparse::Status::Partial) => Err(RequestError::Incomplete),
        Err(httparse::Error::TooManyHeaders) => Err(RequestError::TooManyFields),
        Err(_) => Err(blame(lines)),
    }
}

/// Which of the rules for field lines is broken first; httparse has found that one is.
fn blame(mut lines: &[u8]) -> RequestError {
    while let Some(lf) = memchr(b'\n', lines) {
        let line = &lines[..lf];
        let Some(line) = line.strip_suffix(b"\r") else {
            return RequestError::BareLineFeed;
        };
        lines = &lines[lf + 1..];
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return RequestError::LineFolding;
        }
        let colon = memchr(b':', line).unwrap_or(line.len());
        let name = &line[..colon];
        if colon == line.len() || !is_token(name) {
            let spaced = colon < line.len() && name.len() > 1 && is_token(trimmed(name));
            return if spaced {
                RequestError::SpaceBeforeColon
            } else {
                RequestError::FieldName
            };
        }
        if !is_text(&line[colon + 1..]) {
            return RequestError::FieldValue;
        }
    }
    RequestError::FieldValue
}

/// What the fields say about framing and the connection, gathered until the last of them is seen.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    codings: Option<Result<Codings, RequestError>>,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    upgrade_field: bool,
    expect_continue: bool,
    expect_other: bool,
}

/// Of the codings seen so far, `chunked` is the last: nothing may follow it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Codings {
    Chunked,
}

fn note_fields(
    input: &[u8],
    start: usize,
    end: usize,
    fields: &[httparse::Header<'_>],
    head: &mut Head,
    limits: &Limits,
) -> Result<(), RequestError> {
    if fields.len() > limits.fields {
        return Err(RequestError::TooManyFields);
    }
    let base = input.as_ptr() as usize;
    let span = |bytes: &[u8]| {
        let from = bytes.as_ptr() as usize - base;
        Span::new(from, from + bytes.len())
    };
    let mut said = Said::default();
    let mut line = start;
    for (i, field) in fields.iter().enumerate() {
        // httparse takes a bare LF for a line's end.
        let next = fields
            .get(i + 1)
            .map_or(end - 2, |next| next.name.as_ptr() as usize - base);
        if next < line + 2 || input[next - 2] != b'\r' {
            return Err(RequestError::BareLineFeed);
        }
        if next - 2 - line > limits.field_size {
            return Err(RequestError::FieldTooLong);
        }
        line = next;
        let (name, value) = (field.name.as_bytes(), field.value);
        let span_of_value = span(value);
        head.fields.push(Field {
            name: span(name),
            value: span_of_value,
        });
        said.note(name, value, span_of_value, head)?;
    }
    if input[end - 2] != b'\r' {
        return Err(RequestError::BareLineFeed);
    }
    said.conclude(head, limits)
}

impl Said {
    #[inline]
    fn note(
        &mut self,
        name: &[u8],
        value: &[u8],
        span: Span,
        head: &mut Head,
    ) -> Result<(), RequestError> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is(b"host") => {
                if head.host.is_some() {
                    return Err(RequestError::SeveralHosts);
                }
                if !is_authority(value) {
                    return Err(RequestError::Host);
                }
                head.host = Some(span);
            }
            6 if is(b"expect") => self.note_expect(value),
            7 if is(b"upgrade") => self.upgrade_field = true,
            10 if is(b"connection") => self.note_connection(value),
            14 if is(b"content-length") => {
                if self.length.is_some() {
                    return Err(RequestError::SeveralLengths);
                }
                self.length = Some(decimal(value).ok_or(RequestError::Length)?);
            }
            17 if is(b"transfer-encoding") => self.note_codings(value),
            _ => {}
        }
        Ok(())
    }

    /// `#connection-option`, case-insensitive, over any number of fields (RFC 9110 7.6.1).
    fn note_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(trimmed) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade_option = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                _ => {}
            }
        }
    }

    /// `#expectation`, of which only one is defined (RFC 9110 10.1.1).
    fn note_expect(&mut self, value: &[u8]) {
        for expectation in value.split(|&byte| byte == b',').map(trimmed) {
            if expectation.eq_ignore_ascii_case(b"100-continue") {
                self.expect_continue = true;
            } else if !expectation.is_empty() {
                self.expect_other = true;
            }
        }
    }

    /// `#transfer-coding` (RFC 9112 6.1, 7): `chunked` alone is known here. Without the lenience for
    /// empty list elements that RFC 9110 5.6.1 has for fields at large: nobody sends them here but
    /// who looks for servers that disagree.
    fn note_codings(&mut self, value: &[u8]) {
        for coding in value.split(|&byte| byte == b',').map(trimmed) {
            let name = coding
                .split(|&byte| byte == b';')
                .next()
                .map_or(coding, trimmed);
            let one = if !is_token(name) {
                Err(RequestError::Codings)
            } else if !name.eq_ignore_ascii_case(b"chunked") {
                Err(RequestError::UnknownCoding)
            } else if name.len() < coding.len() {
                Err(RequestError::Codings)
            } else {
                Ok(Codings::Chunked)
            };
            self.codings = Some(match self.codings {
                None => one,
                Some(Ok(Codings::Chunked)) => Err(RequestError::Codings),
                Some(Err(error)) => Err(error),
            });
        }
    }

    /// RFC 9112 6.3 and 9.3, in the order of how dangerous a misunderstanding would be.
    fn conclude(self, head: &mut Head, limits: &Limits) -> Result<(), RequestError> {
        let modern = head.version == Version::Http11;
        head.framing = match (self.codings, self.length) {
            (Some(_), _) if !modern => return Err(RequestError::CodingsInHttp10),
            (Some(_), Some(_)) => return Err(RequestError::LengthAndCodings),
            (Some(codings), None) => codings.map(|Codings::Chunked| Framing::Chunked)?,
            (None, Some(length)) => Framing::Length(length),
            (None, None) => Framing::None,
        };
        if modern && head.host.is_none() {
            return Err(RequestError::NoHost);
        }
        if modern && self.expect_other {
            return Err(RequestError::Expectation);
        }
        if let Framing::Length(length) = head.framing
            && limits.body != 0
            && length > limits.body
        {
            return Err(RequestError::BodyTooLarge);
        }
        head.keep_alive = !self.close && (modern || self.keep_alive);
        head.expect_continue = modern
            && self.expect_continue
            && !matches!(head.framing, Framing::None | Framing::Length(0));
        head.upgrade = modern && self.upgrade_option && self.upgrade_field;
        Ok(())
    }
}
