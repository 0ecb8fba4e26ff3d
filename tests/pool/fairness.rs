//! Who comes first is served first, or nearly so.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use m0serve::config::Timeouts;
use m0serve::event_loop::Loop;
use m0serve::exchange::{Common, Exchange, LocalAnswers};
use m0serve::http1::Limits;
use m0serve::local::Health;

use crate::harness::*;

/// More than a slice and a step of the clock: what the guarantee says.
const MUCH_LATER: Duration = Duration::from_millis(10);

#[test]
fn a_job_does_not_wait_behind_another_loops_that_came_later() {
    // Whichever loop the freed thief is at home in, it is the older job's in one case and the younger's in the other.
    for older in [0, 1] {
        let running = start(2, 1);
        // One on each loop, and each loop has just had a job.
        let mut clients = [connect(running.address), connect(running.address)];
        for client in &mut clients {
            assert!(get(client, "/?warm").is_some());
        }
        // Again one on each loop: what its loop was sent before has been looked at when it is answered.
        let mut witnesses = [connect(running.address), connect(running.address)];
        let mut both_loops_have_looked = || {
            for witness in &mut witnesses {
                assert!(get(witness, "/health").is_some());
            }
        };
        both_loops_have_looked();
        // All handlers but the drivers are inside views: what comes now waits for one of them.
        let mut blocked = [connect(running.address), connect(running.address)];
        for (number, stream) in blocked.iter_mut().enumerate() {
            ask(stream, &format!("/gate?blocked{number}"));
            running.stage.wait_inside(number + 1);
        }
        ask(&mut clients[older], "/?older");
        both_loops_have_looked();
        let asked = Instant::now();
        while asked.elapsed() < MUCH_LATER {
            thread::sleep(MUCH_LATER - asked.elapsed().min(MUCH_LATER));
        }
        ask(&mut clients[1 - older], "/?younger");
        both_loops_have_looked();
        running.stage.open_one("blocked0");
        for client in &mut clients {
            assert!(answer(client).is_some());
        }
        let begun = running.stage.begun();
        let place = |query: &str| begun.iter().position(|begun| begun == query).unwrap();
        assert!(place("older") < place("younger"), "{begun:?}");
        running.stage.open();
        assert!(running.server.stop());
    }
}

/// Counts what it answers.
struct Counted {
    health: Health,
    answers: AtomicUsize,
}

impl LocalAnswers for Counted {
    fn answer(&self, exchange: &mut Exchange) -> bool {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.health.answer(exchange)
    }
}

#[test]
fn pipelined_requests_that_need_no_handler_get_their_share_of_a_pass() {
    const REQUESTS: usize = 1_000;
    let (listener, address) = listen();
    let common = Arc::new(Common::new(Limits::default(), Timeouts::default(), false));
    let local = Arc::new(Counted {
        health: Health::new("/health"),
        answers: AtomicUsize::new(0),
    });
    let answers = || local.answers.load(Ordering::Relaxed);
    let listeners = Arc::from([listener]);
    let answering = Arc::clone(&local) as Arc<dyn LocalAnswers>;
    let mut loops = Loop::make(1, listeners, &common, Some(answering)).unwrap();
    let the_loop = &mut loops[0];

    let mut client = connect(address);
    let requests = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS);
    client.write_all(&requests).unwrap();
    let begun = Instant::now();
    while answers() < REQUESTS {
        assert!(begun.elapsed() < PATIENCE, "{} answers", answers());
        let before = answers();
        the_loop.turn(Some(Duration::ZERO)).unwrap();
        // Sixty-four for its edge, and as many for its own mail.
        let answered = answers() - before;
        assert!(answered <= 128, "{answered} in one pass");
    }
    for _ in 0..REQUESTS {
        assert_eq!(answer(&mut client).unwrap().0, 200);
    }
}
