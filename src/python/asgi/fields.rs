//! Header fields as ASGI has them: `(name, value)` in bytes, names in lower case.
//!
//! Owns a cache of pairs that one thread's clients keep sending: a browser's twelve fields are the same from request to
//! request. Its size is fixed and entries are overwritten in place, so that no client can make it grow; values that may be
//! secrets are not kept beyond their request. Every object belongs to the thread.

use super::super::ffi;
use super::super::object::{Attached, Owned, Raised};

/// Two places for each of these many hashes.
const SETS: usize = 128;
/// Longer names and values are made anew each time.
const NAME_LENGTH: usize = 48;
const VALUE_LENGTH: usize = 256;

struct Entry {
    /// As sent.
    name: Vec<u8>,
    /// In lower case.
    key: Owned,
    /// The value that `pair` was made of.
    value: Vec<u8>,
    pair: Option<Owned>,
    /// The value may be kept.
    open: bool,
}

pub struct Fields {
    sets: Box<[[Option<Entry>; 2]]>,
    /// Which of a set's places is overwritten next.
    next: usize,
}

impl Fields {
    pub fn new() -> Fields {
        Fields {
            sets: std::iter::repeat_with(|| [None, None]).take(SETS).collect(),
            next: 0,
        }
    }

    /// The pair of a field.
    #[inline]
    pub fn pair(&mut self, py: Attached, name: &[u8], value: &[u8]) -> Result<Owned, Raised> {
        let set = hash(name) % SETS;
        for entry in self.sets[set].iter_mut().flatten() {
            if entry.name == name {
                return entry.pair(py, value);
            }
        }
        self.learn(py, set, name, value)
    }

    #[cold]
    fn learn(
        &mut self,
        py: Attached,
        set: usize,
        name: &[u8],
        value: &[u8],
    ) -> Result<Owned, Raised> {
        let lower = name.to_ascii_lowercase();
        let mut entry = Entry {
            name: name.to_vec(),
            key: py.bytes(&lower)?,
            value: Vec::new(),
            pair: None,
            open: !may_hold_secret(&lower),
        };
        let pair = entry.pair(py, value)?;
        if name.len() <= NAME_LENGTH {
            let places = &mut self.sets[set];
            let free = places.iter().position(Option::is_none);
            let place = free.unwrap_or(self.next);
            self.next ^= 1;
            places[place] = Some(entry);
        }
        Ok(pair)
    }
}

impl Entry {
    #[inline]
    fn pair(&mut self, py: Attached, value: &[u8]) -> Result<Owned, Raised> {
        if let Some(pair) = &self.pair
            && self.value == value
        {
            return Ok(pair.again());
        }
        let object = py.bytes(value)?;
        // SAFETY: attached; a fresh tuple, both of its places are filled with a reference each.
        let pair = unsafe {
            let pair = Owned::new(ffi::PyTuple_New(2))?;
            ffi::PyTuple_SET_ITEM(pair.ptr(), 0, self.key.again().into_ptr());
            ffi::PyTuple_SET_ITEM(pair.ptr(), 1, object.into_ptr());
            pair
        };
        if self.open && value.len() <= VALUE_LENGTH {
            self.value.clear();
            self.value.extend_from_slice(value);
            self.pair = Some(pair.again());
        }
        Ok(pair)
    }
}

/// Credentials, and whatever is named like them.
fn may_hold_secret(name: &[u8]) -> bool {
    const WORDS: [&[u8]; 7] = [
        b"auth", b"cookie", b"key", b"token", b"secret", b"session", b"csrf",
    ];
    WORDS
        .iter()
        .any(|word| name.windows(word.len()).any(|part| part == *word))
}

/// Mixes the length with the first and the last eight bytes. A client that looks for collisions only slows its own requests:
/// a place that is taken is overwritten.
#[inline]
fn hash(name: &[u8]) -> usize {
    let len = name.len();
    let (first, last) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => name
            .iter()
            .fold((0, 0), |(word, _), byte| (word << 8 | u64::from(*byte), 0)),
    };
    let mixed = (first ^ last.rotate_left(23) ^ len as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets() {
        for name in [
            "authorization",
            "cookie",
            "x-api-key",
            "proxy-authorization",
            "x-csrftoken",
        ] {
            assert!(may_hold_secret(name.as_bytes()), "{name}");
        }
        for name in ["host", "user-agent", "accept-encoding", "sec-ch-ua"] {
            assert!(!may_hold_secret(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_browsers_names_fit_side_by_side() {
        let names = [
            "host",
            "connection",
            "cache-control",
            "sec-ch-ua",
            "sec-ch-ua-mobile",
            "sec-ch-ua-platform",
            "upgrade-insecure-requests",
            "user-agent",
            "accept",
            "sec-fetch-site",
            "sec-fetch-mode",
            "sec-fetch-user",
            "sec-fetch-dest",
            "accept-encoding",
            "accept-language",
            "cookie",
            "referer",
            "content-type",
            "content-length",
            "origin",
            "if-none-match",
            "x-requested-with",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-real-ip",
        ];
        let mut taken = [0; SETS];
        for name in names {
            taken[hash(name.as_bytes()) % SETS] += 1;
        }
        assert!(taken.iter().all(|count| *count <= 2), "{taken:?}");
    }
}
