//! Tokens, lists and quoted strings of HTTP fields (RFC 9110 5.6), as the handshake needs them.
//!
//! Owns: splitting a field's value at separators outside of quotes. Must not: know what a field means. Any thread.
#![forbid(unsafe_code)]

/// A token (RFC 9110 5.6.2); not empty.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.iter().all(|byte| {
            byte.is_ascii_alphanumeric() || memchr::memchr(*byte, b"!#$%&'*+-.^_`|~").is_some()
        })
}

/// Nothing that could end a field's line or hide in it (RFC 9110 5.5).
pub(super) fn is_field_value(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

/// Without the blanks around it.
pub(super) fn trimmed(bytes: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(start) = bytes.iter().position(|byte| !blank(byte)) else {
        return &[];
    };
    let end = bytes
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// What stands between separators that are not in quotes, without blanks around it; one at least. `None` for a quote
/// that isn't closed: the last element.
pub(super) fn list(value: &[u8], separator: u8) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let bytes = rest.take()?;
        let (mut quoted, mut escaped) = (false, false);
        let end = bytes.iter().position(|&byte| {
            let ends = !quoted && byte == separator;
            if escaped {
                escaped = false;
            } else if byte == b'"' {
                quoted = !quoted;
            } else {
                escaped = quoted && byte == b'\\';
            }
            ends
        });
        if let Some(end) = end {
            rest = Some(&bytes[end + 1..]);
            return Some(Some(trimmed(&bytes[..end])));
        }
        Some((!quoted).then(|| trimmed(bytes)))
    })
}

/// A quoted string without quotes and escapes, anything else as it is; `None` if the quotes are wrong.
pub(super) fn unquoted(value: &[u8]) -> Option<Vec<u8>> {
    let Some(inner) = value.strip_prefix(b"\"") else {
        return Some(value.to_vec());
    };
    let inner = inner.strip_suffix(b"\"")?;
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => plain.push(*bytes.next()?),
            b'"' => return None,
            _ => plain.push(byte),
        }
    }
    Some(plain)
}
