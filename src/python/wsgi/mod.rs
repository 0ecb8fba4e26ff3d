//! The bridge to WSGI (PEP 3333): a request becomes an environ and a call, what the application returns becomes the
//! response. No Python code of ours runs.
//!
//! | file | owns |
//! | --- | --- |
//! | `environ`, `names` | a request as a dict |
//! | `input`, `errors`, `file_wrapper` | the objects that the environ holds |
//! | `start_response`, `fields` | the callables, and what an application gives to them |
//! | `answer` | how far a request's answer has come, and the way to its exchange |
//! | `handler` | one thread's request from the call to `close()` |
//! | `iterate` | bodies that come in pieces, suspended where the client is slower |
//! | `context` | a fresh contextvars context for each request |
//!
//! Every object is made, used and released on the thread that runs the view; what threads share (classes, the
//! application) is immortal or counted by the garbage collector, so that threads don't contend for its count.

mod answer;
mod context;
mod environ;
mod errors;
mod fields;
mod file_wrapper;
mod handler;
mod input;
mod iterate;
mod names;
mod start_response;

#[cfg(feature = "bench")]
pub use handler::Part;
pub use handler::WsgiHandler;

use std::sync::OnceLock;

use super::ffi;
use super::ffi::{PyObject, PyTypeObject};
use super::object::{Attached, Owned, Raised};
use super::share::share;
use crate::config::{AppSpec, UnderscoreNames};
use crate::exchange::HandlerFactory;
use crate::pool::turn_slice::TurnSlice;
use crate::sync::Arc;

/// The native classes, made once when the interpreter starts.
struct Classes {
    callables: start_response::Classes,
    input: *mut PyTypeObject,
    errors: *mut PyTypeObject,
    file_wrapper: *mut PyTypeObject,
}

// SAFETY: classes are never freed and never change; CPython lets any attached thread use them.
unsafe impl Send for Classes {}
// SAFETY: as above.
unsafe impl Sync for Classes {}

static CLASSES: OnceLock<Classes> = OnceLock::new();

fn classes() -> &'static Classes {
    CLASSES.get().expect("the interpreter was started")
}

/// What has to be there before any thread serves. Called once, on the main thread.
pub fn prepare(py: Attached) -> Result<(), Raised> {
    let made = Classes {
        callables: start_response::Classes::make(py)?,
        input: input::class(py)?,
        errors: errors::class(py)?,
        file_wrapper: file_wrapper::class(py)?,
    };
    let _ = CLASSES.set(made);
    environ::intern_keys(py)?;
    // Instances of these come and go with many requests, and C deallocators count their class (docs/cpython-facts.md).
    let io = py.import(c"io")?;
    for name in [c"BytesIO", c"StringIO", c"TextIOWrapper", c"BufferedReader"] {
        let class = py.attribute(&io, name)?;
        // SAFETY: attached; a class of the standard library, which lives as long as the interpreter.
        unsafe { ffi::make_immortal(class.into_ptr()) };
    }
    Ok(())
}

/// A loaded WSGI application.
#[derive(Debug)]
pub struct WsgiApp {
    /// Never released: it is called until the process ends.
    callable: *mut PyObject,
    root_path: String,
    underscores: UnderscoreNames,
}

// SAFETY: the reference is never released, and every use is on an attached thread.
unsafe impl Send for WsgiApp {}
// SAFETY: as above.
unsafe impl Sync for WsgiApp {}

impl WsgiApp {
    pub fn new(py: Attached, callable: Owned, settings: &AppSpec) -> WsgiApp {
        share(py, &callable);
        WsgiApp {
            callable: callable.into_ptr(),
            root_path: settings.root_path.clone(),
            underscores: settings.header_underscores,
        }
    }

    /// Makes handlers for `handlers` threads, which take `turns` where they share a GIL.
    pub fn factory(self, handlers: usize, turns: Arc<TurnSlice>) -> WsgiFactory {
        WsgiFactory {
            app: self,
            multithread: handlers > 1,
            turns,
        }
    }
}

/// Makes the WSGI handlers, each on its own thread.
#[derive(Debug)]
pub struct WsgiFactory {
    app: WsgiApp,
    multithread: bool,
    turns: Arc<TurnSlice>,
}

impl HandlerFactory for WsgiFactory {
    type Handler = WsgiHandler;

    fn make(&self, index: usize) -> WsgiHandler {
        WsgiHandler::make(self, index)
    }
}
