//! Who comes first is served first, or nearly so.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

#[test]
fn a_flood_of_requests_that_need_no_handler_holds_up_nobody() {
    let running = start(1, 0);
    let address = running.address;
    let flood = connect(address);
    let (mut requests, mut answers) = (flood.try_clone().unwrap(), flood.try_clone().unwrap());
    let flooded = Arc::new(AtomicUsize::new(0));
    let reading = {
        let flooded = Arc::clone(&flooded);
        thread::spawn(move || {
            let mut away = vec![0; 256 * 1024];
            while let Ok(read @ 1..) = answers.read(&mut away) {
                flooded.fetch_add(read, Ordering::Relaxed);
            }
        })
    };
    let flooding = thread::spawn(move || {
        let many = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2_000);
        // Until it is cut off.
        while requests.write_all(&many).is_ok() {}
    });
    eventually("the flood is on", || {
        flooded.load(Ordering::Relaxed) > 100_000
    });
    let mut other = connect(address);
    for _ in 0..10 {
        assert_eq!(get(&mut other, "/?other"), Some((200, b"other".to_vec())));
    }
    flood.shutdown(Shutdown::Both).unwrap();
    flooding.join().unwrap();
    reading.join().unwrap();
    drop(other);
    assert!(running.server.stop());
}
