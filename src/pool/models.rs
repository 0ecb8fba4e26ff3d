//! Loom models of the pool's protocols: `RUSTFLAGS="--cfg loom" cargo test --release --no-default-features --lib models`.
//! Loom runs every interleaving of a few threads, with every value that the orderings allow a load to see; a wake that can
//! be lost shows as a deadlock. Which line each model holds in place is in README.md, "Models".

use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::thread;

use super::baton::{Lease, Vigil, rescue};
use super::sleep::{Offer, Order, Sleep};
use crate::event_loop::{Bell, Seat};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering};

/// What must have one owner at a time, and each must see what the one before did. Loom objects to anything else.
struct Owned {
    touched: UnsafeCell<()>,
}

impl std::fmt::Debug for Owned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Owned")
    }
}

impl Owned {
    fn new() -> Box<Owned> {
        Box::new(Owned {
            touched: UnsafeCell::new(()),
        })
    }

    fn touch(&self) {
        self.touched.with_mut(|_| ());
    }
}

/// Runs a model whose threads have so many operations that all of their interleavings would take too long: at most as many
/// of the switches in each as have been found to matter (three in loom's own experience).
fn model_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

// ---- sleep: offers ----

/// "An offer is never missed": the driver offers and calls while the standby parks.
#[test]
fn an_offer_wakes_a_standby_that_parks_meanwhile() {
    loom::model(|| {
        let sleep = Arc::new(Sleep::<Box<()>>::new(1));
        let offer = Arc::new(Offer::none());
        let driver = {
            let (sleep, offer) = (Arc::clone(&sleep), Arc::clone(&offer));
            thread::spawn(move || {
                offer.make();
                sleep.call_thief();
            })
        };
        let order = sleep.park(0, || offer.stands());
        assert_eq!(order, Order::Steal);
        assert!(offer.stands(), "woken for nothing");
        driver.join().unwrap();
    });
}

/// A driver counts on a thief that is searching already, and that one finds a job elsewhere: it sees the offer then.
#[test]
fn an_offer_is_seen_by_the_thief_that_was_searching() {
    loom::model(|| {
        let sleep = Arc::new(Sleep::<Box<()>>::new(1));
        let offer = Arc::new(Offer::none());
        // The thief is awake, and searches.
        assert!(matches!(sleep.park(0, || true), Order::Steal));
        let driver = {
            let (sleep, offer) = (Arc::clone(&sleep), Arc::clone(&offer));
            thread::spawn(move || {
                offer.make();
                sleep.call_thief()
            })
        };
        assert!(sleep.found(), "the only one that searches is the last");
        let seen = offer.stands();
        let counted_on = driver.join().unwrap();
        assert!(seen || !counted_on, "the offer is nobody's");
    });
}

/// The same, and it finds nothing, and ends because the pool has one too many.
#[test]
fn an_offer_is_seen_by_the_thief_that_was_to_end() {
    loom::model(|| {
        let sleep = Arc::new(Sleep::<Box<()>>::new(1));
        let offer = Arc::new(Offer::none());
        assert!(matches!(sleep.park(0, || true), Order::Steal));
        let driver = {
            let (sleep, offer) = (Arc::clone(&sleep), Arc::clone(&offer));
            thread::spawn(move || {
                offer.make();
                sleep.call_thief()
            })
        };
        sleep.found_nothing();
        let ends = sleep.may_leave(|| offer.stands());
        let counted_on = driver.join().unwrap();
        assert!(!(ends && counted_on), "the offer is nobody's");
    });
}

// ---- sleep: claims ----

/// Two callers, one standby: it is claimed once, and the counts come out even.
#[test]
fn a_standby_is_claimed_once() {
    loom::model(|| {
        let sleep = Arc::new(Sleep::<Box<usize>>::new(1));
        let claims = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..2)
            .map(|caller| {
                let (sleep, claims) = (Arc::clone(&sleep), Arc::clone(&claims));
                thread::spawn(move || {
                    if sleep.claim_driver() {
                        claims.fetch_add(1, Ordering::Relaxed);
                        sleep.send_driver(Box::new(caller));
                    }
                })
            })
            .collect();
        let parked = {
            let sleep = Arc::clone(&sleep);
            thread::spawn(move || sleep.park(0, || false))
        };
        for caller in callers {
            caller.join().unwrap();
        }
        if claims.load(Ordering::Relaxed) == 0 {
            sleep.stop_all();
            assert_eq!(parked.join().unwrap(), Order::Stop);
        } else {
            assert_eq!(claims.load(Ordering::Relaxed), 1);
            assert!(matches!(parked.join().unwrap(), Order::Drive(_)));
        }
    });
}

/// Two standbys park, one of which sees an offer, while a waker picks one: it may pick the one that wakes itself. Both can
/// be woken, and afterwards there is nobody to claim.
#[test]
fn a_standby_that_wakes_itself_against_a_waker() {
    model_within(3, || {
        let sleep = Arc::new(Sleep::<Box<()>>::new(2));
        let awake = Arc::new(AtomicUsize::new(0));
        let standbys: Vec<_> = (0..2)
            .map(|index| {
                let (sleep, awake) = (Arc::clone(&sleep), Arc::clone(&awake));
                thread::spawn(move || {
                    sleep.park(index, || index == 0);
                    awake.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        while awake.load(Ordering::Relaxed) < 2 {
            if sleep.claim_driver() {
                sleep.send_driver(Box::new(()));
            } else {
                thread::yield_now();
            }
        }
        for standby in standbys {
            standby.join().unwrap();
        }
        assert!(!sleep.claim_driver(), "a claim on nobody");
    });
}

/// With a rescuer reserved for a lent loop, no thief is called away, whoever asks, nor does it go by itself.
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
            assert!(!sleep.try_lend(), "one rescuer for two loops");
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

/// A stop against a standby that is being woken, and parks again: it ends.
#[test]
fn a_stop_reaches_a_standby_that_is_woken_meanwhile() {
    model_within(3, || {
        let sleep = Arc::new(Sleep::<Box<()>>::new(1));
        let standby = {
            let sleep = Arc::clone(&sleep);
            thread::spawn(move || {
                while !matches!(sleep.park(0, || false), Order::Stop) {
                    sleep.found_nothing();
                }
            })
        };
        let caller = {
            let sleep = Arc::clone(&sleep);
            thread::spawn(move || sleep.call_another_thief())
        };
        sleep.stop_all();
        standby.join().unwrap();
        caller.join().unwrap();
    });
}

// ---- baton ----

/// The driver comes out of its view while the monitor rescues the loop: one of them gets it, and a claimed standby is
/// either sent to drive or released.
#[test]
fn a_rescue_against_the_end_of_the_view() {
    model_within(3, || {
        let sleep = Arc::new(Sleep::<Box<Owned>>::new(1));
        let lease = Arc::new(Lease::<Owned>::new());
        let standby = {
            let sleep = Arc::clone(&sleep);
            thread::spawn(move || match sleep.park(0, || false) {
                Order::Drive(held) => {
                    held.touch();
                    1
                }
                other => panic!("nobody asked for {other:?}"),
            })
        };
        let monitor = {
            let (sleep, lease) = (Arc::clone(&sleep), Arc::clone(&lease));
            thread::spawn(move || lease.lent_for(5).is_some() && rescue(&lease, &sleep))
        };
        let held = Owned::new();
        held.touch();
        let mut driving = 0;
        if sleep.try_lend() {
            lease.lend(held, 1);
            if let Some(held) = lease.take_back() {
                sleep.end_lend();
                held.touch();
                driving += 1;
            }
        } else {
            held.touch();
            driving += 1;
        }
        let rescued = monitor.join().unwrap();
        assert_eq!(driving + usize::from(rescued), 1, "drivers");
        if !rescued {
            // The standby is parked, or will be, and can be claimed for the next time that the loop is lent.
            while !sleep.try_lend() {
                thread::yield_now();
            }
            lease.lend(Owned::new(), 2);
            assert!(rescue(&lease, &sleep), "the claim was kept");
        }
        assert_eq!(standby.join().unwrap(), 1);
        // Nothing is lent: one standby, and a loop could be lent.
        sleep.release();
        assert!(sleep.try_lend(), "it is still lent");
    });
}

/// A was rescued by B, and B lends the loop in turn; A comes back and takes it. One of them drives, whoever it is, and
/// nothing stays lent.
#[test]
fn a_rescued_driver_comes_back_while_its_rescuer_has_lent_the_loop() {
    model_within(3, || {
        let sleep = Arc::new(Sleep::<Box<Owned>>::new(3));
        let lease = Arc::new(Lease::<Owned>::new());
        // Two more that could rescue.
        for _ in 0..2 {
            sleep.release();
        }
        assert!(sleep.try_lend());
        lease.lend(Owned::new(), 1);
        // B has been given it by the monitor.
        assert!(sleep.claim_driver());
        let held = lease.take_back().unwrap();
        sleep.end_lend();
        let b = {
            let (sleep, lease) = (Arc::clone(&sleep), Arc::clone(&lease));
            thread::spawn(move || {
                held.touch();
                assert!(sleep.try_lend());
                lease.lend(held, 2);
                comes_back(&sleep, &lease)
            })
        };
        let a = comes_back(&sleep, &lease);
        let b = b.join().unwrap();
        assert_eq!(usize::from(a) + usize::from(b), 1, "drivers");
        // One parked, none lent: one can be lent, and no second.
        assert!(lease.lent_for(9).is_none());
        assert!(sleep.try_lend() && !sleep.try_lend());
    });
}

/// A driver's view has ended: does it still drive?
fn comes_back(sleep: &Sleep<Box<Owned>>, lease: &Lease<Owned>) -> bool {
    match lease.take_back() {
        Some(held) => {
            sleep.end_lend();
            held.touch();
            true
        }
        None => false,
    }
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

/// The pool stops while the monitor falls asleep, or has fallen asleep.
#[test]
fn a_stop_against_the_monitor_falling_asleep() {
    loom::model(|| {
        let vigil = Arc::new(Vigil::new());
        let monitor = {
            let vigil = Arc::clone(&vigil);
            thread::spawn(move || assert!(!vigil.sleep(|| false)))
        };
        vigil.stop();
        monitor.join().unwrap();
    });
}

// ---- knocks ----

/// An edge that comes while a handler sits the connection down is seen by one of the two, and so is what came before it.
#[test]
fn readiness_against_giving_back() {
    loom::model(|| {
        let seat = Arc::new(Seat::<Owned>::new());
        let served = Arc::new(AtomicUsize::new(0));
        let event_loop = {
            let (seat, served) = (Arc::clone(&seat), Arc::clone(&served));
            thread::spawn(move || {
                if let Some(sitter) = seat.take_or_knock() {
                    sitter.touch();
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let sitter = Owned::new();
        sitter.touch();
        if let Some(sitter) = seat.sit_down(sitter, || false) {
            sitter.touch();
            served.fetch_add(1, Ordering::Relaxed);
        }
        event_loop.join().unwrap();
        let served = served.load(Ordering::Relaxed);
        assert_eq!(
            served, 1,
            "an edge was lost, or a connection had two owners"
        );
    });
}

/// A drain begins while a handler sits the connection down: the loop finds it, or the handler finds the drain.
#[test]
fn a_drain_against_giving_back() {
    loom::model(|| {
        let seat = Arc::new(Seat::<Owned>::new());
        let draining = Arc::new(AtomicBool::new(false));
        let event_loop = {
            let (seat, draining) = (Arc::clone(&seat), Arc::clone(&draining));
            thread::spawn(move || {
                draining.store(true, Ordering::Relaxed);
                seat.take().is_some()
            })
        };
        let left = seat
            .sit_down(Owned::new(), || draining.load(Ordering::Relaxed))
            .is_some();
        let found = event_loop.join().unwrap();
        assert!(
            left != found,
            "an idle connection outlives the drain, or is closed twice"
        );
    });
}

// ---- mail ----

/// A loop that waits for readiness, and what wakes it: an eventfd whose every write is an edge.
fn bell_and_eventfd() -> (Arc<Bell<u8>>, Arc<Notify>) {
    (Arc::new(Bell::new()), Arc::new(Notify::new()))
}

/// Two senders, one wake or two: the loop gets both letters and needs no third reason to look.
#[test]
fn mail_is_never_left_lying() {
    model_within(3, || {
        let (bell, eventfd) = bell_and_eventfd();
        let senders: Vec<_> = [1, 2]
            .into_iter()
            .map(|letter| {
                let (bell, eventfd) = (Arc::clone(&bell), Arc::clone(&eventfd));
                thread::spawn(move || {
                    bell.post(letter, || eventfd.notify()).unwrap();
                })
            })
            .collect();
        let mut sum = 0;
        while sum < 3 {
            eventfd.wait();
            sum += bell.collect().into_iter().sum::<u8>();
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// A drain rings while a sender does: the loop sees the drain, whoever's ring has woken it.
#[test]
fn a_ring_without_mail_is_heard() {
    model_within(3, || {
        let (bell, eventfd) = bell_and_eventfd();
        let draining = Arc::new(AtomicBool::new(false));
        let sender = {
            let (bell, eventfd) = (Arc::clone(&bell), Arc::clone(&eventfd));
            thread::spawn(move || bell.post(1, || eventfd.notify()).unwrap())
        };
        let drainer = {
            let (bell, eventfd) = (Arc::clone(&bell), Arc::clone(&eventfd));
            let draining = Arc::clone(&draining);
            thread::spawn(move || {
                draining.store(true, Ordering::Relaxed);
                bell.ring(|| eventfd.notify());
            })
        };
        let (mut letters, mut drains) = (0, false);
        while letters == 0 || !drains {
            eventfd.wait();
            letters += bell.collect().len();
            drains |= draining.load(Ordering::Relaxed);
        }
        sender.join().unwrap();
        drainer.join().unwrap();
    });
}

/// A loop ends while another sends it a connection: that one has it back, or the loop goes on and gets it.
#[test]
fn a_loop_that_ends_leaves_no_mail() {
    loom::model(|| {
        let (bell, eventfd) = bell_and_eventfd();
        let sender = {
            let (bell, eventfd) = (Arc::clone(&bell), Arc::clone(&eventfd));
            thread::spawn(move || bell.post(1, || eventfd.notify()).is_ok())
        };
        let mut got = 0;
        while !bell.shut() {
            eventfd.wait();
            got += bell.collect().len();
        }
        let sent = sender.join().unwrap();
        assert_eq!(got, usize::from(sent));
    });
}
