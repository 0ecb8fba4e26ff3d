//! Spares handler threads contention on the reference counts of what every call of an application touches.
//!
//! On a free-threaded build an object's count is cheap for the thread that made it and contended for all others, and an
//! application is made by the main thread, which never calls it. Top-level functions and classes are counted apart by
//! CPython itself; closures, bound methods and callable instances, of which a stack of middleware consists, are not.
//! Owns the walk over them, once, after loading. What it marks is only freed by the garbage collector from then on, so it
//! keeps to what lives as long as the application: callables, what they hold directly, and containers of callables.
//!
//! The constants of code (bytes, tuples, numbers) are immortal when it comes from a `.pyc`, but not when the import had to
//! compile it: CPython leaves that out in `compile()`, which the import calls (Python/bltinmodule.c). Where no `.pyc` can be
//! written (a read-only image, PYTHONDONTWRITEBYTECODE) every request would then count them on a line that all threads
//! fight for. [`constants`] makes up for it.
//!
//! Runs on the main thread, attached. It asks as the collector asks, so that no code of the application's runs and no
//! instance's `__dict__` is made for it. Without effect on a GIL build.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};

use super::ffi;
use super::ffi::PyObject;
use super::object::{Attached, Owned};

/// The walk ends after as many objects: an application's own tables can be large, and nobody waits for them.
const MOST: usize = 20_000;

/// Marks `callable` and what it is made of; returns how many objects were marked.
pub fn share(py: Attached, callable: &Owned) -> usize {
    if cfg!(not(Py_GIL_DISABLED)) {
        return 0;
    }
    let mut walk = Walk {
        open: Vec::new(),
        seen: HashSet::new(),
        marked: 0,
    };
    walk.open_once(callable.again());
    while let Some(object) = walk.open.pop() {
        walk.visit(py, &object);
    }
    walk.marked
}

/// What kind of object leads on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Function,
    Method,
    /// A list, tuple, dict or closure's cell.
    Container,
    /// An instance, callable or not.
    Instance,
}

/// Makes the constants of all code that there is immortal, as they are when it was imported from a `.pyc`.
#[cfg(Py_GIL_DISABLED)]
pub fn constants(py: Attached) {
    let _ = py;
    // SAFETY: attached; the visitors make no objects.
    unsafe { ffi::PyUnstable_GC_VisitObjects(visit, std::ptr::null_mut()) };

    unsafe extern "C" fn visit(object: *mut PyObject, _: *mut c_void) -> c_int {
        // SAFETY: a live object, and all other threads stand still. Code objects hold one object that the collector
        // is told of, `co_consts`.
        unsafe {
            if ffi::PyCode_Check(object) != 0
                && let Some(traverse) = (*ffi::Py_TYPE(object)).tp_traverse
            {
                traverse(object, items, std::ptr::null_mut());
            }
        }
        1
    }

    unsafe extern "C" fn items(held: *mut PyObject, _: *mut c_void) -> c_int {
        // SAFETY: a live object, as above; tuples don't change.
        unsafe {
            if ffi::PyTuple_CheckExact(held) != 0 {
                for index in 0..ffi::PyTuple_GET_SIZE(held) {
                    keep(ffi::PyTuple_GET_ITEM(held, index));
                }
            }
        }
        0
    }

    /// # Safety
    /// `constant` is live, and all other threads stand still.
    unsafe fn keep(constant: *mut PyObject) {
        // SAFETY: the caller's promise. Strings among constants are interned, and so immortal already; code dies with its
        // function.
        unsafe {
            let class = ffi::Py_TYPE(constant);
            let is_plain = class == &raw mut ffi::PyBytes_Type
                || class == &raw mut ffi::PyLong_Type
                || class == &raw mut ffi::PyFloat_Type
                || class == &raw mut ffi::PyComplex_Type
                || class == &raw mut ffi::PyFrozenSet_Type
                || class == &raw mut ffi::PyTuple_Type;
            if !is_plain || ffi::PyUnstable_IsImmortal(constant) != 0 {
                return;
            }
            if class == &raw mut ffi::PyTuple_Type {
                items(constant, std::ptr::null_mut());
            }
            ffi::make_immortal(constant);
        }
    }
}

/// A GIL build counts without contention.
#[cfg(not(Py_GIL_DISABLED))]
pub fn constants(_: Attached) {}

struct Walk {
    open: Vec<Owned>,
    /// Addresses; the application holds each object for longer than the walk.
    seen: HashSet<usize>,
    marked: usize,
}

impl Walk {
    fn visit(&mut self, py: Attached, object: &Owned) {
        self.mark(object);
        // SAFETY: attached; live objects; each function is asked of the class that it is for.
        unsafe {
            match kind_of(object.ptr()) {
                // Its globals and constants are its module's.
                Kind::Function => {
                    let closure = ffi::PyFunction_GetClosure(object.ptr());
                    if !closure.is_null() {
                        self.follow(Owned::borrowed(closure));
                    }
                }
                Kind::Method => {
                    self.follow(Owned::borrowed(ffi::PyMethod_Function(object.ptr())));
                    // Callable or not, its attributes are what the method uses.
                    self.open_once(Owned::borrowed(ffi::PyMethod_Self(object.ptr())));
                }
                Kind::Container => {
                    for item in referents(py, object) {
                        self.follow(item);
                    }
                }
                Kind::Instance => {
                    for value in referents(py, object) {
                        if ffi::PyType_Check(value.ptr()) == 0 {
                            self.mark(&value);
                        }
                        self.follow(value);
                    }
                }
            }
        }
    }

    fn mark(&mut self, object: &Owned) {
        // SAFETY: attached; a live object.
        if unsafe { ffi::defer_refcount(object.ptr()) } {
            self.marked += 1;
        }
    }

    /// Looks into `object` later, if it is a callable of the application's or a container.
    fn follow(&mut self, object: Owned) {
        // SAFETY: attached; a live object. Classes are callable too, but CPython counts them apart; callables of static
        // classes are CPython's own.
        let leads_on = unsafe {
            let class = ffi::Py_TYPE(object.ptr());
            ffi::PyType_Check(object.ptr()) == 0
                && (kind_of(object.ptr()) != Kind::Instance
                    || (ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0
                        && ffi::PyCallable_Check(object.ptr()) != 0))
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
unsafe fn kind_of(object: *mut PyObject) -> Kind {
    // SAFETY: the caller's promise.
    unsafe {
        if ffi::PyFunction_Check(object) != 0 {
            Kind::Function
        } else if ffi::PyMethod_Check(object) {
            Kind::Method
        } else if ffi::PyList_CheckExact(object) != 0
            || ffi::PyTuple_CheckExact(object) != 0
            || ffi::PyDict_CheckExact(object) != 0
            || ffi::Py_TYPE(object) == &raw mut ffi::PyCell_Type
        {
            Kind::Container
        } else {
            Kind::Instance
        }
    }
}

/// What `object` holds, as it tells the garbage collector.
fn referents(py: Attached, object: &Owned) -> Vec<Owned> {
    let _ = py;
    let mut found: Vec<Owned> = Vec::new();
    // SAFETY: attached; a live object of a class that has this function. It does nothing but call `collect` for each
    // object that it holds.
    unsafe {
        let class = ffi::Py_TYPE(object.ptr());
        if ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HAVE_GC) != 0
            && let Some(traverse) = (*class).tp_traverse
        {
            traverse(object.ptr(), collect, (&raw mut found).cast());
        }
    }
    found
}

unsafe extern "C" fn collect(object: *mut PyObject, found: *mut c_void) -> c_int {
    // SAFETY: `referents` passes its vector; the object is live, as its holder is.
    unsafe { (*found.cast::<Vec<Owned>>()).push(Owned::borrowed(object)) };
    0
}
