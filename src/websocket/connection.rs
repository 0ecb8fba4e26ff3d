//! One WebSocket: frames in, events out, and messages to frames.
//!
//! Owns: walking the tables of `state`, fragmentation, control frames and their answers, the closing
//! handshake. Must not: read or write a socket, look at a clock (intervals and time-outs are the
//! caller's). Runs on whichever thread owns the connection.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::close::{Failure, code, may_be_sent, read_close, write_close};
use super::deflate::{Agreed, Deflate, DeflateSettings, TAIL};
use super::frame::{CONTROL, FrameHeader, Opcode, read_header, write_header};
use super::mask;
use super::message::{Message, NOT_UTF8};
use super::state::{Assembly, Link, LinkStep, Part};

/// What a server sets for all its WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a message, after decompression. 1009 beyond. 16 MiB: uvicorn's `--ws-max-size`; what applications
    /// written for it rely on.
    pub max_message: usize,
    /// `None`: compression is never agreed on.
    pub deflate: Option<DeflateSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_message: 16 * 1024 * 1024,
            deflate: Some(DeflateSettings::default()),
        }
    }
}

/// What came. The bytes lie in the input, if one read brought all of a message, else in the `WebSocket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
    /// Its Pong has been written.
    Ping(&'a [u8]),
    Pong(&'a [u8]),
    /// The client closes, or answers this side's Close. 1005 if it gave no code. The closing handshake is
    /// complete: the answer, if one was due, has been written.
    Close {
        code: u16,
        reason: &'a str,
    },
}

/// Nothing can be sent: a Close frame has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the WebSocket is closed")]
pub struct Closed;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    #[error(transparent)]
    Closed(#[from] Closed),
    #[error("a close code that may not be sent: {0}")]
    Code(u16),
}

/// A data frame whose header has been read.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Bytes of payload still to come.
    left: u64,
    /// For the first of them.
    mask: [u8; 4],
    fin: bool,
    after: Assembly,
}

/// What `walk` found, in places.
enum Found {
    Whole { text: bool, payload: Range<usize> },
    Assembled,
    Ping(Range<usize>),
    Pong(Range<usize>),
    Close(Range<usize>),
}

/// The server's side of one connection, from the 101 on. Between messages it holds no buffer; what
/// compression holds is written at [`DeflateSettings`].
#[derive(Debug)]
pub struct WebSocket {
    max_message: usize,
    deflate: Option<Box<Deflate>>,
    link: Link,
    assembly: Assembly,
    frame: Option<Frame>,
    message: Message,
    /// `message` was given out as an event.
    delivered: bool,
    /// Pings sent; the last one's payload.
    pings: u32,
    awaiting_pong: bool,
    close_code: Option<u16>,
}

impl WebSocket {
    /// The most that `receive` leaves without an event: a control frame without its last byte.
    pub const REST: usize = 2 + 4 + CONTROL - 1;

    pub(super) fn new(max_message: usize, deflate: Option<Agreed>) -> WebSocket {
        WebSocket {
            max_message,
            deflate: deflate.map(|agreed| Box::new(Deflate::new(agreed))),
            link: Link::Open,
            assembly: Assembly::Between,
            frame: None,
            message: Message::default(),
            delivered: false,
            pings: 0,
            awaiting_pong: false,
            close_code: None,
        }
    }

    /// Walks `input` up to the next event: how many bytes it has used, and the event. Without one, the rest (part of a
    /// header or of a control frame, at most [`WebSocket::REST`]) has to be there again, with more behind it.
    /// Call it until no event comes: then a message's memory is given back, too.
    ///
    /// Unmasks in place: bytes that were used are not to be given in again. Answers (Pong, Close) go to
    /// `out`; a client can make as many of them as it sends pings, so stop reading while `out` is long.
    ///
    /// A `Failure` is the client's; a Close frame that says so has been written. The connection is closed,
    /// the rest of the input is worth nothing.
    pub fn receive<'a>(
        &'a mut self,
        input: &'a mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event<'a>>), Failure> {
        if self.delivered {
            self.delivered = false;
            self.message.clear();
        }
        let mut at = 0;
        let found = match self.walk(input, &mut at, out) {
            Ok(found) => found,
            Err(failure) => return Err(self.fail(failure, out)),
        };
        let input: &'a [u8] = input;
        let event = match found {
            None => None,
            Some(Found::Whole {
                text: false,
                payload,
            }) => Some(Event::Binary(&input[payload])),
            Some(Found::Whole {
                text: true,
                payload,
            }) => match std::str::from_utf8(&input[payload]) {
                Ok(text) => Some(Event::Text(text)),
                Err(_) => return Err(self.fail(NOT_UTF8, out)),
            },
            Some(Found::Assembled) => {
                self.delivered = true;
                let bytes = self.message.bytes();
                Some(match self.message.text {
                    true => {
                        Event::Text(std::str::from_utf8(bytes).expect("checked piece by piece"))
                    }
                    false => Event::Binary(bytes),
                })
            }
            Some(Found::Ping(payload)) => Some(Event::Ping(&input[payload])),
            Some(Found::Pong(payload)) => Some(Event::Pong(&input[payload])),
            Some(Found::Close(payload)) => match read_close(&input[payload]) {
                Ok((code, reason)) => {
                    self.close(code, out);
                    Some(Event::Close { code, reason })
                }
                Err(failure) => return Err(self.fail(failure, out)),
            },
        };
        Ok((at, event))
    }

    fn walk(
        &mut self,
        input: &mut [u8],
        at: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Found>, Failure> {
        loop {
            if self.link == Link::Closed {
                // RFC 6455 5.5.1: whatever follows a Close is not looked at.
                *at = input.len();
                return Ok(None);
            }
            if let Some(frame) = self.frame {
                if !self.take(frame, &mut input[*at..], at)? {
                    return Ok(None);
                }
                if frame.fin && self.link == Link::Open {
                    self.end_message()?;
                    return Ok(Some(Found::Assembled));
                }
                continue;
            }
            let Some(header) = read_header(&input[*at..], self.deflate.is_some())? else {
                return Ok(None);
            };
            let begin = *at + header.size;
            let here = (input.len() - begin) as u64 >= header.len;
            let payload = begin..begin + if here { header.len as usize } else { 0 };
            match header.opcode {
                Opcode::Close | Opcode::Ping | Opcode::Pong => {
                    if !here {
                        return Ok(None);
                    }
                    *at = payload.end;
                    mask::unmask(&mut input[payload.clone()], header.mask);
                    return Ok(Some(self.control(
                        header.opcode,
                        &input[payload.clone()],
                        payload,
                        out,
                    )));
                }
                Opcode::Text | Opcode::Binary | Opcode::Continuation => {
                    let after = self.check_data(&header)?;
                    let only = header.fin && header.opcode != Opcode::Continuation;
                    if only && here && !header.rsv1 && self.link == Link::Open {
                        *at = payload.end;
                        mask::unmask(&mut input[payload.clone()], header.mask);
                        let text = header.opcode == Opcode::Text;
                        return Ok(Some(Found::Whole { text, payload }));
                    }
                    *at = begin;
                    self.begin_frame(&header, after);
                }
            }
        }
    }

    /// What a data frame's header says is allowed here.
    fn check_data(&self, header: &FrameHeader) -> Result<Assembly, Failure> {
        let part = match (header.opcode, header.fin) {
            (Opcode::Continuation, false) => Part::Next,
            (Opcode::Continuation, true) => Part::Last,
            (_, false) => Part::First,
            (_, true) => Part::Only,
        };
        let Some(after) = self.assembly.after(part) else {
            return Err(Failure::protocol(match self.assembly {
                Assembly::Between => "a continuation of nothing",
                Assembly::Inside => "a new message inside of another",
            }));
        };
        // A compressed message's length is known as it is decompressed, and what isn't kept has no limit.
        let compressed =
            header.rsv1 || (self.assembly == Assembly::Inside && self.message.compressed);
        let room = (self.max_message - self.message.len()) as u64;
        if self.link == Link::Open && !compressed && header.len > room {
            return Err(Failure::TOO_BIG);
        }
        Ok(after)
    }

    fn begin_frame(&mut self, header: &FrameHeader, after: Assembly) {
        if header.opcode != Opcode::Continuation && self.link == Link::Open {
            let text = header.opcode == Opcode::Text;
            self.message.begin(text, header.rsv1, header.len);
        }
        self.frame = Some(Frame {
            left: header.len,
            mask: header.mask,
            fin: header.fin,
            after,
        });
    }

    /// Takes what there is of a data frame's payload. The frame is complete.
    fn take(&mut self, frame: Frame, input: &mut [u8], at: &mut usize) -> Result<bool, Failure> {
        let taken = usize::try_from(frame.left).map_or(input.len(), |left| left.min(input.len()));
        let piece = &mut input[..taken];
        *at += taken;
        let left = frame.left - taken as u64;
        if self.link == Link::Open && taken > 0 {
            mask::unmask(piece, frame.mask);
            if self.message.compressed {
                self.inflate(piece)?;
            } else {
                self.message.push(piece)?;
            }
        }
        if left > 0 {
            let mask = mask::after(frame.mask, taken);
            self.frame = Some(Frame {
                left,
                mask,
                ..frame
            });
            return Ok(false);
        }
        self.frame = None;
        self.assembly = frame.after;
        Ok(true)
    }

    fn inflate(&mut self, mut piece: &[u8]) -> Result<(), Failure> {
        let deflate = self
            .deflate
            .as_mut()
            .expect("RSV1 only where it was agreed on");
        self.message
            .inflate(|message| deflate.inflate(&mut piece, message, self.max_message))
    }

    fn end_message(&mut self) -> Result<(), Failure> {
        if self.message.compressed {
            self.inflate(&TAIL)?;
            if let Some(deflate) = &mut self.deflate {
                deflate.end_of_message();
            }
        }
        self.message.finish()
    }

    fn control(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        place: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Found {
        match opcode {
            Opcode::Ping => {
                write_header(Opcode::Pong, payload.len(), out);
                out.extend_from_slice(payload);
                Found::Ping(place)
            }
            Opcode::Pong => {
                if payload == self.pings.to_be_bytes() {
                    self.awaiting_pong = false;
                }
                Found::Pong(place)
            }
            _ => Found::Close(place),
        }
    }

    /// The client's Close frame: answered with its own code (RFC 6455 5.5.1), unless it is an answer.
    fn close(&mut self, code: u16, out: &mut Vec<u8>) {
        if self.link == Link::Open {
            write_close(code, "", out);
        }
        self.end(LinkStep::PeerClose, code);
    }

    fn fail(&mut self, failure: Failure, out: &mut Vec<u8>) -> Failure {
        if self.link == Link::Open {
            write_close(failure.code(), failure.reason(), out);
        }
        self.end(LinkStep::Fault, failure.code());
        failure
    }

    fn end(&mut self, step: LinkStep, code: u16) {
        self.link = self.link.after(step);
        self.close_code.get_or_insert(code);
        self.awaiting_pong = false;
        self.forget();
        self.deflate = None;
    }

    /// Nothing more of the client's messages is wanted.
    fn forget(&mut self) {
        self.delivered = false;
        self.message.clear();
    }

    /// The client will send nothing more. Without a closing handshake, that is 1006.
    pub fn end_of_input(&mut self) {
        self.end(LinkStep::EndOfInput, code::ABNORMAL);
    }

    /// One frame, compressed if that was agreed on and seems worth it.
    pub fn send_text(&mut self, text: &str, out: &mut Vec<u8>) -> Result<(), Closed> {
        self.send(Opcode::Text, text.as_bytes(), out)
    }

    /// As `send_text`.
    pub fn send_binary(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Closed> {
        self.send(Opcode::Binary, bytes, out)
    }

    fn send(&mut self, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Closed> {
        self.check_open()?;
        match &mut self.deflate {
            Some(deflate) if deflate.wants(payload) => deflate.write_frame(opcode, payload, out),
            _ => {
                write_header(opcode, payload.len(), out);
                out.extend_from_slice(payload);
            }
        }
        Ok(())
    }

    /// A Ping of its own number; `awaiting_pong` until the Pong with that number comes.
    pub fn send_ping(&mut self, out: &mut Vec<u8>) -> Result<(), Closed> {
        self.check_open()?;
        self.pings = self.pings.wrapping_add(1);
        self.awaiting_pong = true;
        write_header(Opcode::Ping, 4, out);
        out.extend_from_slice(&self.pings.to_be_bytes());
        Ok(())
    }

    /// Begins the closing handshake: nothing can be sent after, and messages that still come are dropped. 1005 sends no
    /// code. A reason beyond 123 bytes is cut. The client has to be given some time to answer.
    pub fn send_close(
        &mut self,
        code: u16,
        reason: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), CloseError> {
        self.check_open()?;
        if !may_be_sent(code) && code != code::NO_STATUS {
            return Err(CloseError::Code(code));
        }
        write_close(code, reason, out);
        self.link = self.link.after(LinkStep::SendClose);
        self.forget();
        Ok(())
    }

    fn check_open(&self) -> Result<(), Closed> {
        match self.link {
            Link::Open => Ok(()),
            Link::CloseSent | Link::Closed => Err(Closed),
        }
    }

    /// Messages can be sent.
    pub fn is_open(&self) -> bool {
        self.link == Link::Open
    }

    /// Nothing more is to be read: send what has been written, then close the connection.
    pub fn is_closed(&self) -> bool {
        self.link == Link::Closed
    }

    /// The last `send_ping` hasn't been answered.
    pub fn awaiting_pong(&self) -> bool {
        self.awaiting_pong
    }

    /// How the connection ended, once it has: the code of the client's Close frame, 1005 if that had none, the failure's, or
    /// 1006.
    pub fn close_code(&self) -> Option<u16> {
        self.close_code
    }

    /// Gives back what an idle connection can do without: call it when nothing has been sent for a while, at a
    /// ping, for instance. The next compressed message starts with an empty window.
    pub fn release(&mut self) {
        if self.delivered {
            self.forget();
        }
        if let Some(deflate) = &mut self.deflate {
            deflate.release();
        }
    }

    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.message.capacity()
    }

    /// A compressor, a decompressor.
    #[cfg(test)]
    pub(super) fn holds(&self) -> (bool, bool) {
        self.deflate
            .as_ref()
            .map_or((false, false), |deflate| deflate.holds())
    }
}
