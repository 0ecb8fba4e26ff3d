//! One ASGI thread from its start to its end: event loop, lifespan, serving, lifespan again.
//!
//! Owns the thread's order of life and what the server's thread may tell it ([`Inbox`]). Runs attached; the event loop
//! detaches while it waits.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::super::ffi;
use super::super::object::{Attached, Owned, Raised};
use super::super::types::entry;
use super::super::{StartError, fault};
use super::executor::{self, Executor};
use super::watch::Pulse;
use super::{AsgiApp, classes};
use crate::config::{EventLoop, Lifespan};
use crate::event_loop::Loop;
use crate::observe::log;
use crate::pool::turn_slice::TurnSlice;
use crate::sync::{Arc, Mutex, lock};

/// What the server's thread tells an ASGI thread.
pub enum Order {
    Serve(Box<Loop>),
    /// Before it served: another thread could not start, or the server is to stop.
    Stop,
}

/// Orders for one thread, whose event loop is woken by them.
pub struct Inbox {
    order: Mutex<Option<Order>>,
    bell: OwnedFd,
}

impl Inbox {
    pub fn new() -> std::io::Result<Inbox> {
        Ok(Inbox {
            order: Mutex::new(None),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub fn post(&self, order: Order) {
        *lock(&self.order) = Some(order);
        // Fails only when its counter would overflow: then it has been rung anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn collect(&self) -> Option<Order> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        lock(&self.order).take()
    }
}

/// What an ASGI thread tells the server's thread.
pub enum Report {
    /// Ready to serve; with the event loop's name.
    Ready(String),
    Failed(StartError),
    /// The thread has ended; false if requests were cut.
    Finished(bool),
    /// Not a thread's: the server is to stop.
    Stop,
}

/// What an order that arrives in the thread's event loop is about.
struct Post {
    inbox: Arc<Inbox>,
    lifespan: Owned,
    stop: Owned,
    stopped: bool,
}

thread_local! {
    static POST: RefCell<Option<Post>> = const { RefCell::new(None) };
}

/// Everything that one thread needs.
pub struct Worker {
    pub app: Arc<AsgiApp>,
    pub inbox: Arc<Inbox>,
    pub reports: Sender<Report>,
    pub graceful: Duration,
    /// For the watch, if there is one.
    pub pulse: Option<Arc<Pulse>>,
    /// Whether there is one GIL for all threads: an import can bring it back on a free-threaded build.
    pub turns: Arc<TurnSlice>,
}

impl Worker {
    /// Lives the thread's life. Every way out reports.
    pub fn run(self, py: Attached) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            Thread::make(py, &self).and_then(|thread| {
                let served = thread.live(py);
                let closed = thread.close(py);
                closed.map_err(|raised| failed(py, raised, "the event loop could not be ended"))?;
                served
            })
        }));
        Executor::leave();
        POST.take();
        // The server's thread waits for it; should that be gone, so is the process.
        let _ = self.reports.send(match outcome {
            Ok(Ok(clean)) => Report::Finished(clean),
            Ok(Err(error)) => Report::Failed(error),
            Err(_) => Report::Failed(StartError {
                code: 1,
                text: "an ASGI thread panicked".into(),
            }),
        });
    }
}

/// The Python side of the thread.
struct Thread<'a> {
    worker: &'a Worker,
    event_loop: Owned,
    name: String,
    lifespan: Owned,
    /// Dropped last: what is left of Python's objects may still ask for it.
    executor: Box<Executor>,
}

fn failed(py: Attached, raised: Raised, what: &str) -> StartError {
    StartError {
        code: StartError::APPLICATION,
        text: format!("{}{what}", fault::take_text(py, raised)),
    }
}

impl Thread<'_> {
    fn make<'a>(py: Attached, worker: &'a Worker) -> Result<Thread<'a>, StartError> {
        let app = &worker.app;
        let kind = match app.spec.event_loop {
            EventLoop::Auto => "auto",
            EventLoop::Asyncio => "asyncio",
            EventLoop::Uvloop => "uvloop",
        };
        let (event_loop, name) = make_loop(py, kind).map_err(|raised| {
            let mut error = failed(py, raised, "the event loop could not be made");
            if app.spec.event_loop == EventLoop::Uvloop {
                error.code = StartError::USAGE;
                error
                    .text
                    .push_str("; install uvloop, or leave out --loop uvloop");
            }
            error
        })?;
        Self::assemble(py, worker, event_loop, name)
            .map_err(|raised| failed(py, raised, "an ASGI thread could not be made"))
    }

    fn assemble<'a>(
        py: Attached,
        worker: &'a Worker,
        event_loop: Owned,
        name: String,
    ) -> Result<Thread<'a>, Raised> {
        let app = &worker.app;
        let executor = Executor::make(py, app, &event_loop, worker)?;
        if let Some(pulse) = &worker.pulse {
            let identity = py.call_method(&py.import(c"threading")?, c"get_ident", [])?;
            // SAFETY: attached; an int, which get_ident gives.
            pulse.set_thread(unsafe { ffi::PyLong_AsUnsignedLongMask(identity.ptr()) } as usize);
        }
        // SAFETY: attached; the application lives as long as the process.
        let (callable, state) = unsafe {
            (
                Owned::borrowed(app.callable),
                Owned::new(ffi::PyDict_New())?,
            )
        };
        let lifespan = py.call_method(&glue(), c"Lifespan", [&callable, &state])?;
        executor.set_state(state);
        executor.enter();
        let bell = py.int(worker.inbox.bell.as_raw_fd().into())?;
        let callback = executor::callback(py, c"m0serve_order", on_order)?;
        py.call_method(&event_loop, c"add_reader", [&bell, &callback])?;
        POST.replace(Some(Post {
            inbox: Arc::clone(&worker.inbox),
            lifespan: lifespan.again(),
            stop: py.attribute(&event_loop, c"stop")?,
            stopped: false,
        }));
        Ok(Thread {
            worker,
            event_loop,
            name,
            lifespan,
            executor,
        })
    }

    /// From the lifespan's start to its end. False if requests were cut.
    fn live(&self, py: Attached) -> Result<bool, StartError> {
        self.start(py)?;
        // The server's thread waits for it.
        let _ = self.worker.reports.send(Report::Ready(self.name.clone()));
        self.serve(py);
        let cut = self.executor.was_cut();
        self.stop(py);
        Ok(!cut)
    }

    fn start(&self, py: Attached) -> Result<(), StartError> {
        let mode = self.worker.app.spec.lifespan;
        if mode == Lifespan::Off {
            return Ok(());
        }
        let (word, text) = py
            .call_method(&self.lifespan, c"start", [])
            .and_then(|start| self.complete(py, &start))
            .and_then(|answer| word_and_text(py, &answer))
            .map_err(|raised| failed(py, raised, "the application's lifespan failed"))?;
        let refuse = |text: String| {
            Err(StartError {
                code: StartError::APPLICATION,
                text,
            })
        };
        match word.as_str() {
            "complete" => Ok(()),
            "failed" if text.is_empty() => {
                refuse("the application's startup failed (lifespan.startup.failed)".into())
            }
            "failed" => refuse(format!(
                "the application's startup failed: {}",
                text.trim_end()
            )),
            "aborted" => refuse("stopped while the application was starting".into()),
            _ if mode == Lifespan::On => refuse(format!(
                "{text}the application has no lifespan, which --lifespan on asks for"
            )),
            _ if text.is_empty() => {
                py.detached(|| log::debug!("the application has no lifespan"));
                Ok(())
            }
            _ => {
                // "If an exception is raised ... the server must continue but not send any lifespan events."
                py.detached(|| {
                    log::record_with_traceback(
                        log::Level::Warn,
                        format_args!("the application's lifespan failed; going on without it"),
                        &text,
                    );
                });
                Ok(())
            }
        }
    }

    fn serve(&self, py: Attached) {
        let is_over = || {
            self.executor.is_stopped()
                || POST.with_borrow(|post| post.as_ref().is_some_and(|post| post.stopped))
        };
        while !is_over() {
            match py.call_method(&glue(), c"run", [&self.event_loop]) {
                Ok(_) if is_over() => {}
                Ok(_) => {
                    py.detached(|| log::warn!("the application stopped the event loop; it goes on"))
                }
                // KeyboardInterrupt or SystemExit out of a callback of the application's.
                Err(raised) => {
                    fault::log_exception(py, raised, "the event loop was interrupted; it goes on")
                }
            }
        }
    }

    fn stop(&self, py: Attached) {
        let stopped = (|| {
            // SAFETY: attached.
            let timeout =
                unsafe { Owned::new(ffi::PyFloat_FromDouble(self.worker.graceful.as_secs_f64()))? };
            let stop = py.call_method(&self.lifespan, c"stop", [&timeout])?;
            let answer = self.complete(py, &stop)?;
            word_and_text(py, &answer)
        })();
        match stopped {
            Ok((word, text)) => py.detached(|| match word.as_str() {
                "failed" => log::error!("the application's shutdown failed: {text}"),
                "late" => log::error!(
                    "the application's shutdown took longer than {} s (--graceful-timeout); it is cut",
                    self.worker.graceful.as_secs_f64()
                ),
                "unsupported" if !text.is_empty() => log::record_with_traceback(
                    log::Level::Error,
                    format_args!("the application's lifespan ended with an exception"),
                    &text,
                ),
                _ => {}
            }),
            Err(raised) => fault::log_exception(py, raised, "the application's shutdown failed"),
        }
    }

    /// Ends everything on the loop, and the loop.
    fn close(&self, py: Attached) -> Result<(), Raised> {
        self.executor.close(py)?;
        let bell = py.int(self.worker.inbox.bell.as_raw_fd().into())?;
        py.call_method(&self.event_loop, c"remove_reader", [&bell])?;
        let timeout = py.int(CLOSE_TIMEOUT)?;
        let finish = py.call_method(&glue(), c"finish", [&timeout])?;
        let stuck = self.complete(py, &finish)?;
        // SAFETY: attached; a list.
        if unsafe { ffi::PyObject_Size(stuck.ptr()) } > 0 {
            let text = py.display(&stuck)?;
            py.detached(|| log::warn!("left behind on the event loop: {text}"));
            return Ok(());
        }
        py.call_method(&self.event_loop, c"close", [])?;
        Ok(())
    }

    /// `run_until_complete`
    fn complete(&self, py: Attached, coroutine: &Owned) -> Result<Owned, Raised> {
        py.call_method(&self.event_loop, c"run_until_complete", [coroutine])
    }
}

/// Seconds for cancelled tasks, and for threads of the default executor, at the end.
const CLOSE_TIMEOUT: i64 = 5;

/// The module of `glue.py`.
pub fn glue() -> Owned {
    // SAFETY: attached, as all of this file; a module that lives as long as the process.
    unsafe { Owned::borrowed(classes().glue) }
}

fn make_loop(py: Attached, kind: &str) -> Result<(Owned, String), Raised> {
    let made = py.call_method(&glue(), c"make_loop", [&py.str(kind)?])?;
    // SAFETY: attached; a pair, which it keeps alive.
    let (event_loop, name) = unsafe {
        (
            Owned::borrowed(ffi::PyTuple_GET_ITEM(made.ptr(), 0)),
            Owned::borrowed(ffi::PyTuple_GET_ITEM(made.ptr(), 1)),
        )
    };
    Ok((event_loop, py.text(&name)?))
}

/// A pair of strings.
pub fn word_and_text(py: Attached, answer: &Owned) -> Result<(String, String), Raised> {
    // SAFETY: attached; a pair of strings, which it keeps alive.
    let (word, text) = unsafe {
        (
            Owned::borrowed(ffi::PyTuple_GET_ITEM(answer.ptr(), 0)),
            Owned::borrowed(ffi::PyTuple_GET_ITEM(answer.ptr(), 1)),
        )
    };
    Ok((py.text(&word)?, py.text(&text)?))
}

unsafe extern "C" fn on_order(_: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    entry(|py| {
        let order = POST.with_borrow(|post| post.as_ref().and_then(|post| post.inbox.collect()));
        match order {
            Some(Order::Serve(event_loop)) => {
                if let Some(executor) = executor::current() {
                    executor.serve(py, event_loop)?;
                }
            }
            Some(Order::Stop) => {
                let objects = POST.with_borrow_mut(|post| {
                    post.as_mut().map(|post| {
                        post.stopped = true;
                        (post.lifespan.again(), post.stop.again())
                    })
                });
                if let Some((lifespan, stop)) = objects {
                    stop_before_serving(py, &lifespan, &stop)?;
                }
            }
            None => {}
        }
        Ok(py.none())
    })
}

/// While the lifespan starts, the event loop ends with that; later it is stopped.
fn stop_before_serving(py: Attached, lifespan: &Owned, stop: &Owned) -> Result<(), Raised> {
    let aborted = py.call_method(lifespan, c"abort", [])?;
    // SAFETY: attached; comparing addresses.
    if unsafe { aborted.ptr() != ffi::Py_True() } {
        py.call(stop, [])?;
    }
    Ok(())
}
