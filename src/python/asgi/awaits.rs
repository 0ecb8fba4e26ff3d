//! What `receive()` and `send()` return: awaitables that ask again whenever something happened, and one that is done.
//!
//! Owns their classes. Both have a coroutine's methods, so that `asyncio.create_task(receive())` works; neither makes a
//! task or a coroutine frame, and what can be had at once is had without suspending.

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr;

use super::super::ffi::{self, PyObject, PyTypeObject};
use super::super::object::{Attached, Exception, Owned, Raised};
use super::super::types::{self, Class, Method, arguments, entry};
use super::classes;
use super::handle::{self, Link};

/// What an awaitable is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The next message.
    Receive,
    /// Room for more of the response.
    Room,
}

#[repr(C)]
struct Await {
    object: PyObject,
    /// The `Handle` that it came from; held.
    handle: *mut PyObject,
    waits: Waits,
    /// The future that it yielded last, which the request holds; only compared.
    future: Cell<*mut PyObject>,
}

/// Whether something can be had.
pub enum Poll {
    Ready(Owned),
    /// A future that is to be yielded: it is done when it is time to ask again.
    Wait(Owned),
}

/// The methods that a coroutine has (PEP 492).
pub const fn coroutine(
    send: ffi::PyCFunctionFast,
    throw: ffi::PyCFunctionFast,
    close: ffi::PyCFunctionFast,
) -> [Method; 3] {
    const DOC: &CStr = c"As a coroutine's.";
    [
        Method {
            name: c"send",
            function: send,
            doc: DOC,
        },
        Method {
            name: c"throw",
            function: throw,
            doc: DOC,
        },
        Method {
            name: c"close",
            function: close,
            doc: DOC,
        },
    ]
}

pub fn class(py: Attached) -> Result<*mut PyTypeObject, Raised> {
    Class {
        name: c"m0serve.Await",
        doc: c"What receive() and send() return",
        size: size_of::<Await>(),
        flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
        methods: const { &coroutine(send, throw, close) },
        members: Vec::new(),
        getters: Vec::new(),
        slots: vec![
            (ffi::Py_tp_dealloc, dealloc as *mut _),
            (ffi::Py_tp_iter, itself as *mut _),
            (ffi::Py_tp_iternext, next as *mut _),
            (ffi::Py_am_await, itself as *mut _),
            (ffi::Py_am_send, am_send as *mut _),
        ],
    }
    .make(py)
}

/// # Safety
/// Attached; `handle` is an instance of `handle::class`.
#[inline]
pub unsafe fn make(py: Attached, handle: *mut PyObject, waits: Waits) -> Result<Owned, Raised> {
    let _ = py;
    // SAFETY: attached; a fresh instance, whose fields are all written before anybody sees it.
    unsafe {
        let made = types::allocate(classes().awaits)?;
        let object: *mut Await = made.ptr().cast();
        (&raw mut (*object).handle).write(Owned::borrowed(handle).into_ptr());
        (&raw mut (*object).waits).write(waits);
        (&raw mut (*object).future).write(Cell::new(ptr::null_mut()));
        Ok(made)
    }
}

impl Await {
    fn poll(&self, py: Attached) -> Result<Poll, Raised> {
        // SAFETY: attached; the handle is held.
        let polled = match unsafe { handle::link(py, self.handle)? } {
            Link::Closed(protocol) => match self.waits {
                Waits::Receive => Poll::Ready(protocol.disconnect(py)?),
                Waits::Room => Poll::Ready(py.none()),
            },
            Link::Open(executor, request) => match self.waits {
                Waits::Receive => request.poll_receive(py, executor)?,
                Waits::Room => request.poll_room(py, executor)?,
            },
        };
        self.future.set(match &polled {
            Poll::Ready(_) => ptr::null_mut(),
            Poll::Wait(future) => future.ptr(),
        });
        Ok(polled)
    }

    /// Nobody waits any more.
    fn forget(&self, py: Attached) {
        let future = self.future.replace(ptr::null_mut());
        if future.is_null() {
            return;
        }
        // SAFETY: attached; the handle is held.
        match unsafe { handle::link(py, self.handle) } {
            Ok(Link::Open(_, request)) => request.forget(future),
            Ok(Link::Closed(_)) => {}
            // Another thread's garbage collector: the request drops the future when it wakes its waiters.
            Err(Raised) => drop(py.take_exception()),
        }
    }
}

/// # Safety
/// `object` is an instance of the class made here.
unsafe fn this<'a>(object: *mut PyObject) -> &'a Await {
    // SAFETY: the caller's promise; the caller's reference keeps it alive.
    unsafe { &*object.cast() }
}

pub(super) unsafe extern "C" fn itself(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: attached; CPython passes a live object.
    unsafe { Owned::borrowed(object).into_ptr() }
}

unsafe extern "C" fn next(object: *mut PyObject) -> *mut PyObject {
    entry(|py| {
        // SAFETY: CPython calls it for instances of our class.
        match unsafe { this(object) }.poll(py)? {
            Poll::Wait(future) => Ok(future),
            Poll::Ready(value) => Err(stop_with(py, &value)),
        }
    })
}

unsafe extern "C" fn am_send(
    object: *mut PyObject,
    _value: *mut PyObject,
    result: *mut *mut PyObject,
) -> ffi::PySendResult {
    let mut returned = false;
    let out = entry(|py| {
        // SAFETY: CPython calls it for instances of our class.
        match unsafe { this(object) }.poll(py)? {
            Poll::Wait(future) => Ok(future),
            Poll::Ready(value) => {
                returned = true;
                Ok(value)
            }
        }
    });
    // SAFETY: a place for the result, as PyIter_Send asks for.
    unsafe { *result = out };
    match (out.is_null(), returned) {
        (true, _) => ffi::PySendResult::PYGEN_ERROR,
        (false, true) => ffi::PySendResult::PYGEN_RETURN,
        (false, false) => ffi::PySendResult::PYGEN_NEXT,
    }
}

unsafe extern "C" fn send(
    object: *mut PyObject,
    _arguments: *mut *mut PyObject,
    _count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: a method of our class.
    unsafe { next(object) }
}

unsafe extern "C" fn throw(
    object: *mut PyObject,
    given: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    entry(|py| {
        // SAFETY: a method of our class.
        unsafe { this(object) }.forget(py);
        // SAFETY: the running function's arguments.
        Err(raise_given(py, unsafe { arguments(given, count) }))
    })
}

unsafe extern "C" fn close(
    object: *mut PyObject,
    _arguments: *mut *mut PyObject,
    _count: ffi::Py_ssize_t,
) -> *mut PyObject {
    entry(|py| {
        // SAFETY: a method of our class.
        unsafe { this(object) }.forget(py);
        Ok(py.none())
    })
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: called by CPython, attached, for the last reference.
    unsafe {
        let py = Attached::assume();
        let this = this(object);
        this.forget(py);
        ffi::Py_DECREF(this.handle);
        types::release(object);
    }
}

/// Raises what `throw` was called with: an exception, or a class and perhaps a value.
pub(super) fn raise_given(py: Attached, given: &[*mut PyObject]) -> Raised {
    // SAFETY: attached; live objects.
    unsafe {
        match given {
            [] => return py.raise(Exception::Type, "throw() takes an exception"),
            [exception, ..] if ffi::PyExceptionInstance_Check(*exception) != 0 => {
                ffi::PyErr_SetObject(ffi::Py_TYPE(*exception).cast(), *exception);
            }
            [class, value, ..] if ffi::PyExceptionClass_Check(*class) != 0 => {
                ffi::PyErr_SetObject(*class, *value);
            }
            [class] if ffi::PyExceptionClass_Check(*class) != 0 => ffi::PyErr_SetNone(*class),
            _ => return py.raise(Exception::Type, "throw() takes an exception"),
        }
    }
    Raised
}

/// StopIteration with a value that is neither a tuple nor an exception (those would be taken apart).
pub(super) fn stop_with(py: Attached, value: &Owned) -> Raised {
    let _ = py;
    // SAFETY: attached; a live object.
    unsafe { ffi::PyErr_SetObject(ffi::PyExc_StopIteration, value.ptr()) };
    Raised
}

/// The class of [`super::Classes::done`].
pub fn done(py: Attached) -> Result<*mut PyObject, Raised> {
    let class = Class {
        name: c"m0serve.Done",
        doc: c"An awaitable that is done",
        size: size_of::<PyObject>(),
        flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
        methods: const { &coroutine(done_send, done_throw, done_close) },
        members: Vec::new(),
        getters: Vec::new(),
        slots: vec![
            (ffi::Py_tp_iter, itself as *mut _),
            (ffi::Py_tp_iternext, done_next as *mut _),
            (ffi::Py_am_await, itself as *mut _),
        ],
    }
    .make(py)?;
    // SAFETY: attached; an instance without fields, never released.
    unsafe {
        let done = types::allocate(class)?.into_ptr();
        ffi::make_immortal(done);
        Ok(done)
    }
}

/// The end of an iterator without an exception: the await's value is None.
unsafe extern "C" fn done_next(_object: *mut PyObject) -> *mut PyObject {
    ptr::null_mut()
}

unsafe extern "C" fn done_send(
    _object: *mut PyObject,
    _arguments: *mut *mut PyObject,
    _count: ffi::Py_ssize_t,
) -> *mut PyObject {
    entry(|py| Err(stop_with(py, &py.none())))
}

unsafe extern "C" fn done_throw(
    _object: *mut PyObject,
    given: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: the running function's arguments.
    entry(|py| Err(raise_given(py, unsafe { arguments(given, count) })))
}

unsafe extern "C" fn done_close(
    _object: *mut PyObject,
    _arguments: *mut *mut PyObject,
    _count: ffi::Py_ssize_t,
) -> *mut PyObject {
    entry(|py| Ok(py.none()))
}
