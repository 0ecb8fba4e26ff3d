//! Whether a callable is a WSGI or an ASGI application, told from its signature without calling it.
//!
//! Owns that guess only. Runs on the main thread, attached, while the application is loaded.

use super::ffi;
use super::object::{Attached, Owned, Raised};

#[derive(Debug, PartialEq, Eq)]
pub enum Interface {
    Wsgi,
    /// With the reason, for the message.
    Asgi(&'static str),
    /// ASGI 2, which has two calls; its applications take the scope alone.
    Asgi2,
}

/// `functools.partial` objects are looked through this many deep.
const PARTIAL_DEPTH: usize = 8;

/// What is not clearly ASGI is WSGI: a C callable or one that takes anything tells nothing.
pub fn detect(py: Attached, app: &Owned) -> Interface {
    look(py, app).unwrap_or_else(|Raised| {
        drop(py.take_exception());
        Interface::Wsgi
    })
}

fn look(py: Attached, app: &Owned) -> Result<Interface, Raised> {
    let mut callable = app.again();
    let mut is_partial = false;
    for _ in 0..PARTIAL_DEPTH {
        let parts = (
            py.optional_attribute_named(&callable, c"func")?,
            py.optional_attribute_named(&callable, c"keywords")?,
        );
        match parts {
            (Some(inner), Some(_)) => callable = inner,
            _ => break,
        }
        is_partial = true;
    }
    if is_marked(py, &callable)? {
        return Ok(Interface::Asgi("it is marked as a coroutine function"));
    }
    let Some((code, bound)) = code_of(py, &callable)? else {
        return Ok(Interface::Wsgi);
    };
    let number = |object: &Owned, name| -> Result<i64, Raised> {
        let value = py.attribute(object, name)?;
        // SAFETY: attached; a live object. -1 may be an error.
        match unsafe { ffi::PyLong_AsLongLong(value.ptr()) } {
            -1 if py.has_exception() => Err(Raised),
            value => Ok(value),
        }
    };
    // CO_COROUTINE, CO_ASYNC_GENERATOR and CO_VARARGS of Include/cpython/code.h.
    let flags = number(&code.code, c"co_flags")?;
    if flags & (0x80 | 0x200) != 0 {
        return Ok(Interface::Asgi("it is an `async def`"));
    }
    if is_partial || flags & 0x04 != 0 {
        return Ok(Interface::Wsgi);
    }
    let parameters = number(&code.code, c"co_argcount")? - bound;
    let required = parameters - code.defaults;
    Ok(match (required, parameters) {
        (3, 3) => Interface::Asgi("it takes three arguments: scope, receive, send"),
        (_, 1) => Interface::Asgi2,
        _ => Interface::Wsgi,
    })
}

/// `inspect.markcoroutinefunction`, and what asgiref set before that existed.
fn is_marked(py: Attached, callable: &Owned) -> Result<bool, Raised> {
    Ok(py
        .optional_attribute_named(callable, c"_is_coroutine_mark")?
        .is_some()
        || py
            .optional_attribute_named(callable, c"_is_coroutine")?
            .is_some())
}

struct Code {
    code: Owned,
    defaults: i64,
}

/// The code that runs first when `callable` is called, and how many of its parameters are bound by then.
fn code_of(py: Attached, callable: &Owned) -> Result<Option<(Code, i64)>, Raised> {
    // SAFETY: attached; a live object.
    let is_class = unsafe { ffi::PyType_Check(callable.ptr()) != 0 };
    let (function, mut bound) = if is_class {
        (py.attribute(callable, c"__init__")?, 1)
    } else if py
        .optional_attribute_named(callable, c"__code__")?
        .is_some()
    {
        (callable.again(), 0)
    } else if let Some(function) = py.optional_attribute_named(callable, c"__func__")? {
        (function, 1)
    } else {
        // SAFETY: attached; every live object has a type.
        let class = unsafe { Owned::borrowed(ffi::Py_TYPE(callable.ptr()).cast()) };
        (py.attribute(&class, c"__call__")?, 1)
    };
    let Some(code) = py.optional_attribute_named(&function, c"__code__")? else {
        return Ok(None);
    };
    // A method that was bound before (a class attribute that is itself bound) has its self already.
    if py
        .optional_attribute_named(&function, c"__self__")?
        .is_some_and(|owner| !owner.is_none())
    {
        bound = 1;
    }
    let defaults = match py.optional_attribute_named(&function, c"__defaults__")? {
        // SAFETY: attached; a live object.
        Some(defaults) if !defaults.is_none() => unsafe {
            ffi::PyObject_Size(defaults.ptr()) as i64
        },
        _ => 0,
    };
    Ok(Some((Code { code, defaults }, bound)))
}
