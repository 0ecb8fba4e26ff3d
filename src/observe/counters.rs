//! What was counted.
//!
//! Owns the counters: each thread that counts has its own, on cache lines of their own, and adds without a locked
//! instruction; whoever wants to know sums them up. Must not decide what is shown where.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;

macro_rules! counters {
    ($($(#[doc = $what:literal])+ $name:ident => $text:literal,)+) => {
        /// What can be counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $($(#[doc = $what])+ $name,)+ }

        impl Counter {
            pub const ALL: &[Counter] = &[$(Counter::$name,)+];

            /// The name in metrics.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$name => $text,)+ }
            }

            /// What it counts, in a sentence.
            pub fn description(self) -> &'static str {
                match self { $(Counter::$name => concat!($($what),+).trim_ascii(),)+ }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    Accepted => "connections_accepted",
    /// Connections closed, whoever closed them.
    Closed => "connections_closed",
    /// Connections turned away because --limit-connections was reached.
    TurnedAway => "connections_turned_away",
    /// Requests whose head was read.
    Requests => "requests",
    /// Requests refused for a fault of the client's (malformed, too large, too slow).
    Refused => "requests_refused",
    /// Responses that were sent completely.
    Responses => "responses",
    /// Responses with a status from 500 to 599.
    ServerErrors => "responses_server_error",
    /// Requests answered with 503 because --queue-limit was reached.
    QueueFull => "queue_full",
    /// Jobs that were run by another thread than the loop's driver.
    Stolen => "jobs_stolen",
    /// Loops taken over from a driver that was inside one view too long.
    Rescued => "loops_rescued",
    /// Connections closed by a time-out (head, body, idle or write).
    TimedOut => "connections_timed_out",
    /// Bytes received.
    Received => "bytes_received",
    /// Bytes sent.
    Sent => "bytes_sent",
}

const COUNT: usize = Counter::ALL.len();

type Cells = CachePadded<[AtomicU64; COUNT]>;

/// The counters of one server.
#[derive(Debug, Default)]
pub struct Counters {
    threads: Mutex<Vec<Arc<Cells>>>,
}

impl Counters {
    pub fn new() -> Counters {
        Counters::default()
    }

    /// A share for one thread. What it counted stays counted after it is dropped.
    pub fn share(&self) -> Share {
        let cells: Arc<Cells> =
            Arc::new(CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0))));
        self.threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&cells));
        Share {
            cells,
            one_thread: PhantomData,
        }
    }

    /// The sum over all threads. What is added meanwhile may or may not be in it.
    pub fn sum(&self, counter: Counter) -> u64 {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed, with the store in `Share::add`: a number is all that is read.
        threads
            .iter()
            .map(|cells| cells[counter as usize].load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }
}

/// The counters of one thread. May be moved to another thread, never used by two at once (it is not `Sync`).
#[derive(Debug)]
pub struct Share {
    cells: Arc<Cells>,
    one_thread: PhantomData<Cell<()>>,
}

impl Share {
    pub fn add(&self, counter: Counter, amount: u64) {
        let cell = &self.cells[counter as usize];
        // A load and a store instead of a locked addition: nobody else writes here.
        cell.store(
            cell.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_apart_and_are_summed() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let share = counters.share();
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        share.count(Counter::Requests);
                        share.add(Counter::Sent, 3);
                    }
                });
            }
        });
        assert_eq!(counters.sum(Counter::Requests), 40_000);
        assert_eq!(counters.sum(Counter::Sent), 120_000);
        assert_eq!(counters.sum(Counter::Closed), 0);
    }

    #[test]
    fn names_are_distinct_and_described() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
        assert!(
            Counter::ALL
                .iter()
                .all(|counter| counter.description().ends_with('.'))
        );
    }

    #[test]
    fn shares_sit_on_cache_lines_of_their_own() {
        assert!(std::mem::align_of::<Cells>() >= 64);
        assert_eq!(
            std::mem::size_of::<Cells>() % std::mem::align_of::<Cells>(),
            0
        );
    }
}
