//! Which module brought the GIL back: listens to the warning that CPython gives when an import does so.
//!
//! Owns a hook in `warnings.showwarning` for the time of one import. Runs on the main thread, attached. A build with a
//! GIL has nothing to watch.

#[cfg(not(Py_GIL_DISABLED))]
mod watch {
    use super::super::object::Attached;

    pub struct GilWatch;

    impl GilWatch {
        pub fn start(_: Attached) -> GilWatch {
            GilWatch
        }

        pub fn finish(self, _: Attached) -> Option<String> {
            None
        }
    }
}

#[cfg(Py_GIL_DISABLED)]
mod watch {
    use std::cell::RefCell;
    use std::ptr;

    use super::super::object::{Attached, Exception, Owned, Raised};
    use super::super::{fault, ffi};

    thread_local! {
        static CULPRIT: RefCell<Option<String>> = const { RefCell::new(None) };
    }

    /// While it lives, the warning about the GIL goes to us and all others where they went before.
    pub struct GilWatch {
        /// The `warnings` module, what `showwarning` was, and what we put there; None if that failed.
        hook: Option<(Owned, Owned, Owned)>,
    }

    impl GilWatch {
        pub fn start(py: Attached) -> GilWatch {
            let hook = install(py)
                .map_err(|raised| fault::log_exception(py, raised, "watching for the GIL"))
                .ok();
            GilWatch { hook }
        }

        /// The module that brought the GIL back, if one did and the warning was not filtered away.
        pub fn finish(self, py: Attached) -> Option<String> {
            if let Some((module, before, ours)) = self.hook {
                let restored = py.attribute(&module, c"showwarning").and_then(|now| {
                    // The application may have put its own there: it keeps it.
                    if now.ptr() == ours.ptr() {
                        py.set_attribute(&module, c"showwarning", &before)
                    } else {
                        Ok(())
                    }
                });
                if let Err(raised) = restored {
                    fault::log_exception(py, raised, "restoring warnings.showwarning");
                }
            }
            CULPRIT.take()
        }
    }

    fn install(py: Attached) -> Result<(Owned, Owned, Owned), Raised> {
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
        py.set_attribute(&module, c"showwarning", &ours)?;
        Ok((module, before, ours))
    }

    /// `showwarning(message, category, filename, lineno, file=None, line=None)`; `before` is what it was.
    unsafe extern "C" fn show_warning(
        before: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
        named: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject {
        // SAFETY: CPython calls this attached.
        let py = unsafe { Attached::assume() };
        // SAFETY: a tuple of arguments, whose items it keeps alive.
        let message = unsafe {
            (ffi::PyTuple_GET_SIZE(arguments) > 0)
                .then(|| Owned::borrowed(ffi::PyTuple_GET_ITEM(arguments, 0)))
        };
        if let Some(message) = message
            && py.is_instance(&message, Exception::RuntimeWarning)
            && let Ok(text) = py.display(&message)
            && let Some(module) = module_in(&text)
        {
            CULPRIT.set(Some(module.to_owned()));
            return py.none().into_ptr();
        }
        // SAFETY: attached; the arguments as they came.
        unsafe { ffi::PyObject_Call(before, arguments, named) }
    }

    /// The name in the text of Python/import.c, `import_ensure_gil…`.
    pub(super) fn module_in(text: &str) -> Option<&str> {
        text.strip_prefix("The global interpreter lock (GIL) has been enabled to load module '")?
            .split('\'')
            .next()
    }
}

pub use watch::GilWatch;

#[cfg(all(test, Py_GIL_DISABLED))]
mod tests {
    #[test]
    fn the_warning_names_the_module() {
        let text = "The global interpreter lock (GIL) has been enabled to load module 'a.b', which has not declared";
        assert_eq!(super::watch::module_in(text), Some("a.b"));
        assert_eq!(super::watch::module_in("something else 'x'"), None);
    }
}
