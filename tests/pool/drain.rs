//! A stop loses nobody who has connected.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use crate::harness::*;

#[test]
fn a_connection_accepted_when_another_loop_has_ended_is_served() {
    let running = start(2, 0);
    let mut busy = connect(running.address);
    ask(&mut busy, "/gate?busy");
    running.stage.wait_inside(1);
    // The other loop's: this one is inside a view.
    let mut idle = connect(running.address);
    assert_eq!(get(&mut idle, "/?idle"), Some((200, b"idle".to_vec())));

    let (stage, common) = (Arc::clone(&running.stage), Arc::clone(&running.common));
    let address = running.address;
    let stopping = thread::spawn(move || running.server.stop());
    // The idle one's loop closes its doors, then it, and has nothing left to do.
    assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0);
    let mut late = connect(address);
    ask(&mut late, "/?late");
    eventually("only the busy loop's connection is open", || {
        common.open.load(Ordering::SeqCst) == 1
    });
    stage.open();
    assert_eq!(answer(&mut busy), Some((200, b"busy".to_vec())));
    let (code, head, body) = whole_answer(&mut late).expect("an answer");
    assert_eq!((code, body), (200, b"late".to_vec()));
    assert!(head.contains("Connection: close\r\n"), "{head}");
    assert!(stopping.join().unwrap());
    assert_eq!(common.open.load(Ordering::SeqCst), 0);
}

#[test]
fn a_response_put_aside_for_a_slow_client_is_finished_in_a_drain() {
    let running = start(1, 0);
    let mut slow = connect(running.address);
    ask(&mut slow, "/stream?1024");
    running.stage.wait_suspended(1);
    let mut idle = connect(running.address);
    assert_eq!(get(&mut idle, "/?idle"), Some((200, b"idle".to_vec())));
    let stopping = thread::spawn(move || running.server.stop());
    assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0);
    let mut response = Vec::new();
    slow.read_to_end(&mut response).unwrap();
    assert!(response.ends_with(b"0\r\n\r\n"));
    assert!(stopping.join().unwrap());
}

#[test]
fn a_drain_while_accepting_is_paused_ends() {
    let running = Setup {
        limit_connections: 1,
        ..Setup::new(2, 1)
    }
    .start();
    let mut first = connect(running.address);
    assert_eq!(get(&mut first, "/?first"), Some((200, b"first".to_vec())));
    // Stays in the backlog.
    let mut second = connect(running.address);
    ask(&mut second, "/?second");
    drop(first);
    assert_eq!(answer(&mut second), Some((200, b"second".to_vec())));
    let third = connect(running.address);
    let common = Arc::clone(&running.common);
    assert!(running.server.stop());
    assert_eq!(common.open.load(Ordering::SeqCst), 0);
    drop(third);
}
