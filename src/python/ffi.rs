//! Declarations of CPython's C API: all of pyo3-ffi's, and the few functions that it lacks.
//!
//! Owns nothing and runs nowhere by itself. The only file that declares foreign functions; what may be called when
//! is said at the callers.

#![allow(non_snake_case)]

pub use pyo3_ffi::*;

#[cfg(Py_GIL_DISABLED)]
use std::ffi::{c_int, c_void};

#[cfg(Py_GIL_DISABLED)]
unsafe extern "C" {
    /// Include/cpython/object.h (3.14): reference counting of `op` is left to the garbage collector. 1 if it now is.
    fn PyUnstable_Object_EnableDeferredRefcount(op: *mut PyObject) -> c_int;
    /// Include/cpython/objimpl.h: calls `visit` for every object that the collector tracks, with all other threads
    /// stopped, until it returns 0. It must not make Python objects.
    pub fn PyUnstable_GC_VisitObjects(
        visit: unsafe extern "C" fn(*mut PyObject, *mut c_void) -> c_int,
        argument: *mut c_void,
    );
    /// Include/cpython/object.h (3.14).
    pub fn PyUnstable_IsImmortal(op: *mut PyObject) -> c_int;
    /// Include/internal/pycore_object.h: private but exported; its public successor comes with 3.15.
    fn _Py_SetImmortal(op: *mut PyObject);
}

unsafe extern "C" {
    /// Include/cpython/classobject.h: the class of bound methods.
    static mut PyMethod_Type: PyTypeObject;
    /// Borrowed from the method.
    pub fn PyMethod_Function(method: *mut PyObject) -> *mut PyObject;
    /// Borrowed from the method.
    pub fn PyMethod_Self(method: *mut PyObject) -> *mut PyObject;
}

/// True for a bound method.
///
/// # Safety
/// `object` is live.
pub unsafe fn PyMethod_Check(object: *mut PyObject) -> bool {
    // SAFETY: the caller's promise; the address of a static of CPython's.
    unsafe { Py_TYPE(object) == &raw mut PyMethod_Type }
}

/// Spares threads that share `op` the contention on its reference count: it is never freed from now on.
/// Without effect on a GIL build, where counting costs nothing. Only before other threads can reach `op`.
///
/// # Safety
/// The thread is attached and `op` is a live object, which must not be needed to die.
pub unsafe fn make_immortal(op: *mut PyObject) {
    #[cfg(Py_GIL_DISABLED)]
    // SAFETY: the caller's promise.
    unsafe {
        _Py_SetImmortal(op);
    }
    #[cfg(not(Py_GIL_DISABLED))]
    let _ = op;
}

/// Leaves the reference count of `op` to the garbage collector, so that threads that call it do not contend.
/// Objects that the collector doesn't track stay as they are. Without effect on a GIL build.
///
/// # Safety
/// The thread is attached and `op` is a live object.
pub unsafe fn defer_refcount(op: *mut PyObject) -> bool {
    #[cfg(Py_GIL_DISABLED)]
    // SAFETY: the caller's promise; the function itself refuses objects without a GC head.
    unsafe {
        PyUnstable_Object_EnableDeferredRefcount(op) != 0
    }
    #[cfg(not(Py_GIL_DISABLED))]
    {
        let _ = op;
        false
    }
}

/// True if the `count` references that the caller knows of are the only ones.
///
/// On a free-threaded build an object whose count was ever touched by a thread other than its owner may be reported as
/// shared although it no longer is; never the other way round.
///
/// # Safety
/// The thread is attached and, on a free-threaded build, has made `op`.
#[inline]
pub unsafe fn has_only(op: *mut PyObject, count: Py_ssize_t) -> bool {
    #[cfg(Py_GIL_DISABLED)]
    // SAFETY: `op` is live; both counts are atomics.
    unsafe {
        use std::sync::atomic::Ordering::Relaxed;
        (*op).ob_ref_shared.load(Relaxed) == 0
            && (*op).ob_ref_local.load(Relaxed) as Py_ssize_t == count
    }
    #[cfg(not(Py_GIL_DISABLED))]
    // SAFETY: `op` is live, and the GIL is held.
    unsafe {
        Py_REFCNT(op) == count
    }
}
