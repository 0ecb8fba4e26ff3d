//! The settings of one server, validated.
#![forbid(unsafe_code)]

pub mod address;

pub use address::BindAddress;
pub struct Timeouts {
    pub head: std::time::Duration,
    pub body: std::time::Duration,
    pub idle: std::time::Duration,
    pub write: std::time::Duration,
    pub graceful: std::time::Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let s = std::time::Duration::from_secs;
        Timeouts {
            head: s(10),
            body: s(30),
            idle: s(75),
            write: s(30),
            graceful: s(30),
        }
    }
}
