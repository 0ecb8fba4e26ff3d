//! Time-outs: each ends what it is for, and nothing else.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use m0serve::config::Timeouts;
use m0serve::observe::counters::Counter;
use m0serve::pool::Controls;

use crate::harness::*;

const SHORT: Duration = Duration::from_millis(300);

fn setup(threads: usize, blocking_threads: usize, timeouts: Timeouts) -> Setup {
    Setup {
        timeouts,
        ..Setup::new(threads, blocking_threads)
    }
}

fn short_idle() -> Timeouts {
    Timeouts {
        idle: SHORT,
        ..Timeouts::default()
    }
}

fn assert_closed(stream: &mut TcpStream) {
    assert_eq!(stream.read(&mut [0; 16]).expect("the end of the stream"), 0);
}

#[test]
fn an_idle_connection_is_closed_also_when_no_driver_ever_parked_it() {
    for baton in [true, false] {
        let (listener, address) = listen();
        let mut stream = connect(address);
        // It is there before the connection is accepted, so that it becomes a job at once.
        ask(&mut stream, "/?first");
        let controls = Controls {
            baton,
            ..Controls::ALL_ON
        };
        let running = Setup {
            controls,
            ..setup(1, 1, short_idle())
        }
        .start_on(listener);
        assert_eq!(answer(&mut stream), Some((200, b"first".to_vec())));
        assert_closed(&mut stream);
        assert!(running.server.stop());
    }
}

#[test]
fn a_silent_connection_is_closed() {
    let running = setup(1, 0, short_idle()).start();
    let mut stream = connect(running.address);
    assert_closed(&mut stream);
    assert_eq!(running.common.counters.sum(Counter::TimedOut), 1);
    assert!(running.server.stop());
}

/// Passes when so much time has gone by in a view.
fn hold_the_loop(running: &Running, held_for: Duration) -> TcpStream {
    let mut holder = connect(running.address);
    ask(&mut holder, "/gate?hold");
    running.stage.wait_inside(1);
    let begun = Instant::now();
    while begun.elapsed() < held_for {
        thread::sleep(held_for.saturating_sub(begun.elapsed()));
    }
    holder
}

#[test]
fn idle_time_counts_from_the_response_however_long_the_view_took() {
    let running = setup(1, 0, short_idle()).start();
    let mut holder = hold_the_loop(&running, 2 * SHORT);
    let mut other = connect(running.address);
    ask(&mut other, "/?other");
    running.stage.open();
    assert_eq!(answer(&mut holder), Some((200, b"hold".to_vec())));
    // By now the loop has looked at its clock again.
    assert_eq!(answer(&mut other), Some((200, b"other".to_vec())));
    assert_eq!(get(&mut other, "/?tick"), Some((200, b"tick".to_vec())));
    assert_eq!(get(&mut holder, "/?again"), Some((200, b"again".to_vec())));
    assert!(running.server.stop());
}

#[test]
fn a_request_that_came_before_its_connections_idle_time_was_looked_at_is_answered() {
    let running = setup(1, 0, short_idle()).start();
    // More than one wait for readiness reports.
    let mut clients: Vec<_> = (0..400).map(|_| connect(running.address)).collect();
    for client in &mut clients {
        assert_eq!(get(client, "/?here"), Some((200, b"here".to_vec())));
    }
    let mut holder = hold_the_loop(&running, 2 * SHORT);
    for client in &mut clients {
        ask(client, "/?there");
    }
    running.stage.open();
    assert!(answer(&mut holder).is_some());
    for client in &mut clients {
        assert_eq!(answer(client), Some((200, b"there".to_vec())));
    }
    assert!(running.server.stop());
}

#[test]
fn a_trickled_head_is_cut_off_in_spite_of_its_progress() {
    let timeouts = Timeouts {
        head: SHORT,
        ..Timeouts::default()
    };
    let running = setup(1, 0, timeouts).start();
    let mut stream = connect(running.address);
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let mut trickle = stream.try_clone().unwrap();
    // One field after the other, until the server has had enough.
    let trickling = thread::spawn(move || {
        for _ in 0..90 {
            if trickle.write_all(b"X: y\r\n").is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(answer(&mut stream).unwrap().0, 408);
    drop(stream);
    trickling.join().unwrap();
    assert!(running.server.stop());
}

#[test]
fn a_body_that_stops_coming_is_refused_and_one_that_goes_on_is_not() {
    let timeouts = Timeouts {
        body: SHORT,
        ..Timeouts::default()
    };
    let running = setup(1, 0, timeouts).start();
    let head =
        "POST /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100\r\n\r\n";
    let mut stopped = connect(running.address);
    stopped.write_all(head.as_bytes()).unwrap();
    let mut goes_on = connect(running.address);
    goes_on.write_all(head.as_bytes()).unwrap();
    // Much longer than the time-out in all, never half as long between two bytes.
    let sender = thread::spawn(move || {
        for _ in 0..100 {
            goes_on.write_all(b"x").unwrap();
            thread::sleep(SHORT / 50);
        }
        answer(&mut goes_on)
    });
    assert_eq!(answer(&mut stopped).unwrap().0, 408);
    // Its client may still send without meeting a reset that would take the answer away.
    stopped.write_all(b"xxx").unwrap();
    assert_closed(&mut stopped);
    assert_eq!(sender.join().unwrap(), Some((200, b"100".to_vec())));
    assert!(running.server.stop());
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    for (threads, blocking_threads) in [(1, 0), (1, 1)] {
        for target in ["/big?1024", "/stream?1024"] {
            let timeouts = Timeouts {
                write: SHORT,
                ..Timeouts::default()
            };
            let running = setup(threads, blocking_threads, timeouts).start();
            let mut stream = connect(running.address);
            ask(&mut stream, target);
            eventually("the connection is given up", || {
                running.common.open.load(Ordering::SeqCst) == 0
                    && running.common.counters.sum(Counter::Accepted) == 1
            });
            running.stage.wait_suspended(0);
            // A reset: what came must not look whole.
            let mut rest = Vec::new();
            assert!(stream.read_to_end(&mut rest).is_err());
            assert!(running.server.stop());
        }
    }
}

#[test]
fn a_slow_reader_gets_all_of_a_response_that_the_server_closes_after() {
    let running = setup(1, 0, Timeouts::default()).start();
    let mut stream = connect(running.address);
    ask(&mut stream, "/big-close?32");
    // The server has given it all to the kernel, waited for the client's end, and given up on that.
    eventually("the connection is closed", || {
        running.common.counters.sum(Counter::Closed) == 1
    });
    assert_eq!(answer(&mut stream).unwrap().1.len(), 32 * 16 * 1024);
    assert_closed(&mut stream);
    assert!(running.server.stop());
}
