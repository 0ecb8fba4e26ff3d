//! What threads share of an application is not counted by each of them (free-threaded builds only).
#![cfg(Py_GIL_DISABLED)]

use super::super::ffi;
use super::super::object::Owned;
use super::super::share::{constants, share};
use super::super::thread::ThreadState;
use super::{define, start};

const SOURCE: &str = r#"
import functools
def top(environ, start_response): pass
def middleware(inner, extra=None):
    @functools.wraps(inner)
    def wrapper(environ, start_response): return inner(environ, start_response)
    return wrapper
class Callable:
    def __init__(self, inner): self.inner = inner; self.table = {'x': middleware(top)}; self.name = 'x'
    def __call__(self, environ, start_response): return self.inner(environ, start_response)
    def method(self, environ, start_response): pass
class Connection: pass
innermost = middleware(top)
instance = Callable(innermost)
instance.connections = [Connection()]
bound = instance.method
chain = middleware(functools.partial(middleware(bound), 1))
app = chain
loop = Callable(None)
loop.inner = loop
class Awkward:
    @property
    def __dict__(self): raise ValueError
    @property
    def func(self): raise KeyError
    def __call__(self): pass
awkward = Awkward()
"#;

fn is_deferred(object: &Owned) -> bool {
    // SAFETY: attached; a live object. `_PyGC_BITS_DEFERRED` of Include/internal/pycore_gc.h.
    unsafe { (*object.ptr()).ob_gc_bits & (1 << 6) != 0 }
}

#[test]
fn a_stack_of_middleware_is_marked_through() {
    start();
    ThreadState::make().attached(|py| {
        let (names, app) = define(py, SOURCE);
        let get = |expression: &std::ffi::CStr| {
            // SAFETY: attached; the module's dict.
            unsafe {
                Owned::new(ffi::PyRun_String(
                    expression.as_ptr(),
                    ffi::Py_eval_input,
                    names.ptr(),
                    names.ptr(),
                ))
                .unwrap()
            }
        };
        let marked = [
            c"chain",
            c"bound",
            c"instance",
            c"innermost",
            c"instance.table",
            c"instance.table['x']",
            c"instance.connections",
        ];
        for expression in &marked {
            assert!(!is_deferred(&get(expression)), "{expression:?}");
        }
        assert!(share(py, &app) > marked.len());
        for expression in &marked {
            assert!(is_deferred(&get(expression)), "{expression:?}");
        }
        // What it keeps for its own purposes must die when it is dropped.
        assert!(!is_deferred(&get(c"instance.connections[0]")));
        for odd in [
            c"loop",
            c"awkward",
            c"print",
            c"Callable",
            c"functools.partial(top)",
        ] {
            share(py, &get(odd));
            assert!(!py.has_exception(), "{odd:?}");
        }
    });
}

const COMPILED: &str = r#"
import sys
SOURCE = "def app(): return (b'some bytes', 1.5, 1 << 70, (('nested', b'more bytes'), 2)), [b'bytes alone'], {1, 2} == 7 in {8, 9}"
exec(compile(SOURCE, "compiled", "exec"))
def mortal(of=app.__code__.co_consts):
    return [c for c in of if not sys._is_immortal(c) or (type(c) is tuple and mortal(c))]
"#;

#[test]
fn constants_of_compiled_code_are_immortal() {
    start();
    ThreadState::make().attached(|py| {
        let (names, _app) = define(py, COMPILED);
        let mortal = || {
            // SAFETY: attached; the module's dict.
            let found = unsafe {
                Owned::new(ffi::PyRun_String(
                    c"mortal()".as_ptr(),
                    ffi::Py_eval_input,
                    names.ptr(),
                    names.ptr(),
                ))
            };
            py.display(&found.unwrap()).unwrap()
        };
        // Should this fail, CPython does it by itself now.
        assert_ne!(mortal(), "[]");
        constants(py);
        assert_eq!(mortal(), "[]");
    });
}

/// Were they a handler's, they would lie among the strings that it counts (`wsgi::environ::intern_keys`).
#[test]
fn keys_of_environs_are_interned_before_there_are_handlers() {
    start();
    let keys = [
        "REQUEST_METHOD",
        "PATH_INFO",
        "SERVER_SOFTWARE",
        "HTTP_HOST",
        "HTTP_ACCEPT_ENCODING",
        "HTTP_X_FORWARDED_PORT",
        "HTTP_TRACEPARENT",
        "wsgi.input",
        "wsgi.file_wrapper",
        "OPTIONS",
    ];
    ThreadState::make().attached(|py| {
        let is_interned = |text: &str| {
            let made = py.latin1(text.as_bytes()).unwrap().into_ptr();
            let mut interned = made;
            // SAFETY: attached; replaces our reference by one to the string that was interned before, if there is one.
            let interned = unsafe {
                ffi::PyUnicode_InternInPlace(&mut interned);
                Owned::new(interned).unwrap()
            };
            interned.ptr() != made
        };
        assert!(!is_interned("HTTP_NOBODY_SENDS_THIS"));
        for key in keys {
            assert!(is_interned(key), "{key}");
        }
    });
}
