//! The settings of one server, validated.
#![forbid(unsafe_code)]

pub mod address;

pub use address::BindAddress;
pub struct Timeouts { pub head: std::time::Duration, pub body: std::time::Duration, pub idle: std::time::Duration, pub write: std::time::Duration, pub graceful: std::time::Duration }
