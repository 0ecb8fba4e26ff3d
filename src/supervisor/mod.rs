//! The process: what is started in which order, what ends it, and with which exit code.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | stopped as asked; every request in flight was answered |
//! | 1 | could not start for a reason outside the application (address in use, …), or requests were cut at the stop |
//! | 2 | the command line is wrong, or names an interpreter that doesn't fit |
//! | 3 | the application could not be loaded |
//! | 128 + n | a second signal n ended it at once |

#![forbid(unsafe_code)]

#[cfg(feature = "python")]
mod serve;
mod signals;

#[cfg(feature = "python")]
pub use serve::run;
pub use signals::StopRequests;
