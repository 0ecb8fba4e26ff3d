//! The turn-slice barrier: handlers that share one GIL take turns of about a millisecond.
//!
//! CPython's GIL is handed over only to a waiter that has waited for the switch interval (5 ms; `Python/ceval_gil.c`,
//! `take_gil`, `drop_gil`). A thread that drops it and takes it again sooner wins it back before the waiter has woken,
//! over and over: on 3.13 a waiter stood in line for 41 ms behind a thread that held it 100 µs at a time. The barrier
//! makes a thread whose run has lasted a slice, and that detaches while another waits, stand aside until that one has
//! it. Two counters, nothing per job, never held across a view.
//!
//! Knows no Python: `attach` and `detach` are what its caller passes in.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How long a handler may keep taking the GIL back while others wait; also how long it stands aside at most.
pub const TURN_SLICE: Duration = Duration::from_millis(1);

/// What the handlers of one interpreter share.
#[derive(Debug)]
pub struct TurnSlice {
    /// There is one GIL for all. Can become true while serving: an import brings the GIL back on a free-threaded build.
    shared_gil: AtomicBool,
    /// `M0_POOL_TURN=0` and pools of one handler do without the barrier.
    barrier: bool,
    /// Threads inside `attach`.
    waiting: AtomicUsize,
    /// Attaches completed.
    attaches: AtomicU64,
}

impl TurnSlice {
    pub fn new(shared_gil: bool, barrier: bool) -> Self {
        TurnSlice {
            shared_gil: AtomicBool::new(shared_gil),
            barrier,
            waiting: AtomicUsize::new(0),
            attaches: AtomicU64::new(0),
        }
    }

    /// There is one GIL from now on. True for the one caller that made it so.
    pub fn share_gil(&self) -> bool {
        !self.shared_gil.swap(true, Ordering::Relaxed)
    }

    pub fn is_shared_gil(&self) -> bool {
        self.shared_gil.load(Ordering::Relaxed)
    }

    /// Some handler stands in line for the GIL.
    pub fn anybody_waits(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

thread_local! {
    /// When this thread first had the shared GIL in its present view.
    static FIRST_ATTACH: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// This thread goes into a view.
pub(super) fn view_begins() {
    FIRST_ATTACH.set(None);
}

/// When its view first had the shared GIL; None if it did without.
pub(super) fn first_attach() -> Option<Instant> {
    FIRST_ATTACH.get()
}

/// One handler's part of it.
#[derive(Debug)]
pub struct Turn {
    slice: Arc<TurnSlice>,
    /// When this thread's run of the GIL began, and the attach count at its last attach.
    run: Option<(Instant, u64)>,
}

impl Turn {
    pub fn new(slice: Arc<TurnSlice>) -> Self {
        Turn { slice, run: None }
    }

    pub fn slice(&self) -> &Arc<TurnSlice> {
        &self.slice
    }

    fn has_barrier(&self) -> bool {
        self.slice.barrier && self.slice.is_shared_gil()
    }

    /// Attaches by calling `attach`, which may block until the GIL is free.
    pub fn attach<T>(&mut self, attach: impl FnOnce() -> T) -> T {
        if !self.slice.is_shared_gil() {
            return attach();
        }
        self.slice.waiting.fetch_add(1, Ordering::SeqCst);
        let attached = attach();
        self.slice.waiting.fetch_sub(1, Ordering::SeqCst);
        let count = self.slice.attaches.fetch_add(1, Ordering::SeqCst) + 1;
        let first = FIRST_ATTACH.get();
        self.run = match self.run {
            // Nobody else had it in between: the run goes on.
            Some((began, last)) if last + 1 == count && first.is_some() => Some((began, count)),
            run => {
                let now = Instant::now();
                FIRST_ATTACH.set(first.or(Some(now)));
                match run {
                    Some((began, last)) if last + 1 == count => Some((began, count)),
                    _ => Some((now, count)),
                }
            }
        };
        attached
    }

    /// Detaches by calling `detach`, and stands aside when its slice is over and somebody waits.
    pub fn detach(&mut self, detach: impl FnOnce()) {
        detach();
        if !self.has_barrier() || !self.slice.anybody_waits() {
            return;
        }
        let Some((began, _)) = self.run else { return };
        if began.elapsed() < TURN_SLICE {
            return;
        }
        let seen = self.slice.attaches.load(Ordering::SeqCst);
        let aside = Instant::now();
        // Bounded, because a waiter may have given up or the scheduler may be busy: fairness is not worth a stall.
        while self.slice.attaches.load(Ordering::SeqCst) == seen
            && self.slice.anybody_waits()
            && aside.elapsed() < TURN_SLICE
        {
            std::thread::yield_now();
        }
        self.run = None;
    }

    /// Detaches for a wait (a socket, a condition): the GIL is free for as long as that takes, no need to stand aside.
    pub fn detach_for_wait(&mut self, detach: impl FnOnce()) {
        detach();
        self.run = None;
    }
}
