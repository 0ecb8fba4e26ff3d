//! m0serve

pub mod config;
pub mod event_loop;
pub mod exchange;
pub mod http1;
mod inherited;
pub mod net;
pub mod observe;
pub mod pool;
pub mod server;
pub mod supervisor;
pub mod sync;
pub mod topology;
pub mod websocket;
