//! One thread's executor: an asyncio loop with one of our loops nested in it, and the requests that run there.
//!
//! Owns the order of a turn: readiness, knocks, new requests, held heads, deadlines, the drain. Everything here runs on
//! the one thread, attached; the event loop's own `select` detaches while nothing happens. Nothing is borrowed while
//! Python code can run, because all of it may come back here through `send`.

mod life;
mod time;

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use slab::Slab;

use super::super::fault;
use super::super::ffi::{self, PyObject};
use super::super::gil_watch::Watch;
use super::super::object::{Attached, Owned, Raised};
use super::super::types::entry;
use super::awaits::Poll;
use super::request::{LOW_WATER, Protocol, Request, Stage};
use super::scope::{Scopes, set};
use super::watch::Pulse;
use super::worker::Worker;
use super::{AsgiApp, classes};
use crate::config::Pings;
use crate::event_loop::{Awaits, Connection, Knock, Loop};
use crate::exchange::Gone;
use crate::observe::log;
use crate::pool::turn_slice::TurnSlice;
use crate::sync::Arc;
use crate::websocket;

/// Turns of our loop in one of asyncio's: while requests come and are answered in their first step, going on is cheaper
/// than a round through asyncio. Bounded, so that asyncio's other callbacks wait a fraction of a millisecond at most.
const TURNS: usize = 4;

/// A deadline of ours may be this late: then it need not be set anew for each request.
const SLACK: u64 = 2;

thread_local! {
    static CURRENT: Cell<*const Executor> = const { Cell::new(ptr::null()) };
}

/// This thread's executor, while its event loop runs.
#[inline]
pub fn current() -> Option<&'static Executor> {
    // SAFETY: `Executor::enter` put it there, and whoever holds the executor takes it away before dropping it. Nobody
    // keeps the reference beyond the call that asked.
    unsafe { CURRENT.get().as_ref() }
}

/// How an application ended.
pub enum Outcome {
    Returned,
    Raised(Raised),
    Cancelled,
}

/// What is called of asyncio.
struct Asyncio {
    event_loop: Owned,
    task: Owned,
    /// `loop`, `eager_start`, `context`
    task_names: Owned,
    create_future: Owned,
    call_soon: Owned,
    call_later: Owned,
    stop: Owned,
}

/// Callbacks that asyncio gets from us.
struct Callbacks {
    ready: Owned,
    timer: Owned,
    drained: Owned,
}

pub struct Executor {
    app: *mut PyObject,
    asyncio: Asyncio,
    callbacks: Callbacks,
    graceful: Duration,
    pulse: Option<Arc<Pulse>>,
    gil: Watch,
    /// Whether all threads share a GIL.
    turns: Arc<TurnSlice>,
    websockets: websocket::Settings,
    pings: Option<Pings>,
    event_loop: RefCell<Option<Box<Loop>>>,
    scopes: RefCell<Scopes>,
    /// `http.request` without a body.
    body_template: Owned,
    /// Whose connection each is, by the connection's key.
    by_connection: RefCell<Vec<Option<Rc<Request>>>>,
    /// Requests whose application has not ended.
    running: RefCell<Slab<Rc<Request>>>,
    spare: RefCell<Vec<Rc<Request>>>,
    spare_run: Cell<Option<Owned>>,
    spare_context: Cell<Option<Owned>>,
    knocks: Cell<Vec<Knock>>,
    /// Inside `turn`, whose end sees to deadlines and held heads.
    in_turn: Cell<bool>,
    /// `turn` was asked for with call_soon.
    turn_asked: Cell<bool>,
    /// Requests in `Stage::Held`.
    held: Cell<isize>,
    /// Our deadline that asyncio knows of, and its handle.
    armed: Cell<u64>,
    timer: RefCell<Option<Owned>>,
    draining: Cell<bool>,
    /// Requests were cancelled because the drain took too long.
    cut: Cell<bool>,
    stopped: Cell<bool>,
}

impl Executor {
    /// For the present thread and an event loop of its own.
    pub fn make(
        py: Attached,
        app: &AsgiApp,
        event_loop: &Owned,
        worker: &Worker,
    ) -> Result<Box<Executor>, Raised> {
        let words = &classes().words;
        let method = |name| py.attribute(event_loop, name);
        let names = py.tuple([
            &py.interned(c"loop")?,
            &py.interned(c"eager_start")?,
            &py.interned(c"context")?,
        ])?;
        let asyncio = Asyncio {
            task: py.attribute(&py.import(c"asyncio")?, c"Task")?,
            task_names: names,
            create_future: method(c"create_future")?,
            call_soon: method(c"call_soon")?,
            call_later: method(c"call_later")?,
            stop: method(c"stop")?,
            event_loop: event_loop.again(),
        };
        let callbacks = Callbacks {
            ready: callback(py, c"m0serve_ready", ready)?,
            timer: callback(py, c"m0serve_timer", timer)?,
            drained: callback(py, c"m0serve_drain_ended", drain_ended)?,
        };
        let scopes = Scopes::make(py, &app.root_path)?;
        // SAFETY: attached; words live for ever.
        let body_template = unsafe {
            let template = Owned::new(ffi::PyDict_New())?;
            set(
                py,
                &template,
                words.kind,
                &Owned::borrowed(words.http_request),
            )?;
            set(py, &template, words.body, scopes.empty())?;
            set(py, &template, words.more_body, &py.bool(false))?;
            template
        };
        Ok(Box::new(Executor {
            app: app.callable,
            websockets: app.spec.websocket,
            pings: app.spec.pings,
            asyncio,
            callbacks,
            graceful: worker.graceful,
            pulse: worker.pulse.clone(),
            gil: Watch::make(py)?,
            turns: Arc::clone(&worker.turns),
            event_loop: RefCell::new(None),
            scopes: RefCell::new(scopes),
            body_template,
            by_connection: RefCell::default(),
            running: RefCell::default(),
            spare: RefCell::default(),
            spare_run: Cell::new(None),
            spare_context: Cell::new(None),
            knocks: Cell::default(),
            in_turn: Cell::new(false),
            turn_asked: Cell::new(false),
            held: Cell::new(0),
            armed: Cell::new(u64::MAX),
            timer: RefCell::new(None),
            draining: Cell::new(false),
            cut: Cell::new(false),
            stopped: Cell::new(false),
        }))
    }

    /// The present thread's executor is this one, or none.
    pub fn enter(&self) {
        CURRENT.set(self);
    }

    pub fn leave() {
        CURRENT.set(ptr::null());
    }

    #[inline]
    pub fn app(&self) -> *mut PyObject {
        self.app
    }

    /// What the lifespan left for the requests.
    pub fn set_state(&self, state: Owned) {
        self.scopes.borrow_mut().set_state(state);
    }

    /// Serves with this loop from now on.
    pub fn serve(&self, py: Attached, mut event_loop: Box<Loop>) -> Result<(), Raised> {
        event_loop.deliver_streamed();
        let descriptor = py.int(event_loop.poll_fd().into())?;
        self.event_loop.replace(Some(event_loop));
        py.call_method(
            &self.asyncio.event_loop,
            c"add_reader",
            [&descriptor, &self.callbacks.ready],
        )?;
        self.turn(py);
        Ok(())
    }

    /// After the last turn: connections that are left are cut.
    pub fn close(&self, py: Attached) -> Result<(), Raised> {
        let event_loop = self.event_loop.take();
        if let Some(event_loop) = event_loop {
            let descriptor = py.int(event_loop.poll_fd().into())?;
            py.call_method(&self.asyncio.event_loop, c"remove_reader", [&descriptor])?;
        }
        let timer = self.timer.take();
        if let Some(timer) = timer {
            py.call_method(&timer, c"cancel", [])?;
        }
        Ok(())
    }

    /// True if the drain ended with requests cut.
    pub fn was_cut(&self) -> bool {
        self.cut.get()
    }

    /// The executor has seen to its drain: the event loop was stopped by us.
    pub fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    // ---- the turn ----

    /// All that our loop has to do now.
    fn turn(&self, py: Attached) {
        if self.in_turn.get() {
            return;
        }
        let inside = Inside::enter(&self.in_turn);
        self.turn_asked.set(false);
        if let Some(pulse) = &self.pulse {
            pulse.beat();
        }
        for _ in 0..TURNS {
            if !self.pass(py) {
                break;
            }
        }
        self.send_held(py);
        drop(inside);
        self.gil.count(py, &self.turns);
        self.rearm(py);
        self.look_after_drain(py);
    }

    /// True if another pass is worth it at once.
    fn pass(&self, py: Attached) -> bool {
        let mut knocks = self.knocks.take();
        {
            let mut event_loop = self.event_loop.borrow_mut();
            let Some(event_loop) = &mut *event_loop else {
                return false;
            };
            if let Err(error) = event_loop.turn(Some(Duration::ZERO)) {
                log::error!("cannot watch connections: {error}");
                return false;
            }
            event_loop.collect_knocks(&mut knocks);
        }
        for knock in &knocks {
            self.knock(py, *knock);
        }
        knocks.clear();
        self.knocks.set(knocks);
        let (mut began, mut all_ended) = (false, true);
        while let Some(job) = self.next_job() {
            began = true;
            if !self.begin(py, job) {
                all_ended = false;
                // One that goes on has no answer to keep the time of the others with.
                self.send_kept();
            }
        }
        began && all_ended
    }

    /// Sends the answers that our loop has kept.
    fn send_kept(&self) {
        if let Some(event_loop) = &mut *self.event_loop.borrow_mut() {
            event_loop.send_kept();
        }
    }

    /// When there is none, the answers that were kept are sent: a client of theirs may have its next request there.
    #[inline]
    fn next_job(&self) -> Option<Box<Connection>> {
        let mut event_loop = self.event_loop.borrow_mut();
        let event_loop = event_loop.as_mut()?;
        event_loop.next_job().or_else(|| {
            event_loop.send_kept();
            event_loop.next_job()
        })
    }

    /// Something happened to the connection of a running request.
    fn knock(&self, py: Attached, knock: Knock) {
        let request = match self.by_connection.borrow().get(knock.key) {
            Some(Some(request)) => Rc::clone(request),
            // Given back meanwhile.
            _ => return,
        };
        let mut held = request.connection.borrow_mut();
        let Some(connection) = &mut *held else {
            return;
        };
        if knock.due {
            let awaits = match request.protocol() {
                _ if request.has_file() => Awaits::Room,
                Protocol::Http if !request.receivers.borrow().is_empty() => Awaits::Body,
                _ => Awaits::Nothing,
            };
            let overdue = match &mut *self.event_loop.borrow_mut() {
                Some(event_loop) => event_loop.is_overdue(connection, awaits),
                None => false,
            };
            if overdue {
                let refused = connection.time_out();
                drop(held);
                return request.end_connection(py, self, refused);
            }
            drop(held);
            return request.ping(py, self);
        }
        connection.hear(knock.hung_up);
        let lost = knock.broken || connection.flush() == Err(Gone);
        if lost {
            drop(held);
            return request.end_connection(py, self, false);
        }
        let pending = connection.exchange().pending();
        if pending > 0 {
            self.watch(connection, Awaits::Nothing);
        }
        let wakes_receivers = connection.has_hung_up() || connection.may_have_body();
        drop(held);
        if request.protocol() == Protocol::WebSocket {
            return request.knock_socket(py, self, pending);
        }
        if request.has_file() && pending == 0 {
            request.pump_file(py, self);
        } else if pending <= LOW_WATER {
            request.wake_senders(py, self);
        }
        if wakes_receivers {
            request.wake_receivers(py, self);
        }
    }

    // ---- heads that wait for their bodies ----

    pub fn count_held(&self, change: isize) {
        self.held.set(self.held.get() + change);
        if change > 0
            && !self.in_turn.get()
            && let Some(py) = attached()
        {
            self.ask_for_turn(py);
        }
    }

    /// Sends the heads whose bodies did not follow within the turn.
    fn send_held(&self, py: Attached) {
        if self.held.get() <= 0 {
            return;
        }
        let held: Vec<Rc<Request>> = self
            .running
            .borrow()
            .iter()
            .map(|(_, request)| request)
            .filter(|request| request.stage.get() == Stage::Held)
            .map(Rc::clone)
            .collect();
        for request in held {
            request.send_held(py, self);
        }
    }

    // ---- waiting ----

    /// A new future among `waiters`.
    pub fn wait(&self, py: Attached, waiters: &RefCell<Vec<Owned>>) -> Result<Poll, Raised> {
        let future = py.call(&self.asyncio.create_future, [])?;
        // What `Future.__await__` does before it yields itself.
        // SAFETY: attached; live objects.
        if unsafe {
            ffi::PyObject_SetAttr(
                future.ptr(),
                classes().words.future_blocking,
                ffi::Py_True(),
            )
        } != 0
        {
            return Err(Raised);
        }
        waiters.borrow_mut().push(future.again());
        Ok(Poll::Wait(future))
    }

    pub fn wake(&self, py: Attached, waiters: Vec<Owned>) {
        for waiter in waiters {
            if let Err(raised) = wake_one(py, &waiter) {
                fault::log_exception(py, raised, "waking a receiver");
            }
        }
    }

    /// An `http.request` message.
    #[inline]
    pub fn body_message(&self, py: Attached, bytes: &[u8], more: bool) -> Result<Owned, Raised> {
        // SAFETY: attached; a dict of this thread's.
        let message = unsafe { Owned::new(ffi::PyDict_Copy(self.body_template.ptr()))? };
        if !bytes.is_empty() {
            set(py, &message, classes().words.body, &py.bytes(bytes)?)?;
        }
        if more {
            set(py, &message, classes().words.more_body, &py.bool(true))?;
        }
        Ok(message)
    }
}

/// Inside of a turn, until it is dropped: by a panic too.
struct Inside<'a>(&'a Cell<bool>);

impl Inside<'_> {
    fn enter(flag: &Cell<bool>) -> Inside<'_> {
        flag.set(true);
        Inside(flag)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Only inside of calls from CPython or the executor's own: on an executor's thread Python is attached.
fn attached() -> Option<Attached> {
    // SAFETY: `current` has an executor only while its event loop runs, and whatever of ours runs on that thread then
    // was called by CPython.
    current().map(|_| unsafe { Attached::assume() })
}

fn wake_one(py: Attached, waiter: &Owned) -> Result<(), Raised> {
    let words = &classes().words;
    // SAFETY: attached; live objects, as many as said.
    unsafe {
        let arguments = [waiter.ptr(), ffi::Py_None()];
        let call = |name, count| {
            Owned::new(ffi::PyObject_VectorcallMethod(
                name,
                arguments.as_ptr(),
                count,
                ptr::null_mut(),
            ))
        };
        // One whose task was cancelled is done already.
        if call(words.done, 1)?.ptr() == ffi::Py_True() {
            return Ok(());
        }
        call(words.set_result, 2)?;
    }
    let _ = py;
    Ok(())
}

/// A function without arguments, for asyncio to call.
pub fn callback(
    py: Attached,
    name: &'static std::ffi::CStr,
    function: ffi::PyCFunction,
) -> Result<Owned, Raised> {
    let _ = py;
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunction: function,
        },
        ml_flags: ffi::METH_NOARGS,
        ml_doc: ptr::null(),
    }));
    // SAFETY: attached; the definition lives for ever, a few for each thread of the process.
    unsafe {
        Owned::new(ffi::PyCFunction_NewEx(
            definition,
            ptr::null_mut(),
            ptr::null_mut(),
        ))
    }
}

fn on_executor(work: impl FnOnce(Attached, &Executor)) -> *mut PyObject {
    entry(|py| {
        if let Some(executor) = current() {
            work(py, executor);
        }
        Ok(py.none())
    })
}

unsafe extern "C" fn ready(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    on_executor(|py, executor| executor.turn(py))
}

unsafe extern "C" fn timer(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    on_executor(|py, executor| {
        executor.armed.set(u64::MAX);
        executor.turn(py);
    })
}

unsafe extern "C" fn drain_ended(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    on_executor(|py, executor| executor.end_drain(py))
}
