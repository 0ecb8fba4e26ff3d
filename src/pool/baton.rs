//! The baton: a loop is lent while its driver runs a view, so that a standby can take it over when the view turns out
//! long. And the monitor, which notices that. Protocol: README.md, "Baton".

#![forbid(unsafe_code)]

use std::time::Duration;

use super::sleep::Sleep;
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, Place, fence, lock};

/// The time on the baton's clock: nanoseconds, never 0.
pub(crate) type Nanos = u64;

/// One loop while its driver is inside a view.
pub(crate) struct Lease<L> {
    lent: Place<L>,
    /// When the view began; 0 while the loop is not lent.
    since: AtomicU64,
}

impl<L> Lease<L> {
    pub(crate) fn new() -> Self {
        Lease {
            lent: Place::empty(),
            since: AtomicU64::new(0),
        }
    }

    /// The driver goes into a view that begins now.
    pub(crate) fn lend(&self, held: Box<L>, now: Nanos) {
        // Published by the release of `put`: whoever takes this loop, or finds it gone, reads this start or a later one.
        self.since.store(now, Ordering::Relaxed);
        self.lent.put(held);
    }

    /// The driver comes out of its view: the loop, unless it was rescued meanwhile.
    ///
    /// It may be the loop that its rescuer has lent in turn. Then that one finds it gone, as if rescued: who drives is
    /// whoever has the box, and nobody else ever does.
    pub(crate) fn take_back(&self) -> Option<Box<L>> {
        let held = self.lent.take()?;
        self.since.store(0, Ordering::Relaxed);
        Some(held)
    }

    /// How long the loop has been lent as of `now`; None if it isn't.
    pub(crate) fn lent_for(&self, now: Nanos) -> Option<Nanos> {
        match self.since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(now.saturating_sub(since)),
        }
    }
}

/// What the monitor does with a loop that has been lent for too long: a standby drives it from now on, unless its driver was
/// faster or no standby is left. True if so.
pub(crate) fn rescue<L>(lease: &Lease<L>, sleep: &Sleep<Box<L>>) -> bool {
    if !sleep.claim_driver() {
        return false;
    }
    match lease.take_back() {
        Some(held) => {
            sleep.end_lend();
            sleep.send_driver(held);
            true
        }
        None => {
            sleep.release();
            false
        }
    }
}

/// When the monitor sleeps and what wakes it. An idle server has no tick: the monitor is asleep unless a loop is lent.
pub(crate) struct Vigil {
    asleep: AtomicBool,
    stopped: Mutex<bool>,
    woken: Condvar,
}

impl Vigil {
    pub(crate) fn new() -> Self {
        Vigil {
            asleep: AtomicBool::new(false),
            stopped: Mutex::new(false),
            woken: Condvar::new(),
        }
    }

    /// A driver has lent its loop.
    pub(crate) fn notice(&self) {
        // Partner: the fence in `sleep`. Either we see the monitor asleep, or it sees the loop lent.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        let _stopped = lock(&self.stopped);
        self.asleep.store(false, Ordering::Relaxed);
        self.woken.notify_one();
    }

    pub(crate) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.wake();
    }

    /// The monitor sleeps until a loop is lent, unless `any_lent` says that one is. False: stop.
    pub(crate) fn sleep(&self, any_lent: impl Fn() -> bool) -> bool {
        let mut stopped = lock(&self.stopped);
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if any_lent() {
            self.asleep.store(false, Ordering::Relaxed);
        }
        while self.asleep.load(Ordering::Relaxed) && !*stopped {
            stopped = self
                .woken
                .wait(stopped)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        !*stopped
    }

    /// The monitor waits for its next look. False: stop.
    #[cfg(not(loom))]
    pub(crate) fn wait(&self, tick: Duration) -> bool {
        let stopped = lock(&self.stopped);
        if *stopped {
            return false;
        }
        let (stopped, _) = self
            .woken
            .wait_timeout(stopped, tick)
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        !*stopped
    }

    #[cfg(loom)]
    pub(crate) fn wait(&self, _tick: Duration) -> bool {
        loom::thread::yield_now();
        !*lock(&self.stopped)
    }
}
