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
/// Both operations are one atomic swap that acquires and releases. So a taker sees all that was written before the box was
/// put down; and who puts a box down sees all that was written before the place was last found empty.
pub struct Place<T> {
    #[cfg(not(loom))]
    cell: crossbeam_utils::atomic::AtomicCell<Option<Box<T>>>,
    /// In a model the word is a flag, swapped with the same ordering; the box lies beside it, behind a lock that the model
    /// doesn't see and that so orders nothing in it.
    #[cfg(loom)]
    full: AtomicBool,
    #[cfg(loom)]
    contents: std::sync::Mutex<Option<Box<T>>>,
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
        // A swap with nothing, also when there is nothing.
        self.cell.swap(None)
    }
}

#[cfg(loom)]
impl<T> Place<T> {
    pub fn empty() -> Self {
        Place {
            full: AtomicBool::new(false),
            contents: std::sync::Mutex::new(None),
        }
    }

    // A model changes threads at its own operations only: each swap and its move are one step.

    pub fn put(&self, boxed: Box<T>) {
        let was_full = self.full.swap(true, Ordering::AcqRel);
        assert!(!was_full, "a place holds one box");
        *self.contents() = Some(boxed);
    }

    pub fn take(&self) -> Option<Box<T>> {
        if self.full.swap(false, Ordering::AcqRel) {
            let taken = self.contents().take();
            assert!(taken.is_some(), "a full place has a box");
            taken
        } else {
            None
        }
    }

    fn contents(&self) -> std::sync::MutexGuard<'_, Option<Box<T>>> {
        self.contents
            .lock()
            .expect("nothing panics under this lock")
    }
}
