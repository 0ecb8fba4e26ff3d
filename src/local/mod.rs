//! Answers without Python: health. Given by the loop itself, so that they come at once however busy the handlers are.

#![forbid(unsafe_code)]

mod health;

pub use health::Health;
