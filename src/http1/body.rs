//! The chunked transfer coding (RFC 9112 7.1) as a table of (state, byte class).
//!
//! Owns: where chunk data lies between the framing, and the bounds on framing. Must not: be lax
//! (httparse's chunk reader is: this is not built on it), keep or look at chunk data, give trailers
//! to anyone: they are checked, bounded and dropped. Runs on whichever thread owns the connection.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::event::RequestError;
use super::head::Limits;
use super::octets::TOKEN;

/// Bytes of one chunk-size line, its extensions included. Nobody sends extensions; who pads them
/// wants this to read at the price of nothing.
pub const CHUNK_LINE: u32 = 256;

/// Bytes of extensions in a whole body: without it, many small chunks with long extensions carry any
/// amount of bytes past the body's limit (400).
pub const EXTENSIONS: u32 = 16 * 1024;

/// Bytes of the trailer section. Trailers are dropped, so that this is only patience (431).
pub const TRAILERS: u32 = 8 * 1024;

/// What stands at the front of a chunked body's input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Data at this range; what is before it was framing.
    Data { body: Range<usize> },
    /// The whole input was framing.
    Framing,
    /// The body ended.
    Last { consumed: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SizeStart,
    Size,
    /// White space that only a `;` may follow (`BWS`, RFC 9112 7.1.1).
    BeforeSemicolon,
    NameStart,
    Name,
    AfterName,
    ValueStart,
    Value,
    Quoted,
    Escaped,
    AfterQuoted,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    Last,
    BadSize,
    BadExtension,
    BadEnd,
    BadTrailer,
}

/// Of what kind a byte of framing is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A hexadecimal digit, which is a `tchar` too.
    Hex,
    /// Any other `tchar`.
    Token,
    Blank,
    Semicolon,
    Equals,
    Quote,
    Backslash,
    Colon,
    Cr,
    Lf,
    /// Any other VCHAR, and obs-text.
    Visible,
    /// Any other control.
    Control,
}

const STATES: usize = State::BadTrailer as usize + 1;
const CLASSES: usize = Class::Control as usize + 1;

static CLASS: [Class; 256] = {
    let mut table = [Class::Visible; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = match b {
            b' ' | b'\t' => Class::Blank,
            b';' => Class::Semicolon,
            b'=' => Class::Equals,
            b'"' => Class::Quote,
            b'\\' => Class::Backslash,
            b':' => Class::Colon,
            b'\r' => Class::Cr,
            b'\n' => Class::Lf,
            0..=31 | 127 => Class::Control,
            _ if b.is_ascii_hexdigit() => Class::Hex,
            _ if TOKEN[byte] => Class::Token,
            _ => Class::Visible,
        };
        byte += 1;
    }
    table
};

/// Where a state goes when the table doesn't say: the fault that belongs to it.
const FAULTS: &[(State, State)] = {
    use State::*;
    &[
        (SizeStart, BadSize),
        (Size, BadSize),
        (BeforeSemicolon, BadExtension),
        (NameStart, BadExtension),
        (Name, BadExtension),
        (AfterName, BadExtension),
        (ValueStart, BadExtension),
        (Value, BadExtension),
        (Quoted, BadExtension),
        (Escaped, BadExtension),
        (AfterQuoted, BadExtension),
        (SizeLf, BadSize),
        (Data, BadEnd),
        (DataCr, BadEnd),
        (DataLf, BadEnd),
        (TrailerStart, BadTrailer),
        (TrailerName, BadTrailer),
        (TrailerValue, BadTrailer),
        (TrailerLf, BadTrailer),
        (LastLf, BadTrailer),
        (Last, BadTrailer),
        (BadSize, BadSize),
        (BadExtension, BadExtension),
        (BadEnd, BadEnd),
        (BadTrailer, BadTrailer),
    ]
};

/// `chunk`, `chunk-ext`, `trailer-section` of RFC 9112 7.1. `SizeLf` leads to `Data`; a size of zero
/// turns that into `TrailerStart`, and the data's end turns `Data` into `DataCr`.
const RULES: &[(State, &[Class], State)] = {
    use Class::*;
    use State::*;
    const QUOTABLE: &[Class] = &[Hex, Token, Blank, Semicolon, Equals, Colon, Visible];
    const ESCAPABLE: &[Class] = &[
        Hex,
        Token,
        Blank,
        Semicolon,
        Equals,
        Colon,
        Visible,
        Class::Quote,
        Backslash,
    ];
    &[
        (SizeStart, &[Hex], Size),
        (Size, &[Hex], Size),
        (Size, &[Blank], BeforeSemicolon),
        (Size, &[Semicolon], NameStart),
        (Size, &[Cr], SizeLf),
        (BeforeSemicolon, &[Blank], BeforeSemicolon),
        (BeforeSemicolon, &[Semicolon], NameStart),
        (NameStart, &[Blank], NameStart),
        (NameStart, &[Hex, Token], Name),
        (Name, &[Hex, Token], Name),
        (Name, &[Blank], AfterName),
        (Name, &[Equals], ValueStart),
        (Name, &[Semicolon], NameStart),
        (Name, &[Cr], SizeLf),
        (AfterName, &[Blank], AfterName),
        (AfterName, &[Equals], ValueStart),
        (AfterName, &[Semicolon], NameStart),
        (ValueStart, &[Blank], ValueStart),
        (ValueStart, &[Hex, Token], Value),
        (ValueStart, &[Class::Quote], Quoted),
        (Value, &[Hex, Token], Value),
        (Value, &[Blank], BeforeSemicolon),
        (Value, &[Semicolon], NameStart),
        (Value, &[Cr], SizeLf),
        (Quoted, QUOTABLE, Quoted),
        (Quoted, &[Backslash], Escaped),
        (Quoted, &[Class::Quote], AfterQuoted),
        (Escaped, ESCAPABLE, Quoted),
        (AfterQuoted, &[Blank], BeforeSemicolon),
        (AfterQuoted, &[Semicolon], NameStart),
        (AfterQuoted, &[Cr], SizeLf),
        (SizeLf, &[Lf], Data),
        (DataCr, &[Cr], DataLf),
        (DataLf, &[Lf], SizeStart),
        (TrailerStart, &[Hex, Token], TrailerName),
        (TrailerStart, &[Cr], LastLf),
        (TrailerName, &[Hex, Token], TrailerName),
        (TrailerName, &[Colon], TrailerValue),
        (TrailerValue, ESCAPABLE, TrailerValue),
        (TrailerValue, &[Cr], TrailerLf),
        (TrailerLf, &[Lf], TrailerStart),
        (LastLf, &[Lf], Last),
    ]
};

static TABLE: [[State; CLASSES]; STATES] = {
    let mut table = [[State::BadSize; CLASSES]; STATES];
    let mut i = 0;
    while i < FAULTS.len() {
        let (state, fault) = FAULTS[i];
        table[state as usize] = [fault; CLASSES];
        i += 1;
    }
    let mut i = 0;
    while i < RULES.len() {
        let (from, classes, to) = RULES[i];
        let mut j = 0;
        while j < classes.len() {
            table[from as usize][classes[j] as usize] = to;
            j += 1;
        }
        i += 1;
    }
    table
};

/// The position inside one chunked body.
#[derive(Clone, Debug)]
pub(super) struct ChunkReader {
    state: State,
    /// Before the data: the size as far as it was read. In the data: what is left of it.
    size: u64,
    /// Data bytes of all chunks announced so far; <= `Limits::body`.
    total: u64,
    /// Bytes of the present size line; <= `CHUNK_LINE`.
    line: u32,
    /// Bytes of extensions so far; <= `EXTENSIONS`.
    extensions: u32,
    /// Bytes of the trailer section so far; <= `TRAILERS`.
    trailers: u32,
}

impl Default for ChunkReader {
    fn default() -> Self {
        ChunkReader {
            state: State::SizeStart,
            size: 0,
            total: 0,
            line: 0,
            extensions: 0,
            trailers: 0,
        }
    }
}

impl ChunkReader {
    pub(super) fn next_piece(
        &mut self,
        input: &[u8],
        limits: &Limits,
    ) -> Result<Piece, RequestError> {
        let mut at = 0;
        loop {
            if self.state == State::Data {
                let rest = input.len() - at;
                let length = usize::try_from(self.size).map_or(rest, |left| left.min(rest));
                if length == 0 {
                    return Ok(Piece::Framing);
                }
                self.size -= length as u64;
                if self.size == 0 {
                    self.state = State::DataCr;
                }
                return Ok(Piece::Data {
                    body: at..at + length,
                });
            }
            let Some(&byte) = input.get(at) else {
                return Ok(Piece::Framing);
            };
            at += 1;
            self.take(byte, limits)?;
            if self.state == State::Last {
                return Ok(Piece::Last { consumed: at });
            }
        }
    }

    /// One byte of framing.
    fn take(&mut self, byte: u8, limits: &Limits) -> Result<(), RequestError> {
        let from = self.state;
        self.state = TABLE[from as usize][CLASS[byte as usize] as usize];
        match self.state {
            State::Size => {
                self.count_line()?;
                // A seventeenth digit would push the first one out; leading zeros may go.
                if self.size >> 60 != 0 {
                    return Err(RequestError::ChunkSizeOverflow);
                }
                self.size = self.size << 4 | u64::from(hex_value(byte));
            }
            State::BeforeSemicolon
            | State::NameStart
            | State::Name
            | State::AfterName
            | State::ValueStart
            | State::Value
            | State::Quoted
            | State::Escaped
            | State::AfterQuoted => {
                self.count_line()?;
                self.extensions += 1;
                if self.extensions > EXTENSIONS {
                    return Err(RequestError::ChunkExtensionTooLong);
                }
            }
            State::Data => {
                self.line = 0;
                if self.size == 0 {
                    self.state = State::TrailerStart;
                }
                self.total = self.total.saturating_add(self.size);
                if limits.body != 0 && self.total > limits.body {
                    return Err(RequestError::BodyTooLarge);
                }
            }
            State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerLf => {
                self.trailers += 1;
                if self.trailers > TRAILERS {
                    return Err(RequestError::TrailersTooLarge);
                }
            }
            State::BadSize => return Err(RequestError::ChunkSize),
            State::BadExtension => return Err(RequestError::ChunkExtension),
            State::BadEnd => return Err(RequestError::ChunkEnd),
            State::BadTrailer => return Err(RequestError::Trailer),
            State::SizeStart
            | State::SizeLf
            | State::DataCr
            | State::DataLf
            | State::LastLf
            | State::Last => {}
        }
        Ok(())
    }

    fn count_line(&mut self) -> Result<(), RequestError> {
        self.line += 1;
        if self.line > CHUNK_LINE {
            Err(RequestError::ChunkExtensionTooLong)
        } else {
            Ok(())
        }
    }
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
