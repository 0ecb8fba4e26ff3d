//! `start_response` and the `write` that it returns (PEP 3333 "The start_response() Callable").
//!
//! Owns the pair of native callables that one request's application gets, and the rules of who may call when. An
//! application may keep them: after its request, or on another thread, they refuse politely. A pair that nobody kept
//! serves the thread's next request.

use std::cell::Cell;
use std::ptr;

use super::super::ffi;
use super::super::ffi::{Py_ssize_t, PyObject, PyTypeObject};
use super::super::object::{Attached, Exception, Owned, Raised, bytes_of, class_name};
use super::super::types::{self, Class, arguments, entry};
use super::answer::{Stage, State};
use super::fields::{shortened, text};
use crate::exchange::Room;
use crate::http1::BodySize;

#[repr(C)]
pub struct StartResponse {
    object: PyObject,
    call: ffi::vectorcallfunc,
    state: State,
    /// The pair's other half, which whoever runs the request keeps alive; null once the pair was taken apart.
    write: Cell<*mut PyObject>,
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
            (&raw mut (*object).state).write(State::new());
            (&raw mut (*object).write).write(Cell::new(ptr::null_mut()));
            // A null `start` is what an instance that isn't finished has; `dealloc_write` knows it.
            let write = types::allocate(classes.write)?;
            let object: *mut Write = write.ptr().cast();
            (&raw mut (*object).call).write(call_write);
            (&raw mut (*object).start).write(start.again().into_ptr());
            let pair = Pair { start, write };
            pair.object().write.set(pair.write.ptr());
            Ok(pair)
        }
    }

    #[inline]
    fn object(&self) -> &StartResponse {
        // SAFETY: made by `make`, alive with `self`, and only used through shared references.
        unsafe { &*self.start.ptr().cast::<StartResponse>() }
    }

    /// How far the request's answer has come.
    #[inline]
    pub fn state(&self) -> &State {
        &self.object().state
    }

    /// What the application gets as `start_response`.
    #[inline]
    pub fn callable(&self) -> *mut PyObject {
        self.start.ptr()
    }

    /// The request is over: whoever kept the callables can't do anything with them. Returns the pair for the next
    /// request if nobody did.
    #[inline]
    pub fn retire(self) -> Option<Pair> {
        self.state().retire();
        // SAFETY: attached on the thread that made them. Ours alone: one reference to `write`, two to `start`.
        let unshared =
            unsafe { ffi::has_only(self.write.ptr(), 1) && ffi::has_only(self.start.ptr(), 2) };
        unshared.then_some(self)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.state().retire();
        self.object().write.set(ptr::null_mut());
    }
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
    let (start, positional, named) = unsafe {
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
        let state = &start.state;
        let answer = state.answer(py, "start_response()")?;
        let [status, headers, exc_info] = match *positional {
            [status, headers] if named.is_empty() => [status, headers, ptr::null_mut()],
            _ => parameters(py, positional, named, names)?,
        };
        // SAFETY: comparing addresses.
        let has_error = !exc_info.is_null() && unsafe { exc_info != ffi::Py_None() };
        match (state.stage(), has_error) {
            (Stage::Awaited, _) | (Stage::Held, true) => {}
            (Stage::Sent, true) => return Err(raise_exc_info(py, exc_info)),
            (Stage::Held | Stage::Sent, false) => {
                return Err(py.raise(
                    Exception::Assertion,
                    "start_response() was called twice without exc_info",
                ));
            }
        }
        answer.hold(py, state, status, headers)?;
        // SAFETY: attached on its own thread; the request that is running owns the pair, and with it `write`.
        Ok(unsafe { Owned::borrowed(start.write.get()) })
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
            &(*start.cast::<StartResponse>()).state,
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
        let answer = state.answer(py, "write()")?;
        if !answer.is_running(state) {
            return Err(py.raise(
                Exception::Runtime,
                "write() was called during another request",
            ));
        }
        if state.stage() == Stage::Awaited {
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
            answer.push(py, state, bytes, BodySize::Unknown);
            let sent = answer.flush(py).and_then(|room| {
                // Where the thread must not wait, the rest stays in memory: nobody else would drive the loop, and the
                // application can't be suspended in the middle of a call.
                if room == Room::Full && answer.may_wait() {
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
