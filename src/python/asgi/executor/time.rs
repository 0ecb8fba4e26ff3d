//! Connections on their way back to the loop, deadlines, and the drain.
//!
//! Owns what asyncio is told of our time, and when the event loop may stop.

use std::rc::Rc;
use std::time::Duration;

use super::super::super::object::{Attached, Owned};
use super::super::super::{fault, ffi};
use super::super::request::{Protocol, Request};
use super::{Executor, SLACK};
use crate::config::Pings;
use crate::event_loop::{Awaits, Connection, Loop, Millis};
use crate::observe::log;

/// What cancelled requests have for their clean-up.
const AFTER_CANCEL: Duration = Duration::from_secs(2);

impl Executor {
    /// Gives a connection back whose answer is complete.
    pub fn release(&self, py: Attached, connection: Box<Connection>) {
        self.give_back(py, connection, Loop::release);
    }

    /// Gives a connection back that is of no use any more.
    pub fn discard(&self, py: Attached, connection: Box<Connection>) {
        self.give_back(py, connection, Loop::discard);
    }

    #[inline]
    pub(super) fn give_back(
        &self,
        py: Attached,
        connection: Box<Connection>,
        give: impl FnOnce(&mut Loop, Box<Connection>),
    ) {
        let request = match self.by_connection.borrow_mut().get_mut(connection.key()) {
            Some(entry) => entry.take(),
            None => None,
        };
        drop(request);
        let queued = match &mut *self.event_loop.borrow_mut() {
            Some(event_loop) => {
                give(event_loop, connection);
                if !self.in_turn.get() {
                    event_loop.send_kept();
                }
                event_loop.queued()
            }
            None => 0,
        };
        if !self.in_turn.get() {
            // A pipelined request may have become a job.
            if queued > 0 {
                self.ask_for_turn(py);
            }
            self.rearm(py);
        }
    }

    /// A knock is to come when the client does nothing for its time-out.
    pub fn watch(&self, connection: &mut Connection, awaits: Awaits) {
        if let Some(event_loop) = &mut *self.event_loop.borrow_mut() {
            event_loop.watch(connection, awaits);
        }
    }

    /// A knock is to come at `due`.
    pub fn watch_until(&self, connection: &Connection, due: Millis) {
        if let Some(event_loop) = &mut *self.event_loop.borrow_mut() {
            event_loop.watch_until(connection, due);
        }
    }

    /// Milliseconds, as the loop counts them.
    pub fn now(&self) -> Millis {
        match &mut *self.event_loop.borrow_mut() {
            Some(event_loop) => {
                event_loop.tick();
                event_loop.now()
            }
            None => 0,
        }
    }

    pub fn pings(&self) -> Option<Pings> {
        self.pings
    }

    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Tells asyncio of our next deadline.
    pub fn rearm(&self, py: Attached) {
        if self.in_turn.get() {
            return;
        }
        let (due, now) = match &*self.event_loop.borrow() {
            Some(event_loop) => match event_loop.next_due() {
                Some(due) => (due, event_loop.now()),
                None => return,
            },
            None => return,
        };
        if due + SLACK >= self.armed.get() {
            return;
        }
        self.armed.set(due);
        let seconds = (due.saturating_sub(now) + SLACK / 2) as f64 / 1000.0;
        let timer = self.call_later(py, seconds, &self.callbacks.timer);
        let earlier = self.timer.replace(timer);
        if let Some(earlier) = earlier
            && let Err(raised) = py.call_method(&earlier, c"cancel", [])
        {
            fault::log_exception(py, raised, "cancelling a timer");
        }
    }

    fn call_later(&self, py: Attached, seconds: f64, callback: &Owned) -> Option<Owned> {
        // SAFETY: attached.
        let delay = unsafe { Owned::new(ffi::PyFloat_FromDouble(seconds)) };
        let handle = delay.and_then(|delay| py.call(&self.asyncio.call_later, [&delay, callback]));
        handle
            .map_err(|raised| fault::log_exception(py, raised, "setting a timer"))
            .ok()
    }

    /// What is left to read of this connection is for the next turn, after the others'.
    pub fn put_off(&self, py: Attached, connection: &Connection) {
        if let Some(event_loop) = &mut *self.event_loop.borrow_mut() {
            event_loop.knock_again(connection);
        }
        self.ask_for_turn(py);
    }

    pub(super) fn ask_for_turn(&self, py: Attached) {
        if self.turn_asked.replace(true) {
            return;
        }
        if let Err(raised) = py.call(&self.asyncio.call_soon, [&self.callbacks.ready]) {
            self.turn_asked.set(false);
            fault::log_exception(py, raised, "asking for a turn");
        }
    }

    // ---- the end ----

    /// Sees that the server stops, and stops the event loop when nothing is left to do.
    pub(super) fn look_after_drain(&self, py: Attached) {
        if self.stopped.get() {
            return;
        }
        let drained = match &*self.event_loop.borrow() {
            Some(event_loop) if event_loop.is_draining() => event_loop.is_drained(),
            _ => return,
        };
        if !self.draining.replace(true) {
            self.call_later(py, self.graceful.as_secs_f64(), &self.callbacks.drained);
            let running: Vec<Rc<Request>> = self.all_running();
            for request in running {
                if request.protocol() == Protocol::WebSocket {
                    request.go_away(py, self);
                }
            }
        }
        if drained && self.running.borrow().is_empty() {
            self.stop(py);
        }
    }

    fn all_running(&self) -> Vec<Rc<Request>> {
        let running = self.running.borrow();
        running
            .iter()
            .map(|(_, request)| Rc::clone(request))
            .collect()
    }

    fn stop(&self, py: Attached) {
        self.stopped.set(true);
        if let Err(raised) = py.call(&self.asyncio.stop, []) {
            fault::log_exception(py, raised, "stopping the event loop");
        }
    }

    /// The graceful time-out passed: first the requests are cancelled, then, should that not help, they are left.
    pub(super) fn end_drain(&self, py: Attached) {
        if self.stopped.get() {
            return;
        }
        if self.cut.replace(true) {
            return self.stop(py);
        }
        let running = self.all_running();
        let count = running.len();
        py.detached(|| {
            log::error!(
                "{count} requests were still running after {} s (--graceful-timeout); they are cancelled",
                self.graceful.as_secs_f64()
            );
        });
        for request in running {
            let task = request.task.borrow().as_ref().map(Owned::again);
            if let Some(task) = task
                && let Err(raised) = py.call_method(&task, c"cancel", [])
            {
                fault::log_exception(py, raised, "cancelling a request");
            }
        }
        self.call_later(py, AFTER_CANCEL.as_secs_f64(), &self.callbacks.drained);
    }
}
