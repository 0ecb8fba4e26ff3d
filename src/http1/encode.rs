//! Framing an answer: [`ResponseWriter`] walks the response table.
//!
//! Owns: which framing an answer gets, the fields that say so, Date, Server and Connection, and
//! that no more bytes go out than were announced. Must not: format with `fmt` (this is the hot path:
//! copies and one `itoa`), hold a body byte. One per exchange, on whichever thread owns the connection.
#![forbid(unsafe_code)]

use super::head::Version;
use super::response::{ResponseHead, reason};
use super::state::{ResponseState, ResponseStep};

/// How long the body is going to be, as far as the caller knows. A Content-Length of the
/// application's own comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodySize {
    Known(u64),
    Unknown,
}

/// The server's side of one exchange.
///
/// | answer | framing |
/// | --- | --- |
/// | HEAD, 1xx, 204, 205, 304 | no body, whatever is given |
/// | length announced or known | Content-Length; what goes beyond it is dropped; less than it ends the connection |
/// | length unknown, HTTP/1.1 | chunked |
/// | length unknown, HTTP/1.0 | ends with the connection |
#[derive(Clone, Copy, Debug)]
pub struct ResponseWriter {
    state: ResponseState,
    version: Version,
    is_head: bool,
    keep_alive: bool,
    /// A chunk's prefix was written by `data_frame`, its CR LF not yet.
    frame_open: bool,
    /// Body bytes were dropped that went beyond the announced length.
    dropped: bool,
    /// Body bytes still to come under a Content-Length.
    remaining: u64,
}

impl ResponseWriter {
    /// For the answer to a request of `version`; `keep_alive` is what the client asked for.
    pub fn new(version: Version, is_head: bool, keep_alive: bool) -> Self {
        ResponseWriter {
            state: ResponseState::Open,
            version,
            is_head,
            keep_alive,
            frame_open: false,
            dropped: false,
            remaining: 0,
        }
    }

    /// The connection ends after this answer; said in its head if that isn't written yet.
    pub fn close_after(&mut self) {
        self.keep_alive = false;
    }

    /// The head: status line, the application's fields, then Date and Server unless it gave them, the
    /// framing, and Connection where the version's default is not meant. `date` is an IMF-fixdate.
    ///
    /// A 1xx head other than 101 is an interim one: another head follows.
    pub fn head(
        &mut self,
        head: &ResponseHead,
        size: BodySize,
        date: &[u8; 29],
        out: &mut Vec<u8>,
    ) {
        if self.state != ResponseState::Open {
            self.state = ResponseState::Broken;
            return;
        }
        out.reserve(head.line_bytes().len() + head.field_bytes().len() + 192);
        out.extend_from_slice(head.line_bytes());
        out.extend_from_slice(head.field_bytes());
        let code = head.code();
        if matches!(code, 100 | 102..=199) {
            out.extend_from_slice(b"\r\n");
            self.step(ResponseStep::Interim);
            return;
        }
        if !head.has_date {
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(date);
            out.extend_from_slice(b"\r\n");
        }
        if !head.has_server {
            out.extend_from_slice(b"Server: m0serve\r\n");
        }

        let announced = head.content_length();
        let known = match size {
            BodySize::Known(length) => Some(length),
            BodySize::Unknown => None,
        };
        match code {
            // RFC 9110 8.6: MUST NOT be sent with 1xx and 204.
            101 | 204 => self.step(ResponseStep::HeadBodiless),
            // RFC 9110 15.3.6: no content, and said so.
            205 => {
                content_length(0, out);
                self.step(ResponseStep::HeadBodiless);
            }
            // RFC 9110 15.4.5: what a 200 would have had, if anything.
            304 => {
                if let Some(length) = announced {
                    content_length(length, out);
                }
                self.step(ResponseStep::HeadBodiless);
            }
            // RFC 9110 8.6: what GET would have had. An empty body says nothing of that: most
            // frameworks leave the body away themselves.
            _ if self.is_head => {
                if let Some(length) = announced.or(known.filter(|&length| length > 0)) {
                    content_length(length, out);
                }
                self.step(ResponseStep::HeadBodiless);
            }
            _ => match (announced.or(known), self.version) {
                (Some(length), _) => {
                    content_length(length, out);
                    self.remaining = length;
                    self.step(ResponseStep::HeadCounted);
                }
                (None, Version::Http11) => {
                    out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                    self.step(ResponseStep::HeadChunked);
                }
                (None, Version::Http10) => {
                    self.keep_alive = false;
                    self.step(ResponseStep::HeadUntilClose);
                }
            },
        }

        self.keep_alive &= !head.close;
        if head.upgrade {
            self.upgrade_fields(code, out);
        } else if !self.keep_alive {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if self.version == Version::Http10 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// RFC 9110 7.8: Upgrade goes with the `upgrade` option. After a 101 the connection is not
    /// HTTP's any more, so that there is no next request either.
    fn upgrade_fields(&mut self, code: u16, out: &mut Vec<u8>) {
        if code == 101 {
            self.keep_alive = false;
            out.extend_from_slice(b"Connection: upgrade\r\n");
        } else if !self.keep_alive {
            out.extend_from_slice(b"Connection: close, upgrade\r\n");
        } else if self.version == Version::Http10 {
            out.extend_from_slice(b"Connection: keep-alive, upgrade\r\n");
        } else {
            out.extend_from_slice(b"Connection: upgrade\r\n");
        }
    }

    /// A piece of the body, framed. Empty pieces write nothing.
    pub fn data(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let length = self.data_frame(chunk.len() as u64, out);
        out.extend_from_slice(&chunk[..length as usize]);
        self.data_frame_end(out);
    }

    /// For a piece of the body that goes another way (sendfile): writes what comes before it and gives how
    /// many of its `length` bytes may follow. [`Self::data_frame_end`] goes behind them. Whoever can't send
    /// them all must cut the connection.
    pub fn data_frame(&mut self, length: u64, out: &mut Vec<u8>) -> u64 {
        self.step(ResponseStep::Data);
        match self.state {
            ResponseState::Counted => {
                let allowed = length.min(self.remaining);
                self.remaining -= allowed;
                self.dropped |= allowed < length;
                allowed
            }
            ResponseState::Chunked => {
                if length > 0 {
                    chunk_size(length, out);
                    self.frame_open = true;
                }
                length
            }
            ResponseState::UntilClose => length,
            ResponseState::Open
            | ResponseState::Bodiless
            | ResponseState::Ended
            | ResponseState::Broken => 0,
        }
    }

    /// Behind the bytes that [`Self::data_frame`] announced.
    pub fn data_frame_end(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.frame_open) {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// The body has ended. With less than was announced the connection must be closed, so that the
    /// client sees the fault (RFC 9112 8).
    pub fn end(&mut self, out: &mut Vec<u8>) {
        self.end_with_fields(b"", out);
    }

    /// As [`Self::end`], with `trailers` as the trailer section if the body is chunked (RFC 9112 7.1.2); no other
    /// framing has one, and then they are dropped.
    pub fn end_with(&mut self, trailers: &ResponseHead, out: &mut Vec<u8>) {
        self.end_with_fields(trailers.field_bytes(), out);
    }

    fn end_with_fields(&mut self, trailers: &[u8], out: &mut Vec<u8>) {
        if self.state == ResponseState::Chunked {
            self.data_frame_end(out);
            out.extend_from_slice(b"0\r\n");
            out.extend_from_slice(trailers);
            out.extend_from_slice(b"\r\n");
        }
        let short = self.state == ResponseState::Counted && self.remaining > 0;
        self.step(if short {
            ResponseStep::EndShort
        } else {
            ResponseStep::End
        });
    }

    /// Whether another request may follow; valid once [`Self::is_ended`].
    pub fn keep_alive(&self) -> bool {
        self.keep_alive && self.state == ResponseState::Ended
    }

    /// Only the connection's end marks where this body ends: cut short, it would pass for whole.
    pub fn is_close_delimited(&self) -> bool {
        self.state == ResponseState::UntilClose
    }

    /// The final head is written: no other answer can be given any more.
    pub fn head_written(&self) -> bool {
        self.state != ResponseState::Open
    }

    /// The answer is complete, or can't become it.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, ResponseState::Ended | ResponseState::Broken)
    }

    /// The body was longer than announced, and what was too much was dropped: worth a log line.
    pub fn was_truncated(&self) -> bool {
        self.dropped
    }

    /// Body bytes that were announced and are still to come; after [`Self::end`], those that never
    /// came: worth a log line.
    pub fn missing(&self) -> u64 {
        self.remaining
    }

    fn step(&mut self, step: ResponseStep) {
        self.state = self.state.after(step);
    }
}

fn content_length(length: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn chunk_size(length: u64, out: &mut Vec<u8>) {
    let mut text = *b"0000000000000000\r\n";
    let mut start = 16;
    let mut rest = length;
    while rest > 0 {
        start -= 1;
        text[start] = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    out.extend_from_slice(&text[start..]);
}

/// The interim answer to `Expect: 100-continue` (RFC 9110 15.2.1).
pub fn continue_100(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// A whole answer of the server's own, after which the connection is closed. `text` is plain text and
/// holds nothing that the client sent.
pub fn error_response(status: u16, text: &str, date: &[u8; 29], is_head: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\nContent-Type: text/plain; charset=utf-8\r\nDate: ");
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\nServer: m0serve\r\nConnection: close\r\n");
    content_length(text.len() as u64 + 1, out);
    out.extend_from_slice(b"\r\n");
    if !is_head {
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b"\n");
    }
}
