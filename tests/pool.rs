//! The pool over real sockets, with a handler that needs no Python: nothing is lost and nothing is stranded, whatever
//! views block, clients leave and connections are reused.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use m0serve::config::Timeouts;
use m0serve::exchange::{Common, Exchange, Handler, HandlerFactory, LocalAnswers, Progress};
use m0serve::http1::{BodySize, Limits, ResponseHead};
use m0serve::local::Health;
use m0serve::net::Listener;
use m0serve::pool::turn_slice::TurnSlice;
use m0serve::pool::{Controls, Shape};
use m0serve::server::{Application, Server};
use m0serve::topology::Placement;

/// What the test lets happen inside views.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    inside: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait_inside(&self, count: usize) {
        while self.inside.load(Ordering::SeqCst) < count {
            thread::yield_now();
        }
    }
}

struct Views {
    head: ResponseHead,
    gate: Arc<Gate>,
}

impl Handler for Views {
    fn handle(&mut self, exchange: &mut Exchange) -> Progress {
        match exchange.path() {
            b"/gate" => self.gate.pass(),
            // Longer than a slice: the loop is rescued from it.
            b"/slow" => thread::sleep(Duration::from_millis(3)),
            b"/panic" => panic!("a view's panic"),
            b"/endless" => {
                exchange.start(&self.head, BodySize::Unknown);
                loop {
                    exchange.push(b"tick\n");
                    if exchange.flush().is_err() {
                        return Progress::Done;
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            }
            b"/stream" => {
                exchange.start(&self.head, BodySize::Unknown);
                for _ in 0..64 {
                    exchange.push(&[b'x'; 16 * 1024]);
                    if exchange.flush().is_err()
                        || (exchange.may_wait() && exchange.wait_room().is_err())
                    {
                        return Progress::Done;
                    }
                }
                exchange.finish();
                return Progress::Done;
            }
            _ => {}
        }
        let body = exchange.query().to_vec();
        exchange.respond(&self.head, &body);
        Progress::Done
    }
}

struct Factory(Arc<Gate>);

impl HandlerFactory for Factory {
    type Handler = Views;

    fn make(&self, _index: usize) -> Views {
        let mut head = ResponseHead::new();
        head.status(b"200 OK").unwrap();
        Views {
            head,
            gate: Arc::clone(&self.0),
        }
    }
}

struct Running {
    server: Server,
    address: SocketAddr,
    gate: Arc<Gate>,
    common: Arc<Common>,
}

fn start(threads: usize, blocking_threads: usize) -> Running {
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), 1024).unwrap();
    let address = listener
        .url()
        .strip_prefix("http://")
        .unwrap()
        .parse()
        .unwrap();
    let gate = Arc::new(Gate::default());
    let common = Arc::new(Common::new(
        Limits::default(),
        Timeouts::default(),
        blocking_threads > 0,
    ));
    let placement = Placement::Anywhere("a test");
    let shape = Shape {
        threads,
        blocking_threads,
        streaming_threads: 8,
        controls: Controls::ALL_ON,
        placement,
    };
    let application = Application {
        factory: Factory(Arc::clone(&gate)),
        turns: Arc::new(TurnSlice::new(false, false)),
        local_answers: Some(Arc::new(Health::new("/health")) as Arc<dyn LocalAnswers>),
    };
    let server = Server::start(shape, vec![listener], Arc::clone(&common), application).unwrap();
    Running {
        server,
        address,
        gate,
        common,
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    // Against a hang of the test only.
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

fn ask(stream: &mut TcpStream, target: &str) {
    // One segment: a head in pieces would wait for delayed acknowledgements.
    stream
        .write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
        .unwrap();
}

/// Reads one response with a Content-Length.
fn answer(stream: &mut TcpStream) -> Option<(u16, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let code = head[9..12].parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .unwrap()
        .parse()
        .unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((code, body))
}

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
    running.gate.wait_inside(2);
    let mut other = connect(running.address);
    for _ in 0..100 {
        ask(&mut other, "/?free");
        assert_eq!(answer(&mut other), Some((200, b"free".to_vec())));
    }
    running.gate.open();
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
    running.gate.wait_inside(threads * blocking_threads);
    let mut other = connect(running.address);
    ask(&mut other, "/health");
    assert_eq!(answer(&mut other), Some((200, b"ok\n".to_vec())));
    running.gate.open();
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
        running.gate.wait_inside(1);
        let gate = Arc::clone(&running.gate);
        let stopping = thread::spawn(move || running.server.stop());
        // The idle connection is closed; then the view may end.
        assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0);
        gate.open();
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
