//! The synchronisation primitives that the pool's protocols are written with: std's; loom's when a model runs
//! (`--cfg loom`); parking_lot's locks under ThreadSanitizer (`--cfg tsan`, scripts/tsan). Owns no protocol itself;
//! `pool/README.md` names every atomic and its partner.

#![forbid(unsafe_code)]

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
};
pub use std::sync::Arc; // only counts: nothing for a model to explore
#[cfg(not(loom))]
pub use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(any(loom, tsan)))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(tsan)]
pub use watched::{Condvar, Mutex, MutexGuard};

/// Locks that ThreadSanitizer understands: std is compiled without it, so that what std's locks order in their slow paths
/// looks like races. parking_lot is compiled with the crate. The interface is std's.
#[cfg(tsan)]
mod watched {
    use std::sync::LockResult;
    use std::time::Duration;

    pub use parking_lot::MutexGuard;

    #[derive(Debug, Default)]
    pub struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub const fn new(value: T) -> Self {
            Mutex(parking_lot::Mutex::new(value))
        }

        pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            Ok(self.0.lock())
        }
    }

    #[derive(Debug, Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub const fn new() -> Self {
            Condvar(parking_lot::Condvar::new())
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
            self.0.wait(&mut guard);
            Ok(guard)
        }

        pub fn wait_timeout<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            timeout: Duration,
        ) -> LockResult<(MutexGuard<'a, T>, parking_lot::WaitTimeoutResult)> {
            let waited = self.0.wait_for(&mut guard, timeout);
            Ok((guard, waited))
        }

        pub fn wait_timeout_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            timeout: Duration,
            condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<(MutexGuard<'a, T>, parking_lot::WaitTimeoutResult)> {
            let waited = self.0.wait_while_for(&mut guard, condition, timeout);
            Ok((guard, waited))
        }
    }
}

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
