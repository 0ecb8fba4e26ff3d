//! The form of an access-log line.
//!
//! Owns gunicorn's atoms, the JSON form, and what is escaped. A format is compiled once at start; writing a line then
//! walks over its pieces. Must not read the clock or do I/O. Any thread.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::super::escape;
use super::super::utc::Utc;

/// What a line can tell of a request and its response.
pub trait Logged {
    /// The client's address; none for a Unix socket.
    fn remote(&self) -> Option<IpAddr>;
    fn method(&self) -> &[u8];
    /// The request target as it was sent.
    fn target(&self) -> &[u8];
    /// The path as it was sent, percent-encoded, without the query.
    fn path(&self) -> &[u8];
    /// The query without its question mark.
    fn query(&self) -> &[u8];
    /// `HTTP/1.1`
    fn protocol(&self) -> &'static str;
    /// The first field of the request with this name, which is in lower case.
    fn request_field(&self, name: &[u8]) -> Option<&[u8]>;
    /// The status sent; 0 if the connection ended before there was one.
    fn status(&self) -> u16;
    /// The first field of the response with this name, which is in lower case.
    fn response_field(&self, name: &[u8]) -> Option<&[u8]>;
    /// Bytes of the response's body that were sent, without framing.
    fn body_bytes(&self) -> u64;
    /// From the request's first byte to the response's last.
    fn duration(&self) -> Duration;
}

/// The combined log format, gunicorn's default.
const COMBINED: &str = r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s""#;
const COMMON: &str = r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s"#;

/// What is wrong with a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(String);

/// A compiled format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format(Shape);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Json,
    Pieces(Vec<Piece>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Remote,
    User,
    Time,
    RequestLine,
    Method,
    Path,
    Query,
    Protocol,
    Status,
    Bytes,
    /// As `Bytes`, but a dash for none.
    BytesOrDash,
    Seconds,
    Milliseconds,
    Microseconds,
    DecimalSeconds,
    Process,
    /// Names in lower case.
    RequestField(String),
    ResponseField(String),
}

impl Format {
    /// `combined`, `common`, `json`, or a text with gunicorn's atoms (gunicorn's documentation, "access_log_format").
    pub fn compile(text: &str) -> Result<Format, FormatError> {
        match text.trim() {
            "json" => return Ok(Format(Shape::Json)),
            "combined" => return Format::compile(COMBINED),
            "common" => return Format::compile(COMMON),
            "" => return Err(FormatError("the format is empty".into())),
            _ => {}
        }
        let mut pieces = Pieces::default();
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            pieces.text(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                pieces.text("%");
                rest = after;
                continue;
            }
            let (atom, after) = rest
                .strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .and_then(|(atom, after)| Some((atom, after.strip_prefix(['s', 'd'])?)))
                .ok_or_else(|| {
                    let start: String = rest.chars().take(12).collect();
                    FormatError(format!(
                        "\"%{start}\" is no atom: write %(h)s, or %% for a percent sign"
                    ))
                })?;
            pieces.atom(atom)?;
            rest = after;
        }
        pieces.text(rest);
        if let Some(control) = text.chars().find(|c| c.is_control() && *c != '\t') {
            return Err(FormatError(format!(
                "a format is one line; it has the control character {control:?}"
            )));
        }
        Ok(Format(Shape::Pieces(pieces.0)))
    }

    /// Names, in lower case, of the response's fields that a line tells: only these need to be kept until the response's end.
    pub fn response_fields(&self) -> impl Iterator<Item = &[u8]> {
        let pieces = match &self.0 {
            Shape::Json => &[][..],
            Shape::Pieces(pieces) => pieces,
        };
        pieces.iter().filter_map(|piece| match piece {
            Piece::ResponseField(name) => Some(name.as_bytes()),
            _ => None,
        })
    }

    /// Appends the line with its line feed.
    pub(super) fn write_line(&self, what: &impl Logged, now: SystemTime, out: &mut Vec<u8>) {
        match &self.0 {
            Shape::Json => write_json(what, now, out),
            Shape::Pieces(pieces) => pieces.iter().for_each(|piece| piece.write(what, now, out)),
        }
        out.push(b'\n');
    }
}

/// The pieces so far; neighbouring texts become one.
#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.0.push(Piece::Text(text.to_owned())),
        }
    }

    fn atom(&mut self, atom: &str) -> Result<(), FormatError> {
        if let Some((name, kind)) = atom
            .strip_prefix('{')
            .and_then(|atom| atom.rsplit_once('}'))
        {
            self.0.push(named(name, kind)?);
            return Ok(());
        }
        self.0.push(match atom {
            "h" => Piece::Remote,
            // The remote user by identd: nobody has had one for decades.
            "l" => {
                self.text("-");
                return Ok(());
            }
            "u" => Piece::User,
            "t" => Piece::Time,
            "r" => Piece::RequestLine,
            "s" => Piece::Status,
            "m" => Piece::Method,
            "U" => Piece::Path,
            "q" => Piece::Query,
            "H" => Piece::Protocol,
            "B" => Piece::Bytes,
            "b" => Piece::BytesOrDash,
            "f" => Piece::RequestField("referer".into()),
            "a" => Piece::RequestField("user-agent".into()),
            "T" => Piece::Seconds,
            "M" => Piece::Milliseconds,
            "D" => Piece::Microseconds,
            "L" => Piece::DecimalSeconds,
            "p" => Piece::Process,
            _ => {
                let known = "h l u t r s m U q H B b f a T M D L p {name}i {name}o {name}e";
                return Err(FormatError(format!(
                    "there is no atom \"{atom}\"; there are {known}"
                )));
            }
        });
        Ok(())
    }
}

/// `{name}i`, `{name}o` and `{name}e`: a field of the request, of the response, a variable of the environ.
fn named(name: &str, kind: &str) -> Result<Piece, FormatError> {
    if name.is_empty() {
        return Err(FormatError(format!(
            "the name is missing in \"{{}}{kind}\""
        )));
    }
    let lower = name.to_ascii_lowercase();
    match kind {
        "i" => Ok(Piece::RequestField(lower)),
        "o" => Ok(Piece::ResponseField(lower)),
        "e" => Ok(match name {
            "REQUEST_METHOD" => Piece::Method,
            "RAW_URI" | "REQUEST_URI" | "PATH_INFO" => Piece::Path,
            "QUERY_STRING" => Piece::Query,
            "SERVER_PROTOCOL" => Piece::Protocol,
            "REMOTE_ADDR" => Piece::Remote,
            "CONTENT_TYPE" => Piece::RequestField("content-type".into()),
            "CONTENT_LENGTH" => Piece::RequestField("content-length".into()),
            _ => match name.strip_prefix("HTTP_") {
                // PEP 3333: HTTP_ and the field's name in upper case with underscores.
                Some(field) if !field.is_empty() => {
                    Piece::RequestField(field.to_ascii_lowercase().replace('_', "-"))
                }
                _ => {
                    return Err(FormatError(format!(
                        "\"{{{name}}}e\" is not known here; the log is written without Python, so of the environ there \
                         are REQUEST_METHOD, PATH_INFO, QUERY_STRING, SERVER_PROTOCOL, REMOTE_ADDR, CONTENT_TYPE, \
                         CONTENT_LENGTH and HTTP_*"
                    )));
                }
            },
        }),
        _ => Err(FormatError(format!(
            "\"{{{name}}}{kind}\" is no atom: a name is followed by i, o or e"
        ))),
    }
}

impl Piece {
    fn write(&self, what: &impl Logged, now: SystemTime, out: &mut Vec<u8>) {
        match self {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Remote => match what.remote() {
                Some(address) => _ = write!(out, "{address}"),
                None => out.push(b'-'),
            },
            Piece::User => quoted_or_dash(user(what).as_deref(), out),
            Piece::Time => Utc::of(now).write_common_log(out),
            Piece::RequestLine => {
                escape::quoted(what.method(), out);
                out.push(b' ');
                escape::quoted(what.target(), out);
                out.push(b' ');
                out.extend_from_slice(what.protocol().as_bytes());
            }
            Piece::Method => quoted_or_dash(Some(what.method()), out),
            Piece::Path => quoted_or_dash(Some(what.path()), out),
            Piece::Query => escape::quoted(what.query(), out),
            Piece::Protocol => out.extend_from_slice(what.protocol().as_bytes()),
            Piece::Status => number(what.status().into(), out),
            Piece::Bytes => number(what.body_bytes(), out),
            Piece::BytesOrDash if what.body_bytes() == 0 => out.push(b'-'),
            Piece::BytesOrDash => number(what.body_bytes(), out),
            Piece::Seconds => number(what.duration().as_secs(), out),
            Piece::Milliseconds => number(what.duration().as_millis() as u64, out),
            Piece::Microseconds => number(what.duration().as_micros() as u64, out),
            Piece::DecimalSeconds => {
                let duration = what.duration();
                _ = write!(
                    out,
                    "{}.{:06}",
                    duration.as_secs(),
                    duration.subsec_micros()
                );
            }
            Piece::Process => _ = write!(out, "<{}>", std::process::id()),
            Piece::RequestField(name) => quoted_or_dash(what.request_field(name.as_bytes()), out),
            Piece::ResponseField(name) => quoted_or_dash(what.response_field(name.as_bytes()), out),
        }
    }
}

fn number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn quoted_or_dash(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        Some(bytes) if !bytes.is_empty() => escape::quoted(bytes, out),
        _ => out.push(b'-'),
    }
}

/// One object a line: every key always there, in this order.
fn write_json(what: &impl Logged, now: SystemTime, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    Utc::of(now).write_rfc3339(out);
    out.extend_from_slice(b"\",\"remote\":");
    match what.remote() {
        Some(address) => _ = write!(out, "\"{address}\""),
        None => out.extend_from_slice(b"null"),
    }
    for (key, value) in [
        ("user", user(what).as_deref()),
        ("method", Some(what.method())),
        ("path", Some(what.path())),
        ("query", Some(what.query())),
        ("protocol", Some(what.protocol().as_bytes())),
        ("host", what.request_field(b"host")),
        ("referer", what.request_field(b"referer")),
        ("user_agent", what.request_field(b"user-agent")),
    ] {
        _ = write!(out, ",\"{key}\":");
        match value {
            Some(value) => escape::json(value, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    for (key, value) in [
        ("status", what.status().into()),
        ("bytes", what.body_bytes()),
        ("duration_us", what.duration().as_micros() as u64),
        ("pid", std::process::id().into()),
    ] {
        _ = write!(out, ",\"{key}\":");
        number(value, out);
    }
    out.push(b'}');
}

/// The user's name of `Authorization: Basic` (RFC 7617); never the password.
fn user(what: &impl Logged) -> Option<Vec<u8>> {
    let value = what.request_field(b"authorization")?;
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut decoded = base64(rest.trim_ascii())?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    decoded.truncate(colon);
    Some(decoded)
}

/// RFC 4648 section 4, with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0u32, 0);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(out)
}
