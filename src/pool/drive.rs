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
use crate::exchange::{Handler, HandlerFactory};
use crate::observe::log;
use crate::sync::Ordering;

/// A driver polls at least this often while it works off its deque.
const POLL_EVERY: Nanos = 200_000;

enum Verdict {
    /// A rescuer is reserved for the loop.
    Run,
    /// Somebody else is to run it.
    Leave,
}

impl<F: HandlerFactory> Shared<F> {
    /// Without standbys: every job is run here.
    pub(super) fn drive_alone(&self, mut held: Box<Loop>, handler: &mut F::Handler) -> Duty {
        loop {
            let mut polled = self.now();
            while let Some(mut job) = held.next_job() {
                let began = self.now();
                run(&mut job, handler);
                let now = self.now();
                if now - began > SLICE {
                    held.tick();
                }
                held.settle(job);
                if now - polled > POLL_EVERY {
                    self.turn(&mut held, Some(Duration::ZERO), handler);
                    polled = now;
                }
            }
            if held.is_drained() {
                return Duty::Stop;
            }
            self.turn(&mut held, None, handler);
        }
    }

    /// With standbys: a loop is lent while its driver is in a view.
    pub(super) fn drive(&self, mut held: Box<Loop>, handler: &mut F::Handler) -> Duty {
        let station = &self.stations[held.index()];
        let mut aside = Aside::default();
        // Of a driver that was stuck.
        held.send_kept();
        loop {
            let mut timeout = None;
            let mut now = self.now();
            let polled = now;
            while held.queued() > 0 {
                if let Verdict::Leave = self.judge(station, held.queued(), now, &mut aside) {
                    // A driver never waits without end for somebody else to take a job: whatever kept it from being
                    // taken, or from being run here, is looked at again.
                    timeout = Some(TURN_SLICE);
                    break;
                }
                let Some(mut job) = held.next_job() else {
                    // A thief was faster.
                    self.sleep.end_lend();
                    continue;
                };
                station.raise_front(job.queued_at());
                station.lease.lend(held, now);
                self.vigil.notice();
                let began = now;
                now = self.view(station, &mut job, handler, began);
                match station.lease.take_back() {
                    Some(back) => {
                        held = back;
                        self.sleep.end_lend();
                        if now - began > SLICE {
                            held.tick();
                        }
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
            held.send_kept();
            if held.is_drained() {
                return Duty::Stop;
            }
            let was_empty = held.queued() == 0;
            self.turn(&mut held, timeout, handler);
            if was_empty {
                station.raise_front(held.now());
            }
        }
    }

    /// One pass of the loop. A poll that fails has no remedy: without readiness nothing can be served.
    fn turn(&self, held: &mut Loop, timeout: Option<Duration>, handler: &mut F::Handler) {
        let waited = if self.controls.loop_attached {
            held.wait(timeout)
                .map(|()| handler.attached(&mut || held.deal()))
        } else {
            held.turn(timeout)
        };
        if let Err(error) = waited {
            log::error!(
                "loop {}: waiting for readiness failed: {error}",
                held.index()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Who runs the next job.
    fn judge(&self, station: &Station, queued: usize, now: Nanos, aside: &mut Aside) -> Verdict {
        let shared_gil = self.turns.is_shared_gil();
        let expected = station.expected.load(Ordering::Relaxed);
        if !self.controls.baton {
            // The control is the pool that everybody has: a handler is woken for every job.
            station.offer.make();
            (0..queued)
                .take_while(|_| self.sleep.call_another_thief())
                .count();
            return Verdict::Leave;
        }
        if expected > self.long_view() {
            station.offer.make();
            if self.finds_a_core(station, 0, now) {
                self.sleep.call_thief();
            }
            return Verdict::Leave;
        }
        if shared_gil && self.turns.anybody_waits() && aside.stands(now) {
            // Whoever waits runs next, and takes our jobs when it is done; a third in the line would gain nothing.
            station.offer.make();
            return Verdict::Leave;
        }
        if !self.sleep.try_lend() {
            // Every standby is busy, or kept for another lent loop. A busy one steals when it is done.
            station.offer.make();
            return Verdict::Leave;
        }
        if !shared_gil && (queued as Nanos - 1) * expected > WORTH_A_WAKE {
            // Thieves that are awake take of it in any case.
            station.offer.make();
            if self.finds_a_core(station, 1, now) {
                self.sleep.call_thief();
            }
        } else {
            station.offer.withdraw();
        }
        Verdict::Run
    }
}

/// A driver that stands aside for handlers which wait for the GIL: a slice, then it has a slice itself. They may have long
/// views before them, and would otherwise go first for as long as two of them contend.
#[derive(Default)]
struct Aside {
    since: Option<Nanos>,
}

impl Aside {
    fn stands(&mut self, now: Nanos) -> bool {
        let since = *self.since.get_or_insert(now);
        if now - since >= 2 * SLICE {
            self.since = Some(now);
            return true;
        }
        now - since < SLICE
    }
}
