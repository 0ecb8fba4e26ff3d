//! Wires listeners, loops, pool and handlers together; the order of start and of drain.
//!
//! Start: listeners, loops, handlers (one after another), the start-up line. Stop: no new connections, idle ones close,
//! requests in flight are finished and say `Connection: close`, the handlers end, all within the graceful time-out.

#![forbid(unsafe_code)]

use std::io;
use std::time::Duration;

use crate::event_loop::Loop;
use crate::exchange::{Common, HandlerFactory, LocalAnswers};
use crate::net::Listener;
use crate::observe::log;
use crate::pool::turn_slice::TurnSlice;
use crate::pool::{Pool, Shape};
use crate::sync::Arc;

/// A server whose handlers run.
pub struct Server {
    pool: Pool,
    common: Arc<Common>,
    addresses: Vec<String>,
    graceful: Duration,
}

/// What the embedding program brings along.
pub struct Application<F> {
    pub factory: F,
    pub turns: Arc<TurnSlice>,
    pub local_answers: Option<Arc<dyn LocalAnswers>>,
}

impl Server {
    /// Starts serving on `listeners`.
    pub fn start<F: HandlerFactory>(
        shape: Shape,
        listeners: Vec<Listener>,
        common: Arc<Common>,
        application: Application<F>,
    ) -> io::Result<Server> {
        let addresses = listeners.iter().map(Listener::url).collect();
        let graceful = common.timeouts.graceful;
        let loops = Loop::make(
            shape.threads,
            listeners.into(),
            &common,
            application.local_answers,
        )?;
        let pool = Pool::start(
            loops,
            application.factory,
            application.turns,
            Arc::clone(&common),
            shape,
        )?;
        Ok(Server {
            pool,
            common,
            addresses,
            graceful,
        })
    }

    /// Where it listens, as URLs.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Drains and ends the handlers. False if requests were still in flight when the graceful time-out passed; the
    /// handlers that run them are still running.
    pub fn stop(self) -> bool {
        self.pool.drain();
        let done = self.pool.finish(self.graceful);
        if !done {
            let open = self.common.open.load(crate::sync::Ordering::Relaxed);
            log::error!(
                "{open} connections were still in use after {} s (--graceful-timeout); their requests are cut",
                self.graceful.as_secs_f64()
            );
        }
        done
    }
}
