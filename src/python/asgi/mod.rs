//! The bridge to ASGI: threads that each run one asyncio loop with one of our loops nested in it.
//!
//! | file | owns |
//! | --- | --- |
//! | `serve` | the threads, and the order of start and stop |
//! | `worker` | one thread: its event loop, its lifespan, its end |
//! | `executor` | one thread's turns; `executor/life` a request's task, `executor/time` deadlines and the drain |
//! | `request` | one request: its state, who waits; `request/http` the HTTP messages |
//! | `socket` | the WebSocket messages |
//! | `files` | bodies that are files |
//! | `scope`, `fields` | a request as a dict |
//! | `message`, `words` | reading dicts, the names in them |
//! | `handle`, `awaits`, `run` | the native objects that Python sees |
//! | `watch` | the log of what holds an event loop |
//! | `glue.py` | what runs once: the event loop, lifespan |
//!
//! Every object is made, used and released on the thread that runs the view. There is no thread hop, no queue and no wake
//! between the socket and the application: `send` writes to the socket.

mod awaits;
mod executor;
mod fields;
mod files;
mod handle;
mod message;
mod request;
mod run;
mod scope;
mod serve;
mod socket;
mod watch;
mod words;
mod worker;

pub use serve::{Plan, Started};

use std::sync::OnceLock;

use super::ffi;
use super::ffi::{PyObject, PyTypeObject};
use super::object::{Attached, Owned, Raised};
use super::share::share;
use crate::config::{AppSpec, AsgiSpec};

/// The native classes and the objects that all threads share, made once when the interpreter starts.
struct Classes {
    words: words::Words,
    handle: *mut PyTypeObject,
    awaits: *mut PyTypeObject,
    run: *mut PyTypeObject,
    /// An awaitable that is done.
    done: *mut PyObject,
    /// `asyncio.CancelledError`
    cancelled_error: *mut PyObject,
    /// The module of `glue.py`
    glue: *mut PyObject,
}

// SAFETY: never freed and never changed; CPython lets any attached thread use them.
unsafe impl Send for Classes {}
// SAFETY: as above.
unsafe impl Sync for Classes {}

static CLASSES: OnceLock<Classes> = OnceLock::new();

fn classes() -> &'static Classes {
    CLASSES.get().expect("an ASGI application was loaded")
}

/// What has to be there before any thread serves. Called on the main thread; again without effect.
fn prepare(py: Attached) -> Result<(), Raised> {
    if CLASSES.get().is_some() {
        return Ok(());
    }
    let asyncio = py.import(c"asyncio")?;
    let made = Classes {
        words: words::Words::make(py)?,
        handle: handle::class(py)?,
        awaits: awaits::class(py)?,
        run: run::class(py)?,
        done: awaits::done(py)?,
        cancelled_error: py.attribute(&asyncio, c"CancelledError")?.into_ptr(),
        glue: glue(py)?.into_ptr(),
    };
    let _ = CLASSES.set(made);
    // For the strings that it interns: as `wsgi::environ::intern_keys`.
    drop(scope::Scopes::make(py, "")?);
    // Instances of these come and go with many requests, and C deallocators count their class (docs/cpython-facts.md).
    for name in [c"Task", c"Future"] {
        let class = py.attribute(&asyncio, name)?;
        // SAFETY: attached; a class of the standard library, which lives as long as the interpreter.
        unsafe { ffi::make_immortal(class.into_ptr()) };
    }
    Ok(())
}

fn glue(py: Attached) -> Result<Owned, Raised> {
    const SOURCE: &str = concat!(include_str!("glue.py"), "\0");
    let _ = py;
    // SAFETY: attached; C strings.
    unsafe {
        let code = Owned::new(ffi::Py_CompileString(
            SOURCE.as_ptr().cast(),
            c"<m0serve>".as_ptr(),
            ffi::Py_file_input,
        ))?;
        Owned::new(ffi::PyImport_ExecCodeModule(
            c"_m0serve_asgi".as_ptr(),
            code.ptr(),
        ))
    }
}

/// A loaded ASGI application.
#[derive(Debug)]
pub struct AsgiApp {
    /// Never released: it is called until the process ends.
    callable: *mut PyObject,
    root_path: String,
    spec: AsgiSpec,
}

// SAFETY: the reference is never released, and every use is on an attached thread.
unsafe impl Send for AsgiApp {}
// SAFETY: as above.
unsafe impl Sync for AsgiApp {}

impl AsgiApp {
    pub fn new(py: Attached, callable: Owned, settings: &AppSpec) -> Result<AsgiApp, Raised> {
        prepare(py)?;
        share(py, &callable);
        Ok(AsgiApp {
            callable: callable.into_ptr(),
            root_path: settings.root_path.clone(),
            spec: settings.asgi.clone(),
        })
    }
}
