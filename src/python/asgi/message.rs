//! Reading the messages that an application sends: dicts whose keys and types are checked here.
//!
//! Owns what a key may hold and how a wrong one is told. Must not touch a connection. Runs attached, on the thread that
//! called `send`.

use std::ffi::CStr;

use super::super::ffi::{self, PyObject};
use super::super::object::{Attached, Exception, Owned, Raised, bytes_of, class_name, latin1_of};
use super::classes;
use crate::http1::{ResponseHead, reason};

/// One message.
pub struct Message {
    dict: Owned,
}

impl Message {
    /// Takes any mapping.
    #[inline]
    pub fn new(py: Attached, object: &Owned) -> Result<Message, Raised> {
        // SAFETY: attached; live objects.
        unsafe {
            if ffi::PyDict_Check(object.ptr()) != 0 {
                return Ok(Message {
                    dict: object.again(),
                });
            }
            let dict = Owned::new(ffi::PyDict_New())?;
            if ffi::PyDict_Update(dict.ptr(), object.ptr()) != 0 {
                drop(py.take_exception());
                let text = format!("a message is a dict, not {}", class_name(object.ptr()));
                return Err(py.raise(Exception::Type, &text));
            }
            Ok(Message { dict })
        }
    }

    /// The value of a key, which is one of the `Words`. None if there is no such key.
    #[inline]
    pub fn get(&self, py: Attached, key: *mut PyObject) -> Result<Option<Owned>, Raised> {
        let _ = py;
        let mut found = std::ptr::null_mut();
        // SAFETY: attached; live objects; `found` becomes null or a new reference.
        unsafe {
            match ffi::PyDict_GetItemRef(self.dict.ptr(), key, &mut found) {
                -1 => Err(Raised),
                0 => Ok(None),
                _ => Owned::new(found).map(Some),
            }
        }
    }

    /// How many keys it has: with those that were found, no other needs to be looked for.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: attached, as whoever holds a message; a dict.
        unsafe { ffi::PyDict_Size(self.dict.ptr()) as usize }
    }

    /// As `get`, with None for an absent one.
    pub fn get_some(&self, py: Attached, key: *mut PyObject) -> Result<Option<Owned>, Raised> {
        Ok(self.get(py, key)?.filter(|value| !value.is_none()))
    }

    /// The message's type.
    #[inline]
    pub fn kind(&self, py: Attached) -> Result<Owned, Raised> {
        match self.get(py, classes().words.kind)? {
            Some(kind) => Ok(kind),
            None => Err(py.raise(Exception::Value, "the message has no \"type\"")),
        }
    }

    /// A truth value; false if absent.
    #[inline]
    pub fn flag(&self, py: Attached, key: *mut PyObject) -> Result<bool, Raised> {
        let Some(value) = self.get(py, key)? else {
            return Ok(false);
        };
        // SAFETY: attached; a live object. True and False are singletons.
        unsafe {
            if value.ptr() == ffi::Py_False() || value.ptr() == ffi::Py_None() {
                return Ok(false);
            }
            if value.ptr() == ffi::Py_True() {
                return Ok(true);
            }
            match ffi::PyObject_IsTrue(value.ptr()) {
                -1 => Err(Raised),
                truth => Ok(truth != 0),
            }
        }
    }

    pub fn int(&self, py: Attached, key: *mut PyObject) -> Result<Option<i64>, Raised> {
        let Some(value) = self.get_some(py, key)? else {
            return Ok(None);
        };
        // SAFETY: attached; a live object. -1 may be an error.
        match unsafe { ffi::PyLong_AsLongLong(value.ptr()) } {
            -1 if py.has_exception() => Err(Raised),
            value => Ok(Some(value)),
        }
    }
}

/// True if `kind` is the message type `word`.
#[inline]
pub fn is(kind: &Owned, word: *mut PyObject) -> bool {
    // Constants of Python code are interned, as ours are.
    kind.ptr() == word || is_equal(kind, word)
}

#[cold]
fn is_equal(kind: &Owned, word: *mut PyObject) -> bool {
    // SAFETY: attached, as the caller holds `kind`; live objects, the second of which is a str.
    unsafe {
        ffi::PyUnicode_Check(kind.ptr()) != 0 && ffi::PyUnicode_Compare(kind.ptr(), word) == 0
    }
}

/// For an error: a message of a type that has no place here.
pub fn unexpected(py: Attached, kind: &Owned, why: &str) -> Raised {
    let name = match py.display(kind) {
        Ok(name) => name,
        Err(raised) => return raised,
    };
    py.raise(Exception::Runtime, &format!("{name:?} {why}"))
}

/// The bytes of a value: bytes, or anything with a buffer.
pub enum Bytes {
    Object(Owned),
    Copied(Vec<u8>),
}

impl Bytes {
    #[inline]
    pub fn new(py: Attached, value: Owned, what: &str) -> Result<Bytes, Raised> {
        // SAFETY: attached; a live object.
        if unsafe { ffi::PyBytes_Check(value.ptr()) } != 0 {
            return Ok(Bytes::Object(value));
        }
        Bytes::copied(py, &value, what)
    }

    #[cold]
    fn copied(py: Attached, value: &Owned, what: &str) -> Result<Bytes, Raised> {
        // SAFETY: attached; a live object. The view is filled in by PyObject_GetBuffer, contiguous as asked, and
        // released once; nobody writes to a buffer while it is exported to us and we copy.
        unsafe {
            let mut view: ffi::Py_buffer = std::mem::zeroed();
            if ffi::PyObject_GetBuffer(value.ptr(), &mut view, ffi::PyBUF_SIMPLE) != 0 {
                drop(py.take_exception());
                let text = format!("{what} must be bytes, not {}", class_name(value.ptr()));
                return Err(py.raise(Exception::Type, &text));
            }
            let bytes = if view.len == 0 {
                Vec::new()
            } else {
                std::slice::from_raw_parts(view.buf.cast::<u8>(), view.len as usize).to_vec()
            };
            ffi::PyBuffer_Release(&mut view);
            Ok(Bytes::Copied(bytes))
        }
    }

    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            // SAFETY: `new` saw that it is bytes, and we hold it.
            Bytes::Object(object) => unsafe { bytes_of(object.ptr()) },
            Bytes::Copied(bytes) => bytes,
        }
    }
}

/// Reads a status code into `head`.
pub fn read_status(py: Attached, code: i64, head: &mut ResponseHead) -> Result<(), Raised> {
    let set = match code {
        200 => head.status(b"200 OK"),
        _ => {
            let text = format!("{code} {}", u16::try_from(code).map_or("", reason));
            head.status(text.as_bytes())
        }
    };
    set.map_err(|_| {
        let text = format!("the status {code} is not between 100 and 599");
        py.raise(Exception::Value, &text)
    })
}

/// Reads `headers`, an iterable of pairs of bytes, into `head`.
pub fn read_headers(py: Attached, headers: &Owned, head: &mut ResponseHead) -> Result<(), Raised> {
    for_each(
        py,
        headers,
        c"headers must be an iterable of pairs",
        |pair| {
            let (name, value) = pair_of(py, pair)?;
            let name = Bytes::new(py, name, "a header's name")?;
            let value = Bytes::new(py, value, "a header's value")?;
            head.field(name.as_slice(), value.as_slice())
                .map_err(|error| {
                    let text = format!("header {}: {error}", name.as_slice().escape_ascii());
                    py.raise(Exception::Value, &text)
                })
        },
    )
}

/// Calls `with` for each item of an iterable.
pub fn for_each(
    py: Attached,
    iterable: &Owned,
    complaint: &CStr,
    mut with: impl FnMut(&Owned) -> Result<(), Raised>,
) -> Result<(), Raised> {
    let _ = py;
    // SAFETY: attached; live objects. PySequence_Fast gives a list or a tuple; a list's items are fetched with references
    // of their own, because other threads might change it.
    unsafe {
        let sequence = Owned::new(ffi::PySequence_Fast(iterable.ptr(), complaint.as_ptr()))?;
        if ffi::PyTuple_Check(sequence.ptr()) != 0 {
            for index in 0..ffi::PyTuple_GET_SIZE(sequence.ptr()) {
                with(&Owned::borrowed(ffi::PyTuple_GET_ITEM(
                    sequence.ptr(),
                    index,
                )))?;
            }
            return Ok(());
        }
        let mut index = 0;
        while index < ffi::PyList_GET_SIZE(sequence.ptr()) {
            with(&Owned::new(ffi::PyList_GetItemRef(sequence.ptr(), index))?)?;
            index += 1;
        }
        Ok(())
    }
}

#[inline]
fn pair_of(py: Attached, pair: &Owned) -> Result<(Owned, Owned), Raised> {
    // SAFETY: attached; live objects; a tuple's items live as long as it does.
    unsafe {
        if ffi::PyTuple_CheckExact(pair.ptr()) != 0 && ffi::PyTuple_GET_SIZE(pair.ptr()) == 2 {
            let item = |index| Owned::borrowed(ffi::PyTuple_GET_ITEM(pair.ptr(), index));
            return Ok((item(0), item(1)));
        }
        let items = Owned::new(ffi::PySequence_Tuple(pair.ptr()))?;
        if ffi::PyTuple_GET_SIZE(items.ptr()) != 2 {
            let text = "a header is a pair of name and value";
            return Err(py.raise(Exception::Value, text));
        }
        let item = |index| Owned::borrowed(ffi::PyTuple_GET_ITEM(items.ptr(), index));
        Ok((item(0), item(1)))
    }
}

/// The text of a str, which holds it.
pub fn utf8<'a>(py: Attached, value: &'a Owned, what: &str) -> Result<&'a str, Raised> {
    // SAFETY: attached; a live object. The text lies in the str and lives as long.
    unsafe {
        if ffi::PyUnicode_Check(value.ptr()) == 0 {
            let text = format!("{what} must be a str, not {}", class_name(value.ptr()));
            return Err(py.raise(Exception::Type, &text));
        }
        let mut len = 0;
        let text = ffi::PyUnicode_AsUTF8AndSize(value.ptr(), &mut len);
        if text.is_null() {
            return Err(Raised);
        }
        let bytes = std::slice::from_raw_parts(text.cast::<u8>(), len as usize);
        Ok(std::str::from_utf8_unchecked(bytes))
    }
}

/// The text of a str of latin-1 characters or of bytes, for paths and reasons.
pub fn text_or_bytes(py: Attached, value: Owned, what: &str) -> Result<Vec<u8>, Raised> {
    // SAFETY: attached; a live object, held.
    unsafe {
        if ffi::PyUnicode_Check(value.ptr()) != 0
            && let Some(latin1) = latin1_of(value.ptr())
        {
            return Ok(latin1.to_vec());
        }
    }
    Ok(Bytes::new(py, value, what)?.as_slice().to_vec())
}
