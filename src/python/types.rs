//! How our native classes are made: the parts that all of them share.
//!
//! Owns the making of heap types and the guard around every function that CPython calls. Types are made once, on the
//! main thread, and never freed: on a free-threaded build their reference count would be contended by every instance.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ffi;
use super::ffi::{PyObject, PyTypeObject};
use super::object::{Attached, Exception, Owned, Raised};

/// One method's definition.
pub struct Method {
    pub name: &'static CStr,
    pub function: ffi::PyCFunctionFast,
    pub doc: &'static CStr,
}

/// What a class consists of.
pub struct Class {
    /// With its module, as in `m0serve.Input`.
    pub name: &'static CStr,
    pub doc: &'static CStr,
    pub size: usize,
    pub flags: std::ffi::c_ulong,
    pub methods: &'static [Method],
    pub members: Vec<ffi::PyMemberDef>,
    pub getters: Vec<ffi::PyGetSetDef>,
    pub slots: Vec<(c_int, *mut c_void)>,
}

impl Class {
    /// Makes the class. It lives as long as the process.
    pub fn make(self, py: Attached) -> Result<*mut PyTypeObject, Raised> {
        let mut methods: Vec<ffi::PyMethodDef> = self
            .methods
            .iter()
            .map(|method| ffi::PyMethodDef {
                ml_name: method.name.as_ptr(),
                ml_meth: ffi::PyMethodDefPointer {
                    PyCFunctionFast: method.function,
                },
                ml_flags: ffi::METH_FASTCALL,
                ml_doc: method.doc.as_ptr(),
            })
            .collect();
        methods.push(ffi::PyMethodDef::zeroed());
        let mut members = self.members;
        members.push(ffi::PyMemberDef::default());
        let mut getters = self.getters;
        getters.push(ffi::PyGetSetDef::default());

        let slot = |slot, pfunc| ffi::PyType_Slot { slot, pfunc };
        let mut slots: Vec<_> = self
            .slots
            .into_iter()
            .map(|(id, function)| slot(id, function))
            .collect();
        // CPython keeps pointing into these tables.
        slots.push(slot(
            ffi::Py_tp_methods,
            Vec::leak(methods).as_mut_ptr().cast(),
        ));
        slots.push(slot(
            ffi::Py_tp_members,
            Vec::leak(members).as_mut_ptr().cast(),
        ));
        slots.push(slot(
            ffi::Py_tp_getset,
            Vec::leak(getters).as_mut_ptr().cast(),
        ));
        slots.push(slot(ffi::Py_tp_doc, self.doc.as_ptr().cast_mut().cast()));
        slots.push(slot(0, std::ptr::null_mut()));
        let mut spec = ffi::PyType_Spec {
            name: self.name.as_ptr(),
            basicsize: self.size as c_int,
            itemsize: 0,
            flags: (self.flags | ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_IMMUTABLETYPE) as _,
            slots: slots.as_mut_ptr(),
        };
        let _ = py;
        // SAFETY: attached; the tables end with empty entries and outlive the type, the spec and slots are read now.
        unsafe {
            let class = Owned::new(ffi::PyType_FromSpec(&mut spec))?.into_ptr();
            ffi::make_immortal(class);
            Ok(class.cast())
        }
    }
}

/// Runs a function that CPython called: its error becomes null, and a panic becomes an exception instead of unwinding
/// through C.
#[inline]
pub fn entry(body: impl FnOnce(Attached) -> Result<Owned, Raised>) -> *mut PyObject {
    // SAFETY: CPython calls functions of types with the thread attached.
    let py = unsafe { Attached::assume() };
    match catch_unwind(AssertUnwindSafe(|| body(py))) {
        Ok(Ok(result)) => result.into_ptr(),
        Ok(Err(Raised)) => std::ptr::null_mut(),
        Err(_) => {
            let _ = py.raise(
                Exception::Runtime,
                "m0serve panicked; its message is on the standard error stream",
            );
            std::ptr::null_mut()
        }
    }
}

/// The arguments of a METH_FASTCALL function.
///
/// # Safety
/// `arguments` and `count` are what CPython passed to the function that is running.
#[inline]
pub unsafe fn arguments<'a>(
    arguments: *mut *mut PyObject,
    count: ffi::Py_ssize_t,
) -> &'a [*mut PyObject] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(arguments, count as usize) }
}

/// Allocates an instance of a class of ours, zeroed behind its object header.
///
/// # Safety
/// Attached; the class was made by [`Class::make`].
#[inline]
pub unsafe fn allocate(class: *mut PyTypeObject) -> Result<Owned, Raised> {
    // SAFETY: the caller's promise.
    unsafe { Owned::new(ffi::PyType_GenericAlloc(class, 0)) }
}

/// Frees an instance that `allocate` made; its fields were dropped before.
///
/// # Safety
/// Called from the class's `tp_dealloc` with its argument, once.
#[inline]
pub unsafe fn release(object: *mut PyObject) {
    // SAFETY: the caller's promise. An instance of a heap type holds a reference to its type.
    unsafe {
        let class = ffi::Py_TYPE(object);
        if let Some(free) = (*class).tp_free {
            free(object.cast());
        }
        ffi::Py_DECREF(class.cast());
    }
}
