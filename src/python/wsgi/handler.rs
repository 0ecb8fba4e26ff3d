//! One handler thread's requests: from the environ through the application's call to `close()`.
//!
//! Owns the thread's Python objects (its [`Desk`]) and its thread state. Everything in here runs on that one thread;
//! it is attached while the application runs and detached while anything waits.

#[cfg(feature = "bench")]
mod parts;
#[cfg(feature = "bench")]
pub use parts::Part;

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use slab::Slab;

use super::super::gil_watch::Watch;
use super::super::object::{Attached, Exception, Owned, Raised, bytes_of, class_name};
use super::super::thread::ThreadState;
use super::super::{fault, ffi, gate};
use super::answer::{Answer, Stage};
use super::context::Contexts;
use super::environ::{Environ, Fixed};
use super::iterate::Suspended;
use super::start_response::Pair;
use super::{WsgiFactory, classes, errors, input};
use crate::exchange::{Body, Exchange, Handler, Progress};
use crate::http1::BodySize;
use crate::pool::turn_slice::{Turn, TurnSlice};
use crate::sync::Arc;

/// The Python side of one handler thread.
pub(super) struct Desk {
    pub(super) app: *mut ffi::PyObject,
    environ: RefCell<Environ>,
    pub(super) answer: Box<Answer>,
    /// For the next request, if nobody kept the last one's.
    pair: Cell<Option<Pair>>,
    pub(super) contexts: Contexts,
    pub(super) suspended: RefCell<Slab<Suspended>>,
    errors: Owned,
    gil: Watch,
    turns: Arc<TurnSlice>,
    /// `close`
    pub(super) close: Owned,
}

/// Answers requests with a WSGI application, on the thread that made it.
pub struct WsgiHandler {
    thread: ThreadState,
    desk: ManuallyDrop<Box<Desk>>,
}

impl WsgiHandler {
    pub(super) fn make(factory: &WsgiFactory, index: usize) -> WsgiHandler {
        gate::set_turn(Some(Turn::new(factory.turns.clone())));
        let thread = ThreadState::make();
        let desk = thread.attached(|py| {
            Desk::make(py, factory).unwrap_or_else(|raised| {
                let text = fault::take_text(py, raised);
                panic!("handler {index} can't be made: {text}");
            })
        });
        desk.answer.enter_thread();
        thread.attached(|py| name_thread(py, index));
        WsgiHandler {
            thread,
            desk: ManuallyDrop::new(desk),
        }
    }
}

#[cfg(test)]
impl WsgiHandler {
    pub(in crate::python) fn thread(&self) -> &ThreadState {
        &self.thread
    }
}

impl Drop for WsgiHandler {
    fn drop(&mut self) {
        self.thread.attached(|py| {
            self.desk.abandon_all(py);
            self.desk.answer.leave_thread();
            self.desk.contexts.leave(py);
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.desk) };
        });
        // The thread state goes after this, when nothing of the thread's is left.
        gate::set_turn(None);
    }
}

impl Handler for WsgiHandler {
    fn handle(&mut self, exchange: &mut Exchange) -> Progress {
        let desk = &**self.desk;
        self.thread
            .attached(|py| desk.guarded(py, exchange, |exchange| desk.run(py, exchange)))
    }

    fn resume(&mut self, key: u32, exchange: &mut Exchange) -> Progress {
        let desk = &**self.desk;
        self.thread
            .attached(|py| desk.guarded(py, exchange, |exchange| desk.resume(py, key, exchange)))
    }

    fn attached(&mut self, work: &mut dyn FnMut()) {
        self.thread.attached(|_| work());
    }

    fn abandon(&mut self, key: u32) {
        let desk = &**self.desk;
        self.thread.attached(|py| desk.abandon(py, key));
    }
}

impl Desk {
    fn make(py: Attached, factory: &WsgiFactory) -> Result<Box<Desk>, Raised> {
        let classes = classes();
        let errors = errors::make(py, classes.errors)?;
        let empty_input = input::make(py, classes.input, Body::Empty)?;
        // SAFETY: attached; classes live for ever.
        let file_wrapper = unsafe { Owned::borrowed(classes.file_wrapper.cast()) };
        let environ = Environ::make(
            py,
            &Fixed {
                root_path: &factory.app.root_path,
                underscores: factory.app.underscores,
                multithread: factory.multithread,
                errors: &errors,
                empty_input: &empty_input,
                file_wrapper: &file_wrapper,
            },
        )?;
        Ok(Box::new(Desk {
            app: factory.app.callable,
            environ: RefCell::new(environ),
            answer: Answer::new(),
            pair: Cell::new(None),
            contexts: Contexts::make(py)?,
            suspended: RefCell::default(),
            errors,
            gil: Watch::make(py)?,
            turns: Arc::clone(&factory.turns),
            close: py.interned(c"close")?,
        }))
    }

    /// A panic of ours costs the one response.
    fn guarded(
        &self,
        py: Attached,
        exchange: &mut Exchange,
        work: impl FnOnce(*mut Exchange) -> Progress,
    ) -> Progress {
        let pointer: *mut Exchange = exchange;
        let progress = catch_unwind(AssertUnwindSafe(|| work(pointer)));
        self.answer.close();
        progress.unwrap_or_else(|_| {
            drop(py.take_exception());
            exchange.fail(500);
            Progress::Done
        })
    }

    /// A request from its beginning. `exchange` is the caller's, who leaves it to us until we return.
    fn run(&self, py: Attached, exchange: *mut Exchange) -> Progress {
        let pair = match self.pair.take() {
            Some(pair) => pair,
            None => match Pair::make(py, &classes().callables) {
                Ok(pair) => pair,
                Err(raised) => {
                    // SAFETY: the caller's, and nobody else has a reference now.
                    self.give_up(py, raised, unsafe { &mut *exchange });
                    return Progress::Done;
                }
            },
        };
        self.answer.begin(pair.state());
        self.answer.open(exchange, pair.state());
        match self.call(py, &pair) {
            Ok(Some(result)) => self.answer_with(py, result, pair),
            Ok(None) => {
                // SAFETY: between `open` and `close`, no other reference is alive.
                unsafe { self.answer.exchange() }.fail(400);
                self.end(py, pair);
                Progress::Done
            }
            Err(raised) => {
                self.fail(py, raised);
                self.end(py, pair);
                Progress::Done
            }
        }
    }

    /// Calls the application. None if the settings keep the request from it.
    #[inline]
    fn call(&self, py: Attached, pair: &Pair) -> Result<Option<Owned>, Raised> {
        let environ = {
            let mut maker = self.environ.borrow_mut();
            // SAFETY: between `open` and `close`; making the environ runs no code of the application's.
            let exchange = unsafe { self.answer.exchange() };
            let Some(environ) = maker.of(py, exchange)? else {
                return Ok(None);
            };
            match exchange.take_body() {
                Body::Empty => {}
                body => maker.set_input(py, &environ, &input::make(py, classes().input, body)?)?,
            }
            environ
        };
        self.call_with(&environ, pair).map(Some)
    }

    #[inline]
    fn call_with(&self, environ: &Owned, pair: &Pair) -> Result<Owned, Raised> {
        // The slot before the arguments is free for a bound method's self (PEP 590).
        let arguments = [std::ptr::null_mut(), environ.ptr(), pair.callable()];
        // SAFETY: attached; the application lives for ever, the arguments until the call returns.
        unsafe {
            Owned::new(ffi::PyObject_Vectorcall(
                self.app,
                arguments.as_ptr().add(1),
                2 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET,
                std::ptr::null_mut(),
            ))
        }
    }

    /// Sends what the application returned. Lists and tuples are whole bodies, everything else comes in pieces.
    fn answer_with(&self, py: Attached, result: Owned, pair: Pair) -> Progress {
        // SAFETY: attached; a live object. Exactly these classes: a subclass may have an `__iter__` or `close` of its own.
        let is_whole = unsafe {
            ffi::PyList_CheckExact(result.ptr()) != 0 || ffi::PyTuple_CheckExact(result.ptr()) != 0
        };
        if is_whole {
            if let Err(raised) = self.send_whole(py, &result, &pair) {
                self.fail(py, raised);
            }
            drop(result);
            self.end(py, pair);
            return Progress::Done;
        }
        self.iterate(py, result, pair)
    }

    /// A list or tuple: its length is known before anything is sent, and it has no `close`.
    fn send_whole(&self, py: Attached, result: &Owned, pair: &Pair) -> Result<(), Raised> {
        // SAFETY: attached; a list or tuple.
        let length = unsafe { ffi::Py_SIZE(result.ptr()) };
        if length == 1 {
            let item = item(py, result, 0)?;
            let chunk = chunk(py, &item)?;
            if pair.state().stage() == Stage::Held {
                self.answer.respond(py, pair.state(), chunk);
                return Ok(());
            }
        }
        let items = (0..length)
            .map(|index| item(py, result, index))
            .collect::<Result<Vec<_>, _>>()?;
        let chunks = items
            .iter()
            .map(|item| chunk(py, item))
            .collect::<Result<Vec<_>, _>>()?;
        let size = BodySize::Known(chunks.iter().map(|chunk| chunk.len() as u64).sum());
        self.check_started(py, pair)?;
        for chunk in chunks {
            self.answer.push(py, pair.state(), chunk, size);
        }
        self.answer.finish(pair.state());
        Ok(())
    }

    pub(super) fn check_started(&self, py: Attached, pair: &Pair) -> Result<(), Raised> {
        match pair.state().stage() {
            Stage::Awaited => Err(py.raise(
                Exception::Assertion,
                "the application did not call start_response() before its body",
            )),
            Stage::Held | Stage::Sent => Ok(()),
        }
    }

    /// The application failed: a plain 500 if nothing was sent, else the response is cut. Logged, unless what failed was
    /// writing to a client that is gone.
    pub(super) fn fail(&self, py: Attached, raised: Raised) {
        // SAFETY: between `open` and `close`, no other reference is alive.
        let exchange = unsafe { self.answer.exchange() };
        if exchange.is_gone() {
            drop(py.take_exception());
            return;
        }
        self.give_up(py, raised, exchange);
    }

    fn give_up(&self, py: Attached, raised: Raised, exchange: &mut Exchange) {
        // Rendering a traceback runs Python code, which must not find the exchange borrowed.
        let (method, target) = (exchange.method().to_vec(), exchange.target().to_vec());
        exchange.fail(500);
        fault::log_view(py, raised, &method, &target);
    }

    /// The request is over.
    #[inline]
    pub(super) fn end(&self, py: Attached, pair: Pair) {
        self.answer.close();
        self.pair.set(pair.retire());
        if let Err(raised) = self.contexts.renew(py) {
            fault::log_exception(py, raised, "leaving a request's context");
        }
        errors::end_of_request(py, &self.errors);
        self.gil.count(py, &self.turns);
    }
}

/// Logs and debuggers show the thread's name. Without `threading` there is nobody to ask for it.
fn name_thread(py: Attached, index: usize) {
    let named = (|| {
        let name = py.str("threading")?;
        // SAFETY: attached; a live string. Null without an exception if the module was not imported.
        let Ok(threading) = (unsafe { Owned::new(ffi::PyImport_GetModule(name.ptr())) }) else {
            return if py.has_exception() {
                Err(Raised)
            } else {
                Ok(())
            };
        };
        let thread = py.call_method(&threading, c"current_thread", [])?;
        py.set_attribute(&thread, c"name", &py.str(&format!("m0serve-{index}"))?)
    })();
    if let Err(raised) = named {
        fault::log_exception(py, raised, "naming a handler's thread");
    }
}

/// An item of a list or tuple, held.
fn item(py: Attached, sequence: &Owned, index: ffi::Py_ssize_t) -> Result<Owned, Raised> {
    let _ = py;
    // SAFETY: attached; both functions check the bounds.
    unsafe {
        if ffi::PyList_CheckExact(sequence.ptr()) != 0 {
            Owned::new(ffi::PyList_GetItemRef(sequence.ptr(), index))
        } else {
            Ok(Owned::borrowed(ffi::PyTuple_GET_ITEM(
                sequence.ptr(),
                index,
            )))
        }
    }
}

/// The bytes of a piece of the body.
#[inline]
pub(super) fn chunk(py: Attached, item: &Owned) -> Result<&[u8], Raised> {
    // SAFETY: attached; a live object, held for as long as the slice.
    unsafe {
        if ffi::PyBytes_Check(item.ptr()) == 0 {
            let text = format!(
                "the application's body must consist of bytes, not {}",
                class_name(item.ptr())
            );
            return Err(py.raise(Exception::Type, &text));
        }
        Ok(bytes_of(item.ptr()))
    }
}
