//! One thread's executor: an asyncio loop with one of our loops nested in it, and the requests that run there.
//!
//! Owns the order of a turn: readiness, knocks, new requests, held heads, deadlines, the drain. Everything here runs on
//! the one thread, attached; the event loop's own `select` detaches while nothing happens. Nothing is borrowed while
//! Python code can run, because all of it may come back here through `send`.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use slab::Slab;

use super::super::fault;
use super::super::ffi::{self, PyObject};
use super::super::object::{Attached, Exception, Owned, Raised};
use super::super::types::entry;
use super::awaits::Poll;
use super::request::{LOW_WATER, Protocol, Request, Stage};
use super::scope::{Scopes, set};
use super::socket::{self, Socket};
use super::watch::Pulse;
use super::worker::Worker;
use super::{AsgiApp, classes, run};
use crate::config::Pings;
use crate::event_loop::{Awaits, Connection, Knock, Loop, Millis};
use crate::exchange::Gone;
use crate::observe::log;
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
            all_ended &= self.begin(py, job);
        }
        began && all_ended
    }

    #[inline]
    fn next_job(&self) -> Option<Box<Connection>> {
        self.event_loop.borrow_mut().as_mut()?.next_job()
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

    // ---- requests ----

    /// Runs a request's first step. True if the application has ended with it.
    fn begin(&self, py: Attached, mut connection: Box<Connection>) -> bool {
        let key = connection.key();
        let mut protocol = Protocol::Http;
        let mut handshake = None;
        if socket::is_asked_for(connection.exchange()) {
            protocol = Protocol::WebSocket;
            handshake = socket::read_handshake(connection.exchange(), &self.websockets);
            if handshake.is_none() {
                self.give_back(py, connection, Loop::release);
                return true;
            }
        }
        let scope = {
            let mut scopes = self.scopes.borrow_mut();
            match &handshake {
                Some(handshake) => scopes.websocket(py, &mut connection, handshake.subprotocols()),
                None => scopes.http(py, &mut connection),
            }
        };
        let scope = match scope {
            Ok(scope) => scope,
            Err(raised) => {
                fault::log_exception(py, raised, "a request can't be made into a scope");
                connection.exchange().fail(500);
                self.give_back(py, connection, Loop::release);
                return true;
            }
        };
        let request = self
            .spare
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Request::new(self));
        let opened = request.open(py, self, protocol, connection);
        request.set_scope(scope);
        if let Some(handshake) = handshake {
            request.set_socket(Socket::new(handshake));
        }
        {
            let mut by_connection = self.by_connection.borrow_mut();
            if key >= by_connection.len() {
                by_connection.resize_with(key + 1, || None);
            }
            by_connection[key] = Some(Rc::clone(&request));
        }
        let slot = self.running.borrow_mut().insert(Rc::clone(&request));
        request.slot.set(slot);
        if let Err(raised) = opened.and_then(|()| self.start_task(py, &request)) {
            if !request.ended.get() {
                self.ended(py, Rc::clone(&request), Outcome::Raised(raised));
            } else {
                fault::log_exception(py, raised, "a request's task failed");
            }
        }
        let ended = request.ended.get();
        if ended {
            self.recycle(request);
        } else {
            request.compact();
        }
        ended
    }

    fn start_task(&self, py: Attached, request: &Rc<Request>) -> Result<(), Raised> {
        let run = match self.spare_run.take() {
            Some(run) => run,
            None => run::make(py)?,
        };
        run::aim(&run, request);
        let context = match self.spare_context.take() {
            Some(context) => context,
            // SAFETY: attached.
            None => unsafe { Owned::new(ffi::PyContext_New())? },
        };
        let asyncio = &self.asyncio;
        // SAFETY: attached; live objects; one positional argument and as many named ones as there are names.
        let task = unsafe {
            let arguments = [
                ptr::null_mut(),
                run.ptr(),
                asyncio.event_loop.ptr(),
                ffi::Py_True(),
                context.ptr(),
            ];
            Owned::new(ffi::PyObject_Vectorcall(
                asyncio.task.ptr(),
                arguments.as_ptr().add(1),
                1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET,
                asyncio.task_names.ptr(),
            ))?
        };
        if !request.ended.get() {
            request.task.replace(Some(task));
            return Ok(());
        }
        drop(task);
        // SAFETY: attached, on the thread that made them; a context has a length. A context that somebody set a variable
        // in is not empty; one that somebody kept has another reference.
        unsafe {
            if ffi::has_only(run.ptr(), 1) {
                self.spare_run.set(Some(run));
            }
            if ffi::has_only(context.ptr(), 1) && ffi::PyObject_Size(context.ptr()) == 0 {
                self.spare_context.set(Some(context));
            }
        }
        Ok(())
    }

    fn recycle(&self, request: Rc<Request>) {
        let mut spare = self.spare.borrow_mut();
        if request.ended.get() && Rc::strong_count(&request) == 1 && spare.len() < 64 {
            spare.push(request);
        }
    }

    /// The application of a request has ended.
    pub fn ended(&self, py: Attached, request: Rc<Request>, outcome: Outcome) {
        let failed = !matches!(outcome, Outcome::Returned);
        self.report(py, &request, outcome);
        if request.connection.borrow().is_some() {
            request.break_off(py, self, failed);
        }
        request.wake_all(py, self);
        let slot = request.slot.replace(usize::MAX);
        let removed = self.running.borrow_mut().try_remove(slot);
        drop(removed);
        request.close();
        self.recycle(request);
        if !self.in_turn.get() {
            self.look_after_drain(py);
        }
    }

    /// Logs what went wrong.
    fn report(&self, py: Attached, request: &Request, outcome: Outcome) {
        // One that was told of its client's hanging up may leave it at that.
        let complete = request.stage.get() == Stage::Complete || request.has_hung_up();
        let said = match outcome {
            Outcome::Returned if complete || request.gone.get() || request.socket_may_end() => {
                return;
            }
            Outcome::Returned => match request.stage.get() {
                Stage::Awaited => "without a response",
                _ => "before its response was complete",
            },
            Outcome::Cancelled if complete || self.cut.get() => return,
            Outcome::Cancelled => "because it was cancelled",
            Outcome::Raised(raised) => {
                if request.gone.get() && is_disconnect(py) {
                    drop(py.take_exception());
                    return;
                }
                let exception = py.take_exception();
                let (method, target) = request.line(py);
                let raised = exception.map_or(raised, |exception| py.reraise(exception));
                return fault::log_view(py, raised, &method, &target);
            }
        };
        let (method, target) = request.line(py);
        py.detached(|| {
            log::error!(
                "the application ended {said} on {} {}",
                method.escape_ascii(),
                target.escape_ascii()
            );
        });
    }

    // ---- connections ----

    /// Gives a connection back whose answer is complete.
    pub fn release(&self, py: Attached, connection: Box<Connection>) {
        self.give_back(py, connection, Loop::release);
    }

    /// Gives a connection back that is of no use any more.
    pub fn discard(&self, py: Attached, connection: Box<Connection>) {
        self.give_back(py, connection, Loop::discard);
    }

    #[inline]
    fn give_back(
        &self,
        py: Attached,
        connection: Box<Connection>,
        give: impl FnOnce(&mut Loop, Box<Connection>),
    ) {
        let request = match self.by_connection.borrow_mut().get_mut(connection.key()) {
            Some(entry) => entry.take(),
            None => None,
        };
        drop(request);
        let queued = match &mut *self.event_loop.borrow_mut() {
            Some(event_loop) => {
                give(event_loop, connection);
                event_loop.queued()
            }
            None => 0,
        };
        if !self.in_turn.get() {
            // A pipelined request may have become a job.
            if queued > 0 {
                self.ask_for_turn(py);
            }
            self.rearm(py);
        }
    }

    /// A knock is to come when the client does nothing for its time-out.
    pub fn watch(&self, connection: &mut Connection, awaits: Awaits) {
        if let Some(event_loop) = &mut *self.event_loop.borrow_mut() {
            event_loop.watch(connection, awaits);
        }
    }

    /// A knock is to come at `due`.
    pub fn watch_until(&self, connection: &Connection, due: Millis) {
        if let Some(event_loop) = &mut *self.event_loop.borrow_mut() {
            event_loop.watch_until(connection, due);
        }
    }

    /// Milliseconds, as the loop counts them.
    pub fn now(&self) -> Millis {
        match &mut *self.event_loop.borrow_mut() {
            Some(event_loop) => {
                event_loop.tick();
                event_loop.now()
            }
            None => 0,
        }
    }

    pub fn pings(&self) -> Option<Pings> {
        self.pings
    }

    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Tells asyncio of our next deadline.
    pub fn rearm(&self, py: Attached) {
        if self.in_turn.get() {
            return;
        }
        let (due, now) = match &*self.event_loop.borrow() {
            Some(event_loop) => match event_loop.next_due() {
                Some(due) => (due, event_loop.now()),
                None => return,
            },
            None => return,
        };
        if due + SLACK >= self.armed.get() {
            return;
        }
        self.armed.set(due);
        let seconds = (due.saturating_sub(now) + SLACK / 2) as f64 / 1000.0;
        let timer = self.call_later(py, seconds, &self.callbacks.timer);
        let earlier = self.timer.replace(timer);
        if let Some(earlier) = earlier
            && let Err(raised) = py.call_method(&earlier, c"cancel", [])
        {
            fault::log_exception(py, raised, "cancelling a timer");
        }
    }

    fn call_later(&self, py: Attached, seconds: f64, callback: &Owned) -> Option<Owned> {
        // SAFETY: attached.
        let delay = unsafe { Owned::new(ffi::PyFloat_FromDouble(seconds)) };
        let handle = delay.and_then(|delay| py.call(&self.asyncio.call_later, [&delay, callback]));
        handle
            .map_err(|raised| fault::log_exception(py, raised, "setting a timer"))
            .ok()
    }

    fn ask_for_turn(&self, py: Attached) {
        if self.turn_asked.replace(true) {
            return;
        }
        if let Err(raised) = py.call(&self.asyncio.call_soon, [&self.callbacks.ready]) {
            self.turn_asked.set(false);
            fault::log_exception(py, raised, "asking for a turn");
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

    // ---- the end ----

    /// Sees that the server stops, and stops the event loop when nothing is left to do.
    fn look_after_drain(&self, py: Attached) {
        if self.stopped.get() {
            return;
        }
        let drained = match &*self.event_loop.borrow() {
            Some(event_loop) if event_loop.is_draining() => event_loop.is_drained(),
            _ => return,
        };
        if !self.draining.replace(true) {
            self.call_later(py, self.graceful.as_secs_f64(), &self.callbacks.drained);
            let running: Vec<Rc<Request>> = self.all_running();
            for request in running {
                if request.protocol() == Protocol::WebSocket {
                    request.go_away(py, self);
                }
            }
        }
        if drained && self.running.borrow().is_empty() {
            self.stop(py);
        }
    }

    fn all_running(&self) -> Vec<Rc<Request>> {
        let running = self.running.borrow();
        running
            .iter()
            .map(|(_, request)| Rc::clone(request))
            .collect()
    }

    fn stop(&self, py: Attached) {
        self.stopped.set(true);
        if let Err(raised) = py.call(&self.asyncio.stop, []) {
            fault::log_exception(py, raised, "stopping the event loop");
        }
    }

    /// The graceful time-out passed: first the requests are cancelled, then, should that not help, they are left.
    fn end_drain(&self, py: Attached) {
        if self.stopped.get() {
            return;
        }
        if self.cut.replace(true) {
            return self.stop(py);
        }
        let running = self.all_running();
        let count = running.len();
        py.detached(|| {
            log::error!(
                "{count} requests were still running after {} s (--graceful-timeout); they are cancelled",
                self.graceful.as_secs_f64()
            );
        });
        for request in running {
            let task = request.task.borrow().as_ref().map(Owned::again);
            if let Some(task) = task
                && let Err(raised) = py.call_method(&task, c"cancel", [])
            {
                fault::log_exception(py, raised, "cancelling a request");
            }
        }
        self.call_later(py, AFTER_CANCEL.as_secs_f64(), &self.callbacks.drained);
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

/// What cancelled requests have for their clean-up.
const AFTER_CANCEL: Duration = Duration::from_secs(2);

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

/// True if the exception that is set comes of our telling that the client is gone.
fn is_disconnect(py: Attached) -> bool {
    let Some(exception) = py.take_exception() else {
        return false;
    };
    let mut found = false;
    let mut next = Some(exception.again());
    for _ in 0..8 {
        let Some(here) = next.take() else { break };
        if py.is_instance(&here, Exception::BrokenPipe) {
            found = true;
            break;
        }
        for name in [c"__cause__", c"__context__"] {
            match py.attribute(&here, name) {
                Ok(value) if !value.is_none() => {
                    next = Some(value);
                    break;
                }
                Ok(_) => {}
                Err(Raised) => drop(py.take_exception()),
            }
        }
    }
    let _ = py.reraise(exception);
    found
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
