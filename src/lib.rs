//! m0serve
pub mod http1;
