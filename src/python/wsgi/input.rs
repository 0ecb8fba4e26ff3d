//! `wsgi.input`: the collected body as a file-like object (PEP 3333 "Input and Error Streams").
//!
//! Owns the request's body for as long as the application holds the object, memory or temporary file. The body is whole,
//! so that reading never waits for the client, and it ends where the request's body ends (`wsgi.input_terminated`).
//! Any thread may call the methods: the position is an atomic, and each read takes its range before it copies.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::ffi;
use super::super::ffi::{Py_ssize_t, PyObject, PyTypeObject};
use super::super::object::{Attached, Exception, Owned, Raised, class_name};
use super::super::types::{self, Class, Method, arguments, entry};
use crate::exchange::Body;
use crate::sync::lock;

/// A spooled body is searched for line ends in pieces of this size: a few system calls a megabyte.
const AHEAD: usize = 64 * 1024;

#[repr(C)]
struct Input {
    object: PyObject,
    source: Source,
    position: AtomicU64,
}

enum Source {
    Memory(Vec<u8>),
    Spooled {
        file: File,
        len: u64,
        ahead: Mutex<Ahead>,
    },
}

/// What was read from the file beyond the last line.
#[derive(Default)]
struct Ahead {
    start: u64,
    bytes: Vec<u8>,
}

pub fn class(py: Attached) -> Result<*mut PyTypeObject, Raised> {
    Class {
        name: c"m0serve.Input",
        doc: c"The body of a request.",
        size: size_of::<Input>(),
        flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
        methods: &[
            Method {
                name: c"read",
                function: read,
                doc: c"read(size=-1) -> bytes",
            },
            Method {
                name: c"read1",
                function: read,
                doc: c"read1(size=-1) -> bytes",
            },
            Method {
                name: c"readinto",
                function: readinto,
                doc: c"readinto(buffer) -> int",
            },
            Method {
                name: c"readline",
                function: readline,
                doc: c"readline(size=-1) -> bytes",
            },
            Method {
                name: c"readlines",
                function: readlines,
                doc: c"readlines(hint=-1) -> list of bytes",
            },
            Method {
                name: c"readable",
                function: yes,
                doc: c"True",
            },
            Method {
                name: c"writable",
                function: no,
                doc: c"False",
            },
            Method {
                name: c"seekable",
                function: no,
                doc: c"False",
            },
            Method {
                name: c"flush",
                function: nothing,
                doc: c"Without effect.",
            },
            Method {
                name: c"close",
                function: nothing,
                doc: c"Without effect: the server closes the body.",
            },
        ],
        members: Vec::new(),
        getters: vec![ffi::PyGetSetDef {
            name: c"closed".as_ptr(),
            get: Some(closed),
            ..Default::default()
        }],
        slots: vec![
            (ffi::Py_tp_dealloc, dealloc as *mut _),
            (ffi::Py_tp_iter, ffi::PyObject_SelfIter as *mut _),
            (ffi::Py_tp_iternext, next as *mut _),
        ],
    }
    .make(py)
}

/// A new object for `body`, of the class that [`class`] made.
pub fn make(py: Attached, class: *mut PyTypeObject, body: Body) -> Result<Owned, Raised> {
    let source = match body {
        Body::Empty => Source::Memory(Vec::new()),
        Body::Memory(bytes) => Source::Memory(bytes),
        Body::Spooled(file, len) => Source::Spooled {
            file,
            len,
            ahead: Mutex::default(),
        },
    };
    let _ = py;
    // SAFETY: attached; the instance is fresh, and its fields are written before anybody sees it.
    unsafe {
        let object = types::allocate(class)?;
        let input: *mut Input = object.ptr().cast();
        (&raw mut (*input).source).write(source);
        (&raw mut (*input).position).write(AtomicU64::new(0));
        Ok(object)
    }
}

impl Input {
    /// # Safety
    /// `object` is the `self` that CPython passes to a method of [`class`].
    unsafe fn of<'a>(object: *mut PyObject) -> &'a Input {
        // SAFETY: the caller's promise; such an object was made by `make`, and is only used through shared references.
        unsafe { &*object.cast::<Input>() }
    }

    fn len(&self) -> u64 {
        match &self.source {
            Source::Memory(bytes) => bytes.len() as u64,
            Source::Spooled { len, .. } => *len,
        }
    }

    /// Moves the position over at most `limit` bytes and returns what it moved over.
    fn take(&self, limit: u64) -> Range<u64> {
        let len = self.len();
        let end = |start: u64| start.saturating_add(limit).min(len);
        // Relaxed: the position orders nothing else, the body never changes.
        let start = self
            .position
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |start| {
                Some(end(start))
            })
            .unwrap_or_else(|start| start);
        start..end(start)
    }

    fn read(&self, py: Attached, limit: u64) -> Result<Owned, Raised> {
        let range = self.take(limit);
        match &self.source {
            Source::Memory(bytes) => py.bytes(&bytes[range.start as usize..range.end as usize]),
            Source::Spooled { file, .. } => {
                let len = (range.end - range.start) as usize;
                // SAFETY: attached; a bytes object with room for `len`, that nobody else sees before it is filled.
                unsafe {
                    let object = Owned::new(ffi::PyBytes_FromStringAndSize(
                        ptr::null(),
                        len as Py_ssize_t,
                    ))?;
                    let data = ffi::PyBytes_AS_STRING(object.ptr())
                        .cast_mut()
                        .cast::<MaybeUninit<u8>>();
                    let room = std::slice::from_raw_parts_mut(data, len);
                    py.detached(|| fill(file, room, range.start))
                        .map_err(|error| raise_io(py, &error))?;
                    Ok(object)
                }
            }
        }
    }

    fn read_into(&self, py: Attached, buffer: &mut [u8]) -> Result<usize, Raised> {
        let range = self.take(buffer.len() as u64);
        let len = (range.end - range.start) as usize;
        match &self.source {
            Source::Memory(bytes) => {
                buffer[..len].copy_from_slice(&bytes[range.start as usize..range.end as usize]);
            }
            Source::Spooled { file, .. } => read_file(py, file, &mut buffer[..len], range.start)?,
        }
        Ok(len)
    }

    /// A line with its end, at most `limit` bytes of it; empty at the body's end.
    fn readline(&self, py: Attached, limit: u64) -> Result<Owned, Raised> {
        match &self.source {
            Source::Memory(bytes) => loop {
                let start = self.position.load(Ordering::Relaxed);
                let rest = &bytes[start as usize..];
                let rest = &rest[..rest.len().min(usize::try_from(limit).unwrap_or(usize::MAX))];
                let line = &rest[..line_length(rest)];
                if self.advance(start, line.len()) {
                    return py.bytes(line);
                }
            },
            Source::Spooled { file, len, ahead } => {
                // The buffer is taken out, so that the lock is never held while this thread is detached.
                let mut buffer = std::mem::take(&mut *lock(ahead));
                let line = self.spooled_line(py, file, *len, &mut buffer, limit);
                if buffer.bytes.capacity() <= 4 * AHEAD {
                    *lock(ahead) = buffer;
                }
                line
            }
        }
    }

    fn spooled_line(
        &self,
        py: Attached,
        file: &File,
        len: u64,
        ahead: &mut Ahead,
        limit: u64,
    ) -> Result<Owned, Raised> {
        loop {
            let start = self.position.load(Ordering::Relaxed);
            let limit = limit.min(len - start) as usize;
            if start < ahead.start || start > ahead.start + ahead.bytes.len() as u64 {
                ahead.bytes.clear();
                ahead.start = start;
            }
            let mut searched = 0;
            let line = loop {
                let rest = &ahead.bytes[(start - ahead.start) as usize..];
                let rest = &rest[..rest.len().min(limit)];
                if let Some(end) = memchr::memchr(b'\n', &rest[searched..]) {
                    break &rest[..searched + end + 1];
                }
                if rest.len() == limit {
                    break rest;
                }
                searched = rest.len();
                // Lines before this one are not needed any more.
                ahead.bytes.drain(..(start - ahead.start) as usize);
                ahead.start = start;
                let held = ahead.bytes.len();
                let more = AHEAD.min((len - start) as usize - held);
                ahead.bytes.resize(held + more, 0);
                if let Err(raised) =
                    read_file(py, file, &mut ahead.bytes[held..], start + held as u64)
                {
                    ahead.bytes.truncate(held);
                    return Err(raised);
                }
            };
            if self.advance(start, line.len()) {
                return py.bytes(line);
            }
        }
    }

    /// Moves the position, unless another thread did.
    fn advance(&self, start: u64, by: usize) -> bool {
        self.position
            .compare_exchange(
                start,
                start + by as u64,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

fn line_length(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1)
}

/// Fills `buffer` from the file, detached: a disk may take its time.
fn read_file(py: Attached, file: &File, buffer: &mut [u8], offset: u64) -> Result<(), Raised> {
    if buffer.is_empty() {
        return Ok(());
    }
    py.detached(|| file.read_exact_at(buffer, offset))
        .map_err(|error| raise_io(py, &error))
}

/// As `read_exact_at`, for memory that holds nothing yet.
fn fill(file: &File, room: &mut [MaybeUninit<u8>], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < room.len() {
        match rustix::io::pread(file, &mut room[done..], offset + done as u64) {
            Ok(([], _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((filled, _)) => done += filled.len(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn raise_io(py: Attached, error: &io::Error) -> Raised {
    py.raise(
        Exception::Os,
        &format!("the request's body can't be read back from its temporary file: {error}"),
    )
}

/// The one argument of `read` and its kin: None and negative numbers mean no limit.
fn limit(py: Attached, arguments: &[*mut PyObject]) -> Result<u64, Raised> {
    match arguments {
        [] => Ok(u64::MAX),
        // SAFETY: attached; the caller holds its arguments. -1 may be an error.
        &[size] => unsafe {
            if size == ffi::Py_None() {
                return Ok(u64::MAX);
            }
            match ffi::PyNumber_AsSsize_t(size, ptr::null_mut()) {
                -1 if py.has_exception() => Err(Raised),
                size => Ok(u64::try_from(size).unwrap_or(u64::MAX)),
            }
        },
        _ => Err(py.raise(Exception::Type, "at most one argument is expected")),
    }
}

unsafe extern "C" fn read(
    object: *mut PyObject,
    args: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    let (input, arguments) = unsafe { (Input::of(object), arguments(args, count)) };
    entry(|py| input.read(py, limit(py, arguments)?))
}

unsafe extern "C" fn readline(
    object: *mut PyObject,
    args: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    let (input, arguments) = unsafe { (Input::of(object), arguments(args, count)) };
    entry(|py| input.readline(py, limit(py, arguments)?))
}

unsafe extern "C" fn readlines(
    object: *mut PyObject,
    args: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    let (input, arguments) = unsafe { (Input::of(object), arguments(args, count)) };
    entry(|py| {
        // A hint of 0 means none, as it does for files.
        let hint = match limit(py, arguments)? {
            0 => u64::MAX,
            hint => hint,
        };
        // SAFETY: attached; a fresh list and live items.
        unsafe {
            let lines = Owned::new(ffi::PyList_New(0))?;
            let mut total = 0;
            while total < hint {
                let line = input.readline(py, u64::MAX)?;
                let len = ffi::Py_SIZE(line.ptr()) as u64;
                if len == 0 {
                    break;
                }
                total += len;
                if ffi::PyList_Append(lines.ptr(), line.ptr()) != 0 {
                    return Err(Raised);
                }
            }
            Ok(lines)
        }
    })
}

unsafe extern "C" fn readinto(
    object: *mut PyObject,
    args: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    let (input, arguments) = unsafe { (Input::of(object), arguments(args, count)) };
    entry(|py| {
        let &[target] = arguments else {
            return Err(py.raise(Exception::Type, "readinto() takes one argument"));
        };
        // SAFETY: attached; the view is released below, and its memory is writable, initialised and `len` bytes long
        // until then. Other threads that write to it meanwhile race with us as they would with a file's readinto().
        unsafe {
            let mut view: ffi::Py_buffer = std::mem::zeroed();
            if ffi::PyObject_GetBuffer(target, &mut view, ffi::PyBUF_WRITABLE) != 0 {
                drop(py.take_exception());
                let class = class_name(target);
                let text = format!("a writable bytes-like object is expected, not {class}");
                return Err(py.raise(Exception::Type, &text));
            }
            let buffer = if view.len == 0 {
                &mut []
            } else {
                std::slice::from_raw_parts_mut(view.buf.cast::<u8>(), view.len as usize)
            };
            let read = input.read_into(py, buffer);
            ffi::PyBuffer_Release(&mut view);
            Owned::new(ffi::PyLong_FromSize_t(read?))
        }
    })
}

unsafe extern "C" fn next(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    let input = unsafe { Input::of(object) };
    let line = entry(|py| input.readline(py, u64::MAX));
    // SAFETY: attached; null or a bytes object. Null without an exception ends an iteration.
    unsafe {
        if !line.is_null() && ffi::Py_SIZE(line) == 0 {
            ffi::Py_DECREF(line);
            return ptr::null_mut();
        }
    }
    line
}

unsafe extern "C" fn yes(_: *mut PyObject, _: *mut *mut PyObject, _: Py_ssize_t) -> *mut PyObject {
    entry(|py| Ok(py.bool(true)))
}

unsafe extern "C" fn no(_: *mut PyObject, _: *mut *mut PyObject, _: Py_ssize_t) -> *mut PyObject {
    entry(|py| Ok(py.bool(false)))
}

unsafe extern "C" fn nothing(
    _: *mut PyObject,
    _: *mut *mut PyObject,
    _: Py_ssize_t,
) -> *mut PyObject {
    entry(|py| Ok(py.none()))
}

unsafe extern "C" fn closed(_: *mut PyObject, _: *mut std::ffi::c_void) -> *mut PyObject {
    entry(|py| Ok(py.bool(false)))
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: the last reference is gone; `make` wrote the source, which is dropped once, here.
    unsafe {
        ptr::drop_in_place(&raw mut (*object.cast::<Input>()).source);
        types::release(object);
    }
}
