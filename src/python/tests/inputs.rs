//! PEP 3333 "Input and Error Streams": `wsgi.input` against `io.BytesIO`, in memory and spooled.

use std::io::{Seek, Write};

use super::{Reply, Site};
use crate::exchange::{Collected, Handler, Progress};

/// Evaluates the query on `i`, which is the input, and answers with the value's repr.
const EVAL: &str = r#"
import io
from urllib.parse import unquote
kept = None
def app(environ, start_response):
    global kept
    kept = i = environ['wsgi.input']
    try:
        value = eval(unquote(environ['QUERY_STRING']), {'i': i, 'io': io, 'environ': environ})
    except Exception as e:
        value = type(e).__name__
    start_response('200 OK', [])
    return [repr(value).encode()]
"#;

/// One request with `body`, held as `spooled` says.
fn ask(site: &mut Site, body: &[u8], spooled: bool, expression: &str) -> Reply {
    let query: String = expression
        .bytes()
        .map(|byte| format!("%{byte:02x}"))
        .collect();
    let mut wire = site.open(
        format!("POST /?{query} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").as_bytes(),
    );
    wire.exchange.body = if spooled {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(body).unwrap();
        file.rewind().unwrap();
        Collected::Spooled(std::io::BufWriter::new(file), body.len() as u64)
    } else if body.is_empty() {
        Collected::Nothing
    } else {
        Collected::Memory(body.to_vec())
    };
    assert_eq!(site.handler.handle(&mut wire.exchange), Progress::Done);
    wire.reply()
}

#[test]
fn reads_as_bytes_io_does() {
    let bodies: [&[u8]; 5] = [b"", b"one", b"one\ntwo\n\nthree", b"\n\n", b"a\r\nb\r\n"];
    let expressions = [
        "i.read()",
        "i.read(None)",
        "i.read(-1)",
        "i.read(0)",
        "i.read(2)",
        "[i.read(2), i.read(3), i.read(), i.read(), i.read(1)]",
        "i.read1(2)",
        "[i.readline(), i.readline(), i.read()]",
        "[i.readline(2), i.readline(100), i.readline(0), i.readline(-1), i.readline(None)]",
        "i.readlines()",
        "i.readlines(4)",
        "i.readlines(0)",
        "i.readlines(None)",
        "[i.readline()] + i.readlines()",
        "list(i)",
        "[next(i, None), i.read()]",
        "iter(i) is i",
        "[i.readinto(b := bytearray(2)), bytes(b), i.read()]",
        "i.readinto(bytearray(0))",
        "i.readinto(b'fixed')",
        "i.read('x')",
        "i.read(1, 2)",
        "i.read(1.5)",
        "i.readinto()",
        "[i.readable(), i.closed]",
        "io.BufferedReader(i, 2).read()",
        "io.TextIOWrapper(i).readlines()",
        "[i.read(size) for size in (1, True, 2)]",
        "i.read(10**6)",
        "i.read(2**62)",
    ];
    let mut site = Site::new(EVAL);
    for body in bodies {
        for expression in expressions {
            let wanted = site.look(&format!(
                "(lambda i: [r := None, exec('try:\\n  r = repr(eval(x))\\nexcept Exception as e:\\n  r = repr(type(e).__name__)', \
                 n := {{'i': i, 'io': io, 'x': {expression:?}}}), n['r']][-1])(io.BytesIO({:?}.encode('latin-1')))",
                String::from_utf8_lossy(body)
            ));
            for spooled in [false, true] {
                let found = ask(&mut site, body, spooled, expression).body();
                assert_eq!(
                    found,
                    wanted,
                    "{expression} of {:?}, spooled: {spooled}",
                    String::from_utf8_lossy(body)
                );
            }
        }
    }
}

#[test]
fn close_does_nothing() {
    let mut site = Site::new(EVAL);
    for spooled in [false, true] {
        assert_eq!(
            ask(&mut site, b"abc", spooled, "[i.close(), i.read()]").body(),
            "[None, b'abc']"
        );
    }
}

#[test]
fn long_lines_of_a_spooled_body() {
    let mut site = Site::new(EVAL);
    let mut body = Vec::new();
    for length in [10, 70_000, 0, 200_000, 65_535, 65_536, 3] {
        body.extend(std::iter::repeat_n(b'x', length));
        body.push(b'\n');
    }
    body.extend_from_slice(b"rest");
    let reply = ask(&mut site, &body, true, "[len(line) for line in i]");
    assert_eq!(reply.body(), "[11, 70001, 1, 200001, 65536, 65537, 4, 4]");
    let reply = ask(
        &mut site,
        &body,
        true,
        "[len(i.readline()), len(i.read(5)), len(i.readline()), len(i.readline(7)), i.read()[-4:]]",
    );
    assert_eq!(reply.body(), "[11, 5, 69996, 1, b'rest']");
}

#[test]
fn a_file_that_became_shorter_is_an_os_error() {
    let mut site = Site::new(EVAL);
    for expression in ["i.read()", "i.readline()", "i.readinto(bytearray(5))"] {
        let query: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let mut wire = site.open(
            format!("POST /?{query} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").as_bytes(),
        );
        wire.exchange.body =
            Collected::Spooled(std::io::BufWriter::new(tempfile::tempfile().unwrap()), 5);
        assert_eq!(site.handler.handle(&mut wire.exchange), Progress::Done);
        assert_eq!(wire.reply().body(), "'OSError'", "{expression}");
    }
}

#[test]
fn an_input_that_is_kept_stays_readable() {
    let mut site = Site::new(EVAL);
    for spooled in [false, true] {
        ask(&mut site, b"one\ntwo", spooled, "i.readline()");
        site.get("/");
        ask(&mut site, b"one\ntwo", spooled, "i.readline()");
        assert_eq!(site.look("kept.read()"), "b'two'");
    }
}

#[test]
fn several_threads_share_the_bytes_out() {
    let mut site = Site::new(
        r#"
import threading
def app(environ, start_response):
    i, parts, failed = environ['wsgi.input'], [], []
    def work():
        try:
            while part := (i.readline(3) if len(parts) % 2 else i.read(5)):
                parts.append(part)
        except BaseException as e:
            failed.append(e)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    start_response('200 OK', [])
    return [repr((sum(map(len, parts)), sum(p.count(b'\n') for p in parts), failed)).encode()]
"#,
    );
    let body: Vec<u8> = (0..100_000)
        .map(|n| if n % 7 == 0 { b'\n' } else { b'x' })
        .collect();
    for spooled in [false, true] {
        assert_eq!(
            ask(&mut site, &body, spooled, "0").body(),
            "(100000, 14286, [])"
        );
    }
}

#[test]
fn the_error_stream_takes_text() {
    let mut site = Site::new(
        r#"
def app(environ, start_response):
    e, seen = environ['wsgi.errors'], []
    seen.append(e.write('wsgi.errors: h\xe9llo\n'))
    seen.append(e.write('wsgi.errors: half '))
    e.flush()
    e.writelines(['a line', ' in parts\n', '\ud800\n'])
    for wrong in (b'x', None, 5):
        try:
            e.write(wrong)
        except TypeError as error:
            seen.append('TypeError')
    try:
        e.writelines([b'x'])
    except TypeError as error:
        seen.append('TypeError')
    print('wsgi.errors: printed', file=e)
    import logging
    logging.StreamHandler(e).emit(logging.makeLogRecord({'msg': 'wsgi.errors: logged'}))
    seen.append((e.isatty(), e.encoding))
    e.write('wsgi.errors: without an end')
    start_response('200 OK', [])
    return [repr(seen).encode()]
"#,
    );
    assert_eq!(
        site.get("/").body(),
        "[19, 18, 'TypeError', 'TypeError', 'TypeError', 'TypeError', (False, 'utf-8')]"
    );
}
