//! `wsgi.file_wrapper`: a file-like object as an iterable of blocks (PEP 3333 "Optional Platform-Specific File Handling").
//!
//! Owns the reference to the application's file until the wrapper goes. When the bridge meets one around a plain file it
//! sends the file without reading it ([`plain_file`]); everywhere else the wrapper is an ordinary iterable.

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use super::super::ffi;
use super::super::ffi::{Py_ssize_t, PyObject, PyTypeObject};
use super::super::object::{Attached, Exception, Owned, Raised};
use super::super::types::{self, Class, Method, entry};

/// What is read at a time if the application gives no block size. The example in PEP 3333 takes 8 KiB, made for slower
/// machines; a bigger block means fewer trips through the interpreter, and two of them still fit the streaming mark.
const BLOCK: Py_ssize_t = 64 * 1024;

#[repr(C)]
struct FileWrapper {
    object: PyObject,
    /// Null only while an instance is made or cleared.
    file: *mut PyObject,
    block: Py_ssize_t,
}

pub fn class(py: Attached) -> Result<*mut PyTypeObject, Raised> {
    Class {
        name: c"m0serve.FileWrapper",
        doc: c"FileWrapper(file, block_size=65536): the file's content in blocks.",
        size: size_of::<FileWrapper>(),
        flags: ffi::Py_TPFLAGS_HAVE_GC,
        methods: &[Method {
            name: c"close",
            function: close,
            doc: c"Closes the file if it can be closed.",
        }],
        members: Vec::new(),
        getters: vec![
            ffi::PyGetSetDef {
                name: c"filelike".as_ptr(),
                get: Some(get_file),
                ..Default::default()
            },
            ffi::PyGetSetDef {
                name: c"blksize".as_ptr(),
                get: Some(get_block),
                ..Default::default()
            },
        ],
        slots: vec![
            (ffi::Py_tp_new, new as *mut _),
            (ffi::Py_tp_dealloc, dealloc as *mut _),
            (ffi::Py_tp_traverse, traverse as *mut _),
            (ffi::Py_tp_clear, clear as *mut _),
            (ffi::Py_tp_iter, ffi::PyObject_SelfIter as *mut _),
            (ffi::Py_tp_iternext, next as *mut _),
        ],
    }
    .make(py)
}

/// A plain file that an iterable stands for: its descriptor, where reading would start, and its length.
pub struct PlainFile {
    descriptor: RawFd,
    pub offset: u64,
    pub len: u64,
}

impl PlainFile {
    /// # Safety
    /// The file object that it was found in is still alive and open.
    pub unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the caller's promise.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

/// The plain file behind `object`, if that is a wrapper around a binary file as `open` returns it. Nothing else is taken
/// for one: a compressed file, say, has a descriptor too, of other bytes.
pub fn plain_file(py: Attached, class: *mut PyTypeObject, object: &Owned) -> Option<PlainFile> {
    // SAFETY: attached; a live object. Our class can't be subclassed.
    let file = unsafe {
        if ffi::Py_TYPE(object.ptr()) != class {
            return None;
        }
        let file = (*object.ptr().cast::<FileWrapper>()).file;
        if file.is_null() {
            return None;
        }
        Owned::borrowed(file)
    };
    let found = look(py, &file);
    found.unwrap_or_else(|Raised| {
        // Whatever is wrong with the file shows when it is read.
        drop(py.take_exception());
        None
    })
}

fn look(py: Attached, file: &Owned) -> Result<Option<PlainFile>, Raised> {
    let io = py.import(c"io")?;
    let is_exactly = |object: &Owned, name| -> Result<bool, Raised> {
        let class = py.attribute(&io, name)?;
        // SAFETY: attached; comparing the address of a live object's type.
        Ok(unsafe { ffi::Py_TYPE(object.ptr()).cast() == class.ptr() })
    };
    let is_plain = is_exactly(file, c"FileIO")?
        || ((is_exactly(file, c"BufferedReader")? || is_exactly(file, c"BufferedRandom")?)
            && is_exactly(&py.attribute(file, c"raw")?, c"FileIO")?);
    if !is_plain {
        return Ok(None);
    }
    let number = |value: Owned| -> Result<i64, Raised> {
        // SAFETY: attached; a live object. -1 may be an error.
        match unsafe { ffi::PyLong_AsLongLong(value.ptr()) } {
            -1 if py.has_exception() => Err(Raised),
            value => Ok(value),
        }
    };
    let descriptor = number(py.call_method(file, c"fileno", [])?)? as RawFd;
    let offset = number(py.call_method(file, c"tell", [])?)?;
    // SAFETY: the file object is held, and open as it gave its descriptor.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(descriptor) });
    let Ok(stat) = stat else { return Ok(None) };
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return Ok(None);
    }
    let offset = u64::try_from(offset).unwrap_or(0);
    Ok(Some(PlainFile {
        descriptor,
        offset,
        len: (stat.st_size as u64).saturating_sub(offset),
    }))
}

unsafe extern "C" fn new(
    class: *mut PyTypeObject,
    args: *mut PyObject,
    named: *mut PyObject,
) -> *mut PyObject {
    entry(|py| {
        let mut file = ptr::null_mut();
        let mut block = BLOCK;
        let mut names = [c"filelike".as_ptr(), c"block_size".as_ptr(), ptr::null()];
        // SAFETY: attached; the arguments are CPython's, and each unit of the format has its variable.
        unsafe {
            let parsed = ffi::PyArg_ParseTupleAndKeywords(
                args,
                named,
                c"O|n:FileWrapper".as_ptr(),
                names.as_mut_ptr().cast(),
                &raw mut file,
                &raw mut block,
            );
            if parsed == 0 {
                return Err(Raised);
            }
            if block <= 0 {
                return Err(py.raise(Exception::Value, "the block size must be positive"));
            }
            let object = types::allocate(class)?;
            let wrapper: *mut FileWrapper = object.ptr().cast();
            (*wrapper).file = Owned::borrowed(file).into_ptr();
            (*wrapper).block = block;
            Ok(object)
        }
    })
}

/// The wrapped file, held.
///
/// # Safety
/// `object` is the `self` that CPython passes.
unsafe fn file_of(py: Attached, object: *mut PyObject) -> Result<Owned, Raised> {
    // SAFETY: the caller's promise; the field is null or a live object for as long as the wrapper lives.
    unsafe {
        let file = (*object.cast::<FileWrapper>()).file;
        if file.is_null() {
            return Err(py.raise(Exception::Value, "the file wrapper was cleared"));
        }
        Ok(Owned::borrowed(file))
    }
}

unsafe extern "C" fn next(object: *mut PyObject) -> *mut PyObject {
    let block = entry(|py| {
        // SAFETY: attached; CPython passes its own.
        let (file, size) = unsafe {
            (
                file_of(py, object)?,
                Owned::new(ffi::PyLong_FromSsize_t(
                    (*object.cast::<FileWrapper>()).block,
                ))?,
            )
        };
        py.call_method(&file, c"read", [&size])
    });
    // SAFETY: attached; null or a live object. An empty block is the end; what isn't bytes is refused by who sends it.
    unsafe {
        if block.is_null() || ffi::PyObject_IsTrue(block) > 0 {
            return block;
        }
        ffi::Py_DECREF(block);
        ptr::null_mut()
    }
}

unsafe extern "C" fn close(
    object: *mut PyObject,
    _: *mut *mut PyObject,
    _: Py_ssize_t,
) -> *mut PyObject {
    entry(|py| {
        // SAFETY: CPython passes its own.
        let file = unsafe { file_of(py, object)? };
        match py.optional_attribute_named(&file, c"close")? {
            Some(close) => py.call(&close, []),
            None => Ok(py.none()),
        }
    })
}

unsafe extern "C" fn get_file(object: *mut PyObject, _: *mut c_void) -> *mut PyObject {
    // SAFETY: CPython passes its own.
    entry(|py| unsafe { file_of(py, object) })
}

unsafe extern "C" fn get_block(object: *mut PyObject, _: *mut c_void) -> *mut PyObject {
    // SAFETY: attached; CPython passes its own.
    entry(|_| unsafe {
        Owned::new(ffi::PyLong_FromSsize_t(
            (*object.cast::<FileWrapper>()).block,
        ))
    })
}

unsafe extern "C" fn traverse(
    object: *mut PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: called by the collector with a live instance; an instance of a heap type holds its type (3.9 and later).
    unsafe {
        for held in [
            (*object.cast::<FileWrapper>()).file,
            ffi::Py_TYPE(object).cast(),
        ] {
            if !held.is_null() {
                let result = visit(held, argument);
                if result != 0 {
                    return result;
                }
            }
        }
    }
    0
}

unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: called by the collector, or by `dealloc`; the field is emptied before the reference goes.
    unsafe { ffi::Py_CLEAR(&raw mut (*object.cast::<FileWrapper>()).file) };
    0
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: the last reference is gone. The collector must not see the instance any more.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        clear(object);
        types::release(object);
    }
}
