//! Close codes, the payload of a Close frame, and what breaks a connection.
//!
//! Owns: which codes may be on the wire, how a Close frame's payload is read and written, [`Failure`].
//! Must not: decide when to close. Any thread.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::RangeInclusive;

use super::frame::{Opcode, write_header};

/// Close codes by name (RFC 6455 7.4.1, and IANA's registry of WebSocket close code numbers).
pub mod code {
    /// Its purpose is fulfilled. What an application that gives no code means.
    pub const NORMAL: u16 = 1000;
    /// The server goes down, or the browser leaves the page.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer broke a rule of the protocol.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// Never on the wire: the Close frame had no code.
    pub const NO_STATUS: u16 = 1005;
    /// Never on the wire: the connection ended without a Close frame.
    pub const ABNORMAL: u16 = 1006;
    /// Text that isn't UTF-8, or compressed data that can't be decompressed.
    pub const INVALID_PAYLOAD: u16 = 1007;
    /// The message is beyond the limit.
    pub const TOO_BIG: u16 = 1009;
    /// The application failed.
    pub const INTERNAL_ERROR: u16 = 1011;
    /// The server restarts: the client may come back. What an open connection gets when the server drains.
    pub const SERVICE_RESTART: u16 = 1012;
}

/// What may stand in a Close frame. 1004 is undefined, 1005, 1006 and 1015 are for reporting only, the other
/// numbers below 3000 are the protocol's, not given out yet; 3000 to 3999 are for libraries, 4000 to 4999
/// for applications (RFC 6455 7.4).
const ON_THE_WIRE: [RangeInclusive<u16>; 3] = [1000..=1003, 1007..=1014, 3000..=4999];

/// The code may stand in a Close frame.
pub fn may_be_sent(code: u16) -> bool {
    ON_THE_WIRE.iter().any(|range| range.contains(&code))
}

/// Bytes of a Close frame's reason: a control frame's 125 without the code (RFC 6455 5.5).
pub const REASON: usize = 123;

/// The peer's fault, and the code of the Close frame that says so (RFC 6455 7.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    code: u16,
    reason: &'static str,
}

impl Failure {
    pub(super) const fn protocol(reason: &'static str) -> Failure {
        Failure {
            code: code::PROTOCOL_ERROR,
            reason,
        }
    }

    pub(super) const fn payload(reason: &'static str) -> Failure {
        Failure {
            code: code::INVALID_PAYLOAD,
            reason,
        }
    }

    pub(super) const TOO_BIG: Failure = Failure {
        code: code::TOO_BIG,
        reason: "the message is too big",
    };

    pub fn code(&self) -> u16 {
        self.code
    }

    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.code)
    }
}

impl std::error::Error for Failure {}

/// Code and reason of a Close frame (RFC 6455 5.5.1); 1005 if it has neither.
pub(super) fn read_close(payload: &[u8]) -> Result<(u16, &str), Failure> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return match payload {
            [] => Ok((code::NO_STATUS, "")),
            _ => Err(Failure::protocol("a Close frame with half a code")),
        };
    };
    let code = u16::from_be_bytes(*code);
    if !may_be_sent(code) {
        return Err(Failure::protocol("a close code that may not be sent"));
    }
    match std::str::from_utf8(reason) {
        Ok(reason) => Ok((code, reason)),
        Err(_) => Err(Failure::payload("a close reason that is not UTF-8")),
    }
}

/// 1005 gives a Close frame without a payload. A reason that is too long is cut between characters.
pub(super) fn write_close(code: u16, reason: &str, out: &mut Vec<u8>) {
    if code == code::NO_STATUS {
        write_header(Opcode::Close, 0, out);
        return;
    }
    let reason = &reason[..reason.floor_char_boundary(REASON)];
    write_header(Opcode::Close, 2 + reason.len(), out);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}
