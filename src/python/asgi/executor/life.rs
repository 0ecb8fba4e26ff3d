//! A request's task, from its beginning to its end.
//!
//! Owns how a connection with a whole head becomes a running application, what is kept from one request for the next, and
//! what is said when an application ends otherwise than it should.

use std::ptr;
use std::rc::Rc;

use super::super::super::object::{Attached, Exception, Owned, Raised};
use super::super::super::{fault, ffi};
use super::super::request::{Protocol, Request, Stage};
use super::super::run;
use super::super::socket::{self, Socket};
use super::{Executor, Outcome};
use crate::event_loop::{Connection, Loop};
use crate::observe::log;

impl Executor {
    /// Runs a request's first step. True if the application has ended with it.
    pub(super) fn begin(&self, py: Attached, mut connection: Box<Connection>) -> bool {
        let key = connection.key();
        let mut protocol = Protocol::Http;
        let mut handshake = None;
        if socket::is_asked_for(connection.exchange()) {
            protocol = Protocol::WebSocket;
            handshake = socket::read_handshake(connection.exchange(), &self.websockets);
            if handshake.is_none() {
                self.give_back(py, connection, Loop::release);
                return true;
            }
        }
        let scope = {
            let mut scopes = self.scopes.borrow_mut();
            match &handshake {
                Some(handshake) => scopes.websocket(py, &mut connection, handshake.subprotocols()),
                None => scopes.http(py, &mut connection),
            }
        };
        let scope = match scope {
            Ok(scope) => scope,
            Err(raised) => {
                fault::log_exception(py, raised, "a request can't be made into a scope");
                connection.exchange().fail(500);
                self.give_back(py, connection, Loop::release);
                return true;
            }
        };
        let request = self
            .spare
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Request::new(self));
        let opened = request.open(py, self, protocol, connection);
        request.set_scope(scope);
        if let Some(handshake) = handshake {
            request.set_socket(Socket::new(handshake));
        }
        {
            let mut by_connection = self.by_connection.borrow_mut();
            if key >= by_connection.len() {
                by_connection.resize_with(key + 1, || None);
            }
            by_connection[key] = Some(Rc::clone(&request));
        }
        let slot = self.running.borrow_mut().insert(Rc::clone(&request));
        request.slot.set(slot);
        if let Err(raised) = opened.and_then(|()| self.start_task(py, &request)) {
            if !request.ended.get() {
                self.ended(py, Rc::clone(&request), Outcome::Raised(raised));
            } else {
                fault::log_exception(py, raised, "a request's task failed");
            }
        }
        let ended = request.ended.get();
        if ended {
            self.recycle(request);
        } else {
            request.compact();
        }
        ended
    }

    fn start_task(&self, py: Attached, request: &Rc<Request>) -> Result<(), Raised> {
        let run = match self.spare_run.take() {
            Some(run) => run,
            None => run::make(py)?,
        };
        run::aim(&run, request);
        let context = match self.spare_context.take() {
            Some(context) => context,
            // SAFETY: attached.
            None => unsafe { Owned::new(ffi::PyContext_New())? },
        };
        let asyncio = &self.asyncio;
        // SAFETY: attached; live objects; one positional argument and as many named ones as there are names.
        let task = unsafe {
            let arguments = [
                ptr::null_mut(),
                run.ptr(),
                asyncio.event_loop.ptr(),
                ffi::Py_True(),
                context.ptr(),
            ];
            Owned::new(ffi::PyObject_Vectorcall(
                asyncio.task.ptr(),
                arguments.as_ptr().add(1),
                1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET,
                asyncio.task_names.ptr(),
            ))?
        };
        if !request.ended.get() {
            request.task.replace(Some(task));
            return Ok(());
        }
        drop(task);
        // SAFETY: attached, on the thread that made them; a context has a length. A context that somebody set a variable
        // in is not empty; one that somebody kept has another reference.
        unsafe {
            if ffi::has_only(run.ptr(), 1) {
                self.spare_run.set(Some(run));
            }
            if ffi::has_only(context.ptr(), 1) && ffi::PyObject_Size(context.ptr()) == 0 {
                self.spare_context.set(Some(context));
            }
        }
        Ok(())
    }

    fn recycle(&self, request: Rc<Request>) {
        let mut spare = self.spare.borrow_mut();
        if request.ended.get() && Rc::strong_count(&request) == 1 && spare.len() < 64 {
            spare.push(request);
        }
    }

    /// The application of a request has ended.
    pub fn ended(&self, py: Attached, request: Rc<Request>, outcome: Outcome) {
        let failed = !matches!(outcome, Outcome::Returned);
        self.report(py, &request, outcome);
        if request.connection.borrow().is_some() {
            request.break_off(py, self, failed);
        }
        request.wake_all(py, self);
        let slot = request.slot.replace(usize::MAX);
        let removed = self.running.borrow_mut().try_remove(slot);
        drop(removed);
        request.close();
        self.recycle(request);
        if !self.in_turn.get() {
            self.look_after_drain(py);
        }
    }

    /// Logs what went wrong.
    fn report(&self, py: Attached, request: &Request, outcome: Outcome) {
        // One that was told of its client's hanging up may leave it at that.
        let complete = request.stage.get() == Stage::Complete || request.has_hung_up();
        let said = match outcome {
            Outcome::Returned if complete || request.gone.get() || request.socket_may_end() => {
                return;
            }
            Outcome::Returned => match request.stage.get() {
                Stage::Awaited => "without a response",
                _ => "before its response was complete",
            },
            Outcome::Cancelled if complete || self.cut.get() => return,
            Outcome::Cancelled => "because it was cancelled",
            Outcome::Raised(raised) => {
                // A WebSocket's `send` says so while messages are left to receive.
                let told = request.gone.get()
                    || (request.protocol() == Protocol::WebSocket && request.has_hung_up());
                if told && is_disconnect(py) {
                    drop(py.take_exception());
                    return;
                }
                let exception = py.take_exception();
                let (method, target) = request.line(py);
                let raised = exception.map_or(raised, |exception| py.reraise(exception));
                return fault::log_view(py, raised, &method, &target);
            }
        };
        let (method, target) = request.line(py);
        py.detached(|| {
            log::error!(
                "the application ended {said} on {} {}",
                method.escape_ascii(),
                target.escape_ascii()
            );
        });
    }
}

/// True if the exception that is set comes of our telling that the client is gone.
fn is_disconnect(py: Attached) -> bool {
    let Some(exception) = py.take_exception() else {
        return false;
    };
    let mut found = false;
    let mut next = Some(exception.again());
    for _ in 0..8 {
        let Some(here) = next.take() else { break };
        if py.is_instance(&here, Exception::BrokenPipe) {
            found = true;
            break;
        }
        for name in [c"__cause__", c"__context__"] {
            match py.attribute(&here, name) {
                Ok(value) if !value.is_none() => {
                    next = Some(value);
                    break;
                }
                Ok(_) => {}
                Err(Raised) => drop(py.take_exception()),
            }
        }
    }
    let _ = py.reraise(exception);
    found
}
