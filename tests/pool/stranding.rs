//! No job waits while a handler could run it, and no loop is left without a driver.

use std::io::Read;
use std::net::TcpStream;
use std::thread;

use m0serve::observe::counters::Counter;
use m0serve::topology::Placement;

use crate::harness::*;

/// Until views are known to be long on every loop, so that drivers hand them over.
fn teach_that_views_are_long(clients: &mut [TcpStream]) {
    for _ in 0..40 {
        for client in clients.iter_mut() {
            assert!(get(client, "/slow?teach").is_some());
        }
    }
}

#[test]
fn long_views_that_come_at_once_on_several_loops_all_begin() {
    for shared_gil in [false, true] {
        let running = Setup {
            shared_gil,
            ..Setup::new(2, 2)
        }
        .start();
        let mut clients = [connect(running.address), connect(running.address)];
        teach_that_views_are_long(&mut clients);
        for round in 0..100 {
            for (number, client) in clients.iter_mut().enumerate() {
                ask(client, &format!("/gate?{round}.{number}"));
            }
            running.stage.wait_inside(2);
            for (number, client) in clients.iter_mut().enumerate() {
                running.stage.open_one(&format!("{round}.{number}"));
                assert!(answer(client).is_some());
            }
        }
        assert!(running.server.stop());
    }
}

#[test]
fn long_views_that_come_at_once_on_one_loop_all_begin() {
    for shared_gil in [false, true] {
        let running = Setup {
            shared_gil,
            ..Setup::new(1, 3)
        }
        .start();
        let mut clients: Vec<_> = (0..3).map(|_| connect(running.address)).collect();
        teach_that_views_are_long(&mut clients);
        for round in 0..100 {
            for (number, client) in clients.iter_mut().enumerate() {
                ask(client, &format!("/gate?{round}.{number}"));
            }
            running.stage.wait_inside(3);
            for (number, client) in clients.iter_mut().enumerate() {
                running.stage.open_one(&format!("{round}.{number}"));
                assert!(answer(client).is_some());
            }
        }
        assert!(running.server.stop());
    }
}

#[test]
fn views_that_stand_in_line_for_the_gil_stop_nobody_else() {
    let running = Setup {
        shared_gil: true,
        ..Setup::new(1, 3)
    }
    .start();
    let mut waiting = connect(running.address);
    ask(&mut waiting, "/attach?waits");
    running.stage.wait_inside(1);
    let mut other = connect(running.address);
    for _ in 0..20 {
        assert_eq!(get(&mut other, "/?other"), Some((200, b"other".to_vec())));
    }
    running.stage.open();
    assert_eq!(answer(&mut waiting), Some((200, b"waits".to_vec())));
    assert!(running.server.stop());
}

/// Streams begin and end all the time, so that handlers are added and end, while long jobs keep coming.
#[test]
fn handlers_that_end_after_streams_leave_no_job_behind() {
    let running = start(1, 1);
    let address = running.address;
    let asking: Vec<_> = (0..3)
        .map(|client| {
            thread::spawn(move || {
                let mut stream = connect(address);
                for round in 0..200 {
                    let body = format!("{client}.{round}");
                    let got = get(&mut stream, &format!("/slow?{body}"));
                    assert_eq!(got, Some((200, body.into_bytes())));
                }
            })
        })
        .collect();
    for _ in 0..12 {
        let mut streams: Vec<_> = (0..3).map(|_| connect(address)).collect();
        for stream in &mut streams {
            ask(stream, "/endless?");
        }
        for stream in &mut streams {
            let mut piece = [0; 64];
            assert!(stream.read(&mut piece).unwrap() > 0);
        }
    }
    for client in asking {
        client.join().unwrap();
    }
    assert!(running.server.stop());
}

#[test]
fn standing_in_line_for_the_gil_is_not_taken_for_a_long_view() {
    let running = Setup {
        shared_gil: true,
        ..Setup::new(1, 3)
    }
    .start();
    let mut waiting = connect(running.address);
    for round in 0..40 {
        let rescued = running.common.counters.sum(Counter::Rescued);
        ask(&mut waiting, &format!("/attach?{round}"));
        // Long enough that its loop was taken from it.
        eventually("the loop is rescued", || {
            running.common.counters.sum(Counter::Rescued) > rescued
        });
        running.stage.open_one(&round.to_string());
        assert!(answer(&mut waiting).is_some());
    }
    let stolen = running.common.counters.sum(Counter::Stolen);
    for _ in 0..10 {
        assert!(get(&mut waiting, "/?short").is_some());
    }
    assert_eq!(running.common.counters.sum(Counter::Stolen), stolen);
    assert!(running.server.stop());
}

#[test]
fn a_driver_whose_loop_was_taken_leaves_the_loops_core() {
    let allowed = allowed_cpus();
    let [first, .., last] = allowed[..] else {
        // On one core there is nowhere else to go.
        return;
    };
    let running = Setup {
        placement: Placement::Each(vec![first, last]),
        ..Setup::new(1, 1)
    }
    .start();
    let mut long = connect(running.address);
    ask(&mut long, "/cpus?long");
    running.stage.wait_inside(1);
    // The new driver has the core by the time it answers.
    let mut other = connect(running.address);
    assert!(get(&mut other, "/health").is_some());
    running.stage.open();
    let anywhere = format!("{:?}", [first, last]);
    assert_eq!(answer(&mut long), Some((200, anywhere.into_bytes())));
    // Mostly the driver's own answer; a thief's where the machine was too busy for it.
    let of_the_loop = format!("{:?}", [first]).into_bytes();
    let by_the_driver =
        |_| get(&mut other, "/cpus?other").is_some_and(|(_, cpus)| cpus == of_the_loop);
    assert!((0..1000).any(by_the_driver));
    assert!(running.server.stop());
}
