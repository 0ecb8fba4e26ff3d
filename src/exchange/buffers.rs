//! Buffers that idle connections lay down and busy ones pick up. Belongs to a loop and moves with it.

#![forbid(unsafe_code)]

use crate::http1::Field;

/// A buffer that grew beyond this is large.
const SMALL: usize = 32 * 1024;

/// One that grew beyond this is freed, not kept for the next request.
const KEEP_CAPACITY: usize = 160 * 1024;

pub(super) struct BufferSet {
    pub(super) input: Vec<u8>,
    pub(super) out: Vec<u8>,
    pub(super) fields: Vec<Field>,
}

/// Buffers between two connections' use, one set per loop. Last in, first out: the hottest set is used next.
#[derive(Default)]
pub(crate) struct SpareBuffers {
    sets: Vec<BufferSet>,
    /// How many of them are large.
    large: usize,
}

impl SpareBuffers {
    /// As many sets as a batch of readiness events can use at once.
    const KEEP: usize = 64;

    /// A few of them may be large. Memory that is freed and asked for again with each upload may have gone back to the
    /// system in between, and then each of its pages faults (docs/performance.md).
    const KEEP_LARGE: usize = 8;

    pub(super) fn next(&mut self) -> BufferSet {
        let Some(set) = self.sets.pop() else {
            return BufferSet {
                input: Vec::with_capacity(4096),
                out: Vec::with_capacity(1024),
                fields: Vec::with_capacity(16),
            };
        };
        self.large -= usize::from(set.capacity() > SMALL);
        set
    }

    pub(super) fn keep(&mut self, set: BufferSet) {
        let capacity = set.capacity();
        let is_large = capacity > SMALL;
        if self.sets.len() < Self::KEEP
            && set.input.capacity() > 0
            && capacity <= KEEP_CAPACITY
            && !(is_large && self.large == Self::KEEP_LARGE)
        {
            self.large += usize::from(is_large);
            self.sets.push(set);
        }
    }
}

impl BufferSet {
    /// The larger buffer's.
    fn capacity(&self) -> usize {
        self.input.capacity().max(self.out.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(capacity: usize) -> BufferSet {
        BufferSet {
            input: Vec::with_capacity(capacity),
            out: Vec::new(),
            fields: Vec::new(),
        }
    }

    fn kept(spare: &mut SpareBuffers) -> Vec<usize> {
        let mut capacities = Vec::new();
        while !spare.sets.is_empty() {
            capacities.push(spare.next().capacity());
        }
        capacities
    }

    #[test]
    fn a_few_large_sets_are_kept_among_the_small_ones() {
        let mut spare = SpareBuffers::default();
        for _ in 0..2 {
            for _ in 0..2 * SpareBuffers::KEEP_LARGE {
                spare.keep(set(SMALL + 1));
                spare.keep(set(4096));
            }
            let capacities = kept(&mut spare);
            let large = capacities.iter().filter(|capacity| **capacity > SMALL);
            assert_eq!(large.count(), SpareBuffers::KEEP_LARGE);
            assert_eq!(capacities.len(), 3 * SpareBuffers::KEEP_LARGE);
        }
    }

    #[test]
    fn too_large_too_many_and_empty_ones_are_freed() {
        let mut spare = SpareBuffers::default();
        spare.keep(set(KEEP_CAPACITY + 1));
        spare.keep(set(0));
        assert!(kept(&mut spare).is_empty());
        for _ in 0..2 * SpareBuffers::KEEP {
            spare.keep(set(1));
        }
        assert_eq!(kept(&mut spare).len(), SpareBuffers::KEEP);
    }
}
