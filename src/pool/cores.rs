//! How many handlers run views at once on a free-threaded build: as many as there are cores for, if the views compute.
//!
//! One more than that takes time slices from the others and gains nothing: cold caches and a longer tail
//! (docs/performance.md). Views that wait are another matter: they leave their core to whoever is woken. Which kind a loop's
//! views are is sampled; and a view that has run for a slice is left out of the count, whatever it does.

#![forbid(unsafe_code)]

use std::cell::Cell;

use crossbeam_utils::CachePadded;
use nix::sys::resource::{UsageWho, getrusage};

use super::SLICE;
use super::baton::Nanos;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// One view of so many is watched: asking the kernel twice costs a good part of a short view.
const WATCHED: u32 = 64;
/// Views of which fewer than one in eight waits are taken for such as compute.
const SELDOM: u32 = ALWAYS / 8;
const ALWAYS: u32 = 1024;

/// How often the views of a loop wait for something else than a core.
pub(super) struct Waits(AtomicU32);

impl Waits {
    pub(super) fn unknown() -> Waits {
        Waits(AtomicU32::new(0))
    }

    pub(super) fn are_seldom(&self) -> bool {
        self.0.load(Ordering::Relaxed) < SELDOM
    }

    fn record(&self, waited: bool) {
        let mean = self.0.load(Ordering::Relaxed);
        let sample = if waited { ALWAYS } else { 0 };
        // Concurrent samples may overwrite each other: it is an estimate.
        self.0.store((mean * 3 + sample) / 4, Ordering::Relaxed);
    }
}

thread_local! {
    static UNTIL_WATCHED: Cell<u32> = const { Cell::new(0) };
}

/// How often this thread has left its core of its own accord (getrusage(2), ru_nvcsw).
fn left_the_core() -> Option<i64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    Some(usage.voluntary_context_switches())
}

/// A view that is watched.
pub(super) struct Watch(i64);

impl Watch {
    /// For one view in [`WATCHED`].
    pub(super) fn begin() -> Option<Watch> {
        UNTIL_WATCHED.with(|left| match left.get() {
            0 => {
                left.set(WATCHED - 1);
                left_the_core().map(Watch)
            }
            more => {
                left.set(more - 1);
                None
            }
        })
    }

    pub(super) fn end(self, waits: &Waits) {
        if let Some(now) = left_the_core() {
            waits.record(now != self.0);
        }
    }
}

/// When each thief's view began; 0 for one that is in none.
pub(super) struct Cores {
    count: usize,
    views: Vec<CachePadded<AtomicU64>>,
}

impl Cores {
    pub(super) fn new(handlers: usize) -> Cores {
        Cores {
            // With the quota and the affinity that the process has.
            count: std::thread::available_parallelism().map_or(1, usize::from),
            views: (0..handlers).map(|_| CachePadded::default()).collect(),
        }
    }

    pub(super) fn view_begins(&self, thief: usize, now: Nanos) {
        self.views[thief].store(now, Ordering::Relaxed);
    }

    pub(super) fn no_view(&self, thief: usize) {
        self.views[thief].store(0, Ordering::Relaxed);
    }

    /// Whether another view would find a core, with `others` running beside the thieves' that are younger than a slice.
    pub(super) fn is_one_free(&self, others: usize, now: Nanos) -> bool {
        let is_young = |view: &&CachePadded<AtomicU64>| {
            let began = view.load(Ordering::Relaxed);
            began != 0 && now.saturating_sub(began) < SLICE
        };
        others + self.views.iter().filter(is_young).count() < self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn young_views_take_cores_and_old_ones_do_not() {
        let cores = Cores {
            count: 2,
            ..Cores::new(3)
        };
        let now = 10 * SLICE;
        assert!(cores.is_one_free(1, now));
        cores.view_begins(0, now - 10);
        assert!(cores.is_one_free(0, now));
        assert!(!cores.is_one_free(1, now));
        cores.view_begins(2, now);
        assert!(!cores.is_one_free(0, now));
        cores.view_begins(0, now - SLICE);
        assert!(cores.is_one_free(0, now));
        cores.no_view(2);
        assert!(cores.is_one_free(1, now));
        assert!(!cores.is_one_free(2, now));
    }

    #[test]
    fn a_view_that_sleeps_is_seen_to_wait() {
        let waits = Waits::unknown();
        assert!(waits.are_seldom());
        let watch = Watch(left_the_core().unwrap());
        std::thread::sleep(std::time::Duration::from_micros(1));
        watch.end(&waits);
        assert!(!waits.are_seldom());
        for _ in 0..20 {
            waits.record(false);
        }
        assert!(waits.are_seldom());
    }
}
