//! Buffers that idle connections lay down and busy ones pick up. Belongs to a loop and moves with it.

#![forbid(unsafe_code)]

use crate::http1::Field;

/// A buffer that grew beyond this is freed, not kept for the next request.
const KEEP_CAPACITY: usize = 32 * 1024;

pub(super) struct BufferSet {
    pub(super) input: Vec<u8>,
    pub(super) out: Vec<u8>,
    pub(super) fields: Vec<Field>,
}

/// Buffers between two connections' use, one set per loop. Last in, first out: the hottest set is used next.
#[derive(Default)]
pub(crate) struct SpareBuffers {
    sets: Vec<BufferSet>,
}

impl SpareBuffers {
    /// As many sets as a batch of readiness events can use at once.
    const KEEP: usize = 64;

    pub(super) fn next(&mut self) -> BufferSet {
        self.sets.pop().unwrap_or_else(|| BufferSet {
            input: Vec::with_capacity(4096),
            out: Vec::with_capacity(1024),
            fields: Vec::with_capacity(16),
        })
    }

    pub(super) fn keep(&mut self, set: BufferSet) {
        if self.sets.len() < Self::KEEP
            && set.input.capacity() > 0
            && set.input.capacity() <= KEEP_CAPACITY
            && set.out.capacity() <= KEEP_CAPACITY
        {
            self.sets.push(set);
        }
    }
}
