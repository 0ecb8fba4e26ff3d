//! Collecting request bodies: in place while they are small and whole, then in memory, then in a temporary file.
//! Only whole requests reach the application, so a slow upload costs a buffer, never a thread.

#![forbid(unsafe_code)]

use std::io::{self, BufWriter, Seek, Write};
use std::ops::Range;

use crate::exchange::{Collected, Exchange};
use crate::http1::Framing;

/// A body up to this size stays in memory; a larger one goes to an unlinked temporary file (in `$TMPDIR`).
/// Large enough for forms and JSON, small enough that a hundred uploads at once fit into a small machine.
const IN_MEMORY: usize = 512 * 1024;
/// Pieces are written to the file in blocks of this size: a client that sends tiny chunks must not cost a system call each.
const BLOCK: usize = 64 * 1024;

/// Takes the body bytes at `range` of the input.
pub(super) fn collect(exchange: &mut Exchange, range: Range<usize>) -> io::Result<()> {
    let piece = &exchange.input[range.clone()];
    match &mut exchange.body {
        Collected::Nothing if exchange.head.framing == Framing::Length(range.len() as u64) => {
            exchange.body = Collected::InPlace(range);
        }
        Collected::Nothing => {
            exchange.body = Collected::Memory(Vec::new());
            return collect(exchange, range);
        }
        Collected::Memory(bytes) if bytes.len() + piece.len() <= IN_MEMORY => {
            bytes.extend_from_slice(piece)
        }
        Collected::Memory(bytes) => {
            let mut file = BufWriter::with_capacity(BLOCK, tempfile::tempfile()?);
            file.write_all(bytes)?;
            file.write_all(piece)?;
            exchange.body = Collected::Spooled(file, (bytes.len() + piece.len()) as u64);
        }
        Collected::Spooled(file, len) => {
            file.write_all(piece)?;
            *len += piece.len() as u64;
        }
        Collected::InPlace(_) => unreachable!("a body in place was whole"),
    }
    Ok(())
}

/// The body is whole: a spooled one is read from its start.
pub(super) fn rewind(exchange: &mut Exchange) -> io::Result<()> {
    if let Collected::Spooled(file, _) = &mut exchange.body {
        file.rewind()?;
    }
    Ok(())
}
