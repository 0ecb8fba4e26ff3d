//! Tests of the protocol core, by part.

mod chunked;
mod limits;
mod properties;
mod refusals;
mod request;
mod response;
mod tables;
