//! Everything that calls into CPython: the embedded interpreter, the application, and the bridges to WSGI and ASGI.
//!
//! | file | owns |
//! | --- | --- |
//! | `ffi` | declarations |
//! | `object` | references and attachment as Rust types |
//! | `probe` | which installation, and whether it fits |
//! | `interpreter` | configuration, start, end; the main thread's state |
//! | `app`, `interface`, `share` | loading the application |
//! | `gil_watch` | a GIL that comes back |
//! | `fault` | tracebacks and log lines |
//! | `thread`, `gate` | handler threads' states, attaching and detaching |
//! | `wsgi/` | PEP 3333 |
//! | `asgi/` | ASGI 3 |
//! | `bench` | the WSGI bridge without a server, for `benches/bridge.rs` |

mod app;
mod asgi;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod fault;
mod ffi;
mod gate;
mod gil_watch;
mod interface;
mod interpreter;
mod object;
mod probe;
mod share;
mod thread;
mod types;
mod wsgi;

#[cfg(test)]
mod tests;

pub use app::App;
pub use asgi::{AsgiApp, Plan, Started};
pub use interpreter::Interpreter;
pub use wsgi::{WsgiApp, WsgiFactory, WsgiHandler};

use std::fmt;

/// Why serving can't begin. The text is complete, a Python traceback included; `code` is the process's exit code.
#[derive(Debug)]
pub struct StartError {
    pub code: u8,
    pub text: String,
}

impl StartError {
    /// The command line is wrong, or names an interpreter that does not fit.
    pub const USAGE: u8 = 2;
    /// The application can't be loaded.
    pub const APPLICATION: u8 = 3;

    fn usage(text: String) -> StartError {
        StartError {
            code: Self::USAGE,
            text,
        }
    }

    fn application(text: String) -> StartError {
        StartError {
            code: Self::APPLICATION,
            text,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}
