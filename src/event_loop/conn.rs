//! One connection: what its bytes mean so far, whose turn it is, and what it waits for.
//!
//! A `Connection` is a box with one owner: its [`Seat`] while it waits for readiness, the loop while it is stepped, the
//! deque and then a handler while it is a job. `step` reads, parses, writes and never blocks.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use super::deadlines::{self, Millis};
use super::kept::KEPT_BYTES;
use super::mailbox::Mailbox;
use super::seat::Seat;
use crate::config::Timeouts;
use crate::exchange::{Ending, Exchange, Progress, SpareBuffers};
use crate::http1::{Event, RequestReader};
use crate::observe::counters::Counter;
use crate::sync::Arc;

mod body;
mod raw;
mod streamed;

pub use raw::RawRead;
pub use streamed::Piece;
use streamed::Stream;

/// Reads are at least this long while a head is awaited.
const HEAD_READ: usize = 4096;
/// Reads are at least this long while a body is collected.
const BODY_READ: usize = 64 * 1024;
/// One connection gets at most this many bytes of a pass: a fast upload must not hold up the others.
pub(super) const SHARE: usize = 1024 * 1024;
/// What an answer that needs no handler takes of that share: sixty-four of them, and the others have their turn.
pub(super) const LOCAL_ANSWER: usize = SHARE / 64;
/// After an error answer at most this many of the client's bytes are read away …
const LINGER_BYTES: usize = 64 * 1024 * 1024;
/// … for at most this long in all …
const LINGER: Millis = 10_000;
/// … and for at most this long in silence. Otherwise the reset could overtake the answer (RFC 9112 9.6).
const LINGER_SILENCE: Millis = 2_000;
/// In a drain, a new connection may still send its first request for this long: its client could not know.
const DRAIN_FIRST_REQUEST: Millis = 1_000;

/// The soonest that a connection which a handler now owns can have a deadline.
pub(super) fn soonest(timeouts: &Timeouts) -> Millis {
    millis(timeouts.idle).max(1)
}

fn millis(duration: Duration) -> Millis {
    duration.as_millis() as Millis
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client's: a head or a body is awaited.
    Reading,
    /// The application's: the connection is a job.
    Answering,
    /// Ours: the response is on its way to the client.
    Flushing,
    /// The client's: the rest of a body that nobody wants, before its next request.
    Discarding,
    /// Nobody's: what the client still sends is read away.
    Lingering,
    Over,
}

/// What a connection needs next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Readiness or a deadline.
    Wait,
    /// An answer: a whole request stands ready.
    Request,
    /// Its handler: the suspended response has room again.
    Resume,
    /// Another pass: it had its share of this one.
    Again,
    Close,
}

pub struct Connection {
    exchange: Exchange,
    /// When it became a job: thieves are fair to old ones.
    pub(super) queued_at: Millis,
    reader: RequestReader,
    phase: Phase,
    /// The socket may have bytes: an edge came, and no read has found it empty since.
    readable: bool,
    /// The end of the peer's stream may stand behind the bytes: a short read does not mean that nothing is left.
    ended: bool,
    /// Bytes of `exchange.input` that are part of the present request.
    consumed: usize,
    /// The present request has been read to its end.
    whole: bool,
    /// The handler's key of a response that waits for the client.
    suspended: Option<u32>,
    /// The first request has not been answered yet.
    fresh: bool,
    /// Bytes went in or out since the deadline was last set.
    progressed: bool,
    /// Part of a head has come; its time-out runs from its first byte.
    waits_in_head: bool,
    /// The deadline has passed; what the client has done before that was noticed still counts.
    overdue: bool,
    /// What the deadline counts from.
    since: Millis,
    deadline: Millis,
    linger_until: Millis,
    lingered: usize,
    /// The request goes to the application as soon as its head is whole.
    streamed: Option<Stream>,
    loop_index: usize,
    key: usize,
    seat: Arc<Seat<Connection>>,
}

impl Connection {
    pub(super) fn new(exchange: Exchange, loop_index: usize, key: usize, now: Millis) -> Self {
        Connection {
            exchange,
            queued_at: now,
            reader: RequestReader::new(),
            phase: Phase::Reading,
            readable: true,
            ended: false,
            consumed: 0,
            whole: false,
            suspended: None,
            fresh: true,
            progressed: false,
            waits_in_head: false,
            overdue: false,
            since: now,
            deadline: Millis::MAX,
            linger_until: Millis::MAX,
            lingered: 0,
            streamed: None,
            loop_index,
            key,
            seat: Arc::new(Seat::new()),
        }
    }

    pub fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// The index of the loop that this connection belongs to.
    pub fn home(&self) -> usize {
        self.loop_index
    }

    pub fn queued_at(&self) -> Millis {
        self.queued_at
    }

    /// The key of a suspended response: the job is to go on with it.
    pub fn take_suspended(&mut self) -> Option<u32> {
        self.suspended.take()
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Its place among the loop's connections; another connection may have it later.
    pub fn key(&self) -> usize {
        self.key
    }

    pub(super) fn seat(&self) -> &Arc<Seat<Connection>> {
        &self.seat
    }

    pub(super) fn deadline(&self) -> Millis {
        self.deadline
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.exchange.stream.as_fd().as_raw_fd()
    }

    pub(super) fn pick_up(&mut self, spare: &mut SpareBuffers) {
        self.exchange.pick_up(spare);
    }

    pub(super) fn lay_down(&mut self, spare: &mut SpareBuffers) {
        self.exchange.lay_down(spare);
    }

    /// Nothing of a next request has come and nothing of a response is left.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Reading
            && self.exchange.input.is_empty()
            && self.exchange.pending() == 0
    }

    /// The answer stands in the buffer (or was sent already).
    pub(super) fn answered(&mut self) {
        self.phase = Phase::Flushing;
    }

    /// A job's view has run.
    pub fn complete(&mut self, progress: Progress) {
        self.suspended = match progress {
            Progress::Done => None,
            Progress::Waiting(key) => Some(key),
        };
        self.answered();
        self.progressed = true;
    }

    /// Whether its answer is whole, short and all there is to be said to the client.
    pub(super) fn may_be_kept(&self) -> bool {
        let ends_well = matches!(self.exchange.ending, Ending::KeepAlive | Ending::Close);
        let unsent = self.exchange.unsent();
        self.suspended.is_none() && ends_well && unsent > 0 && unsent <= KEPT_BYTES
    }

    /// Buffers a piece of the body, or sends it.
    pub fn push(&mut self, piece: &[u8]) {
        self.progressed |= self.exchange.push(piece);
    }

    /// The loop's own driver has run the job; an edge may have come if somebody else drove in between.
    pub(super) fn hear_knock(&mut self) {
        if self.seat.hear_knock() {
            self.notice_edge(true);
        }
    }

    /// The loop saw an edge; `ended` if it may have been the end of the peer's stream.
    pub(super) fn notice_edge(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }

    /// Goes as far as it can without blocking, and not further than what is left of a fair `share` of the loop's time.
    pub(super) fn step(&mut self, draining: bool, share: &mut usize) -> Step {
        loop {
            match self.phase {
                Phase::Reading => {
                    if let Some(step) = self.step_reading(draining, share) {
                        return step;
                    }
                }
                Phase::Flushing => {
                    let before = self.exchange.pending();
                    let flushed = self.exchange.flush();
                    self.progressed |= self.exchange.pending() < before;
                    match flushed {
                        Err(_) => return Step::Close,
                        Ok(_) if self.exchange.pending() > 0 => {
                            if std::mem::take(&mut self.overdue)
                                && self.exchange.pending() == before
                            {
                                self.give_up();
                                continue;
                            }
                            return Step::Wait;
                        }
                        Ok(_) if self.suspended.is_some() => {
                            self.phase = Phase::Answering;
                            return Step::Resume;
                        }
                        Ok(_) => self.end_exchange(),
                    }
                }
                Phase::Discarding => {
                    if let Some(step) = self.step_discarding(share) {
                        if step == Step::Wait && std::mem::take(&mut self.overdue) {
                            self.give_up();
                            continue;
                        }
                        return step;
                    }
                }
                Phase::Lingering => return self.read_away(),
                Phase::Over => return Step::Close,
                Phase::Answering => unreachable!("a job is stepped only after its answer"),
            }
        }
    }

    /// None: the phase changed, or there is more to look at.
    fn step_reading(&mut self, draining: bool, share: &mut usize) -> Option<Step> {
        if *share == 0 && (self.readable || self.consumed < self.exchange.input.len()) {
            return Some(Step::Again);
        }
        if self.consumed < self.exchange.input.len() && self.parse() {
            return match self.phase {
                Phase::Answering => Some(Step::Request),
                _ => None,
            };
        }
        if self.exchange.pending() > 0 && self.exchange.flush().is_err() {
            return Some(Step::Close);
        }
        if !self.readable {
            if std::mem::take(&mut self.overdue) {
                self.give_up();
                return None;
            }
            let leave = draining && self.reader.is_between_messages() && !self.fresh;
            return Some(if leave { Step::Close } else { Step::Wait });
        }
        match self.read() {
            Ok(0) => {
                if self.reader.is_between_messages() {
                    return Some(Step::Close);
                }
                self.refuse_unread(400, "The connection ended before the request was complete.");
            }
            Ok(read) => {
                self.progressed = true;
                // A head has its time in all, whatever comes of it.
                self.overdue &= self.waits_in_head;
                *share = share.saturating_sub(read);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // An end of the stream would have been read: should one come, it has an edge of its own.
                (self.readable, self.ended) = (false, false);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Some(Step::Close),
        }
        None
    }

    fn read(&mut self) -> io::Result<usize> {
        let in_body = !self.reader.is_between_messages() && self.consumed > 0;
        let input = &mut self.exchange.input;
        let room = if in_body { BODY_READ } else { HEAD_READ };
        if input.capacity() - input.len() < room / 4 {
            input.reserve(room);
        }
        let spare = input.capacity() - input.len();
        let read = self.exchange.stream.recv(&mut self.exchange.input, spare)?;
        self.exchange
            .common
            .counters
            .add(Counter::Received, read as u64);
        // A short read emptied the socket, and what comes later is a new edge (epoll(7)); but an end that came with the
        // same edge as the bytes has had its edge already.
        if read < spare && read > 0 && !self.ended {
            self.readable = false;
        }
        Ok(read)
    }

    /// Walks the reader's events. True when the phase is no longer Reading.
    fn parse(&mut self) -> bool {
        let limits = self.exchange.common.limits;
        loop {
            let exchange = &mut self.exchange;
            let event = self.reader.next_event(
                &exchange.input[self.consumed..],
                &mut exchange.head,
                &limits,
            );
            match event {
                Ok(Event::NeedData) => {
                    self.forget_consumed_body();
                    return false;
                }
                Ok(Event::Head { consumed }) => {
                    self.consumed = consumed;
                    self.overdue = false;
                    self.exchange.open_response();
                    if let Some(stream) = &mut self.streamed {
                        stream.open(&self.exchange.head);
                        self.phase = Phase::Answering;
                        return true;
                    }
                    let body_awaited = self.consumed == self.exchange.input.len();
                    if self.exchange.head.expect_continue && body_awaited {
                        self.exchange.send_continue();
                    }
                }
                Ok(Event::Data { consumed, body }) => {
                    let start = self.consumed;
                    let range = start + body.start..start + body.end;
                    if let Err(error) = body::collect(&mut self.exchange, range) {
                        crate::observe::log::error!(
                            "cannot keep a request's body in a temporary file: {error}"
                        );
                        self.refuse(500, "");
                        return true;
                    }
                    self.consumed = start + consumed;
                }
                Ok(Event::Skip { consumed }) => self.consumed += consumed,
                Ok(Event::End { consumed }) => {
                    self.consumed += consumed;
                    if let Err(error) = body::rewind(&mut self.exchange) {
                        crate::observe::log::error!("cannot read a request's body back: {error}");
                        self.refuse(500, "");
                        return true;
                    }
                    (self.whole, self.overdue) = (true, false);
                    self.phase = Phase::Answering;
                    return true;
                }
                Err(error) => {
                    self.refuse(error.status(), &format!("{error}."));
                    return true;
                }
            }
        }
    }

    /// Body bytes that were collected elsewhere need not stay behind the head.
    fn forget_consumed_body(&mut self) {
        let head = self.exchange.head.len as usize;
        if self.consumed > head && !self.reader.is_between_messages() {
            self.exchange.input.drain(head..self.consumed);
            self.consumed = head;
        }
    }

    /// What there is of a head says nothing.
    fn refuse_unread(&mut self, status: u16, text: &str) {
        if self.consumed == 0 {
            self.exchange.head.clear();
        }
        self.refuse(status, text);
    }

    /// The client's fault: a plain answer, and the connection ends.
    fn refuse(&mut self, status: u16, text: &str) {
        if self.consumed == 0 {
            self.exchange.open_refusal();
        }
        self.exchange.common.counters.count(Counter::Refused);
        self.exchange.refuse(status, text);
        self.phase = Phase::Flushing;
    }

    /// The response has been sent.
    fn end_exchange(&mut self) {
        self.exchange.record();
        self.fresh = false;
        self.progressed = true;
        self.waits_in_head = false;
        let asked_to_close = !self.exchange.head.keep_alive;
        let read_whole = self.whole && self.consumed == self.exchange.input.len() && !self.readable;
        match self.exchange.ending {
            Ending::KeepAlive if self.streamed.is_some() => self.phase = Phase::Discarding,
            Ending::KeepAlive => {
                self.next_request();
                self.phase = Phase::Reading;
            }
            // A client that asked for the end and has nothing on the way can't be reset by it.
            Ending::Close if asked_to_close && read_whole => self.phase = Phase::Over,
            Ending::Close => self.linger(),
            Ending::Reset | Ending::Gone => self.phase = Phase::Over,
        }
    }

    /// Ends our side; the client's is read away, so that no reset overtakes what it was sent.
    fn linger(&mut self) {
        self.phase = match self.exchange.stream.shutdown_write() {
            Ok(()) => Phase::Lingering,
            Err(_) => Phase::Over,
        };
        self.readable = true;
        self.exchange.input = Vec::new();
    }

    fn next_request(&mut self) {
        self.exchange.clear_request(self.consumed);
        self.consumed = 0;
        self.whole = false;
        self.reader.next_message();
    }

    fn read_away(&mut self) -> Step {
        let mut away = Vec::with_capacity(BODY_READ);
        for _ in 0..SHARE / BODY_READ {
            away.clear();
            match self.exchange.stream.recv(&mut away, BODY_READ) {
                Ok(0) => return Step::Close,
                Ok(read) => {
                    self.progressed = true;
                    self.lingered += read;
                    if self.lingered > LINGER_BYTES {
                        return Step::Close;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Wait,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Step::Close,
            }
        }
        Step::Again
    }

    /// The moment until which it may wait, from what it waits for. Time-outs without progress count from the last
    /// progress; that of a head counts from its first byte, so that one byte a second doesn't keep it alive.
    pub(super) fn set_deadline(&mut self, now: Millis, timeouts: &Timeouts) -> Millis {
        let draining = self.exchange.common.is_draining();
        let in_head = self.consumed == 0;
        let empty = self.exchange.input.is_empty();
        if std::mem::take(&mut self.progressed)
            && !(self.phase == Phase::Reading && in_head && self.waits_in_head)
        {
            self.since = now;
        }
        self.waits_in_head = self.phase == Phase::Reading && in_head && !empty;
        let wait = match self.phase {
            Phase::Reading if in_head && empty && draining && self.fresh => {
                DRAIN_FIRST_REQUEST.min(millis(timeouts.idle))
            }
            Phase::Reading if in_head && empty => millis(timeouts.idle),
            Phase::Reading if in_head => millis(timeouts.head),
            Phase::Reading | Phase::Discarding => millis(timeouts.body),
            Phase::Lingering => LINGER_SILENCE,
            Phase::Answering | Phase::Flushing | Phase::Over => millis(timeouts.write),
        };
        self.deadline = self.since + wait;
        if self.phase == Phase::Lingering {
            self.linger_until = self.linger_until.min(now + LINGER);
            self.deadline = self.deadline.min(self.linger_until);
        }
        self.deadline
    }

    /// The deadline passed. The loop may have been in a view for longer than that, or have more to look at than one wait
    /// reports: `step` first looks at what the client has done in time.
    pub(super) fn expire(&mut self) {
        match self.phase {
            // It has had its answer. Not a reset, which would discard what a slow client has yet to read of it.
            Phase::Lingering => self.phase = Phase::Over,
            _ => {
                self.overdue = true;
                self.readable |= self.phase == Phase::Reading;
            }
        }
    }

    /// Nothing came in time.
    fn give_up(&mut self) {
        self.exchange.common.counters.count(Counter::TimedOut);
        match self.phase {
            Phase::Reading if self.reader.is_between_messages() => self.phase = Phase::Over,
            Phase::Reading => self.refuse_unread(408, "The request did not arrive in time."),
            // Its answer may still be on the way to it.
            Phase::Discarding => self.linger(),
            Phase::Answering | Phase::Flushing | Phase::Lingering | Phase::Over => {
                self.exchange.ending = Ending::Gone;
                self.phase = Phase::Over;
            }
        }
    }

    /// By a handler that doesn't hold the loop: the answer is sent as far as the socket takes it, and the connection waits
    /// for its next request where it is, or goes to the loop if it needs more than that. `complete` was called before.
    pub fn give_back(mut self: Box<Self>, mailbox: &Mailbox) {
        // A lost client is found again by `step`, which closes.
        let _ = self.exchange.flush();
        let common = Arc::clone(&self.exchange.common);
        let quiet = self.suspended.is_none()
            && self.exchange.pending() == 0
            && self.exchange.ending == Ending::KeepAlive
            && self.consumed == self.exchange.input.len()
            && !self.readable
            && !common.is_draining();
        if !quiet {
            self.notice_edge(true);
            return mailbox.give_back(self);
        }
        self.end_exchange();
        self.exchange.drop_buffers();
        self.since = deadlines::now();
        self.progressed = false;
        self.set_deadline(self.since, &common.timeouts);
        let seat = Arc::clone(&self.seat);
        if let Some(mut connection) = seat.sit_down(self, || common.is_draining()) {
            connection.notice_edge(true);
            mailbox.give_back(connection);
        }
    }

    /// Ends it. A reset tells the client that what it got is not whole.
    pub(super) fn close(mut self: Box<Self>) {
        self.exchange.record();
        self.exchange.common.counters.count(Counter::Closed);
        if matches!(self.exchange.ending, Ending::Reset | Ending::Gone) {
            self.exchange.stream.reset_on_close();
        }
    }
}
