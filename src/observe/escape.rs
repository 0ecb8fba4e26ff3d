//! Text from strangers in lines of ours.
//!
//! Owns the rule that nothing a client, an application or a file name says can start a new line, move the cursor or end
//! a quoted string (CVE-2020-7694 and its kind). Any thread.

/// Appends text for a person to read: control characters are escaped, everything else stays.
pub(super) fn text(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.find(is_control) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let control = rest[at..].chars().next().unwrap_or_default();
        match control {
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            small if (small as u32) < 0x100 => hex(b"\\x", small as u8, out),
            large => out.extend_from_slice(large.escape_unicode().to_string().as_bytes()),
        }
        rest = &rest[at + control.len_utf8()..];
    }
    out.extend_from_slice(rest.as_bytes());
}

/// C0, DEL and C1, the line and paragraph separators, and the marks that turn the direction of text around.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Appends bytes for a field of an access-log line: printable ASCII stays except the quote and the backslash, the rest
/// becomes `\xhh`, as Apache and nginx write it. What was escaped can be told from what was sent.
pub(super) fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    let mut start = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        let plain = matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        if plain {
            continue;
        }
        out.extend_from_slice(&bytes[start..index]);
        start = index + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            _ => hex(b"\\x", byte, out),
        }
    }
    out.extend_from_slice(&bytes[start..]);
}

/// Appends bytes as a JSON string with its quotes (RFC 8259 section 7). UTF-8 stays; a byte that isn't part of valid
/// UTF-8 is taken for latin-1.
pub(super) fn json(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
                // JSON asks for C0 only; DEL, C1 and the separators are escaped for whoever looks at the file.
                c if is_control(c) => unicode(c as u16, out),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for &byte in chunk.invalid() {
            unicode(byte.into(), out);
        }
    }
    out.push(b'"');
}

fn hex(prefix: &[u8], byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(prefix);
    out.extend_from_slice(&[
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]);
}

fn unicode(unit: u16, out: &mut Vec<u8>) {
    hex(b"\\u", (unit >> 8) as u8, out);
    hex(b"", unit as u8, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(escape: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        escape(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_keeps_what_is_readable() {
        let cases = [
            ("ünï \"q\" \\", "ünï \"q\" \\"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31m\u{0}\u{7f}\u{9b}", "\\x1b[31m\\x00\\x7f\\x9b"),
            ("\u{2028}x\u{202e}", "\\u{2028}x\\u{202e}"),
        ];
        for (given, expected) in cases {
            assert_eq!(through(|out| text(given, out)), expected);
        }
    }

    #[test]
    fn quoted_cannot_leave_its_quotes() {
        assert_eq!(through(|out| quoted(b"plain ~", out)), "plain ~");
        assert_eq!(
            through(|out| quoted(b"a\"b\\c\nd\x1b\xc3\xa9", out)),
            r#"a\"b\\c\x0ad\x1b\xc3\xa9"#
        );
    }

    #[test]
    fn json_is_valid_whatever_the_bytes() {
        assert_eq!(
            through(|out| json("é\"\\\n\u{7f}".as_bytes(), out)),
            r#""é\"\\\u000a\u007f""#
        );
        assert_eq!(through(|out| json(b"\xe9\xff", out)), r#""\u00e9\u00ff""#);
        assert_eq!(
            through(|out| json("\u{1F600}\u{2029}".as_bytes(), out)),
            "\"\u{1F600}\\u2029\""
        );
    }

    #[test]
    fn no_byte_makes_a_line_break_or_an_escape_sequence() {
        let all: Vec<u8> = (0..=255).collect();
        for line in [
            through(|out| quoted(&all, out)),
            through(|out| json(&all, out)),
        ] {
            assert!(!line.chars().any(is_control), "{line}");
        }
        let chars: String = (0..0x3000).filter_map(char::from_u32).collect();
        assert!(!through(|out| text(&chars, out)).chars().any(is_control));
    }
}
