//! HTTP/1.1 without I/O: bytes in, events out, and back (RFC 9110, RFC 9112).
//!
//! Owns: what a request's bytes mean, where its body ends, what is refused and with which status;
//! how a response is framed. Must not: read a socket, look at a clock, allocate per request, know
//! of Python, threads or configuration files. Runs on whichever thread owns the connection.
//!
//! | file | owns |
//! | --- | --- |
//! | `state` | both sides of a message exchange as tables of (state, step) |
//! | `event` | [`RequestReader`] walks the request table; [`Event`], [`RequestError`] |
//! | `head` | [`Head`], [`Limits`]: where a head ends, its fields, what they say about framing |
//! | `target` | the request line, the four forms of a target, authorities |
//! | `body` | the chunked coding as a table of (state, byte class) |
//! | `response` | [`ResponseHead`]: the fields of an answer, validated and serialised |
//! | `encode` | [`ResponseWriter`] walks the response table and frames an answer |
//! | `octets` | classes of octets |
//!
//! A reader for one request after the other:
//!
//! ```
//! use m0serve::http1::{Event, Head, Limits, RequestReader};
//!
//! let bytes = b"POST /in HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
//! let (mut reader, mut head, limits) = (RequestReader::new(), Head::default(), Limits::default());
//! let (mut at, mut body) = (0, Vec::new());
//! loop {
//!     match reader.next_event(&bytes[at..], &mut head, &limits).unwrap() {
//!         Event::NeedData => break, // read more, or `end_of_input`
//!         Event::Head { consumed } | Event::Skip { consumed } => at += consumed,
//!         Event::Data { consumed, body: range } => {
//!             body.extend_from_slice(&bytes[at..][range]);
//!             at += consumed;
//!         }
//!         Event::End { consumed } => {
//!             at += consumed;
//!             reader.next_message();
//!             break;
//!         }
//!     }
//! }
//! assert_eq!((head.path.of(bytes), &body[..], at), (&b"/in"[..], &b"hello"[..], bytes.len()));
//! ```
#![forbid(unsafe_code)]

mod body;
mod encode;
mod event;
mod head;
mod octets;
mod response;
mod state;
mod target;

#[cfg(test)]
mod tests;

pub use body::{CHUNK_LINE, EXTENSIONS, TRAILERS};
pub use encode::{BodySize, ResponseWriter, continue_100, error_response};
pub use event::{Event, RequestError, RequestReader};
pub use head::{BLANK_LINES, Field, Framing, Head, Limits, Span, Version};
pub use response::{HeadError, ResponseHead, reason};
pub use target::percent_decode;
