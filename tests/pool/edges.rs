//! One loop, driven by hand: no edge is lost, whoever has the connection when it comes.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use m0serve::event_loop::{Job, Loop};
use m0serve::exchange::Progress;
use m0serve::http1::ResponseHead;

use crate::harness::*;

struct ByHand {
    the_loop: Box<Loop>,
    client: TcpStream,
}

impl ByHand {
    /// A loop with one connection that waits for its first request.
    fn start() -> ByHand {
        let (the_loop, address) = loop_in_hand();
        let mut by_hand = ByHand {
            the_loop,
            client: connect(address),
        };
        by_hand.turn_until("it is accepted", |the_loop| the_loop.connections() == 1);
        by_hand.settle_down();
        by_hand
    }

    fn turn_until(&mut self, what: &str, holds: impl Fn(&Loop) -> bool) {
        turn_until(&mut self.the_loop, what, holds);
    }

    fn settle_down(&mut self) {
        settle_down(&mut self.the_loop);
    }

    fn send(&mut self, target: &str) {
        ask(&mut self.client, target);
    }

    fn next_job(&mut self) -> Job {
        self.turn_until("a job", |the_loop| the_loop.queued() > 0);
        self.the_loop.next_job().unwrap()
    }

    fn answer(&self, job: &mut Job) {
        let mut head = ResponseHead::new();
        head.status(b"200 OK").unwrap();
        let body = job.exchange().query().to_vec();
        job.exchange().respond(&head, &body);
        job.complete(Progress::Done);
    }
}

/// How a connection comes back from its handler.
fn comes_back(by_hand: &mut ByHand, job: Job, holds_the_loop: bool) {
    if holds_the_loop {
        by_hand.the_loop.settle(job);
    } else {
        job.give_back(&by_hand.the_loop.port().mailbox);
    }
}

#[test]
fn a_request_that_came_while_a_handler_had_the_connection_is_seen_when_it_comes_back() {
    for holds_the_loop in [true, false] {
        let mut by_hand = ByHand::start();
        by_hand.send("/?first");
        let mut job = by_hand.next_job();
        by_hand.send("/?second");
        by_hand.settle_down();
        by_hand.answer(&mut job);
        comes_back(&mut by_hand, job, holds_the_loop);
        assert_eq!(answer(&mut by_hand.client), Some((200, b"first".to_vec())));
        let mut job = by_hand.next_job();
        by_hand.answer(&mut job);
        comes_back(&mut by_hand, job, !holds_the_loop);
        assert_eq!(answer(&mut by_hand.client), Some((200, b"second".to_vec())));
    }
}

#[test]
fn an_end_that_came_while_a_handler_had_the_connection_is_seen_when_it_comes_back() {
    for holds_the_loop in [true, false] {
        let mut by_hand = ByHand::start();
        by_hand.send("/?only");
        let mut job = by_hand.next_job();
        by_hand.client.shutdown(Shutdown::Write).unwrap();
        by_hand.settle_down();
        by_hand.answer(&mut job);
        comes_back(&mut by_hand, job, holds_the_loop);
        by_hand.turn_until("it is closed", |the_loop| the_loop.connections() == 0);
        assert_eq!(answer(&mut by_hand.client), Some((200, b"only".to_vec())));
        assert_eq!(by_hand.client.read(&mut [0; 16]).unwrap(), 0);
    }
}

#[test]
fn an_end_that_came_with_the_last_bytes_is_seen() {
    for holds_the_loop in [true, false] {
        let mut by_hand = ByHand::start();
        by_hand.send("/?only");
        by_hand.client.shutdown(Shutdown::Write).unwrap();
        let mut job = by_hand.next_job();
        by_hand.answer(&mut job);
        comes_back(&mut by_hand, job, holds_the_loop);
        by_hand.turn_until("it is closed", |the_loop| the_loop.connections() == 0);
        assert_eq!(answer(&mut by_hand.client), Some((200, b"only".to_vec())));
    }
}

#[test]
fn a_response_that_waits_for_the_client_goes_on_when_it_reads() {
    for holds_the_loop in [true, false] {
        let mut by_hand = ByHand::start();
        by_hand.send("/?only");
        let mut job = by_hand.next_job();
        let body = vec![b'x'; 16 * 1024 * 1024];
        job.exchange().respond(&ResponseHead::new(), &body);
        job.complete(Progress::Done);
        comes_back(&mut by_hand, job, holds_the_loop);
        let mut client = by_hand.client.try_clone().unwrap();
        let reading = std::thread::spawn(move || answer(&mut client));
        let begun = Instant::now();
        while !reading.is_finished() {
            assert!(begun.elapsed() < PATIENCE, "the response stands still");
            by_hand
                .the_loop
                .turn(Some(Duration::from_millis(1)))
                .unwrap();
        }
        assert_eq!(reading.join().unwrap().unwrap().1.len(), body.len());
        // And the connection with it.
        by_hand.send("/?next");
        let mut job = by_hand.next_job();
        by_hand.answer(&mut job);
        comes_back(&mut by_hand, job, true);
        assert_eq!(answer(&mut by_hand.client), Some((200, b"next".to_vec())));
    }
}
