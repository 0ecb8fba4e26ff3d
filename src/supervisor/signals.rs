//! Signals: what asks the process to stop, and how often.
//!
//! Installed before the interpreter starts: CPython leaves a handler alone that it finds in place (Modules/signalmodule.c,
//! `signal_install_handlers` and the import of `signal`).

#![forbid(unsafe_code)]

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::observe::log;

/// The exit status of a process that a signal ended at once (the shell's convention).
const SIGNALLED: i32 = 128;

/// Signals that were taken over, read on a thread of their own.
pub struct StopRequests {
    first: Receiver<i32>,
}

impl StopRequests {
    /// Takes over SIGTERM and SIGINT (stop in order; a second one at once), SIGQUIT (stop at once), SIGUSR1 (`reopen`:
    /// log files were rotated) and SIGHUP.
    pub fn take_over(reopen: impl Fn() + Send + 'static) -> io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGHUP])?;
        let (sender, first) = channel();
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let mut stopping = false;
                for signal in signals.forever() {
                    match signal {
                        SIGUSR1 => reopen(),
                        SIGHUP => log::warn!(
                            "SIGHUP: reloading is not available yet; restart the server instead"
                        ),
                        SIGTERM | SIGINT if !stopping => {
                            stopping = true;
                            // Nobody listens any more: the process is ending already.
                            let _ = sender.send(signal);
                        }
                        _ => {
                            log::warn!("stopping at once: requests in flight are cut");
                            signal_hook::low_level::exit(SIGNALLED + signal);
                        }
                    }
                }
            })?;
        Ok(StopRequests { first })
    }

    /// Waits for the first request to stop.
    pub fn wait(&self) {
        // An error would mean that the signal thread is gone; then there is no way to be asked, and stopping is right.
        let _ = self.first.recv();
    }
}
