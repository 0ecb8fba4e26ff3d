//! WebSockets: the `websocket` protocol of ASGI over the codec in `crate::websocket`.
//!
//! Owns, for each, the way from the handshake to the closing one, the messages that came and were not received, and the
//! pings (`pings`). Frames are read as they come, so that pings are answered and a close is noticed; beyond the high-water mark of
//! unreceived messages nothing is read, and the client has to wait.

mod pings;

use std::collections::VecDeque;

use super::super::ffi;
use super::super::object::{Attached, Exception, Owned, Raised};
use super::awaits::Poll;
use super::classes;
use super::executor::Executor;
use super::message::{self, Bytes, Message};
use super::request::{HIGH_WATER, LOW_WATER, Protocol, Request, Sent, Stage};
use super::scope::set;
use crate::event_loop::{Awaits, Connection, Millis, RawRead};
use crate::exchange::{Exchange, Gone, http_date};
use crate::http1::ResponseHead;
use crate::websocket::{self, CloseError, Event, Handshake, Refusal, Settings, WebSocket, code};

/// Messages that wait to be received, at most; uvicorn's `ws_max_queue`.
const QUEUE: usize = 32;
/// Reads from one socket before it is the others' turn: a client that sends what fills no queue (pongs, pieces of one
/// message) faster than it can be read would keep the thread.
const READS: usize = 16;

/// Where reading stopped.
#[derive(PartialEq, Eq)]
enum Pumped {
    /// Nothing is there, or nothing may be read now.
    Paused,
    /// More may be there.
    More,
    Ended,
}

impl Pumped {
    fn ended_if(ended: bool) -> Pumped {
        if ended { Pumped::Ended } else { Pumped::Paused }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Neither accepted nor turned away.
    Asked,
    Open,
    /// An HTTP response turns it away.
    Denied,
    /// Nothing can be sent any more.
    Closed,
}

/// One WebSocket.
pub struct Socket {
    step: Step,
    handshake: Option<Handshake>,
    codec: Option<WebSocket>,
    /// `websocket.connect` was received.
    connected: bool,
    /// `websocket.close` was sent: another message is the application's mistake, not a lost client.
    closed_by_us: bool,
    inbox: VecDeque<Owned>,
    /// Payload bytes in the inbox.
    waiting: usize,
    code: u16,
    reason: String,
    next_ping: Millis,
    pong_due: Millis,
}

/// The request asks for a WebSocket.
pub fn is_asked_for(exchange: &Exchange) -> bool {
    exchange.asks_to_upgrade() && websocket::is_requested(exchange.fields())
}

/// Reads the handshake; a wrong one is answered.
pub fn read_handshake(exchange: &mut Exchange, settings: &Settings) -> Option<Handshake> {
    let http11 = exchange.version() == crate::http1::Version::Http11;
    match Handshake::read(exchange.method(), http11, exchange.fields(), settings) {
        Ok(handshake) => Some(handshake),
        Err(refusal) => {
            refuse(exchange, refusal);
            None
        }
    }
}

fn refuse(exchange: &mut Exchange, refusal: Refusal) {
    let mut head = ResponseHead::new();
    let status = refusal.status();
    let line = format!("{status} {}", crate::http1::reason(status));
    let made = head
        .status(line.as_bytes())
        .and_then(|()| head.field(b"Content-Type", b"text/plain; charset=utf-8"));
    debug_assert!(made.is_ok());
    for (name, value) in refusal.fields() {
        let made = head.field(name.as_bytes(), value.as_bytes());
        debug_assert!(made.is_ok());
    }
    exchange.respond(&head, format!("{refusal}.\n").as_bytes());
}

impl Socket {
    pub fn new(handshake: Handshake) -> Socket {
        Socket {
            step: Step::Asked,
            handshake: Some(handshake),
            codec: None,
            connected: false,
            closed_by_us: false,
            inbox: VecDeque::new(),
            waiting: 0,
            code: code::ABNORMAL,
            reason: String::new(),
            next_ping: Millis::MAX,
            pong_due: Millis::MAX,
        }
    }

    /// No more is read for the application until it has received what there is.
    fn is_full(&self) -> bool {
        self.waiting > HIGH_WATER || self.inbox.len() >= QUEUE
    }

    /// Reads what has come.
    fn pump(&mut self, py: Attached, connection: &mut Connection) -> Result<Pumped, Raised> {
        let mut reads = 0;
        loop {
            // A client can make as many pongs as it likes: it has to read them.
            if self.is_full() || connection.exchange().pending() > HIGH_WATER {
                return Ok(Pumped::Paused);
            }
            let Some(codec) = &mut self.codec else {
                return Ok(Pumped::Ended);
            };
            let (input, out) = connection.raw();
            let found = match codec.receive(input, out) {
                Ok((consumed, event)) => {
                    let found = match event {
                        Some(Event::Text(text)) => {
                            self.waiting += text.len();
                            Some(message(py, classes().words.text, &py.str(text)?)?)
                        }
                        Some(Event::Binary(bytes)) => {
                            self.waiting += bytes.len();
                            Some(message(py, classes().words.bytes, &py.bytes(bytes)?)?)
                        }
                        Some(Event::Close { code, reason }) => {
                            (self.code, self.reason) = (code, reason.to_owned());
                            None
                        }
                        Some(Event::Ping(_) | Event::Pong(_)) => None,
                        None => {
                            connection.consume_raw(consumed);
                            if reads == READS {
                                return Ok(Pumped::More);
                            }
                            reads += 1;
                            match connection.read_raw() {
                                Ok(RawRead::Bytes) => continue,
                                Ok(RawRead::Nothing) => {
                                    return Ok(Pumped::ended_if(codec.is_closed()));
                                }
                                Ok(RawRead::End) | Err(Gone) => {
                                    codec.end_of_input();
                                    return Ok(Pumped::Ended);
                                }
                            }
                        }
                    };
                    connection.consume_raw(consumed);
                    found
                }
                Err(failure) => {
                    (self.code, self.reason) = (failure.code(), failure.reason().to_owned());
                    return Ok(Pumped::Ended);
                }
            };
            self.inbox.extend(found);
            if codec.is_closed() {
                return Ok(Pumped::Ended);
            }
        }
    }
}

/// `websocket.receive`
fn message(py: Attached, key: *mut ffi::PyObject, payload: &Owned) -> Result<Owned, Raised> {
    let words = &classes().words;
    // SAFETY: attached; words live for ever.
    unsafe {
        let message = Owned::new(ffi::PyDict_New())?;
        set(
            py,
            &message,
            words.kind,
            &Owned::borrowed(words.websocket_receive),
        )?;
        set(py, &message, key, payload)?;
        Ok(message)
    }
}

impl Request {
    pub fn set_socket(&self, socket: Socket) {
        self.socket.replace(Some(Box::new(socket)));
    }

    // ---- receive ----

    pub(super) fn poll_socket(&self, py: Attached, executor: &Executor) -> Result<Poll, Raised> {
        let words = &classes().words;
        let mut place = self.socket.borrow_mut();
        let Some(socket) = &mut *place else {
            return Protocol::WebSocket.disconnect(py).map(Poll::Ready);
        };
        if !socket.connected {
            socket.connected = true;
            // SAFETY: attached; words live for ever.
            unsafe {
                let message = Owned::new(ffi::PyDict_New())?;
                set(
                    py,
                    &message,
                    words.kind,
                    &Owned::borrowed(words.websocket_connect),
                )?;
                return Ok(Poll::Ready(message));
            }
        }
        if socket.inbox.is_empty() && socket.step == Step::Open {
            drop(place);
            self.pump_socket(py, executor, false);
            place = self.socket.borrow_mut();
        }
        let Some(socket) = &mut *place else {
            return Protocol::WebSocket.disconnect(py).map(Poll::Ready);
        };
        if let Some(message) = socket.inbox.pop_front() {
            if socket.inbox.is_empty() {
                socket.waiting = 0;
            }
            return Ok(Poll::Ready(message));
        }
        if self.connection.borrow().is_none() || socket.step == Step::Closed {
            let message = Protocol::WebSocket.disconnect(py)?;
            set(py, &message, words.code, &py.int(socket.code.into())?)?;
            set(py, &message, words.reason, &py.str(&socket.reason)?)?;
            return Ok(Poll::Ready(message));
        }
        drop(place);
        executor.wait(py, &self.receivers)
    }

    /// Reads what has come, sends what that calls for, and sees whether it is the end.
    fn pump_socket(&self, py: Attached, executor: &Executor, wake: bool) {
        let mut held = self.connection.borrow_mut();
        let mut place = self.socket.borrow_mut();
        let (Some(connection), Some(socket)) = (&mut *held, &mut *place) else {
            return;
        };
        if socket.step != Step::Open {
            // Before the handshake's end nothing is read; a client that is gone shows by its hanging up.
            let gone = connection.has_hung_up();
            drop(place);
            drop(held);
            if gone {
                self.end_connection(py, executor, false);
            }
            return;
        }
        let pumped = match socket.pump(py, connection) {
            Ok(pumped) => pumped,
            Err(raised) => {
                drop(place);
                drop(held);
                super::super::fault::log_exception(py, raised, "reading a WebSocket");
                return self.end_connection(py, executor, false);
            }
        };
        let flushed = connection.flush();
        let has_mail = !socket.inbox.is_empty();
        let ended = pumped == Pumped::Ended;
        if pumped == Pumped::More {
            executor.put_off(py, connection);
        }
        if ended {
            socket.step = Step::Closed;
        } else if flushed.is_ok() && connection.exchange().pending() > 0 {
            executor.watch(connection, Awaits::Nothing);
        }
        drop(place);
        drop(held);
        match (flushed, ended) {
            (Err(Gone), _) => return self.end_connection(py, executor, false),
            // In order: what was written is sent, and the client may close first.
            (Ok(_), true) => return self.end_connection(py, executor, true),
            _ => {}
        }
        if wake && has_mail {
            self.wake_receivers(py, executor);
        }
    }

    /// Something happened to the connection.
    pub fn knock_socket(&self, py: Attached, executor: &Executor, pending: usize) {
        if pending <= LOW_WATER {
            self.wake_senders(py, executor);
        }
        if self.stage.get() != Stage::Awaited {
            return;
        }
        self.pump_socket(py, executor, true);
    }

    // ---- send ----

    pub(super) fn send_socket(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
        kind: &Owned,
    ) -> Result<Sent, Raised> {
        let words = &classes().words;
        let step = match &*self.socket.borrow() {
            Some(socket) if socket.closed_by_us => {
                return Err(message::unexpected(
                    py,
                    kind,
                    "was sent after \"websocket.close\"",
                ));
            }
            Some(socket) => socket.step,
            None => Step::Closed,
        };
        if self.gone.get() || step == Step::Closed {
            return Err(self.disconnected(py));
        }
        let is = |word| message::is(kind, word);
        match step {
            Step::Asked if is(words.websocket_accept) => self.accept(py, executor, message),
            Step::Asked if is(words.websocket_close) => self.turn_away(py, executor),
            Step::Asked if is(words.websocket_http_start) => {
                self.set_step(Step::Denied);
                self.send_start(py, executor, message)
            }
            Step::Denied if is(words.websocket_http_body) => self.send_body(py, executor, message),
            Step::Open if is(words.websocket_send) => self.send_message(py, executor, message),
            Step::Open if is(words.websocket_close) => self.close_socket(py, executor, message),
            Step::Asked => Err(message::unexpected(
                py,
                kind,
                "was sent before \"websocket.accept\" or \"websocket.close\"",
            )),
            Step::Denied => Err(message::unexpected(
                py,
                kind,
                "was sent in the midst of a denial's response",
            )),
            Step::Open => Err(message::unexpected(
                py,
                kind,
                "was sent to an open WebSocket",
            )),
            Step::Closed => Err(self.disconnected(py)),
        }
    }

    fn set_step(&self, step: Step) {
        if let Some(socket) = &mut *self.socket.borrow_mut() {
            socket.step = step;
        }
    }

    fn accept(&self, py: Attached, executor: &Executor, message: &Message) -> Result<Sent, Raised> {
        let words = &classes().words;
        let subprotocol = match message.get_some(py, words.subprotocol)? {
            Some(name) => Some(py.text(&name)?),
            None => None,
        };
        let mut head = ResponseHead::new();
        if let Some(headers) = message.get_some(py, words.headers)? {
            message::read_headers(py, &headers, &mut head)?;
        }
        let date = http_date();
        let mut held = self.connection.borrow_mut();
        let mut place = self.socket.borrow_mut();
        let (Some(connection), Some(socket)) = (&mut *held, &mut *place) else {
            return Err(self.disconnected(py));
        };
        let Some(handshake) = socket.handshake.take() else {
            return Err(self.disconnected(py));
        };
        let given = |known: &[u8]| {
            head.fields()
                .any(|(name, _)| name.eq_ignore_ascii_case(known))
        };
        let own = [(&b"Date"[..], &date[..]), (&b"Server"[..], &b"m0serve"[..])];
        let own = own.into_iter().filter(|(name, _)| !given(name));
        let (_, out) = connection.raw();
        match handshake.accept(subprotocol.as_deref(), head.fields().chain(own), out) {
            Ok(codec) => socket.codec = Some(codec),
            Err(error) => {
                socket.handshake = Some(handshake);
                let text = format!("\"websocket.accept\": {error}");
                return Err(py.raise(Exception::Value, &text));
            }
        }
        socket.step = Step::Open;
        connection.exchange().switch();
        if let Some(pings) = executor.pings() {
            socket.next_ping = executor.now() + pings.interval.as_millis() as Millis;
            executor.watch_until(connection, socket.next_ping);
        }
        drop(place);
        let sent = self.settle(py, executor, held)?;
        // Frames may have come right behind the handshake.
        self.pump_socket(py, executor, true);
        if executor.is_draining() {
            self.go_away(py, executor);
        }
        Ok(sent)
    }

    /// `websocket.close` instead of `websocket.accept`: 403.
    fn turn_away(&self, py: Attached, executor: &Executor) -> Result<Sent, Raised> {
        if let Some(socket) = &mut *self.socket.borrow_mut() {
            socket.step = Step::Closed;
            socket.closed_by_us = true;
        }
        let mut held = self.connection.borrow_mut();
        let Some(connection) = &mut *held else {
            return Err(self.disconnected(py));
        };
        let mut head = ResponseHead::new();
        let made = head
            .status(b"403 Forbidden")
            .and_then(|()| head.field(b"Content-Type", b"text/plain; charset=utf-8"));
        debug_assert!(made.is_ok());
        connection.exchange().respond(&head, b"Forbidden\n");
        self.stage.set(Stage::Complete);
        self.settle(py, executor, held)
    }

    fn send_message(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
    ) -> Result<Sent, Raised> {
        let words = &classes().words;
        let text = message.get_some(py, words.text)?;
        let bytes = message.get_some(py, words.bytes)?;
        let mut held = self.connection.borrow_mut();
        let mut place = self.socket.borrow_mut();
        let (Some(connection), Some(socket)) = (&mut *held, &mut *place) else {
            return Err(self.disconnected(py));
        };
        // The client's end lies behind messages that were not received: those the application can still have.
        if connection.has_hung_up() {
            return Err(self.disconnected(py));
        }
        let Some(codec) = &mut socket.codec else {
            return Err(self.disconnected(py));
        };
        let sent = match (text, bytes) {
            (Some(text), None) => {
                let text = message::utf8(py, &text, "\"text\"")?;
                let (_, out) = connection.raw();
                codec.send_text(text, out)
            }
            (None, Some(bytes)) => {
                let bytes = Bytes::new(py, bytes, "\"bytes\"")?;
                let (_, out) = connection.raw();
                codec.send_binary(bytes.as_slice(), out)
            }
            _ => {
                let text = "\"websocket.send\" has either \"text\" or \"bytes\"";
                return Err(py.raise(Exception::Value, text));
            }
        };
        drop(place);
        if sent.is_err() {
            return Err(self.disconnected(py));
        }
        self.settle(py, executor, held)
    }

    fn close_socket(
        &self,
        py: Attached,
        executor: &Executor,
        message: &Message,
    ) -> Result<Sent, Raised> {
        let words = &classes().words;
        let code = message.int(py, words.code)?.unwrap_or(code::NORMAL.into());
        let reason = match message.get_some(py, words.reason)? {
            Some(reason) => py.text(&reason)?,
            None => String::new(),
        };
        let code = u16::try_from(code).unwrap_or(0);
        match self.begin_close(py, executor, code, &reason) {
            Ok(()) | Err(CloseError::Closed(_)) => {}
            Err(CloseError::Code(_)) => {
                let text = format!("{code} is no close code that may be sent");
                return Err(py.raise(Exception::Value, &text));
            }
        }
        if let Some(socket) = &mut *self.socket.borrow_mut() {
            socket.closed_by_us = true;
        }
        Ok(Sent::Done)
    }

    /// Sends a Close frame. The client's answer is read away with whatever else it still sends.
    fn begin_close(
        &self,
        py: Attached,
        executor: &Executor,
        code: u16,
        reason: &str,
    ) -> Result<(), CloseError> {
        let flushed = {
            let mut held = self.connection.borrow_mut();
            let mut place = self.socket.borrow_mut();
            let (Some(connection), Some(socket)) = (&mut *held, &mut *place) else {
                return Ok(());
            };
            if let Some(codec) = &mut socket.codec {
                let (_, out) = connection.raw();
                codec.send_close(code, reason, out)?;
            }
            socket.step = Step::Closed;
            (socket.code, socket.reason) = (code, reason.to_owned());
            connection.flush()
        };
        self.end_connection(py, executor, flushed.is_ok());
        Ok(())
    }

    /// The server stops.
    pub fn go_away(&self, py: Attached, executor: &Executor) {
        let open = matches!(&*self.socket.borrow(), Some(socket) if socket.step == Step::Open);
        if open {
            // The code may be sent, and the WebSocket is open.
            let _ = self.begin_close(py, executor, code::SERVICE_RESTART, "the server stops");
        }
    }

    /// The application has ended, with the connection still here.
    pub(super) fn break_off_socket(&self, py: Attached, executor: &Executor, failed: bool) {
        let step = match &*self.socket.borrow() {
            Some(socket) => socket.step,
            None => Step::Closed,
        };
        match step {
            Step::Open => {
                let code = if failed {
                    code::INTERNAL_ERROR
                } else {
                    code::NORMAL
                };
                // Both codes may be sent, and the WebSocket is open.
                let _ = self.begin_close(py, executor, code, "");
            }
            Step::Asked | Step::Denied => self.break_off_http(py, executor),
            Step::Closed => self.end_connection(py, executor, true),
        }
    }

    /// True if the application may end now without a word in the log.
    pub(super) fn socket_may_end(&self) -> bool {
        matches!(&*self.socket.borrow(), Some(socket) if matches!(socket.step, Step::Open | Step::Closed))
    }
}
