//! `wsgi.file_wrapper` (PEP 3333 "Optional Platform-Specific File Handling"): sent whole where it can be, read where not.

use super::bodies::tracked;
use super::{Reply, Setting, Site};
use crate::exchange::{Handler, Progress};

#[test]
fn files_are_sent_from_where_they_stand() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(
        &path,
        (0..200_000u32)
            .map(|n| b'a' + (n % 26) as u8)
            .collect::<Vec<_>>(),
    )
    .unwrap();
    let app = format!(
        r#"
import io
def app(environ, start_response):
    wrap = environ['wsgi.file_wrapper']
    kind = environ['PATH_INFO']
    if kind == '/bytes':
        file = io.BytesIO(b'0123456789')
    elif kind == '/raw':
        file = open({path:?}, 'rb', buffering=0)
    else:
        file = open({path:?}, 'rb')
    if environ['QUERY_STRING']:
        file.seek(int(environ['QUERY_STRING']))
    headers = []
    if kind == '/some':
        headers = [('Content-Length', '5')]
    start_response('200 OK', headers)
    seen.append(file)
    return wrap(file, 4096)
"#
    );
    for may_wait in [true, false] {
        let mut site = tracked(
            Setting {
                may_wait,
                ..Setting::default()
            },
            &app,
        );
        let whole = std::fs::read(&path).unwrap();
        for (target, offset) in [
            ("/plain", 0),
            ("/plain?199990", 199_990),
            ("/raw?7", 7),
            ("/plain?300000", 200_000),
        ] {
            let wire = site.open(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            let (reply, body) = drain(&mut site, wire);
            let expected = &whole[offset..];
            if may_wait || expected.is_empty() {
                assert_eq!(
                    reply.field("content-length"),
                    Some(expected.len().to_string()),
                    "{target}"
                );
                assert!(body == expected, "{target}");
            } else {
                assert_eq!(unchunked(&body), expected, "{target}");
            }
        }
        assert_eq!(site.get("/bytes?3").body(), "7\r\n3456789\r\n0\r\n\r\n");
        assert_eq!(site.get("/some").body(), "abcde");
        assert_eq!(site.look("all(file.closed for file in seen)"), "True");
        let mut head = site.open(b"HEAD /plain HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(site.handler.handle(&mut head.exchange), Progress::Done);
        assert_eq!(head.reply().body(), "");
    }
}

/// Serves one request while a thread reads the other end; returns the reply and its body.
fn drain(site: &mut Site, mut wire: super::Wire) -> (Reply, Vec<u8>) {
    use std::io::Read;
    let mut client = wire.client.take().unwrap();
    client.set_nonblocking(false).unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut progress = site.handler.handle(&mut wire.exchange);
    while let Progress::Waiting(key) = progress {
        while wire.exchange.pending() > 0 {
            wire.exchange.flush().unwrap();
        }
        progress = site.handler.resume(key, &mut wire.exchange);
    }
    while wire.exchange.pending() > 0 {
        wire.exchange.flush().unwrap();
    }
    let ending = format!("{:?}", wire.exchange.ending);
    drop(wire);
    let bytes = reader.join().unwrap();
    let split = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap()
        + 4;
    let body = bytes[split..].to_vec();
    (Reply { bytes, ending }, body)
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line = body.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[line + 2..][..size]);
        body = &body[line + 2 + size + 2..];
    }
}

#[test]
fn the_file_wrapper_by_itself() {
    let mut site = tracked(
        Setting::default(),
        r#"
import io
def app(environ, start_response):
    wrap = environ['wsgi.file_wrapper']
    seen.append(list(wrap(io.BytesIO(b'abcde'), 2)))
    seen.append(list(wrap(filelike=io.BytesIO(b'abc'), block_size=3)))
    for wrong in ((), (1, 0), (1, 'x')):
        try:
            wrap(*wrong)
        except (TypeError, ValueError) as e:
            seen.append(type(e).__name__)
    class NoClose:
        read = staticmethod(lambda size: b'')
    seen.append(wrap(NoClose()).close())
    file = io.BytesIO(b'x')
    kept = wrap(file)
    seen.append((kept.filelike is file, kept.blksize > 0))
    kept.close()
    seen.append(file.closed)
    start_response('200 OK', [])
    return [b'x']
"#,
    );
    assert_eq!(site.get("/").status(), 200);
    assert_eq!(
        site.look("seen"),
        "[[b'ab', b'cd', b'e'], [b'abc'], 'TypeError', 'ValueError', 'TypeError', None, (True, True), True]"
    );
}
