//! The log: what happened, on standard error, one line each.
//!
//! Owns the level and the form of a record: `2026-11-30T17:54:28.123Z [pid] level: text`. A record is written with one
//! system call, so that lines of several threads and processes don't mix. Must not block on anything else. Any thread.
//!
//! ```
//! use m0serve::observe::log;
//! log::warn!("no {} today", "cake");
//! ```

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use super::escape;
use super::utc::Utc;

/// How much a record matters; a level admits itself and everything above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something that was asked for could not be done.
    Error,
    /// It works, but not as it was meant to.
    Warn,
    /// Start, stop, and what was chosen.
    #[default]
    Info,
    /// Single connections and decisions.
    Debug,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        // Python's and gunicorn's names are understood too.
        let name = match text.to_ascii_lowercase().as_str() {
            "warning" => "warn".to_owned(),
            "critical" | "fatal" => "error".to_owned(),
            name => name.to_owned(),
        };
        let level = Level::ALL.into_iter().find(|level| level.name() == name);
        level.ok_or_else(|| "the levels are error, warn, info and debug".to_owned())
    }
}

/// The level of the process. Relaxed: nothing is published with it, and a record more or less at a change is no harm.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Admits records of this level and above from now on.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether records of this level are written.
pub fn is_enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes a record if its level is admitted. The macros call this.
pub fn record(level: Level, text: fmt::Arguments<'_>) {
    if is_enabled(level) {
        write(&line(level, SystemTime::now(), &text.to_string(), ""));
    }
}

/// Writes a record with a traceback below it (or another text of several lines). Its lines are indented, so that none
/// can pass for a record.
pub fn record_with_traceback(level: Level, text: fmt::Arguments<'_>, traceback: &str) {
    if is_enabled(level) {
        write(&line(
            level,
            SystemTime::now(),
            &text.to_string(),
            traceback,
        ));
    }
}

fn line(level: Level, now: SystemTime, text: &str, traceback: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + text.len() + traceback.len());
    Utc::of(now).write_rfc3339(&mut out);
    // Writing to a Vec cannot fail.
    let _ = write!(out, " [{}] {level}: ", std::process::id());
    escape::text(text, &mut out);
    out.push(b'\n');
    for below in traceback.lines() {
        out.extend_from_slice(b"    ");
        escape::text(below, &mut out);
        out.push(b'\n');
    }
    out
}

fn write(line: &[u8]) {
    // A closed or full standard error is nothing that could be reported anywhere.
    let _ = std::io::stderr().lock().write_all(line);
}

/// Something that was asked for could not be done.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_error { ($($text:tt)*) => { $crate::observe::log::record($crate::observe::log::Level::Error, format_args!($($text)*)) } }
/// It works, but not as it was meant to.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_warn { ($($text:tt)*) => { $crate::observe::log::record($crate::observe::log::Level::Warn, format_args!($($text)*)) } }
/// Start, stop, and what was chosen.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_info { ($($text:tt)*) => { $crate::observe::log::record($crate::observe::log::Level::Info, format_args!($($text)*)) } }
/// Single connections and decisions.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_debug { ($($text:tt)*) => { $crate::observe::log::record($crate::observe::log::Level::Debug, format_args!($($text)*)) } }

pub use {__log_debug as debug, __log_error as error, __log_info as info, __log_warn as warn};

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_record_is_one_line_and_a_traceback_is_indented() {
        let moment = UNIX_EPOCH + Duration::from_millis(1_500);
        let pid = std::process::id();
        let plain = line(Level::Warn, moment, "a\nb", "");
        assert_eq!(
            String::from_utf8(plain).unwrap(),
            format!("1970-01-01T00:00:01.500Z [{pid}] warn: a\\nb\n")
        );
        let with = line(
            Level::Error,
            moment,
            "failed",
            "Traceback:\n  File \"x\"\n\x1b[2JValueError\n",
        );
        assert_eq!(
            String::from_utf8(with).unwrap(),
            format!(
                "1970-01-01T00:00:01.500Z [{pid}] error: failed\n    Traceback:\n      File \"x\"\n    \\x1b[2JValueError\n"
            )
        );
    }

    #[test]
    fn levels_are_ordered_and_named() {
        assert!(Level::Error < Level::Debug);
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!("WARNING".parse(), Ok(Level::Warn));
        assert_eq!("critical".parse(), Ok(Level::Error));
        assert!("loud".parse::<Level>().unwrap_err().contains("debug"));
    }
}
