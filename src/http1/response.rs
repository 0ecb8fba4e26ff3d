//! An answer's head as the application (or m0serve itself) gives it: [`ResponseHead`].
//!
//! Owns: the check of every status and field before a byte of it is sent (an application that puts
//! CR LF into a value must not write a second answer: CVE-2020-7695 elsewhere), and their serialised
//! form. Must not: decide the framing (`encode` does). One per thread, reused.
#![forbid(unsafe_code)]

use std::fmt;

use memchr::memchr;

use super::octets::{decimal, is_text, is_token, trimmed};

/// What is wrong with an answer's head: the application's fault, answered with 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// Not three digits from 100 to 599, a space and a reason (RFC 9112 4, PEP 3333 "The start_response
    /// Callable").
    Status,
    /// Not a token (RFC 9110 5.1).
    Name,
    /// A control character in a value (RFC 9110 5.5).
    Value,
    /// Not a number, or several that differ (RFC 9110 8.6).
    Length,
    /// A transfer coding other than chunked, which nobody here applies.
    Coding,
}

impl fmt::Display for HeadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            HeadError::Status => {
                "the status is not three digits (100 to 599), a space and a reason"
            }
            HeadError::Name => "a header field's name is not a token",
            HeadError::Value => "a header field's value has a control character",
            HeadError::Length => "Content-Length is not a number, or is given twice",
            HeadError::Coding => "Transfer-Encoding belongs to the server",
        })
    }
}

impl std::error::Error for HeadError {}

/// The status line and fields of one answer, validated and serialised.
///
/// Fields that belong to one connection and not to the message are taken note of, not sent as
/// given: `Content-Length` and `Connection: close` are honoured; `Transfer-Encoding: chunked` is
/// dropped, because the writer frames the body itself (PEP 3333 "Other HTTP Features"); `Connection`'s other options,
/// `Keep-Alive`, `Proxy-Connection` and `TE` are dropped (RFC 9110 7.6.1). `Upgrade` passes, and
/// the writer adds the `upgrade` option to `Connection` (RFC 9110 7.8).
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// `HTTP/1.1 200 OK`, CR, LF.
    line: Vec<u8>,
    /// `Name: value`, CR, LF, each.
    fields: Vec<u8>,
    code: u16,
    content_length: Option<u64>,
    pub(super) close: bool,
    pub(super) upgrade: bool,
    pub(super) has_date: bool,
    pub(super) has_server: bool,
}

impl Default for ResponseHead {
    fn default() -> Self {
        ResponseHead::new()
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";

impl ResponseHead {
    /// `200 OK` without fields.
    pub fn new() -> Self {
        ResponseHead {
            line: OK.to_vec(),
            fields: Vec::new(),
            code: 200,
            content_length: None,
            close: false,
            upgrade: false,
            has_date: false,
            has_server: false,
        }
    }

    /// As new, with the room kept.
    pub fn clear(&mut self) {
        self.line.clear();
        self.line.extend_from_slice(OK);
        self.fields.clear();
        self.code = 200;
        self.content_length = None;
        self.close = false;
        self.upgrade = false;
        self.has_date = false;
        self.has_server = false;
    }

    /// `200 OK`: three digits, a space, a reason that may be empty.
    pub fn status(&mut self, status: &[u8]) -> Result<(), HeadError> {
        let [a @ b'1'..=b'5', b, c, b' ', reason @ ..] = status else {
            return Err(HeadError::Status);
        };
        if !b.is_ascii_digit() || !c.is_ascii_digit() || !is_text(reason) {
            return Err(HeadError::Status);
        }
        let digit = |byte: &u8| u16::from(byte - b'0');
        self.code = digit(a) * 100 + digit(b) * 10 + digit(c);
        self.line.clear();
        self.line.extend_from_slice(b"HTTP/1.1 ");
        self.line.extend_from_slice(status);
        self.line.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Adds a field, in order. After an error the head is as before.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        if !is_token(name) {
            return Err(HeadError::Name);
        }
        if !is_text(value) {
            return Err(HeadError::Value);
        }
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            2 if is(b"te") => return Ok(()),
            4 if is(b"date") => self.has_date = true,
            6 if is(b"server") => self.has_server = true,
            7 if is(b"upgrade") => self.upgrade = true,
            10 if is(b"connection") => {
                self.close |= value
                    .split(|&byte| byte == b',')
                    .any(|option| trimmed(option).eq_ignore_ascii_case(b"close"));
                return Ok(());
            }
            10 if is(b"keep-alive") => return Ok(()),
            14 if is(b"content-length") => {
                let length = decimal(trimmed(value)).ok_or(HeadError::Length)?;
                if self.content_length.is_some_and(|earlier| earlier != length) {
                    return Err(HeadError::Length);
                }
                self.content_length = Some(length);
                return Ok(());
            }
            16 if is(b"proxy-connection") => return Ok(()),
            17 if is(b"transfer-encoding") => {
                let known = trimmed(value).eq_ignore_ascii_case(b"chunked")
                    || trimmed(value).eq_ignore_ascii_case(b"identity");
                return if known {
                    Ok(())
                } else {
                    Err(HeadError::Coding)
                };
            }
            _ => {}
        }
        self.fields.reserve(name.len() + value.len() + 4);
        self.fields.extend_from_slice(name);
        self.fields.extend_from_slice(b": ");
        self.fields.extend_from_slice(value);
        self.fields.extend_from_slice(b"\r\n");
        Ok(())
    }

    pub fn code(&self) -> u16 {
        self.code
    }

    /// What the application announced.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The fields that are sent as given.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.fields[..];
        std::iter::from_fn(move || {
            let colon = memchr(b':', rest)?;
            let (name, after) = rest.split_at(colon);
            let end = memchr(b'\r', after)?;
            rest = &after[end + 2..];
            Some((name, &after[2..end]))
        })
    }

    pub(super) fn line_bytes(&self) -> &[u8] {
        &self.line
    }

    pub(super) fn field_bytes(&self) -> &[u8] {
        &self.fields
    }
}

/// The reason phrase of a status (RFC 9110 15, RFC 6585); empty if none is registered here.
pub const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}
