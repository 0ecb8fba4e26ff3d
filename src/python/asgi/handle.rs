//! `receive` and `send` as one request's application gets them.
//!
//! Owns the native class of both and the link to their request. The link ends with the request: an application may keep
//! the callables, and then they say so. They belong to the thread of the request's event loop; elsewhere they refuse.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use super::super::ffi::{self, PyObject, PyTypeObject};
use super::super::object::{Attached, Exception, Owned, Raised};
use super::super::types::{self, Class, entry};
use super::awaits::{self, Waits};
use super::classes;
use super::executor::{self, Executor};
use super::request::{Protocol, Request, Sent};

/// Either callable. `call` is all that tells them apart.
#[repr(C)]
struct Handle {
    object: PyObject,
    call: ffi::vectorcallfunc,
    /// The thread's executor; only compared elsewhere.
    executor: *const Executor,
    protocol: Cell<Protocol>,
    /// Counted, while it is not null. Only touched on the executor's thread.
    request: Cell<*const Request>,
}

/// The two callables of one request.
pub struct Pair {
    pub receive: Owned,
    pub send: Owned,
}

pub fn class(py: Attached) -> Result<*mut PyTypeObject, Raised> {
    Class {
        name: c"m0serve.Channel",
        doc: c"receive() or send(message) of one ASGI request",
        size: size_of::<Handle>(),
        flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION | ffi::Py_TPFLAGS_HAVE_VECTORCALL,
        methods: &[],
        members: vec![ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: std::mem::offset_of!(Handle, call) as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        }],
        getters: Vec::new(),
        slots: vec![
            (ffi::Py_tp_dealloc, dealloc as *mut _),
            (ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut _),
        ],
    }
    .make(py)
}

impl Pair {
    pub fn make(py: Attached, executor: &Executor) -> Result<Pair, Raised> {
        let make = |call| -> Result<Owned, Raised> {
            let _ = py;
            // SAFETY: attached; a fresh instance, whose fields are all written before anybody sees it.
            unsafe {
                let handle = types::allocate(classes().handle)?;
                let object: *mut Handle = handle.ptr().cast();
                (&raw mut (*object).call).write(call);
                (&raw mut (*object).executor).write(executor);
                (&raw mut (*object).protocol).write(Cell::new(Protocol::Http));
                (&raw mut (*object).request).write(Cell::new(ptr::null()));
                Ok(handle)
            }
        };
        Ok(Pair {
            receive: make(receive)?,
            send: make(send)?,
        })
    }

    fn both(&self) -> [&Handle; 2] {
        // SAFETY: made by `make`, alive with `self`; on the executor's thread, where the cells are used.
        unsafe { [&*self.receive.ptr().cast(), &*self.send.ptr().cast()] }
    }

    /// From now on they are `request`'s.
    #[inline]
    pub fn link(&self, request: &Rc<Request>, protocol: Protocol) {
        for handle in self.both() {
            handle.protocol.set(protocol);
            handle.request.set(Rc::into_raw(Rc::clone(request)));
        }
    }

    /// The request is over.
    #[inline]
    pub fn unlink(&self) {
        for handle in self.both() {
            let request = handle.request.replace(ptr::null());
            if !request.is_null() {
                // SAFETY: put there by `link`, with a count of its own.
                unsafe { Rc::decrement_strong_count(request) };
            }
        }
    }

    /// True if nobody else has them, so that they can serve the next request.
    #[inline]
    pub fn is_unshared(&self) -> bool {
        // SAFETY: attached on the thread that made them.
        unsafe { ffi::has_only(self.receive.ptr(), 1) && ffi::has_only(self.send.ptr(), 1) }
    }
}

/// What a callable is linked to.
pub enum Link {
    Open(&'static Executor, Rc<Request>),
    /// The request is over.
    Closed(Protocol),
}

/// The link of a `Handle`; an error on a thread that is not its executor's.
///
/// # Safety
/// Attached; `object` is an instance of the class made here.
#[inline]
pub unsafe fn link(py: Attached, object: *mut PyObject) -> Result<Link, Raised> {
    // SAFETY: the caller's promise.
    let handle = unsafe { &*object.cast::<Handle>() };
    let Some(executor) = executor::current().filter(|current| ptr::eq(*current, handle.executor))
    else {
        return Err(py.raise(
            Exception::Runtime,
            "receive and send belong to the thread of the request's event loop; \
             use asyncio.run_coroutine_threadsafe from other threads",
        ));
    };
    let request = handle.request.get();
    if request.is_null() {
        return Ok(Link::Closed(handle.protocol.get()));
    }
    // SAFETY: not null, so that `link` put it there with a count of its own, which `unlink` has not taken.
    let request = unsafe {
        Rc::increment_strong_count(request);
        Rc::from_raw(request)
    };
    Ok(Link::Open(executor, request))
}

unsafe extern "C" fn receive(
    object: *mut PyObject,
    _arguments: *const *mut PyObject,
    count: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    entry(|py| {
        // SAFETY: as CPython calls vectorcall functions.
        if unsafe { ffi::PyVectorcall_NARGS(count) } != 0 || !names.is_null() {
            return Err(py.raise(Exception::Type, "receive() takes no arguments"));
        }
        // Nothing happens before it is awaited: what is received and not awaited is not lost.
        // SAFETY: `object` is an instance of our class.
        unsafe { awaits::make(py, object, Waits::Receive) }
    })
}

unsafe extern "C" fn send(
    object: *mut PyObject,
    arguments: *const *mut PyObject,
    count: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    entry(|py| {
        // SAFETY: as CPython calls vectorcall functions: one positional argument, or one by its name.
        let message = unsafe {
            let positional = ffi::PyVectorcall_NARGS(count);
            let named = if names.is_null() {
                0
            } else {
                ffi::PyTuple_GET_SIZE(names)
            };
            if positional + named != 1 {
                return Err(py.raise(Exception::Type, "send() takes one argument, the message"));
            }
            Owned::borrowed(*arguments)
        };
        // SAFETY: `object` is an instance of our class.
        match unsafe { link(py, object)? } {
            Link::Closed(protocol) => Err(protocol.closed(py)),
            Link::Open(executor, request) => match request.send(py, executor, &message)? {
                // SAFETY: attached; a singleton that lives for ever.
                Sent::Done => Ok(unsafe { Owned::borrowed(classes().done) }),
                // SAFETY: `object` is an instance of our class.
                Sent::Full => unsafe { awaits::make(py, object, Waits::Room) },
            },
        }
    })
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // The link was closed before: who has a request's pair closes it when the request ends, and a request that never
    // ends holds the pair.
    // SAFETY: called by CPython for the last reference.
    unsafe { types::release(object) };
}
