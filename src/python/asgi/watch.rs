//! The watch over event loops (`--slow-callback-ms`): what holds one up is logged with its stack.
//!
//! Owns the watching thread and what it compares. It wakes each loop now and then; a loop that doesn't come round within
//! the limit is inside some callback of the application's, whichever task that belongs to, and the frames of its thread
//! say which. Without the setting there is no thread, and a turn pays for one comparison.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::super::fault;
use super::super::object::{Attached, Raised};
use super::super::thread::ThreadState;
use super::worker::glue;
use crate::event_loop::Mailbox;
use crate::observe::log::{self, Level};
use crate::sync::{Arc, AtomicUsize, Ordering};

/// How often an event loop came round.
#[derive(Debug, Default)]
pub struct Pulse {
    beats: AtomicUsize,
    /// As `threading.get_ident()` gives it.
    thread: AtomicUsize,
}

impl Pulse {
    #[inline]
    pub fn beat(&self) {
        // One writer; the watch only compares.
        let beats = self.beats.load(Ordering::Relaxed);
        self.beats.store(beats.wrapping_add(1), Ordering::Relaxed);
    }

    pub fn set_thread(&self, identity: usize) {
        self.thread.store(identity, Ordering::Relaxed);
    }
}

/// One loop, as the watch sees it.
pub struct Patient {
    pub pulse: Arc<Pulse>,
    pub mailbox: Arc<Mailbox>,
}

struct Chart {
    patient: Patient,
    beats: usize,
    since: Instant,
    told: bool,
}

/// Watches until the other end of `over` is dropped. For a thread of its own.
pub fn watch(patients: Vec<Patient>, limit: Duration, over: &Receiver<()>) {
    let state = ThreadState::make();
    let mut charts: Vec<Chart> = patients
        .into_iter()
        .map(|patient| Chart {
            patient,
            beats: 0,
            since: Instant::now(),
            told: false,
        })
        .collect();
    while over.recv_timeout(limit / 2) == Err(RecvTimeoutError::Timeout) {
        for chart in &mut charts {
            chart.look(limit, &state);
        }
    }
}

impl Chart {
    fn look(&mut self, limit: Duration, state: &ThreadState) {
        let beats = self.patient.pulse.beats.load(Ordering::Relaxed);
        let held = self.since.elapsed();
        if beats != self.beats {
            if std::mem::take(&mut self.told) {
                log::warn!("the event loop was held for {} ms", held.as_millis());
            }
            self.beats = beats;
            self.since = Instant::now();
        } else if held >= limit && !self.told {
            self.told = true;
            let thread = self.patient.pulse.thread.load(Ordering::Relaxed);
            state.attached(|py| tell(py, thread, held));
        }
        // An idle loop comes round for this; whether it has, the next look tells.
        self.patient.mailbox.ring();
    }
}

/// Logs what the thread is doing.
fn tell(py: Attached, thread: usize, held: Duration) {
    let found = (|| -> Result<(String, String), Raised> {
        let identity = py.int(thread as i64)?;
        let found = py.call_method(&glue(), c"holder", [&identity])?;
        super::worker::word_and_text(py, &found)
    })();
    match found {
        Ok((view, stack)) => py.detached(|| {
            log::record_with_traceback(
                Level::Warn,
                format_args!(
                    "the event loop has been held for {} ms by {view} (--slow-callback-ms)",
                    held.as_millis()
                ),
                &stack,
            );
        }),
        Err(raised) => fault::log_exception(py, raised, "looking at a held event loop"),
    }
}
