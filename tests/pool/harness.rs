//! A server whose views do what a test asks of them, and clients that speak to it.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use m0serve::config::Timeouts;
use m0serve::event_loop::Loop;
use m0serve::exchange::{
    Body, Common, Exchange, Handler, HandlerFactory, LocalAnswers, Progress, Room,
};
use m0serve::http1::{BodySize, Limits, ResponseHead};
use m0serve::local::Health;
use m0serve::net::Listener;
use m0serve::observe::access::AccessLog;
use m0serve::pool::turn_slice::{Turn, TurnSlice};
use m0serve::pool::{Controls, Shape};
use m0serve::server::{Application, Server};
use m0serve::sync::{Condvar, Mutex};
use m0serve::topology::Placement;

/// What the test lets happen inside views, and what it has seen of them.
#[derive(Default)]
pub struct Stage {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    all_open: bool,
    open: HashSet<String>,
    /// Views at closed gates.
    inside: usize,
    /// The queries of the views that have begun, in their order.
    begun: Vec<String>,
    /// Responses put aside for a client to read.
    suspended: usize,
    /// How often a loop's work was done attached.
    attached: usize,
}

impl Stage {
    /// A view's: waits until the gate of this name is open.
    fn pass(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        state.inside += 1;
        self.changed.notify_all();
        while !state.all_open && !state.open.contains(name) {
            state = self.changed.wait(state).unwrap();
        }
        state.inside -= 1;
        self.changed.notify_all();
    }

    /// Opens all gates for good.
    pub fn open(&self) {
        self.state.lock().unwrap().all_open = true;
        self.changed.notify_all();
    }

    pub fn open_one(&self, name: &str) {
        self.state.lock().unwrap().open.insert(name.into());
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let (_state, waited) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !until(state))
            .unwrap();
        assert!(!waited.timed_out(), "it never came to that");
    }

    pub fn wait_inside(&self, count: usize) {
        self.wait(|state| state.inside >= count);
    }

    pub fn wait_suspended(&self, count: usize) {
        self.wait(|state| state.suspended == count);
    }

    /// The queries of the views that have begun so far, in their order.
    pub fn begun(&self) -> Vec<String> {
        self.state.lock().unwrap().begun.clone()
    }

    pub fn attached(&self) -> usize {
        self.state.lock().unwrap().attached
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

/// Only against a hang of the test: nothing that is right takes as long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Until something holds that nobody tells us of.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub struct Views {
    head: ResponseHead,
    stage: Arc<Stage>,
    turn: Turn,
    /// Pieces that suspended responses still have to send.
    suspended: HashMap<u32, usize>,
    next_key: u32,
}

const PIECE: usize = 16 * 1024;

impl Views {
    fn pump(&mut self, mut pieces: usize, exchange: &mut Exchange) -> Progress {
        while pieces > 0 {
            pieces -= 1;
            exchange.push(&[b'x'; PIECE]);
            match exchange.flush() {
                Err(_) => return Progress::Done,
                Ok(Room::Free) => {}
                Ok(Room::Full) if exchange.may_wait() => {
                    if exchange.wait_room().is_err() {
                        return Progress::Done;
                    }
                }
                Ok(Room::Full) => {
                    let key = self.next_key;
                    self.next_key += 1;
                    self.suspended.insert(key, pieces);
                    self.stage.change(|state| state.suspended += 1);
                    return Progress::Waiting(key);
                }
            }
        }
        exchange.finish();
        Progress::Done
    }

    fn take_up(&mut self, key: u32) -> usize {
        let pieces = self.suspended.remove(&key).expect("a suspended response");
        self.stage.change(|state| state.suspended -= 1);
        pieces
    }
}

impl Handler for Views {
    fn handle(&mut self, exchange: &mut Exchange) -> Progress {
        let query = String::from_utf8(exchange.query().to_vec()).unwrap();
        self.stage.change(|state| state.begun.push(query.clone()));
        match exchange.path() {
            b"/gate" => self.stage.pass(&query),
            // Says where its thread may run.
            b"/cpus" => {
                self.stage.pass(&query);
                let cpus = format!("{:?}", allowed_cpus());
                exchange.respond(&self.head, cpus.as_bytes());
                return Progress::Done;
            }
            // Stands in line for the GIL.
            b"/attach" => {
                let stage = Arc::clone(&self.stage);
                self.turn.attach(|| stage.pass(&query));
                self.turn.detach(|| {});
            }
            // Longer than a slice: the loop is rescued from it.
            b"/slow" => thread::sleep(Duration::from_millis(3)),
            b"/yield" => thread::yield_now(),
            b"/busy" => {
                spin(Duration::from_micros(300));
            }
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
            // A body in so many pieces, one after the other.
            b"/stream" => {
                exchange.start(&self.head, BodySize::Unknown);
                return self.pump(query.parse().unwrap_or(64), exchange);
            }
            // A body of as many pieces, all at once.
            b"/big" => {
                let body = vec![b'x'; PIECE * query.parse::<usize>().unwrap()];
                exchange.respond(&self.head, &body);
                return Progress::Done;
            }
            // The same, and the server closes.
            b"/big-close" => {
                let body = vec![b'x'; PIECE * query.parse::<usize>().unwrap()];
                let mut head = self.head.clone();
                head.field(b"Connection", b"close").unwrap();
                exchange.respond(&head, &body);
                return Progress::Done;
            }
            b"/length" => {
                let length = match exchange.take_body() {
                    Body::Empty => 0,
                    Body::Memory(bytes) => bytes.len() as u64,
                    Body::Spooled(mut file, length) => {
                        let read = std::io::copy(&mut file, &mut std::io::sink()).unwrap();
                        assert_eq!(read, length);
                        length
                    }
                };
                exchange.respond(&self.head, length.to_string().as_bytes());
                return Progress::Done;
            }
            _ => {}
        }
        exchange.respond(&self.head, query.as_bytes());
        Progress::Done
    }

    fn resume(&mut self, key: u32, exchange: &mut Exchange) -> Progress {
        let pieces = self.take_up(key);
        self.pump(pieces, exchange)
    }

    fn abandon(&mut self, key: u32) {
        self.take_up(key);
    }

    fn attached(&mut self, work: &mut dyn FnMut()) {
        self.stage.change(|state| state.attached += 1);
        work();
    }
}

pub struct Factory {
    broken_handler: Option<usize>,
    stage: Arc<Stage>,
    turns: Arc<TurnSlice>,
}

impl HandlerFactory for Factory {
    type Handler = Views;

    fn make(&self, index: usize) -> Views {
        assert_ne!(
            Some(index),
            self.broken_handler,
            "a handler that can't be made"
        );
        let mut head = ResponseHead::new();
        head.status(b"200 OK").unwrap();
        Views {
            head,
            stage: Arc::clone(&self.stage),
            turn: Turn::new(Arc::clone(&self.turns)),
            suspended: HashMap::new(),
            next_key: 0,
        }
    }
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

pub struct Running {
    pub server: Server,
    pub address: SocketAddr,
    pub stage: Arc<Stage>,
    pub common: Arc<Common>,
}

/// A server to start: what a test leaves out is as usual.
pub struct Setup {
    pub threads: usize,
    pub blocking_threads: usize,
    pub streaming_threads: usize,
    pub timeouts: Timeouts,
    pub queue_limit: usize,
    pub limit_connections: usize,
    pub access_log: Option<AccessLog>,
    pub controls: Controls,
    pub placement: Placement,
    /// This one can't be made.
    pub broken_handler: Option<usize>,
    /// All handlers share one (pretended) GIL.
    pub shared_gil: bool,
}

impl Setup {
    pub fn new(threads: usize, blocking_threads: usize) -> Setup {
        Setup {
            threads,
            blocking_threads,
            streaming_threads: 8,
            timeouts: Timeouts::default(),
            queue_limit: 0,
            limit_connections: 0,
            access_log: None,
            controls: Controls::ALL_ON,
            placement: Placement::Anywhere("a test"),
            broken_handler: None,
            shared_gil: false,
        }
    }

    pub fn start(self) -> Running {
        self.start_on(listen().0)
    }

    pub fn start_on(self, listener: Listener) -> Running {
        self.try_start_on(listener).unwrap()
    }

    pub fn try_start_on(self, listener: Listener) -> std::io::Result<Running> {
        let address = address_of(&listener);
        let stage = Arc::new(Stage::default());
        let mut common = Common::new(Limits::default(), self.timeouts, self.blocking_threads > 0);
        common.queue_limit = self.queue_limit;
        common.limit_connections = self.limit_connections;
        common.access_log = self.access_log;
        let common = Arc::new(common);
        let shape = Shape {
            threads: self.threads,
            blocking_threads: self.blocking_threads,
            streaming_threads: self.streaming_threads,
            controls: self.controls,
            placement: self.placement,
        };
        let turns = Arc::new(TurnSlice::new(self.shared_gil, self.shared_gil));
        let application = Application {
            factory: Factory {
                broken_handler: self.broken_handler,
                stage: Arc::clone(&stage),
                turns: Arc::clone(&turns),
            },
            turns,
            local_answers: Some(Arc::new(Health::new("/health")) as Arc<dyn LocalAnswers>),
        };
        let server = Server::start(shape, vec![listener], Arc::clone(&common), application)?;
        Ok(Running {
            server,
            address,
            stage,
            common,
        })
    }
}

/// A listener that clients can connect to before anybody serves.
pub fn listen() -> (Listener, SocketAddr) {
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), 1024).unwrap();
    let address = address_of(&listener);
    (listener, address)
}

fn address_of(listener: &Listener) -> SocketAddr {
    let url = listener.url();
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// A loop that nobody drives but the test, and where it listens.
pub fn loop_in_hand() -> (Box<Loop>, SocketAddr) {
    let (listener, address) = listen();
    let common = Arc::new(Common::new(Limits::default(), Timeouts::default(), true));
    let mut loops = Loop::make(1, Arc::from([listener]), &common, None).unwrap();
    (loops.remove(0), address)
}

pub fn turn_until(the_loop: &mut Loop, what: &str, holds: impl Fn(&Loop) -> bool) {
    let begun = Instant::now();
    while !holds(the_loop) {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        the_loop.turn(Some(Duration::from_millis(1))).unwrap();
    }
}

/// All edges so far have been seen.
pub fn settle_down(the_loop: &mut Loop) {
    for _ in 0..3 {
        the_loop.turn(Some(Duration::from_millis(1))).unwrap();
    }
}

pub fn start(threads: usize, blocking_threads: usize) -> Running {
    Setup::new(threads, blocking_threads).start()
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub fn ask(stream: &mut TcpStream, target: &str) {
    // One segment: a head in pieces would wait for delayed acknowledgements.
    stream
        .write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
        .unwrap();
}

/// Reads one response with a Content-Length; None if the connection ends first.
pub fn answer(stream: &mut TcpStream) -> Option<(u16, Vec<u8>)> {
    let (code, _, body) = whole_answer(stream)?;
    Some((code, body))
}

/// Status, head and body.
pub fn whole_answer(stream: &mut TcpStream) -> Option<(u16, String, Vec<u8>)> {
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
    Some((code, head, body))
}

/// Asks and reads the answer.
pub fn get(stream: &mut TcpStream, target: &str) -> Option<(u16, Vec<u8>)> {
    ask(stream, target);
    answer(stream)
}

/// The CPUs that the calling thread may use.
pub fn allowed_cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}
