//! The pool over real sockets, with a handler that needs no Python: nothing is lost and nothing is stranded, whatever
//! views block, clients leave and connections are reused.

mod deadlines;
mod drain;
mod edges;
mod fairness;
mod harness;
mod kept;
mod limits;
mod lives;
mod stranding;
#[cfg(tsan)]
mod watched;
