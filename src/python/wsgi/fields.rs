//! The status and the headers that an application gives, read out of its Python objects.
//!
//! Owns which objects are taken for text and for headers, and the exceptions that say what is wrong with others. What the
//! text may be is `http1`'s to say. Attached; no reference to the application's objects stays behind.

use super::super::ffi;
use super::super::ffi::PyObject;
use super::super::object::{Attached, Exception, Owned, Raised, class_name, latin1_of};
use crate::http1::{HeadError, ResponseHead};

/// Fills `head` with what was given to `start_response`.
pub fn read(
    py: Attached,
    head: &mut ResponseHead,
    status: *mut PyObject,
    headers: *mut PyObject,
) -> Result<(), Raised> {
    let refuse = |error: HeadError, what: &[u8]| {
        py.raise(Exception::Value, &format!("{error}: {}", shortened(what)))
    };
    head.clear();
    let line = text(py, status, "the status")?;
    head.status(line).map_err(|error| refuse(error, line))?;
    if head.code() < 200 {
        let text = format!(
            "{} is not a final status, which start_response() is for",
            head.code()
        );
        return Err(py.raise(Exception::Value, &text));
    }
    for_each_field(py, headers, |name, value| {
        let name = text(py, name, "a header's name")?;
        let value = text(py, value, "a header's value")?;
        head.field(name, value).map_err(|error| refuse(error, name))
    })
}

/// As much of the application's text as a message should show, with control characters escaped.
pub fn shortened(text: &[u8]) -> String {
    text[..text.len().min(80)].escape_ascii().to_string()
}

/// The latin-1 bytes of a str of the application's (PEP 3333 "Unicode Issues").
#[inline]
pub fn text<'a>(py: Attached, object: *mut PyObject, what: &str) -> Result<&'a [u8], Raised> {
    // SAFETY: attached; the callers hold the objects for as long as they use the text.
    unsafe {
        if ffi::PyUnicode_Check(object) == 0 {
            return Err(py.raise(
                Exception::Type,
                &format!("{what} must be a str, not {}", class_name(object)),
            ));
        }
        match latin1_of(object) {
            Some(bytes) => Ok(bytes),
            None => Err(py.raise(
                Exception::Value,
                &format!("{what} has characters beyond latin-1"),
            )),
        }
    }
}

/// Calls `each` with the two items of every header. PEP 3333 calls for a list of tuples; a tuple of them, and subclasses
/// of both, pass too.
#[inline]
fn for_each_field(
    py: Attached,
    fields: *mut PyObject,
    mut each: impl FnMut(*mut PyObject, *mut PyObject) -> Result<(), Raised>,
) -> Result<(), Raised> {
    let mut one = |field: *mut PyObject| {
        // SAFETY: attached; `field` is held by the caller, and a tuple holds its items.
        unsafe {
            if ffi::PyTuple_Check(field) == 0 || ffi::PyTuple_GET_SIZE(field) != 2 {
                let text = format!(
                    "a header must be a tuple of name and value, not {}",
                    class_name(field)
                );
                return Err(py.raise(Exception::Type, &text));
            }
            each(
                ffi::PyTuple_GET_ITEM(field, 0),
                ffi::PyTuple_GET_ITEM(field, 1),
            )
        }
    };
    // SAFETY: attached; the argument is held by who called us. Items of a list are held while they are looked at, as
    // other threads may change it.
    unsafe {
        if ffi::PyList_Check(fields) != 0 {
            let mut index = 0;
            while index < ffi::PyList_GET_SIZE(fields) {
                let Ok(field) = Owned::new(ffi::PyList_GetItemRef(fields, index)) else {
                    // It became shorter meanwhile.
                    drop(py.take_exception());
                    break;
                };
                one(field.ptr())?;
                index += 1;
            }
            return Ok(());
        }
        if ffi::PyTuple_Check(fields) != 0 {
            for index in 0..ffi::PyTuple_GET_SIZE(fields) {
                one(ffi::PyTuple_GET_ITEM(fields, index))?;
            }
            return Ok(());
        }
        let text = format!(
            "the headers must be a list of tuples, not {}",
            class_name(fields)
        );
        Err(py.raise(Exception::Type, &text))
    }
}
