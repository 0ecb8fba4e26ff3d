//! Accepting: the doors of a loop, whom a new connection goes to, and what happens when there is no room.
//!
//! Every loop watches every listener, level-triggered and exclusive, so that one new connection wakes one loop. Whichever
//! loop accepts gives the connection to the loop that has the fewest: keep-alive connections stay where they are put,
//! and an uneven start would last for their whole life.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::AsFd;

use mio::Poll;
use rustix::event::epoll;
use rustix::io::Errno;

use super::deadlines::Millis;
use super::mailbox::Mail;
use super::{DOOR, Loop};
use crate::net::{Endpoint, Listener, Stream};
use crate::observe::counters::Counter;
use crate::sync::{Arc, Ordering};

/// Connections accepted in one go before the loop looks at its other work again.
const BATCH: usize = 32;

/// How long accepting pauses when the process has no descriptor or no connection to spare.
const PAUSE: Millis = 50;

/// A listener as one loop watches it.
pub(super) struct Door {
    listeners: Arc<[Listener]>,
    number: usize,
    token: usize,
    local: Arc<Endpoint>,
    /// When to watch again; None while it is watched.
    closed_until: Option<Millis>,
    /// It was said that there is no room; once until a connection is accepted again.
    complained: bool,
}

impl Door {
    pub(super) fn open(
        poll: &Poll,
        listeners: Arc<[Listener]>,
        number: usize,
        token: usize,
    ) -> io::Result<Door> {
        let local = Arc::new(listeners[number].local().clone());
        let door = Door {
            listeners,
            number,
            token,
            local,
            closed_until: None,
            complained: false,
        };
        door.watch(poll)?;
        Ok(door)
    }

    fn listener(&self) -> &Listener {
        &self.listeners[self.number]
    }

    // mio registers edge-triggered and shared; both are wrong for a listener that several loops watch.
    fn watch(&self, poll: &Poll) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        Ok(epoll::add(
            poll.registry(),
            self.listener().as_fd(),
            epoll::EventData::new_u64(self.token as u64),
            flags,
        )?)
    }

    fn unwatch(&self, poll: &Poll) {
        // Fails only if it is not watched.
        let _ = epoll::delete(poll.registry(), self.listener().as_fd());
    }
}

impl Loop {
    /// Accepts a batch; true if there may be more.
    pub(super) fn accept(&mut self, number: usize) -> bool {
        for _ in 0..BATCH {
            let limit = self.common.limit_connections;
            if limit > 0 && self.common.open.load(Ordering::Relaxed) >= limit {
                self.pause(number);
                return false;
            }
            let door = &mut self.listeners[number];
            match door.listener().accept() {
                Ok((stream, peer)) => {
                    door.complained = false;
                    let local = Arc::clone(&door.local);
                    self.common.open.fetch_add(1, Ordering::Relaxed);
                    self.common.counters.count(Counter::Accepted);
                    self.assign(stream, peer, local);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if is_exhaustion(&error) => {
                    if !std::mem::replace(&mut door.complained, true) {
                        crate::observe::log::warn!(
                            "cannot accept connections for now: {error}; {} are open (raise the limit of open files, or lower --limit-connections)",
                            self.common.open.load(Ordering::Relaxed)
                        );
                    }
                    self.pause(number);
                    return false;
                }
                // The client gave up before we came (ECONNABORTED and its like): the next one may be fine (accept(2)).
                Err(_) => {}
            }
        }
        true
    }

    /// A new connection becomes some loop's: the one that has the fewest, or this one if that one has ended.
    fn assign(&mut self, stream: Stream, peer: Endpoint, local: Arc<Endpoint>) {
        let chosen = self.least_loaded();
        let mut mail = Mail::Accepted(stream, peer, local);
        if chosen != self.index {
            self.peers[chosen].connections(1);
            match self.peers[chosen].post(mail) {
                Ok(()) => return,
                Err(returned) => mail = returned,
            }
            self.peers[chosen].connections(-1);
        }
        if let Mail::Accepted(stream, peer, local) = mail {
            self.mailbox.connections(1);
            self.welcome(stream, peer, local);
        }
    }

    fn least_loaded(&self) -> usize {
        let mut chosen = self.index;
        let mut fewest = self.mailbox.connection_count();
        for (index, peer) in self.peers.iter().enumerate() {
            let count = peer.connection_count();
            if count < fewest {
                (chosen, fewest) = (index, count);
            }
        }
        chosen
    }

    /// Leaves new connections in the backlog for a moment. A level-triggered listener would otherwise spin.
    fn pause(&mut self, number: usize) {
        let until = self.clock.now() + PAUSE;
        let door = &mut self.listeners[number];
        if door.closed_until.replace(until).is_none() {
            door.unwatch(&self.poll);
        }
        self.deadlines.arm(until, DOOR, 0);
    }

    pub(super) fn reopen_doors(&mut self) {
        let now = self.clock.now();
        for door in &mut self.listeners {
            if door.closed_until.is_some_and(|until| until <= now) {
                match door.watch(&self.poll) {
                    Ok(()) => door.closed_until = None,
                    Err(_) => {
                        door.closed_until = Some(now + PAUSE);
                        self.deadlines.arm(now + PAUSE, DOOR, 0);
                    }
                }
            }
        }
    }

    /// Accepts all that has connected so far, within reason: a flood must not keep a drain from going on.
    pub(super) fn empty_backlogs(&mut self) {
        for number in 0..self.listeners.len() {
            for _ in 0..64 {
                if self.listeners[number].closed_until.is_some() || !self.accept(number) {
                    break;
                }
            }
        }
    }

    pub(super) fn close_doors(&mut self) {
        for door in self.listeners.drain(..) {
            if door.closed_until.is_none() {
                door.unwatch(&self.poll);
            }
        }
    }
}

fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
