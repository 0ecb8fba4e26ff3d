//! The bounds on a head: at each of them the last size that fits and the first that doesn't, for every
//! way of splitting the input.

use super::request::read_one;
use crate::http1::RequestError::{self, *};
use crate::http1::{BLANK_LINES, Limits};

fn outcome(input: &[u8], limits: &Limits) -> Result<(), RequestError> {
    let whole = read_one(input, &mut [input.len()].into_iter(), limits);
    for step in [1, 2, 5] {
        let split = read_one(input, &mut std::iter::repeat(step), limits);
        assert_eq!(whole, split, "by {step}: {}", input.escape_ascii());
    }
    whole.map(|message| assert!(message.is_some(), "{}", input.escape_ascii()))
}

#[test]
fn request_line() {
    let limits = Limits {
        request_line: 20,
        ..Limits::default()
    };
    let line = |length: usize| {
        let target = "x".repeat(length - "GET / HTTP/1.1".len());
        format!("GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n")
    };
    assert_eq!(outcome(line(20).as_bytes(), &limits), Ok(()));
    assert_eq!(
        outcome(line(21).as_bytes(), &limits),
        Err(RequestLineTooLong)
    );
    // Refused before its end is there, however it goes on.
    assert_eq!(
        outcome("G".repeat(22).as_bytes(), &limits),
        Err(RequestLineTooLong)
    );
    assert_eq!(
        outcome(b"GET /xxxxxx HTTP/1.1x\n", &limits),
        Err(BareLineFeed)
    );
    assert_eq!(RequestLineTooLong.status(), 414);
    // Empty lines before it don't count.
    assert_eq!(
        outcome(format!("\r\n{}", line(20)).as_bytes(), &limits),
        Ok(())
    );
}

#[test]
fn field_size() {
    let limits = Limits {
        field_size: 12,
        ..Limits::default()
    };
    for (before, after) in [("", "C: d\r\n"), ("C: d\r\n", ""), ("", "")] {
        let head = |field: &str| {
            format!("GET / HTTP/1.1\r\nHost: a\r\n{before}{field}\r\n{after}\r\n").into_bytes()
        };
        assert_eq!(outcome(&head("Xx: 12345678"), &limits), Ok(()));
        assert_eq!(outcome(&head("Xx: 123456789"), &limits), Err(FieldTooLong));
        assert_eq!(outcome(&head("Xx:         9"), &limits), Err(FieldTooLong));
        assert_eq!(outcome(&head("Xx:          "), &limits), Err(FieldTooLong));
    }
    let endless = format!("GET / HTTP/1.1\r\nHost: a\r\n{}", "x".repeat(14));
    assert_eq!(outcome(endless.as_bytes(), &limits), Err(FieldTooLong));
    assert_eq!(FieldTooLong.status(), 431);
}

#[test]
fn fields() {
    // Below, at and beyond the fields that fit on the stack.
    for limit in [1, 2, 31, 32, 33, 100] {
        let limits = Limits {
            fields: limit,
            ..Limits::default()
        };
        let head = |count: usize| {
            let fields = "X: y\r\n".repeat(count - 1);
            format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
        };
        assert_eq!(outcome(&head(limit), &limits), Ok(()));
        assert_eq!(outcome(&head(limit + 1), &limits), Err(TooManyFields));
        // Refused without waiting for the end.
        let endless = head(limit + 1);
        let cut = &endless[..endless.len() - 2];
        assert_eq!(outcome(cut, &limits), Err(TooManyFields));
    }
    assert_eq!(TooManyFields.status(), 431);
}

#[test]
fn head_size() {
    let head = b"\r\nGET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
    for bound in 0..head.len() + 2 {
        let limits = Limits {
            head_size: bound,
            ..Limits::default()
        };
        let expected = if bound < head.len() {
            Err(HeadTooLarge)
        } else {
            Ok(())
        };
        assert_eq!(outcome(head, &limits), expected, "{bound}");
        let alone = &head[2..];
        let expected = if bound < alone.len() {
            Err(HeadTooLarge)
        } else {
            Ok(())
        };
        assert_eq!(outcome(alone, &limits), expected, "{bound}");
    }
    assert_eq!(HeadTooLarge.status(), 431);
}

/// The shortest field lines, more than fit on the stack, with a bound that must not be taken for a size.
#[test]
fn as_many_fields_as_the_bytes_allow() {
    let limits = Limits {
        fields: usize::MAX,
        ..Limits::default()
    };
    for count in [32, 33, 34, 1000] {
        let input = format!("GET / HTTP/1.0\r\n{}\r\n", "X:\r\n".repeat(count));
        assert_eq!(outcome(input.as_bytes(), &limits), Ok(()));
    }
}

/// Of two bounds the one that is crossed first is named, whatever the split.
#[test]
fn two_bounds() {
    let input = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100));
    for request_line in 20..60 {
        for head_size in 20..60 {
            let limits = Limits {
                request_line,
                head_size,
                ..Limits::default()
            };
            let line_first = request_line < head_size;
            let expected = if line_first {
                RequestLineTooLong
            } else {
                HeadTooLarge
            };
            assert_eq!(outcome(input.as_bytes(), &limits), Err(expected));
        }
    }
}

#[test]
fn blank_lines() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for count in 0..=BLANK_LINES as usize + 2 {
        let input = format!("{}{request}", "\r\n".repeat(count));
        let expected = if count <= BLANK_LINES as usize {
            Ok(())
        } else {
            Err(BlankLines)
        };
        assert_eq!(outcome(input.as_bytes(), &Limits::default()), expected);
    }
}

#[test]
fn length() {
    let input = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let with = |body| {
        outcome(
            input,
            &Limits {
                body,
                ..Limits::default()
            },
        )
    };
    assert_eq!(with(5), Ok(()));
    assert_eq!(with(4), Err(BodyTooLarge));
    assert_eq!(with(0), Ok(()));
    // At the head, before the body (and before a 100) is asked for.
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let limits = Limits {
        body: 4,
        ..Limits::default()
    };
    assert_eq!(outcome(head, &limits), Err(BodyTooLarge));
}

/// A head that comes in byte by byte is looked at once, not once for every byte: with 60 KiB the
/// quadratic way takes 2 thousand million steps, which no patience of a test run has.
#[test]
fn partial_heads_are_not_looked_at_twice() {
    let mut input = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    let field = format!("X: {}\r\n", "y".repeat(8000));
    for _ in 0..7 {
        input.extend_from_slice(field.as_bytes());
    }
    input.extend_from_slice(b"\r\n");
    let got = read_one(&input, &mut std::iter::repeat(1), &Limits::default())
        .unwrap()
        .unwrap();
    assert_eq!(got.length, input.len());
}
