//! A standby's life: it steals jobs, one at a time, oldest first, and parks when there are none.
//!
//! Owns the order in which jobs are stolen. Runs on every handler that has no loop.

#![forbid(unsafe_code)]

use crossbeam_deque::Steal;

use super::baton::Nanos;
use super::sleep::Order;
use super::turn_slice::TURN_SLICE;
use super::{Duty, Shared, Station, WORTH_A_WAKE};
use crate::event_loop::{Job, Millis};
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
                let began = self.now();
                self.cores.view_begins(index, began);
                if std::mem::take(&mut searching) && self.sleep.found() {
                    self.wake_next(began);
                }
                self.common.counters.count(Counter::Stolen);
                self.view(&self.stations[number], &mut job, handler, began);
                let mailbox = &self.stations[job.home()].port.mailbox;
                job.give_back(mailbox);
            }
            self.cores.no_view(index);
            if std::mem::take(&mut searching) {
                self.sleep.found_nothing();
            }
            if self.stand_ins.may_end() {
                if self.sleep.may_leave(|| self.any_offer()) {
                    return Duty::Stop;
                }
                self.stand_ins.stays();
                continue;
            }
            match self.sleep.park(index, || self.any_offer()) {
                Order::Steal => searching = true,
                Order::Drive(held) => return Duty::Drive(held),
                Order::Stop => return Duty::Stop,
            }
        }
    }

    /// The last thief that was searching has found a job: is there more that is worth a wake, on whichever loop? Their
    /// drivers have called nobody while it searched.
    fn wake_next(&self, now: Nanos) {
        let shared_gil = self.turns.is_shared_gil();
        let worth_a_wake = |station: &Station| {
            let expected = station.expected.load(Ordering::Relaxed);
            let queued = station.port.stealer.len() as Nanos;
            station.offer.stands()
                && queued > 0
                && (expected > self.long_view()
                    || (!shared_gil && queued * expected > WORTH_A_WAKE))
                && self.finds_a_core(station, 0, now)
        };
        if self.stations.iter().any(worth_a_wake) {
            self.sleep.call_thief();
        }
    }

    fn any_offer(&self) -> bool {
        self.stations
            .iter()
            .any(|station| station.offer.stands() && !station.port.stealer.is_empty())
    }

    /// One job: from the home loop, unless another loop's oldest has waited a slice longer. FIFO within a loop.
    fn steal(&self, home: usize) -> Option<(Job, usize)> {
        loop {
            let offers =
                self.stations.iter().enumerate().filter(|(_, station)| {
                    station.offer.stands() && !station.port.stealer.is_empty()
                });
            let number = oldest(
                home,
                offers.map(|(number, station)| (number, station.front.load(Ordering::Relaxed))),
            )?;
            let station = &self.stations[number];
            match station.port.stealer.steal() {
                Steal::Success(job) => {
                    station.raise_front(job.queued_at());
                    return Some((job, number));
                }
                Steal::Empty | Steal::Retry => {}
            }
        }
    }
}

/// Of the loops (number, front) that have jobs on offer, the one whose turn it is.
fn oldest(home: usize, offers: impl Iterator<Item = (usize, Millis)>) -> Option<usize> {
    let handicap = TURN_SLICE.as_millis() as Millis;
    offers
        .min_by_key(|&(number, front)| {
            let away = number != home;
            (front + if away { handicap } else { 0 }, away)
        })
        .map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::oldest;

    #[test]
    fn home_comes_first_unless_others_have_waited_a_slice_longer() {
        assert_eq!(oldest(1, [(0, 10), (1, 10)].into_iter()), Some(1));
        assert_eq!(oldest(1, [(0, 10), (1, 11)].into_iter()), Some(1));
        assert_eq!(oldest(1, [(0, 10), (1, 12)].into_iter()), Some(0));
        assert_eq!(oldest(1, [(0, 9), (2, 8)].into_iter()), Some(2));
        assert_eq!(oldest(1, std::iter::empty()), None);
    }
}
