//! Limits of queue, connections and memory, and what is counted and logged of them.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use m0serve::config::Timeouts;

use m0serve::observe::access::{AccessLog, Format, Target};
use m0serve::observe::counters::Counter;

use crate::harness::*;

#[test]
fn a_full_queue_answers_503_and_keeps_the_connection() {
    let running = Setup {
        queue_limit: 1,
        ..Setup::new(1, 1)
    }
    .start();
    let mut clients: Vec<_> = (0..4).map(|_| connect(running.address)).collect();
    for client in &mut clients {
        assert!(get(client, "/?warm").is_some());
    }
    ask(&mut clients[0], "/gate?blocked");
    running.stage.wait_inside(1);
    ask(&mut clients[1], "/?queued");
    // It is in the queue when a request behind it has been answered.
    assert_eq!(get(&mut clients[2], "/health").unwrap().0, 200);
    ask(&mut clients[3], "/?refused");
    let (code, head, _) = whole_answer(&mut clients[3]).unwrap();
    assert_eq!(code, 503);
    assert!(head.contains("Retry-After: "), "{head}");
    assert_eq!(running.common.counters.sum(Counter::QueueFull), 1);
    running.stage.open();
    assert!(answer(&mut clients[0]).is_some());
    assert_eq!(answer(&mut clients[1]), Some((200, b"queued".to_vec())));
    assert_eq!(get(&mut clients[3], "/?now"), Some((200, b"now".to_vec())));
    assert!(running.server.stop());
}

#[test]
fn a_refused_request_is_counted_once_and_logged_as_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let format = Format::compile("%(m)s %(U)s %(s)s %(B)s").unwrap();
    let running = Setup {
        access_log: Some(AccessLog::open(Target::File(file.clone()), format).unwrap()),
        ..Setup::new(1, 0)
    }
    .start();
    let mut stream = connect(running.address);
    assert!(get(&mut stream, "/?twelve-bytes").is_some());
    stream
        .write_all(b"GET / HTTP/1.1\r\nBad Name: a\r\n\r\n")
        .unwrap();
    let (code, body) = answer(&mut stream).unwrap();
    assert_eq!(code, 400);
    drop(stream);
    let count = |counter| running.common.counters.sum(counter);
    eventually("the connection is closed", || count(Counter::Closed) == 1);
    assert_eq!(count(Counter::Refused), 1);
    assert_eq!(count(Counter::Requests), 1);
    assert_eq!(count(Counter::Responses), 2);
    assert!(running.server.stop());
    eventually("the log is written", || {
        std::fs::read_to_string(&file).unwrap().lines().count() == 2
    });
    let log = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines[0], "GET / 200 12");
    assert!(
        lines[1].ends_with(&format!(" 400 {}", body.len())),
        "{}",
        lines[1]
    );
}

#[test]
fn a_body_in_tiny_chunks_is_collected_whole() {
    let running = start(1, 0);
    let mut stream = connect(running.address);
    stream
        .write_all(b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    // Beyond what is kept in memory.
    let mut chunks = String::new();
    for _ in 0..10_000 {
        write!(chunks, "1\r\nx\r\n").unwrap();
    }
    for _ in 0..60 {
        stream.write_all(chunks.as_bytes()).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(answer(&mut stream), Some((200, b"600000".to_vec())));
    assert!(running.server.stop());
}

#[test]
fn an_empty_line_behind_a_request_is_no_request() {
    for waits in [false, true] {
        let timeouts = Timeouts {
            head: Duration::from_millis(200),
            ..Timeouts::default()
        };
        let running = Setup {
            timeouts,
            ..Setup::new(1, 0)
        }
        .start();
        let mut stream = connect(running.address);
        stream
            .write_all(b"GET /?first HTTP/1.1\r\nHost: a\r\n\r\n\r\n")
            .unwrap();
        assert_eq!(answer(&mut stream), Some((200, b"first".to_vec())));
        if !waits {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        // It ends, for the one reason or the other, and there is nobody to be told what was wrong.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(String::from_utf8(rest).unwrap(), "");
        assert_eq!(running.common.counters.sum(Counter::Refused), 0);
        assert!(running.server.stop());
    }
}
