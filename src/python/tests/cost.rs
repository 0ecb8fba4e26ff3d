//! What a request costs in the bridge, its parts apart. Not a test: run it in a release build, on a quiet machine.
//!
//! `cargo test --release --lib bridge_cost -- --ignored --nocapture`

use std::sync::Barrier;
use std::time::Instant;

use super::super::wsgi::WsgiHandler;
use super::{Site, Wire};
use crate::exchange::{Handler, HandlerFactory, Progress};
use crate::sync::Arc;

/// What a browser sends.
const BROWSER: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: keep-alive\r\nCache-Control: max-age=0\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9\r\n\r\n";

const APP: &str = "def app(environ, start_response):\n    start_response('200 OK', [('Content-Type', 'text/plain')])\n    return [b'Hello, World!']\n";

const BATCH: usize = 256;
const ROUNDS: usize = 400;

/// Nanoseconds per call of `work`, the best of several series: what disturbs only ever adds.
fn measure(work: &mut dyn FnMut()) -> f64 {
    (0..7)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..20_000 {
                work();
            }
            begin.elapsed().as_nanos() as f64 / 20_000.0
        })
        .fold(f64::INFINITY, f64::min)
}

fn batch(handler: &mut WsgiHandler, wire: &mut Wire) {
    for _ in 0..BATCH {
        wire.exchange.open_response();
        assert_eq!(handler.handle(&mut wire.exchange), Progress::Done);
    }
}

fn whole(handler: &mut WsgiHandler, wire: &mut Wire) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        batch(handler, wire);
        best = best.min(begin.elapsed().as_nanos() as f64 / BATCH as f64);
        wire.drain();
    }
    best
}

/// The present thread's CPU time in nanoseconds: other processes' share of the machine does not show in it, waiting for
/// each other's cache lines does.
fn processor_time() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

#[test]
#[ignore = "a measurement"]
fn bridge_cost() {
    let mut site = Site::new(APP);
    let mut wire = site.open(BROWSER.as_bytes());
    println!(
        "whole request            {:7.0} ns",
        whole(&mut site.handler, &mut wire)
    );
    let parts = site
        .handler
        .thread()
        .attached(|py| site.handler.parts(py, &mut wire.exchange, measure));
    for (name, cost) in parts {
        println!("  {name:22} {cost:7.0} ns");
    }
    println!(
        "  attach and detach      {:7.0} ns",
        measure(&mut || site.handler.thread().attached(|_| ()))
    );

    for threads in [1, 2] {
        let barrier = Arc::new(Barrier::new(threads));
        let total: f64 = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..threads)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    let (factory, common, peer) = (
                        Arc::clone(&site.factory),
                        Arc::clone(&site.common),
                        site.peer.clone(),
                    );
                    scope.spawn(move || {
                        let mut handler = factory.make(0);
                        let mut wire = super::open(peer, &common, BROWSER.as_bytes());
                        whole(&mut handler, &mut wire);
                        barrier.wait();
                        let begin = processor_time();
                        for _ in 0..ROUNDS {
                            batch(&mut handler, &mut wire);
                            wire.drain();
                        }
                        (processor_time() - begin) / (ROUNDS * BATCH) as f64
                    })
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).sum()
        });
        println!(
            "{threads} threads at once       {:7.0} ns of CPU a request, sending in batches included",
            total / threads as f64
        );
    }
}
