//! Where a connection sits while it waits for readiness, and how an edge is kept when it isn't there.
//!
//! One thread knocks, the loop's driver; any thread may sit the connection down. Protocol and argument: pool/README.md, "Knocks".

#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, Ordering, Place};

pub(crate) struct Seat<T> {
    place: Place<T>,
    /// An edge came while the seat was empty: whoever sits the connection down looks. All that orders it is `place`.
    knocked: AtomicBool,
}

impl<T> Seat<T> {
    pub(crate) fn new() -> Self {
        Seat {
            place: Place::empty(),
            knocked: AtomicBool::new(false),
        }
    }

    /// For the loop: nobody else knocks, so it need not look for knocks itself.
    pub(crate) fn sit(&self, sitter: Box<T>) {
        self.place.put(sitter);
    }

    pub(crate) fn take(&self) -> Option<Box<T>> {
        self.place.take()
    }

    /// For the loop on an edge: the sitter, or None when its present owner has been told.
    pub(crate) fn take_or_knock(&self) -> Option<Box<T>> {
        let taken = self.place.take();
        if taken.is_some() {
            return taken;
        }
        self.knocked.store(true, Ordering::Relaxed);
        // Releases the knock to whoever sits down after this take; one who sat down before it is found.
        self.place.take()
    }

    /// For a handler: sits it down, and takes it up again when there was a knock or `leave` says that it must not wait.
    /// The caller must then see to the connection as if an edge had come.
    pub(crate) fn sit_down(&self, sitter: Box<T>, leave: impl Fn() -> bool) -> Option<Box<T>> {
        // Acquires what the loop did before it last found the seat empty.
        self.place.put(sitter);
        if self.knocked.load(Ordering::Relaxed) || leave() {
            self.place.take()
        } else {
            None
        }
    }

    /// For whoever has the connection in hand and holds the loop: was there a knock since the last time?
    pub(crate) fn hear_knock(&self) -> bool {
        // The knocker and we hold the loop one after the other: its knock happened before we got the loop.
        let knocked = self.knocked.load(Ordering::Relaxed);
        if knocked {
            self.knocked.store(false, Ordering::Relaxed);
        }
        knocked
    }
}
