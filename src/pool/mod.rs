//! The pool: handler threads that drive the loops, run views, steal jobs, and rescue loops from long views.
//!
//! There are T × (B + 1) handlers for T loops. T of them drive; the others are standbys. With B = 0 a driver runs
//! every view itself and none of the protocols of this module are in play. Knows no Python: views are run by whatever
//! [`Handler`] the factory makes. The protocols, their states and why nothing is lost are in `README.md` beside this file.

#![forbid(unsafe_code)]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_deque::Steal;

use crate::event_loop::{Job, Loop, Port};
use crate::exchange::{Common, Handler, HandlerFactory, Progress};
use crate::observe::counters::Counter;
use crate::observe::log;
use crate::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, fence, lock};
use crate::topology::{self, Placement};

pub(crate) mod baton;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod sleep;
mod stand_ins;
pub mod turn_slice;

use baton::{Lease, Nanos, Vigil};
use sleep::{Order, Sleep};
use stand_ins::StandIns;
use turn_slice::{TURN_SLICE, TurnSlice};

/// A view that is expected to take longer goes straight to a standby (free-threaded builds).
const LONG_VIEW: Nanos = 200_000;
/// Queued work worth more than this is worth waking a thief for: some ten times what the wake costs.
const WORTH_A_WAKE: Nanos = 100_000;
/// A driver polls at least this often while it works off its deque.
const POLL_EVERY: Nanos = 200_000;
const SLICE: Nanos = TURN_SLICE.as_nanos() as Nanos;
/// How often the monitor looks while loops are lent: a rescue comes at most this long after the slice.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// Looks without a lent loop before the monitor goes to sleep.
const QUIET_LOOKS: u32 = 20;

/// Switches that turn a mechanism off, for A/B controls. A control that stops failing has stopped measuring.
#[derive(Debug, Clone, Copy)]
pub struct Controls {
    /// `M0_BATON=0`: the driver never runs views, it always hands over.
    pub baton: bool,
    /// `M0_POOL_TURN=0`: handlers don't take turns of a slice.
    pub turn_slice: bool,
}

impl Controls {
    pub const ALL_ON: Controls = Controls {
        baton: true,
        turn_slice: true,
    };

    pub fn from_env() -> Self {
        let is_on = |name| std::env::var_os(name).is_none_or(|value| value != "0");
        Controls {
            baton: is_on("M0_BATON"),
            turn_slice: is_on("M0_POOL_TURN"),
        }
    }
}

/// What the handlers know of one loop that another of them drives.
struct Station {
    port: Port,
    lease: Lease<Loop>,
    /// Jobs in this loop's deque are there to be stolen. Without an offer the driver is about to run them itself.
    offered: AtomicBool,
    /// A running mean of what a view of this loop takes, in nanoseconds; single samples count one slice at most.
    expected: AtomicU64,
    /// When the job at the deque's front was queued (milliseconds), or an earlier moment.
    front: AtomicU64,
}

impl Station {
    fn record(&self, took: Nanos) {
        let mean = self.expected.load(Ordering::Relaxed);
        // Concurrent samples may overwrite each other: it is an estimate.
        self.expected
            .store((mean * 7 + took.min(SLICE)) / 8, Ordering::Relaxed);
    }
}

/// What a handler does next.
enum Duty {
    Drive(Box<Loop>),
    StandBy,
    Stop,
}

enum Verdict {
    Run,
    /// Somebody else is to run it; look again after this long even without readiness.
    Leave(Option<Duration>),
}

struct Shared<F> {
    factory: F,
    stations: Vec<Station>,
    sleep: Sleep<Box<Loop>>,
    vigil: Vigil,
    turns: Arc<TurnSlice>,
    common: Arc<Common>,
    controls: Controls,
    standbys_per_loop: usize,
    epoch: Instant,
    /// Drivers that have not seen their loop drained.
    driving: Mutex<usize>,
    drained: Condvar,
    placement: Placement,
    stand_ins: StandIns,
}

/// The running handlers of a server.
pub struct Pool {
    threads: Vec<JoinHandle<()>>,
    monitor: Option<JoinHandle<()>>,
    common: Arc<Common>,
    ports: Vec<Port>,
    shared: Arc<dyn Drained>,
}

/// The part of `Shared` that `Pool` needs whatever the factory's type is.
trait Drained: Send + Sync {
    fn wait_drained(&self, limit: Duration) -> bool;
    fn stop_standbys(&self);
    fn stand_ins(&self) -> &StandIns;
}

/// How many threads of which kind, and where.
pub struct Shape {
    /// Loops, and so drivers (T).
    pub threads: usize,
    /// Standbys for each loop (B).
    pub blocking_threads: usize,
    /// Threads that may be added while others stream for long.
    pub streaming_threads: usize,
    pub controls: Controls,
    /// Where each loop's driver runs.
    pub placement: Placement,
}

impl Pool {
    /// Starts the handlers, one after another: making a handler may need the interpreter to itself.
    pub fn start<F: HandlerFactory>(
        loops: Vec<Box<Loop>>,
        factory: F,
        turns: Arc<TurnSlice>,
        common: Arc<Common>,
        shape: Shape,
    ) -> io::Result<Pool> {
        let handlers = loops.len() * (shape.blocking_threads + 1);
        let stations: Vec<Station> = loops
            .iter()
            .map(|held| Station {
                port: held.port(),
                lease: Lease::new(),
                offered: AtomicBool::new(false),
                expected: AtomicU64::new(0),
                front: AtomicU64::new(0),
            })
            .collect();
        let ports = stations
            .iter()
            .map(|station| station.port.clone())
            .collect();
        let shared = Arc::new(Shared {
            factory,
            sleep: Sleep::new(handlers + shape.streaming_threads),
            stand_ins: StandIns::new(shape.streaming_threads, handlers),
            vigil: Vigil::new(),
            turns,
            common: Arc::clone(&common),
            controls: shape.controls,
            standbys_per_loop: shape.blocking_threads,
            epoch: Instant::now(),
            driving: Mutex::new(loops.len()),
            drained: Condvar::new(),
            placement: shape.placement,
            stations,
        });
        let mut loops = loops.into_iter();
        let mut threads = Vec::with_capacity(handlers);
        for index in 0..handlers {
            let duty = loops.next().map_or(Duty::StandBy, Duty::Drive);
            let (ready, is_ready) = mpsc::channel();
            threads.push(shared.spawn(index, duty, Some(ready))?);
            // The sender is dropped unused when making the handler panics.
            if is_ready.recv().is_err() {
                return Err(io::Error::other(format!(
                    "handler thread {index} could not start"
                )));
            }
        }
        if shape.blocking_threads > 0 && shape.streaming_threads > 0 {
            let pool = Arc::downgrade(&shared);
            common.on_stream(move || {
                if let Some(pool) = pool.upgrade() {
                    pool.stand_ins
                        .streams(pool.now(), |number| pool.spawn(number, Duty::StandBy, None));
                }
            });
        }
        let monitor = if shape.blocking_threads > 0 {
            let shared = Arc::clone(&shared);
            Some(
                thread::Builder::new()
                    .name("monitor".into())
                    .spawn(move || shared.watch())?,
            )
        } else {
            None
        };
        Ok(Pool {
            threads,
            monitor,
            common,
            ports,
            shared,
        })
    }

    /// Begins a drain: no new connections, idle ones close, requests in flight are finished.
    pub fn drain(&self) {
        self.common.draining.store(true, Ordering::SeqCst);
        for port in &self.ports {
            port.mailbox.ring();
        }
    }

    /// Waits until every loop is drained, for `limit` at most; then ends the threads. False if requests were still in flight.
    pub fn finish(mut self, limit: Duration) -> bool {
        if !self.shared.wait_drained(limit) {
            return false;
        }
        self.shared.stop_standbys();
        let stand_ins = self.shared.stand_ins().take_threads();
        for thread in self
            .threads
            .drain(..)
            .chain(self.monitor.take())
            .chain(stand_ins)
        {
            // A handler that panicked has said so.
            let _ = thread.join();
        }
        true
    }
}

impl<F: HandlerFactory> Drained for Shared<F> {
    fn wait_drained(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut driving = lock(&self.driving);
        while *driving > 0 {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return false;
            };
            driving = self
                .drained
                .wait_timeout(driving, left)
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .0;
        }
        true
    }

    fn stop_standbys(&self) {
        self.sleep.stop_all();
        self.vigil.stop();
    }

    fn stand_ins(&self) -> &StandIns {
        &self.stand_ins
    }
}

impl<F: HandlerFactory> Shared<F> {
    fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos + 1
    }

    /// Starts handler `index`; `ready` is told when it is made.
    fn spawn(
        self: &Arc<Self>,
        index: usize,
        duty: Duty,
        ready: Option<mpsc::Sender<()>>,
    ) -> io::Result<JoinHandle<()>> {
        let shared = Arc::clone(self);
        thread::Builder::new()
            .name(format!("handler-{index}"))
            .spawn(move || {
                let mut handler = shared.factory.make(index);
                if let Some(ready) = ready {
                    // Nobody listens if the server could not start: then this thread is on its way out too.
                    let _ = ready.send(());
                }
                shared.work(index, &mut handler, duty);
                shared.stand_ins.ended(index);
            })
    }

    /// A handler's life.
    fn work(&self, index: usize, handler: &mut F::Handler, mut duty: Duty) {
        loop {
            duty = match duty {
                Duty::Drive(held) => {
                    let number = held.index();
                    self.pin(Some(number));
                    let next = if self.standbys_per_loop == 0 {
                        self.drive_alone(held, handler)
                    } else {
                        self.drive(held, handler)
                    };
                    if matches!(next, Duty::StandBy) {
                        self.pin(None);
                    } else {
                        self.loop_drained();
                    }
                    next
                }
                Duty::StandBy => self.stand_by(index, handler),
                Duty::Stop => return,
            }
        }
    }

    /// A driver runs on its loop's core; a standby on any that drivers have.
    fn pin(&self, number: Option<usize>) {
        let cpus = match number {
            Some(number) => self.placement.cpus(number),
            None => self.placement.all(),
        };
        if let Some(Err(error)) = cpus.map(topology::pin_current_thread) {
            log::warn!("cannot pin a handler thread: {error}");
        }
    }

    fn loop_drained(&self) {
        let mut driving = lock(&self.driving);
        *driving -= 1;
        self.drained.notify_all();
    }

    /// Without standbys: every job is run here.
    fn drive_alone(&self, mut held: Box<Loop>, handler: &mut F::Handler) -> Duty {
        loop {
            let mut polled = self.now();
            while let Some(mut job) = held.next_job() {
                run(&mut job, handler);
                let now = self.now();
                held.settle(job);
                if now - polled > POLL_EVERY {
                    turn(&mut held, Some(Duration::ZERO));
                    polled = now;
                }
            }
            if held.is_drained() {
                return Duty::Stop;
            }
            turn(&mut held, None);
        }
    }

    /// With standbys: a loop is lent while its driver is in a view.
    fn drive(&self, mut held: Box<Loop>, handler: &mut F::Handler) -> Duty {
        let station = &self.stations[held.index()];
        loop {
            let mut timeout = None;
            let mut now = self.now();
            let polled = now;
            while held.queued() > 0 {
                if let Verdict::Leave(again) = self.judge(station, held.queued()) {
                    timeout = again;
                    break;
                }
                let Some(mut job) = held.next_job() else {
                    // A thief was faster.
                    self.sleep.end_lend();
                    continue;
                };
                station.front.store(job.queued_at(), Ordering::Relaxed);
                station.lease.lend(held, now);
                self.vigil.notice();
                self.stand_ins.view_begins(now);
                run(&mut job, handler);
                self.stand_ins.view_ends();
                let began = std::mem::replace(&mut now, self.now());
                station.record(now - began);
                match station.lease.take_back() {
                    Some(back) => {
                        held = back;
                        self.sleep.end_lend();
                        held.settle(job);
                    }
                    None => {
                        job.give_back(&station.port.mailbox);
                        return Duty::StandBy;
                    }
                }
                if now - polled > POLL_EVERY {
                    timeout = Some(Duration::ZERO);
                    break;
                }
            }
            if held.is_drained() {
                return Duty::Stop;
            }
            turn(&mut held, timeout);
        }
    }

    /// Who runs the next job. `Run` has reserved a rescuer for the loop.
    fn judge(&self, station: &Station, queued: usize) -> Verdict {
        let shared_gil = self.turns.is_shared_gil();
        let expected = station.expected.load(Ordering::Relaxed);
        // On one GIL a second active handler gains nothing unless the view is long enough to be rescued anyway.
        let long = if shared_gil { SLICE * 7 / 8 } else { LONG_VIEW };
        if !self.controls.baton {
            // The control is the pool that everybody has: a handler is woken for every job.
            self.offer(station);
            (0..queued)
                .take_while(|_| self.sleep.call_another_thief())
                .count();
            return Verdict::Leave(None);
        }
        if expected > long {
            self.offer(station);
            let called = self.sleep.call_thief();
            return Verdict::Leave(if called { None } else { self.look_again() });
        }
        if shared_gil && self.turns.anybody_waits() {
            // Whoever waits runs next, and takes our jobs when it is done; a third in the line would gain nothing.
            self.offer(station);
            return Verdict::Leave(Some(TURN_SLICE));
        }
        if !self.sleep.try_lend() {
            // Every standby is busy, or kept for another lent loop. A busy one steals when it is done.
            self.offer(station);
            return Verdict::Leave(self.look_again());
        }
        if !shared_gil && (queued as Nanos - 1) * expected > WORTH_A_WAKE {
            self.offer(station);
            self.sleep.call_thief();
        } else if station.offered.load(Ordering::Relaxed) {
            station.offered.store(false, Ordering::Relaxed);
        }
        Verdict::Run
    }

    /// Standbys that are kept for lent loops don't take offers: then the driver must look again itself.
    fn look_again(&self) -> Option<Duration> {
        self.sleep.any_lent().then_some(TURN_SLICE)
    }

    fn offer(&self, station: &Station) {
        station.offered.store(true, Ordering::Relaxed);
        // Partner: the fence in `Sleep::park`.
        fence(Ordering::SeqCst);
    }

    /// Steals until there is nothing to steal, then parks.
    fn stand_by(&self, index: usize, handler: &mut F::Handler) -> Duty {
        let home = index % self.stations.len();
        let mut searching = false;
        loop {
            while let Some((mut job, number)) = self.steal(home) {
                if std::mem::take(&mut searching) && self.sleep.found() {
                    self.wake_next(number);
                }
                self.common.counters.count(Counter::Stolen);
                let began = self.now();
                self.stand_ins.view_begins(began);
                run(&mut job, handler);
                self.stand_ins.view_ends();
                self.stations[number].record(self.now() - began);
                let mailbox = &self.stations[job.home()].port.mailbox;
                job.give_back(mailbox);
            }
            if searching {
                self.sleep.found_nothing();
            }
            if self.stand_ins.may_end() {
                return Duty::Stop;
            }
            match self.sleep.park(index, || self.any_offer()) {
                Order::Steal => searching = true,
                Order::Drive(held) => return Duty::Drive(held),
                Order::Stop => return Duty::Stop,
            }
        }
    }

    /// The thief that was woken found a job at `number`; more that is worth a wake may lie there.
    fn wake_next(&self, number: usize) {
        let station = &self.stations[number];
        let worth = station.port.stealer.len() as Nanos * station.expected.load(Ordering::Relaxed);
        if !self.turns.is_shared_gil()
            && worth > WORTH_A_WAKE
            && station.offered.load(Ordering::Relaxed)
        {
            self.sleep.call_thief();
        }
    }

    fn any_offer(&self) -> bool {
        self.stations.iter().any(|station| {
            station.offered.load(Ordering::Relaxed) && !station.port.stealer.is_empty()
        })
    }

    /// One job: from the home loop, unless another loop's oldest has waited a slice longer. FIFO within a loop. So a
    /// job is never taken while one that was queued more than a slice (and a turn of the clock) earlier is on offer.
    fn steal(&self, home: usize) -> Option<(Job, usize)> {
        loop {
            let mut best: Option<(u64, usize)> = None;
            for (number, station) in self.stations.iter().enumerate() {
                if !station.offered.load(Ordering::Relaxed) || station.port.stealer.is_empty() {
                    continue;
                }
                let front = station.front.load(Ordering::Relaxed);
                let handicap = if number == home {
                    0
                } else {
                    TURN_SLICE.as_millis() as u64
                };
                if best.is_none_or(|(oldest, _)| front + handicap < oldest) {
                    best = Some((front + handicap, number));
                }
            }
            let (_, number) = best?;
            match self.stations[number].port.stealer.steal() {
                Steal::Success(job) => {
                    self.stations[number]
                        .front
                        .store(job.queued_at(), Ordering::Relaxed);
                    return Some((job, number));
                }
                Steal::Empty | Steal::Retry => {}
            }
        }
    }

    /// The monitor's life: loops that have been lent for longer than a slice get another driver.
    fn watch(&self) {
        let mut quiet = 0;
        loop {
            let goes_on = if quiet > QUIET_LOOKS {
                quiet = 0;
                self.vigil.sleep(|| {
                    self.stations
                        .iter()
                        .any(|station| station.lease.lent_for(0).is_some())
                })
            } else {
                self.vigil.wait(LOOK_EVERY)
            };
            if !goes_on {
                return;
            }
            quiet += 1;
            let now = self.now();
            for station in &self.stations {
                if let Some(lent_for) = station.lease.lent_for(now) {
                    quiet = 0;
                    if lent_for > SLICE {
                        self.rescue(station);
                    }
                }
            }
        }
    }

    fn rescue(&self, station: &Station) {
        if !self.sleep.claim_driver() {
            return;
        }
        match station.lease.take_back() {
            Some(held) => {
                self.common.counters.count(Counter::Rescued);
                self.sleep.end_lend();
                self.sleep.send_driver(held);
            }
            // Its driver was faster.
            None => self.sleep.release(),
        }
    }
}

/// One pass of the loop. A poll that fails has no remedy: without readiness nothing can be served.
fn turn(held: &mut Loop, timeout: Option<Duration>) {
    if let Err(error) = held.turn(timeout) {
        log::error!(
            "loop {}: waiting for readiness failed: {error}",
            held.index()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a job's view and sends what the socket takes of its response.
fn run<H: Handler>(job: &mut Job, handler: &mut H) {
    let suspended = job.take_suspended();
    let exchange = job.exchange();
    let progress = catch_unwind(AssertUnwindSafe(|| match suspended {
        None => handler.handle(exchange),
        Some(key) if exchange.is_gone() => {
            handler.abandon(key);
            Progress::Done
        }
        Some(key) => handler.resume(key, exchange),
    }));
    let progress = progress.unwrap_or_else(|_| {
        // The panic hook has told where; the client gets an answer and the thread goes on.
        job.exchange().fail(500);
        Progress::Done
    });
    job.complete(progress);
}
