//! m0serve
