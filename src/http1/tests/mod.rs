//! Tests of the protocol core, by part.

mod request;
