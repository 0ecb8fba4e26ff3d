//! A request as a scope (ASGI "HTTP & WebSocket ASGI Message Format", 2.5).
//!
//! Owns, per thread, the dict that every scope is copied from and the objects that repeat: methods, header pairs,
//! addresses. What the application gets it may change: only immutable values and the `asgi` dict are shared between
//! requests.

use std::net::{IpAddr, SocketAddr};

use super::super::ffi::{self, PyObject};
use super::super::object::{Attached, Owned, Raised};
use super::fields::Fields;
use super::{classes, words::Words};
use crate::event_loop::Connection;
use crate::exchange::Exchange;
use crate::http1::{self, Version};
use crate::net::Endpoint;

/// The version of the message format that scopes and messages follow.
pub const SPEC_VERSION: &str = "2.5";

/// Methods that are not made anew for each request.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"];

/// The one that the template has.
const GET: usize = 0;

/// Paths up to this length are remembered: two in a hundred are that long where people look at them.
const PATH_LENGTH: usize = 64;
/// Places for them; a path that is taken for another overwrites it.
const PATHS: usize = 64;

/// A path without escapes: as sent, as a str, as bytes.
type KnownPath = (Vec<u8>, Owned, Owned);

/// Extensions that every HTTP scope names.
const EXTENSIONS: [&str; 4] = [
    "http.response.early_hint",
    "http.response.pathsend",
    "http.response.trailers",
    "http.response.zerocopysend",
];

/// What a connection's scopes have in common.
struct Peer {
    generation: u32,
    client: Owned,
    server: Owned,
}

pub struct Scopes {
    words: &'static Words,
    template: Owned,
    extensions: Owned,
    version10: Owned,
    /// What the lifespan left for the requests; each gets a copy.
    state: Option<Owned>,
    methods: [Owned; METHODS.len()],
    fields: Fields,
    /// By the connection's key.
    peers: Vec<Option<Peer>>,
    /// The last client's address as text: a proxy's is always the same.
    address: Option<(IpAddr, Owned)>,
    server: Option<(SocketAddr, Owned)>,
    empty: Owned,
    root_path: Vec<u8>,
    decoded: Vec<u8>,
    /// Paths without escapes that were asked for lately.
    paths: Box<[Option<KnownPath>]>,
}

impl Scopes {
    pub fn make(py: Attached, root_path: &str) -> Result<Scopes, Raised> {
        let words = &classes().words;
        let empty = py.bytes(b"")?;
        let asgi = dict(py)?;
        set(py, &asgi, words.version, &py.intern(b"3.0")?)?;
        set(
            py,
            &asgi,
            words.spec_version,
            &py.intern(SPEC_VERSION.as_bytes())?,
        )?;
        let extensions = dict(py)?;
        for name in EXTENSIONS {
            py.set_item(&extensions, &py.intern(name.as_bytes())?, &dict(py)?)?;
        }
        let methods: Vec<Owned> = METHODS
            .iter()
            .map(|method| py.intern(method.as_bytes()))
            .collect::<Result<_, _>>()?;
        let Ok(methods) = <[Owned; METHODS.len()]>::try_from(methods) else {
            unreachable!("as many as METHODS has");
        };
        let none = py.none();
        let template = dict(py)?;
        // SAFETY: attached; words are strings that live for ever.
        let word = |word| unsafe { Owned::borrowed(word) };
        set(py, &template, words.kind, &word(words.http))?;
        set(py, &template, words.asgi, &asgi)?;
        set(py, &template, words.http_version, &py.intern(b"1.1")?)?;
        set(py, &template, words.method, &methods[GET])?;
        set(py, &template, words.scheme, &word(words.http))?;
        for key in [words.path, words.raw_path] {
            set(py, &template, key, &none)?;
        }
        set(py, &template, words.query_string, &empty)?;
        set(py, &template, words.root_path, &py.str(root_path)?)?;
        for key in [
            words.headers,
            words.client,
            words.server,
            words.state,
            words.extensions,
        ] {
            set(py, &template, key, &none)?;
        }
        Ok(Scopes {
            words,
            template,
            extensions,
            version10: py.intern(b"1.0")?,
            state: None,
            methods,
            fields: Fields::new(),
            peers: Vec::new(),
            address: None,
            server: None,
            empty,
            root_path: root_path.as_bytes().to_vec(),
            decoded: Vec::new(),
            paths: std::iter::repeat_with(|| None).take(PATHS).collect(),
        })
    }

    /// The namespace that the lifespan filled.
    pub fn set_state(&mut self, state: Owned) {
        self.state = Some(state);
    }

    /// The scope of a plain HTTP request.
    pub fn http(&mut self, py: Attached, connection: &mut Connection) -> Result<Owned, Raised> {
        let words = self.words;
        // SAFETY: attached; a dict of this thread's.
        let scope = unsafe { Owned::new(ffi::PyDict_Copy(self.template.ptr()))? };
        self.set_peer(py, connection, &scope)?;
        let exchange = connection.exchange();
        if exchange.version() == Version::Http10 {
            set(py, &scope, words.http_version, &self.version10)?;
        }
        if exchange.method() != METHODS[GET].as_bytes() {
            let method = self.method(py, exchange.method())?;
            set(py, &scope, words.method, &method)?;
        }
        self.set_target(py, exchange, &scope)?;
        let headers = self.headers(py, exchange)?;
        set(py, &scope, words.headers, &headers)?;
        // SAFETY: attached; dicts of this thread's.
        let extensions = unsafe { Owned::new(ffi::PyDict_Copy(self.extensions.ptr()))? };
        set(py, &scope, words.extensions, &extensions)?;
        self.set_state_copy(py, &scope)?;
        Ok(scope)
    }

    /// The scope of a WebSocket.
    pub fn websocket(
        &mut self,
        py: Attached,
        connection: &mut Connection,
        subprotocols: &[String],
    ) -> Result<Owned, Raised> {
        let words = self.words;
        // SAFETY: attached; a dict of this thread's.
        let scope = unsafe { Owned::new(ffi::PyDict_Copy(self.template.ptr()))? };
        // SAFETY: attached; a live dict and word, which it has.
        if unsafe { ffi::PyDict_DelItem(scope.ptr(), words.method) } != 0 {
            return Err(Raised);
        }
        // SAFETY: attached; a word lives for ever.
        set(py, &scope, words.kind, &unsafe {
            Owned::borrowed(words.websocket)
        })?;
        set(py, &scope, words.scheme, &py.str("ws")?)?;
        self.set_peer(py, connection, &scope)?;
        let exchange = connection.exchange();
        self.set_target(py, exchange, &scope)?;
        let headers = self.headers(py, exchange)?;
        set(py, &scope, words.headers, &headers)?;
        // SAFETY: attached; a fresh list, filled from its beginning.
        let list = unsafe {
            let list = Owned::new(ffi::PyList_New(subprotocols.len() as ffi::Py_ssize_t))?;
            for (index, name) in subprotocols.iter().enumerate() {
                let name = py.str(name)?;
                ffi::PyList_SET_ITEM(list.ptr(), index as ffi::Py_ssize_t, name.into_ptr());
            }
            list
        };
        set(py, &scope, words.subprotocols, &list)?;
        let extensions = dict(py)?;
        py.set_item(&extensions, &py.str("websocket.http.response")?, &dict(py)?)?;
        set(py, &scope, words.extensions, &extensions)?;
        self.set_state_copy(py, &scope)?;
        Ok(scope)
    }

    fn set_state_copy(&self, py: Attached, scope: &Owned) -> Result<(), Raised> {
        // SAFETY: attached; the state is a dict of this thread's, or one that the application put there.
        let copy = unsafe {
            match &self.state {
                Some(state) => Owned::new(ffi::PyDict_Copy(state.ptr()))?,
                None => Owned::new(ffi::PyDict_New())?,
            }
        };
        set(py, scope, self.words.state, &copy)
    }

    /// "The HTTP method name, uppercased."
    fn method(&self, py: Attached, method: &[u8]) -> Result<Owned, Raised> {
        match METHODS.iter().position(|known| known.as_bytes() == method) {
            Some(index) => Ok(self.methods[index].again()),
            None => py.latin1(&method.to_ascii_uppercase()),
        }
    }

    fn set_target(
        &mut self,
        py: Attached,
        exchange: &Exchange,
        scope: &Owned,
    ) -> Result<(), Raised> {
        let words = self.words;
        let raw = exchange.path();
        let query = exchange.query();
        if !query.is_empty() {
            set(py, scope, words.query_string, &py.bytes(query)?)?;
        }
        // A proxy may have taken the mount point off the path: scopes have it (ASGI "root_path", "path").
        let mounted = below(raw, &self.root_path);
        let is_plain = mounted && memchr::memchr(b'%', raw).is_none() && raw.is_ascii();
        if is_plain {
            return self.set_plain_path(py, raw, scope);
        }
        self.decoded.clear();
        http1::percent_decode(raw, &mut self.decoded);
        if !mounted {
            self.decoded.splice(0..0, self.root_path.iter().copied());
        }
        // SAFETY: attached; a valid range and C strings.
        let path = unsafe {
            Owned::new(ffi::PyUnicode_DecodeUTF8(
                self.decoded.as_ptr().cast(),
                self.decoded.len() as ffi::Py_ssize_t,
                c"replace".as_ptr(),
            ))?
        };
        set(py, scope, words.path, &path)?;
        if mounted {
            return set(py, scope, words.raw_path, &py.bytes(raw)?);
        }
        let whole = [&self.root_path, raw].concat();
        set(py, scope, words.raw_path, &py.bytes(&whole)?)
    }

    #[inline]
    fn set_plain_path(&mut self, py: Attached, raw: &[u8], scope: &Owned) -> Result<(), Raised> {
        let words = self.words;
        let middle = usize::from(raw[raw.len() / 2]);
        let last = usize::from(raw[raw.len() - 1]);
        let place = &mut self.paths[(raw.len() ^ last << 2 ^ middle) % PATHS];
        if let Some((_, path, raw_path)) = place.as_ref().filter(|(known, ..)| known == raw) {
            set(py, scope, words.path, path)?;
            return set(py, scope, words.raw_path, raw_path);
        }
        let (path, raw_path) = (py.latin1(raw)?, py.bytes(raw)?);
        set(py, scope, words.path, &path)?;
        set(py, scope, words.raw_path, &raw_path)?;
        if raw.len() <= PATH_LENGTH {
            *place = Some((raw.to_vec(), path, raw_path));
        }
        Ok(())
    }

    fn headers(&mut self, py: Attached, exchange: &Exchange) -> Result<Owned, Raised> {
        let authority = exchange.authority();
        // SAFETY: attached; a fresh list, filled from its beginning. An error leaves null items, which its end bears.
        unsafe {
            let list = Owned::new(ffi::PyList_New(exchange.field_count() as ffi::Py_ssize_t))?;
            for (index, (name, value)) in exchange.fields().enumerate() {
                // RFC 9112 3.2.2: an absolute-form target's authority replaces Host.
                let value = match authority {
                    Some(authority) if name.eq_ignore_ascii_case(b"host") => authority,
                    _ => value,
                };
                let pair = self.fields.pair(py, name, value)?;
                ffi::PyList_SET_ITEM(list.ptr(), index as ffi::Py_ssize_t, pair.into_ptr());
            }
            Ok(list)
        }
    }

    #[inline]
    fn set_peer(
        &mut self,
        py: Attached,
        connection: &mut Connection,
        scope: &Owned,
    ) -> Result<(), Raised> {
        let (key, generation) = (connection.key(), connection.generation());
        if key >= self.peers.len() {
            self.peers.resize_with(key + 1, || None);
        }
        if self.peers[key]
            .as_ref()
            .is_none_or(|peer| peer.generation != generation)
        {
            let client = match *connection.exchange().peer() {
                Endpoint::Ip(address) => self.client(py, address)?,
                Endpoint::Unix(_) => py.none(),
            };
            let server = match connection.exchange().reached() {
                Endpoint::Ip(address) => self.server(py, address)?,
                Endpoint::Unix(_) => py.none(),
            };
            self.peers[key] = Some(Peer {
                generation,
                client,
                server,
            });
        }
        if let Some(peer) = &self.peers[key] {
            set(py, scope, self.words.client, &peer.client)?;
            set(py, scope, self.words.server, &peer.server)?;
        }
        Ok(())
    }

    fn client(&mut self, py: Attached, address: SocketAddr) -> Result<Owned, Raised> {
        let host = match &self.address {
            Some((ip, host)) if *ip == address.ip() => host.again(),
            _ => {
                let host = py.str(&address.ip().to_string())?;
                self.address = Some((address.ip(), host.again()));
                host
            }
        };
        py.tuple([&host, &py.int(address.port().into())?])
    }

    fn server(&mut self, py: Attached, address: SocketAddr) -> Result<Owned, Raised> {
        if let Some((known, tuple)) = &self.server
            && *known == address
        {
            return Ok(tuple.again());
        }
        let host = py.str(&address.ip().to_string())?;
        let tuple = py.tuple([&host, &py.int(address.port().into())?])?;
        self.server = Some((address, tuple.again()));
        Ok(tuple)
    }

    /// `b""`
    pub fn empty(&self) -> &Owned {
        &self.empty
    }
}

/// True if `path` lies below the mount point.
fn below(path: &[u8], root: &[u8]) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| root.is_empty() || rest.is_empty() || rest[0] == b'/')
}

fn dict(py: Attached) -> Result<Owned, Raised> {
    let _ = py;
    // SAFETY: attached.
    unsafe { Owned::new(ffi::PyDict_New()) }
}

/// Sets an item of a dict under one of the `Words`.
#[inline]
pub fn set(py: Attached, dict: &Owned, key: *mut PyObject, value: &Owned) -> Result<(), Raised> {
    let _ = py;
    // SAFETY: attached; live objects, and the word lives for ever.
    match unsafe { ffi::PyDict_SetItem(dict.ptr(), key, value.ptr()) } {
        0 => Ok(()),
        _ => Err(Raised),
    }
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn mount_points_end_at_slashes() {
        assert!(below(b"/x", b""));
        assert!(below(b"/api", b"/api"));
        assert!(below(b"/api/x", b"/api"));
        assert!(!below(b"/apix", b"/api"));
        assert!(!below(b"/x", b"/api"));
    }
}
