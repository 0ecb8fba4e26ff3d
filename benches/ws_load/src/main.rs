//! `ws-load --connect ADDRESS --connections N --seconds S --size BYTES [--path PATH]`: N WebSocket connections, each
//! of which sends a text message, waits for its echo, compares it and sends the next. Prints one line, `M0BENCH {…}`,
//! with the fields that the harness reads from wrk.
//!
//! One thread, epoll, everything in memory. Messages differ between connections, so that an echo to the wrong one shows.

mod frame;

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// The nonce and the answer to it of RFC 6455 section 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

struct Settings {
    connect: SocketAddr,
    connections: usize,
    seconds: f64,
    size: usize,
    path: String,
}

struct Connection {
    stream: TcpStream,
    message: Vec<u8>,
    frame: Vec<u8>,
    /// How much of the frame was sent.
    sent: usize,
    input: Vec<u8>,
    /// The payload of the message that is coming in, in one frame or several.
    echo: Vec<u8>,
    begun: Instant,
}

fn main() -> ExitCode {
    let settings = match settings(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(text) => {
            eprintln!("ws-load: {text}");
            return ExitCode::from(2);
        }
    };
    match run(&settings) {
        Ok(report) => {
            println!("M0BENCH {report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ws-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn settings(mut args: impl Iterator<Item = String>) -> std::result::Result<Settings, String> {
    let mut connect = None;
    let (mut connections, mut seconds, mut size, mut path) = (16, 5.0, 64, "/".to_owned());
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        let wrong = format!("{name}: not {value}");
        match name.as_str() {
            "--connect" => connect = Some(value.parse().map_err(|_| wrong)?),
            "--connections" => connections = value.parse().map_err(|_| wrong)?,
            "--seconds" => seconds = value.parse().map_err(|_| wrong)?,
            "--size" => size = value.parse().map_err(|_| wrong)?,
            "--path" => path = value,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    let connect = connect.ok_or("--connect ADDRESS is missing")?;
    Ok(Settings {
        connect,
        connections,
        seconds,
        size,
        path,
    })
}

fn run(settings: &Settings) -> Result<String> {
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut connections = Vec::with_capacity(settings.connections);
    for number in 0..settings.connections {
        let stream = handshake(settings)?;
        stream.set_nonblocking(true)?;
        epoll::add(
            &poll,
            stream.as_fd(),
            EventData::new_u64(number as u64),
            EventFlags::IN | EventFlags::OUT | EventFlags::ET,
        )?;
        connections.push(Connection::new(stream, message(number, settings.size)));
    }
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(settings.seconds);
    let mut latencies: Vec<u32> = Vec::with_capacity(1 << 20);
    for connection in &mut connections {
        connection.send_next()?;
    }
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    let mut now = begun;
    while now < end {
        events.clear();
        let left = (end - now).min(Duration::from_millis(100));
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: left.subsec_nanos().into(),
        };
        match epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            connections[event.data.u64() as usize].turn(&mut latencies)?;
        }
        now = Instant::now();
    }
    Ok(report(latencies, now - begun, settings.size))
}

fn handshake(settings: &Settings) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(settings.connect)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n",
        settings.path, settings.connect
    )?;
    // Byte by byte: nothing behind the head may be taken. The echo server sends nothing of its own.
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 16_384 {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "the answer's head has no end",
            ));
        }
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head);
    let accepted = text.lines().any(|line| {
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == ACCEPT
        })
    });
    if !text.starts_with("HTTP/1.1 101 ") || !accepted {
        let line = text.lines().next().unwrap_or_default();
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("no WebSocket: {line}"),
        ));
    }
    Ok(stream)
}

/// `size` bytes of text that no other connection sends.
fn message(number: usize, size: usize) -> Vec<u8> {
    let mark = format!("{number:08}:");
    mark.bytes().cycle().take(size).collect()
}

impl Connection {
    fn new(stream: TcpStream, message: Vec<u8>) -> Self {
        let frame = frame::masked(frame::TEXT, &message);
        let input = Vec::with_capacity(message.len() + 4096);
        Self {
            stream,
            message,
            sent: frame.len(),
            frame,
            input,
            echo: Vec::new(),
            begun: Instant::now(),
        }
    }

    fn send_next(&mut self) -> Result<()> {
        self.begun = Instant::now();
        self.sent = 0;
        self.echo.clear();
        self.send_rest()
    }

    fn send_rest(&mut self) -> Result<()> {
        while self.sent < self.frame.len() {
            match self.stream.write(&self.frame[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Everything that can be done now. Readiness is edge-triggered: reads until the socket has no more.
    fn turn(&mut self, latencies: &mut Vec<u32>) -> Result<()> {
        self.send_rest()?;
        loop {
            let mut piece = [0; 16_384];
            let count = match self.stream.read(&mut piece) {
                Ok(0) => {
                    return Err(Error::new(
                        ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    ));
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.input.extend_from_slice(&piece[..count]);
            while self.next_frame(latencies)? {}
        }
    }

    /// Takes one frame out of the input; false when there is no whole one.
    fn next_frame(&mut self, latencies: &mut Vec<u32>) -> Result<bool> {
        let parsed =
            frame::parse(&self.input).map_err(|text| Error::new(ErrorKind::InvalidData, text))?;
        let Some(frame) = parsed else {
            return Ok(false);
        };
        let end = frame.head + frame.payload;
        let payload: Vec<u8> = self.input[frame.head..end].to_vec();
        self.input.drain(..end);
        match frame.opcode {
            frame::TEXT | frame::CONTINUATION => {
                self.echo.extend_from_slice(&payload);
                if frame.fin {
                    if self.echo != self.message {
                        return Err(Error::new(
                            ErrorKind::InvalidData,
                            "the echo is not what was sent",
                        ));
                    }
                    latencies
                        .push(u32::try_from(self.begun.elapsed().as_micros()).unwrap_or(u32::MAX));
                    self.send_next()?;
                }
            }
            frame::PING => self
                .stream
                .write_all(&frame::masked(frame::PONG, &payload))?,
            frame::PONG => {}
            frame::CLOSE => {
                return Err(Error::new(
                    ErrorKind::ConnectionAborted,
                    "the server sent a close frame",
                ));
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::InvalidData,
                    "an unknown kind of frame",
                ));
            }
        }
        Ok(true)
    }
}

fn report(mut latencies: Vec<u32>, took: Duration, size: usize) -> String {
    latencies.sort_unstable();
    let at = |share: f64| {
        let last = latencies.len().saturating_sub(1);
        latencies
            .get(((latencies.len() as f64 * share) as usize).min(last))
            .copied()
            .unwrap_or(0)
    };
    let total: u64 = latencies.iter().map(|&each| u64::from(each)).sum();
    let mean = if latencies.is_empty() {
        0.0
    } else {
        total as f64 / latencies.len() as f64
    };
    format!(
        "{{\"requests\":{},\"duration_us\":{},\"bytes\":{},\"connect\":0,\"read\":0,\"write\":0,\"status\":0,\"timeout\":0,\
         \"p50_us\":{},\"p75_us\":{},\"p90_us\":{},\"p99_us\":{},\"p999_us\":{},\"max_us\":{},\"mean_us\":{mean:.1}}}",
        latencies.len(),
        took.as_micros(),
        latencies.len() * size,
        at(0.5),
        at(0.75),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
    )
}
