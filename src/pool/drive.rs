//! A driver's life: it polls its loop, runs short views itself while the loop is lent, and leaves the rest to thieves.
//!
//! Owns the rules of who runs a job (`judge`). Runs on whichever handler has the loop's box.

#![forbid(unsafe_code)]

use std::thread;
use std::time::Duration;

use super::baton::Nanos;
use super::turn_slice::TURN_SLICE;
use super::{Duty, SLICE, Shared, Station, WORTH_A_WAKE, run};
use crate::event_loop::Loop;
use crate::exchange::HandlerFactory;
use crate::observe::log;
use crate::sync::{Ordering, fence};

/// A view that is expected to take longer goes straight to a standby (free-threaded builds).
const LONG_VIEW: Nanos = 200_000;
/// A driver polls at least this often while it works off its deque.
const POLL_EVERY: Nanos = 200_000;

enum Verdict {
    Run,
    /// Somebody else is to run it; look again after this long even without readiness.
    Leave(Option<Duration>),
}

impl<F: HandlerFactory> Shared<F> {
    /// Without standbys: every job is run here.
    pub(super) fn drive_alone(&self, mut held: Box<Loop>, handler: &mut F::Handler) -> Duty {
        loop {
            let mut polled = self.now();
            while let Some(mut job) = held.next_job() {
                run(&mut job, handler);
                let now = self.now();
                held.settle(job);
                if now - polled > POLL_EVERY {
                    turn(&mut held, Some(Duration::ZERO));
                    polled = now;
                }
            }
            if held.is_drained() {
                return Duty::Stop;
            }
            turn(&mut held, None);
        }
    }

    /// With standbys: a loop is lent while its driver is in a view.
    pub(super) fn drive(&self, mut held: Box<Loop>, handler: &mut F::Handler) -> Duty {
        let station = &self.stations[held.index()];
        loop {
            let mut timeout = None;
            let mut now = self.now();
            let polled = now;
            while held.queued() > 0 {
                if let Verdict::Leave(again) = self.judge(station, held.queued()) {
                    timeout = again;
                    break;
                }
                let Some(mut job) = held.next_job() else {
                    // A thief was faster.
                    self.sleep.end_lend();
                    continue;
                };
                station.front.store(job.queued_at(), Ordering::Relaxed);
                station.lease.lend(held, now);
                self.vigil.notice();
                self.stand_ins.view_begins(now);
                run(&mut job, handler);
                self.stand_ins.view_ends();
                let began = std::mem::replace(&mut now, self.now());
                station.record(now - began);
                match station.lease.take_back() {
                    Some(back) => {
                        held = back;
                        self.sleep.end_lend();
                        held.settle(job);
                    }
                    None => {
                        job.give_back(&station.port.mailbox);
                        return Duty::StandBy;
                    }
                }
                if now - polled > POLL_EVERY {
                    timeout = Some(Duration::ZERO);
                    break;
                }
            }
            if held.is_drained() {
                return Duty::Stop;
            }
            turn(&mut held, timeout);
        }
    }

    /// Who runs the next job. `Run` has reserved a rescuer for the loop.
    fn judge(&self, station: &Station, queued: usize) -> Verdict {
        let shared_gil = self.turns.is_shared_gil();
        let expected = station.expected.load(Ordering::Relaxed);
        // On one GIL a second active handler gains nothing unless the view is long enough to be rescued anyway.
        let long = if shared_gil { SLICE * 7 / 8 } else { LONG_VIEW };
        if !self.controls.baton {
            // The control is the pool that everybody has: a handler is woken for every job.
            self.offer(station);
            (0..queued)
                .take_while(|_| self.sleep.call_another_thief())
                .count();
            return Verdict::Leave(None);
        }
        if expected > long {
            self.offer(station);
            let called = self.sleep.call_thief();
            return Verdict::Leave(if called { None } else { self.look_again() });
        }
        if shared_gil && self.turns.anybody_waits() {
            // Whoever waits runs next, and takes our jobs when it is done; a third in the line would gain nothing.
            self.offer(station);
            return Verdict::Leave(Some(TURN_SLICE));
        }
        if !self.sleep.try_lend() {
            // Every standby is busy, or kept for another lent loop. A busy one steals when it is done.
            self.offer(station);
            return Verdict::Leave(self.look_again());
        }
        if !shared_gil && (queued as Nanos - 1) * expected > WORTH_A_WAKE {
            self.offer(station);
            self.sleep.call_thief();
        } else if station.offered.load(Ordering::Relaxed) {
            station.offered.store(false, Ordering::Relaxed);
        }
        Verdict::Run
    }

    /// Standbys that are kept for lent loops don't take offers: then the driver must look again itself.
    fn look_again(&self) -> Option<Duration> {
        self.sleep.any_lent().then_some(TURN_SLICE)
    }

    fn offer(&self, station: &Station) {
        station.offered.store(true, Ordering::Relaxed);
        // Partner: the fence in `Sleep::park`.
        fence(Ordering::SeqCst);
    }
}

/// One pass of the loop. A poll that fails has no remedy: without readiness nothing can be served.
fn turn(held: &mut Loop, timeout: Option<Duration>) {
    if let Err(error) = held.turn(timeout) {
        log::error!(
            "loop {}: waiting for readiness failed: {error}",
            held.index()
        );
        thread::sleep(Duration::from_millis(10));
    }
}
