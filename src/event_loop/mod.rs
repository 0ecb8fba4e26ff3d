//! One event loop: its poll, its listeners, its connections, its deadlines, its deque of jobs.
//!
//! A [`Loop`] is a passive object. Whoever holds it, its driver, calls [`Loop::turn`] and runs or hands over the jobs
//! that come of it; there is exactly one driver at any moment because a loop is a box that is moved, never shared.
//! What other threads may touch is the [`Port`]: the mailbox, the deque's stealing end and the drive slot of the pool.
//!
//! Readiness is edge-triggered for connections (mio), so that nothing is ever re-registered: reads and writes go on
//! until the socket would block, and an edge that arrives while a handler owns the connection is kept as a *knock*.

#![forbid(unsafe_code)]

use std::io;
use std::time::Duration;

use crossbeam_deque::{Stealer, Worker};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

use crate::exchange::{Common, Exchange, LocalAnswers, SpareBuffers};
use crate::http1::ResponseHead;
use crate::net::{Endpoint, Listener, Stream};
use crate::sync::{Arc, Ordering};

mod accept;
mod bell;
mod conn;
mod deadlines;
mod kept;
mod mailbox;
mod seat;
mod streamed;

#[cfg(all(test, loom))]
pub(crate) use bell::Bell;
use conn::Step;
pub use conn::{Connection, Piece, RawRead};
pub use deadlines::Millis;
use deadlines::{Clock, Deadlines};
use kept::Kept;
use mailbox::Mail;
pub use mailbox::Mailbox;
pub(crate) use seat::Seat;
pub use streamed::{Awaits, Knock};

/// One whole request together with its connection, on its way to the application.
pub type Job = Box<Connection>;

const WAKER: Token = Token(usize::MAX);
/// Listeners count down from here; connections are slab keys from 0 up.
const LAST_LISTENER: usize = usize::MAX - 1;

/// The key of deadlines that are not a connection's: a listener's pause is over.
const DOOR: usize = usize::MAX;

/// What other threads may do with a loop.
#[derive(Clone)]
pub struct Port {
    pub mailbox: Arc<Mailbox>,
    pub stealer: Stealer<Job>,
}

struct Entry {
    seat: Arc<Seat<Connection>>,
    /// Tells this connection from an earlier one of the same key.
    generation: u32,
    /// The one live deadline entry; earlier ones that still lie in the heap are stale.
    armed: Millis,
}

pub struct Loop {
    index: usize,
    poll: Poll,
    events: Events,
    listeners: Vec<accept::Door>,
    mailbox: Arc<Mailbox>,
    /// All loops' mailboxes, this one's too: a new connection goes to the loop that has the fewest.
    peers: Arc<[Arc<Mailbox>]>,
    entries: Slab<Entry>,
    generation: u32,
    deadlines: Deadlines,
    clock: Clock,
    jobs: Worker<Job>,
    kept: Kept,
    spare: SpareBuffers,
    common: Arc<Common>,
    local_answers: Option<Arc<dyn LocalAnswers>>,
    busy_answer: ResponseHead,
    draining: bool,
    /// Streamed delivery (`streamed.rs`): edges and deadlines of connections whose requests run.
    knocks: Option<Vec<Knock>>,
}

impl Loop {
    /// Makes `count` loops that share `listeners`. Connections are spread over them evenly, whichever loop accepts.
    pub fn make(
        count: usize,
        listeners: Arc<[Listener]>,
        common: &Arc<Common>,
        local_answers: Option<Arc<dyn LocalAnswers>>,
    ) -> io::Result<Vec<Box<Loop>>> {
        let polls = (0..count)
            .map(|_| Poll::new())
            .collect::<io::Result<Vec<_>>>()?;
        let mailboxes = polls
            .iter()
            .map(|poll| Ok(Arc::new(Mailbox::new(Waker::new(poll.registry(), WAKER)?))))
            .collect::<io::Result<Vec<_>>>()?;
        let peers: Arc<[Arc<Mailbox>]> = mailboxes.clone().into();
        polls
            .into_iter()
            .enumerate()
            .map(|(index, poll)| {
                let mut doors = Vec::new();
                for number in 0..listeners.len() {
                    doors.push(accept::Door::open(
                        &poll,
                        Arc::clone(&listeners),
                        number,
                        LAST_LISTENER - number,
                    )?);
                }
                Ok(Box::new(Loop {
                    index,
                    poll,
                    events: Events::with_capacity(256),
                    listeners: doors,
                    mailbox: Arc::clone(&mailboxes[index]),
                    peers: Arc::clone(&peers),
                    entries: Slab::new(),
                    generation: 0,
                    deadlines: Deadlines::default(),
                    clock: Clock::start(),
                    jobs: Worker::new_fifo(),
                    kept: Kept::default(),
                    spare: SpareBuffers::default(),
                    common: Arc::clone(common),
                    local_answers: local_answers.clone(),
                    busy_answer: busy_answer(),
                    draining: false,
                    knocks: None,
                }))
            })
            .collect()
    }

    pub fn index(&self) -> usize {
        self.index
    }

    pub fn port(&self) -> Port {
        Port {
            mailbox: Arc::clone(&self.mailbox),
            stealer: self.jobs.stealer(),
        }
    }

    /// One pass: readiness, mail, deadlines. Waits at most `timeout` for readiness, without end if None.
    /// Whole requests end up in the deque; everything else is dealt with here.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.wait(timeout)?;
        self.deal();
        Ok(())
    }

    /// The first half of a turn.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.send_kept();
        let timeout = match (timeout, self.next_deadline()) {
            // That has made a job of the next request of a client that got its answer.
            (None, _) if !self.jobs.is_empty() => Some(Duration::ZERO),
            (Some(asked), Some(due)) => Some(asked.min(due)),
            (asked, due) => asked.or(due),
        };
        let polled = self.poll.poll(&mut self.events, timeout);
        self.clock.tick();
        match polled {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            other => other,
        }
    }

    /// The second half: what the wait has brought.
    pub fn deal(&mut self) {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            self.handle_event(event);
        }
        self.events = events;
        // All that makes jobs or ends connections comes after the wait: its caller looks at both next.
        self.read_mail();
        if !self.draining && self.common.is_draining() {
            self.start_draining();
        }
        self.expire();
    }

    fn handle_event(&mut self, event: &Event) {
        match event.token() {
            // It only ends the wait: mail is read in every turn.
            WAKER => {}
            Token(number) if number > LAST_LISTENER - self.listeners.len() => {
                self.accept(LAST_LISTENER - number);
            }
            Token(key) => {
                let Some(entry) = self.entries.get(key) else {
                    return;
                };
                // None: a handler owns the connection; it has been told of the edge.
                match entry.seat.take_or_knock() {
                    Some(mut connection) => {
                        connection.notice_edge(event.is_read_closed() || event.is_error());
                        if event.is_read_closed() {
                            connection.notice_hang_up();
                        }
                        self.advance(connection);
                    }
                    None => self.knock(key, event),
                }
            }
        }
    }

    /// Goes on with a connection in hand until it waits, is a job, or is gone.
    fn advance(&mut self, mut connection: Box<Connection>) {
        connection.pick_up(&mut self.spare);
        let mut share = conn::SHARE;
        loop {
            match connection.step(self.draining, &mut share) {
                Step::Wait => return self.park(connection),
                Step::Request => match self.admit(connection) {
                    Some(answered) => {
                        connection = answered;
                        share = share.saturating_sub(conn::LOCAL_ANSWER);
                    }
                    None => return,
                },
                Step::Resume => return self.jobs.push(connection),
                Step::Again => return self.mailbox.give_back(connection),
                Step::Close => return self.close(connection),
            }
        }
    }

    /// A whole request: into the deque, unless it is answered here.
    fn admit(&mut self, mut connection: Box<Connection>) -> Option<Box<Connection>> {
        let local = self
            .local_answers
            .as_ref()
            .is_some_and(|local| local.answer(connection.exchange()));
        if !local {
            // Streamed ones don't queue: all of them run at once.
            let limit = self.common.queue_limit;
            if limit == 0 || self.knocks.is_some() || self.jobs.len() < limit {
                connection.queued_at = self.clock.now();
                self.jobs.push(connection);
                return None;
            }
            self.common
                .counters
                .count(crate::observe::counters::Counter::QueueFull);
            connection.exchange().refuse_busy(&self.busy_answer);
        }
        connection.answered();
        Some(connection)
    }

    /// Puts a connection that waits for readiness onto its seat. No knock can be missed: this thread is the one that knocks.
    fn park(&mut self, mut connection: Box<Connection>) {
        let key = connection.key();
        let deadline = connection.set_deadline(self.clock.now(), &self.common.timeouts);
        if connection.is_idle() {
            connection.lay_down(&mut self.spare);
        }
        self.arm(key, deadline);
        let seat = Arc::clone(connection.seat());
        seat.sit(connection);
    }

    /// Makes sure that the entry comes up at `due` or before.
    ///
    /// Every entry is armed for as long as it lives, no later than a whole idle time-out from now: a handler that seats the
    /// connection does not hold the loop, and gives it no earlier deadline than that.
    fn arm(&mut self, key: usize, due: Millis) {
        let entry = &mut self.entries[key];
        if due < entry.armed {
            entry.armed = due;
            self.deadlines.arm(due, key, entry.generation);
        }
        // Connections that come and go leave an entry each, which would lie there for a whole idle time-out.
        if self.deadlines.len() > 4 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.deadlines
                .retain(|due, key, generation| is_live(entries, due, key, generation));
        }
    }

    /// Ends a connection. One with a suspended response goes to its handler first, which lets go of it.
    fn close(&mut self, connection: Box<Connection>) {
        if connection.is_suspended() {
            return self.jobs.push(connection);
        }
        self.entries.remove(connection.key());
        self.common.open.fetch_sub(1, Ordering::Relaxed);
        self.mailbox.connections(-1);
        connection.close();
    }

    pub fn next_job(&mut self) -> Option<Job> {
        self.jobs.pop()
    }

    pub fn queued(&self) -> usize {
        self.jobs.len()
    }

    /// The loop's clock: what becomes a job from now on was queued at this moment or later.
    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// Reads the clock again after a long view; `turn` does so itself.
    pub fn tick(&mut self) {
        self.clock.tick();
    }

    fn read_mail(&mut self) {
        // Once, not until it is empty: a connection that asks for another pass is to get it after the others' turn.
        for mail in self.mailbox.collect() {
            match mail {
                Mail::Returned(mut connection) => {
                    connection.hear_knock();
                    self.advance(connection);
                }
                Mail::Accepted(stream, peer, local) => self.welcome(stream, peer, local),
            }
        }
    }

    /// A new connection of this loop's.
    fn welcome(&mut self, stream: Stream, peer: Endpoint, local: Arc<Endpoint>) {
        let key = self.entries.vacant_key();
        self.generation = self.generation.wrapping_add(1);
        let exchange = Exchange::new(stream, peer, local, Arc::clone(&self.common));
        let mut connection = Box::new(Connection::new(exchange, self.index, key, self.clock.now()));
        if self.knocks.is_some() {
            connection.deliver_streamed(self.generation);
        }
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) =
            self.poll
                .registry()
                .register(&mut SourceFd(&connection.raw_fd()), Token(key), interest)
        {
            crate::observe::log::error!("cannot watch a new connection: {error}");
            self.common.open.fetch_sub(1, Ordering::Relaxed);
            self.mailbox.connections(-1);
            return;
        }
        self.entries.insert(Entry {
            seat: Arc::clone(connection.seat()),
            generation: self.generation,
            armed: Millis::MAX,
        });
        self.arm(key, self.clock.now() + conn::soonest(&self.common.timeouts));
        // What a client sends with its first segment is mostly there already: no need to wait for the edge.
        self.advance(connection);
    }

    fn expire(&mut self) {
        let now = self.clock.now();
        while let Some((due, key, generation)) = self.deadlines.pop_due(now) {
            if key == DOOR || !is_live(&self.entries, due, key, generation) {
                continue;
            }
            let entry = &mut self.entries[key];
            entry.armed = Millis::MAX;
            match entry.seat.take() {
                // Whoever runs the request looks whether this is about something that it waits for.
                None if self.knocks.is_some() => self.knock_due(key),
                // A handler owns it: none of its deadlines can come sooner than a whole idle time-out from now.
                None => self.arm(key, now + conn::soonest(&self.common.timeouts)),
                Some(connection) if connection.deadline() > now => {
                    self.arm(key, connection.deadline());
                    let seat = Arc::clone(connection.seat());
                    seat.sit(connection);
                }
                Some(mut connection) => {
                    // It may have become a job by the time it is dealt with.
                    self.arm(key, now + conn::soonest(&self.common.timeouts));
                    connection.expire();
                    self.advance(connection);
                }
            }
        }
        self.reopen_doors();
    }

    /// Stops accepting and closes what is idle; connections in use close after their present request.
    fn start_draining(&mut self) {
        self.draining = true;
        // Clients in the backlog have connected: they are served, not reset.
        self.empty_backlogs();
        self.close_doors();
        let keys: Vec<usize> = self.entries.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(connection) = self.entries[key].seat.take() {
                self.advance(connection);
            }
        }
    }

    /// Every connection has been closed after a drain began: nothing is left to drive. Nor will anything be: a loop that
    /// is drained takes no new connections from others.
    pub fn is_drained(&self) -> bool {
        self.draining && self.entries.is_empty() && self.jobs.is_empty() && self.mailbox.shut()
    }

    /// Connections that this loop still has.
    pub fn connections(&self) -> usize {
        self.entries.len()
    }

    /// Where readiness of the whole loop can be watched from outside (asyncio's `add_reader`).
    pub fn poll_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.poll)
    }

    /// When `turn` should be called even if nothing gets ready.
    pub fn next_deadline(&mut self) -> Option<Duration> {
        // Nobody is to be woken for a connection that is gone.
        let entries = &self.entries;
        self.deadlines
            .next_in(self.clock.now(), |due, key, generation| {
                is_live(entries, due, key, generation)
            })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A parked connection holds the seat that it sits on: take them all off, or neither would ever be freed.
        for entry in self.entries.drain() {
            drop(entry.seat.take());
        }
    }
}

/// Whether a deadline's entry still says when to look at a connection.
fn is_live(entries: &Slab<Entry>, due: Millis, key: usize, generation: u32) -> bool {
    key == DOOR
        || entries
            .get(key)
            .is_some_and(|entry| entry.generation == generation && entry.armed == due)
}

fn busy_answer() -> ResponseHead {
    let mut head = ResponseHead::new();
    head.status(b"503 Service Unavailable")
        .and_then(|()| head.field(b"Content-Type", b"text/plain; charset=utf-8"))
        .and_then(|()| head.field(b"Retry-After", b"1"))
        .expect("a constant head is valid");
    head
}
