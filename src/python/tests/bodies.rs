//! PEP 3333 "Buffering and Streaming": iterables of every kind, and `close()` exactly once on every path.

use super::{Reply, Setting, Site};
use crate::exchange::{Handler, Progress};

/// `Body(pieces)` notes in `seen` how it was used; a piece that is an exception is raised.
pub(super) const TRACKED: &str = r#"
seen = []
class Body:
    def __init__(self, pieces):
        self.pieces = iter(pieces)
    def __iter__(self):
        return self
    def __next__(self):
        piece = next(self.pieces)
        if isinstance(piece, BaseException):
            raise piece
        return piece
    def close(self):
        seen.append('close')
"#;

pub(super) fn tracked(setting: Setting, app: &str) -> Site {
    Site::with(&format!("{TRACKED}\n{app}"), setting)
}

fn returning(result: &str) -> Site {
    tracked(
        Setting::default(),
        &format!(
            "def app(environ, start_response):\n    start_response('200 OK', [('Content-Type', 'text/plain')])\n    return {result}\n"
        ),
    )
}

#[track_caller]
fn check_counted(reply: &Reply, body: &str) {
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.field("content-length"), Some(body.len().to_string()));
    assert_eq!(reply.body(), body);
    assert_eq!(reply.ending, "KeepAlive");
}

#[test]
fn whole_bodies_have_a_length() {
    for (result, body) in [
        ("[b'hello']", "hello"),
        ("(b'hello',)", "hello"),
        ("[b'a', b'', b'bc']", "abc"),
        ("(b'a', b'b')", "ab"),
        ("[]", ""),
        ("()", ""),
        ("[b'']", ""),
        ("[b'', b'']", ""),
        ("[type('B', (bytes,), {})(b'sub')]", "sub"),
    ] {
        check_counted(&returning(result).get("/"), body);
    }
}

#[test]
fn pieces_are_chunks() {
    for result in [
        "Body([b'one', b'', b'two'])",
        "(piece for piece in (b'', b'one', b'two', b''))",
        "iter([b'one', b'two'])",
        "type('L', (list,), {})([b'one', b'two'])",
        "{b'one': 1, b'two': 2}",
        "type('NoLen', (Body,), {'__len__': lambda self: 1/0})([b'one', b'two'])",
        "map(bytes, ([111, 110, 101], [116, 119, 111]))",
    ] {
        let reply = returning(result).get("/");
        assert_eq!(
            reply.field("transfer-encoding").as_deref(),
            Some("chunked"),
            "{result}"
        );
        assert_eq!(
            reply.body(),
            "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
            "{result}"
        );
        assert_eq!(reply.ending, "KeepAlive", "{result}");
    }
}

#[test]
fn an_iterable_of_one_piece_has_a_length() {
    for result in [
        "type('L', (list,), {})([b'hello'])",
        "{b'hello'}",
        "type('B', (Body,), {'__len__': lambda self: 1})([b'', b'hello', b''])",
        // One that does not tell the truth gets what it said.
        "type('B', (Body,), {'__len__': lambda self: 1})([b'hello', b'more'])",
    ] {
        check_counted(&returning(result).get("/"), "hello");
    }
}

#[test]
fn an_iterable_without_pieces() {
    for result in ["Body([])", "iter([])", "Body([b'', b''])"] {
        check_counted(&returning(result).get("/"), "");
    }
}

#[test]
fn to_http_1_0_a_stream_ends_with_the_connection() {
    let mut site = returning("Body([b'one', b'two'])");
    let reply = site.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(
        (reply.body().as_str(), reply.ending.as_str()),
        ("onetwo", "Close")
    );
    assert_eq!(site.look("seen"), "['close']");
}

#[test]
fn start_response_may_come_with_the_first_piece() {
    let mut site = Site::new(
        "def app(environ, start_response):\n    start_response('200 OK', [('X', 'late')])\n    yield b''\n    yield b'x'\n",
    );
    let reply = site.get("/");
    assert_eq!(
        (reply.status(), reply.field("x").as_deref()),
        (200, Some("late"))
    );
}

#[test]
fn an_error_before_the_first_piece_can_still_be_answered() {
    let mut site = Site::new(
        r#"
import sys
def app(environ, start_response):
    start_response('200 OK', [])
    yield b''
    try:
        1 / 0
    except ZeroDivisionError:
        start_response('503 Sorry', [], sys.exc_info())
        yield b'sorry'
"#,
    );
    let reply = site.get("/");
    assert!(
        reply.head().starts_with("HTTP/1.1 503 Sorry"),
        "{}",
        reply.head()
    );
    assert_eq!(reply.body(), "5\r\nsorry\r\n0\r\n\r\n");
}

#[test]
fn what_is_not_bytes() {
    for result in [
        "b'bytes'",
        "'text'",
        "['text']",
        "[b'a', 'text']",
        "(1,)",
        "None",
        "5",
        "Body(['text'])",
        "Body([None])",
    ] {
        let mut site = returning(result);
        let reply = site.get("/");
        assert_eq!(
            (reply.status(), reply.ending.as_str()),
            (500, "Close"),
            "{result}"
        );
        let closes = if result.starts_with("Body") {
            "['close']"
        } else {
            "[]"
        };
        assert_eq!(site.look("seen"), closes, "{result}");
    }
}

#[test]
fn an_error_in_the_middle_cuts_the_response() {
    for error in ["1 / 0", "ValueError()", "SystemExit()", "'text'"] {
        let error = if error == "1 / 0" {
            "ZeroDivisionError()"
        } else {
            error
        };
        let mut site = returning(&format!("Body([b'one', {error}, b'two'])"));
        let reply = site.get("/");
        assert_eq!(reply.status(), 200, "{error}");
        assert_eq!(reply.body(), "3\r\none\r\n", "{error}");
        assert_eq!(reply.ending, "Close", "{error}");
        assert_eq!(site.look("seen"), "['close']", "{error}");
    }
    // Where only the connection's end marks the body's, the cut must not pass for it.
    let mut site = returning("Body([b'one', ValueError()])");
    assert_eq!(site.ask("GET / HTTP/1.0\r\n\r\n").ending, "Reset");
}

#[test]
fn an_error_before_anything_is_a_500() {
    let mut site = returning("Body([b'', ValueError()])");
    assert_eq!(site.get("/").status(), 500);
    assert_eq!(site.look("seen"), "['close']");
}

#[test]
fn close_is_called_once_on_every_path() {
    for (result, status) in [
        ("Body([b'x'])", 200),
        ("Body([])", 200),
        ("Body([b'x', ValueError()])", 200),
        ("Body([ValueError()])", 500),
        (
            "type('NoIter', (), {'close': lambda self: seen.append('close')})()",
            500,
        ),
        (
            "type('BadIter', (), {'__iter__': lambda self: 1/0, 'close': lambda self: seen.append('close')})()",
            500,
        ),
    ] {
        let mut site = returning(result);
        assert_eq!(site.get("/").status(), status, "{result}");
        assert_eq!(site.look("seen"), "['close']", "{result}");
    }
}

#[test]
fn a_close_that_fails_does_not_harm_the_response() {
    let mut site = returning("type('B', (Body,), {'close': lambda self: 1/0})([b'x'])");
    let reply = site.get("/");
    assert_eq!(
        (reply.body().as_str(), reply.ending.as_str()),
        ("1\r\nx\r\n0\r\n\r\n", "KeepAlive")
    );
}

#[test]
fn close_comes_after_the_end_was_sent() {
    // What close() finds on the client's side of the connection.
    let mut site = tracked(
        Setting::default(),
        r#"
import os
class Closing(Body):
    def close(self):
        seen.append(os.read(int(self.client), 65536).decode())
def app(environ, start_response):
    start_response('200 OK', [])
    body = Closing([b'x'])
    body.client = environ['HTTP_X_CLIENT']
    return body
"#,
    );
    use std::os::fd::AsRawFd;
    let mut wire = site.open(b"GET / HTTP/1.1\r\nHost: a\r\nX-Client: 999\r\n\r\n");
    let client = wire.client.take().unwrap();
    let descriptor = client.as_raw_fd().to_string();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Client: {descriptor}\r\n\r\n");
    let mut wire2 = site.open(request.as_bytes());
    std::mem::swap(&mut wire.exchange.stream, &mut wire2.exchange.stream);
    assert_eq!(site.handler.handle(&mut wire2.exchange), Progress::Done);
    assert!(
        site.look("seen[0]").ends_with("1\r\nx\r\n0\r\n\r\n"),
        "{}",
        site.look("seen")
    );
}

#[test]
fn bodies_of_answers_that_have_none_are_dropped() {
    for (request, status) in [
        ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "204 No Content"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "304 Not Modified"),
    ] {
        for result in [
            "[b'x']",
            "[b'x', b'y']",
            "Body([b'x', b'y'])",
            "Body(iter(lambda: b'x', 0))",
        ] {
            let app = format!(
                "def app(environ, start_response):\n    start_response('{status}', [])\n    return {result}\n"
            );
            let mut site = tracked(Setting::default(), &app);
            let reply = site.ask(request);
            assert_eq!(
                (reply.body().as_str(), reply.ending.as_str()),
                ("", "KeepAlive"),
                "{request} {status} {result}"
            );
            let closes = if result.starts_with("Body") {
                "['close']"
            } else {
                "[]"
            };
            assert_eq!(site.look("seen"), closes, "{request} {status} {result}");
        }
    }
}

#[test]
fn a_stream_keeps_to_its_announced_length() {
    let site = |length: &str, result: &str| {
        tracked(
            Setting::default(),
            &format!(
                "def app(environ, start_response):\n    start_response('200 OK', [('Content-Length', '{length}')])\n    return {result}\n"
            ),
        )
    };
    let mut exact = site("6", "Body([b'one', b'two'])");
    check_counted(&exact.get("/"), "onetwo");
    let mut endless = site("5", "Body(iter(lambda: b'abc', 0))");
    let reply = endless.get("/");
    assert_eq!(reply.body(), "abcab");
    assert_eq!(endless.look("seen"), "['close']");
    let mut short = site("9", "Body([b'one'])");
    let reply = short.get("/");
    assert_eq!(
        (reply.body().as_str(), reply.ending.as_str()),
        ("one", "Close")
    );
}

#[test]
fn a_client_that_goes_away_ends_the_iteration() {
    for may_wait in [true, false] {
        let setting = Setting {
            may_wait,
            ..Setting::default()
        };
        let app = "def app(environ, start_response):\n    start_response('200 OK', [])\n    return Body(iter(lambda: b'x' * 65536, 0))\n";
        let mut site = tracked(setting, app);
        let mut wire = site.open(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wire.client = None;
        assert_eq!(site.handler.handle(&mut wire.exchange), Progress::Done);
        assert!(wire.exchange.is_gone());
        assert_eq!(site.look("seen"), "['close']");
        // The thread serves on.
        let mut wire = site.open(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(site.handler.handle(&mut wire.exchange), Progress::Done);
    }
}

#[test]
fn a_client_that_goes_away_ends_a_writing_application() {
    let mut site = tracked(
        Setting::default(),
        "def app(environ, start_response):\n    write = start_response('200 OK', [])\n    try:\n        while True:\n            write(b'x' * 65536)\n    except OSError as e:\n        seen.append(type(e).__name__)\n        raise\n",
    );
    let mut wire = site.open(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.client = None;
    assert_eq!(site.handler.handle(&mut wire.exchange), Progress::Done);
    assert_eq!(site.look("seen"), "['BrokenPipeError']");
}

#[test]
fn a_client_that_does_not_read_runs_into_the_time_out() {
    let app = "def app(environ, start_response):\n    start_response('200 OK', [])\n    return Body(iter(lambda: b'x' * 65536, 0))\n";
    let mut site = tracked(Setting::default(), app);
    let mut wire = site.open(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(site.handler.handle(&mut wire.exchange), Progress::Done);
    assert!(wire.exchange.is_gone());
    assert_eq!(site.look("seen"), "['close']");
}

const LONG: &str = r#"
import contextvars
turn = contextvars.ContextVar('turn', default='nobody')
def pieces(name, number):
    turn.set(name)
    for _ in range(number):
        seen.append(turn.get())
        yield b'x' * 65536
    assert turn.get() == name
class Long(Body):
    pass
def app(environ, start_response):
    seen.append(turn.get())
    start_response('200 OK', [])
    name = environ['PATH_INFO']
    if name == '/short':
        return [b'short']
    return Long(pieces(name, int(environ['QUERY_STRING'])))
"#;

/// Where the thread must not wait, responses to slow readers are put aside, and others are answered meanwhile.
#[test]
fn slow_readers_are_put_aside_and_resumed() {
    let mut site = tracked(
        Setting {
            may_wait: false,
            ..Setting::default()
        },
        LONG,
    );
    let mut wires = Vec::new();
    for name in ["a", "b"] {
        let mut wire = site.open(format!("GET /{name}?40 HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let Progress::Waiting(key) = site.handler.handle(&mut wire.exchange) else {
            panic!("2.5 MB do not fit into a socket's buffer")
        };
        wires.push((wire, key, Vec::new()));
        assert_eq!(site.get("/short").body(), "short");
    }
    assert_eq!(site.look("'close' in seen"), "False");
    let mut open = wires.len();
    while open > 0 {
        for (wire, key, bytes) in &mut wires {
            if *key == u32::MAX {
                continue;
            }
            loop {
                let done = wire.exchange.flush().is_ok() && wire.exchange.pending() == 0;
                wire.read(bytes);
                if done {
                    break;
                }
            }
            match site.handler.resume(*key, &mut wire.exchange) {
                Progress::Waiting(next) => *key = next,
                Progress::Done => {
                    let rest = wire.reply();
                    bytes.extend_from_slice(&rest.bytes);
                    *key = u32::MAX;
                    open -= 1;
                }
            }
            assert_eq!(site.get("/short").body(), "short");
        }
    }
    for (_, _, bytes) in &wires {
        assert!(bytes.len() > 40 * 65536, "{}", bytes.len());
        assert!(bytes.ends_with(b"0\r\n\r\n"));
    }
    assert_eq!(site.look("seen.count('close')"), "2");
    assert_eq!(
        site.look("(seen.count('/a'), seen.count('/b'))"),
        "(40, 40)"
    );
    assert_eq!(
        site.look("set(seen) - {'close'} == {'/a', '/b', 'nobody'}"),
        "True"
    );
}

#[test]
fn a_suspended_response_that_is_abandoned_is_closed() {
    let mut site = tracked(
        Setting {
            may_wait: false,
            ..Setting::default()
        },
        LONG,
    );
    let mut wire = site.open(b"GET /a?100 HTTP/1.1\r\nHost: a\r\n\r\n");
    let Progress::Waiting(key) = site.handler.handle(&mut wire.exchange) else {
        panic!()
    };
    drop(wire);
    site.handler.abandon(key);
    assert_eq!(site.look("seen[-1]"), "close");
    assert_eq!(site.get("/short").body(), "short");
    assert_eq!(site.look("seen[-1]"), "nobody");
}

#[test]
fn a_handler_that_ends_with_a_suspended_response_closes_it() {
    let mut site = tracked(
        Setting {
            may_wait: false,
            ..Setting::default()
        },
        LONG,
    );
    let mut wire = site.open(b"GET /a?100 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(matches!(
        site.handler.handle(&mut wire.exchange),
        Progress::Waiting(_)
    ));
    let Site { handler, names, .. } = site;
    drop(handler);
    let thread = super::ThreadState::make();
    let seen = thread.attached(|py| {
        // SAFETY: attached; the module's dict is never released.
        let seen = unsafe {
            super::Owned::borrowed(super::ffi::PyDict_GetItemString(names, c"seen".as_ptr()))
        };
        py.display(&seen).unwrap()
    });
    assert!(seen.ends_with("'close']"), "{seen}");
}
