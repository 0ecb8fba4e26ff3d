//! Standby handlers: who is parked, what they are woken for, and how many must stay parked so that every lent loop can
//! be rescued. Knows neither loops nor jobs: `D` is whatever a new driver is handed. Protocol: README.md, "Sleep".

#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Condvar, Mutex, Ordering, fence, lock};

/// What a standby is woken for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order<D> {
    /// Look for jobs in the deques.
    Steal,
    /// Drive this loop.
    Drive(D),
    Stop,
}

/// Whether a loop's jobs are there to be stolen. Without an offer the driver is about to run them itself.
pub(crate) struct Offer {
    on: AtomicBool,
}

impl Offer {
    pub(crate) fn none() -> Self {
        Offer {
            on: AtomicBool::new(false),
        }
    }

    /// For the driver; it calls a thief afterwards.
    pub(crate) fn make(&self) {
        self.on.store(true, Ordering::Relaxed);
        // Partners: the fences in `park`, `found` and `may_leave`. Either the caller sees that there is a thief and what it
        // is about, or the thief sees this offer.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn withdraw(&self) {
        if self.stands() {
            self.on.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn stands(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}

struct Berth<D> {
    order: Mutex<Option<Order<D>>>,
    given: Condvar,
}

pub(crate) struct Sleep<D> {
    /// `parked` in the low half: standbys that no waker has claimed yet. `lent` in the high half: loops whose driver is
    /// inside a view. Together in one word, because "a rescuer for every lent loop" is a statement about both.
    counts: AtomicU32,
    /// Which standbys are parked; at least `parked` of them are listed (a claimed one is listed until its waker picks it).
    parked: Mutex<Vec<usize>>,
    berths: Vec<Berth<D>>,
    /// Thieves that were woken and have not found a job yet. While there is one, no further thief is woken.
    searching: AtomicUsize,
}

// All operations on the counters are relaxed. What is handed over goes through the berths' mutexes; where a counter is looked
// at after something else was written, there is a fence, with its partner named.

const ONE_PARKED: u32 = 1;
const ONE_LENT: u32 = 1 << 16;

fn parked(counts: u32) -> u32 {
    counts & 0xffff
}

fn lent(counts: u32) -> u32 {
    counts >> 16
}

impl<D> Sleep<D> {
    pub(crate) fn new(handlers: usize) -> Self {
        assert!(
            handlers < 0xffff,
            "the counters of parked handlers have sixteen bits"
        );
        let berth = |_| Berth {
            order: Mutex::new(None),
            given: Condvar::new(),
        };
        Sleep {
            counts: AtomicU32::new(0),
            parked: Mutex::new(Vec::with_capacity(handlers)),
            berths: (0..handlers).map(berth).collect(),
            searching: AtomicUsize::new(0),
        }
    }

    /// Makes a change of the counts if it is `allowed`; false if it isn't.
    fn claim(&self, change: impl Fn(u32) -> u32, allowed: impl Fn(u32) -> bool) -> bool {
        let mut counts = self.counts.load(Ordering::Relaxed);
        while allowed(counts) {
            match self.counts.compare_exchange_weak(
                counts,
                change(counts),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => counts = now,
            }
        }
        false
    }

    /// A driver is about to run a view: true if a standby is there to rescue its loop.
    pub(crate) fn try_lend(&self) -> bool {
        self.claim(
            |counts| counts + ONE_LENT,
            |counts| parked(counts) > lent(counts),
        )
    }

    /// A lent loop was taken up again, by its driver or by the monitor.
    pub(crate) fn end_lend(&self) {
        self.counts.fetch_sub(ONE_LENT, Ordering::Relaxed);
    }

    /// Wakes a thief, if none is searching already and one can be spared. False if none can be spared.
    pub(crate) fn call_thief(&self) -> bool {
        self.searching.load(Ordering::Relaxed) > 0 || self.call_another_thief()
    }

    /// Wakes a thief although others may be searching, if one can be spared.
    pub(crate) fn call_another_thief(&self) -> bool {
        if !self.claim(
            |counts| counts - ONE_PARKED,
            |counts| parked(counts) > lent(counts),
        ) {
            return false;
        }
        self.searching.fetch_add(1, Ordering::Relaxed);
        self.wake_claimed(Order::Steal);
        true
    }

    /// Claims a standby for driving; give it the loop with `send_driver`, or give it up with `release`.
    pub(crate) fn claim_driver(&self) -> bool {
        self.claim(|counts| counts - ONE_PARKED, |counts| parked(counts) > 0)
    }

    pub(crate) fn send_driver(&self, duty: D) {
        self.wake_claimed(Order::Drive(duty));
    }

    pub(crate) fn release(&self) {
        self.counts.fetch_add(ONE_PARKED, Ordering::Relaxed);
    }

    /// The thief found a job. True if it was the last one searching: it should see whether another is needed, on any loop.
    pub(crate) fn found(&self) -> bool {
        let last = self.searching.fetch_sub(1, Ordering::Relaxed) == 1;
        // Partner: the fence in `Offer::make`. A driver that saw us search has called nobody.
        fence(Ordering::SeqCst);
        last
    }

    /// The thief found nothing; it is about to park.
    pub(crate) fn found_nothing(&self) {
        self.searching.fetch_sub(1, Ordering::Relaxed);
    }

    /// A standby that found nothing may end instead of parking, if there is still nothing.
    pub(crate) fn may_leave(&self, has_work: impl Fn() -> bool) -> bool {
        // Partner: the fence in `Offer::make`, as in `park`.
        fence(Ordering::SeqCst);
        !has_work()
    }

    /// Ends every standby, those that park later too.
    pub(crate) fn stop_all(&self) {
        for berth in &self.berths {
            let mut order = lock(&berth.order);
            // An order that was given and not read yet is for a thief: with all loops drained there is nothing to steal.
            *order = Some(Order::Stop);
            berth.given.notify_one();
        }
    }

    fn wake_claimed(&self, order: Order<D>) {
        let index = lock(&self.parked)
            .pop()
            .expect("a claimed standby is listed");
        let berth = &self.berths[index];
        let mut place = lock(&berth.order);
        // Only a stop that came first can stand here: it holds.
        if place.is_none() {
            *place = Some(order);
        }
        berth.given.notify_one();
    }

    /// Parks handler `index` until it is given an order. `has_work` is asked once it is visible as parked: what became
    /// work before that will not wake it.
    pub(crate) fn park(&self, index: usize, has_work: impl Fn() -> bool) -> Order<D> {
        lock(&self.parked).push(index);
        self.counts.fetch_add(ONE_PARKED, Ordering::Relaxed);
        // Partner: the fence in `Offer::make`. Either the offering driver sees us parked, or we see its offer.
        fence(Ordering::SeqCst);
        if has_work()
            && self.claim(
                |counts| counts - ONE_PARKED,
                |counts| parked(counts) > lent(counts),
            )
        {
            let mut list = lock(&self.parked);
            if let Some(position) = list.iter().position(|&parked| parked == index) {
                list.swap_remove(position);
                self.searching.fetch_add(1, Ordering::Relaxed);
                return Order::Steal;
            }
            // A waker has picked us: its order comes, and our claim on ourselves is void.
            drop(list);
            self.release();
        }
        let berth = &self.berths[index];
        let mut order = lock(&berth.order);
        loop {
            if let Some(order) = order.take() {
                return order;
            }
            order = berth
                .given
                .wait(order)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}
