//! An idle server sleeps: nothing ticks, with or without connections that are kept alive.
//!
//! A target of its own, because it counts the switches of the process's threads.

#[allow(dead_code)] // other tests' part
#[path = "pool/harness.rs"]
mod harness;

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use harness::*;

/// How often each of the server's threads has been switched to, by name.
fn switches() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else {
            continue;
        };
        let value = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            line[key.len()..].trim().to_string()
        };
        let name = value("Name:");
        if name.starts_with("handler-") || name == "monitor" {
            let count = |key| value(key).parse::<u64>().unwrap();
            let both = count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:");
            all.insert(name, both);
        }
    }
    all
}

#[test]
fn nobody_wakes_up_without_a_reason() {
    for (threads, blocking_threads) in [(1, 0), (2, 2)] {
        let running = start(threads, blocking_threads);
        let mut clients: Vec<_> = (0..20).map(|_| connect(running.address)).collect();
        for client in &mut clients {
            for path in ["/", "/slow", "/big?100"] {
                // Both the driver's and thieves' way back to the seat, and the loop's.
                ask(client, path);
            }
            for _ in 0..3 {
                assert!(answer(client).is_some());
            }
        }
        // It comes to rest …
        eventually("the threads sleep", || {
            let before = switches();
            thread::sleep(Duration::from_millis(200));
            before == switches()
        });
        // … and stays there.
        let before = switches();
        assert_eq!(
            before.len(),
            threads * (blocking_threads + 1) + usize::from(blocking_threads > 0)
        );
        thread::sleep(Duration::from_secs(2));
        assert_eq!(before, switches());
        for client in &mut clients {
            assert!(get(client, "/?awake").is_some());
        }
        drop(clients);
        assert!(running.server.stop());
    }
}
