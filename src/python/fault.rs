//! What became of a Python exception: its traceback as text, and the lines of the error log.
//!
//! Owns the rendering of tracebacks; `observe::log` escapes what a client could have put into them. Must not decide what is answered to the client. Runs on
//! whichever thread met the exception, attached; the writing itself happens detached.

use super::object::{Attached, Exception, Owned, Raised};
use crate::observe::log::{self, Level};

/// The traceback of the exception that is set, as `python3` prints it, with a newline at its end.
/// The exception is gone afterwards.
pub fn take_text(py: Attached, _: Raised) -> String {
    match py.take_exception() {
        Some(exception) => text_of(py, &exception),
        None => "an error without an exception\n".to_owned(),
    }
}

/// The traceback of `exception`. Whatever goes wrong while it is rendered leaves a shorter text.
pub fn text_of(py: Attached, exception: &Owned) -> String {
    let text = formatted(py, exception).or_else(|Raised| {
        drop(py.take_exception());
        // SAFETY: attached; a live object.
        let class = unsafe { super::object::class_name(exception.ptr()) };
        py.display(exception)
            .map(|text| format!("{class}: {text}\n"))
    });
    text.unwrap_or_else(|Raised| {
        drop(py.take_exception());
        "an exception that can't be shown\n".to_owned()
    })
}

fn formatted(py: Attached, exception: &Owned) -> Result<String, Raised> {
    let module = py.import(c"traceback")?;
    let lines = py.call_method(&module, c"format_exception", [exception])?;
    let joined = py.call_method(&py.str("")?, c"join", [&lines])?;
    py.text(&joined)
}

/// Logs the exception that is set, with its traceback; the exception is gone afterwards.
pub fn log_exception(py: Attached, raised: Raised, doing: &str) {
    // Python's own way for an exception that nobody takes is sys.unraisablehook; a view's is for the server's log.
    let text = take_text(py, raised);
    py.detached(|| log::record_with_traceback(Level::Error, format_args!("{doing}"), &text));
}

/// Logs the exception that a view ended with, and says of which request.
pub fn log_view(py: Attached, raised: Raised, method: &[u8], target: &[u8]) {
    let (method, target) = (method.escape_ascii(), target.escape_ascii());
    log_exception(
        py,
        raised,
        &format!("the application failed on {method} {target}"),
    );
}

/// The GIL is on although this is a free-threaded build.
#[cfg(Py_GIL_DISABLED)]
pub fn warn_gil(module: Option<&str>) {
    let who = match module {
        Some(module) => format!("the module {module} does not declare that it can run without it"),
        None => "an extension module does not declare that it can run without it, or PYTHON_GIL=1 is set".to_owned(),
    };
    log::warn!(
        "the GIL is on: {who}. Views of different threads take turns; PYTHON_GIL=0 keeps the GIL off at your own risk"
    );
}

/// True for what `sys.exit()` raises.
pub fn is_exit(py: Attached, exception: &Owned) -> bool {
    py.is_instance(exception, Exception::SystemExit)
}
