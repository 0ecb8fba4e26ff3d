//! The request line: method, target in its four forms, version (RFC 9112 3).
//!
//! Owns: which request lines are refused and why; where path and query lie. Must not: decode or
//! normalise a path (what an application sees is what was sent). Pure functions, any thread.
#![forbid(unsafe_code)]

use memchr::memchr;

use super::event::RequestError;
use super::head::{Head, Span, Version};
use super::octets::{TOKEN, is_authority};

/// Reads `line`, which starts at `start` of the buffer, without its CR LF, into `head`.
///
/// `method` and `target` are set as soon as they can be told apart, for the log line of a refusal.
pub(super) fn read_request_line(
    line: &[u8],
    start: usize,
    head: &mut Head,
) -> Result<(), RequestError> {
    let span = |from: usize, to: usize| Span::new(start + from, start + to);
    let method_end = line
        .iter()
        .position(|&byte| !TOKEN[byte as usize])
        .unwrap_or(line.len());
    match line.get(method_end) {
        Some(b' ') if method_end > 0 => {}
        // Without any space it may be anything; with one, the method is at fault.
        Some(_) if memchr(b' ', line).is_some() => return Err(RequestError::Method),
        _ => return Err(RequestError::RequestLine),
    }
    let method = &line[..method_end];
    head.method = span(0, method_end);

    let target_start = method_end + 1;
    let (target_end, version) = split_version(line, target_start)?;
    head.target = span(target_start, target_end);
    head.version = version?;
    let target = &line[target_start..target_end];

    // One pass: bytes that no target holds, and the first `?`.
    let mut query = target.len();
    for (i, &byte) in target.iter().enumerate() {
        match TARGET[byte as usize] {
            TargetByte::Plain => {}
            TargetByte::Question => {
                if query == target.len() {
                    query = i;
                }
            }
            TargetByte::Fragment => return Err(RequestError::Fragment),
            TargetByte::Bad => return Err(RequestError::Target),
        }
    }
    if method == b"CONNECT" {
        return Err(RequestError::Connect);
    }
    let path = match target[0] {
        // origin-form, RFC 9112 3.2.1
        b'/' => 0..query,
        // asterisk-form, RFC 9112 3.2.4
        b'*' if target.len() == 1 => {
            if method != b"OPTIONS" {
                return Err(RequestError::Asterisk);
            }
            0..1
        }
        // absolute-form, RFC 9112 3.2.2: a server MUST accept it, a proxy or not
        _ => {
            let after_scheme = scheme_end(target).ok_or(RequestError::TargetForm)?;
            let authority_end = target[after_scheme..query]
                .iter()
                .position(|&byte| byte == b'/')
                .map_or(query, |i| after_scheme + i);
            if !is_authority(&target[after_scheme..authority_end]) {
                return Err(RequestError::Authority);
            }
            head.authority = Some(span(
                target_start + after_scheme,
                target_start + authority_end,
            ));
            if authority_end == query {
                // An empty path is `/` (RFC 9110 4.2.3); the one of `://` stands in for it.
                after_scheme - 1..after_scheme
            } else {
                authority_end..query
            }
        }
    };
    head.path = span(target_start + path.start, target_start + path.end);
    let query_start = (query + 1).min(target.len());
    head.query = span(target_start + query_start, target_end);
    Ok(())
}

/// Where the target ends, and the version behind it: ` HTTP/1.1` is the line's end (RFC 9112 2.3).
/// The outer error is for a line that has no target to speak of.
#[allow(clippy::type_complexity)]
fn split_version(
    line: &[u8],
    target_start: usize,
) -> Result<(usize, Result<Version, RequestError>), RequestError> {
    const LENGTH: usize = " HTTP/1.1".len();
    let end = line.len().wrapping_sub(LENGTH);
    if line.len() > target_start + LENGTH && line[end] == b' ' {
        let version = match &line[end + 1..] {
            b"HTTP/1.1" => Some(Ok(Version::Http11)),
            b"HTTP/1.0" => Some(Ok(Version::Http10)),
            // A higher minor version is to be read as the highest one known (RFC 9110 2.5).
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Some(Ok(Version::Http11)),
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                Some(Err(RequestError::UnsupportedVersion))
            }
            _ => None,
        };
        if let Some(version) = version {
            return Ok((end, version));
        }
    }
    // HTTP/0.9, or a version that is none: two spaces at least make it the version's fault.
    match memchr(b' ', &line[target_start..]) {
        Some(length) if length > 0 => Ok((target_start + length, Err(RequestError::Version))),
        _ => Err(RequestError::RequestLine),
    }
}

/// Behind `http://` or `https://`, schemes being case-insensitive (RFC 3986 3.1).
fn scheme_end(target: &[u8]) -> Option<usize> {
    [&b"http://"[..], b"https://"].iter().find_map(|scheme| {
        target
            .get(..scheme.len())?
            .eq_ignore_ascii_case(scheme)
            .then_some(scheme.len())
    })
}

/// Whether a request line can start with this byte. TLS on a plain port can't: refused at once
/// instead of at the deadline.
pub(super) fn may_start(byte: u8) -> bool {
    TOKEN[byte as usize] || byte == b'\r' || byte == b'\n'
}

/// What a byte is to a target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TargetByte {
    Plain,
    Question,
    Fragment,
    Bad,
}

/// VCHAR and obs-text. More than RFC 3986 allows: browsers send `|`, `{`, `"` and raw UTF-8, and an
/// application gets them as they are.
static TARGET: [TargetByte; 256] = {
    let mut table = [TargetByte::Plain; 256];
    let mut byte = 0;
    while byte < 256 {
        if byte <= 32 || byte == 127 {
            table[byte] = TargetByte::Bad;
        }
        byte += 1;
    }
    table[b'?' as usize] = TargetByte::Question;
    table[b'#' as usize] = TargetByte::Fragment;
    table
};

/// Appends `path` to `out` with its `%XX` decoded (RFC 3986 2.1). What is no escape stays as it is:
/// refusing a path is the application's business.
pub fn percent_decode(path: &[u8], out: &mut Vec<u8>) {
    let mut rest = path;
    out.reserve(path.len());
    while let Some(i) = memchr(b'%', rest) {
        out.extend_from_slice(&rest[..i]);
        rest = &rest[i..];
        match rest {
            [b'%', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(nibble(*high) << 4 | nibble(*low));
                rest = after;
            }
            _ => {
                out.push(b'%');
                rest = &rest[1..];
            }
        }
    }
    out.extend_from_slice(rest);
}

fn nibble(digit: u8) -> u8 {
    (digit as char).to_digit(16).map_or(0, |value| value as u8)
}
