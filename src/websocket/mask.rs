//! The client's masking (RFC 6455 5.3), undone in place.
//!
//! Owns: the exclusive or of a payload with its frame's key, eight bytes at a time. Must not: know of
//! frames. Any thread.
#![forbid(unsafe_code)]

/// `mask[0]` belongs to `bytes[0]`.
pub(super) fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= key;
    }
}

/// The key for what follows the first `taken` bytes of a payload.
pub(super) fn after(mut mask: [u8; 4], taken: usize) -> [u8; 4] {
    mask.rotate_left(taken % 4);
    mask
}
