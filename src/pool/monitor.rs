//! The monitor's life: it looks, while any loop is lent, whether one has been for longer than a slice.
//!
//! Owns no loop for longer than it takes to hand it on. One thread, asleep while nothing is lent.

#![forbid(unsafe_code)]

use std::time::Duration;

use super::baton::rescue;
use super::{SLICE, Shared};
use crate::exchange::HandlerFactory;
use crate::observe::counters::Counter;

/// How often the monitor looks while loops are lent: a rescue comes at most this long after the slice.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// Looks without a lent loop before the monitor goes to sleep.
const QUIET_LOOKS: u32 = 20;

impl<F: HandlerFactory> Shared<F> {
    /// The monitor's life: loops that have been lent for longer than a slice get another driver.
    pub(super) fn watch(&self) {
        let mut quiet = 0;
        loop {
            let goes_on = if quiet > QUIET_LOOKS {
                quiet = 0;
                self.vigil.sleep(|| {
                    self.stations
                        .iter()
                        .any(|station| station.lease.lent_for(0).is_some())
                })
            } else {
                self.vigil.wait(LOOK_EVERY)
            };
            if !goes_on {
                return;
            }
            quiet += 1;
            let now = self.now();
            for station in &self.stations {
                if let Some(lent_for) = station.lease.lent_for(now) {
                    quiet = 0;
                    if lent_for > SLICE && rescue(&station.lease, &self.sleep) {
                        self.common.counters.count(Counter::Rescued);
                    }
                }
            }
        }
    }
}
