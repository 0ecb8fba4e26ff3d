//! From a header field's name to its key in the environ, without making a string for a name that was seen before.
//!
//! Owns, per handler thread, a fixed table of the names that browsers, proxies and API clients send (interned keys, made
//! once) and a small cache of the names that this application's clients send besides. Clients choose names freely and
//! interned strings live for ever on free-threaded builds, so only the fixed table's keys are interned and the cache
//! overwrites its oldest entries in place: no client can make it grow.

use std::cmp::Ordering;

use super::super::object::{Attached, Owned, Raised};
use crate::config::UnderscoreNames;

/// What a field's name asks for beyond `HTTP_` and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Plain,
    /// Its values are joined with `; ` instead of `,` (RFC 9113 8.2.3, RFC 6265 4.2.1).
    Cookie,
    Host,
    /// No `HTTP_` prefix (PEP 3333 "environ Variables").
    ContentType,
    /// The same; the value is the collected body's.
    ContentLength,
    /// The body that the application reads has no transfer coding any more (RFC 9112 7.1.3), so the field is left out.
    TransferEncoding,
}

/// Names whose values often repeat from request to request on a thread: their last value is kept as an object.
/// Never one that holds a secret, and none whose value is new each time.
const REPEATING: &[&str] = &[
    "Accept",
    "Accept-Charset",
    "Accept-Encoding",
    "Accept-Language",
    "Cache-Control",
    "Connection",
    "Content-Type",
    "DNT",
    "Forwarded",
    "Host",
    "Keep-Alive",
    "Origin",
    "Pragma",
    "Priority",
    "Save-Data",
    "Sec-CH-UA",
    "Sec-CH-UA-Arch",
    "Sec-CH-UA-Mobile",
    "Sec-CH-UA-Platform",
    "Sec-Fetch-Dest",
    "Sec-Fetch-Mode",
    "Sec-Fetch-Site",
    "Sec-Fetch-User",
    "Sec-GPC",
    "TE",
    "Upgrade-Insecure-Requests",
    "User-Agent",
    "Via",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "X-Real-IP",
    "X-Requested-With",
    "X-Scheme",
];

/// The other well-known ones.
const OTHERS: &[&str] = &[
    "Access-Control-Request-Headers",
    "Access-Control-Request-Method",
    "Authorization",
    "Baggage",
    "CF-Connecting-IP",
    "CF-IPCountry",
    "CF-Ray",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-MD5",
    "Cookie",
    "Date",
    "Expect",
    "From",
    "HX-Request",
    "HX-Target",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Last-Event-ID",
    "Max-Forwards",
    "Proxy-Authorization",
    "Range",
    "Referer",
    "Traceparent",
    "Tracestate",
    "Trailer",
    "Transfer-Encoding",
    "True-Client-IP",
    "Upgrade",
    "X-Amzn-Trace-Id",
    "X-API-Key",
    "X-Client-IP",
    "X-Correlation-ID",
    "X-CSRF-Token",
    "X-CSRFToken",
    "X-Forwarded-Ssl",
    "X-HTTP-Method-Override",
    "X-Request-ID",
    "X-Request-Start",
    "X-XSRF-Token",
];

/// Slots of the fixed table: a power of two, about three times the spellings, so that chains stay short.
const KNOWN_SLOTS: usize = 512;
/// Names of this application's own that are remembered. Each thread has so many, and no more.
const LEARNED_SLOTS: usize = 64;
/// Longer names are not remembered.
const LEARNED_LENGTH: usize = 64;
/// Longer values are not remembered.
const VALUE_LENGTH: usize = 512;
const EMPTY: u16 = u16::MAX;

/// One spelling of a well-known name.
struct Known {
    name: Box<[u8]>,
    key: Owned,
    role: Role,
    repeats: bool,
    /// The last value and the object made of it.
    bytes: Vec<u8>,
    value: Option<Owned>,
}

struct Learned {
    name: Vec<u8>,
    key: Owned,
}

pub struct Names {
    /// Indices into `known`, open addressing, linear probing; never changed after it was made.
    slots: Box<[u16; KNOWN_SLOTS]>,
    known: Vec<Known>,
    learned: Vec<Option<Learned>>,
    /// What becomes of fields whose names contain `_`: they can pass for the same name with `-`.
    underscores: UnderscoreNames,
}

/// Where a name was found.
pub enum Found {
    Known(usize),
    /// With its key.
    Other(Owned),
    /// The field is not for the application.
    Dropped,
    /// Nor is the request.
    Refused,
}

impl Names {
    pub fn make(py: Attached, underscores: UnderscoreNames) -> Result<Names, Raised> {
        let mut names = Names {
            slots: Box::new([EMPTY; KNOWN_SLOTS]),
            known: Vec::new(),
            learned: std::iter::repeat_with(|| None)
                .take(LEARNED_SLOTS)
                .collect(),
            underscores,
        };
        for (list, repeats) in [(REPEATING, true), (OTHERS, false)] {
            for name in list {
                let key = py.intern(&key_text(name.as_bytes()))?;
                // As the standard writes it, and as HTTP/2 front ends and many clients do.
                names.add(name.as_bytes().into(), key.again(), repeats);
                names.add(name.to_ascii_lowercase().into_bytes().into(), key, repeats);
            }
        }
        Ok(names)
    }

    fn add(&mut self, name: Box<[u8]>, key: Owned, repeats: bool) {
        let mut slot = slot(hash(&name));
        while self.slots[slot] != EMPTY {
            slot = (slot + 1) % KNOWN_SLOTS;
        }
        self.slots[slot] = self.known.len() as u16;
        let role = role(&name);
        self.known.push(Known {
            name,
            key,
            role,
            repeats,
            bytes: Vec::new(),
            value: None,
        });
    }

    #[inline]
    pub fn find(&mut self, py: Attached, name: &[u8]) -> Result<Found, Raised> {
        let hash = hash(name);
        let mut slot = slot(hash);
        loop {
            let index = self.slots[slot];
            if index == EMPTY {
                break;
            }
            if *self.known[index as usize].name == *name {
                return Ok(Found::Known(index as usize));
            }
            slot = (slot + 1) % KNOWN_SLOTS;
        }
        self.find_other(py, name, hash)
    }

    #[cold]
    fn find_other(&mut self, py: Attached, name: &[u8], hash: u64) -> Result<Found, Raised> {
        if name.contains(&b'_') {
            match self.underscores {
                UnderscoreNames::Allow => {}
                UnderscoreNames::Drop => return Ok(Found::Dropped),
                UnderscoreNames::Refuse => return Ok(Found::Refused),
            }
        }
        // A well-known name in a spelling of the client's own.
        if let Some(index) = self
            .known
            .iter()
            .position(|known| known.name.eq_ignore_ascii_case(name))
        {
            return Ok(Found::Known(index));
        }
        let place = &mut self.learned[(hash >> 40) as usize % LEARNED_SLOTS];
        if let Some(learned) = place.as_ref().filter(|learned| learned.name == name) {
            return Ok(Found::Other(learned.key.again()));
        }
        let key = py.latin1(&key_text(name))?;
        if name.len() <= LEARNED_LENGTH {
            *place = Some(Learned {
                name: name.to_vec(),
                key: key.again(),
            });
        }
        Ok(Found::Other(key))
    }

    #[inline]
    pub fn key(&self, index: usize) -> &Owned {
        &self.known[index].key
    }

    #[inline]
    pub fn role(&self, index: usize) -> Role {
        self.known[index].role
    }

    /// The value as a string object, the one of the last time if it is the same.
    #[inline]
    pub fn value(&mut self, py: Attached, index: usize, value: &[u8]) -> Result<Owned, Raised> {
        let known = &mut self.known[index];
        if !known.repeats {
            return py.latin1(value);
        }
        if let Some(object) = &known.value
            && known.bytes == value
        {
            return Ok(object.again());
        }
        let object = py.latin1(value)?;
        if value.len() <= VALUE_LENGTH {
            known.bytes.clear();
            known.bytes.extend_from_slice(value);
            known.value = Some(object.again());
        }
        Ok(object)
    }
}

fn role(name: &[u8]) -> Role {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    match () {
        () if is("cookie") => Role::Cookie,
        () if is("host") => Role::Host,
        () if is("content-type") => Role::ContentType,
        () if is("content-length") => Role::ContentLength,
        () if is("transfer-encoding") => Role::TransferEncoding,
        () => Role::Plain,
    }
}

/// `HTTP_ACCEPT_ENCODING` of `Accept-Encoding` (RFC 3875 4.1.18); a field's name is a token, and so ASCII.
fn key_text(name: &[u8]) -> Vec<u8> {
    let prefix: &[u8] = match role(name) {
        Role::ContentType | Role::ContentLength => b"",
        _ => b"HTTP_",
    };
    let upper = name.iter().map(|byte| {
        if *byte == b'-' {
            b'_'
        } else {
            byte.to_ascii_uppercase()
        }
    });
    prefix.iter().copied().chain(upper).collect()
}

/// Mixes the length and the first and last bytes; the constants are those that keep the fixed table's chains shortest. Collisions cost a comparison each, and a client that provokes them in
/// `learned` only overwrites entries; the fixed table's chains are fixed.
#[inline]
fn hash(name: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let half = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    let len = name.len();
    let (first, last) = match len.cmp(&8) {
        Ordering::Less if len >= 4 => (half(&name[..4]), half(&name[len - 4..])),
        Ordering::Less => name.iter().fold((0, 0), |(value, _), byte| {
            (value << 8 | u64::from(*byte), 0)
        }),
        _ => (word(&name[..8]), word(&name[len - 8..])),
    };
    (first ^ last.rotate_left(23) ^ len as u64).wrapping_mul(0x94D0_49BB_1331_11EB)
}

/// The upper bits of a product depend on all of its factor's.
#[inline]
fn slot(hash: u64) -> usize {
    (hash >> (64 - KNOWN_SLOTS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        assert_eq!(key_text(b"Accept-Encoding"), b"HTTP_ACCEPT_ENCODING");
        assert_eq!(key_text(b"content-type"), b"CONTENT_TYPE");
        assert_eq!(key_text(b"x-!#$"), b"HTTP_X_!#$");
    }

    #[test]
    fn chains_in_the_fixed_table_are_short() {
        let mut slots = [false; KNOWN_SLOTS];
        let mut worst = 0;
        for name in REPEATING.iter().chain(OTHERS) {
            for name in [name.to_string(), name.to_ascii_lowercase()] {
                let start = slot(hash(name.as_bytes()));
                let steps = (0..)
                    .find(|step| !slots[(start + step) % KNOWN_SLOTS])
                    .unwrap();
                slots[(start + steps) % KNOWN_SLOTS] = true;
                worst = worst.max(steps);
            }
        }
        assert!(worst <= 4, "{worst}");
    }
}
