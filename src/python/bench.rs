//! The WSGI bridge without a server: a request that lies in memory, answered into memory. What `benches/bridge.rs` sees of
//! the crate, behind the feature `bench`.
//!
//! Owns the exchange that a loop would have. The interpreter is started, the application loaded and handlers made as for
//! serving. Errors panic: nobody is served.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{App, Interpreter, WsgiFactory, WsgiHandler};
use crate::config::{AppSpec, Timeouts};
use crate::exchange::{Common, Exchange, Handler, HandlerFactory, Progress};
use crate::http1::{Event, Limits, RequestReader};
use crate::net::{Endpoint, Stream};
use crate::pool::turn_slice::TurnSlice;
use crate::sync::Arc;

pub use super::wsgi::Part;

/// An application that threads can serve. One in a process, as there is one interpreter.
pub struct Site {
    factory: WsgiFactory,
    common: Arc<Common>,
}

impl Site {
    /// Loads `module:attribute` from a directory, for `handlers` threads. The caller's thread is the interpreter's main
    /// thread from then on and has to outlive the others.
    pub fn load(directory: &Path, application: &str, handlers: usize) -> Site {
        let spec = AppSpec {
            spec: Some(application.to_owned()),
            app_dir: directory.to_owned(),
            python: option_env!("M0_LINKED_EXECUTABLE").map(Into::into),
            ..AppSpec::default()
        };
        let loaded = Interpreter::start(&spec).and_then(|mut interpreter| interpreter.load_app());
        let app = match loaded {
            Ok(App::Wsgi(app)) => app,
            Ok(App::Asgi(_)) => panic!("{application} is no WSGI application"),
            Err(error) => panic!("{error}"),
        };
        let turns = Arc::new(TurnSlice::new(cfg!(not(Py_GIL_DISABLED)), handlers > 1));
        Site {
            factory: app.factory(handlers, turns),
            common: Arc::new(Common::new(Limits::default(), Timeouts::default(), true)),
        }
    }

    /// A handler of the present thread's, which is none of Python's yet, and a connection on which `request` has come.
    pub fn lane(&self, index: usize, request: &[u8]) -> Lane {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_nonblocking(true).expect("a non-blocking socket");
        let mut exchange = Exchange::new(
            Stream::from(OwnedFd::from(ours)),
            Endpoint::Ip(SocketAddr::from(([203, 0, 113, 9], 4711))),
            Arc::new(Endpoint::Ip(SocketAddr::from(([192, 0, 2, 1], 8000)))),
            Arc::clone(&self.common),
        );
        exchange.input = request.to_vec();
        let mut lane = Lane {
            handler: self.factory.make(index),
            exchange,
            _client: theirs,
        };
        // What the first request alone has to do is none of what is measured.
        lane.request();
        lane
    }
}

/// One thread's requests.
pub struct Lane {
    handler: WsgiHandler,
    exchange: Exchange,
    /// Nothing is sent to it.
    _client: UnixStream,
}

impl Lane {
    /// The whole of a request but its socket: the head is read, the application called, its answer rendered.
    #[inline]
    pub fn request(&mut self) {
        self.parse();
        self.exchange.raw(0).1.clear();
        assert_eq!(self.handler.handle(&mut self.exchange), Progress::Done);
    }

    /// The part of it before Python.
    #[inline]
    pub fn parse(&mut self) {
        let exchange = &mut self.exchange;
        let mut reader = RequestReader::new();
        let event = reader.next_event(&exchange.input, &mut exchange.head, &exchange.common.limits);
        assert!(matches!(event, Ok(Event::Head { consumed }) if consumed == exchange.input.len()));
        exchange.open_response();
    }

    /// How long it took to do `part` `count` times.
    pub fn repeat(&mut self, part: Part, count: u64) -> Duration {
        self.handler.repeat(part, &mut self.exchange, count)
    }

    /// How long `count` requests took.
    pub fn requests(&mut self, count: u64) -> Duration {
        let begin = Instant::now();
        for _ in 0..count {
            self.request();
        }
        begin.elapsed()
    }

    /// The bytes of the last answer.
    pub fn answer(&mut self) -> &[u8] {
        self.exchange.raw(0).1
    }
}
