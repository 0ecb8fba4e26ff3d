//! Requests of every kind in every shape of pool are answered, and a stop finishes what is in flight.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use m0serve::pool::Controls;

use crate::harness::*;

#[test]
fn keep_alive_requests_are_answered_in_every_shape() {
    for (threads, blocking_threads) in [(1, 0), (1, 1), (1, 4), (2, 0), (2, 2), (3, 1)] {
        let running = start(threads, blocking_threads);
        let clients: Vec<_> = (0..12)
            .map(|client| {
                let address = running.address;
                thread::spawn(move || {
                    let mut stream = connect(address);
                    for round in 0..60 {
                        let path = if (client + round) % 7 == 0 {
                            "/slow"
                        } else {
                            "/"
                        };
                        ask(&mut stream, &format!("{path}?{client}.{round}"));
                        let got = answer(&mut stream).expect("an answer");
                        assert_eq!(got, (200, format!("{client}.{round}").into_bytes()));
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        assert!(
            running.server.stop(),
            "{threads} x {blocking_threads} did not drain"
        );
        assert_eq!(running.common.open.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_behind_slow_ones() {
    let running = start(1, 2);
    let mut stream = connect(running.address);
    for number in 0..40 {
        ask(
            &mut stream,
            &format!("{}?{number}", if number % 5 == 0 { "/slow" } else { "/" }),
        );
    }
    for number in 0..40 {
        assert_eq!(
            answer(&mut stream),
            Some((200, number.to_string().into_bytes()))
        );
    }
    assert!(running.server.stop());
}

#[test]
fn blocked_views_hold_up_nobody_while_a_standby_is_left() {
    let running = start(1, 3);
    let mut blocked: Vec<_> = (0..2).map(|_| connect(running.address)).collect();
    for (number, stream) in blocked.iter_mut().enumerate() {
        ask(stream, &format!("/gate?{number}"));
    }
    running.stage.wait_inside(2);
    let mut other = connect(running.address);
    for _ in 0..100 {
        ask(&mut other, "/?free");
        assert_eq!(answer(&mut other), Some((200, b"free".to_vec())));
    }
    running.stage.open();
    for (number, stream) in blocked.iter_mut().enumerate() {
        assert_eq!(answer(stream), Some((200, number.to_string().into_bytes())));
    }
    assert!(running.server.stop());
}

#[test]
fn more_blocked_views_than_handlers_strand_neither_loops_nor_jobs() {
    let (threads, blocking_threads) = (2, 2);
    let running = start(threads, blocking_threads);
    let slow = threads * blocking_threads + threads + 5;
    let mut blocked: Vec<_> = (0..slow).map(|_| connect(running.address)).collect();
    for (number, stream) in blocked.iter_mut().enumerate() {
        ask(stream, &format!("/gate?{number}"));
    }
    // Every loop keeps a driver that is in no view: all other handlers are inside.
    running.stage.wait_inside(threads * blocking_threads);
    let mut other = connect(running.address);
    ask(&mut other, "/health");
    assert_eq!(answer(&mut other), Some((200, b"ok\n".to_vec())));
    running.stage.open();
    for (number, stream) in blocked.iter_mut().enumerate() {
        assert_eq!(answer(stream), Some((200, number.to_string().into_bytes())));
    }
    assert!(running.server.stop());
}

#[test]
fn clients_that_leave_take_nothing_with_them() {
    for (threads, blocking_threads) in [(1, 0), (2, 2)] {
        let running = start(threads, blocking_threads);
        for round in 0..200 {
            let mut stream = connect(running.address);
            match round % 4 {
                0 => ask(&mut stream, "/slow"),
                1 => stream.write_all(b"GET / HTTP/1.1\r\nHos").unwrap(),
                2 => ask(&mut stream, "/stream"),
                _ => {
                    ask(&mut stream, "/?half");
                    stream.shutdown(Shutdown::Write).unwrap();
                    assert_eq!(answer(&mut stream), Some((200, b"half".to_vec())));
                }
            }
        }
        let mut stream = connect(running.address);
        ask(&mut stream, "/?still");
        assert_eq!(answer(&mut stream), Some((200, b"still".to_vec())));
        drop(stream);
        assert!(running.server.stop());
        assert_eq!(running.common.open.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_panic_in_a_view_is_a_500_and_the_handler_goes_on() {
    let running = start(1, 1);
    for _ in 0..3 {
        let mut stream = connect(running.address);
        ask(&mut stream, "/panic");
        assert_eq!(answer(&mut stream).unwrap().0, 500);
    }
    let mut stream = connect(running.address);
    ask(&mut stream, "/?on");
    assert_eq!(answer(&mut stream), Some((200, b"on".to_vec())));
    assert!(running.server.stop());
}

#[test]
fn a_drain_finishes_what_is_in_flight_and_announces_the_end() {
    for (threads, blocking_threads) in [(1, 1), (2, 2)] {
        let running = start(threads, blocking_threads);
        let mut idle = connect(running.address);
        ask(&mut idle, "/?before");
        assert_eq!(answer(&mut idle), Some((200, b"before".to_vec())));
        let mut busy = connect(running.address);
        ask(&mut busy, "/gate?in-flight");
        running.stage.wait_inside(1);
        let stage = Arc::clone(&running.stage);
        let stopping = thread::spawn(move || running.server.stop());
        // The idle connection is closed; then the view may end.
        assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0);
        stage.open();
        let mut response = String::new();
        busy.read_to_string(&mut response).unwrap();
        assert!(response.contains("Connection: close\r\n"), "{response}");
        assert!(response.ends_with("in-flight"), "{response}");
        assert!(stopping.join().unwrap());
    }
}

#[test]
fn endless_streams_do_not_eat_the_pool() {
    let running = start(1, 1);
    // More than the pool has handlers, and each is replaced while it streams.
    let mut streams: Vec<_> = (0..4).map(|_| connect(running.address)).collect();
    for stream in &mut streams {
        ask(stream, "/endless");
        let mut piece = [0; 64];
        assert!(stream.read(&mut piece).unwrap() > 0);
    }
    let mut other = connect(running.address);
    for _ in 0..20 {
        ask(&mut other, "/?free");
        assert_eq!(answer(&mut other), Some((200, b"free".to_vec())));
    }
    drop(streams);
    drop(other);
    assert!(running.server.stop());
    assert_eq!(running.common.open.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_that_lacks_a_handler_does_not_serve() {
    for broken in [0, 1, 3] {
        let (listener, address) = listen();
        let setup = Setup {
            broken_handler: Some(broken),
            ..Setup::new(2, 1)
        };
        let error = setup.try_start_on(listener).err().expect("a refusal");
        assert!(
            error
                .to_string()
                .contains(&format!("handler thread {broken}"))
        );
        eventually("nobody listens", || TcpStream::connect(address).is_err());
    }
}

#[test]
fn loops_work_detached_but_under_the_control() {
    for (threads, blocking_threads) in [(1, 0), (1, 1)] {
        for loop_attached in [false, true] {
            let running = Setup {
                controls: Controls {
                    loop_attached,
                    ..Controls::ALL_ON
                },
                ..Setup::new(threads, blocking_threads)
            }
            .start();
            let mut stream = connect(running.address);
            for _ in 0..3 {
                assert!(get(&mut stream, "/health").is_some());
            }
            assert_eq!(running.stage.attached() >= 3, loop_attached);
            drop(stream);
            assert!(running.server.stop());
        }
    }
}
