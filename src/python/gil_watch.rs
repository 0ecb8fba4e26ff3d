//! Whether the GIL came back on a free-threaded build, and which module brought it.
//!
//! Importing an extension module that does not declare itself safe turns the GIL on for the whole process, also in the
//! middle of serving (docs/cpython-facts.md, "The GIL can come back on 3.14t"). Owns a hook in `warnings.showwarning`, which
//! learns the module's name, and each handler's and each ASGI loop's look at `sys._is_gil_enabled()` now and then, which
//! learns the fact even if the warning was filtered away. Attached, on any thread. A build with a GIL has nothing to watch.

#[cfg(not(Py_GIL_DISABLED))]
mod watch {
    use super::super::object::{Attached, Raised};
    use crate::pool::turn_slice::TurnSlice;

    pub fn listen(_: Attached) {}

    pub fn warn_if_on(_: Attached) {}

    pub struct Watch;

    impl Watch {
        pub fn make(_: Attached) -> Result<Watch, Raised> {
            Ok(Watch)
        }

        #[inline]
        pub fn count(&self, _: Attached, _: &TurnSlice) {}
    }
}

#[cfg(Py_GIL_DISABLED)]
mod watch {
    use std::cell::Cell;
    use std::ptr;
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::super::interpreter::is_gil_enabled;
    use super::super::object::{Attached, Exception, Owned, Raised};
    use super::super::{fault, ffi};
    use crate::pool::turn_slice::TurnSlice;
    use crate::sync::lock;

    /// The module that the last warning named. Never locked across a call into Python.
    static CULPRIT: Mutex<Option<String>> = Mutex::new(None);

    /// From now on the warning about the GIL comes to us, and all others go where they went before. An application that
    /// puts a `showwarning` of its own in place, over ours, keeps it.
    pub fn listen(py: Attached) {
        if let Err(raised) = install(py) {
            fault::log_exception(py, raised, "watching for the GIL");
        }
    }

    fn install(py: Attached) -> Result<(), Raised> {
        let module = py.import(c"warnings")?;
        let before = py.attribute(&module, c"showwarning")?;
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: c"showwarning".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunctionWithKeywords: show_warning,
            },
            ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
            ml_doc: ptr::null(),
        }));
        // SAFETY: attached; the definition lives for ever, once per process; the function keeps `before` alive.
        let ours = unsafe {
            Owned::new(ffi::PyCFunction_NewEx(
                definition,
                before.ptr(),
                ptr::null_mut(),
            ))?
        };
        py.set_attribute(&module, c"showwarning", &ours)
    }

    /// `showwarning(message, category, filename, lineno, file=None, line=None)`; `before` is what it was.
    unsafe extern "C" fn show_warning(
        before: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
        named: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject {
        super::super::types::entry(|py| {
            // SAFETY: a tuple of arguments, which keeps its items alive.
            let message = unsafe {
                (ffi::PyTuple_GET_SIZE(arguments) > 0)
                    .then(|| Owned::borrowed(ffi::PyTuple_GET_ITEM(arguments, 0)))
            };
            if let Some(message) = message
                && py.is_instance(&message, Exception::RuntimeWarning)
                && let Some(module) = module_in(&py.display(&message)?)
            {
                *lock(&CULPRIT) = Some(module.to_owned());
                return Ok(py.none());
            }
            // SAFETY: attached; the arguments as they came.
            unsafe { Owned::new(ffi::PyObject_Call(before, arguments, named)) }
        })
    }

    /// The name in the text of Python/import.c (`_PyImport_EnableGILAndWarn`).
    pub(super) fn module_in(text: &str) -> Option<&str> {
        text.strip_prefix("The global interpreter lock (GIL) has been enabled to load module '")?
            .split('\'')
            .next()
    }

    /// After the application's import.
    pub fn warn_if_on(py: Attached) {
        if is_gil_enabled(py) {
            warn();
        }
    }

    fn warn() {
        let culprit = lock(&CULPRIT).clone();
        fault::warn_gil(culprit.as_deref());
    }

    /// Requests, or an event loop's turns, between two looks. A look costs some 50 ns.
    const LOOK_EVERY: u32 = 256;
    /// The GIL is also on for a moment while any extension module is imported: only one that stays on is news.
    const STAYS_ON: Duration = Duration::from_millis(100);

    /// One handler's looks, or one event loop's.
    pub struct Watch {
        is_enabled: Owned,
        /// Until the next look. The first one is at once: what a lifespan imports comes after `warn_if_on`.
        left: Cell<u32>,
        seen_on: Cell<Option<Instant>>,
    }

    impl Watch {
        pub fn make(py: Attached) -> Result<Watch, Raised> {
            let sys = py.import(c"sys")?;
            let is_enabled = py.attribute(&sys, c"_is_gil_enabled")?;
            Ok(Watch {
                is_enabled,
                left: Cell::new(0),
                seen_on: Cell::new(None),
            })
        }

        /// A request has ended, or an event loop has come round. When the GIL is found to have come back for good, that
        /// is said, and handlers take turns from now on.
        #[inline]
        pub fn count(&self, py: Attached, turns: &TurnSlice) {
            match self.left.get() {
                0 => self.look(py, turns),
                left => self.left.set(left - 1),
            }
        }

        #[cold]
        fn look(&self, py: Attached, turns: &TurnSlice) {
            self.left.set(LOOK_EVERY);
            if turns.is_shared_gil() {
                return;
            }
            let is_on = match py.call(&self.is_enabled, []) {
                // SAFETY: attached; comparing addresses.
                Ok(answer) => unsafe { answer.ptr() == ffi::Py_True() },
                Err(Raised) => {
                    drop(py.take_exception());
                    false
                }
            };
            match self.seen_on.get() {
                _ if !is_on => self.seen_on.set(None),
                Some(since) if since.elapsed() >= STAYS_ON => {
                    // One of the handlers says it.
                    if turns.share_gil() {
                        warn();
                    }
                }
                since => {
                    // Every time, until it is decided.
                    self.seen_on.set(since.or_else(|| Some(Instant::now())));
                    self.left.set(0);
                }
            }
        }
    }
}

pub use watch::{Watch, listen, warn_if_on};

#[cfg(all(test, Py_GIL_DISABLED))]
mod tests {
    #[test]
    fn the_warning_names_the_module() {
        let text = "The global interpreter lock (GIL) has been enabled to load module 'a.b', which has not declared";
        assert_eq!(super::watch::module_in(text), Some("a.b"));
        assert_eq!(super::watch::module_in("something else 'x'"), None);
    }
}
