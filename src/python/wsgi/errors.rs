//! `wsgi.errors`: text of the application's for the server's error stream (PEP 3333 "Input and Error Streams").
//!
//! Owns the part of a line that was written without its end yet. One object per handler thread, so that no two threads
//! touch the same one, and lines go out whole, each batch in one write.

use std::io::Write;
use std::ptr;
use std::sync::Mutex;

use super::super::ffi;
use super::super::ffi::{Py_ssize_t, PyObject, PyTypeObject};
use super::super::object::{Attached, Exception, Owned, Raised, class_name};
use super::super::types::{self, Class, Method, arguments, entry};
use crate::sync::lock;

/// A line without an end is written out when it is this long.
const LONGEST_LINE: usize = 8 * 1024;

#[repr(C)]
struct Errors {
    object: PyObject,
    /// Never locked while the thread attaches or detaches.
    pending: Mutex<Vec<u8>>,
}

pub fn class(py: Attached) -> Result<*mut PyTypeObject, Raised> {
    Class {
        name: c"m0serve.Errors",
        doc: c"The server's error stream.",
        size: size_of::<Errors>(),
        flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
        methods: &[
            Method {
                name: c"write",
                function: write,
                doc: c"write(text) -> int",
            },
            Method {
                name: c"writelines",
                function: writelines,
                doc: c"writelines(iterable of text)",
            },
            Method {
                name: c"flush",
                function: flush,
                doc: c"Writes out what has no line end yet.",
            },
            Method {
                name: c"isatty",
                function: isatty,
                doc: c"False",
            },
        ],
        members: Vec::new(),
        getters: vec![ffi::PyGetSetDef {
            name: c"encoding".as_ptr(),
            get: Some(encoding),
            ..Default::default()
        }],
        slots: vec![(ffi::Py_tp_dealloc, dealloc as *mut _)],
    }
    .make(py)
}

pub fn make(py: Attached, class: *mut PyTypeObject) -> Result<Owned, Raised> {
    let _ = py;
    // SAFETY: attached; the instance is fresh, and its field is written before anybody sees it.
    unsafe {
        let object = types::allocate(class)?;
        (&raw mut (*object.ptr().cast::<Errors>()).pending).write(Mutex::default());
        Ok(object)
    }
}

/// Writes out what the request left without a line end, with one.
pub fn end_of_request(py: Attached, object: &Owned) {
    // SAFETY: `object` was made by `make`.
    let errors = unsafe { Errors::of(object.ptr()) };
    let mut rest = std::mem::take(&mut *lock(&errors.pending));
    if !rest.is_empty() {
        rest.push(b'\n');
        emit(py, &rest);
    }
}

impl Errors {
    /// # Safety
    /// `object` was made by [`make`].
    unsafe fn of<'a>(object: *mut PyObject) -> &'a Errors {
        // SAFETY: the caller's promise; such an object is only used through shared references.
        unsafe { &*object.cast::<Errors>() }
    }

    fn write(&self, py: Attached, text: *mut PyObject) -> Result<Py_ssize_t, Raised> {
        // SAFETY: attached; the caller holds its argument.
        let (encoded, length) = unsafe {
            if ffi::PyUnicode_Check(text) == 0 {
                return Err(py.raise(
                    Exception::Type,
                    &format!("a str is expected, not {}", class_name(text)),
                ));
            }
            (
                py.text(&Owned::borrowed(text))?,
                ffi::PyUnicode_GET_LENGTH(text),
            )
        };
        let whole = {
            let mut pending = lock(&self.pending);
            pending.extend_from_slice(encoded.as_bytes());
            match memchr::memrchr(b'\n', &pending) {
                Some(end) => pending.drain(..=end).collect(),
                None if pending.len() > LONGEST_LINE => std::mem::take(&mut *pending),
                None => Vec::new(),
            }
        };
        emit(py, &whole);
        Ok(length)
    }

    fn flush(&self, py: Attached) {
        let rest = std::mem::take(&mut *lock(&self.pending));
        emit(py, &rest);
    }
}

/// Writes to the standard error stream, detached: whoever reads it may be slow. That it is closed is nobody's fault here.
fn emit(py: Attached, bytes: &[u8]) {
    if !bytes.is_empty() {
        py.detached(|| {
            let _ = std::io::stderr().write_all(bytes);
        });
    }
}

unsafe extern "C" fn write(
    object: *mut PyObject,
    args: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    let (errors, arguments) = unsafe { (Errors::of(object), arguments(args, count)) };
    entry(|py| {
        let &[text] = arguments else {
            return Err(py.raise(Exception::Type, "write() takes one argument"));
        };
        let length = errors.write(py, text)?;
        // SAFETY: attached.
        unsafe { Owned::new(ffi::PyLong_FromSsize_t(length)) }
    })
}

unsafe extern "C" fn writelines(
    object: *mut PyObject,
    args: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    let (errors, arguments) = unsafe { (Errors::of(object), arguments(args, count)) };
    entry(|py| {
        let &[lines] = arguments else {
            return Err(py.raise(Exception::Type, "writelines() takes one argument"));
        };
        // SAFETY: attached; live objects, and PyIter_NextItem returns new references.
        unsafe {
            let iterator = Owned::new(ffi::PyObject_GetIter(lines))?;
            loop {
                let line = ffi::PyIter_Next(iterator.ptr());
                if line.is_null() {
                    return if py.has_exception() {
                        Err(Raised)
                    } else {
                        Ok(py.none())
                    };
                }
                errors.write(py, Owned::new(line)?.ptr())?;
            }
        }
    })
}

unsafe extern "C" fn flush(
    object: *mut PyObject,
    _: *mut *mut PyObject,
    _: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    let errors = unsafe { Errors::of(object) };
    entry(|py| {
        errors.flush(py);
        Ok(py.none())
    })
}

unsafe extern "C" fn isatty(
    _: *mut PyObject,
    _: *mut *mut PyObject,
    _: Py_ssize_t,
) -> *mut PyObject {
    entry(|py| Ok(py.bool(false)))
}

unsafe extern "C" fn encoding(_: *mut PyObject, _: *mut std::ffi::c_void) -> *mut PyObject {
    entry(|py| py.str("utf-8"))
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: the last reference is gone; `make` wrote the field, which is dropped once, here.
    unsafe {
        ptr::drop_in_place(&raw mut (*object.cast::<Errors>()).pending);
        types::release(object);
    }
}
