//! Who comes first is served first, or nearly so.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
        // All handlers but the drivers are inside views: what comes now waits for one of them.
        let mut blocked = [connect(running.address), connect(running.address)];
        for (number, stream) in blocked.iter_mut().enumerate() {
            ask(stream, &format!("/gate?blocked{number}"));
            running.stage.wait_inside(number + 1);
        }
        ask(&mut clients[older], "/?older");
        let asked = Instant::now();
        while asked.elapsed() < MUCH_LATER {
            thread::sleep(MUCH_LATER - asked.elapsed().min(MUCH_LATER));
        }
        ask(&mut clients[1 - older], "/?younger");
        // Both are queued once their loops have answered what came after them.
        for _ in 0..2 {
            let mut behind = connect(running.address);
            assert!(get(&mut behind, "/health").is_some());
        }
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

#[test]
fn a_flood_of_requests_that_need_no_handler_holds_up_nobody() {
    let running = start(1, 0);
    let address = running.address;
    let over = Arc::new(AtomicBool::new(false));
    let mut flood = connect(address);
    let mut answers = flood.try_clone().unwrap();
    let reading = thread::spawn(move || {
        let mut away = vec![0; 256 * 1024];
        while answers.read(&mut away).is_ok_and(|read| read > 0) {}
    });
    let flooding = {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            let many = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2_000);
            while !over.load(Ordering::Relaxed) {
                flood.write_all(&many).unwrap();
            }
            flood.shutdown(std::net::Shutdown::Write).unwrap();
        })
    };
    let mut other = connect(address);
    for _ in 0..10 {
        assert_eq!(get(&mut other, "/?other"), Some((200, b"other".to_vec())));
    }
    over.store(true, Ordering::Relaxed);
    flooding.join().unwrap();
    reading.join().unwrap();
    drop(other);
    assert!(running.server.stop());
}
