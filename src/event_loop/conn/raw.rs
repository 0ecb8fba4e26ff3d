//! A connection that left HTTP behind (RFC 9110 7.8): its bytes go to another protocol, its answers come from there.
//!
//! Owns reading for it. The request's head stays in front of the buffer, for the access log.

#![forbid(unsafe_code)]

use std::io;

use super::{BODY_READ, Connection, HEAD_READ};
use crate::exchange::Gone;
use crate::observe::counters::Counter;

/// A buffer that grew beyond this is given back when it is empty: most such connections are idle most of the time.
const KEEP: usize = 8 * 1024;

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawRead {
    Bytes,
    /// Nothing now; a knock tells when.
    Nothing,
    /// The client has ended its side.
    End,
}

impl Connection {
    /// The bytes that were not consumed yet, and the buffer for what is to be sent.
    pub fn raw(&mut self) -> (&mut [u8], &mut Vec<u8>) {
        self.exchange.raw(self.consumed)
    }

    pub fn consume_raw(&mut self, count: usize) {
        self.consumed += count;
    }

    /// One read.
    pub fn read_raw(&mut self) -> Result<RawRead, Gone> {
        let head = self.exchange.head.len as usize;
        let input = &mut self.exchange.input;
        if self.consumed > head {
            input.drain(head..self.consumed);
            self.consumed = head;
        }
        if !self.readable {
            if input.len() == head && input.capacity() > head + KEEP {
                input.shrink_to(head);
            }
            return Ok(RawRead::Nothing);
        }
        let spare = input.capacity() - input.len();
        // A read that filled its room is followed by a large one.
        let room = if input.len() > head {
            BODY_READ
        } else {
            HEAD_READ
        };
        if spare < room / 4 {
            input.reserve(room);
        }
        let spare = input.capacity() - input.len();
        match self.exchange.stream.recv(&mut self.exchange.input, spare) {
            Ok(0) => {
                self.readable = false;
                self.notice_hang_up();
                Ok(RawRead::End)
            }
            Ok(read) => {
                self.progressed = true;
                let counters = &self.exchange.common.counters;
                counters.add(Counter::Received, read as u64);
                if read < spare && !self.ended {
                    self.readable = false;
                }
                Ok(RawRead::Bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                self.read_raw()
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.read_raw(),
            Err(_) => Err(self.exchange.lose()),
        }
    }
}
