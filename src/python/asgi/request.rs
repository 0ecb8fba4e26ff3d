//! One running request: its connection, how far its answer has come, and who waits for what.
//!
//! Owns the state that `receive`, `send` and the executor share, and the HTTP message protocol. Only touched on the
//! executor's thread; nothing is borrowed while Python code can run.

mod http;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::super::ffi::{self, PyObject};
use super::super::object::{Attached, Exception, Owned, Raised};
use super::awaits::Poll;
use super::classes;
use super::executor::Executor;
use super::files::Transfer;
use super::handle::Pair;
use super::message::{self, Message};
use super::scope::set;
use super::socket::Socket;
use crate::event_loop::{Awaits, Connection};
use crate::exchange::{Exchange, Gone};
use crate::http1::ResponseHead;

/// `send` suspends when more than this waits for the client …
pub const HIGH_WATER: usize = 64 * 1024;
/// … until this is left: enough to keep the socket busy while the application makes more.
pub const LOW_WATER: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    WebSocket,
}

impl Protocol {
    /// The error of a `send` after the end.
    pub fn closed(self, py: Attached) -> Raised {
        let text = match self {
            Protocol::Http => "send() after the end of the request",
            Protocol::WebSocket => "send() after the end of the connection",
        };
        py.raise(Exception::Runtime, text)
    }

    /// What `receive` gives after the end.
    pub fn disconnect(self, py: Attached) -> Result<Owned, Raised> {
        let words = &classes().words;
        // SAFETY: attached; words live for ever.
        unsafe {
            let message = Owned::new(ffi::PyDict_New())?;
            let kind = match self {
                Protocol::Http => words.http_disconnect,
                Protocol::WebSocket => words.websocket_disconnect,
            };
            set(py, &message, words.kind, &Owned::borrowed(kind))?;
            if self == Protocol::WebSocket {
                set(py, &message, words.code, &py.int(1006)?)?;
                set(py, &message, words.reason, &py.str("")?)?;
            }
            Ok(message)
        }
    }
}

/// How far the answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `http.response.start` is awaited.
    Awaited,
    /// The head is known and not sent: the first piece of the body may tell its length and travels with it.
    Held,
    /// The head is out; the body comes.
    Body,
    /// The body is complete; fields after it come.
    Trailers,
    /// The answer is complete, and the connection is the loop's again.
    Complete,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Done,
    /// It was taken, but the client is slower: the next one should wait.
    Full,
}

pub struct Request {
    executor: *const Executor,
    protocol: Cell<Protocol>,
    /// None once the answer is complete or the client is gone.
    pub(super) connection: RefCell<Option<Box<Connection>>>,
    pub(super) stage: Cell<Stage>,
    /// The client is gone, or was turned away: there is nobody to answer to.
    pub(super) gone: Cell<bool>,
    pub(super) head: RefCell<ResponseHead>,
    /// Body bytes that the announced Content-Length has room for.
    room: Cell<u64>,
    /// Fields after the body were announced.
    trailers: Cell<bool>,
    /// The last piece of the request's body was received.
    body_received: Cell<bool>,
    /// Futures of those who wait in `receive` and `send`.
    pub(super) receivers: RefCell<Vec<Owned>>,
    pub(super) senders: RefCell<Vec<Owned>>,
    /// None between two requests, or if the last one's application kept them.
    pair: RefCell<Option<Pair>>,
    scope: RefCell<Option<Owned>>,
    /// A file on its way to the client.
    pub(super) file: RefCell<Option<Transfer>>,
    pub(super) socket: RefCell<Option<Box<Socket>>>,
    /// The task, if it did not end in its first step.
    pub(super) task: RefCell<Option<Owned>>,
    /// Its place among the executor's running requests.
    pub(super) slot: Cell<usize>,
    /// The application has ended.
    pub(super) ended: Cell<bool>,
}

impl Request {
    pub fn new(executor: &Executor) -> Rc<Request> {
        Rc::new(Request {
            executor,
            protocol: Cell::new(Protocol::Http),
            connection: RefCell::new(None),
            stage: Cell::new(Stage::Awaited),
            gone: Cell::new(false),
            head: RefCell::new(ResponseHead::new()),
            room: Cell::new(u64::MAX),
            trailers: Cell::new(false),
            body_received: Cell::new(false),
            receivers: RefCell::default(),
            senders: RefCell::default(),
            pair: RefCell::new(None),
            scope: RefCell::new(None),
            file: RefCell::new(None),
            socket: RefCell::new(None),
            task: RefCell::new(None),
            slot: Cell::new(usize::MAX),
            ended: Cell::new(false),
        })
    }

    #[inline]
    pub fn executor(&self) -> *const Executor {
        self.executor
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol.get()
    }

    /// Begins anew, with a connection whose head is whole.
    #[inline]
    pub fn open(
        self: &Rc<Request>,
        py: Attached,
        executor: &Executor,
        protocol: Protocol,
        connection: Box<Connection>,
    ) -> Result<(), Raised> {
        self.protocol.set(protocol);
        self.stage.set(Stage::Awaited);
        self.gone.set(false);
        self.room.set(u64::MAX);
        self.trailers.set(false);
        self.body_received.set(false);
        self.ended.set(false);
        self.connection.replace(Some(connection));
        let mut pair = self.pair.borrow_mut();
        let pair = match &mut *pair {
            Some(pair) => pair,
            none => none.insert(Pair::make(py, executor)?),
        };
        pair.link(self, protocol);
        Ok(())
    }

    #[inline]
    pub fn set_scope(&self, scope: Owned) {
        self.scope.replace(Some(scope));
    }

    /// Calls the application.
    #[inline]
    pub fn call(&self, py: Attached, executor: &Executor) -> Result<Owned, Raised> {
        let _ = py;
        let arguments = {
            let pair = self.pair.borrow();
            let scope = self.scope.borrow();
            let (Some(pair), Some(scope)) = (&*pair, &*scope) else {
                return Err(py.raise(Exception::Runtime, "the request is over"));
            };
            [
                std::ptr::null_mut(),
                scope.ptr(),
                pair.receive.ptr(),
                pair.send.ptr(),
            ]
        };
        // SAFETY: attached. The objects live as long as the request, whose run this is; the place in front of the
        // arguments is the callee's to use.
        unsafe {
            Owned::new(ffi::PyObject_Vectorcall(
                executor.app(),
                arguments.as_ptr().add(1),
                3 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET,
                std::ptr::null_mut(),
            ))
        }
    }

    /// The application has ended: nothing that it kept leads here any more.
    #[inline]
    pub fn close(&self) {
        self.ended.set(true);
        let scope = self.scope.take();
        let task = self.task.take();
        self.file.take();
        let socket = self.socket.take();
        let mut pair = self.pair.borrow_mut();
        if let Some(linked) = &*pair {
            linked.unlink();
            if !linked.is_unshared() {
                *pair = None;
            }
        }
        // After the borrow: its values may be the last references to objects of the application's.
        drop(pair);
        drop((scope, task, socket));
    }

    /// The client has ended its side.
    pub fn has_hung_up(&self) -> bool {
        match &*self.connection.borrow() {
            Some(connection) => connection.has_hung_up(),
            None => false,
        }
    }

    /// The application takes its time.
    pub fn compact(&self) {
        if let Some(connection) = &mut *self.connection.borrow_mut() {
            connection.compact();
        }
    }

    /// Method and target, for the log. They outlive the connection.
    pub fn line(&self, py: Attached) -> (Vec<u8>, Vec<u8>) {
        if let Some(connection) = &mut *self.connection.borrow_mut() {
            let exchange = connection.exchange();
            return (exchange.method().to_vec(), exchange.target().to_vec());
        }
        let words = &classes().words;
        let item = |key, what| -> Option<Vec<u8>> {
            let scope = self.scope.borrow().as_ref().map(Owned::again)?;
            let message = Message::new(py, &scope).ok()?;
            let value = message.get(py, key).ok()??;
            message::text_or_bytes(py, value, what).ok()
        };
        let method = item(words.method, "").unwrap_or_else(|| b"websocket".to_vec());
        let path = item(words.raw_path, "").unwrap_or_default();
        drop(py.take_exception());
        (method, path)
    }

    pub fn forget(&self, future: *mut PyObject) {
        for waiters in [&self.receivers, &self.senders] {
            let mut waiters = waiters.borrow_mut();
            if let Some(index) = waiters.iter().position(|waiter| waiter.ptr() == future) {
                let waiter = waiters.swap_remove(index);
                drop(waiters);
                drop(waiter);
            }
        }
    }

    /// Asks again everybody who waits in `receive`.
    pub fn wake_receivers(&self, py: Attached, executor: &Executor) {
        let waiters = self.receivers.take();
        executor.wake(py, waiters);
    }

    pub fn wake_senders(&self, py: Attached, executor: &Executor) {
        let waiters = self.senders.take();
        executor.wake(py, waiters);
    }

    pub fn wake_all(&self, py: Attached, executor: &Executor) {
        self.wake_receivers(py, executor);
        self.wake_senders(py, executor);
    }

    // ---- receive ----

    pub fn poll_receive(&self, py: Attached, executor: &Executor) -> Result<Poll, Raised> {
        match self.protocol.get() {
            Protocol::Http => self.poll_http(py, executor),
            Protocol::WebSocket => self.poll_socket(py, executor),
        }
    }

    /// There is nobody to answer to any more. `refused`: the client is told why.
    pub fn end_connection(&self, py: Attached, executor: &Executor, refused: bool) {
        if self.stage.get() == Stage::Held {
            executor.count_held(-1);
        }
        self.gone.set(true);
        self.stage.set(Stage::Complete);
        if let Some(connection) = self.connection.take() {
            if refused {
                executor.release(py, connection);
            } else {
                executor.discard(py, connection);
            }
        }
        self.wake_all(py, executor);
    }

    // ---- send ----

    pub fn send(&self, py: Attached, executor: &Executor, object: &Owned) -> Result<Sent, Raised> {
        let message = Message::new(py, object)?;
        let kind = message.kind(py)?;
        let words = &classes().words;
        if self.protocol.get() == Protocol::WebSocket {
            return self.send_socket(py, executor, &message, &kind);
        }
        if message::is(&kind, words.http_start) {
            self.send_start(py, executor, &message)
        } else if message::is(&kind, words.http_body) {
            self.send_body(py, executor, &message)
        } else if message::is(&kind, words.http_trailers) {
            self.send_trailers(py, executor, &message)
        } else if message::is(&kind, words.http_early_hint) {
            self.send_early_hint(py, executor, &message)
        } else if message::is(&kind, words.http_pathsend) {
            self.send_path(py, executor, &message)
        } else if message::is(&kind, words.http_zerocopysend) {
            self.send_file(py, executor, &message)
        } else {
            Err(message::unexpected(
                py,
                &kind,
                "is no message of an HTTP response",
            ))
        }
    }

    /// The error for a client that is gone: an OSError, as the specification asks since 2.4.
    pub(super) fn disconnected(&self, py: Attached) -> Raised {
        py.raise(Exception::BrokenPipe, "the client has disconnected")
    }

    /// That error, if so.
    pub(super) fn check_here(&self, py: Attached) -> Result<(), Raised> {
        match self.gone.get() {
            true => Err(self.disconnected(py)),
            false => Ok(()),
        }
    }

    pub(super) fn take_room(&self, length: u64) {
        let room = self.room.get();
        if room != u64::MAX {
            self.room.set(room.saturating_sub(length));
        }
    }

    /// The body is complete.
    pub(super) fn end_body(&self, exchange: &mut Exchange) {
        if self.trailers.get() {
            self.stage.set(Stage::Trailers);
        } else {
            exchange.finish();
            self.stage.set(Stage::Complete);
        }
    }

    /// The application ended with the connection still here. `failed`: with an exception.
    pub fn break_off(&self, py: Attached, executor: &Executor, failed: bool) {
        match self.protocol.get() {
            Protocol::Http => self.break_off_http(py, executor),
            Protocol::WebSocket => self.break_off_socket(py, executor, failed),
        }
    }

    /// 500 if nothing was sent; else the answer is cut.
    pub(super) fn break_off_http(&self, py: Attached, executor: &Executor) {
        if let Some(connection) = &mut *self.connection.borrow_mut() {
            connection.exchange().fail(500);
        }
        self.end_connection(py, executor, true);
    }

    /// Sends what was buffered, and gives the connection back if the answer is complete.
    pub(super) fn settle(
        &self,
        py: Attached,
        executor: &Executor,
        mut held: std::cell::RefMut<'_, Option<Box<Connection>>>,
    ) -> Result<Sent, Raised> {
        if self.stage.get() == Stage::Complete {
            let Some(connection) = held.take() else {
                return Err(self.disconnected(py));
            };
            drop(held);
            executor.release(py, connection);
            self.wake_all(py, executor);
            return Ok(Sent::Done);
        }
        let Some(connection) = &mut *held else {
            return Err(self.disconnected(py));
        };
        if connection.flush() == Err(Gone) {
            drop(held);
            self.end_connection(py, executor, false);
            return Err(self.disconnected(py));
        }
        let pending = connection.exchange().pending();
        if pending == 0 {
            return Ok(Sent::Done);
        }
        executor.watch(connection, Awaits::Nothing);
        drop(held);
        executor.rearm(py);
        Ok(if pending > HIGH_WATER {
            Sent::Full
        } else {
            Sent::Done
        })
    }

    pub fn poll_room(&self, py: Attached, executor: &Executor) -> Result<Poll, Raised> {
        let pending = match &mut *self.connection.borrow_mut() {
            Some(connection) => connection.exchange().pending(),
            None => 0,
        };
        self.check_here(py)?;
        if pending <= LOW_WATER && !self.has_file() {
            return Ok(Poll::Ready(py.none()));
        }
        executor.wait(py, &self.senders)
    }
}
