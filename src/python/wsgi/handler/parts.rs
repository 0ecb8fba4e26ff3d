//! A request's parts, each repeated by itself, for `benches/bridge.rs`. They are the handler's own functions, so that the
//! bench measures what serves.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::super::super::object::Attached;
use super::{Desk, Pair, WsgiHandler, classes};
use crate::exchange::Exchange;

/// What can be repeated without the rest of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The dict, made and released.
    Environ,
    /// The application's call with an environ that is there; `start_response` is a part of it.
    Call,
    /// From what the application returned to the bytes to be sent, and the request's end.
    Response,
    /// Attaching the thread to the interpreter and detaching it.
    AttachDetach,
    /// A fresh context after a request that set no variable: a part of [`Part::Response`].
    ContextKept,
    /// The same after one that did.
    ContextNew,
    /// The pair of callables that a request gets when the last one's were kept.
    CallablesNew,
}

fn timed(count: u64, mut work: impl FnMut()) -> Duration {
    let begin = Instant::now();
    for _ in 0..count {
        work();
    }
    begin.elapsed()
}

impl WsgiHandler {
    /// How long `count` times the part took. `exchange` has a request whose head was read; at least one was answered.
    pub fn repeat(&mut self, part: Part, exchange: &mut Exchange, count: u64) -> Duration {
        if part == Part::AttachDetach {
            return timed(count, || self.thread.attached(|_| ()));
        }
        let desk = &**self.desk;
        self.thread
            .attached(|py| desk.repeat(py, part, exchange, count))
    }
}

impl Desk {
    fn repeat(&self, py: Attached, part: Part, exchange: *mut Exchange, count: u64) -> Duration {
        let pair = self.pair.take().expect("a request was answered before");
        self.answer.open(exchange, pair.state());
        let took = match part {
            Part::Environ => timed(count, || {
                // SAFETY: opened above, no other reference is alive.
                let exchange = unsafe { self.answer.exchange() };
                drop(black_box(self.environ.borrow_mut().of(py, exchange)));
            }),
            Part::Call => {
                // SAFETY: opened above, no other reference is alive.
                let exchange = unsafe { self.answer.exchange() };
                let environ = self.environ.borrow_mut().of(py, exchange);
                let environ = environ.ok().flatten().expect("an environ");
                timed(count, || {
                    self.answer.begin(pair.state());
                    drop(black_box(self.call_with(&environ, &pair)));
                })
            }
            Part::Response => return self.repeat_response(py, pair, exchange, count),
            Part::ContextKept => timed(count, || {
                let _ = black_box(self.contexts.renew(py));
            }),
            Part::ContextNew => timed(count, || drop(black_box(self.contexts.put_aside(py)))),
            Part::CallablesNew => timed(count, || {
                drop(black_box(Pair::make(py, &classes().callables)));
            }),
            Part::AttachDetach => unreachable!("the caller's"),
        };
        self.answer.close();
        self.pair.set(Some(pair));
        took
    }

    fn repeat_response(
        &self,
        py: Attached,
        pair: Pair,
        exchange: *mut Exchange,
        count: u64,
    ) -> Duration {
        self.answer.begin(pair.state());
        let result = self.call(py, &pair).ok().flatten().expect("an answer");
        self.pair.set(Some(pair));
        timed(count, || {
            // Its end gave the pair back, and closed the answer.
            let pair = self.pair.take().expect("nobody keeps the callables");
            self.answer.open(exchange, pair.state());
            pair.state().hold_again();
            {
                // SAFETY: opened just now, no other reference is alive.
                let exchange = unsafe { self.answer.exchange() };
                exchange.open_response();
                exchange.raw(0).1.clear();
            }
            self.answer_with(py, result.again(), pair);
        })
    }
}
