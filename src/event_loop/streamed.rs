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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// What a running request waits for of its client, besides that it takes what is buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    Nothing,
    /// More of the request's body.
    Body,
    /// Room for more of the response, which lies elsewhere.
    Room,
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
        self.tell(Knock {
            key,
            hung_up: event.is_read_closed(),
            broken: event.is_error() || event.is_write_closed(),
            due: false,
        });
    }

    pub(super) fn knock_due(&mut self, key: usize) {
        self.tell(Knock {
            key,
            due: true,
            ..Knock::default()
        });
    }

    fn tell(&mut self, knock: Knock) {
        if let Some(knocks) = &mut self.knocks {
            knocks.push(knock);
        }
    }

    /// The connection's owner has not read all that is there: it is knocked at with the next turn, since no edge will come.
    pub fn knock_again(&mut self, connection: &Connection) {
        self.tell(Knock {
            key: connection.key(),
            ..Knock::default()
        });
    }

    /// The connection's owner waits for the client, to take what is buffered or for what `awaits` says: a knock comes when
    /// it has done neither for its time-out.
    pub fn watch(&mut self, connection: &mut Connection, awaits: Awaits) {
        let deadline = connection.held_deadline(self.clock.now(), &self.common.timeouts, awaits);
        self.watch_until(connection, deadline);
    }

    /// A knock is to come at `due`, or earlier; for an owner that counts its time itself.
    pub fn watch_until(&mut self, connection: &Connection, due: Millis) {
        self.arm(connection.key(), due);
    }

    /// After a knock that is due: whether the client's time is over. If not, it is watched on.
    pub fn is_overdue(&mut self, connection: &mut Connection, awaits: Awaits) -> bool {
        let now: Millis = self.clock.now();
        let overdue = connection.held_deadline(now, &self.common.timeouts, awaits) <= now;
        if !overdue {
            self.watch(connection, awaits);
        }
        overdue
    }

    /// The next deadline, and the time as of the last turn, in the same milliseconds.
    pub fn next_due(&self) -> Option<Millis> {
        self.deadlines.next_due()
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
