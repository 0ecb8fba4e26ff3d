//! Mail for a loop from other threads: connections that need its attention, new ones that another loop accepted for it.
//!
//! Mail is moved in and moved out; the loop is woken once for all mail that it has not collected yet. The order
//! "mail first, then `rung`" against "`rung` cleared first, then mail" is what loses no wake (pool/README.md, "Mail").

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicIsize, Ordering as StdOrdering};

use mio::Waker;

use super::Job;
use crate::net::{Endpoint, Stream};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, lock};

pub(super) enum Mail {
    /// A connection whose handler could not simply seat it: output waits, input is there, or it is to be closed.
    Returned(Job),
    Accepted(Stream, Endpoint, Arc<Endpoint>),
}

pub struct Mailbox {
    waker: Waker,
    mail: Mutex<Vec<Mail>>,
    /// Mail lies here, or the loop is asked to make a pass.
    rung: AtomicBool,
    /// Connections that this loop has or is about to get. A gauge for spreading new ones: no data hangs on it.
    connections: AtomicIsize,
}

impl Mailbox {
    pub(super) fn new(waker: Waker) -> Self {
        Mailbox {
            waker,
            mail: Mutex::new(Vec::new()),
            rung: AtomicBool::new(false),
            connections: AtomicIsize::new(0),
        }
    }

    /// Gives a connection to the loop and wakes it.
    pub fn give_back(&self, connection: Job) {
        self.post(Mail::Returned(connection));
    }

    pub(super) fn post(&self, mail: Mail) {
        lock(&self.mail).push(mail);
        self.ring();
    }

    /// Wakes the loop for a pass, once for all rings since its last.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // An eventfd's write fails only when its counter would overflow: then the loop is awake anyway.
            let _ = self.waker.wake();
        }
    }

    /// All mail so far.
    pub(super) fn collect(&self) -> Vec<Mail> {
        if !self.rung.load(Ordering::Acquire) || !self.rung.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.mail))
    }

    pub(super) fn connections(&self, change: isize) -> isize {
        self.connections.fetch_add(change, StdOrdering::Relaxed) + change
    }

    pub(super) fn connection_count(&self) -> isize {
        self.connections.load(StdOrdering::Relaxed)
    }
}
