//! The settings of one server, validated.
#![forbid(unsafe_code)]

pub mod address;

pub use address::BindAddress;
