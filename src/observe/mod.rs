//! What the server tells of itself: the log of events, the access log, the counters.
//!
//! Owns the formats and the writing. Must not know connections or Python: what a line needs comes in through a trait.
//! `log` and `counters` are called by every thread; the access log has a writer thread of its own.
#![forbid(unsafe_code)]

pub mod access;
pub mod counters;
mod escape;
pub mod log;
mod utc;
