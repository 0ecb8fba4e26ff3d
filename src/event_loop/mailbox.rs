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

struct Letters {
    waiting: Vec<Mail>,
    /// The loop has ended: nobody would collect.
    shut: bool,
}

pub struct Mailbox {
    waker: Waker,
    mail: Mutex<Letters>,
    /// Mail lies here, or the loop is asked to make a pass.
    rung: AtomicBool,
    /// Connections that this loop has or is about to get. A gauge for spreading new ones: no data hangs on it.
    connections: AtomicIsize,
}

impl Mailbox {
    pub(super) fn new(waker: Waker) -> Self {
        Mailbox {
            waker,
            mail: Mutex::new(Letters {
                waiting: Vec::new(),
                shut: false,
            }),
            rung: AtomicBool::new(false),
            connections: AtomicIsize::new(0),
        }
    }

    /// Gives a connection back to its loop and wakes it.
    pub fn give_back(&self, connection: Job) {
        // A loop doesn't end while it has connections, wherever they are.
        let posted = self.post(Mail::Returned(connection));
        debug_assert!(posted.is_ok(), "a loop ended before its connections");
    }

    /// The mail comes back if the loop has ended.
    pub(super) fn post(&self, mail: Mail) -> Result<(), Mail> {
        let mut letters = lock(&self.mail);
        if letters.shut {
            return Err(mail);
        }
        letters.waiting.push(mail);
        drop(letters);
        self.ring();
        Ok(())
    }

    /// The loop ends, unless mail waits: true if it may.
    pub(super) fn shut(&self) -> bool {
        let mut letters = lock(&self.mail);
        letters.shut = letters.waiting.is_empty();
        letters.shut
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
        std::mem::take(&mut lock(&self.mail).waiting)
    }

    pub(super) fn connections(&self, change: isize) -> isize {
        self.connections.fetch_add(change, StdOrdering::Relaxed) + change
    }

    pub(super) fn connection_count(&self) -> isize {
        self.connections.load(StdOrdering::Relaxed)
    }
}
