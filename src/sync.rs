//! The synchronisation primitives that the pool's protocols are written with: std's, or loom's when a model runs
//! (`--cfg loom`). Owns no protocol itself; `pool/README.md` names every atomic and its partner.

#![forbid(unsafe_code)]

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
};
pub use std::sync::Arc; // only counts: nothing for a model to explore
#[cfg(not(loom))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
};

/// Locks, and goes on after a panic elsewhere: what our mutexes guard is whole between any two statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A place for one box. Putting it there and taking it out moves it, so that it never has two owners:
/// whoever takes it holds it alone, and everybody else finds the place empty.
///
/// Both operations are one atomic swap; `put` releases and `take` acquires, so the taker sees all that was
/// written before the box was put down.
pub struct Place<T> {
    #[cfg(not(loom))]
    cell: crossbeam_utils::atomic::AtomicCell<Option<Box<T>>>,
    #[cfg(loom)]
    cell: Mutex<Option<Box<T>>>,
}

#[cfg(not(loom))]
impl<T> Place<T> {
    pub fn empty() -> Self {
        // A box and its absence are one machine word: no hidden lock.
        const { assert!(crossbeam_utils::atomic::AtomicCell::<Option<Box<u8>>>::is_lock_free()) };
        Place {
            cell: crossbeam_utils::atomic::AtomicCell::new(None),
        }
    }

    pub fn put(&self, boxed: Box<T>) {
        let before = self.cell.swap(Some(boxed));
        debug_assert!(before.is_none(), "a place holds one box");
    }

    pub fn take(&self) -> Option<Box<T>> {
        self.cell.take()
    }
}

#[cfg(loom)]
impl<T> Place<T> {
    pub fn empty() -> Self {
        Place {
            cell: Mutex::new(None),
        }
    }

    pub fn put(&self, boxed: Box<T>) {
        let before = lock(&self.cell).replace(boxed);
        assert!(before.is_none(), "a place holds one box");
    }

    pub fn take(&self) -> Option<Box<T>> {
        lock(&self.cell).take()
    }
}
