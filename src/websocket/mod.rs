//! WebSocket without I/O, the server's side: bytes in, events out, and back (RFC 6455, RFC 7692).
//!
//! Owns: which requests are handshakes, what a client's bytes mean, what is refused and with which close
//! code; how messages are framed and compressed. Must not: read a socket, look at a clock, know
//! of Python or of `http1`'s types. Runs on whichever thread owns the connection.
//!
//! | file | owns |
//! | --- | --- |
//! | `handshake` | [`Handshake`], [`Refusal`]: the request's fields, the 101 answer |
//! | `extension` | the offers of permessage-deflate, which one is accepted |
//! | `token` | tokens, lists and quoted strings of fields |
//! | `connection` | [`WebSocket`] walks the tables; [`Event`], [`Settings`] |
//! | `state` | fragmentation and the closing handshake as tables of (state, step) |
//! | `frame` | frame headers, opcodes and length forms as tables |
//! | `mask` | unmasking, eight bytes at a time |
//! | `message` | a message in the making: limit, UTF-8 across pieces |
//! | `deflate` | [`DeflateSettings`], the two streams of a connection |
//! | `close` | close codes, [`Failure`] |
//!
//! ```
//! use m0serve::websocket::{Event, Handshake, Settings};
//!
//! let fields: [(&[u8], &[u8]); 5] = [
//!     (b"Host", b"a"),
//!     (b"Connection", b"keep-alive, Upgrade"),
//!     (b"Upgrade", b"websocket"),
//!     (b"Sec-WebSocket-Version", b"13"),
//!     (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
//! ];
//! let handshake = Handshake::read(b"GET", true, fields.into_iter(), &Settings::default()).unwrap();
//! let mut out = Vec::new();
//! let mut websocket = handshake.accept(None, [].into_iter(), &mut out).unwrap();
//! assert!(out.starts_with(b"HTTP/1.1 101 "));
//!
//! // RFC 6455 5.7: "Hello", masked.
//! let mut input = *b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
//! let (consumed, event) = websocket.receive(&mut input, &mut out).unwrap();
//! assert_eq!((consumed, event), (11, Some(Event::Text("Hello"))));
//! ```
#![forbid(unsafe_code)]

mod close;
mod connection;
mod deflate;
mod extension;
mod frame;
mod handshake;
mod mask;
mod message;
mod state;
mod token;

#[cfg(test)]
mod tests;

pub use close::{Failure, REASON, code, may_be_sent};
pub use connection::{CloseError, Closed, Event, Settings, WebSocket};
pub use deflate::DeflateSettings;
pub use handshake::{AcceptError, Handshake, Refusal, is_requested};
