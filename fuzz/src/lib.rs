//! Fuzz targets of m0serve's protocol core.
//!
//! `check` has one function for each target; `runner` feeds them without libFuzzer.
#![forbid(unsafe_code)]

pub mod check;
pub mod runner;
