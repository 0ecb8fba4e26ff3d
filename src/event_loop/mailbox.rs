//! Mail for a loop from other threads: connections that need its attention, new ones that another loop accepted for it.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicIsize, Ordering};

use mio::Waker;

use super::Job;
use super::bell::Bell;
use crate::net::{Endpoint, Stream};
use crate::sync::Arc;

pub(super) enum Mail {
    /// A connection whose handler could not simply seat it: output waits, input is there, or it is to be closed.
    Returned(Job),
    Accepted(Stream, Endpoint, Arc<Endpoint>),
}

pub struct Mailbox {
    waker: Waker,
    bell: Bell<Mail>,
    /// Connections that this loop has or is about to get. A gauge for spreading new ones: no data hangs on it.
    connections: AtomicIsize,
}

impl Mailbox {
    pub(super) fn new(waker: Waker) -> Self {
        Mailbox {
            waker,
            bell: Bell::new(),
            connections: AtomicIsize::new(0),
        }
    }

    /// Gives a connection back to its loop and wakes it.
    pub fn give_back(&self, connection: Job) {
        let posted = self.post(Mail::Returned(connection));
        // A loop doesn't end while it has connections, wherever they are.
        debug_assert!(posted.is_ok(), "a loop ended before its connections");
    }

    /// The mail comes back if the loop has ended.
    pub(super) fn post(&self, mail: Mail) -> Result<(), Mail> {
        self.bell.post(mail, || self.wake())
    }

    /// Wakes the loop for a pass.
    pub fn ring(&self) {
        self.bell.ring(|| self.wake());
    }

    fn wake(&self) {
        // An eventfd's write fails only when its counter would overflow: then the loop is awake anyway.
        let _ = self.waker.wake();
    }

    /// All mail so far.
    pub(super) fn collect(&self) -> Vec<Mail> {
        self.bell.collect()
    }

    /// The loop ends, unless mail waits: true if it may.
    pub(super) fn shut(&self) -> bool {
        self.bell.shut()
    }

    pub(super) fn connections(&self, change: isize) -> isize {
        self.connections.fetch_add(change, Ordering::Relaxed) + change
    }

    pub(super) fn connection_count(&self) -> isize {
        self.connections.load(Ordering::Relaxed)
    }
}
