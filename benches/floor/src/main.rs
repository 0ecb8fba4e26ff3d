//! The floor: the least that one thread does for a request on a keep-alive connection. One `recv`, one head parsed
//! by httparse, one `send`, readiness from epoll. No Python, no limits, no time-outs, no request bodies: not a
//! server to use, only the cost that no server on this kernel and this parser can go below.
//!
//! One thread runs everything. `epoll-floor --bind ADDRESS --body TEXT` answers every request with TEXT.

use std::io::{Error, Result};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The most fields that a head may have; more end the connection.
const MAX_FIELDS: usize = 100;
/// A head longer than this ends the connection.
const MAX_HEAD: usize = 64 * 1024;
/// The listener's place among the epoll tokens; connections use their slot's number.
const LISTENER: u64 = u64::MAX;

/// What is left of a connection between two requests: the socket and bytes of a head that has not ended yet.
struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

/// Whether the connection lives on.
#[derive(PartialEq, Eq)]
enum Fate {
    Keep,
    Close,
}

struct Settings {
    bind: SocketAddr,
    body: String,
}

fn main() -> ExitCode {
    let settings = match settings(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(text) => {
            eprintln!("epoll-floor: {text}\nusage: epoll-floor [--bind ADDRESS] [--body TEXT]");
            return ExitCode::from(2);
        }
    };
    match serve(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("epoll-floor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn settings(mut args: impl Iterator<Item = String>) -> std::result::Result<Settings, String> {
    let mut settings = Settings {
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
        body: "Hello, World!".into(),
    };
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--bind" => {
                settings.bind = value.parse().map_err(|_| format!("no address: {value}"))?
            }
            "--body" => settings.body = value,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(settings)
}

fn serve(settings: &Settings) -> Result<()> {
    let answer = answer(&settings.body);
    let listener = TcpListener::bind(settings.bind)?;
    listener.set_nonblocking(true)?;
    eprintln!(
        "epoll-floor: listening on http://{}",
        listener.local_addr()?
    );

    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &poll,
        listener.as_fd(),
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events: Vec<Event> = Vec::with_capacity(512);
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let token = event.data.u64();
            if token == LISTENER {
                accept(&listener, &poll, &mut connections)?;
                continue;
            }
            let slot = &mut connections[token as usize];
            if let Some(connection) = slot
                && connection.turn(&answer) == Fate::Close
            {
                *slot = None; // closing the socket takes it out of the epoll set
            }
        }
    }
}

/// The whole answer, made once: what a server has to send for a small page, with the same fields that servers send.
fn answer(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
         Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn accept(
    listener: &TcpListener,
    poll: &impl AsFd,
    connections: &mut Vec<Option<Connection>>,
) -> Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let slot = connections
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                connections.push(None);
                connections.len() - 1
            });
        epoll::add(
            poll,
            stream.as_fd(),
            EventData::new_u64(slot as u64),
            EventFlags::IN,
        )
        .map_err(Error::from)?;
        connections[slot] = Some(Connection {
            stream,
            input: Vec::with_capacity(4096),
        });
    }
}

impl Connection {
    /// One reading of the socket, and one answer for each whole head in it.
    fn turn(&mut self, answer: &[u8]) -> Fate {
        if self.input.len() == self.input.capacity() {
            if self.input.len() >= MAX_HEAD {
                return Fate::Close;
            }
            self.input.reserve(4096);
        }
        match recv(
            &self.stream,
            spare_capacity(&mut self.input),
            RecvFlags::empty(),
        ) {
            Ok((0, _)) => return Fate::Close,
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Fate::Keep,
            Err(_) => return Fate::Close,
        }
        let mut done = 0;
        let mut fate = Fate::Keep;
        while done < self.input.len() && fate == Fate::Keep {
            let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
            let mut request = httparse::Request::new(&mut fields);
            match request.parse(&self.input[done..]) {
                Ok(httparse::Status::Complete(length)) => {
                    if wants_close(request.headers) {
                        fate = Fate::Close;
                    }
                    done += length;
                }
                Ok(httparse::Status::Partial) => break,
                Err(_) => return Fate::Close,
            }
            // A socket that takes less than a small answer is full of answers that its client doesn't read.
            if send(&self.stream, answer, SendFlags::NOSIGNAL) != Ok(answer.len()) {
                return Fate::Close;
            }
        }
        self.input.drain(..done);
        fate
    }
}

fn wants_close(fields: &[httparse::Header<'_>]) -> bool {
    fields.iter().any(|field| {
        field.name.eq_ignore_ascii_case("connection") && field.value.eq_ignore_ascii_case(b"close")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_announces_its_body() {
        let text = String::from_utf8(answer("twelve bytes")).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.lines().any(|line| line == "Content-Length: 12"));
        assert_eq!(body, "twelve bytes");
    }

    #[test]
    fn close_is_wanted_in_any_case_and_only_by_connection() {
        let field = |name, value| [httparse::Header { name, value }];
        assert!(wants_close(&field("cOnnection", b"Close")));
        assert!(!wants_close(&field("Connection", b"keep-alive")));
        assert!(!wants_close(&field("X-Connection", b"close")));
    }
}
