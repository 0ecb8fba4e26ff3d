//! Classes of octets that the grammar of RFC 9110 names, as tables.
//!
//! Owns: the tables and the checks of whole slices. Must not: know where in a message a slice stands.
//! Pure functions, any thread.
#![forbid(unsafe_code)]

const fn table(listed: &[u8], alphanumeric: bool) -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < listed.len() {
        table[listed[i] as usize] = true;
        i += 1;
    }
    let mut byte = 0;
    while byte < 128 {
        if alphanumeric && (byte as u8).is_ascii_alphanumeric() {
            table[byte] = true;
        }
        byte += 1;
    }
    table
}

/// `tchar`, RFC 9110 5.6.2.
pub(super) static TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~", true);

/// What `uri-host` may hold outside brackets: unreserved, sub-delims and `%` (RFC 3986 3.2.2).
static REG_NAME: [bool; 256] = table(b"-._~!$&'()*+,;=%", true);

pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| TOKEN[byte as usize])
}

/// `field-content` and `reason-phrase`: HTAB, SP, VCHAR and obs-text; no other control, no DEL
/// (RFC 9110 5.5). Without branches, so that it is compiled to vector code.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |good, &byte| {
        good & ((byte >= b' ' && byte != 0x7f) || byte == b'\t')
    })
}

/// `1*DIGIT` that fits: no sign, no blank, no list (RFC 9110 8.6).
pub(super) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            None
        } else {
            value.checked_mul(10)?.checked_add(u64::from(digit))
        }
    })
}

/// `uri-host [ ":" port ]` (RFC 9110 4.2, RFC 3986 3.2.2), not empty, without userinfo: a sender must
/// not generate one in http URIs, and it disguises the host (RFC 9110 4.2.4).
pub(super) fn is_authority(bytes: &[u8]) -> bool {
    let after_host = if bytes.first() == Some(&b'[') {
        // IP-literal: hexadecimal digits, ':' and '.'; or IPvFuture, which nobody has ever sent.
        let Some(end) = bytes.iter().position(|&byte| byte == b']') else {
            return false;
        };
        let literal = &bytes[1..end];
        if literal.is_empty()
            || !literal
                .iter()
                .all(|&byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
        {
            return false;
        }
        &bytes[end + 1..]
    } else {
        let end = bytes
            .iter()
            .position(|&byte| !REG_NAME[byte as usize])
            .unwrap_or(bytes.len());
        if end == 0 {
            return false;
        }
        &bytes[end..]
    };
    match after_host {
        [] => true,
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Without SP and HTAB at both ends (`OWS`, RFC 9110 5.6.3).
pub(super) fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}
