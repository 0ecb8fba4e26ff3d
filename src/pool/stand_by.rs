//! A standby's life: it steals jobs, one at a time, oldest first, and parks when there are none.
//!
//! Owns the order in which jobs are stolen. Runs on every handler that has no loop.

#![forbid(unsafe_code)]

use crossbeam_deque::Steal;

use super::baton::Nanos;
use super::sleep::Order;
use super::turn_slice::TURN_SLICE;
use super::{Duty, Shared, WORTH_A_WAKE, run};
use crate::event_loop::Job;
use crate::exchange::HandlerFactory;
use crate::observe::counters::Counter;
use crate::sync::Ordering;

impl<F: HandlerFactory> Shared<F> {
    /// Steals until there is nothing to steal, then parks.
    pub(super) fn stand_by(&self, index: usize, handler: &mut F::Handler) -> Duty {
        let home = index % self.stations.len();
        let mut searching = false;
        loop {
            while let Some((mut job, number)) = self.steal(home) {
                if std::mem::take(&mut searching) && self.sleep.found() {
                    self.wake_next(number);
                }
                self.common.counters.count(Counter::Stolen);
                let began = self.now();
                self.stand_ins.view_begins(began);
                run(&mut job, handler);
                self.stand_ins.view_ends();
                self.stations[number].record(self.now() - began);
                let mailbox = &self.stations[job.home()].port.mailbox;
                job.give_back(mailbox);
            }
            if searching {
                self.sleep.found_nothing();
            }
            if self.stand_ins.may_end() {
                return Duty::Stop;
            }
            match self.sleep.park(index, || self.any_offer()) {
                Order::Steal => searching = true,
                Order::Drive(held) => return Duty::Drive(held),
                Order::Stop => return Duty::Stop,
            }
        }
    }

    /// The thief that was woken found a job at `number`; more that is worth a wake may lie there.
    fn wake_next(&self, number: usize) {
        let station = &self.stations[number];
        let worth = station.port.stealer.len() as Nanos * station.expected.load(Ordering::Relaxed);
        if !self.turns.is_shared_gil()
            && worth > WORTH_A_WAKE
            && station.offered.load(Ordering::Relaxed)
        {
            self.sleep.call_thief();
        }
    }

    fn any_offer(&self) -> bool {
        self.stations.iter().any(|station| {
            station.offered.load(Ordering::Relaxed) && !station.port.stealer.is_empty()
        })
    }

    /// One job: from the home loop, unless another loop's oldest has waited a slice longer. FIFO within a loop. So a
    /// job is never taken while one that was queued more than a slice (and a turn of the clock) earlier is on offer.
    fn steal(&self, home: usize) -> Option<(Job, usize)> {
        loop {
            let mut best: Option<(u64, usize)> = None;
            for (number, station) in self.stations.iter().enumerate() {
                if !station.offered.load(Ordering::Relaxed) || station.port.stealer.is_empty() {
                    continue;
                }
                let front = station.front.load(Ordering::Relaxed);
                let handicap = if number == home {
                    0
                } else {
                    TURN_SLICE.as_millis() as u64
                };
                if best.is_none_or(|(oldest, _)| front + handicap < oldest) {
                    best = Some((front + handicap, number));
                }
            }
            let (_, number) = best?;
            match self.stations[number].port.stealer.steal() {
                Steal::Success(job) => {
                    self.stations[number]
                        .front
                        .store(job.queued_at(), Ordering::Relaxed);
                    return Some((job, number));
                }
                Steal::Empty | Steal::Retry => {}
            }
        }
    }
}
