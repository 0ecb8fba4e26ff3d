//! The answer of the request that a thread runs: how far it has come, and the way to its exchange.
//!
//! Owns the rule that one request at a time writes on a thread, and that nothing keeps a reference to its exchange across
//! a call into Python: an application's `write` takes the same way. Everything here runs on the handler's thread; what
//! another thread may look at is whether an answer is there at all.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::super::ffi::PyObject;
use super::super::object::{Attached, Exception, Raised};
use super::fields;
use crate::exchange::{Exchange, Gone, Room, is_large};
use crate::http1::{BodySize, ResponseHead};

/// How far an answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `start_response` was not called yet.
    Awaited,
    /// Status and fields are known; nothing was sent, so that an error can still replace them.
    Held,
    /// The head is out.
    Sent,
}

/// One request's answer. It lives in the request's `start_response`, which an application may keep.
pub struct State {
    /// Where it is written; null as soon as the request is over. Only its own thread changes it, any may look.
    answer: AtomicPtr<Answer>,
    /// Only touched by its own thread, as is `room`.
    stage: Cell<Stage>,
    /// Body bytes that the announced Content-Length still has room for; `u64::MAX` if none was announced.
    room: Cell<u64>,
}

/// What a handler thread's callables write to: the answer of the request that the thread is running.
pub struct Answer {
    head: RefCell<ResponseHead>,
    /// Null between requests.
    exchange: Cell<*mut Exchange>,
    /// The running request's state; that of a suspended one is another.
    current: Cell<*const State>,
}

thread_local! {
    /// This thread's answer, so that a callable can tell whether it is called on its own thread.
    static ANSWER: Cell<*const Answer> = const { Cell::new(ptr::null()) };
}

/// Why a piece of body could not be sent on.
pub enum Failure {
    Raised,
    Gone,
}

impl From<Raised> for Failure {
    fn from(_: Raised) -> Failure {
        Failure::Raised
    }
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Failure {
        Failure::Gone
    }
}

impl State {
    pub fn new() -> State {
        State {
            answer: AtomicPtr::new(ptr::null_mut()),
            stage: Cell::new(Stage::Awaited),
            room: Cell::new(u64::MAX),
        }
    }

    #[inline]
    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// True if a body that goes on has no business: all that was announced is out, or there is none to be sent.
    pub fn is_full(&self) -> bool {
        self.room.get() == 0
    }

    /// The request is over: nobody writes to its answer any more.
    #[inline]
    pub fn retire(&self) {
        self.answer.store(ptr::null_mut(), Ordering::Release);
    }

    /// As after `start_response`, for what the thread's answer still holds.
    #[cfg(feature = "bench")]
    pub fn hold_again(&self) {
        self.stage.set(Stage::Held);
    }

    /// The answer that this one's request may write to now, or an exception that says why `what` may not be called.
    #[inline]
    pub fn answer<'a>(&self, py: Attached, what: &str) -> Result<&'a Answer, Raised> {
        let answer = self.answer.load(Ordering::Acquire);
        if answer.is_null() {
            let text = format!("{what} was called after its request had ended");
            return Err(py.raise(Exception::Runtime, &text));
        }
        if ANSWER.get() != answer {
            let text = format!("{what} was called on another thread than its request's");
            return Err(py.raise(Exception::Runtime, &text));
        }
        // SAFETY: this thread's own answer, which lives until the thread's handler goes.
        Ok(unsafe { &*answer })
    }
}

impl Answer {
    /// For the present thread. It must stay where it is.
    pub fn new() -> Box<Answer> {
        Box::new(Answer {
            head: RefCell::new(ResponseHead::new()),
            exchange: Cell::new(ptr::null_mut()),
            current: Cell::new(ptr::null()),
        })
    }

    /// The present thread's callables write here, until [`leave_thread`](Answer::leave_thread).
    pub fn enter_thread(&self) {
        ANSWER.set(self);
    }

    pub fn leave_thread(&self) {
        ANSWER.set(ptr::null());
    }

    /// The thread runs the request of `state`, in `exchange`, until [`close`](Answer::close).
    #[inline]
    pub fn open(&self, exchange: *mut Exchange, state: &State) {
        self.exchange.set(exchange);
        self.current.set(state);
        state
            .answer
            .store(ptr::from_ref(self).cast_mut(), Ordering::Release);
    }

    #[inline]
    pub fn close(&self) {
        self.exchange.set(ptr::null_mut());
        self.current.set(ptr::null());
    }

    /// The state of a request that has just begun.
    #[inline]
    pub fn begin(&self, state: &State) {
        state.stage.set(Stage::Awaited);
        state.room.set(u64::MAX);
    }

    /// Whether the request of `state` is the one that is running; others are suspended.
    pub fn is_running(&self, state: &State) -> bool {
        ptr::eq(self.current.get(), state)
    }

    /// The running request's exchange.
    ///
    /// # Safety
    /// Between `open` and `close`. No other reference to the exchange is alive, and this one isn't any more when Python
    /// code may run.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn exchange(&self) -> &mut Exchange {
        debug_assert!(!self.exchange.get().is_null());
        // SAFETY: the caller's promise; `open` got it from a reference that its caller keeps to itself.
        unsafe { &mut *self.exchange.get() }
    }

    /// Takes over what the application gives to `start_response`. What was held before is void, also if it fails.
    pub fn hold(
        &self,
        py: Attached,
        state: &State,
        status: *mut PyObject,
        headers: *mut PyObject,
    ) -> Result<(), Raised> {
        // A value can be of a class of the application's own, whose end runs code that calls us again.
        let Ok(mut head) = self.head.try_borrow_mut() else {
            return Err(py.raise(
                Exception::Runtime,
                "start_response() was called while it was running",
            ));
        };
        state.stage.set(Stage::Awaited);
        fields::read(py, &mut head, status, headers)?;
        state.stage.set(Stage::Held);
        Ok(())
    }

    /// The whole answer at once.
    #[inline]
    pub fn respond(&self, py: Attached, state: &State, body: &[u8]) {
        let head = self.head.borrow();
        // SAFETY: between `open` and `close`, no other reference is alive, and none is made while the thread is detached.
        let exchange = unsafe { self.exchange() };
        detached_if_large(py, body, || exchange.respond(&head, body));
        state.stage.set(Stage::Sent);
    }

    /// Buffers the head: the first piece of the body is there, or it has none.
    pub fn start(&self, state: &State, size: BodySize) {
        let head = self.head.borrow();
        // SAFETY: between `open` and `close`, no other reference is alive.
        let exchange = unsafe { self.exchange() };
        let bodiless = exchange.is_head() || matches!(head.code(), 204 | 205 | 304);
        let known = match size {
            BodySize::Known(length) => length,
            BodySize::Unknown => u64::MAX,
        };
        let room = if bodiless {
            0
        } else {
            head.content_length().unwrap_or(known)
        };
        state.room.set(room);
        state.stage.set(Stage::Sent);
        exchange.start(&head, size);
    }

    /// Buffers a piece of the body, and the head before the first.
    pub fn push(&self, py: Attached, state: &State, chunk: &[u8], size: BodySize) {
        if state.stage.get() == Stage::Held {
            self.start(state, size);
        }
        // SAFETY: as in `respond`.
        let exchange = unsafe { self.exchange() };
        detached_if_large(py, chunk, || exchange.push(chunk));
        if state.room.get() != u64::MAX {
            state
                .room
                .set(state.room.get().saturating_sub(chunk.len() as u64));
        }
    }

    /// The body ended. If no piece of it was ever sent the head goes out now.
    pub fn finish(&self, state: &State) {
        if state.stage.get() == Stage::Held {
            self.start(state, BodySize::Known(0));
        }
        // SAFETY: between `open` and `close`, no other reference is alive.
        unsafe { self.exchange() }.finish();
    }

    /// Sends what is buffered, as far as the socket takes it.
    pub fn flush(&self, py: Attached) -> Result<Room, Gone> {
        // SAFETY: between `open` and `close`; no other reference is alive, and none is made while the thread is detached.
        let exchange = unsafe { self.exchange() };
        py.detached(|| exchange.flush())
    }

    /// Waits until a slow client has made room. Only where the thread may wait.
    pub fn wait_room(&self, py: Attached) -> Result<(), Gone> {
        // SAFETY: as in `flush`.
        let exchange = unsafe { self.exchange() };
        py.detached(|| exchange.wait_room())
    }

    /// False for a thread that must not wait for a client: nobody else would drive its loop.
    pub fn may_wait(&self) -> bool {
        // SAFETY: between `open` and `close`, no other reference is alive.
        unsafe { self.exchange() }.may_wait()
    }
}

/// `work` with a piece of a body, which tries to send a large one.
#[inline]
fn detached_if_large<R>(py: Attached, piece: &[u8], work: impl FnOnce() -> R) -> R {
    match is_large(piece) {
        true => py.detached(work),
        false => work(),
    }
}
