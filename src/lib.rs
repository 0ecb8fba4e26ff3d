//! m0serve

pub mod config;
mod inherited;
pub mod net;
pub mod observe;
pub mod topology;
