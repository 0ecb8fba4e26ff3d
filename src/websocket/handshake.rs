//! The opening handshake, the server's side (RFC 6455 4.2).
//!
//! Owns: which requests ask for a WebSocket, which are refused and how, the 101 answer. Must not: parse a
//! request's head (`http1` does), choose a subprotocol (the application does). Runs on whichever thread owns the connection.
#![forbid(unsafe_code)]

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sha1::{Digest, Sha1};

use super::connection::{Settings, WebSocket};
use super::deflate::Agreed;
use super::extension::{answer, negotiate};
use super::token::{is_field_value, is_token, list, trimmed};

/// Clients that take 22 random letters for a key exist, and a server need not decode it
/// (RFC 6455 4.2.2, 5.4): the four bits behind the sixteenth byte may be anything.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// RFC 6455 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why a request that asks for a WebSocket doesn't get one. The client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("a WebSocket handshake is a GET")]
    Method,
    #[error("a WebSocket handshake is HTTP/1.1")]
    HttpVersion,
    #[error("a WebSocket handshake has one Host")]
    Host,
    #[error("a WebSocket handshake has no body")]
    Body,
    #[error("Connection has no `upgrade`")]
    Connection,
    #[error("Upgrade has no `websocket`")]
    Upgrade,
    #[error("Sec-WebSocket-Version is not 13")]
    Version,
    #[error("Sec-WebSocket-Key is not the base64 form of 16 bytes")]
    Key,
    #[error("Sec-WebSocket-Protocol is not a list of tokens")]
    Subprotocols,
    #[error("Sec-WebSocket-Extensions is malformed")]
    Extensions,
}

impl Refusal {
    pub fn status(self) -> u16 {
        match self {
            Refusal::Method => 405,
            Refusal::Version => 426,
            _ => 400,
        }
    }

    /// Fields that the answer has to have (RFC 9110 10.2.1 and 15.5.22, RFC 6455 4.2.2).
    pub fn fields(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Refusal::Method => &[("Allow", "GET")],
            Refusal::Version => &[("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")],
            _ => &[],
        }
    }
}

/// The application's mistakes in accepting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    #[error("the client didn't offer this subprotocol")]
    Subprotocol,
    #[error("a header field with a malformed name or value")]
    Field,
    #[error("a header field that belongs to the handshake")]
    Reserved,
}

/// Fields of the answer that are the handshake's own, or would announce a body.
const RESERVED: [&[u8]; 8] = [
    b"connection",
    b"content-length",
    b"sec-websocket-accept",
    b"sec-websocket-extensions",
    b"sec-websocket-protocol",
    b"sec-websocket-version",
    b"transfer-encoding",
    b"upgrade",
];

/// The request asks for a WebSocket: whatever else is wrong with it is for `Handshake::read` to say.
/// An HTTP/1.0 request never does (RFC 9110 7.8).
pub fn is_requested<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> bool {
    let (mut connection, mut upgrade) = (false, false);
    for (name, value) in fields {
        connection |= name.eq_ignore_ascii_case(b"connection") && has(value, b"upgrade");
        upgrade |= name.eq_ignore_ascii_case(b"upgrade") && has(value, b"websocket");
    }
    connection && upgrade
}

/// The comma-separated list has the word, in any case.
fn has(value: &[u8], word: &[u8]) -> bool {
    list(value, b',')
        .flatten()
        .any(|element| element.eq_ignore_ascii_case(word))
}

/// A request that was found to be right, ready to be accepted. Holds nothing of the request's bytes.
#[derive(Clone, Debug)]
pub struct Handshake {
    accept: [u8; 28],
    subprotocols: Vec<String>,
    deflate: Option<Agreed>,
    max_message: usize,
}

impl Handshake {
    /// `http11`: the request's version is HTTP/1.1. `fields`: as sent, names in any case.
    pub fn read<'a>(
        method: &[u8],
        http11: bool,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        settings: &Settings,
    ) -> Result<Handshake, Refusal> {
        let mut seen = Seen::default();
        for (name, value) in fields {
            seen.add(name, trimmed(value));
        }
        // By what tells a client most: one of another version can't know this version's fields.
        let checks = [
            (method == b"GET", Refusal::Method),
            (http11, Refusal::HttpVersion),
            (seen.hosts == 1, Refusal::Host),
            (!seen.body, Refusal::Body),
            (seen.connection, Refusal::Connection),
            (seen.upgrade, Refusal::Upgrade),
            (seen.versions == [b"13"], Refusal::Version),
        ];
        if let Some((_, refusal)) = checks.into_iter().find(|(right, _)| !right) {
            return Err(refusal);
        }
        let &[key] = &seen.keys[..] else {
            return Err(Refusal::Key);
        };
        if BASE64.decode(key).is_ok_and(|key| key.len() == 16) {
            Ok(Handshake {
                accept: accept_key(key),
                subprotocols: subprotocols(&seen.subprotocols)?,
                deflate: negotiate(seen.extensions.into_iter(), settings.deflate.as_ref())
                    .map_err(|_| Refusal::Extensions)?,
                max_message: settings.max_message,
            })
        } else {
            Err(Refusal::Key)
        }
    }

    /// What the client offers, in its order of preference.
    pub fn subprotocols(&self) -> &[String] {
        &self.subprotocols
    }

    /// Writes the 101 answer; behind it, the connection speaks WebSocket. Nothing is written on an error.
    /// `fields`: the application's, and Date and Server if they are wanted.
    pub fn accept<'a>(
        &self,
        subprotocol: Option<&str>,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        out: &mut Vec<u8>,
    ) -> Result<WebSocket, AcceptError> {
        if subprotocol.is_some_and(|chosen| !self.subprotocols.iter().any(|one| one == chosen)) {
            return Err(AcceptError::Subprotocol);
        }
        let start = out.len();
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        );
        write_field(b"Sec-WebSocket-Accept", &self.accept, out);
        if let Some(subprotocol) = subprotocol {
            write_field(b"Sec-WebSocket-Protocol", subprotocol.as_bytes(), out);
        }
        if let Some(agreed) = &self.deflate {
            write_field(b"Sec-WebSocket-Extensions", answer(agreed).as_bytes(), out);
        }
        for (name, value) in fields {
            let error = if !is_token(name) || !is_field_value(value) {
                AcceptError::Field
            } else if RESERVED.iter().any(|own| own.eq_ignore_ascii_case(name)) {
                AcceptError::Reserved
            } else {
                write_field(name, value, out);
                continue;
            };
            out.truncate(start);
            return Err(error);
        }
        out.extend_from_slice(b"\r\n");
        Ok(WebSocket::new(self.max_message, self.deflate))
    }
}

/// What a handshake's fields say, all of a name together.
#[derive(Default)]
struct Seen<'a> {
    hosts: usize,
    body: bool,
    connection: bool,
    upgrade: bool,
    versions: Vec<&'a [u8]>,
    keys: Vec<&'a [u8]>,
    subprotocols: Vec<&'a [u8]>,
    extensions: Vec<&'a [u8]>,
}

impl<'a> Seen<'a> {
    fn add(&mut self, name: &[u8], value: &'a [u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("host") {
            self.hosts += 1;
        } else if is("connection") {
            self.connection |= has(value, b"upgrade");
        } else if is("upgrade") {
            self.upgrade |= has(value, b"websocket");
        } else if is("sec-websocket-version") {
            self.versions.push(value);
        } else if is("sec-websocket-key") {
            self.keys.push(value);
        } else if is("sec-websocket-protocol") {
            self.subprotocols.push(value);
        } else if is("sec-websocket-extensions") {
            self.extensions.push(value);
        } else if is("transfer-encoding") {
            self.body = true;
        } else if is("content-length") {
            // A body and frames would follow each other without a mark between them.
            self.body |= value != b"0";
        }
    }
}

/// RFC 6455 4.2.2, 5.4.
fn accept_key(key: &[u8]) -> [u8; 28] {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut accept = [0; 28];
    BASE64
        .encode_slice(digest, &mut accept)
        .expect("20 bytes are 28 letters");
    accept
}

/// All fields' elements (RFC 6455 11.3.4); one that comes again is left out.
fn subprotocols(fields: &[&[u8]]) -> Result<Vec<String>, Refusal> {
    let mut all: Vec<String> = Vec::new();
    for element in fields.iter().flat_map(|field| list(field, b',')) {
        match element {
            Some([]) => {} // RFC 9110 5.6.1.2
            Some(token) if is_token(token) => {
                let token = String::from_utf8_lossy(token);
                if !all.iter().any(|one| *one == token) {
                    all.push(token.into_owned());
                }
            }
            _ => return Err(Refusal::Subprotocols),
        }
    }
    Ok(all)
}

fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
