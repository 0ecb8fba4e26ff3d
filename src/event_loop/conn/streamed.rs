//! A connection whose request runs while its body comes in (see `event_loop/streamed.rs`).
//!
//! Owns what is read of a body and when. A body is read only when its receiver asks: at most one read lies here unreceived,
//! so a client sends as fast as the application takes it, and no faster.

#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;

use super::{BODY_READ, Connection, Step, millis};
use crate::config::Timeouts;
use crate::event_loop::deadlines::Millis;
use crate::event_loop::streamed::Awaits;
use crate::exchange::{Gone, Room};
use crate::http1::{Event, Framing, Head, RequestError};
use crate::observe::counters::Counter;

/// The rest of a body that the application didn't want is read away up to this size, so that the connection can be kept;
/// beyond it, closing is cheaper for both sides.
const DISCARD: u64 = 256 * 1024;

/// What is known of a body that is delivered as it comes.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Tells this connection from an earlier one with its key.
    generation: u32,
    /// There may be more of the body.
    open: bool,
    /// The client holds the body back until it is asked for it.
    expects: bool,
    /// The client's fault that ended the body.
    fault: Option<RequestError>,
    /// Bytes that were read away after the response.
    discarded: u64,
    /// The client will send nothing more than what the socket holds.
    hung_up: bool,
}

impl Stream {
    pub(super) fn open(&mut self, head: &Head) {
        self.open = true;
        self.expects = head.expect_continue;
        self.fault = None;
        self.discarded = 0;
    }
}

/// The next piece of a request's body.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// With `more` false the body is complete.
    Body { bytes: &'a [u8], more: bool },
    /// None of it has come yet: a knock tells when to ask again.
    Pending,
    /// The client is gone in the midst of it.
    Gone,
    /// It is not what HTTP calls for, or larger than allowed.
    Fault(RequestError),
}

impl Connection {
    pub(in crate::event_loop) fn deliver_streamed(&mut self, generation: u32) {
        self.streamed = Some(Stream {
            generation,
            ..Stream::default()
        });
    }

    fn stream(&mut self) -> &mut Stream {
        self.streamed.as_mut().expect("only with streamed delivery")
    }

    /// Tells this connection from earlier ones with its key.
    pub fn generation(&self) -> u32 {
        self.streamed.as_ref().map_or(0, |stream| stream.generation)
    }

    /// The whole body was given out, or there is none.
    pub fn body_ended(&self) -> bool {
        self.streamed.as_ref().is_some_and(|stream| !stream.open)
    }

    /// The client waits for `100 Continue` and hasn't got it.
    pub fn expects_continue(&self) -> bool {
        self.streamed.as_ref().is_some_and(|stream| stream.expects)
    }

    /// Too much of the body is still to come to be read away after the response, or it may come or not.
    pub fn body_is_in_the_way(&self) -> bool {
        let Some(stream) = self.streamed.as_ref().filter(|stream| stream.open) else {
            return false;
        };
        stream.expects
            || matches!(self.exchange.head.framing, Framing::Length(length) if length > DISCARD)
    }

    /// A knock came. `hung_up`: the client will send nothing more.
    pub fn hear(&mut self, hung_up: bool) {
        self.readable |= self.seat.hear_knock();
        if hung_up {
            self.notice_hang_up();
        }
    }

    /// The client's end of stream has come, behind what it sent before.
    pub(in crate::event_loop) fn notice_hang_up(&mut self) {
        self.ended = true;
        if let Some(stream) = &mut self.streamed {
            stream.hung_up = true;
        }
    }

    /// The client has ended its side, or the connection is broken.
    pub fn has_hung_up(&self) -> bool {
        self.exchange.is_gone() || self.streamed.as_ref().is_some_and(|stream| stream.hung_up)
    }

    /// Whether asking for the next piece may find something.
    pub fn may_have_body(&self) -> bool {
        self.readable || self.consumed < self.exchange.input.len()
    }

    /// The body's next piece, as far as it has come. The slice is good until the next call.
    pub fn next_piece(&mut self) -> Piece<'_> {
        let limits = self.exchange.common.limits;
        self.forget_consumed_body();
        let stream = self.stream();
        if let Some(fault) = stream.fault {
            return Piece::Fault(fault);
        }
        if !stream.open {
            return Piece::Body {
                bytes: b"",
                more: false,
            };
        }
        let mut piece: Option<Range<usize>> = None;
        loop {
            let exchange = &mut self.exchange;
            let input = &exchange.input[self.consumed..];
            match self.reader.next_event(input, &mut exchange.head, &limits) {
                Ok(Event::Data { consumed, body }) => {
                    if let Some(stream) = &mut self.streamed {
                        // It didn't wait to be asked (RFC 9110 10.1.1).
                        stream.expects = false;
                    }
                    let start = self.consumed;
                    self.consumed += consumed;
                    let body = start + body.start..start + body.end;
                    match &mut piece {
                        None => piece = Some(body),
                        // Chunks: they move together, over the framing between them.
                        Some(piece) => {
                            let end = piece.end + body.len();
                            exchange.input.copy_within(body, piece.end);
                            piece.end = end;
                        }
                    }
                }
                Ok(Event::Head { consumed } | Event::Skip { consumed }) => {
                    self.consumed += consumed;
                }
                Ok(Event::End { consumed }) => {
                    self.consumed += consumed;
                    self.whole = true;
                    self.stream().open = false;
                    return Piece::Body {
                        bytes: &self.exchange.input[piece.unwrap_or(0..0)],
                        more: false,
                    };
                }
                Ok(Event::NeedData) => {
                    if let Some(piece) = piece {
                        return Piece::Body {
                            bytes: &self.exchange.input[piece],
                            more: true,
                        };
                    }
                    self.forget_consumed_body();
                    match self.read_more() {
                        Ok(true) => {}
                        Ok(false) => return Piece::Pending,
                        Err(Gone) => return Piece::Gone,
                    }
                }
                Err(fault) => {
                    self.stream().fault = Some(fault);
                    return match piece {
                        Some(piece) => Piece::Body {
                            bytes: &self.exchange.input[piece],
                            more: true,
                        },
                        None => Piece::Fault(fault),
                    };
                }
            }
        }
    }

    /// One read; false if there is nothing to read now.
    fn read_more(&mut self) -> Result<bool, Gone> {
        if std::mem::take(&mut self.stream().expects) && !self.exchange.started() {
            self.exchange.send_continue();
            self.flush()?;
        }
        if !self.readable {
            return Ok(false);
        }
        match self.read() {
            Ok(0) => {
                self.notice_hang_up();
                Err(self.exchange.lose())
            }
            Ok(_) => {
                self.progressed = true;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(_) => Err(self.exchange.lose()),
        }
    }

    /// Sends what the socket takes of what is buffered.
    pub fn flush(&mut self) -> Result<Room, Gone> {
        let before = self.exchange.pending();
        let flushed = self.exchange.flush();
        self.progressed |= self.exchange.pending() < before;
        flushed
    }

    /// The application takes its time: what is not used meanwhile is given back.
    pub fn compact(&mut self) {
        self.forget_consumed_body();
        self.exchange.compact();
    }

    /// The body breaks the rules: the client is told, or its connection cut if an answer is under way.
    pub fn refuse_body(&mut self, fault: RequestError) {
        self.exchange.common.counters.count(Counter::Refused);
        if self.exchange.started() {
            self.exchange.abort();
        } else {
            self.exchange.refuse(fault.status(), &format!("{fault}."));
        }
    }

    /// The client's time is over. True if it is told so; false if it takes nothing, or is in the midst of an answer.
    pub fn time_out(&mut self) -> bool {
        self.exchange.common.counters.count(Counter::TimedOut);
        let tells = self.exchange.pending() == 0 && !self.exchange.started();
        if tells {
            self.exchange
                .refuse(408, "The request did not arrive in time.");
        }
        tells
    }

    /// Bytes went out past the buffer.
    pub fn notice_progress(&mut self) {
        self.progressed = true;
    }

    /// Until when the running request's owner waits for the client: to take what was sent, or to send more of its body.
    pub(in crate::event_loop) fn held_deadline(
        &mut self,
        now: Millis,
        timeouts: &Timeouts,
        awaits: Awaits,
    ) -> Millis {
        if std::mem::take(&mut self.progressed) {
            self.since = now;
        }
        if self.exchange.pending() > 0 || awaits == Awaits::Room {
            self.since + millis(timeouts.write)
        } else if awaits == Awaits::Body && !self.body_ended() {
            self.since + millis(timeouts.body)
        } else {
            // It waits for the application: the next wait for the client begins then.
            self.progressed = true;
            Millis::MAX
        }
    }

    /// Reads away what is left of the body. None: the phase changed.
    pub(super) fn step_discarding(&mut self, share: &mut usize) -> Option<Step> {
        loop {
            match self.next_piece() {
                Piece::Body { bytes, more } => {
                    let len = bytes.len();
                    *share = share.saturating_sub(len);
                    let stream = self.stream();
                    stream.discarded += len as u64;
                    if !more {
                        self.next_request();
                        self.phase = super::Phase::Reading;
                        return None;
                    }
                    if stream.discarded > DISCARD {
                        self.linger();
                        return None;
                    }
                    if *share < BODY_READ {
                        return Some(Step::Again);
                    }
                }
                Piece::Pending => return Some(Step::Wait),
                Piece::Gone => return Some(Step::Close),
                Piece::Fault(_) => {
                    self.linger();
                    return None;
                }
            }
        }
    }
}
