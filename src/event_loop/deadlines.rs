//! Deadlines of one loop's connections, in milliseconds since the process's epoch.
//!
//! Lazy: a connection has at most one live entry here. A request that is answered at once never touches the heap; when
//! its entry comes up, the loop looks at the deadline the connection has by then and arms it again.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub type Millis = u64;

/// The process's epoch: all loops and handlers count from the same moment.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Milliseconds since the epoch, for a thread that holds no loop.
pub fn now() -> Millis {
    epoch().elapsed().as_millis() as Millis
}

/// The time as of the last tick: read once a turn, not once a connection.
#[derive(Debug)]
pub struct Clock {
    now: Millis,
}

impl Clock {
    pub fn start() -> Self {
        Clock { now: now() }
    }

    pub fn tick(&mut self) {
        self.now = now();
    }

    pub fn now(&self) -> Millis {
        self.now
    }
}

#[derive(Debug, Default)]
pub struct Deadlines {
    heap: BinaryHeap<Reverse<(Millis, usize, u32)>>,
}

impl Deadlines {
    pub fn arm(&mut self, due: Millis, key: usize, generation: u32) {
        self.heap.push(Reverse((due, key, generation)));
    }

    /// How many entries there are, stale ones too.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// How long until the earliest entry that `is_live`, None without one. Those before it are forgotten.
    pub fn next_in(
        &mut self,
        now: Millis,
        is_live: impl Fn(Millis, usize, u32) -> bool,
    ) -> Option<Duration> {
        loop {
            let &Reverse((due, key, generation)) = self.heap.peek()?;
            if is_live(due, key, generation) {
                return Some(Duration::from_millis(due.saturating_sub(now)));
            }
            self.heap.pop();
        }
    }

    /// Forgets what is not live.
    pub fn retain(&mut self, is_live: impl Fn(Millis, usize, u32) -> bool) {
        self.heap
            .retain(|&Reverse((due, key, generation))| is_live(due, key, generation));
    }

    /// When the earliest entry is due.
    pub fn next_due(&self) -> Option<Millis> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    pub fn pop_due(&mut self, now: Millis) -> Option<(Millis, usize, u32)> {
        let Reverse((due, ..)) = self.heap.peek()?;
        if *due > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_due_in_order_and_not_before() {
        let mut deadlines = Deadlines::default();
        deadlines.arm(30, 3, 0);
        deadlines.arm(10, 1, 0);
        deadlines.arm(20, 2, 7);
        let all = |_, _, _| true;
        assert_eq!(deadlines.next_in(4, all), Some(Duration::from_millis(6)));
        assert_eq!(deadlines.pop_due(9), None);
        assert_eq!(deadlines.pop_due(20), Some((10, 1, 0)));
        assert_eq!(deadlines.pop_due(20), Some((20, 2, 7)));
        assert_eq!(deadlines.pop_due(20), None);
        assert_eq!(deadlines.next_in(50, all), Some(Duration::ZERO));
    }

    #[test]
    fn wakes_nobody_for_what_is_stale() {
        let mut deadlines = Deadlines::default();
        deadlines.arm(10, 1, 0);
        deadlines.arm(20, 2, 0);
        deadlines.arm(30, 3, 0);
        let second = |_, key, _| key == 2;
        assert_eq!(
            deadlines.next_in(5, second),
            Some(Duration::from_millis(15))
        );
        deadlines.retain(second);
        assert_eq!(deadlines.len(), 1);
        assert_eq!(deadlines.next_in(5, |_, _, _| false), None);
        assert_eq!(deadlines.len(), 0);
    }
}
