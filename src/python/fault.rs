//! What became of a Python exception: its traceback as text, and the lines of the error log.
//!
//! Owns the rendering of tracebacks and their escaping. Must not decide what is answered to the client. Runs on
//! whichever thread met the exception, attached; the writing itself happens detached.

use std::io::Write;

use super::ffi;
use super::object::{Attached, Exception, Owned, Raised};

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
        py.display(exception).map(|text| format!("{class}: {text}\n"))
    });
    let mut text = text.unwrap_or_else(|Raised| {
        drop(py.take_exception());
        "an exception that can't be shown\n".to_owned()
    });
    escape_controls(&mut text);
    text
}

fn formatted(py: Attached, exception: &Owned) -> Result<String, Raised> {
    let module = py.import(c"traceback")?;
    let lines = py.call_method(&module, c"format_exception", [exception])?;
    let joined = py.call_method(&py.str("")?, c"join", [&lines])?;
    py.text(&joined)
}

/// A client's bytes can be part of a message: they must not steer the terminal that shows the log. Line ends stay, for
/// a traceback has many lines.
fn escape_controls(text: &mut String) {
    let harmless = |character: char| character == '\n' || character == '\t' || !character.is_control();
    if text.chars().all(harmless) {
        return;
    }
    *text = text
        .chars()
        .map(|character| if harmless(character) { character.to_string() } else { character.escape_default().to_string() })
        .collect();
}

/// Logs the exception that is set, with its traceback; the exception is gone afterwards.
pub fn log_exception(py: Attached, raised: Raised, doing: &str) {
    // Python's rule for an exception nobody asked for is sys.unraisablehook; a view's exception is the log's business.
    let text = take_text(py, raised);
    py.detached(|| write_line(&format!("{doing}:\n{}", text.trim_end_matches('\n'))));
}

/// Logs the exception that a view ended with, and says of which request.
pub fn log_view(py: Attached, raised: Raised, method: &[u8], target: &[u8]) {
    let request = format!("{} {}", method.escape_ascii(), target.escape_ascii());
    log_exception(py, raised, &format!("the application failed on {request}"));
}

/// An exception must not be set when user code is called that the exception is not meant for.
pub fn log_pending(py: Attached, doing: &str) {
    if py.has_exception() {
        log_exception(py, Raised, doing);
    }
}

pub fn log_error(text: &str) {
    write_line(text);
}

/// The GIL is on although this is a free-threaded build.
pub fn warn_gil(module: Option<&str>) {
    let who = match module {
        Some(module) => format!("the module {module} does not declare that it can run without it"),
        None => "an extension module does not declare that it can run without it, or PYTHON_GIL=1 is set".to_owned(),
    };
    write_line(&format!(
        "the GIL is on: {who}. Views of different threads take turns; PYTHON_GIL=0 keeps the GIL off at your own risk"
    ));
}

fn write_line(text: &str) {
    // One write for the whole text: lines of different threads don't mix.
    let _ = std::io::stderr().write_all(format!("m0serve: {text}\n").as_bytes());
}

/// True for what `sys.exit()` raises.
pub fn is_exit(py: Attached, exception: &Owned) -> bool {
    py.is_instance(exception, Exception::SystemExit)
}

/// Reports an exception that can't be passed on to anybody (a finaliser's, say) in Python's own way.
pub fn write_unraisable(py: Attached, _: Raised, object: &Owned) {
    let _ = py;
    // SAFETY: attached; an exception is set and the object is live.
    unsafe { ffi::PyErr_WriteUnraisable(object.ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_lines_kept() {
        let mut text = "a\x1b[31m\n\tb\r\u{9b}".to_owned();
        escape_controls(&mut text);
        assert_eq!(text, "a\\u{1b}[31m\n\tb\\r\\u{9b}");
    }
}
