//! A message in the making: its bytes so far, checked as they come.
//!
//! Owns: the buffer of a message that isn't one frame in one read, its limit, and UTF-8 across its
//! pieces. Must not: know of frames. Runs on whichever thread owns the connection.
#![forbid(unsafe_code)]

use super::close::Failure;
use super::deflate::Inflated;

pub(super) const NOT_UTF8: Failure = Failure::payload("text that is not UTF-8");

/// Room made at once for a message whose first frame announces its length: never more on a client's mere
/// word.
const FIRST_ROOM: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
    /// Of `bytes`, known to be UTF-8: whole characters. `checked <= bytes.len()`, and less than four
    /// bytes behind it between calls if the message is text.
    checked: usize,
    pub text: bool,
    pub compressed: bool,
}

impl Message {
    /// `announced`: the first frame's length.
    pub(super) fn begin(&mut self, text: bool, compressed: bool, announced: u64) {
        debug_assert!(self.bytes.is_empty());
        (self.text, self.compressed) = (text, compressed);
        if !compressed {
            let room = usize::try_from(announced).unwrap_or(FIRST_ROOM);
            self.bytes.reserve(room.min(FIRST_ROOM));
        }
    }

    /// The caller has compared the frame's length with the limit.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), Failure> {
        self.bytes.extend_from_slice(piece);
        self.check()
    }

    /// `next` decompresses a piece after the other to the buffer, which it doesn't let grow beyond `max`.
    pub(super) fn inflate(
        &mut self,
        mut next: impl FnMut(&mut Vec<u8>) -> Inflated,
    ) -> Result<(), Failure> {
        loop {
            let inflated = next(&mut self.bytes);
            // First what has been decompressed, so that the error doesn't depend on the pieces' sizes.
            self.check()?;
            match inflated {
                Inflated::All => return Ok(()),
                Inflated::Some => {}
                Inflated::TooMuch => return Err(Failure::TOO_BIG),
                Inflated::Corrupt => {
                    return Err(Failure::payload("compressed data that is corrupt"));
                }
            }
        }
    }

    /// No piece follows. What is there stays until `clear`.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        if self.text && self.checked < self.bytes.len() {
            return Err(NOT_UTF8);
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives the memory back, too: idle connections are many, and a message that takes more than one
    /// read costs more than an allocation.
    pub(super) fn clear(&mut self) {
        self.bytes = Vec::new();
        self.checked = 0;
    }

    /// Fails at the first byte that can't belong to UTF-8 (RFC 6455 8.1), waiting for neither the frame's
    /// nor the character's end.
    fn check(&mut self) -> Result<(), Failure> {
        if !self.text {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[self.checked..]) {
            Ok(_) => self.checked = self.bytes.len(),
            Err(error) => {
                self.checked += error.valid_up_to();
                if error.error_len().is_some() {
                    return Err(NOT_UTF8);
                }
            }
        }
        Ok(())
    }
}
