//! The coroutine that a request's task runs: the application's, with its beginning and its end seen by us.
//!
//! Owns the native class of that wrapper. The application is called in its first step, inside the task and its context;
//! when it ends, with or without an exception, the executor hears of it at once and no done callback is needed. Whoever
//! looks at the task's coroutine (anyio does) is shown the application's own.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use super::super::ffi::{self, PyObject, PyTypeObject};
use super::super::object::{Attached, Exception, Owned, Raised, class_name};
use super::super::types::{self, Class, arguments, entry};
use super::awaits::{coroutine, itself, raise_given, stop_with};
use super::classes;
use super::executor::{self, Executor, Outcome};
use super::request::Request;

#[repr(C)]
struct Run {
    object: PyObject,
    /// Counted; null when the application has ended.
    request: Cell<*const Request>,
    /// The application's awaitable; null before the first step.
    inner: Cell<*mut PyObject>,
}

pub fn class(py: Attached) -> Result<*mut PyTypeObject, Raised> {
    Class {
        name: c"m0serve.Run",
        doc: c"The coroutine of a request's task",
        size: size_of::<Run>(),
        flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
        methods: const { &coroutine(send, throw, close) },
        members: Vec::new(),
        getters: Vec::new(),
        slots: vec![
            (ffi::Py_tp_dealloc, dealloc as *mut _),
            (ffi::Py_tp_getattro, attribute as *mut _),
            (ffi::Py_tp_iter, itself as *mut _),
            (ffi::Py_tp_iternext, next as *mut _),
            (ffi::Py_am_await, itself as *mut _),
            (ffi::Py_am_send, am_send as *mut _),
        ],
    }
    .make(py)
}

/// A run that has not begun.
pub fn make(py: Attached) -> Result<Owned, Raised> {
    let _ = py;
    // SAFETY: attached; a fresh instance, whose fields are all written before anybody sees it.
    unsafe {
        let made = types::allocate(classes().run)?;
        let object: *mut Run = made.ptr().cast();
        (&raw mut (*object).request).write(Cell::new(ptr::null()));
        (&raw mut (*object).inner).write(Cell::new(ptr::null_mut()));
        Ok(made)
    }
}

/// `run` is for `request`. It is fresh, or it has ended and nobody else has it.
pub fn aim(run: &Owned, request: &Rc<Request>) {
    // SAFETY: an instance of our class, on its executor's thread.
    let this = unsafe { this(run.ptr()) };
    this.request.set(Rc::into_raw(Rc::clone(request)));
}

/// # Safety
/// `object` is an instance of the class made here.
unsafe fn this<'a>(object: *mut PyObject) -> &'a Run {
    // SAFETY: the caller's promise; the caller's reference keeps it alive.
    unsafe { &*object.cast() }
}

impl Run {
    /// The executor and the request of a run that has not ended, on its thread.
    fn live(&self, py: Attached) -> Result<(&'static Executor, &Request), Raised> {
        // SAFETY: null, or counted until `end`.
        let request = unsafe { self.request.get().as_ref() };
        match (executor::current(), request) {
            (Some(executor), Some(request)) if ptr::eq(request.executor(), executor) => {
                Ok((executor, request))
            }
            (_, None) => {
                Err(py.raise(Exception::Runtime, "cannot reuse already awaited coroutine"))
            }
            _ => Err(py.raise(
                Exception::Runtime,
                "a request runs on its event loop's thread",
            )),
        }
    }

    /// Calls the application; what it returns is awaited.
    fn begin(&self, py: Attached, executor: &Executor, request: &Request) -> Result<(), Raised> {
        let returned = request.call(py, executor)?;
        // SAFETY: attached; live objects, of the types that are checked.
        unsafe {
            if ffi::PyCoro_CheckExact(returned.ptr()) != 0 {
                self.inner.set(returned.into_ptr());
                return Ok(());
            }
            let methods = (*ffi::Py_TYPE(returned.ptr())).tp_as_async;
            if let Some(methods) = methods.as_ref()
                && let Some(awaits) = methods.am_await
            {
                self.inner
                    .set(Owned::new(awaits(returned.ptr()))?.into_ptr());
                return Ok(());
            }
            let text = format!(
                "the application returned {}, not a coroutine: an ASGI application is an async callable \
                 (--interface wsgi serves a WSGI application)",
                class_name(returned.ptr())
            );
            Err(py.raise(Exception::Type, &text))
        }
    }

    /// One step of the application: what it yielded; None if it has ended.
    fn step(&self, py: Attached, value: *mut PyObject) -> Result<Option<Owned>, Raised> {
        let (executor, request) = self.live(py)?;
        if self.inner.get().is_null()
            && let Err(raised) = self.begin(py, executor, request)
        {
            return self.fail(py, executor, raised).map(|()| None);
        }
        let mut result = ptr::null_mut();
        // SAFETY: attached; the awaitable is held by `self`; `result` becomes null or a new reference.
        match unsafe { ffi::PyIter_Send(self.inner.get(), value, &mut result) } {
            // SAFETY: as said.
            ffi::PySendResult::PYGEN_NEXT => unsafe { Owned::new(result).map(Some) },
            ffi::PySendResult::PYGEN_RETURN => {
                // SAFETY: as said; what an application returns has no meaning.
                drop(unsafe { Owned::new(result) });
                self.end(py, executor, Outcome::Returned);
                Ok(None)
            }
            ffi::PySendResult::PYGEN_ERROR => self.fail(py, executor, Raised).map(|()| None),
        }
    }

    /// The application ended with an exception. A cancellation is the task's business too.
    fn fail(&self, py: Attached, executor: &Executor, raised: Raised) -> Result<(), Raised> {
        // SAFETY: attached; a class that lives as long as the process.
        let cancelled = unsafe { ffi::PyErr_ExceptionMatches(classes().cancelled_error) } != 0;
        if cancelled && let Some(exception) = py.take_exception() {
            self.end(py, executor, Outcome::Cancelled);
            return Err(py.reraise(exception));
        }
        self.end(py, executor, Outcome::Raised(raised));
        Ok(())
    }

    fn end(&self, py: Attached, executor: &Executor, outcome: Outcome) {
        let inner = self.inner.replace(ptr::null_mut());
        let request = self.request.replace(ptr::null());
        // SAFETY: `aim` put it there with a count of its own; `live` saw that it is not null.
        let request = unsafe { Rc::from_raw(request) };
        executor.ended(py, request, outcome);
        // Last: the end of the coroutine's frame may run code.
        // SAFETY: attached; null or our reference.
        unsafe { ffi::Py_XDECREF(inner) };
    }
}

unsafe extern "C" fn am_send(
    object: *mut PyObject,
    value: *mut PyObject,
    result: *mut *mut PyObject,
) -> ffi::PySendResult {
    let mut returned = false;
    let out = entry(|py| {
        // SAFETY: CPython calls it for instances of our class.
        Ok(match unsafe { this(object) }.step(py, value)? {
            Some(yielded) => yielded,
            None => {
                returned = true;
                py.none()
            }
        })
    });
    // SAFETY: a place for the result, as PyIter_Send asks for.
    unsafe { *result = out };
    match (out.is_null(), returned) {
        (true, _) => ffi::PySendResult::PYGEN_ERROR,
        (false, true) => ffi::PySendResult::PYGEN_RETURN,
        (false, false) => ffi::PySendResult::PYGEN_NEXT,
    }
}

unsafe extern "C" fn next(object: *mut PyObject) -> *mut PyObject {
    entry(|py| {
        // SAFETY: CPython calls it for instances of our class; None is what `next` sends.
        match unsafe { this(object).step(py, ffi::Py_None())? } {
            Some(yielded) => Ok(yielded),
            None => Err(stop_with(py, &py.none())),
        }
    })
}

unsafe extern "C" fn send(
    object: *mut PyObject,
    given: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    entry(|py| {
        // SAFETY: the running function's arguments.
        let [value] = (unsafe { arguments(given, count) }) else {
            return Err(py.raise(Exception::Type, "send() takes one argument"));
        };
        // SAFETY: a method of our class.
        match unsafe { this(object) }.step(py, *value)? {
            Some(yielded) => Ok(yielded),
            None => Err(stop_with(py, &py.none())),
        }
    })
}

/// How the task passes a cancellation on.
unsafe extern "C" fn throw(
    object: *mut PyObject,
    given: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> *mut PyObject {
    entry(|py| {
        // SAFETY: a method of our class.
        let this = unsafe { this(object) };
        let (executor, _) = this.live(py)?;
        // SAFETY: the running function's arguments.
        let given = unsafe { arguments(given, count) };
        let inner = this.inner.get();
        if inner.is_null() {
            // Never begun: it ends here.
            let raised = raise_given(py, given);
            this.fail(py, executor, raised)?;
            return Err(stop_with(py, &py.none()));
        }
        let mut call = vec![inner];
        call.extend_from_slice(given);
        // SAFETY: attached; live objects, as many as said.
        let yielded = unsafe {
            Owned::new(ffi::PyObject_VectorcallMethod(
                classes().words.throw,
                call.as_ptr(),
                call.len(),
                ptr::null_mut(),
            ))
        };
        match yielded {
            Ok(yielded) => Ok(yielded),
            Err(raised) => {
                // SAFETY: attached; a static of CPython's.
                if unsafe { ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) } != 0 {
                    drop(py.take_exception());
                    this.end(py, executor, Outcome::Returned);
                } else {
                    this.fail(py, executor, raised)?;
                }
                Err(stop_with(py, &py.none()))
            }
        }
    })
}

unsafe extern "C" fn close(
    object: *mut PyObject,
    _arguments: *mut *mut PyObject,
    _count: ffi::Py_ssize_t,
) -> *mut PyObject {
    entry(|py| {
        // SAFETY: a method of our class.
        let inner = unsafe { this(object) }.inner.get();
        if inner.is_null() {
            return Ok(py.none());
        }
        // SAFETY: attached; held while it is called, for its end may come meanwhile.
        let inner = unsafe { Owned::borrowed(inner) };
        py.call_method(&inner, c"close", [])
    })
}

/// What we don't have, the application's coroutine has: its name, `cr_frame` and the like.
unsafe extern "C" fn attribute(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    // SAFETY: attached, as CPython calls it; live objects.
    unsafe {
        let own = ffi::PyObject_GenericGetAttr(object, name);
        let inner = this(object).inner.get();
        if !own.is_null()
            || inner.is_null()
            || ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) == 0
        {
            return own;
        }
        ffi::PyErr_Clear();
        ffi::PyObject_GetAttr(inner, name)
    }
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: called by CPython, attached, for the last reference.
    unsafe {
        let this = this(object);
        let request = this.request.replace(ptr::null());
        if !request.is_null()
            && let Some(executor) = executor::current()
            && ptr::eq((*request).executor(), executor)
        {
            // A task that was dropped before its end: its request has nobody any more.
            executor.ended(
                Attached::assume(),
                Rc::from_raw(request),
                Outcome::Cancelled,
            );
        }
        ffi::Py_XDECREF(this.inner.replace(ptr::null_mut()));
        types::release(object);
    }
}
