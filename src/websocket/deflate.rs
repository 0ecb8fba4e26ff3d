//! Message compression (RFC 7692): one compressor and one decompressor for each connection that wants them.
//!
//! Owns: what was agreed on, the two DEFLATE streams, their lives. Must not: negotiate (`extension`),
//! check text. Runs on whichever thread owns the connection.
//!
//! What zlib-rs takes was measured: 370 KiB for a compressor (250 KiB with the smallest window), 46 KiB for a
//! decompressor whatever the window, 2 to 3 µs for making the one, 0.3 µs for the other. So a connection keeps a
//! stream between messages only if its context was agreed on. Without, the decompressor goes at its message's end, and all
//! connections of a thread share one compressor. Even a compressor that was agreed on can go at any time (`release`): a client can't
//! tell one that forgot its window from one that found nothing in it.
#![forbid(unsafe_code)]

use std::cell::Cell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::frame::{LONGEST_WRITTEN, Opcode, header};

/// What the server wants of permessage-deflate. What a client asks for beyond that, it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateSettings {
    /// The server's compressor keeps its window from message to message. Small messages that are alike then shrink to a
    /// sixth instead of a half, for 370 KiB a connection. Off: a thousand connections that a message goes out to
    /// are more common than ones that have the memory to spare.
    pub context_takeover: bool,
    /// The same of the client's: 46 KiB a connection that has sent a compressed message. Off, as above.
    pub client_context_takeover: bool,
    /// 1 (fast) to 9 (small). 1: a third of level 6's time, for output a third to two thirds longer.
    pub level: u8,
    /// A shorter message goes as it is. 64: TCP and IP spend as much on a packet.
    pub min_size: usize,
}

impl Default for DeflateSettings {
    fn default() -> Self {
        DeflateSettings {
            context_takeover: false,
            client_context_takeover: false,
            level: 1,
            min_size: 64,
        }
    }
}

/// What client and server agreed on. The client's window isn't limited: that would save nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// 9..=15.
    pub server_bits: u8,
    pub server_takeover: bool,
    pub client_takeover: bool,
    pub level: u8,
    pub min_size: usize,
}

#[derive(Debug)]
pub(super) struct Deflate {
    agreed: Agreed,
    /// With context takeover only.
    compressor: Option<Compress>,
    inflater: Option<Decompress>,
}

/// What one step of decompression came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inflated {
    /// The piece is used up, and all it stands for was written.
    All,
    /// There is more.
    Some,
    /// The limit is reached, and there is more.
    TooMuch,
    Corrupt,
}

/// The end of what a sync flush writes, which the sender leaves out (RFC 7692 7.2.1).
pub(super) const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Room for decompressed bytes made at first; later as much again as there is.
const ROOM: usize = 1024;

impl Deflate {
    pub(super) fn new(agreed: Agreed) -> Deflate {
        Deflate {
            agreed,
            compressor: None,
            inflater: None,
        }
    }

    pub(super) fn wants(&self, payload: &[u8]) -> bool {
        // An empty message has no compressed form that a sync flush would write.
        payload.len() >= self.agreed.min_size.max(1)
    }

    /// A whole message as one frame.
    pub(super) fn write_frame(&mut self, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
        let agreed = self.agreed;
        if agreed.server_takeover {
            let compressor = self.compressor.get_or_insert_with(|| agreed.compressor());
            write_frame(compressor, opcode, payload, out);
        } else {
            let kind = (agreed.level, agreed.server_bits);
            let spare = SPARE.take().filter(|(other, _)| *other == kind);
            let mut compressor = match spare {
                Some((_, mut compressor)) => {
                    compressor.reset();
                    compressor
                }
                None => agreed.compressor(),
            };
            write_frame(&mut compressor, opcode, payload, out);
            SPARE.set(Some((kind, compressor)));
        }
    }

    /// Decompresses from `piece`, which it shortens, to the end of `message`, which doesn't grow beyond `max`.
    pub(super) fn inflate(
        &mut self,
        piece: &mut &[u8],
        message: &mut Vec<u8>,
        max: usize,
    ) -> Inflated {
        let inflater = self.inflater.get_or_insert_with(|| Decompress::new(false));
        if message.len() == message.capacity() {
            // One byte beyond the limit is enough to know.
            let left = (max - message.len()).saturating_add(1);
            message.reserve_exact(message.len().max(ROOM).min(left));
        }
        let (begin, length) = (inflater.total_in(), message.len());
        let status = inflater.decompress_vec(piece, message, FlushDecompress::Sync);
        let used = (inflater.total_in() - begin) as usize;
        *piece = &piece[used..];
        let stuck = used == 0 && message.len() == length;
        let full = message.len() == message.capacity();
        let too_much = message.len() > max;
        message.truncate(max);
        match status {
            Err(_) => Inflated::Corrupt,
            _ if too_much => Inflated::TooMuch,
            // A block marked as the last: the sender began a new stream behind it (RFC 7692 7.2.3.4).
            Ok(Status::StreamEnd) => {
                inflater.reset(false);
                match piece {
                    [] => Inflated::All,
                    _ => Inflated::Some,
                }
            }
            Ok(_) if full => Inflated::Some,
            Ok(_) if piece.is_empty() => Inflated::All,
            Ok(_) if stuck => Inflated::Corrupt,
            Ok(_) => Inflated::Some,
        }
    }

    /// A compressed message has been decompressed, `TAIL` included.
    pub(super) fn end_of_message(&mut self) {
        if !self.agreed.client_takeover {
            self.inflater = None;
        }
    }

    /// Gives back what can be made again.
    pub(super) fn release(&mut self) {
        self.compressor = None;
    }

    #[cfg(test)]
    pub(super) fn holds(&self) -> (bool, bool) {
        (self.compressor.is_some(), self.inflater.is_some())
    }
}

thread_local! {
    /// The thread's compressor for messages without context, with its level and window bits.
    static SPARE: Cell<Option<((u8, u8), Compress)>> = const { Cell::new(None) };
}

impl Agreed {
    fn compressor(self) -> Compress {
        let level = Compression::new(u32::from(self.level));
        Compress::new_with_window_bits(level, false, self.server_bits)
    }
}

fn write_frame(compressor: &mut Compress, opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let body = start + LONGEST_WRITTEN;
    out.reserve(LONGEST_WRITTEN + ROOM.max(payload.len() / 2));
    out.resize(body, 0);
    let begin = compressor.total_in();
    loop {
        let used = (compressor.total_in() - begin) as usize;
        compressor
            .compress_vec(&payload[used..], out, FlushCompress::Sync)
            .expect("a compressor takes any bytes");
        let used = (compressor.total_in() - begin) as usize;
        // Room left over says that the flush is complete (zlib.h, deflate).
        if used == payload.len() && out.len() < out.capacity() {
            break;
        }
        out.reserve(ROOM.max(out.len() - body));
    }
    debug_assert!(out[body..].ends_with(&TAIL));
    out.truncate(out.len() - TAIL.len());

    // The header's length is known only now.
    let (bytes, size) = header(opcode, true, out.len() - body);
    out[start..start + size].copy_from_slice(&bytes[..size]);
    out.copy_within(body.., start + size);
    out.truncate(out.len() - (LONGEST_WRITTEN - size));
}
