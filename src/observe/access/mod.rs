//! The access log: a line for each response.
//!
//! Owns the file, the lines that wait for it and the thread that writes them. Must not make anyone wait for the disk: a
//! thread that logs formats its line and appends it to a buffer under a lock held for one memcpy; the writer takes the
//! buffer when it is 64 KiB or a tenth of a second old, whichever comes first, and writes it with one call. It sleeps
//! while there is nothing to write. When the disk stalls so long that 8 MiB wait, lines are dropped and counted.

mod format;

pub use format::{Format, FormatError, Logged};

use std::cell::RefCell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags};

use super::log;

/// The writer comes at once when so much waits: large writes, and a buffer that stays small.
const BATCH: usize = 64 * 1024;
/// The writer comes so long after the first line at the latest: `tail -f` feels live, and a busy server wakes it ten times
/// a second, not once per request.
const DELAY: Duration = Duration::from_millis(100);
/// So much may wait while the disk stalls: half a second of a busy server's lines.
const WAITING_LIMIT: usize = 8 * 1024 * 1024;
/// How long the end of the process waits for a stalled disk or pipe.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Stdout,
    /// Appended to; made if it doesn't exist.
    File(PathBuf),
}

impl FromStr for Target {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Target, Self::Err> {
        Ok(match text {
            "-" => Target::Stdout,
            path => Target::File(path.into()),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Stdout => f.write_str("-"),
            Target::File(path) => path.display().fmt(f),
        }
    }
}

impl Target {
    fn open(&self) -> io::Result<File> {
        match self {
            // A descriptor of our own: std's handle would buffer lines once more.
            Target::Stdout => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
            Target::File(path) => OpenOptions::new().append(true).create(true).open(path),
        }
    }
}

/// An open access log. Shared by all threads that finish responses; dropping it writes what waits.
#[derive(Debug)]
pub struct AccessLog {
    format: Format,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The writer waits here for lines; `close` waits here for the writer's end.
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    reopen: bool,
    closing: bool,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that could panic runs under the lock; a poisoned log still is a log.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// Each thread formats into its own memory, outside the lock.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// Opens the target and starts the writer's thread.
    pub fn open(target: Target, format: Format) -> io::Result<AccessLog> {
        let file = target.open().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot open the access log {target}: {error}"),
            )
        })?;
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            target,
            file,
            shared: Arc::clone(&shared),
            failing: false,
        };
        let writer = std::thread::Builder::new()
            .name("m0-access-log".into())
            .spawn(move || writer.run())?;
        Ok(AccessLog {
            format,
            shared,
            writer: Some(writer),
        })
    }

    /// Adds the line of a response that has ended just now.
    pub fn log(&self, what: &impl Logged) {
        LINE.with_borrow_mut(|line| {
            line.clear();
            self.format.write_line(what, SystemTime::now(), line);
            self.append(line);
        });
    }

    fn append(&self, line: &[u8]) {
        let mut state = self.shared.lock();
        let before = state.lines.len();
        if before + line.len() > WAITING_LIMIT {
            drop(state);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.lines.extend_from_slice(line);
        let after = state.lines.len();
        drop(state);
        // The writer waits for the first line, then for a batch; all others are found by it without a wake-up.
        if before == 0 || (before < BATCH && after >= BATCH) {
            self.shared.changed.notify_one();
        }
    }

    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Closes the file and opens its path anew: somebody renamed it to rotate it. What waits goes to the old one.
    pub fn reopen(&self) {
        self.shared.lock().reopen = true;
        self.shared.changed.notify_one();
    }

    /// Lines lost because the disk was full or too slow.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl AccessLog {
    /// Writes what waits and ends. Lines that come later are lost.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.changed.notify_all();
        // A pipe whose reader is stuck must not keep the process from ending.
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, CLOSE_PATIENCE, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        let ended = state.ended;
        drop(state);
        if !ended {
            log::error!(
                "the access log could not be written to its end: its target does not take it"
            );
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
        let ended = self.shared.lock().ended;
        if let (true, Some(writer)) = (ended, self.writer.take()) {
            // A writer that panicked has said so itself.
            let _ = writer.join();
        }
    }
}

/// What the writer's thread owns.
struct Writer {
    target: Target,
    file: File,
    shared: Arc<Shared>,
    /// The last write failed: said once, until one succeeds again.
    failing: bool,
}

impl Writer {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut batch = Vec::new();
        loop {
            let state = shared.lock();
            let idle =
                |state: &mut State| state.lines.is_empty() && !state.reopen && !state.closing;
            let state = shared
                .changed
                .wait_while(state, idle)
                .unwrap_or_else(PoisonError::into_inner);
            let filling =
                |state: &mut State| state.lines.len() < BATCH && !state.reopen && !state.closing;
            let (mut state, _) = shared
                .changed
                .wait_timeout_while(state, DELAY, filling)
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut state.lines, &mut batch);
            let (reopen, closing) = (std::mem::take(&mut state.reopen), state.closing);
            drop(state);

            self.write(&batch);
            batch.clear();
            // After a stall the memory goes back.
            batch.shrink_to(4 * BATCH);
            if reopen {
                self.reopen();
            }
            if closing {
                // What was logged during the last write is rest enough for one more round.
                let mut state = shared.lock();
                if state.lines.is_empty() {
                    state.ended = true;
                    drop(state);
                    shared.changed.notify_all();
                    return;
                }
            }
        }
    }

    fn write(&mut self, lines: &[u8]) {
        match write_all(&mut self.file, lines) {
            Ok(()) => self.failing = false,
            Err((written, error)) => {
                let lost = lines[written..]
                    .iter()
                    .filter(|&&byte| byte == b'\n')
                    .count();
                self.shared
                    .dropped
                    .fetch_add(lost as u64, Ordering::Relaxed);
                if !self.failing {
                    log::error!(
                        "the access log {} cannot be written, lines are lost: {error}",
                        self.target
                    );
                }
                self.failing = true;
            }
        }
    }

    fn reopen(&mut self) {
        match self.target.open() {
            Ok(file) => self.file = file,
            Err(error) => {
                log::error!(
                    "the access log {} cannot be reopened, the old file stays: {error}",
                    self.target
                );
            }
        }
    }
}

/// Like `Write::write_all`, but says how far it came, and waits where standard output was made non-blocking by whoever
/// shares it.
fn write_all(file: &mut File, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let writable =
                    rustix::event::poll(&mut [PollFd::new(&*file, PollFlags::OUT)], None);
                if let Err(error) = writable.map_err(io::Error::from)
                    && error.kind() != io::ErrorKind::Interrupted
                {
                    return Err((written, error));
                }
            }
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
