//! Stand-ins: a handler that streams for long is replaced, so that endless responses don't eat the pool.
//!
//! A thread that is inside a generator can't be taken away from it, but the pool can grow by one for as long as it lasts,
//! up to `--streaming-threads`. A handler counts as streaming once it sends a piece of a body [`LONG_STREAM`] after the first
//! one: a view that takes its time and then sends a short body in pieces is none. When its response has ended, the next
//! handler that would park ends instead.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::thread::JoinHandle;

use super::baton::Nanos;
use crate::observe::log;
use crate::sync::{AtomicIsize, Mutex, Ordering, lock};

/// A stream that lasts longer than this has its thread replaced. Far above what a body that a client reads at full
/// speed takes, far below what a person notices of a pool that is one short.
const LONG_STREAM: Nanos = 50_000_000;

#[derive(Clone, Copy)]
enum AtWork {
    Nothing,
    View,
    /// A view that has sent a piece of its body.
    Stream {
        since: Nanos,
    },
    /// Its handler has a stand-in.
    Replaced,
}

thread_local! {
    static AT_WORK: Cell<AtWork> = const { Cell::new(AtWork::Nothing) };
}

/// Who stands in for whom, over all handlers.
pub(super) struct StandIns {
    limit: usize,
    /// Handlers that the pool has too many, because a stream has ended; below zero, that it lacks, because one could not start.
    surplus: AtomicIsize,
    /// Handler numbers that nobody has.
    free: Mutex<Vec<usize>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl StandIns {
    /// At most `limit` at a time; the pool's own handlers have the numbers below `first`.
    pub(super) fn new(limit: usize, first: usize) -> Self {
        StandIns {
            limit,
            surplus: AtomicIsize::new(0),
            free: Mutex::new((first..first + limit).rev().collect()),
            threads: Mutex::new(Vec::new()),
        }
    }

    /// This thread goes into a view.
    pub(super) fn view_begins(&self) {
        if self.limit > 0 {
            AT_WORK.set(AtWork::View);
        }
    }

    /// This thread's view is over, with its response.
    pub(super) fn view_ends(&self) {
        if self.limit > 0 && matches!(AT_WORK.replace(AtWork::Nothing), AtWork::Replaced) {
            self.surplus.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// This thread streams. `start` is called with a handler number if it has done so for long and can be replaced.
    pub(super) fn streams(
        &self,
        now: Nanos,
        start: impl FnOnce(usize) -> std::io::Result<JoinHandle<()>>,
    ) {
        let since = match AT_WORK.get() {
            AtWork::View => return AT_WORK.set(AtWork::Stream { since: now }),
            AtWork::Stream { since } => since,
            AtWork::Nothing | AtWork::Replaced => return,
        };
        if now.saturating_sub(since) < LONG_STREAM {
            return;
        }
        let Some(number) = lock(&self.free).pop() else {
            return;
        };
        match start(number) {
            Ok(thread) => {
                AT_WORK.set(AtWork::Replaced);
                let mut threads = lock(&self.threads);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => {
                lock(&self.free).push(number);
                // Tried again when it has streamed for as long once more, not with each piece.
                AT_WORK.set(AtWork::Stream { since: now });
                log::warn!("cannot start a thread beside a streaming one: {error}");
            }
        }
    }

    /// A handler is about to park: true if it is to end instead.
    pub(super) fn may_end(&self) -> bool {
        if self.surplus.load(Ordering::Relaxed) <= 0 {
            return false;
        }
        let one_less = |surplus: isize| (surplus > 0).then_some(surplus - 1);
        self.surplus
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
    }

    /// It was to end, but there is work.
    pub(super) fn stays(&self) {
        self.surplus.fetch_add(1, Ordering::Relaxed);
    }

    /// A handler's thread has ended, by order or because it panicked: its number can be used again.
    pub(super) fn ended(&self, number: usize, panicked: bool) {
        if panicked {
            self.surplus.fetch_sub(1, Ordering::Relaxed);
        }
        lock(&self.free).push(number);
    }

    /// All stand-ins' threads, to be joined.
    pub(super) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *lock(&self.threads))
    }
}
