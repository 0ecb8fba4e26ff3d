//! The monitor's life: it looks, while any loop is lent, whether one has been for longer than a slice.
//!
//! Owns no loop for longer than it takes to hand it on. One thread, asleep while nothing is lent.

#![forbid(unsafe_code)]

use std::time::Duration;

use super::baton::{Nanos, rescue};
use super::{SLICE, Shared};
use crate::exchange::HandlerFactory;
use crate::observe::counters::Counter;

/// The monitor looks again when the view that has run longest will have run for a slice, but not sooner than this.
const SHORTEST_WAIT: Nanos = 50_000;
/// Looks without a lent loop, a slice apart, before the monitor goes to sleep. Few, because a server with little to do
/// has it woken by every request; more than one, because a busy one would wake it again and again between two views.
const QUIET_LOOKS: u32 = 3;

impl<F: HandlerFactory> Shared<F> {
    /// The monitor's life: loops that have been lent for longer than a slice get another driver.
    pub(super) fn watch(&self) {
        let mut quiet = 0;
        let mut wait = SLICE;
        loop {
            let goes_on = if quiet > QUIET_LOOKS {
                quiet = 0;
                self.vigil.sleep(|| {
                    self.stations
                        .iter()
                        .any(|station| station.lease.lent_for(0).is_some())
                })
            } else {
                self.vigil.wait(Duration::from_nanos(wait))
            };
            if !goes_on {
                return;
            }
            quiet += 1;
            wait = SLICE;
            let now = self.now();
            for station in &self.stations {
                if let Some(lent_for) = station.lease.lent_for(now) {
                    quiet = 0;
                    let left = SLICE.saturating_sub(lent_for);
                    if left > 0 {
                        wait = wait.min(left.max(SHORTEST_WAIT));
                    } else if rescue(&station.lease, &self.sleep) {
                        self.common.counters.count(Counter::Rescued);
                    } else {
                        // No standby is free.
                        wait = wait.min(SLICE / 2);
                    }
                }
            }
        }
    }
}
