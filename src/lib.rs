//! m0serve, an application server for Python: the map of the crate.
//!
//! A module imports modules of lower ranks only; within a rank, never in a circle. `tests/ranks.rs` holds the code to this
//! table.
//!
//! | rank | modules | own |
//! | --- | --- | --- |
//! | 0 | sync, topology, inherited | std or loom; cores, quota, pinning; descriptors left by the parent process |
//! | 1 | http1, websocket | bytes to events and back: no sockets, no clock, no unsafe code |
//! | 2 | config, observe | validated settings; log, access log, counters |
//! | 3 | exchange, net | a request with its connection, the `Handler` trait; listeners and streams |
//! | 4 | event_loop | one loop: `turn`, connections, deadlines |
//! | 5 | pool | drivers, standbys, stealing, rescue; knows no Python |
//! | 6 | local | answers without Python |
//! | 7 | python | every call into CPython |
//! | 8 | server | wires listeners, loops, pool and handlers; the order of start and drain |
//! | 9 | supervisor | signals |
//! | 10 | cli | the flag table, exit codes |

pub mod cli;
pub mod config;
pub mod event_loop;
pub mod exchange;
pub mod http1;
mod inherited;
pub mod local;
pub mod net;
pub mod observe;
pub mod pool;
#[cfg(feature = "python")]
pub mod python;
pub mod server;
pub mod supervisor;
pub mod sync;
pub mod topology;
pub mod websocket;
