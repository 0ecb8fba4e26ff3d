//! Spares handler threads contention on the reference counts of what every call of an application touches.
//!
//! On a free-threaded build an object's count is cheap for the thread that made it and contended for all others, and an
//! application is made by the main thread, which never calls it. Top-level functions and classes are counted apart by
//! CPython itself; closures, bound methods and callable instances, of which a stack of middleware consists, are not.
//! Owns the walk over them, once, after loading. What it marks is only freed by the garbage collector from then on, so it
//! keeps to what lives as long as the application: callables, what they hold directly, and containers of callables.
//! Runs on the main thread, attached. Without effect on a GIL build.

use std::collections::HashSet;

use super::ffi;
use super::object::{Attached, Owned, Raised};

/// The walk ends after as many objects: an application's own tables can be large, and nobody waits for them.
const MOST: usize = 20_000;

/// Marks `callable` and what it is made of; returns how many objects were marked.
pub fn share(py: Attached, callable: &Owned) -> usize {
    if cfg!(not(Py_GIL_DISABLED)) {
        return 0;
    }
    let mut walk = Walk {
        py,
        open: vec![callable.again()],
        seen: HashSet::new(),
        marked: 0,
    };
    while let Some(object) = walk.open.pop() {
        if walk.visit(&object).is_err() {
            // An attribute whose getter fails: what it would have led to stays as it is.
            drop(py.take_exception());
        }
    }
    walk.marked
}

struct Walk {
    py: Attached,
    open: Vec<Owned>,
    /// Addresses; each object is held by the application for longer than the walk.
    seen: HashSet<usize>,
    marked: usize,
}

impl Walk {
    fn visit(&mut self, object: &Owned) -> Result<(), Raised> {
        let py = self.py;
        self.mark(object);
        // SAFETY: attached; live objects; each function is asked of the class that it is for.
        unsafe {
            let pointer = object.ptr();
            if ffi::PyFunction_Check(pointer) != 0 {
                if let Some(closure) = py.optional_attribute_named(object, c"__closure__")?
                    && !closure.is_none()
                {
                    for cell in items(&closure) {
                        self.mark(&cell);
                        // A cell can be empty still.
                        if let Some(content) = py
                            .optional_attribute_named(&cell, c"cell_contents")
                            .unwrap_or(None)
                        {
                            self.follow(content);
                        }
                        drop(py.take_exception());
                    }
                }
                if let Some(wrapped) = py.optional_attribute_named(object, c"__wrapped__")? {
                    self.follow(wrapped);
                }
                return Ok(());
            }
            if ffi::PyMethod_Check(pointer) {
                self.follow(Owned::borrowed(ffi::PyMethod_Function(pointer)));
                self.open_once(Owned::borrowed(ffi::PyMethod_Self(pointer)));
                return Ok(());
            }
            if is_container(pointer) {
                for item in items(object) {
                    self.follow(item);
                }
                return Ok(());
            }
        }
        if let Some(func) = py.optional_attribute_named(object, c"func")? {
            self.follow(func); // functools.partial
        }
        if let Some(attributes) = py.optional_attribute_named(object, c"__dict__")? {
            for value in values(py, &attributes)? {
                self.mark(&value);
                self.follow(value);
            }
        }
        Ok(())
    }

    fn mark(&mut self, object: &Owned) {
        // SAFETY: attached; a live object.
        if unsafe { ffi::defer_refcount(object.ptr()) } {
            self.marked += 1;
        }
    }

    /// Looks into `object` later, if it is a callable of the application's or a container.
    fn follow(&mut self, object: Owned) {
        // SAFETY: attached; a live object. Classes are callable too, but CPython counts them apart.
        let leads_on = unsafe {
            let pointer = object.ptr();
            let is_heap =
                ffi::PyType_HasFeature(ffi::Py_TYPE(pointer), ffi::Py_TPFLAGS_HEAPTYPE) != 0;
            ffi::PyType_Check(pointer) == 0
                && (ffi::PyFunction_Check(pointer) != 0
                    || ffi::PyMethod_Check(pointer)
                    || is_container(pointer)
                    || (is_heap && ffi::PyCallable_Check(pointer) != 0))
        };
        if leads_on {
            self.open_once(object);
        }
    }

    fn open_once(&mut self, object: Owned) {
        if self.seen.len() < MOST && self.seen.insert(object.ptr() as usize) {
            self.open.push(object);
        }
    }
}

/// # Safety
/// Attached; `object` is live.
unsafe fn is_container(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        ffi::PyList_CheckExact(object) != 0
            || ffi::PyTuple_CheckExact(object) != 0
            || ffi::PyDict_CheckExact(object) != 0
    }
}

/// What a list, tuple or dict (its values) holds now.
///
/// # Safety
/// Attached; `container` is one of these.
unsafe fn items(container: &Owned) -> Vec<Owned> {
    // SAFETY: the caller's promise; a tuple of its own keeps the items while they are taken.
    unsafe {
        let listed = if ffi::PyDict_CheckExact(container.ptr()) != 0 {
            Owned::new(ffi::PyDict_Values(container.ptr()))
                .and_then(|list| Owned::new(ffi::PySequence_Tuple(list.ptr())))
        } else {
            Owned::new(ffi::PySequence_Tuple(container.ptr()))
        };
        let Ok(tuple) = listed else {
            ffi::PyErr_Clear();
            return Vec::new();
        };
        (0..ffi::PyTuple_GET_SIZE(tuple.ptr()).min(MOST as ffi::Py_ssize_t))
            .map(|index| Owned::borrowed(ffi::PyTuple_GET_ITEM(tuple.ptr(), index)))
            .collect()
    }
}

/// The values of an instance's `__dict__`.
fn values(py: Attached, attributes: &Owned) -> Result<Vec<Owned>, Raised> {
    let _ = py;
    // SAFETY: attached; a class can give anything for `__dict__`, so its own type is looked at.
    unsafe {
        if ffi::PyDict_CheckExact(attributes.ptr()) == 0 {
            return Ok(Vec::new());
        }
        Ok(items(attributes))
    }
}
