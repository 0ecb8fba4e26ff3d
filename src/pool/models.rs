//! Loom models of the pool's protocols: `RUSTFLAGS="--cfg loom" cargo test --release --no-default-features --lib models`.
//! Loom runs every interleaving of a few threads; a wake that can be lost shows as a deadlock.

use loom::thread;

use super::baton::{Lease, Vigil};
use super::sleep::{Order, Sleep};
use crate::event_loop::Seat;
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering, fence};

/// The sleep README's "An offer is never missed": the driver offers and calls while the standby parks.
#[test]
fn an_offer_wakes_a_standby_that_parks_meanwhile() {
    loom::model(|| {
        let sleep = Arc::new(Sleep::<Box<()>>::new(1));
        let offered = Arc::new(AtomicBool::new(false));
        let driver = {
            let (sleep, offered) = (Arc::clone(&sleep), Arc::clone(&offered));
            thread::spawn(move || {
                offered.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                sleep.call_thief();
            })
        };
        let order = sleep.park(0, || offered.load(Ordering::Relaxed));
        assert_eq!(order, Order::Steal);
        assert!(offered.load(Ordering::Relaxed), "woken for nothing");
        driver.join().unwrap();
    });
}

/// Two callers, one standby: it is claimed once, and the counts come out even.
#[test]
fn a_standby_is_claimed_once() {
    loom::model(|| {
        let sleep = Arc::new(Sleep::<Box<u8>>::new(1));
        let claims = Arc::new(AtomicUsize::new(0));
        let caller = {
            let (sleep, claims) = (Arc::clone(&sleep), Arc::clone(&claims));
            thread::spawn(move || {
                if sleep.claim_driver() {
                    claims.fetch_add(1, Ordering::SeqCst);
                    sleep.send_driver(Box::new(7));
                }
            })
        };
        let stopper = {
            let sleep = Arc::clone(&sleep);
            thread::spawn(move || {
                sleep.stop_all();
            })
        };
        let order = sleep.park(0, || false);
        match order {
            Order::Stop => {}
            Order::Drive(duty) => assert_eq!((*duty, claims.load(Ordering::SeqCst)), (7, 1)),
            Order::Steal => panic!("nobody asked for a thief"),
        }
        caller.join().unwrap();
        stopper.join().unwrap();
    });
}

/// The driver comes out of its view while the monitor rescues the loop: one of them gets it, and a claimed standby is
/// either sent to drive or released.
#[test]
fn a_rescue_against_the_end_of_the_view() {
    loom::model(|| {
        let sleep = Arc::new(Sleep::<Box<u8>>::new(1));
        let lease = Arc::new(Lease::<u8>::new());
        let standby = {
            let sleep = Arc::clone(&sleep);
            thread::spawn(move || match sleep.park(0, || false) {
                Order::Drive(_) => 1,
                Order::Stop => 0,
                Order::Steal => panic!("nobody asked for a thief"),
            })
        };
        let monitor = {
            let (sleep, lease) = (Arc::clone(&sleep), Arc::clone(&lease));
            thread::spawn(move || {
                if lease.lent_for(5).is_some() && sleep.claim_driver() {
                    match lease.take_back() {
                        Some(held) => {
                            sleep.end_lend();
                            sleep.send_driver(held);
                        }
                        None => sleep.release(),
                    }
                }
            })
        };
        let mut driving = 0;
        if sleep.try_lend() {
            lease.lend(Box::new(3), 1);
            if lease.take_back().is_some() {
                sleep.end_lend();
                driving += 1;
            }
        } else {
            driving += 1;
        }
        monitor.join().unwrap();
        sleep.stop_all();
        // A stop may overtake an order to drive only here, where nobody waits for drained loops first.
        let rescued = standby.join().unwrap();
        assert!(driving + rescued <= 1, "two drivers");
    });
}

/// With a rescuer reserved for a lent loop, no thief is called away, whoever asks.
#[test]
fn the_last_standby_is_kept_for_a_lent_loop() {
    loom::model(|| {
        let sleep = Arc::new(Sleep::<Box<u8>>::new(1));
        let standby = {
            let sleep = Arc::clone(&sleep);
            thread::spawn(move || sleep.park(0, || true))
        };
        if sleep.try_lend() {
            assert!(!sleep.call_thief(), "the rescuer was sent to steal");
            assert!(sleep.claim_driver(), "no rescuer for a lent loop");
            sleep.end_lend();
            sleep.send_driver(Box::new(1));
            assert_eq!(standby.join().unwrap(), Order::Drive(Box::new(1)));
        } else {
            sleep.stop_all();
            standby.join().unwrap();
        }
    });
}

/// An edge that comes while a handler sits the connection down is seen by one of the two.
#[test]
fn readiness_against_giving_back() {
    loom::model(|| {
        let seat = Arc::new(Seat::<u8>::new());
        let served = Arc::new(AtomicUsize::new(0));
        let event_loop = {
            let (seat, served) = (Arc::clone(&seat), Arc::clone(&served));
            thread::spawn(move || {
                if seat.take_or_knock().is_some() {
                    served.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        if seat.sit_down(Box::new(1), || false).is_some() {
            served.fetch_add(1, Ordering::SeqCst);
        }
        event_loop.join().unwrap();
        assert_eq!(
            served.load(Ordering::SeqCst),
            1,
            "an edge was lost, or a connection had two owners"
        );
    });
}

/// A loop is lent while the monitor falls asleep: the monitor ends up awake.
#[test]
fn a_lent_loop_against_the_monitor_falling_asleep() {
    loom::model(|| {
        let vigil = Arc::new(Vigil::new());
        let lease = Arc::new(Lease::<u8>::new());
        let monitor = {
            let (vigil, lease) = (Arc::clone(&vigil), Arc::clone(&lease));
            thread::spawn(move || assert!(vigil.sleep(|| lease.lent_for(9).is_some())))
        };
        lease.lend(Box::new(1), 1);
        vigil.notice();
        monitor.join().unwrap();
        assert!(lease.take_back().is_some());
    });
}
