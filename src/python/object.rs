//! Python objects as Rust values: who is attached, who owns a reference, and that an exception is set.
//!
//! Owns the two types the rest of `python/` is written with, [`Attached`] and [`Owned`]. Must not hold any state.
//! Everything here runs on a thread that is attached to the interpreter, and [`Owned`] never leaves its thread.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::ffi;
use super::ffi::{Py_ssize_t, PyObject};

/// Proof that the present thread is attached to the interpreter (holds the GIL, where there is one).
#[derive(Clone, Copy)]
pub struct Attached {
    /// Neither Send nor Sync: attachment belongs to a thread.
    thread: PhantomData<*mut ()>,
}

/// A Python exception is set in the present thread's state. Whoever gets this one handles it or passes it on.
#[derive(Debug)]
#[must_use]
pub struct Raised;

/// One strong reference, released when dropped.
///
/// Contract of this type: it is dropped on the thread that made it, while that thread is attached. Everything that
/// keeps one across a detach (a handler's state) is only touched again after attaching.
pub struct Owned {
    object: NonNull<PyObject>,
}

impl Owned {
    /// Takes over the reference that a function of the C API returned; null means that it raised.
    ///
    /// # Safety
    /// `object` is null with an exception set, or a new reference; the thread is attached.
    #[inline]
    pub unsafe fn new(object: *mut PyObject) -> Result<Owned, Raised> {
        NonNull::new(object)
            .map(|object| Owned { object })
            .ok_or(Raised)
    }

    /// Makes a reference of its own to an object that somebody else keeps alive.
    ///
    /// # Safety
    /// `object` is a live object; the thread is attached.
    #[inline]
    pub unsafe fn borrowed(object: *mut PyObject) -> Owned {
        // SAFETY: live, by the caller's promise, and therefore not null.
        unsafe {
            ffi::Py_INCREF(object);
            Owned {
                object: NonNull::new_unchecked(object),
            }
        }
    }

    /// The object, for as long as `self` lives.
    #[inline]
    pub fn ptr(&self) -> *mut PyObject {
        self.object.as_ptr()
    }

    /// Gives the reference away.
    #[inline]
    pub fn into_ptr(self) -> *mut PyObject {
        let object = self.object.as_ptr();
        std::mem::forget(self);
        object
    }

    /// A second reference to the same object.
    #[inline]
    pub fn again(&self) -> Owned {
        // SAFETY: `self` keeps the object alive, and the type's contract says that the thread is attached.
        unsafe { Owned::borrowed(self.ptr()) }
    }

    #[inline]
    pub fn is_none(&self) -> bool {
        // SAFETY: comparing addresses.
        unsafe { self.ptr() == ffi::Py_None() }
    }

    pub fn is_callable(&self) -> bool {
        // SAFETY: a live object; the thread is attached by the type's contract.
        unsafe { ffi::PyCallable_Check(self.ptr()) != 0 }
    }
}

impl Drop for Owned {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: by the type's contract the reference is ours and the thread attached.
        unsafe { ffi::Py_DECREF(self.object.as_ptr()) }
    }
}

impl Attached {
    /// # Safety
    /// The thread is attached, and stays so for as long as the value is used.
    #[inline]
    pub unsafe fn assume() -> Attached {
        Attached {
            thread: PhantomData,
        }
    }

    /// Runs `work`, which must not touch Python, with the thread detached: it may block, and nobody waits for it.
    #[inline]
    pub fn detached<T>(self, work: impl FnOnce() -> T) -> T {
        /// Attaches again also when `work` panics: whoever catches that is attached, as the callers above believe.
        struct Return(*mut ffi::PyThreadState);
        impl Drop for Return {
            fn drop(&mut self) {
                // SAFETY: this thread's own state, put aside below.
                super::gate::attach(|| unsafe { ffi::PyEval_RestoreThread(self.0) });
            }
        }
        let mut state = ptr::null_mut();
        // SAFETY: `self` is the proof that the thread is attached.
        super::gate::detach_for_wait(|| state = unsafe { ffi::PyEval_SaveThread() });
        let _return = Return(state);
        work()
    }

    // ---- values ----

    #[inline]
    pub fn none(self) -> Owned {
        // SAFETY: None lives for ever.
        unsafe { Owned::borrowed(ffi::Py_None()) }
    }

    pub fn str(self, text: &str) -> Result<Owned, Raised> {
        // SAFETY: `self`; the text is valid UTF-8 of that length.
        unsafe {
            Owned::new(ffi::PyUnicode_FromStringAndSize(
                text.as_ptr().cast(),
                text.len() as Py_ssize_t,
            ))
        }
    }

    /// A string that is the same object as every equal constant in Python code. Only for names known at build time.
    pub fn interned(self, text: &'static CStr) -> Result<Owned, Raised> {
        // SAFETY: `self`; a valid C string.
        unsafe { Owned::new(ffi::PyUnicode_InternFromString(text.as_ptr())) }
    }

    /// The same for a name that is put together at start-up. Never for one that a client chose: interned strings are not
    /// freed on a free-threaded build.
    pub fn intern(self, latin1: &[u8]) -> Result<Owned, Raised> {
        let mut string = self.latin1(latin1)?.into_ptr();
        // SAFETY: `self`; replaces our reference by one to the interned string.
        unsafe {
            ffi::PyUnicode_InternInPlace(&mut string);
            Owned::new(string)
        }
    }

    /// Bytes as the latin-1 string that PEP 3333 calls for ("Unicode Issues").
    #[inline]
    pub fn latin1(self, bytes: &[u8]) -> Result<Owned, Raised> {
        // Strings of length 0 and 1 are singletons, which only the decoder knows.
        if bytes.len() < 2 || !bytes.is_ascii() {
            // SAFETY: `self`; a valid range.
            return unsafe {
                Owned::new(ffi::PyUnicode_DecodeLatin1(
                    bytes.as_ptr().cast(),
                    bytes.len() as Py_ssize_t,
                    ptr::null(),
                ))
            };
        }
        // SAFETY: `self`; the new string has room for `len` one-byte characters behind its header, nobody else has
        // seen it, and the bytes are ASCII as its maximal character says.
        unsafe {
            let string = ffi::PyUnicode_New(bytes.len() as Py_ssize_t, 127);
            let owned = Owned::new(string)?;
            let data = string.cast::<ffi::PyASCIIObject>().add(1).cast::<u8>();
            debug_assert_eq!(data.cast(), ffi::PyUnicode_DATA(string));
            ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
            Ok(owned)
        }
    }

    pub fn bytes(self, bytes: &[u8]) -> Result<Owned, Raised> {
        // SAFETY: `self`; a valid range.
        unsafe {
            Owned::new(ffi::PyBytes_FromStringAndSize(
                bytes.as_ptr().cast(),
                bytes.len() as Py_ssize_t,
            ))
        }
    }

    pub fn int(self, value: i64) -> Result<Owned, Raised> {
        // SAFETY: `self`.
        unsafe { Owned::new(ffi::PyLong_FromLongLong(value)) }
    }

    pub fn bool(self, value: bool) -> Owned {
        // SAFETY: True and False live for ever.
        unsafe {
            Owned::borrowed(if value {
                ffi::Py_True()
            } else {
                ffi::Py_False()
            })
        }
    }

    pub fn tuple<const N: usize>(self, items: [&Owned; N]) -> Result<Owned, Raised> {
        // SAFETY: `self`; each item of the fresh tuple is set once, with a reference of its own.
        unsafe {
            let tuple = Owned::new(ffi::PyTuple_New(N as Py_ssize_t))?;
            for (index, item) in items.into_iter().enumerate() {
                ffi::PyTuple_SetItem(tuple.ptr(), index as Py_ssize_t, item.again().into_ptr());
            }
            Ok(tuple)
        }
    }

    // ---- attributes and calls ----

    pub fn import(self, module: &CStr) -> Result<Owned, Raised> {
        // SAFETY: `self`; a valid C string.
        unsafe { Owned::new(ffi::PyImport_ImportModule(module.as_ptr())) }
    }

    /// Names are interned: CPython's cache of attributes keeps every string object that it was asked with, by address, so
    /// that a fresh one each time would fill it.
    pub fn attribute(self, object: &Owned, name: &'static CStr) -> Result<Owned, Raised> {
        let name = self.interned(name)?;
        // SAFETY: `self`; live objects.
        unsafe { Owned::new(ffi::PyObject_GetAttr(object.ptr(), name.ptr())) }
    }

    /// None if there is no such attribute; other exceptions than AttributeError are passed on.
    pub fn optional_attribute(
        self,
        object: *mut PyObject,
        name: &Owned,
    ) -> Result<Option<Owned>, Raised> {
        let mut found = ptr::null_mut();
        // SAFETY: `self`; `object` is live as the callers hold it; `found` becomes null or a new reference.
        unsafe {
            match ffi::PyObject_GetOptionalAttr(object, name.ptr(), &mut found) {
                -1 => Err(Raised),
                0 => Ok(None),
                _ => Owned::new(found).map(Some),
            }
        }
    }

    pub fn optional_attribute_named(
        self,
        object: &Owned,
        name: &'static CStr,
    ) -> Result<Option<Owned>, Raised> {
        let name = self.interned(name)?;
        self.optional_attribute(object.ptr(), &name)
    }

    pub fn set_attribute(self, object: &Owned, name: &CStr, value: &Owned) -> Result<(), Raised> {
        // SAFETY: `self`; live objects and a valid C string.
        match unsafe { ffi::PyObject_SetAttrString(object.ptr(), name.as_ptr(), value.ptr()) } {
            0 => Ok(()),
            _ => Err(Raised),
        }
    }

    pub fn call<const N: usize>(
        self,
        callable: &Owned,
        arguments: [&Owned; N],
    ) -> Result<Owned, Raised> {
        let pointers = arguments.map(Owned::ptr);
        // SAFETY: `self`; live objects, as many as said.
        unsafe {
            Owned::new(ffi::PyObject_Vectorcall(
                callable.ptr(),
                pointers.as_ptr(),
                N,
                ptr::null_mut(),
            ))
        }
    }

    pub fn call_method<const N: usize>(
        self,
        object: &Owned,
        name: &'static CStr,
        arguments: [&Owned; N],
    ) -> Result<Owned, Raised> {
        let method = self.attribute(object, name)?;
        self.call(&method, arguments)
    }

    pub fn set_item(self, dict: &Owned, key: &Owned, value: &Owned) -> Result<(), Raised> {
        // SAFETY: `self`; live objects.
        match unsafe { ffi::PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) } {
            0 => Ok(()),
            _ => Err(Raised),
        }
    }

    // ---- exceptions ----

    /// Takes the exception that is set. Some functions fail without setting one: then there is none.
    pub fn take_exception(self) -> Option<Owned> {
        // SAFETY: `self`; null or a new reference.
        unsafe { Owned::new(ffi::PyErr_GetRaisedException()).ok() }
    }

    pub fn has_exception(self) -> bool {
        // SAFETY: `self`.
        unsafe { !ffi::PyErr_Occurred().is_null() }
    }

    /// Sets an exception of one of CPython's own classes.
    pub fn raise(self, class: Exception, text: &str) -> Raised {
        // If there is no memory for the text, that is the exception which is set.
        if let Ok(text) = self.str(text) {
            // SAFETY: `self`; the class is a static of CPython's.
            unsafe { ffi::PyErr_SetObject(class.object(), text.ptr()) };
        }
        Raised
    }

    pub fn reraise(self, exception: Owned) -> Raised {
        // SAFETY: `self`; the reference is given away.
        unsafe { ffi::PyErr_SetRaisedException(exception.into_ptr()) };
        Raised
    }

    pub fn is_instance(self, exception: &Owned, class: Exception) -> bool {
        // SAFETY: `self`; live objects.
        unsafe { ffi::PyErr_GivenExceptionMatches(exception.ptr(), class.object()) != 0 }
    }

    // ---- reading ----

    /// The text of a string as UTF-8, lone surrogates and all the rest that has no UTF-8 escaped.
    pub fn text(self, string: &Owned) -> Result<String, Raised> {
        // SAFETY: `self`; a live object. The encoder checks the type.
        let encoded = unsafe {
            Owned::new(ffi::PyUnicode_AsEncodedString(
                string.ptr(),
                c"utf-8".as_ptr(),
                c"backslashreplace".as_ptr(),
            ))?
        };
        // SAFETY: what the encoder returns is a bytes object.
        Ok(String::from_utf8_lossy(unsafe { bytes_of(encoded.ptr()) }).into_owned())
    }

    /// `str(object)` as text.
    pub fn display(self, object: &Owned) -> Result<String, Raised> {
        // SAFETY: `self`; a live object.
        let string = unsafe { Owned::new(ffi::PyObject_Str(object.ptr()))? };
        self.text(&string)
    }
}

/// The exception classes that m0serve raises or asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    Assertion,
    BrokenPipe,
    ModuleNotFound,
    Os,
    Runtime,
    RuntimeWarning,
    SystemExit,
    Type,
    Value,
}

impl Exception {
    pub fn object(self) -> *mut PyObject {
        // SAFETY: statics of CPython's that are set once, before anything here can run.
        unsafe {
            match self {
                Exception::Assertion => ffi::PyExc_AssertionError,
                Exception::BrokenPipe => ffi::PyExc_BrokenPipeError,
                Exception::ModuleNotFound => ffi::PyExc_ModuleNotFoundError,
                Exception::Os => ffi::PyExc_OSError,
                Exception::Runtime => ffi::PyExc_RuntimeError,
                Exception::RuntimeWarning => ffi::PyExc_RuntimeWarning,
                Exception::SystemExit => ffi::PyExc_SystemExit,
                Exception::Type => ffi::PyExc_TypeError,
                Exception::Value => ffi::PyExc_ValueError,
            }
        }
    }
}

/// The content of a bytes object.
///
/// # Safety
/// `object` is a live bytes object (or of a subclass) that outlives the slice. Bytes never change.
#[inline]
pub unsafe fn bytes_of<'a>(object: *mut PyObject) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe {
        debug_assert!(ffi::PyBytes_Check(object) != 0);
        std::slice::from_raw_parts(
            ffi::PyBytes_AS_STRING(object).cast::<u8>(),
            ffi::Py_SIZE(object) as usize,
        )
    }
}

/// The characters of a string as latin-1 bytes, without a copy; None if one is beyond U+00FF.
///
/// # Safety
/// The thread is attached; `object` is a live str (or of a subclass) that outlives the slice. Strings never change.
#[inline]
pub unsafe fn latin1_of<'a>(object: *mut PyObject) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise. A string of kind 1 holds one byte a character, which is latin-1.
    unsafe {
        if ffi::PyUnicode_KIND(object) != ffi::PyUnicode_1BYTE_KIND {
            return None;
        }
        let data = ffi::PyUnicode_DATA(object).cast::<u8>();
        Some(std::slice::from_raw_parts(
            data,
            ffi::PyUnicode_GET_LENGTH(object) as usize,
        ))
    }
}

/// The class name of an object, for messages.
///
/// # Safety
/// The thread is attached and `object` is live.
pub unsafe fn class_name(object: *mut PyObject) -> String {
    // SAFETY: every live object has a type, whose name is a C string.
    unsafe { CStr::from_ptr((*ffi::Py_TYPE(object)).tp_name as *const c_char) }
        .to_string_lossy()
        .into_owned()
}
