//! Answers that wait for each other, so that they leave together.
//!
//! A client that has nothing to do sleeps, and whoever sends to it pays for waking it: on a virtual machine more than a
//! short view takes (docs/performance.md). While more requests wait in the loop's deque, a short whole answer is therefore
//! kept until the last of them is done, or for [`KEPT_FOR`]. None is kept while the loop polls, and a rescuer finds those
//! of a driver that is stuck in a view with the loop.
//!
//! Where nobody comes to the rescue, a view that takes long after all delays the few answers before it as if their
//! requests had come [`KEPT_FOR`] later, behind it; what an ASGI application does after its answer without an await delays
//! that one as well. Then none is kept for a [`PAUSE`].

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::{Job, Loop};

/// The first waits so long, and for the view that runs then.
const KEPT_FOR: Duration = Duration::from_micros(250);

/// An answer that had to wait so long waited for a view that is not short.
const TOO_LONG: Duration = Duration::from_millis(1);

/// Long views come in company.
const PAUSE: Duration = Duration::from_millis(250);

/// Longer answers are sent at once: their clients can begin with them, and copying them costs more than waking.
pub(super) const KEPT_BYTES: usize = 16 * 1024;

#[derive(Default)]
pub(super) struct Kept {
    answers: Vec<Job>,
    patience: Patience,
}

#[derive(Default)]
struct Patience {
    /// When the first answer of those that wait was kept.
    since: Option<Instant>,
    paused_until: Option<Instant>,
}

impl Patience {
    /// Whether one more answer may wait; the first begins the time.
    fn lasts(&mut self, now: Instant) -> bool {
        let Some(since) = self.since else {
            let pauses = self.paused_until.is_some_and(|until| now < until);
            self.since = (!pauses).then_some(now);
            return !pauses;
        };
        now - since < KEPT_FOR
    }

    /// They are sent. True if they waited too long.
    fn ends(&mut self, now: Instant) -> bool {
        let too_long = self
            .since
            .take()
            .is_some_and(|since| now - since >= TOO_LONG);
        if too_long {
            self.paused_until = Some(now + PAUSE);
        }
        too_long
    }
}

impl Loop {
    /// A job's connection comes back with its answer, from the driver itself.
    pub fn settle(&mut self, mut connection: Job) {
        connection.hear_knock();
        let may_wait = !self.jobs.is_empty() && connection.may_be_kept();
        if !may_wait && self.kept.answers.is_empty() {
            return self.advance(connection);
        }
        let lasts = self.kept.patience.lasts(Instant::now());
        self.kept.answers.push(connection);
        if !(may_wait && lasts) {
            self.send_kept();
        }
    }

    /// Sends the answers that were kept. A client's next request may be a job after that.
    pub fn send_kept(&mut self) {
        if self.kept.answers.is_empty() {
            return;
        }
        if self.kept.patience.ends(Instant::now()) {
            self.clock.tick();
        }
        let mut answers = std::mem::take(&mut self.kept.answers);
        for connection in answers.drain(..) {
            self.advance(connection);
        }
        self.kept.answers = answers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_with_the_time_of_the_first() {
        let mut patience = Patience::default();
        let begun = Instant::now();
        assert!(patience.lasts(begun));
        assert!(patience.lasts(begun + KEPT_FOR / 2));
        assert!(!patience.lasts(begun + KEPT_FOR));
        assert!(!patience.ends(begun + KEPT_FOR));
        assert!(patience.lasts(begun + KEPT_FOR));
    }

    #[test]
    fn a_long_view_ends_it_for_a_while() {
        let mut patience = Patience::default();
        let begun = Instant::now();
        assert!(patience.lasts(begun));
        let long = begun + TOO_LONG;
        assert!(patience.ends(long));
        assert!(!patience.lasts(long));
        assert!(!patience.ends(long));
        assert!(!patience.lasts(long + PAUSE - Duration::from_nanos(1)));
        assert!(patience.lasts(long + PAUSE));
    }
}
