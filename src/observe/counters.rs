//! What was counted.
//!
//! Owns the counters: each thread adds to a shard of its own, so that counting moves no cache line between cores; whoever
//! wants to know sums the shards up. Must not decide what is shown where. Any thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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

/// As many as threads commonly count at once; a thread beyond them shares with another, which costs time, not counts.
const SHARDS: usize = 64;

type Shard = CachePadded<[AtomicU64; COUNT]>;

/// The counters of one server.
#[derive(Debug)]
pub struct Counters {
    shards: Box<[Shard]>,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

/// The number for the next thread that counts.
static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: usize = NEXT_THREAD.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

impl Counters {
    pub fn new() -> Counters {
        let shard = |_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Counters {
            shards: (0..SHARDS).map(shard).collect(),
        }
    }

    pub fn add(&self, counter: Counter, amount: u64) {
        // Relaxed, as the load in `sum`: nothing is published with a count. The addition is atomic because threads may
        // share a shard; commonly they don't, and the cache line stays where it is.
        self.shards[SHARD.with(|shard| *shard)][counter as usize]
            .fetch_add(amount, Ordering::Relaxed);
    }

    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// The sum over all threads. What is added meanwhile may or may not be in it.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.shards
            .iter()
            .map(|shard| shard[counter as usize].load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_counts_also_when_shards_are_shared() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        counters.count(Counter::Requests);
                        counters.add(Counter::Sent, 3);
                    }
                });
            }
        });
        let threads = SHARDS as u64 + 8;
        assert_eq!(counters.sum(Counter::Requests), threads * 1_000);
        assert_eq!(counters.sum(Counter::Sent), threads * 3_000);
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
    fn shards_are_on_cache_lines_of_their_own() {
        assert!(std::mem::align_of::<Shard>() >= 64);
    }
}
