//! Sec-WebSocket-Extensions: its grammar (RFC 6455 9.1), and which offer of permessage-deflate is accepted
//! (RFC 7692 7.1).
//!
//! Owns: the field's parser, the choice, the answer's text. Must not: compress. Any thread.
#![forbid(unsafe_code)]

use std::fmt::Write;

use super::deflate::{Agreed, DeflateSettings};
use super::token::{is_token, list, trimmed, unquoted};

/// The field is not what its grammar says: the handshake fails (RFC 6455 9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The first offer in `fields` (the values of all such fields, in order) that can be accepted.
pub(super) fn negotiate<'a>(
    fields: impl Iterator<Item = &'a [u8]>,
    settings: Option<&DeflateSettings>,
) -> Result<Option<Agreed>, Malformed> {
    let mut agreed = None;
    for element in fields.flat_map(|field| list(field, b',')) {
        let element = element.ok_or(Malformed)?;
        if element.is_empty() {
            continue; // RFC 9110 5.6.1.2
        }
        let mut parts = list(element, b';');
        let name = parts.next().flatten().ok_or(Malformed)?;
        if !is_token(name) {
            return Err(Malformed);
        }
        let mut offer = Offer::default();
        for part in parts {
            let (name, value) = parameter(part.ok_or(Malformed)?)?;
            offer.add(name, value.as_deref());
        }
        if let Some(settings) = settings
            && agreed.is_none()
            && name.eq_ignore_ascii_case(b"permessage-deflate")
        {
            agreed = offer.agree(settings);
        }
    }
    Ok(agreed)
}

/// `name`, or `name=value` with a token or a quoted token.
fn parameter(part: &[u8]) -> Result<(&[u8], Option<Vec<u8>>), Malformed> {
    let (name, value) = match memchr::memchr(b'=', part) {
        None => (part, None),
        Some(at) => (trimmed(&part[..at]), Some(trimmed(&part[at + 1..]))),
    };
    let value = value.map(|value| unquoted(value).ok_or(Malformed));
    let value = value.transpose()?;
    if !is_token(name) || value.as_deref().is_some_and(|value| !is_token(value)) {
        return Err(Malformed);
    }
    Ok((name, value))
}

/// One offer's parameters.
#[derive(Default)]
struct Offer {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// The client is able to obey a limit, and perhaps proposes one: none is asked for.
    client_max_window_bits: bool,
    /// It has a parameter twice, one that isn't known, or one with a value that can't be (RFC 7692 7.1).
    declined: bool,
}

impl Offer {
    fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        let bits = value.map(window_bits);
        let fits = match (&name.to_ascii_lowercase()[..], bits) {
            (b"server_no_context_takeover", None) => {
                !std::mem::replace(&mut self.server_no_context_takeover, true)
            }
            (b"client_no_context_takeover", None) => {
                !std::mem::replace(&mut self.client_no_context_takeover, true)
            }
            (b"server_max_window_bits", Some(Some(bits))) => {
                self.server_max_window_bits.replace(bits).is_none()
            }
            (b"client_max_window_bits", None | Some(Some(_))) => {
                !std::mem::replace(&mut self.client_max_window_bits, true)
            }
            _ => false,
        };
        self.declined |= !fits;
    }

    fn agree(&self, settings: &DeflateSettings) -> Option<Agreed> {
        // No DEFLATE library compresses with a window of 256 bytes (zlib.h, deflateInit2).
        if self.declined || self.server_max_window_bits == Some(8) {
            return None;
        }
        Some(Agreed {
            server_bits: self.server_max_window_bits.unwrap_or(15),
            server_takeover: settings.context_takeover && !self.server_no_context_takeover,
            client_takeover: settings.client_context_takeover && !self.client_no_context_takeover,
            level: settings.level.clamp(1, 9),
            min_size: settings.min_size,
        })
    }
}

/// A decimal from 8 to 15, without leading zeros (RFC 7692 7.1.2).
fn window_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// The response's field value. A limit of 15 bits is none.
pub(super) fn answer(agreed: &Agreed) -> String {
    let mut text = String::from("permessage-deflate");
    if !agreed.server_takeover {
        text.push_str("; server_no_context_takeover");
    }
    if !agreed.client_takeover {
        text.push_str("; client_no_context_takeover");
    }
    if agreed.server_bits < 15 {
        write!(text, "; server_max_window_bits={}", agreed.server_bits)
            .expect("a String takes any text");
    }
    text
}
