//! Bodies that come in pieces: generators, files, iterables of every kind (PEP 3333 "Buffering and Streaming").
//!
//! Owns the order of things: the head goes out with the first piece that isn't empty, each piece is sent before the next
//! one is asked for, a client that reads slowly holds the application up, and `close()` is called once, whatever happens.
//! Runs on the handler's thread, attached but for the sending.

use super::super::object::{Attached, Exception, Owned, Raised, class_name};
use super::super::{fault, ffi};
use super::answer::{Failure, Stage};
use super::classes;
use super::context::Left;
use super::file_wrapper::{self, PlainFile};
use super::handler::{Desk, chunk};
use super::start_response::Pair;
use crate::exchange::{Exchange, Progress, Room};
use crate::http1::BodySize;

/// A response whose client has yet to read what is buffered.
pub(super) struct Suspended {
    body: Streaming,
    pair: Pair,
    context: Option<Left>,
}

struct Streaming {
    /// What the application returned; its `close` is due.
    result: Owned,
    iterator: Owned,
    /// It says that it has one piece, whose length is the body's then (PEP 3333 "Handling the Content-Length Header").
    is_single: bool,
}

/// How far a body got.
enum Pace {
    Ended,
    /// All that was announced is out, but the iterator may have more.
    Full,
    /// The client must read first, and this thread must not wait for it.
    Stalled,
}

impl Desk {
    /// Sends what the application returned, up to its end or to where the client holds it up.
    pub(super) fn iterate(&self, py: Attached, result: Owned, pair: Pair) -> Progress {
        if let Some(file) = file_wrapper::plain_file(py, classes().file_wrapper, &result)
            && pair.state().stage() == Stage::Held
            && self.answer.may_wait()
        {
            self.send_file(py, file, &pair);
            self.close_body(py, &result);
            drop(result);
            self.end(py, pair);
            return Progress::Done;
        }
        let iterator = match iterator_of(py, &result) {
            Ok(iterator) => iterator,
            Err(raised) => {
                self.fail(py, raised);
                self.close_body(py, &result);
                drop(result);
                self.end(py, pair);
                return Progress::Done;
            }
        };
        let is_single = has_one_piece(py, &result);
        let body = Streaming {
            result,
            iterator,
            is_single,
        };
        self.go_on(py, body, pair)
    }

    /// The client has read: the response goes on where it was left.
    pub(super) fn resume(&self, py: Attached, key: u32, exchange: *mut Exchange) -> Progress {
        let Suspended {
            body,
            pair,
            context,
        } = self.suspended.borrow_mut().remove(key as usize);
        if let Err(raised) = self.contexts.take_up(py, context) {
            fault::log_exception(py, raised, "entering a request's context again");
        }
        self.answer.open(exchange, pair.state());
        self.go_on(py, body, pair)
    }

    /// The client is gone: the application is told by `close()`.
    pub(super) fn abandon(&self, py: Attached, key: u32) {
        let Suspended {
            body,
            pair,
            context,
        } = self.suspended.borrow_mut().remove(key as usize);
        if let Err(raised) = self.contexts.take_up(py, context) {
            fault::log_exception(py, raised, "entering a request's context again");
        }
        self.close_body(py, &body.result);
        drop(body);
        self.end(py, pair);
    }

    /// The thread ends while responses wait for their clients.
    pub(super) fn abandon_all(&self, py: Attached) {
        loop {
            let next = self.suspended.borrow().iter().next().map(|(key, _)| key);
            match next {
                Some(key) => self.abandon(py, key as u32),
                None => return,
            }
        }
    }

    fn go_on(&self, py: Attached, body: Streaming, pair: Pair) -> Progress {
        match self.pump(py, &body, &pair) {
            Ok(Pace::Stalled) => return self.suspend(py, body, pair),
            Ok(pace @ (Pace::Ended | Pace::Full)) => {
                self.answer.finish(pair.state());
                // close() may take its time, and the client need not wait for it: the end mark goes out first. A body
                // whose announced length is complete has no end mark, and was sent piece by piece.
                if !matches!(pace, Pace::Full) && !pair.state().is_full() {
                    let _ = self.answer.flush(py);
                }
            }
            Err(Failure::Gone) => {}
            Err(Failure::Raised) => self.fail(py, Raised),
        }
        self.close_body(py, &body.result);
        drop(body);
        self.end(py, pair);
        Progress::Done
    }

    /// Asks for piece after piece and sends each.
    fn pump(&self, py: Attached, body: &Streaming, pair: &Pair) -> Result<Pace, Failure> {
        // SAFETY: attached; `iterator_of` made sure that its class has this function.
        let next = unsafe {
            (*ffi::Py_TYPE(body.iterator.ptr()))
                .tp_iternext
                .expect("an iterator has __next__")
        };
        loop {
            // SAFETY: attached; a live iterator. Null without an exception, or with StopIteration, is the end.
            let item = match unsafe { Owned::new(next(body.iterator.ptr())) } {
                Ok(item) => item,
                Err(Raised) if ended(py) => {
                    self.check_started(py, pair)?;
                    return Ok(Pace::Ended);
                }
                Err(Raised) => return Err(Failure::Raised),
            };
            let chunk = chunk(py, &item)?;
            if chunk.is_empty() {
                continue;
            }
            self.check_started(py, pair)?;
            if pair.state().stage() == Stage::Sent && pair.state().is_full() {
                // More than was announced (or than the request allows): PEP 3333 lets the server stop here.
                return Ok(Pace::Full);
            }
            let size = match body.is_single {
                true => BodySize::Known(chunk.len() as u64),
                false => BodySize::Unknown,
            };
            self.answer.push(py, pair.state(), chunk, size);
            drop(item);
            if self.answer.flush(py)? == Room::Full {
                if !self.answer.may_wait() {
                    return Ok(Pace::Stalled);
                }
                self.answer.wait_room(py)?;
            }
        }
    }

    fn suspend(&self, py: Attached, body: Streaming, pair: Pair) -> Progress {
        self.answer.close();
        let context = self.contexts.put_aside(py).unwrap_or_else(|raised| {
            fault::log_exception(py, raised, "leaving a request's context");
            None
        });
        let key = self.suspended.borrow_mut().insert(Suspended {
            body,
            pair,
            context,
        });
        Progress::Waiting(key as u32)
    }

    /// A plain file goes to the socket without passing through the interpreter.
    fn send_file(&self, py: Attached, file: PlainFile, pair: &Pair) {
        self.answer.start(pair.state(), BodySize::Known(file.len));
        // SAFETY: between `open` and `close`, no other reference is alive, nor is one made while detached. The
        // application's file object is held by the caller; should another thread close it meanwhile, the wrong file's
        // bytes could go out, as in any server that sends a descriptor.
        let sent = unsafe {
            let exchange = self.answer.exchange();
            py.detached(|| exchange.send_file(file.descriptor(), file.offset, file.len))
        };
        if sent.is_ok() {
            self.answer.finish(pair.state());
        }
    }

    /// `close()` of what the application returned, if it has one: once, after the body (PEP 3333).
    fn close_body(&self, py: Attached, result: &Owned) {
        let closed = match py.optional_attribute(result.ptr(), &self.close) {
            Ok(None) => return,
            Ok(Some(close)) => py.call(&close, []).map(drop),
            Err(raised) => Err(raised),
        };
        if let Err(raised) = closed {
            fault::log_exception(py, raised, "the response's close() failed");
        }
    }
}

/// `len(result) == 1`, where that is not an error.
fn has_one_piece(py: Attached, result: &Owned) -> bool {
    // SAFETY: attached; a live object. Asking one that has no length would make an exception for each request.
    unsafe {
        let class = &*ffi::Py_TYPE(result.ptr());
        let sequence = class
            .tp_as_sequence
            .as_ref()
            .and_then(|slots| slots.sq_length);
        let mapping = class
            .tp_as_mapping
            .as_ref()
            .and_then(|slots| slots.mp_length);
        if sequence.is_none() && mapping.is_none() {
            return false;
        }
        let length = ffi::PyObject_Size(result.ptr());
        if length < 0 {
            // The body may be all right; what it is worth shows when it is iterated.
            drop(py.take_exception());
        }
        length == 1
    }
}

/// True if the iterator is exhausted and did not fail; the StopIteration that some leave is gone then.
fn ended(py: Attached) -> bool {
    // SAFETY: attached.
    unsafe {
        if ffi::PyErr_Occurred().is_null() {
            return true;
        }
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) == 0 {
            return false;
        }
        ffi::PyErr_Clear();
        let _ = py;
        true
    }
}

fn iterator_of(py: Attached, result: &Owned) -> Result<Owned, Raised> {
    // SAFETY: attached; a live object.
    unsafe {
        // Both can be iterated, but never into what was meant.
        if ffi::PyBytes_Check(result.ptr()) != 0 || ffi::PyUnicode_Check(result.ptr()) != 0 {
            let class = class_name(result.ptr());
            let text = format!(
                "the application returned {class}; an iterable of bytes is expected, such as [body]"
            );
            return Err(py.raise(Exception::Type, &text));
        }
        Owned::new(ffi::PyObject_GetIter(result.ptr()))
    }
}
