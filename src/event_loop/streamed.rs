//! Streamed delivery: a request is handed out when its head is whole, and its body is read as it is asked for.
//!
//! For an executor that drives the loop and runs requests on the same thread, many at a time (ASGI). While a request runs
//! its connection is the executor's; an edge or a deadline of it becomes a [`Knock`], which the executor collects after
//! each turn. Never blocks, never reads a body by itself.

#![forbid(unsafe_code)]

use mio::event::Event;

use super::deadlines::Millis;
use super::{Connection, Loop};
use crate::exchange::Gone;

/// Something happened to a connection whose request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knock {
    /// [`Connection::key`]
    pub key: usize,
    /// The client will send nothing more; it may still read.
    pub hung_up: bool,
    /// Nothing can be sent any more.
    pub broken: bool,
    /// Not an edge: the moment has come that [`Loop::watch`] set.
    pub due: bool,
}

impl Loop {
    /// Before the first turn: requests are handed out when their heads are whole.
    pub fn deliver_streamed(&mut self) {
        self.knocks = Some(Vec::new());
    }

    /// Moves the knocks since the last call into `knocks`, which is cleared first.
    pub fn collect_knocks(&mut self, knocks: &mut Vec<Knock>) {
        knocks.clear();
        if let Some(collected) = &mut self.knocks {
            std::mem::swap(collected, knocks);
        }
    }

    pub(super) fn knock(&mut self, key: usize, event: &Event) {
        if let Some(knocks) = &mut self.knocks {
            knocks.push(Knock {
                key,
                hung_up: event.is_read_closed(),
                broken: event.is_error() || event.is_write_closed(),
                due: false,
            });
        }
    }

    pub(super) fn knock_due(&mut self, key: usize) {
        if let Some(knocks) = &mut self.knocks {
            knocks.push(Knock {
                key,
                hung_up: false,
                broken: false,
                due: true,
            });
        }
    }

    /// The connection's owner waits for the client, to read what was sent or (`for_body`) to send more of its body:
    /// a knock comes when it has done neither for its time-out.
    pub fn watch(&mut self, connection: &mut Connection, for_body: bool) {
        let deadline = connection.held_deadline(self.clock.now(), &self.common.timeouts, for_body);
        let key = connection.key();
        let entry = &mut self.entries[key];
        if deadline < entry.armed {
            entry.armed = deadline;
            self.deadlines.arm(deadline, key, entry.generation);
        }
    }

    /// After a knock that is due: whether the client's time is over. If not, it is watched on.
    pub fn is_overdue(&mut self, connection: &mut Connection, for_body: bool) -> bool {
        let now: Millis = self.clock.now();
        let overdue =
            connection.held_deadline(now, &self.common.timeouts, for_body) <= now;
        if !overdue {
            self.watch(connection, for_body);
        }
        overdue
    }

    /// The next deadline, and the time as of the last turn, in the same milliseconds.
    pub fn next_due(&self) -> Option<Millis> {
        self.deadlines.next_due()
    }

    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// The server stops: no new requests are to be waited for.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Gives a connection back whose request was answered; it goes on with its next request or closes.
    pub fn release(&mut self, mut connection: Box<Connection>) {
        connection.answered();
        self.settle(connection);
    }

    /// Gives a connection back that can't be used any more.
    pub fn discard(&mut self, mut connection: Box<Connection>) {
        let _: Gone = connection.exchange().lose();
        self.release(connection);
    }
}
