//! m0serve

pub mod config;
mod inherited;
pub mod net;
