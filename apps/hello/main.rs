//! The smallest application on this crate's library: no Python, one fixed answer. It shows how a `Handler` is written,
//! and what a request costs before any interpreter comes in.
//!
//! `cargo run --release --no-default-features --example hello -- 127.0.0.1:8000 [LOOPS [STANDBYS-PER-LOOP]]`

use std::process::ExitCode;
use std::sync::Arc;

use m0serve::config::{BindAddress, Timeouts};
use m0serve::exchange::{Common, Exchange, Handler, HandlerFactory, Progress};
use m0serve::http1::{Limits, ResponseHead};
use m0serve::net::Listener;
use m0serve::pool::turn_slice::TurnSlice;
use m0serve::pool::{Controls, Shape};
use m0serve::server::{Application, Server};
use m0serve::supervisor::StopRequests;
use m0serve::topology::Placement;

struct Hello {
    head: ResponseHead,
}

impl Handler for Hello {
    fn handle(&mut self, exchange: &mut Exchange) -> Progress {
        exchange.respond(&self.head, b"Hello, World!");
        Progress::Done
    }
}

struct Hellos;

impl HandlerFactory for Hellos {
    type Handler = Hello;

    fn make(&self, _index: usize) -> Hello {
        let mut head = ResponseHead::new();
        head.status(b"200 OK").expect("a valid status");
        head.field(b"Content-Type", b"text/plain")
            .expect("a valid field");
        Hello { head }
    }
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: BindAddress = arguments
        .next()
        .as_deref()
        .unwrap_or("127.0.0.1:8000")
        .parse()?;
    let threads = arguments.next().as_deref().unwrap_or("1").parse()?;
    let blocking_threads = arguments.next().as_deref().unwrap_or("0").parse()?;

    let stop = StopRequests::take_over(|| {})?;
    let listener = Listener::bind(&address, 1024)?;
    let common = Arc::new(Common::new(
        Limits::default(),
        Timeouts::default(),
        blocking_threads > 0,
    ));
    let placement = Placement::Anywhere("not pinned");
    let shape = Shape {
        threads,
        blocking_threads,
        streaming_threads: 8,
        controls: Controls::from_env(),
        placement,
    };
    let turns = Arc::new(TurnSlice::new(false, false));
    let application = Application {
        factory: Hellos,
        turns,
        local_answers: None,
    };
    let server = Server::start(shape, vec![listener], common, application)?;
    eprintln!("listening on {}", server.addresses().join(" and "));
    stop.wait();
    server.stop();
    Ok(())
}
