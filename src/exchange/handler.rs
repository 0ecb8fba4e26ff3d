//! The seam between serving and applications: what loops and the pool call.

#![forbid(unsafe_code)]

use super::Exchange;

/// Answers whole requests on one thread. Made by its factory on the thread that uses it, and dropped there.
pub trait Handler {
    /// Runs the application and buffers the response; the caller sends what is left in the buffer afterwards.
    fn handle(&mut self, exchange: &mut Exchange) -> Progress;

    /// Goes on with a response that waited for the client; on the thread that suspended it.
    /// Only after [`Progress::Waiting`], which only an exchange whose `may_wait` is false may get.
    fn resume(&mut self, key: u32, exchange: &mut Exchange) -> Progress {
        let _ = (key, exchange);
        unreachable!("this handler never suspends a response")
    }

    /// Does `work`, which is the loop's, while holding the interpreter. Only for the control `M0_LOOP_ATTACHED=1`.
    fn attached(&mut self, work: &mut dyn FnMut()) {
        work();
    }

    /// The client of a suspended response is gone: let go of it.
    fn abandon(&mut self, key: u32) {
        let _ = key;
    }
}

/// How far a handler got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// The client reads slower than the body comes: `resume` with this key when the buffer is empty.
    Waiting(u32),
}

/// Makes the handlers, each on its own thread, one after another.
pub trait HandlerFactory: Send + Sync + 'static {
    type Handler: Handler;
    fn make(&self, index: usize) -> Self::Handler;
}

/// Answers that need no application: health, metrics, static files. Called by the loop; must not block.
pub trait LocalAnswers: Send + Sync + 'static {
    /// True if it answered.
    fn answer(&self, exchange: &mut Exchange) -> bool;
}
