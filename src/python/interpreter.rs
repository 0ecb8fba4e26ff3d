//! The embedded interpreter: how it is configured, started, described and finished.
//!
//! Owns the main thread's state. Runs on the main thread only; handlers have states of their own (`thread.rs`). Between
//! the calls here the main thread is detached, so that it may wait for signals without holding anybody up.

use std::ffi::{CString, OsString};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;

use super::app::{self, App};
use super::object::Attached;
use super::probe::{self, Version};
use super::{StartError, fault, ffi, gil_watch, share, wsgi};
use crate::config::AppSpec;
use crate::observe::log;

/// The one interpreter of the process.
#[derive(Debug)]
pub struct Interpreter {
    /// The main thread's state, put aside while the thread is detached.
    state: *mut ffi::PyThreadState,
    gil: bool,
    spec: AppSpec,
    /// Bound to the main thread.
    thread: PhantomData<*mut ()>,
}

impl Interpreter {
    /// Starts CPython as the interpreter that the user means. Signal handlers of the process are left alone: ours are to
    /// be installed before, because importing `signal` takes SIGINT if nobody has it yet.
    ///
    /// `PYTHONPATH`, `PYTHONHOME` and the other `PYTHON*` variables mean what they mean to `python3`: PYTHONHOME
    /// overrides a virtual environment.
    pub fn start(spec: &AppSpec) -> Result<Interpreter, StartError> {
        let installation = probe::find(spec.python.as_deref())?;
        configure(installation.map(|found| found.executable))?;
        // SAFETY: Py_InitializeFromConfig leaves the calling thread attached.
        let py = unsafe { Attached::assume() };
        let prepared = wsgi::prepare(py).map_err(|raised| {
            let text = fault::take_text(py, raised);
            StartError {
                code: StartError::APPLICATION,
                text: format!("{text}the interpreter can't be prepared"),
            }
        });
        let gil = is_gil_enabled(py);
        // SAFETY: attached, as said; the state is kept for the next call.
        let state = unsafe { ffi::PyEval_SaveThread() };
        prepared?;
        Ok(Interpreter {
            state,
            gil,
            spec: spec.clone(),
            thread: PhantomData,
        })
    }

    /// Imports the application that the settings name. Its import runs on the main thread, before any handler exists.
    pub fn load_app(&mut self) -> Result<App, StartError> {
        let spec = self.spec.clone();
        let (loaded, gil) = self.attached(|py| {
            gil_watch::listen(py);
            let loaded = app::load(py, &spec);
            share::constants(py);
            gil_watch::warn_if_on(py);
            (loaded, is_gil_enabled(py))
        });
        self.gil = gil;
        loaded
    }

    /// Whether the GIL was on at the last look: always on a GIL build; on a free-threaded one if an extension module
    /// brought it back.
    pub fn gil_enabled(&self) -> bool {
        self.gil
    }

    /// For the start-up line: `CPython 3.14.7t (GIL off)`.
    pub fn describe(&self) -> String {
        format!(
            "{} (GIL {})",
            Version::linked(),
            if self.gil { "on" } else { "off" }
        )
    }

    /// Ends the interpreter: `threading._shutdown`, atexit, flushing of the standard streams. Every handler must have
    /// been joined before. False if something went wrong, which was logged.
    pub fn finish(self) -> bool {
        // SAFETY: this is the main thread, detached since the last call here; its state is given back for good.
        let ended = unsafe {
            ffi::PyEval_RestoreThread(self.state);
            ffi::Py_FinalizeEx()
        };
        if ended != 0 {
            log::error!("Python could not write out its standard streams on the way out");
        }
        ended == 0
    }

    /// Runs `work` with the main thread attached.
    pub(crate) fn attached<T>(&mut self, work: impl FnOnce(Attached) -> T) -> T {
        // SAFETY: this is the main thread, detached since the last call here.
        let py = unsafe {
            ffi::PyEval_RestoreThread(self.state);
            Attached::assume()
        };
        let result = work(py);
        // SAFETY: attached above.
        self.state = unsafe { ffi::PyEval_SaveThread() };
        result
    }
}

/// `sys._is_gil_enabled()`, the only way to ask. Also true for a moment while any extension module is imported.
pub fn is_gil_enabled(py: Attached) -> bool {
    if cfg!(not(Py_GIL_DISABLED)) {
        return true;
    }
    let answer = py
        .import(c"sys")
        .and_then(|sys| py.call_method(&sys, c"_is_gil_enabled", []));
    match answer {
        // SAFETY: attached; comparing addresses.
        Ok(answer) => unsafe { answer.ptr() == ffi::Py_True() },
        Err(raised) => {
            fault::log_exception(py, raised, "asking for the GIL's state");
            false
        }
    }
}

fn configure(executable: Option<PathBuf>) -> Result<(), StartError> {
    // SAFETY: the order of calls of "Python Initialization Configuration" in the C API's manual: pre-initialise, fill a
    // PyConfig that lives until it is cleared, initialise. One thread, and nothing of Python runs yet. Both structures
    // are written whole by their Init functions.
    unsafe {
        let mut before: ffi::PyPreConfig = std::mem::zeroed();
        // As `python3` does: the user's locale, or UTF-8 mode where that is "C" (PEP 538, PEP 540).
        ffi::PyPreConfig_InitPythonConfig(&mut before);
        before.parse_argv = 0;
        check(ffi::Py_PreInitialize(&before))?;

        let mut config: ffi::PyConfig = std::mem::zeroed();
        ffi::PyConfig_InitPythonConfig(&mut config);
        let filled = fill(&mut config, executable);
        let started = filled.and_then(|()| check(ffi::Py_InitializeFromConfig(&config)));
        ffi::PyConfig_Clear(&mut config);
        started
    }
}

/// # Safety
/// Python is pre-initialised and `config` initialised.
unsafe fn fill(config: &mut ffi::PyConfig, executable: Option<PathBuf>) -> Result<(), StartError> {
    // m0serve's own flags are not for Python to read, and signals are the server's.
    config.parse_argv = 0;
    config.install_signal_handlers = 0;

    let arguments: Vec<CString> = std::env::args_os()
        .filter_map(|argument| CString::new(OsString::into_vec(argument)).ok())
        .collect();
    let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    // sys.argv is the command alone, as frameworks look at argv[1] for a subcommand; sys.orig_argv has it all.
    // SAFETY: the caller's promise; the strings live until the call returns, and the configuration copies them.
    unsafe {
        let config: *mut ffi::PyConfig = config;
        check(ffi::PyConfig_SetBytesArgv(
            config,
            pointers.len().min(1) as _,
            pointers.as_mut_ptr(),
        ))?;
        let orig_argv = &raw mut (*config).orig_argv;
        for argument in &arguments {
            let wide = ffi::Py_DecodeLocale(argument.as_ptr(), ptr::null_mut());
            if !wide.is_null() {
                let appended = ffi::PyWideStringList_Append(orig_argv, wide);
                ffi::PyMem_RawFree(wide.cast());
                check(appended)?;
            }
        }
        if let Some(executable) = executable {
            // Both, or a virtual environment is not recognised (docs/cpython-facts.md, "Embedding").
            let path = probe::c_path(&executable)?;
            check(ffi::PyConfig_SetBytesString(
                config,
                &raw mut (*config).executable,
                path.as_ptr(),
            ))?;
            check(ffi::PyConfig_SetBytesString(
                config,
                &raw mut (*config).program_name,
                path.as_ptr(),
            ))?;
        }
    }
    Ok(())
}

fn check(status: ffi::PyStatus) -> Result<(), StartError> {
    // SAFETY: a status is a plain value; its texts are static C strings or null.
    unsafe {
        if ffi::PyStatus_Exception(status) == 0 {
            return Ok(());
        }
        let said = |text: *const std::ffi::c_char| {
            (!text.is_null()).then(|| {
                std::ffi::CStr::from_ptr(text)
                    .to_string_lossy()
                    .into_owned()
            })
        };
        let text =
            said(status.err_msg).unwrap_or_else(|| format!("exit status {}", status.exitcode));
        Err(StartError {
            code: StartError::APPLICATION,
            text: format!("Python could not be started: {text}"),
        })
    }
}
