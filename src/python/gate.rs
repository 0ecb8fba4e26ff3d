//! Where a thread attaches to the interpreter and detaches from it: the place where the turn-slice barrier hooks in.
//!
//! Owns each handler thread's turn. Threads that are none of ours (the application's own, which call our objects) and the
//! main thread have no turn and pass straight through.

#![forbid(unsafe_code)]

use std::cell::RefCell;

use crate::pool::turn_slice::Turn;

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// The present thread takes turns from now on; None ends that.
pub fn set_turn(turn: Option<Turn>) {
    TURN.set(turn);
}

/// Attaches by calling `attach`, which must not call back into here.
#[inline]
pub fn attach<T>(attach: impl FnOnce() -> T) -> T {
    TURN.with_borrow_mut(|turn| match turn {
        Some(turn) => turn.attach(attach),
        None => attach(),
    })
}

/// Detaches by calling `detach`, at a point where others may have their turn first.
#[inline]
pub fn detach(detach: impl FnOnce()) {
    TURN.with_borrow_mut(|turn| match turn {
        Some(turn) => turn.detach(detach),
        None => detach(),
    });
}

/// Detaches for something that may block anyway.
#[inline]
pub fn detach_for_wait(detach: impl FnOnce()) {
    TURN.with_borrow_mut(|turn| match turn {
        Some(turn) => turn.detach_for_wait(detach),
        None => detach(),
    });
}
