//! The bridge against real applications, in process: one interpreter for all tests, a handler for each.
//!
//! An application is Python source, a request is what a client would send, and the answer is what would go over the wire.

mod answers;
mod bodies;
mod contexts;
mod environs;
mod files;
mod inputs;
mod leaks;
mod loading;
mod sharing;

use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use super::interpreter::Interpreter;
use super::object::{Attached, Owned, Raised};
use super::thread::ThreadState;
use super::wsgi::{WsgiApp, WsgiHandler};
use super::{fault, ffi};
use crate::config::{AppSpec, Timeouts};
use crate::exchange::{Collected, Common, Exchange, Handler, HandlerFactory, Progress};
use crate::http1::{Event, Limits, RequestReader};
use crate::net::{Endpoint, Stream};
use crate::pool::turn_slice::TurnSlice;
use crate::sync::Arc;

/// Starts the interpreter once, on a thread that then stays with it, as the main thread would.
fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let started = Interpreter::start(&linked());
            let failed = started.as_ref().err().map(ToString::to_string);
            sender.send(failed).unwrap();
            std::thread::park();
            drop(started);
        });
        assert_eq!(receiver.recv().unwrap(), None);
    });
}

/// Settings for the interpreter that the crate was built with.
fn linked() -> AppSpec {
    let python = option_env!("M0_LINKED_EXECUTABLE").map(Into::into);
    AppSpec {
        python,
        ..AppSpec::default()
    }
}

fn python<T>(raised: Result<T, Raised>, py: Attached) -> T {
    raised.unwrap_or_else(|raised| panic!("{}", fault::take_text(py, raised)))
}

/// An application and the handler that serves it, on the test's own thread.
struct Site {
    handler: WsgiHandler,
    common: Arc<Common>,
    /// The module's dict.
    names: *mut ffi::PyObject,
    /// For looking into the module from outside of a request.
    peer: Endpoint,
}

struct Setting {
    may_wait: bool,
    handlers: usize,
    spec: AppSpec,
}

impl Default for Setting {
    fn default() -> Self {
        Setting {
            may_wait: true,
            handlers: 1,
            spec: linked(),
        }
    }
}

/// Runs `source` as a module and returns its dict and the `app` that it defines.
fn define(py: Attached, source: &str) -> (Owned, Owned) {
    let source = std::ffi::CString::new(source).unwrap();
    // SAFETY: attached; the dict is a module's namespace for as long as the code runs and beyond.
    unsafe {
        let names = python(Owned::new(ffi::PyDict_New()), py);
        python(
            py.set_item(
                &names,
                &py.str("__name__").unwrap(),
                &py.str("site").unwrap(),
            ),
            py,
        );
        let builtins = python(py.import(c"builtins"), py);
        python(
            py.set_item(&names, &py.str("__builtins__").unwrap(), &builtins),
            py,
        );
        python(
            Owned::new(ffi::PyRun_String(
                source.as_ptr(),
                ffi::Py_file_input,
                names.ptr(),
                names.ptr(),
            )),
            py,
        );
        let app = Owned::borrowed(ffi::PyDict_GetItemString(names.ptr(), c"app".as_ptr()));
        (names, app)
    }
}

impl Site {
    fn new(source: &str) -> Site {
        Site::with(source, Setting::default())
    }

    fn with(source: &str, setting: Setting) -> Site {
        start();
        // The application is made on a thread state of its own, as the main thread makes it when serving.
        let thread = ThreadState::make();
        let (names, app) = thread.attached(|py| {
            let (names, app) = define(py, source);
            (names.into_ptr(), WsgiApp::new(py, app, &setting.spec))
        });
        drop(thread);
        let turns = Arc::new(TurnSlice::new(cfg!(not(Py_GIL_DISABLED)), true));
        let timeouts = Timeouts {
            write: Duration::from_millis(500),
            ..Timeouts::default()
        };
        let factory = app.factory(setting.handlers, turns);
        Site {
            handler: factory.make(0),
            common: Arc::new(Common::new(Limits::default(), timeouts, setting.may_wait)),
            names,
            peer: Endpoint::Ip(SocketAddr::from(([203, 0, 113, 9], 4711))),
        }
    }

    /// A request on a connection of its own, answered and sent.
    fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        let mut wire = self.open(request.as_ref());
        assert_eq!(self.handler.handle(&mut wire.exchange), Progress::Done);
        wire.reply()
    }

    /// `GET` of a path, without fields of interest.
    fn get(&mut self, path: &str) -> Reply {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"))
    }

    fn open(&self, request: &[u8]) -> Wire {
        open(self.peer.clone(), &self.common, request)
    }

    /// The value of a Python expression in the module, as `str` has it.
    fn look(&self, expression: &str) -> String {
        let expression = std::ffi::CString::new(expression).unwrap();
        self.handler.thread().attached(|py| {
            // SAFETY: attached; the module's dict lives as long as the process.
            let value = unsafe {
                Owned::new(ffi::PyRun_String(
                    expression.as_ptr(),
                    ffi::Py_eval_input,
                    self.names,
                    self.names,
                ))
            };
            let value = python(value, py);
            python(py.display(&value), py)
        })
    }
}

/// A connection with `request` on it, whole.
fn open(peer: Endpoint, common: &Arc<Common>, request: &[u8]) -> Wire {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let local = Arc::new(Endpoint::Ip(SocketAddr::from(([192, 0, 2, 1], 8000))));
    let stream = Stream::from(OwnedFd::from(ours));
    let mut exchange = Exchange::new(stream, peer, local, Arc::clone(common));
    exchange.input = request.to_vec();
    let (mut reader, limits) = (RequestReader::new(), Limits::default());
    let mut at = 0;
    let mut body = Vec::new();
    loop {
        match reader
            .next_event(&request[at..], &mut exchange.head, &limits)
            .unwrap()
        {
            Event::NeedData => panic!("the request is not whole"),
            Event::Head { consumed } | Event::Skip { consumed } => at += consumed,
            Event::Data {
                consumed,
                body: range,
            } => {
                body.extend_from_slice(&request[at..][range]);
                at += consumed;
            }
            Event::End { .. } => break,
        }
    }
    if !body.is_empty() {
        exchange.body = Collected::Memory(body);
    }
    exchange.open_response();
    Wire {
        exchange,
        client: Some(theirs),
    }
}

/// A connection with a request on it.
struct Wire {
    exchange: Exchange,
    client: Option<UnixStream>,
}

impl Wire {
    /// Sends what is buffered and returns all that the client got.
    fn reply(&mut self) -> Reply {
        let mut bytes = Vec::new();
        loop {
            let gone = self.exchange.flush().is_err();
            self.read(&mut bytes);
            if gone || self.exchange.pending() == 0 {
                break;
            }
        }
        Reply {
            bytes,
            ending: format!("{:?}", self.exchange.ending),
        }
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        if let Some(client) = &mut self.client {
            let _ = client
                .read_to_end(into)
                .map_err(|error| assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock));
        }
    }
}

#[derive(Debug)]
struct Reply {
    bytes: Vec<u8>,
    /// What becomes of the connection.
    ending: String,
}

impl Reply {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn head(&self) -> String {
        let text = self.text();
        text.split_once("\r\n\r\n")
            .map_or(text.clone(), |(head, _)| head.to_owned())
    }

    /// As it came, chunks and all.
    fn body(&self) -> String {
        self.text()
            .split_once("\r\n\r\n")
            .map_or(String::new(), |(_, body)| body.to_owned())
    }

    fn status(&self) -> u16 {
        self.text()
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0)
    }

    fn field(&self, name: &str) -> Option<String> {
        self.head().lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    }
}
