//! `start_response` and the `write` that it returns (PEP 3333 "The start_response() Callable").
//!
//! Owns the pair of native callables that one request's application gets, how far its answer has come, and the rules of
//! who may call when. An application may keep them: after its request, or on another thread, they refuse politely.
//! A pair that nobody kept serves the thread's next request.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::super::ffi;
use super::super::ffi::{Py_ssize_t, PyObject, PyTypeObject};
use super::super::object::{Attached, Exception, Owned, Raised, bytes_of, class_name, latin1_of};
use super::super::types::{self, Class, arguments, entry};
use crate::exchange::{Exchange, Gone, Room};
use crate::http1::{BodySize, HeadError, ResponseHead};

/// How far an answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `start_response` was not called yet.
    Awaited,
    /// Status and fields are known; nothing was sent, so that an error can still replace them.
    Held,
    /// The head is out.
    Sent,
}

/// What a handler thread's callables write to: the answer of the request that the thread is running.
pub struct Answer {
    head: RefCell<ResponseHead>,
    /// Null between requests.
    exchange: Cell<*mut Exchange>,
    /// The `start_response` of the running request; another one that a suspended response owns is not it.
    current: Cell<*mut StartResponse>,
}

thread_local! {
    /// This thread's answer, so that a callable can tell whether it is called on its own thread.
    static ANSWER: Cell<*const Answer> = const { Cell::new(ptr::null()) };
}

#[repr(C)]
pub struct StartResponse {
    object: PyObject,
    call: ffi::vectorcallfunc,
    /// Where it writes to; null as soon as its request is over. Only its own thread changes it, any may look.
    answer: AtomicPtr<Answer>,
    /// Only touched by its own thread.
    stage: Cell<Stage>,
    /// The pair's other half, which whoever runs the request keeps alive; null once the pair was taken apart.
    write: Cell<*mut PyObject>,
    /// Body bytes that the announced Content-Length still has room for; `u64::MAX` if none was announced.
    room: Cell<u64>,
}

#[repr(C)]
struct Write {
    object: PyObject,
    call: ffi::vectorcallfunc,
    /// Held.
    start: *mut PyObject,
}

/// The two callables of one request.
pub struct Pair {
    start: Owned,
    write: Owned,
}

pub struct Classes {
    start: *mut PyTypeObject,
    write: *mut PyTypeObject,
}

/// Why a piece of body could not be sent on.
pub enum Failure {
    Raised,
    Gone,
}

impl From<Raised> for Failure {
    fn from(_: Raised) -> Failure {
        Failure::Raised
    }
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Failure {
        Failure::Gone
    }
}

impl Classes {
    pub fn make(py: Attached) -> Result<Classes, Raised> {
        let callable = |name, doc, size, offset, dealloc: ffi::destructor| Class {
            name,
            doc,
            size,
            flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION | ffi::Py_TPFLAGS_HAVE_VECTORCALL,
            methods: &[],
            members: vec![ffi::PyMemberDef {
                name: c"__vectorcalloffset__".as_ptr(),
                type_code: ffi::Py_T_PYSSIZET,
                offset,
                flags: ffi::Py_READONLY,
                doc: ptr::null(),
            }],
            getters: Vec::new(),
            slots: vec![
                (ffi::Py_tp_dealloc, dealloc as *mut _),
                (ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut _),
            ],
        };
        Ok(Classes {
            start: callable(
                c"m0serve.StartResponse",
                c"start_response(status, headers, exc_info=None) -> write",
                size_of::<StartResponse>(),
                std::mem::offset_of!(StartResponse, call) as Py_ssize_t,
                dealloc_start,
            )
            .make(py)?,
            write: callable(
                c"m0serve.Write",
                c"write(body): sends a piece of the body at once",
                size_of::<Write>(),
                std::mem::offset_of!(Write, call) as Py_ssize_t,
                dealloc_write,
            )
            .make(py)?,
        })
    }
}

impl Pair {
    pub fn make(py: Attached, classes: &Classes) -> Result<Pair, Raised> {
        let _ = py;
        // SAFETY: attached; the instances are fresh, and all their fields are written before anybody sees them.
        unsafe {
            let start = types::allocate(classes.start)?;
            let object: *mut StartResponse = start.ptr().cast();
            (&raw mut (*object).call).write(call_start);
            (&raw mut (*object).answer).write(AtomicPtr::new(ptr::null_mut()));
            (&raw mut (*object).stage).write(Cell::new(Stage::Awaited));
            (&raw mut (*object).room).write(Cell::new(u64::MAX));
            (&raw mut (*object).write).write(Cell::new(ptr::null_mut()));
            // A null `start` is what an instance that isn't finished has; `dealloc_write` knows it.
            let write = types::allocate(classes.write)?;
            let object: *mut Write = write.ptr().cast();
            (&raw mut (*object).call).write(call_write);
            (&raw mut (*object).start).write(start.again().into_ptr());
            let pair = Pair { start, write };
            pair.state().write.set(pair.write.ptr());
            Ok(pair)
        }
    }

    #[inline]
    fn state(&self) -> &StartResponse {
        // SAFETY: made by `make`, alive with `self`, and only used through shared references.
        unsafe { &*self.start.ptr().cast::<StartResponse>() }
    }

    #[inline]
    pub fn stage(&self) -> Stage {
        self.state().stage.get()
    }

    /// True if a body that goes on has no business: all that was announced is out.
    pub fn is_full(&self) -> bool {
        self.state().room.get() == 0
    }

    /// The request is over: whoever kept the callables can't do anything with them. Returns the pair for the next
    /// request if nobody did.
    #[inline]
    pub fn retire(self) -> Option<Pair> {
        let state = self.state();
        state.answer.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: attached on the thread that made them. Ours alone: one reference to `write`, two to `start`.
        let unshared =
            unsafe { ffi::has_only(self.write.ptr(), 1) && ffi::has_only(self.start.ptr(), 2) };
        unshared.then_some(self)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let state = self.state();
        state.answer.store(ptr::null_mut(), Ordering::Release);
        state.write.set(ptr::null_mut());
    }
}

impl Answer {
    /// For the present thread. It must stay where it is, and be [taken away](Answer::leave_thread) before it goes.
    pub fn new() -> Box<Answer> {
        Box::new(Answer {
            head: RefCell::new(ResponseHead::new()),
            exchange: Cell::new(ptr::null_mut()),
            current: Cell::new(ptr::null_mut()),
        })
    }

    pub fn enter_thread(&self) {
        ANSWER.set(self);
    }

    pub fn leave_thread(&self) {
        ANSWER.set(ptr::null());
    }

    /// The thread runs a request: `pair` writes to `exchange` until [`close`](Answer::close).
    #[inline]
    pub fn open(&self, exchange: *mut Exchange, pair: &Pair) {
        self.exchange.set(exchange);
        self.current.set(pair.start.ptr().cast());
        let state = pair.state();
        state
            .answer
            .store(ptr::from_ref(self).cast_mut(), Ordering::Release);
    }

    /// What the running request's application gets as `start_response`.
    #[inline]
    pub fn callable(&self) -> *mut PyObject {
        self.current.get().cast()
    }

    #[inline]
    pub fn close(&self) {
        self.exchange.set(ptr::null_mut());
        self.current.set(ptr::null_mut());
    }

    /// A fresh pair, or one that served before, begins with this.
    #[inline]
    pub fn begin(&self, pair: &Pair) {
        pair.state().stage.set(Stage::Awaited);
        pair.state().room.set(u64::MAX);
    }

    /// The running request's exchange. Never kept across a call into Python: an application's `write` takes it too.
    ///
    /// # Safety
    /// Between `open` and `close`, and no other reference to the exchange is alive.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn exchange(&self) -> &mut Exchange {
        debug_assert!(!self.exchange.get().is_null());
        // SAFETY: the caller's promise; `open` got it from a reference that its caller keeps to itself.
        unsafe { &mut *self.exchange.get() }
    }

    /// The whole body at once.
    #[inline]
    pub fn respond(&self, pair: &Pair, body: &[u8]) {
        // SAFETY: no other reference is alive here.
        unsafe { self.exchange() }.respond(&self.head.borrow(), body);
        pair.state().stage.set(Stage::Sent);
    }

    /// The head, once the first piece of body is there.
    pub fn start(&self, pair: &Pair, size: BodySize) {
        self.start_of(pair.state(), size);
    }

    fn start_of(&self, state: &StartResponse, size: BodySize) {
        let head = self.head.borrow();
        // SAFETY: no other reference is alive here.
        let exchange = unsafe { self.exchange() };
        let bodiless = exchange.is_head() || matches!(head.code(), 204 | 205 | 304);
        state.room.set(if bodiless {
            0
        } else {
            head.content_length().unwrap_or(u64::MAX)
        });
        state.stage.set(Stage::Sent);
        exchange.start(&head, size);
    }

    /// A piece of the body; the head before it if it is the first.
    pub fn push(&self, pair: &Pair, chunk: &[u8], size: BodySize) {
        self.push_of(pair.state(), chunk, size);
    }

    fn push_of(&self, state: &StartResponse, chunk: &[u8], size: BodySize) {
        if state.stage.get() == Stage::Held {
            self.start_of(state, size);
        }
        // SAFETY: no other reference is alive here.
        unsafe { self.exchange() }.push(chunk);
        if state.room.get() != u64::MAX {
            state
                .room
                .set(state.room.get().saturating_sub(chunk.len() as u64));
        }
    }

    /// Sends what is buffered, as far as the socket takes it.
    pub fn flush(&self, py: Attached) -> Result<Room, Gone> {
        // SAFETY: no other reference is alive here, and none is made while the thread is detached.
        let exchange = unsafe { self.exchange() };
        py.detached(|| exchange.flush())
    }

    /// Waits until a slow client has made room.
    pub fn wait_room(&self, py: Attached) -> Result<(), Gone> {
        // SAFETY: as in `flush`.
        let exchange = unsafe { self.exchange() };
        py.detached(|| exchange.wait_room())
    }

    /// Takes over the status and the fields.
    fn take_head(
        &self,
        py: Attached,
        status: *mut PyObject,
        fields: *mut PyObject,
    ) -> Result<(), Raised> {
        // A field's value can be of a class of the application's own, whose end runs code that calls us again.
        let Ok(mut head) = self.head.try_borrow_mut() else {
            return Err(py.raise(
                Exception::Runtime,
                "start_response() was called while it was running",
            ));
        };
        head.clear();
        let refuse = |error: HeadError, what: &[u8]| {
            py.raise(Exception::Value, &format!("{error}: {}", shortened(what)))
        };
        let line = text(py, status, "the status")?;
        head.status(line).map_err(|error| refuse(error, line))?;
        if head.code() < 200 {
            let text = format!(
                "{} is not a final status, which start_response() is for",
                head.code()
            );
            return Err(py.raise(Exception::Value, &text));
        }
        for_each_field(py, fields, |name, value| {
            let name = text(py, name, "a header's name")?;
            let value = text(py, value, "a header's value")?;
            head.field(name, value).map_err(|error| refuse(error, name))
        })
    }
}

/// As much of the application's text as a message should show, with control characters escaped.
fn shortened(text: &[u8]) -> String {
    text[..text.len().min(80)].escape_ascii().to_string()
}

/// The latin-1 bytes of a str of the application's (PEP 3333 "Unicode Issues").
#[inline]
fn text<'a>(py: Attached, object: *mut PyObject, what: &str) -> Result<&'a [u8], Raised> {
    // SAFETY: attached; the callers hold the objects for as long as they use the text.
    unsafe {
        if ffi::PyUnicode_Check(object) == 0 {
            return Err(py.raise(
                Exception::Type,
                &format!("{what} must be a str, not {}", class_name(object)),
            ));
        }
        match latin1_of(object) {
            Some(bytes) => Ok(bytes),
            None => Err(py.raise(
                Exception::Value,
                &format!("{what} has characters beyond latin-1"),
            )),
        }
    }
}

/// Calls `each` with the two items of every header. PEP 3333 calls for a list of tuples; a tuple of them, and subclasses
/// of both, pass too.
#[inline]
fn for_each_field(
    py: Attached,
    fields: *mut PyObject,
    mut each: impl FnMut(*mut PyObject, *mut PyObject) -> Result<(), Raised>,
) -> Result<(), Raised> {
    let mut one = |field: *mut PyObject| {
        // SAFETY: attached; `field` is held by the caller, and a tuple holds its items.
        unsafe {
            if ffi::PyTuple_Check(field) == 0 || ffi::PyTuple_GET_SIZE(field) != 2 {
                let text = format!(
                    "a header must be a tuple of name and value, not {}",
                    class_name(field)
                );
                return Err(py.raise(Exception::Type, &text));
            }
            each(
                ffi::PyTuple_GET_ITEM(field, 0),
                ffi::PyTuple_GET_ITEM(field, 1),
            )
        }
    };
    // SAFETY: attached; the argument is held by who called us. Items of a list are held while they are looked at, as
    // other threads may change it.
    unsafe {
        if ffi::PyList_Check(fields) != 0 {
            let mut index = 0;
            while index < ffi::PyList_GET_SIZE(fields) {
                let Ok(field) = Owned::new(ffi::PyList_GetItemRef(fields, index)) else {
                    // It became shorter meanwhile.
                    drop(py.take_exception());
                    break;
                };
                one(field.ptr())?;
                index += 1;
            }
            return Ok(());
        }
        if ffi::PyTuple_Check(fields) != 0 {
            for index in 0..ffi::PyTuple_GET_SIZE(fields) {
                one(ffi::PyTuple_GET_ITEM(fields, index))?;
            }
            return Ok(());
        }
        let text = format!(
            "the headers must be a list of tuples, not {}",
            class_name(fields)
        );
        Err(py.raise(Exception::Type, &text))
    }
}

/// The answer that `state` may write to now, or an exception that says why not.
#[inline]
fn answer_of<'a>(py: Attached, state: &StartResponse, what: &str) -> Result<&'a Answer, Raised> {
    let answer = state.answer.load(Ordering::Acquire);
    if answer.is_null() {
        return Err(py.raise(
            Exception::Runtime,
            &format!("{what} was called after its request had ended"),
        ));
    }
    if ANSWER.get() != answer {
        return Err(py.raise(
            Exception::Runtime,
            &format!("{what} was called on another thread than its request's"),
        ));
    }
    // SAFETY: this thread's own answer, which lives until the thread's handler goes.
    Ok(unsafe { &*answer })
}

/// The three parameters of `start_response` in their places; absent ones are null.
fn parameters(
    py: Attached,
    positional: &[*mut PyObject],
    named: &[*mut PyObject],
    names: *mut PyObject,
) -> Result<[*mut PyObject; 3], Raised> {
    let mut places = [ptr::null_mut(); 3];
    if positional.len() > 3 {
        return Err(py.raise(Exception::Type, "start_response() takes 2 or 3 arguments"));
    }
    places[..positional.len()].copy_from_slice(positional);
    for (index, value) in named.iter().enumerate() {
        // SAFETY: attached; CPython passes a tuple of strings, one for each named argument.
        let name = unsafe {
            text(
                py,
                ffi::PyTuple_GET_ITEM(names, index as Py_ssize_t),
                "an argument's name",
            )?
        };
        let place = match name {
            b"status" => 0,
            b"headers" | b"response_headers" => 1,
            b"exc_info" => 2,
            _ => usize::MAX,
        };
        match places.get_mut(place) {
            Some(free) if free.is_null() => *free = *value,
            _ => {
                let text = format!(
                    "start_response() got an unexpected argument {}",
                    shortened(name)
                );
                return Err(py.raise(Exception::Type, &text));
            }
        }
    }
    if places[0].is_null() || places[1].is_null() {
        return Err(py.raise(
            Exception::Type,
            "start_response() takes a status and headers",
        ));
    }
    Ok(places)
}

unsafe extern "C" fn call_start(
    object: *mut PyObject,
    args: *const *mut PyObject,
    count: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: CPython passes the positional arguments and behind them the named ones (PEP 590).
    let (state, positional, named) = unsafe {
        let count = ffi::PyVectorcall_NARGS(count);
        let named = if names.is_null() {
            0
        } else {
            ffi::PyTuple_GET_SIZE(names)
        };
        let all = arguments(args.cast_mut(), count + named);
        let (positional, named) = all.split_at(count as usize);
        (&*object.cast::<StartResponse>(), positional, named)
    };
    entry(|py| {
        let answer = answer_of(py, state, "start_response()")?;
        let [status, fields, exc_info] = match *positional {
            [status, fields] if named.is_empty() => [status, fields, ptr::null_mut()],
            _ => parameters(py, positional, named, names)?,
        };
        // SAFETY: comparing addresses.
        let has_error = !exc_info.is_null() && unsafe { exc_info != ffi::Py_None() };
        match (state.stage.get(), has_error) {
            (Stage::Awaited, _) | (Stage::Held, true) => {}
            (Stage::Sent, true) => return Err(raise_exc_info(py, exc_info)),
            (Stage::Held | Stage::Sent, false) => {
                return Err(py.raise(
                    Exception::Assertion,
                    "start_response() was called twice without exc_info",
                ));
            }
        }
        // Whatever was held is void now, also if what replaces it turns out wrong.
        state.stage.set(Stage::Awaited);
        answer.take_head(py, status, fields)?;
        state.stage.set(Stage::Held);
        // SAFETY: attached on its own thread; the request that is running owns the pair, and with it `write`.
        Ok(unsafe { Owned::borrowed(state.write.get()) })
    })
}

/// The head is out, so the application's error can't be shown to the client: it is raised again (PEP 3333).
fn raise_exc_info(py: Attached, exc_info: *mut PyObject) -> Raised {
    // SAFETY: attached; the caller holds the argument, and a tuple its items.
    unsafe {
        if ffi::PyTuple_Check(exc_info) == 0 || ffi::PyTuple_GET_SIZE(exc_info) != 3 {
            return py.raise(
                Exception::Type,
                "exc_info must be a tuple as sys.exc_info() returns it",
            );
        }
        let [class, value, traceback] =
            [0, 1, 2].map(|index| ffi::PyTuple_GET_ITEM(exc_info, index));
        if value == ffi::Py_None() && class == ffi::Py_None() {
            return py.raise(Exception::Assertion, "the headers were already sent");
        }
        if ffi::PyExceptionInstance_Check(value) == 0 {
            ffi::PyErr_SetObject(class, value);
            return Raised;
        }
        if ffi::PyTraceBack_Check(traceback) != 0 {
            ffi::PyException_SetTraceback(value, traceback);
        }
        py.reraise(Owned::borrowed(value))
    }
}

unsafe extern "C" fn call_write(
    object: *mut PyObject,
    args: *const *mut PyObject,
    count: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: CPython passes its own; the pair's `start` lives as long as `write`.
    let (state, positional) = unsafe {
        let start = (*object.cast::<Write>()).start;
        (
            &*start.cast::<StartResponse>(),
            arguments(args.cast_mut(), ffi::PyVectorcall_NARGS(count)),
        )
    };
    entry(|py| {
        let &[body] = positional else {
            return Err(py.raise(Exception::Type, "write() takes one argument"));
        };
        if !names.is_null() {
            return Err(py.raise(Exception::Type, "write() takes no named arguments"));
        }
        let answer = answer_of(py, state, "write()")?;
        if answer.current.get().cast_const() != ptr::from_ref(state) {
            return Err(py.raise(
                Exception::Runtime,
                "write() was called during another request",
            ));
        }
        if state.stage.get() == Stage::Awaited {
            return Err(py.raise(
                Exception::Assertion,
                "write() was called before start_response()",
            ));
        }
        // SAFETY: attached; the caller holds the argument.
        let bytes = unsafe {
            if ffi::PyBytes_Check(body) == 0 {
                let text = format!("write() takes bytes, not {}", class_name(body));
                return Err(py.raise(Exception::Type, &text));
            }
            bytes_of(body)
        };
        if !bytes.is_empty() {
            answer.push_of(state, bytes, BodySize::Unknown);
            let sent = answer.flush(py).and_then(|room| {
                // SAFETY: no other reference is alive here.
                let may_wait = unsafe { answer.exchange() }.may_wait();
                // Where the thread must not wait, the rest stays in memory: nobody else would drive the loop, and the
                // application can't be suspended in the middle of a call.
                if room == Room::Full && may_wait {
                    answer.wait_room(py)
                } else {
                    Ok(())
                }
            });
            if sent.is_err() {
                return Err(py.raise(Exception::BrokenPipe, "the client went away"));
            }
        }
        Ok(py.none())
    })
}

unsafe extern "C" fn dealloc_start(object: *mut PyObject) {
    // SAFETY: the last reference is gone; the fields own nothing.
    unsafe { types::release(object) };
}

unsafe extern "C" fn dealloc_write(object: *mut PyObject) {
    // SAFETY: the last reference is gone; the reference to `start` is released once, here.
    unsafe {
        ffi::Py_XDECREF((*object.cast::<Write>()).start);
        types::release(object);
    }
}
