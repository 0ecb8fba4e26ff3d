//! Where a thread attaches to the interpreter and detaches from it. The turn-slice barrier hooks in here.

#![forbid(unsafe_code)]

#[inline]
pub fn before_attach() {}

#[inline]
pub fn after_attach() {}

/// Before the thread lets go of the interpreter at a point where it may offer its turn (not before a wait).
#[inline]
pub fn before_detach() {}

#[inline]
pub fn after_detach() {}
