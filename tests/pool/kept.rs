//! Answers leave together while more requests wait, and none is left behind (`event_loop/kept.rs`).

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use m0serve::event_loop::{Job, Loop};
use m0serve::exchange::Progress;
use m0serve::http1::ResponseHead;

use crate::harness::*;

/// A loop in hand whose clients have each sent a request that is a job now.
struct Burst {
    the_loop: Box<Loop>,
    clients: Vec<TcpStream>,
}

impl Burst {
    fn of(count: usize) -> Burst {
        Burst::pipelining(count, 1)
    }

    /// Each has sent so many requests, of which the first is a job.
    fn pipelining(count: usize, requests: usize) -> Burst {
        let (mut the_loop, address) = loop_in_hand();
        let mut clients: Vec<TcpStream> = (0..count).map(|_| connect(address)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            for _ in 0..requests {
                ask(client, &format!("/?{number}"));
            }
        }
        turn_until(&mut the_loop, "all requests are jobs", |the_loop| {
            the_loop.queued() >= count
        });
        settle_down(&mut the_loop);
        Burst { the_loop, clients }
    }

    /// The next job, answered, and the number of its client.
    fn answered(&mut self, body: &[u8]) -> (Job, usize) {
        let mut job = self.the_loop.next_job().unwrap();
        job.exchange().respond(&ResponseHead::new(), body);
        job.complete(Progress::Done);
        let query = String::from_utf8(job.exchange().query().to_vec()).unwrap();
        (job, query.parse().unwrap())
    }

    fn settle_one(&mut self, body: &[u8]) -> usize {
        let (job, number) = self.answered(body);
        self.the_loop.settle(job);
        number
    }

    /// How many clients have something to read.
    fn told(&self) -> usize {
        let is_told = |client: &&TcpStream| {
            client.set_nonblocking(true).unwrap();
            let peeked = client.peek(&mut [0]);
            client.set_nonblocking(false).unwrap();
            peeked.is_ok_and(|length| length > 0)
        };
        self.clients.iter().filter(is_told).count()
    }

    fn expect_told(&self, count: usize) {
        eventually("as many have something to read", || self.told() == count);
    }
}

/// The first answer of a burst that was kept, which a machine that stands still for a moment can prevent.
fn kept_one() -> Burst {
    let begun = Instant::now();
    loop {
        let mut burst = Burst::of(3);
        burst.settle_one(b"short");
        if burst.told() == 0 {
            return burst;
        }
        assert!(begun.elapsed() < PATIENCE, "no answer is ever kept");
    }
}

#[test]
fn kept_answers_leave_before_the_loop_waits() {
    let mut burst = kept_one();
    burst.the_loop.wait(Some(Duration::ZERO)).unwrap();
    burst.expect_told(1);
}

#[test]
fn kept_answers_leave_with_the_last() {
    let mut burst = kept_one();
    for _ in 0..2 {
        burst.settle_one(b"short");
    }
    burst.expect_told(3);
    for client in &mut burst.clients {
        assert_eq!(answer(client), Some((200, b"short".to_vec())));
    }
}

#[test]
fn a_long_answer_is_not_kept_and_takes_the_others_along() {
    let mut burst = kept_one();
    burst.settle_one(&[b'x'; 64 * 1024]);
    burst.expect_told(2);
}

#[test]
fn no_answer_is_kept_that_no_request_waits_behind() {
    let mut burst = Burst::of(1);
    burst.settle_one(b"short");
    burst.expect_told(1);
}

#[test]
fn a_handler_that_does_not_hold_the_loop_keeps_nothing() {
    let mut burst = Burst::of(2);
    let (job, _) = burst.answered(b"short");
    job.give_back(&burst.the_loop.port().mailbox);
    burst.expect_told(1);
}

#[test]
fn a_connection_that_is_to_close_closes_after_its_kept_answer() {
    let mut burst = kept_one();
    let mut job = burst.the_loop.next_job().unwrap();
    job.exchange().close_after();
    job.exchange().respond(&ResponseHead::new(), b"last");
    job.complete(Progress::Done);
    let number: usize = String::from_utf8_lossy(job.exchange().query())
        .parse()
        .unwrap();
    burst.the_loop.settle(job);
    burst.the_loop.wait(Some(Duration::ZERO)).unwrap();
    let client = &mut burst.clients[number];
    assert_eq!(answer(client), Some((200, b"last".to_vec())));
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_request_behind_a_kept_answer_is_a_job_and_the_loop_does_not_wait() {
    let mut burst = Burst::pipelining(2, 2);
    burst.settle_one(b"short");
    // A thief has it, and is long about it.
    let _other = burst.the_loop.next_job();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        burst.the_loop.wait(None).unwrap();
        sender.send(burst.the_loop.queued()).unwrap();
    });
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1));
}

/// Bursts of short requests with one behind them that is stuck: its loop is rescued, and the kept answers with it.
#[test]
fn answers_before_a_stuck_view_arrive_while_it_is_stuck() {
    let running = start(1, 3);
    let mut short: Vec<TcpStream> = (0..6).map(|_| connect(running.address)).collect();
    for round in 0..100 {
        let gate = format!("/gate?{round}");
        let mut stuck = connect(running.address);
        for client in &mut short {
            ask(client, "/");
        }
        ask(&mut stuck, &gate);
        for client in &mut short {
            assert_eq!(answer(client).unwrap().0, 200, "round {round}");
        }
        running.stage.open_one(&round.to_string());
        assert_eq!(answer(&mut stuck).unwrap().0, 200, "round {round}");
    }
}
