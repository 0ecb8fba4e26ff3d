//! Frame headers (RFC 6455 5.2), read strictly and written minimally.
//!
//! Owns: the tables of opcodes and of length forms. Must not: touch a payload, know which frame may
//! follow which (`state`). Any thread.
#![forbid(unsafe_code)]

use super::close::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

/// What a frame of one opcode may be.
struct Kind {
    opcode: Opcode,
    /// May be without FIN, may be beyond 125 bytes (RFC 6455 5.5).
    data: bool,
    /// May have RSV1, the mark of a compressed message: on its first frame only (RFC 7692 6).
    compressed: bool,
}

static KINDS: [Option<Kind>; 16] = {
    const fn kind(opcode: Opcode, data: bool, compressed: bool) -> Option<Kind> {
        Some(Kind {
            opcode,
            data,
            compressed,
        })
    }
    [
        kind(Opcode::Continuation, true, false),
        kind(Opcode::Text, true, true),
        kind(Opcode::Binary, true, true),
        None,
        None,
        None,
        None,
        None,
        kind(Opcode::Close, false, false),
        kind(Opcode::Ping, false, false),
        kind(Opcode::Pong, false, false),
        None,
        None,
        None,
        None,
        None,
    ]
};

/// Bytes of payload that a control frame can have (RFC 6455 5.5).
pub(super) const CONTROL: usize = 125;

/// A length beyond the seven bits: their value that says so, bytes that follow, the least length that
/// needs them (RFC 6455 5.2: "the minimal number of bytes MUST be used").
const LENGTHS: [(u8, usize, u64); 2] = [(126, 2, 126), (127, 8, 1 << 16)];

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2_RSV3: u8 = 0x30;
const MASKED: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub fin: bool,
    pub rsv1: bool,
    pub opcode: Opcode,
    /// < 2^63.
    pub len: u64,
    pub mask: [u8; 4],
    /// Bytes of this header; <= 14: two, eight of length, the key.
    pub size: usize,
}

/// `None`: it isn't all there. A broken rule is reported by the byte that breaks it, whether or not
/// the rest has come. `deflate`: permessage-deflate was agreed on.
#[inline]
pub(super) fn read_header(input: &[u8], deflate: bool) -> Result<Option<FrameHeader>, Failure> {
    let Some(&first) = input.first() else {
        return Ok(None);
    };
    let (fin, rsv1) = (first & FIN != 0, first & RSV1 != 0);
    if first & RSV2_RSV3 != 0 || (rsv1 && !deflate) {
        return Err(Failure::protocol("a reserved bit is set"));
    }
    let Some(kind) = &KINDS[usize::from(first & 0xf)] else {
        return Err(Failure::protocol("a reserved opcode"));
    };
    if rsv1 && !kind.compressed {
        return Err(Failure::protocol(
            "RSV1 on a frame that can't begin a message",
        ));
    }
    if !fin && !kind.data {
        return Err(Failure::protocol("a fragmented control frame"));
    }

    let Some(&second) = input.get(1) else {
        return Ok(None);
    };
    if second & MASKED == 0 {
        return Err(Failure::protocol("a frame that is not masked"));
    }
    let short = second & !MASKED;
    if usize::from(short) > CONTROL && !kind.data {
        return Err(Failure::protocol("a control frame beyond 125 bytes"));
    }
    let (mut len, mut size) = (u64::from(short), 2);
    for (form, bytes, least) in LENGTHS {
        if short == form {
            let Some(digits) = input.get(2..2 + bytes) else {
                return Ok(None);
            };
            len = digits
                .iter()
                .fold(0, |len, &digit| len << 8 | u64::from(digit));
            if len < least {
                return Err(Failure::protocol("a length in more bytes than it needs"));
            }
            if len >= 1 << 63 {
                return Err(Failure::protocol("a length of 2^63 or beyond"));
            }
            size += bytes;
        }
    }
    let Some(&mask) = input[size..].first_chunk::<4>() else {
        return Ok(None);
    };
    Ok(Some(FrameHeader {
        fin,
        rsv1,
        opcode: kind.opcode,
        len,
        mask,
        size: size + 4,
    }))
}

/// The longest header that a server writes: it masks nothing.
pub(super) const LONGEST_WRITTEN: usize = 10;

/// A header for a whole message or a control frame, with how many of the bytes are it.
#[inline]
pub(super) fn header(opcode: Opcode, rsv1: bool, len: usize) -> ([u8; LONGEST_WRITTEN], usize) {
    let mut bytes = [0; LONGEST_WRITTEN];
    bytes[0] = FIN | if rsv1 { RSV1 } else { 0 } | opcode as u8;
    let len = len as u64;
    for (form, size, least) in LENGTHS.into_iter().rev() {
        if len >= least {
            bytes[1] = form;
            bytes[2..2 + size].copy_from_slice(&len.to_be_bytes()[8 - size..]);
            return (bytes, 2 + size);
        }
    }
    bytes[1] = len as u8;
    (bytes, 2)
}

#[inline]
pub(super) fn write_header(opcode: Opcode, len: usize, out: &mut Vec<u8>) {
    let (bytes, size) = header(opcode, false, len);
    out.extend_from_slice(&bytes[..size]);
}
