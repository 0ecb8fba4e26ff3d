//! The way of a response from its buffer, or from a file, to the client.
//!
//! Owns the system calls of sending, what is counted of them, and the waits for slow clients. Runs on whichever thread owns
//! the exchange; with the interpreter detached, please.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::{Ending, Exchange, Gone, Room, STREAM_MARK};
use crate::observe::counters::Counter;

/// How long a wait for a slow client lasts before the pool is told again that this thread streams.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// One system call sends at most this much of a file: others on the thread wait meanwhile, or the pool is to hear of a thread
/// that streams.
const FILE_SHARE: u64 = 512 * 1024;

/// Longer pieces of a body are sent from where they lie: copying them costs more than a system call.
const LARGE: usize = 32 * 1024;

/// Whether sending is tried with [`Exchange::push`] already: with the interpreter detached, please.
pub fn is_large(chunk: &[u8]) -> bool {
    chunk.len() > LARGE
}

impl Exchange {
    /// Sends what is buffered and the piece behind it as far as the socket takes them, and buffers the rest.
    /// True if something was sent.
    pub(super) fn push_large(&mut self, chunk: &[u8]) -> bool {
        let mut sent = 0;
        let allowed = self.writer.data_frame(chunk.len() as u64, &mut self.out);
        let mut rest = &chunk[..allowed as usize];
        if !rest.is_empty() && self.ending != Ending::Gone {
            let pending = self.pending();
            match self.stream.send_two(&self.out[self.sent..], rest) {
                Ok(n) => {
                    sent = n;
                    self.common.counters.add(Counter::Sent, n as u64);
                    self.sent += n.min(pending);
                    rest = &rest[n.saturating_sub(pending)..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Whoever flushes next is told.
                Err(_) => drop(self.lose()),
            }
        }
        if self.pending() == 0 {
            self.out.clear();
            self.sent = 0;
        }
        self.out.extend_from_slice(rest);
        self.writer.data_frame_end(&mut self.out);
        sent > 0
    }

    /// Sends what the socket takes and never blocks. With the interpreter detached, please.
    pub fn flush(&mut self) -> Result<Room, Gone> {
        if self.ending == Ending::Gone {
            // Sending on would leave a hole in what the client has.
            return Err(self.lose());
        }
        if self.writer.head_written() && !self.writer.is_ended() {
            self.common.streams();
        }
        while self.sent < self.out.len() {
            match self.stream.send(&self.out[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    self.common.counters.add(Counter::Sent, n as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.sent > STREAM_MARK {
                        self.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(if self.pending() > STREAM_MARK {
                        Room::Full
                    } else {
                        Room::Free
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(self.lose()),
            }
        }
        self.out.clear();
        self.sent = 0;
        if self.ending == Ending::Reset {
            Err(Gone)
        } else {
            Ok(Room::Free)
        }
    }

    /// Waits until what is buffered is below the mark. Blocks: only if `may_wait`, with the interpreter detached.
    pub fn wait_room(&mut self) -> Result<(), Gone> {
        self.wait_below(STREAM_MARK)
    }

    /// Waits until everything buffered was sent.
    pub fn wait_empty(&mut self) -> Result<(), Gone> {
        self.wait_below(0)
    }

    fn wait_below(&mut self, mark: usize) -> Result<(), Gone> {
        debug_assert!(self.may_wait());
        let mut silent = Duration::ZERO;
        loop {
            let before = self.pending();
            self.flush()?;
            if self.pending() <= mark {
                return Ok(());
            }
            silent = if self.pending() < before {
                WAIT_STEP
            } else {
                silent + WAIT_STEP
            };
            if !self
                .stream
                .wait_writable(WAIT_STEP)
                .map_err(|_| self.lose())?
                && silent >= self.write_timeout()
            {
                return Err(self.lose());
            }
        }
    }

    /// Announces a piece of the body that is sent from a file: how many of `len` bytes may follow.
    pub fn open_file(&mut self, len: u64) -> u64 {
        self.writer.data_frame(len, &mut self.out)
    }

    /// Sends from `position` on without copying through this process, as far as the socket takes it. True when `end` is
    /// reached. Never blocks on the socket.
    pub fn pump_file(&mut self, file: &File, position: &mut u64, end: u64) -> Result<bool, Gone> {
        self.flush()?;
        while *position < end {
            if self.pending() > 0 {
                return Ok(false);
            }
            let count = (end - *position).min(FILE_SHARE) as usize;
            let before = *position;
            match rustix::fs::sendfile(&self.stream, file, Some(position), count) {
                Ok(0) => {
                    // The file is shorter than its length said: the announced body can't be completed.
                    self.abort();
                    return Err(Gone);
                }
                Ok(_) => {
                    let sent = *position - before;
                    self.body_bytes += sent;
                    self.common.counters.add(Counter::Sent, sent);
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(self.lose()),
            }
        }
        Ok(true)
    }

    /// Ends the piece that `open_file` announced.
    pub fn close_file(&mut self) {
        self.writer.data_frame_end(&mut self.out);
    }

    /// Sends `len` bytes of `file` from `offset` on without copying them through this process. Blocks like `wait_empty`.
    pub fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<u64, Gone> {
        let allowed = self.writer.data_frame(len, &mut self.out);
        let mut position = offset;
        let end = offset + allowed;
        self.wait_empty()?;
        let mut silent = Duration::ZERO;
        while position < end {
            let count = (end - position).min(FILE_SHARE) as usize;
            match rustix::fs::sendfile(&self.stream, file, Some(&mut position), count) {
                Ok(0) => {
                    // The file is shorter than its length said: the announced body can't be completed.
                    self.abort();
                    return Err(Gone);
                }
                Ok(sent) => {
                    silent = Duration::ZERO;
                    self.body_bytes += sent as u64;
                    self.common.counters.add(Counter::Sent, sent as u64);
                    self.common.streams();
                }
                Err(rustix::io::Errno::AGAIN) => {
                    self.common.streams();
                    match self.stream.wait_writable(WAIT_STEP) {
                        Ok(true) => {}
                        Ok(false) if silent < self.write_timeout() => silent += WAIT_STEP,
                        Ok(false) | Err(_) => return Err(self.lose()),
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(self.lose()),
            }
        }
        self.writer.data_frame_end(&mut self.out);
        Ok(allowed)
    }

    fn write_timeout(&self) -> Duration {
        self.common.timeouts.write
    }

    /// How long an answer is of which nothing was sent; 0 for others.
    pub(crate) fn unsent(&self) -> usize {
        match self.sent {
            0 => self.out.len(),
            _ => 0,
        }
    }

    /// Bytes that wait for the client to read.
    pub fn pending(&self) -> usize {
        self.out.len() - self.sent
    }

    pub(crate) fn lose(&mut self) -> Gone {
        self.ending = Ending::Gone;
        self.out.clear();
        self.sent = 0;
        Gone
    }
}
