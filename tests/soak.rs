//! Many clients of every kind at once, and a stop in the midst of them: nothing is lost, nothing is run or answered twice,
//! nothing is left.
//!
//! A target of its own, because it counts the process's descriptors, threads and memory. `M0_SOAK_SECONDS` makes it longer.

#[allow(dead_code)] // other tests' part
#[path = "pool/harness.rs"]
mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use m0serve::observe::counters::Counter;
use m0serve::pool::Controls;

use harness::*;

const CLIENTS: u64 = 12;

/// Xorshift: the same choices in every run, if not at the same moments.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The connection could not be made, or ended without an answer.
#[derive(Debug)]
#[allow(dead_code)] // shown
struct Lost {
    how: String,
    /// The query of the request that was not answered.
    query: String,
}

fn lost(how: impl std::fmt::Debug, query: &str) -> Lost {
    Lost {
        how: format!("{how:?}"),
        query: query.into(),
    }
}

struct Client {
    number: u64,
    asked: u64,
    chance: Chance,
    address: SocketAddr,
}

impl Client {
    fn query(&mut self) -> String {
        self.asked += 1;
        format!("{}.{}", self.number, self.asked)
    }

    fn connect(&self) -> Result<TcpStream, Lost> {
        let stream = TcpStream::connect(self.address).map_err(|error| lost(error, ""))?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Ok(stream)
    }

    fn path(&mut self) -> &'static str {
        ["/", "/", "/", "/busy", "/slow", "/yield"][self.chance.below(6) as usize]
    }

    fn send(&self, stream: &mut TcpStream, bytes: &[u8], query: &str) -> Result<(), Lost> {
        stream.write_all(bytes).map_err(|error| lost(error, query))
    }

    fn expect(&self, stream: &mut TcpStream, query: &str, body: &[u8]) -> Result<(), Lost> {
        match answer(stream) {
            Some((200, got)) if got == body => Ok(()),
            None => Err(lost("no answer", query)),
            other => panic!("{query}: {other:?}"),
        }
    }

    /// The client has its answers and says that it is done: nothing comes behind them, and the server closes.
    fn end(&self, stream: &mut TcpStream) -> Result<(), Lost> {
        let _ = stream.shutdown(Shutdown::Write);
        match stream.read(&mut [0; 16]) {
            Ok(0) => Ok(()),
            Ok(read) => panic!("{read} bytes behind the last answer"),
            // It was never accepted, if the server stops. Otherwise the server has no reason for a reset.
            Err(error) => Err(lost(error, "")),
        }
    }

    /// One connection's life.
    fn live(&mut self) -> Result<(), Lost> {
        match self.chance.below(11) {
            0 | 1 => self.keep_alive(),
            2 => self.pipeline(),
            3 => self.leave(),
            4 => self.half_close(),
            5 => self.in_pieces(),
            6 => self.upload(),
            7 => self.read_slowly(),
            8 => self.stop_reading(),
            9 => self.watch(),
            _ => self.fail(),
        }
    }

    fn keep_alive(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        for _ in 0..self.chance.below(30) {
            let (path, query) = (self.path(), self.query());
            let request = format!("GET {path}?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
            self.send(&mut stream, request.as_bytes(), &query)?;
            self.expect(&mut stream, &query, query.as_bytes())?;
        }
        self.end(&mut stream)
    }

    fn pipeline(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        let queries: Vec<_> = (0..self.chance.below(40)).map(|_| self.query()).collect();
        let mut requests = String::new();
        for query in &queries {
            let path = self.path();
            requests += &format!("GET {path}?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        self.send(&mut stream, requests.as_bytes(), "")?;
        if self.chance.below(2) == 0 {
            // Those that the server has yet to look at count all the same.
            let _ = stream.shutdown(Shutdown::Write);
        }
        for query in &queries {
            self.expect(&mut stream, query, query.as_bytes())?;
        }
        self.end(&mut stream)
    }

    /// Asks, and goes away in one way or another.
    fn leave(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        let path = ["/slow", "/", "/stream", "/endless", "/big"][self.chance.below(5) as usize];
        let request = format!("GET {path}?40 HTTP/1.1\r\nHost: a\r\n\r\n");
        let sent = self.chance.below(request.len() as u64 + 1) as usize;
        let _ = stream.write_all(&request.as_bytes()[..sent]);
        if self.chance.below(2) == 0 {
            // A reset instead of an end.
            let linger = Some(Duration::ZERO);
            let _ = socket2::SockRef::from(&stream).set_linger(linger);
        }
        if sent == request.len() && self.chance.below(2) == 0 {
            let _ = stream.read(&mut [0; 100]);
        }
        Ok(())
    }

    fn half_close(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        let (path, query) = (self.path(), self.query());
        let request = format!("GET {path}?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.send(&mut stream, request.as_bytes(), &query)?;
        let _ = stream.shutdown(Shutdown::Write);
        self.expect(&mut stream, &query, query.as_bytes())?;
        match stream.read(&mut [0; 16]) {
            Ok(0) => Ok(()),
            // The connection was reset behind the answer: allowed by TCP, but nothing here has a reason to.
            other => panic!("{query}: behind the answer {other:?}"),
        }
    }

    fn in_pieces(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        stream.set_nodelay(true).unwrap();
        let (path, query) = (self.path(), self.query());
        let request = format!("GET {path}?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
        for piece in request.as_bytes().chunks(7) {
            self.send(&mut stream, piece, &query)?;
            thread::yield_now();
        }
        self.expect(&mut stream, &query, query.as_bytes())
    }

    fn upload(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        let length = self.chance.below(700_000) as usize;
        let chunked = self.chance.below(2) == 0;
        let framing = if chunked {
            "Transfer-Encoding: chunked".into()
        } else {
            format!("Content-Length: {length}")
        };
        let head = format!("POST /length HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        self.send(&mut stream, head.as_bytes(), "")?;
        let mut left = length;
        while left > 0 {
            let piece = (1 + self.chance.below(60_000) as usize).min(left);
            left -= piece;
            let mut bytes = vec![b'x'; piece];
            if chunked {
                bytes.splice(0..0, format!("{piece:x}\r\n").bytes());
                bytes.extend_from_slice(b"\r\n");
            }
            self.send(&mut stream, &bytes, "")?;
        }
        if chunked {
            self.send(&mut stream, b"0\r\n\r\n", "")?;
        }
        self.expect(&mut stream, "", length.to_string().as_bytes())
    }

    fn read_slowly(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        let pieces = 1 + self.chance.below(500);
        let path = ["/stream", "/big", "/big-close"][self.chance.below(3) as usize];
        let request =
            format!("GET {path}?{pieces} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        self.send(&mut stream, request.as_bytes(), "")?;
        let (mut body, mut buffer) = (0, [0; 64 * 1024]);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) if body == 0 => return Err(lost("no body", "")),
                Ok(0) => break,
                Ok(read) => body += buffer[..read].iter().filter(|&&byte| byte == b'x').count(),
                Err(error) if body == 0 => return Err(lost(error, "")),
                Err(error) => panic!("{path}?{pieces}: {error} after {body} bytes"),
            }
            if self.chance.below(8) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        // The heads have an x or two.
        assert_eq!(body / (16 * 1024), pieces as usize, "{path}?{pieces}");
        Ok(())
    }

    fn stop_reading(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        self.send(
            &mut stream,
            b"GET /stream?1000 HTTP/1.1\r\nHost: a\r\n\r\n",
            "",
        )?;
        let mut buffer = [0; 10_000];
        for _ in 0..self.chance.below(20) {
            if stream.read(&mut buffer).is_err() {
                break;
            }
        }
        thread::sleep(Duration::from_millis(self.chance.below(20)));
        Ok(())
    }

    fn watch(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        self.send(
            &mut stream,
            b"GET /endless? HTTP/1.1\r\nHost: a\r\n\r\n",
            "",
        )?;
        for _ in 0..self.chance.below(12) {
            match stream.read(&mut [0; 64]) {
                Ok(1..) => {}
                other => return Err(lost(other, "endless")),
            }
        }
        Ok(())
    }

    fn fail(&mut self) -> Result<(), Lost> {
        let mut stream = self.connect()?;
        let broken = [
            (&b"GET /panic? HTTP/1.1\r\nHost: a\r\n\r\n"[..], 500),
            (b"GET / HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
            (
                b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
                400,
            ),
        ];
        let (request, code) = broken[self.chance.below(4) as usize];
        self.send(&mut stream, request, "")?;
        match answer(&mut stream) {
            Some((got, _)) => assert_eq!(got, code),
            None => return Err(lost(request, "")),
        }
        Ok(())
    }
}

/// What one soak was.
struct Soaked {
    lives: u64,
    rescued: u64,
}

fn soak(setup: Setup, time: Duration, seed: u64) -> Soaked {
    let running = setup.start();
    let stopping = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    let lives = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (1..=CLIENTS)
        .map(|number| {
            let (stopping, over) = (Arc::clone(&stopping), Arc::clone(&over));
            let (stage, lives) = (Arc::clone(&running.stage), Arc::clone(&lives));
            let mut client = Client {
                number,
                asked: 0,
                chance: Chance(seed.wrapping_mul(CLIENTS) + number),
                address: running.address,
            };
            thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    match client.live() {
                        Ok(()) => _ = lives.fetch_add(1, Ordering::Relaxed),
                        Err(lost) => {
                            assert!(stopping.load(Ordering::SeqCst), "without a stop: {lost:?}");
                            // A stop may turn a request away, but not one that it has begun.
                            let begun =
                                lost.query.contains('.') && stage.begun().contains(&lost.query);
                            assert!(!begun, "begun: {lost:?}");
                        }
                    }
                }
            })
        })
        .collect();
    thread::sleep(time);
    stopping.store(true, Ordering::SeqCst);
    let common = Arc::clone(&running.common);
    assert!(running.server.stop(), "requests were left");
    over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().expect("a client's view of things");
    }
    assert_eq!(common.open.load(Ordering::SeqCst), 0);
    let count = |counter| common.counters.sum(counter);
    assert_eq!(count(Counter::Accepted), count(Counter::Closed));
    running.stage.wait_suspended(0);
    let begun = running.stage.begun();
    let mut seen = HashSet::new();
    for query in begun.iter().filter(|query| query.contains('.')) {
        assert!(seen.insert(query), "{query} was run twice");
    }
    Soaked {
        lives: lives.load(Ordering::Relaxed),
        rescued: count(Counter::Rescued),
    }
}

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// The system's allocator, with the bytes counted that are in use: a leak of any size shows, which it doesn't in resident
/// memory, most of which is what allocators keep for later.
struct Counting;

static IN_USE: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: it does what the system's does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        IN_USE.fetch_add(size as isize - layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// More than what differs from run to run: garbage of the deques' that a thread has yet to collect.
const IN_USE_BOUND: isize = 256 << 10;

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn mallopt(parameter: i32, value: i32) -> i32;
    fn malloc_trim(pad: usize) -> i32;
}

/// One arena for all threads: glibc gives back no memory at the top of another, and there may be dozens of megabytes.
fn use_one_arena() {
    const M_ARENA_MAX: i32 = -8;
    #[cfg(target_env = "gnu")]
    // SAFETY: glibc's; any thread may call it at any time.
    unsafe {
        mallopt(M_ARENA_MAX, 1);
    }
}

/// Resident memory in bytes: what the allocator keeps for later goes back first.
fn memory() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: glibc's; any thread may call it at any time.
    unsafe {
        malloc_trim(0);
    }
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}

/// For what is not allocated, stacks above all. Far above what the allocator may keep of a busy moment's bodies.
const MEMORY_BOUND: usize = 64 << 20;

fn setups() -> [Setup; 8] {
    let no_baton = Controls {
        baton: false,
        ..Controls::ALL_ON
    };
    [
        Setup::new(1, 0),
        Setup::new(2, 0),
        Setup::new(1, 1),
        Setup::new(2, 2),
        Setup {
            shared_gil: true,
            ..Setup::new(1, 3)
        },
        Setup {
            shared_gil: true,
            ..Setup::new(2, 1)
        },
        Setup {
            controls: no_baton,
            ..Setup::new(1, 3)
        },
        Setup {
            queue_limit: 1_000,
            streaming_threads: 1,
            ..Setup::new(3, 1)
        },
    ]
}

#[test]
fn nothing_is_lost_and_nothing_is_left() {
    let seconds = std::env::var("M0_SOAK_SECONDS").map_or(4.0, |text| text.parse().unwrap());
    use_one_arena();
    // Views panic on purpose. Backtraces would read the symbols of all that they meet into memory, for good.
    std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
    // What the runtime opens once is open then, and what the allocator takes once is taken.
    for (seed, setup) in setups().into_iter().enumerate() {
        soak(setup, Duration::from_millis(50), seed as u64 + 101);
    }
    let (descriptors, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    let (at_first, in_use_at_first) = (memory(), IN_USE.load(Ordering::SeqCst));
    let begun = Instant::now();
    let time = Duration::from_secs_f64(seconds / setups().len() as f64);
    let mut rescued = 0;
    for (seed, setup) in setups().into_iter().enumerate() {
        let soaked = soak(setup, time, seed as u64 + 1);
        assert!(soaked.lives > 0);
        rescued += soaked.rescued;
        let grown = memory().saturating_sub(at_first);
        let left = IN_USE.load(Ordering::SeqCst) - in_use_at_first;
        println!(
            "shape {seed}: {} connections lived, {} rescues, {left} bytes left, {} kB more resident",
            soaked.lives,
            soaked.rescued,
            grown / 1024
        );
        assert_eq!(count("/proc/self/fd"), descriptors, "descriptors");
        assert_eq!(count("/proc/self/task"), threads, "threads");
        assert!(left < IN_USE_BOUND, "{left} bytes are left");
        assert!(grown < MEMORY_BOUND, "{grown} bytes more are resident");
    }
    assert!(rescued > 0, "no view was long enough for a rescue");
    println!("{:?}", begun.elapsed());
}
