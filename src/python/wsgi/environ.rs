//! The environ of a request (PEP 3333 "environ Variables", RFC 3875): a copy of a template with what is this request's
//! own put over it.
//!
//! Owns, per handler thread, the template and the caches that spare making the same string again. Everything in here was
//! made by its thread, so that no two threads count references of the same object, but for the keys, which are interned.
//! Runs attached.

use std::fmt::Write;
use std::net::IpAddr;

use super::super::ffi;
use super::super::object::{Attached, Owned, Raised};
use super::names::{Found, Names, Role};
use crate::config::UnderscoreNames;
use crate::exchange::Exchange;
use crate::http1::{self, Version};
use crate::net::Endpoint;

/// What the settings and the thread contribute.
pub struct Fixed<'a> {
    pub root_path: &'a str,
    pub underscores: UnderscoreNames,
    /// More than one thread may run views.
    pub multithread: bool,
    pub errors: &'a Owned,
    pub empty_input: &'a Owned,
    pub file_wrapper: &'a Owned,
}

/// Keys that are set per request, as interned strings: lookups in the application's code compare addresses.
struct Keys {
    method: Owned,
    path_info: Owned,
    query_string: Owned,
    raw_uri: Owned,
    request_uri: Owned,
    protocol: Owned,
    remote_addr: Owned,
    remote_port: Owned,
    server_name: Owned,
    server_port: Owned,
    content_length: Owned,
    input: Owned,
    host: Owned,
}

pub struct Environ {
    template: Owned,
    names: Names,
    keys: Keys,
    /// The usual methods' strings, in the order of [`METHODS`].
    methods: Vec<Owned>,
    http10: Owned,
    /// `--root-path` without a slash at its end.
    root_path: Vec<u8>,
    /// Whose address the template has.
    peer: Option<Endpoint>,
    local: Option<Endpoint>,
    decoded: Vec<u8>,
    text: String,
}

/// Interns what every thread's environs share, on the main thread. A handler that interned it first would have it beside
/// strings whose references it counts, and each of its counts would take the cache line from all who read a key there
/// (docs/performance.md).
pub fn intern_keys(py: Attached) -> Result<(), Raised> {
    let none = py.none();
    let fixed = Fixed {
        root_path: "",
        underscores: UnderscoreNames::Drop,
        multithread: true,
        errors: &none,
        empty_input: &none,
        file_wrapper: &none,
    };
    Environ::make(py, &fixed).map(drop)
}

/// `GET` is what the template has.
const METHODS: [&[u8]; 7] = [
    b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS",
];

impl Environ {
    pub fn make(py: Attached, fixed: &Fixed) -> Result<Environ, Raised> {
        let keys = Keys {
            method: py.interned(c"REQUEST_METHOD")?,
            path_info: py.interned(c"PATH_INFO")?,
            query_string: py.interned(c"QUERY_STRING")?,
            raw_uri: py.interned(c"RAW_URI")?,
            request_uri: py.interned(c"REQUEST_URI")?,
            protocol: py.interned(c"SERVER_PROTOCOL")?,
            remote_addr: py.interned(c"REMOTE_ADDR")?,
            remote_port: py.interned(c"REMOTE_PORT")?,
            server_name: py.interned(c"SERVER_NAME")?,
            server_port: py.interned(c"SERVER_PORT")?,
            content_length: py.interned(c"CONTENT_LENGTH")?,
            input: py.interned(c"wsgi.input")?,
            host: py.interned(c"HTTP_HOST")?,
        };
        let methods = METHODS
            .iter()
            .map(|method| py.intern(method))
            .collect::<Result<Vec<_>, _>>()?;
        let root_path = fixed.root_path.trim_end_matches('/');

        let empty = py.str("")?;
        let slash = py.str("/")?;
        let one = py.int(1)?;
        let zero = py.int(0)?;
        // SAFETY: attached.
        let template = unsafe { Owned::new(ffi::PyDict_New())? };
        let set = |key: &Owned, value: &Owned| py.set_item(&template, key, value);
        set(&keys.method, &methods[0])?;
        set(
            &py.interned(c"SCRIPT_NAME")?,
            &py.latin1(root_path.as_bytes())?,
        )?;
        set(&keys.path_info, &slash)?;
        set(&keys.query_string, &empty)?;
        set(&keys.raw_uri, &slash)?;
        set(&keys.request_uri, &slash)?;
        set(&keys.protocol, &py.interned(c"HTTP/1.1")?)?;
        set(&keys.remote_addr, &empty)?;
        set(&keys.remote_port, &empty)?;
        set(&keys.server_name, &py.str("localhost")?)?;
        set(&keys.server_port, &py.str("80")?)?;
        set(
            &py.interned(c"SERVER_SOFTWARE")?,
            &py.str(concat!("m0serve/", env!("CARGO_PKG_VERSION")))?,
        )?;
        set(&py.interned(c"GATEWAY_INTERFACE")?, &py.str("CGI/1.1")?)?;
        set(&py.interned(c"wsgi.version")?, &py.tuple([&one, &zero])?)?;
        set(&py.interned(c"wsgi.url_scheme")?, &py.interned(c"http")?)?;
        set(&keys.input, fixed.empty_input)?;
        set(&py.interned(c"wsgi.errors")?, fixed.errors)?;
        set(
            &py.interned(c"wsgi.multithread")?,
            &py.bool(fixed.multithread),
        )?;
        set(&py.interned(c"wsgi.multiprocess")?, &py.bool(false))?;
        set(&py.interned(c"wsgi.run_once")?, &py.bool(false))?;
        set(&py.interned(c"wsgi.input_terminated")?, &py.bool(true))?;
        // The 22nd key makes the dict grow to where it has room for twenty fields more, and so do its copies: without it
        // each copy would grow on its own (Objects/dictobject.c: USABLE_FRACTION, GROWTH_RATE).
        set(&py.interned(c"wsgi.file_wrapper")?, fixed.file_wrapper)?;

        Ok(Environ {
            template,
            names: Names::make(py, fixed.underscores)?,
            keys,
            methods,
            http10: py.interned(c"HTTP/1.0")?,
            root_path: root_path.as_bytes().to_vec(),
            peer: None,
            local: None,
            decoded: Vec::new(),
            text: String::new(),
        })
    }

    /// The environ of the request in `exchange`, without its body's input object. None if the settings refuse the request.
    pub fn of(&mut self, py: Attached, exchange: &Exchange) -> Result<Option<Owned>, Raised> {
        self.note_addresses(py, exchange)?;
        // SAFETY: attached; a live dict of this thread's.
        let environ = unsafe { Owned::new(ffi::PyDict_Copy(self.template.ptr()))? };
        self.set_request_line(py, exchange, &environ)?;
        if !self.set_fields(py, exchange, &environ)? {
            return Ok(None);
        }
        if let Some(length) = exchange.content_length() {
            let mut digits = itoa::Buffer::new();
            let value = py.latin1(digits.format(length).as_bytes())?;
            py.set_item(&environ, &self.keys.content_length, &value)?;
        }
        Ok(Some(environ))
    }

    pub fn set_input(&self, py: Attached, environ: &Owned, input: &Owned) -> Result<(), Raised> {
        py.set_item(environ, &self.keys.input, input)
    }

    /// Addresses go into the template: a connection's requests come one after the other.
    fn note_addresses(&mut self, py: Attached, exchange: &Exchange) -> Result<(), Raised> {
        if self.peer.as_ref() != Some(exchange.peer()) {
            self.set_peer(py, exchange.peer())?;
        }
        if self.local.as_ref() != Some(exchange.local()) {
            self.set_local(py, exchange.local())?;
        }
        Ok(())
    }

    fn set_peer(&mut self, py: Attached, peer: &Endpoint) -> Result<(), Raised> {
        let set = |key, value: &Owned| py.set_item(&self.template, key, value);
        match (peer, &self.peer) {
            (Endpoint::Ip(now), before) => {
                if !matches!(before, Some(Endpoint::Ip(before)) if before.ip() == now.ip()) {
                    set(
                        &self.keys.remote_addr,
                        &py.latin1(address(&mut self.text, now.ip()))?,
                    )?;
                }
                set(
                    &self.keys.remote_port,
                    &py.latin1(itoa::Buffer::new().format(now.port()).as_bytes())?,
                )?;
            }
            // A Unix socket's client has no address. RFC 3875 4.1.8 wants the key all the same.
            (Endpoint::Unix(_), _) => {
                let empty = py.str("")?;
                set(&self.keys.remote_addr, &empty)?;
                set(&self.keys.remote_port, &empty)?;
            }
        }
        self.peer = Some(peer.clone());
        Ok(())
    }

    /// Where the client connected to; what it believes to have connected to is HTTP_HOST (PEP 3333 "URL Reconstruction").
    /// A Unix socket has neither name nor port, and both keys must not be empty.
    fn set_local(&mut self, py: Attached, local: &Endpoint) -> Result<(), Raised> {
        let set = |key, value: &Owned| py.set_item(&self.template, key, value);
        let (name, port) = match local {
            Endpoint::Ip(here) => (py.latin1(address(&mut self.text, here.ip()))?, here.port()),
            Endpoint::Unix(_) => (py.str("localhost")?, 80),
        };
        set(&self.keys.server_name, &name)?;
        set(
            &self.keys.server_port,
            &py.latin1(itoa::Buffer::new().format(port).as_bytes())?,
        )?;
        self.local = Some(local.clone());
        Ok(())
    }

    #[inline]
    fn set_request_line(
        &mut self,
        py: Attached,
        exchange: &Exchange,
        environ: &Owned,
    ) -> Result<(), Raised> {
        let set = |key, value: &Owned| py.set_item(environ, key, value);
        let method = exchange.method();
        if method != METHODS[0] {
            match METHODS.iter().position(|usual| *usual == method) {
                Some(index) => set(&self.keys.method, &self.methods[index])?,
                None => set(&self.keys.method, &py.latin1(method)?)?,
            }
        }
        if exchange.version() == Version::Http10 {
            set(&self.keys.protocol, &self.http10)?;
        }

        let target = exchange.target();
        let path = exchange.path();
        let is_plain = self.root_path.is_empty() && memchr::memchr(b'%', path).is_none();
        if target == b"/" {
            // What the template has, unless a root path is to be taken off.
            if is_plain {
                return Ok(());
            }
        }
        let raw = py.latin1(target)?;
        set(&self.keys.raw_uri, &raw)?;
        set(&self.keys.request_uri, &raw)?;
        if is_plain && path.len() == target.len() && path.first() == Some(&b'/') {
            return set(&self.keys.path_info, &raw);
        }
        if !exchange.query().is_empty() {
            set(&self.keys.query_string, &py.latin1(exchange.query())?)?;
        }
        self.decoded.clear();
        // `OPTIONS *` is about the server as a whole, which is no path: wsgiref.validate wants none or a leading slash.
        if path != b"*" {
            http1::percent_decode(path, &mut self.decoded);
        }
        set(
            &self.keys.path_info,
            &py.latin1(below(&self.decoded, &self.root_path))?,
        )
    }

    /// False if a field's name is one that the settings refuse.
    #[inline]
    fn set_fields(
        &mut self,
        py: Attached,
        exchange: &Exchange,
        environ: &Owned,
    ) -> Result<bool, Raised> {
        for (name, value) in exchange.fields() {
            match self.names.find(py, name)? {
                Found::Known(index) => {
                    let role = self.names.role(index);
                    if matches!(role, Role::ContentLength | Role::TransferEncoding) {
                        continue;
                    }
                    if role == Role::Host && exchange.authority().is_some() {
                        continue;
                    }
                    let value = self.names.value(py, index, value)?;
                    let separator = if role == Role::Cookie { "; " } else { "," };
                    add(py, environ, self.names.key(index), value, separator)?;
                }
                Found::Other(key) => add(py, environ, &key, py.latin1(value)?, ",")?,
                Found::Dropped => {}
                Found::Refused => return Ok(false),
            }
        }
        if let Some(authority) = exchange.authority() {
            py.set_item(environ, &self.keys.host, &py.latin1(authority)?)?;
        }
        Ok(true)
    }
}

/// Sets a field's value, or joins it to that of an earlier field of the same name (RFC 9110 5.3).
#[inline]
fn add(
    py: Attached,
    environ: &Owned,
    key: &Owned,
    value: Owned,
    separator: &str,
) -> Result<(), Raised> {
    // SAFETY: attached; live objects; null asks for no result.
    match unsafe {
        ffi::PyDict_SetDefaultRef(environ.ptr(), key.ptr(), value.ptr(), std::ptr::null_mut())
    } {
        0 => Ok(()),
        1 => join(py, environ, key, &value, separator),
        _ => Err(Raised),
    }
}

#[cold]
fn join(
    py: Attached,
    environ: &Owned,
    key: &Owned,
    value: &Owned,
    separator: &str,
) -> Result<(), Raised> {
    // SAFETY: attached; live objects; the dict is ours alone, so what it holds stays while we look.
    let joined = unsafe {
        let before = Owned::borrowed(ffi::PyDict_GetItemWithError(environ.ptr(), key.ptr()));
        let start = Owned::new(ffi::PyUnicode_Concat(
            before.ptr(),
            py.str(separator)?.ptr(),
        ))?;
        Owned::new(ffi::PyUnicode_Concat(start.ptr(), value.ptr()))?
    };
    py.set_item(environ, key, &joined)
}

/// The part of `path` below the root path, which is SCRIPT_NAME. A proxy may have taken it off already: then all of it.
fn below<'a>(path: &'a [u8], root: &[u8]) -> &'a [u8] {
    match path.strip_prefix(root) {
        Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
        _ => path,
    }
}

/// An address as RFC 3875 4.1.8 has it: without brackets.
fn address(text: &mut String, address: IpAddr) -> &[u8] {
    text.clear();
    write!(text, "{address}").expect("a string takes anything");
    text.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_path_is_taken_off_at_a_slash_only() {
        assert_eq!(below(b"/api/x", b"/api"), b"/x");
        assert_eq!(below(b"/api", b"/api"), b"");
        assert_eq!(below(b"/apis", b"/api"), b"/apis");
        assert_eq!(below(b"/x", b"/api"), b"/x");
        assert_eq!(below(b"/x", b""), b"/x");
    }
}
