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

use crate::event_loop::{Job, Loop, Millis, Port};
use crate::exchange::{Common, Handler, HandlerFactory, Progress};
use crate::observe::log;
use crate::sync::{Arc, AtomicU32, AtomicU64, Condvar, Mutex, Ordering, lock};
use crate::topology::{self, Placement};

pub(crate) mod baton;
mod cores;
mod drive;
#[cfg(all(test, loom))]
mod models;
mod monitor;
pub(crate) mod sleep;
mod stand_by;
mod stand_ins;
pub mod turn_slice;

use baton::{Lease, Nanos, Vigil};
use cores::{Cores, Waits, Watch};
use sleep::{Offer, Sleep};
use stand_ins::StandIns;
use turn_slice::{TURN_SLICE, TurnSlice};

/// A view that is expected to take longer goes straight to a standby (free-threaded builds).
const LONG_VIEW: Nanos = 200_000;
/// Queued work worth more than this is worth waking a thief for: some ten times what the wake costs.
const WORTH_A_WAKE: Nanos = 100_000;
const SLICE: Nanos = TURN_SLICE.as_nanos() as Nanos;

/// Switches that turn a mechanism off, for A/B controls. A control that stops failing has stopped measuring.
#[derive(Debug, Clone, Copy)]
pub struct Controls {
    /// `M0_BATON=0`: the driver never runs views, it always hands over.
    pub baton: bool,
    /// `M0_POOL_TURN=0`: handlers don't take turns of a slice.
    pub turn_slice: bool,
    /// `M0_LOOP_ATTACHED=1`: the driver takes the interpreter back after every wait for readiness, before it looks at what
    /// came.
    pub loop_attached: bool,
}

impl Controls {
    pub const ALL_ON: Controls = Controls {
        baton: true,
        turn_slice: true,
        loop_attached: false,
    };

    pub fn from_env() -> Self {
        let is_on = |name| std::env::var_os(name).is_none_or(|value| value != "0");
        Controls {
            baton: is_on("M0_BATON"),
            turn_slice: is_on("M0_POOL_TURN"),
            loop_attached: std::env::var_os("M0_LOOP_ATTACHED").is_some_and(|value| value == "1"),
        }
    }
}

/// What the handlers know of one loop that another of them drives.
struct Station {
    port: Port,
    lease: Lease<Loop>,
    offer: Offer,
    /// A running mean of what a view of this loop takes, in nanoseconds; single samples count one slice at most.
    expected: AtomicU64,
    waits: Waits,
    /// When the job at the deque's front was queued, or an earlier moment.
    front: AtomicU64,
    /// The kernel's number of the thread that drives, if drivers are pinned; 0 before the first.
    driver: AtomicU32,
}

impl Station {
    /// A view took so long.
    fn record(&self, took: Nanos) {
        let mean = self.expected.load(Ordering::Relaxed);
        // Concurrent samples may overwrite each other: it is an estimate.
        self.expected
            .store((mean * 7 + took.min(SLICE)) / 8, Ordering::Relaxed);
    }

    /// All jobs before one that was queued `since` have been taken. Whoever comes late with an earlier moment changes nothing.
    fn raise_front(&self, since: Millis) {
        if self.front.load(Ordering::Relaxed) < since {
            self.front.fetch_max(since, Ordering::Relaxed);
        }
    }
}

/// What a handler does next.
enum Duty {
    Drive(Box<Loop>),
    StandBy,
    Stop,
}

struct Shared<F> {
    factory: F,
    stations: Vec<Station>,
    sleep: Sleep<Box<Loop>>,
    cores: Cores,
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
                offer: Offer::none(),
                expected: AtomicU64::new(0),
                waits: Waits::unknown(),
                front: AtomicU64::new(0),
                driver: AtomicU32::new(0),
            })
            .collect();
        let ports = stations
            .iter()
            .map(|station| station.port.clone())
            .collect();
        let shared = Arc::new(Shared {
            factory,
            sleep: Sleep::new(handlers + shape.streaming_threads),
            cores: Cores::new(handlers + shape.streaming_threads),
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
        let mut pool = Pool {
            threads: Vec::with_capacity(handlers),
            monitor: None,
            common: Arc::clone(&common),
            ports,
            shared: Arc::clone(&shared) as Arc<dyn Drained>,
        };
        if let Err(error) = pool.start_threads(&shared, loops, handlers) {
            // Those that run already end by and by. Not joined: with too few handlers a request may wait for ever.
            pool.drain();
            pool.shared.stop_standbys();
            return Err(error);
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
        Ok(pool)
    }

    // A loop is one box all its life: it is moved between threads, leases and handlers without being copied.
    #[allow(clippy::vec_box)]
    fn start_threads<F: HandlerFactory>(
        &mut self,
        shared: &Arc<Shared<F>>,
        loops: Vec<Box<Loop>>,
        handlers: usize,
    ) -> io::Result<()> {
        if shared.standbys_per_loop > 0 {
            let shared = Arc::clone(shared);
            let monitor = thread::Builder::new()
                .name("monitor".into())
                .spawn(move || shared.watch())?;
            self.monitor = Some(monitor);
        }
        let mut loops = loops.into_iter();
        for index in 0..handlers {
            let duty = loops.next().map_or(Duty::StandBy, Duty::Drive);
            let (ready, is_ready) = mpsc::channel();
            self.threads.push(shared.spawn(index, duty, Some(ready))?);
            // The sender is dropped unused when making the handler panics.
            if is_ready.recv().is_err() {
                return Err(io::Error::other(format!(
                    "handler thread {index} could not start"
                )));
            }
        }
        Ok(())
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
        let begun = Instant::now();
        let mut driving = lock(&self.driving);
        while *driving > 0 {
            let Some(left) = limit.checked_sub(begun.elapsed()) else {
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

    /// When a view that began then had the interpreter: standing in line for it says nothing of how long the view is.
    fn attached(&self, began: Nanos) -> Nanos {
        let since = |at: Instant| at.duration_since(self.epoch).as_nanos() as Nanos + 1;
        turn_slice::first_attach().map_or(began, |at| began.max(since(at)))
    }

    /// Views that are expected to take longer go straight to a standby.
    fn long_view(&self) -> Nanos {
        if self.turns.is_shared_gil() {
            // On one GIL a second active handler gains nothing unless the view is long enough to be rescued anyway.
            SLICE * 7 / 8
        } else {
            LONG_VIEW
        }
    }

    /// Runs a job's view. `began` is now; returns when it was over.
    fn view(
        &self,
        station: &Station,
        job: &mut Job,
        handler: &mut F::Handler,
        began: Nanos,
    ) -> Nanos {
        self.stand_ins.view_begins();
        let watch = match self.turns.is_shared_gil() {
            true => None,
            false => Watch::begin(),
        };
        run(job, handler);
        self.stand_ins.view_ends();
        let now = self.now();
        let took = now - self.attached(began);
        station.record(took);
        if let Some(watch) = watch
            && took < SLICE
        {
            watch.end(&station.waits);
        }
        now
    }

    /// Whether one more handler, beside `active` and those that are inside a short view, would find a core for the jobs of
    /// this loop. On a GIL it is not about cores.
    fn finds_a_core(&self, station: &Station, active: usize, now: Nanos) -> bool {
        if self.turns.is_shared_gil() || !station.waits.are_seldom() {
            return true;
        }
        let is_young = |station: &&Station| {
            let lent_for = station.lease.lent_for(now);
            lent_for.is_some_and(|lent_for| lent_for < SLICE)
        };
        let drivers = self.stations.iter().filter(is_young).count();
        self.cores.is_one_free(active + drivers, now)
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
                // Dropped last: the number is free again when nothing of the handler is left, however it ended.
                let _ending = Ending {
                    stand_ins: &shared.stand_ins,
                    index,
                };
                let mut handler = shared.factory.make(index);
                if let Some(ready) = ready {
                    // Nobody listens if the server could not start: then this thread is on its way out too.
                    let _ = ready.send(());
                }
                shared.work(index, &mut handler, duty);
            })
    }

    /// A handler's life.
    fn work(&self, index: usize, handler: &mut F::Handler, mut duty: Duty) {
        if matches!(duty, Duty::StandBy) {
            // Not where the thread that started this one is kept.
            self.leave_the_core();
        }
        loop {
            duty = match duty {
                Duty::Drive(held) => {
                    self.take_the_core(held.index());
                    let next = if self.standbys_per_loop == 0 {
                        self.drive_alone(held, handler)
                    } else {
                        self.drive(held, handler)
                    };
                    if matches!(next, Duty::StandBy) {
                        self.leave_the_core();
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

    /// A driver runs on its loop's core. The one it has rescued the loop from, which is still inside its view, leaves it.
    fn take_the_core(&self, number: usize) {
        let Some(cpus) = self.placement.cpus(number) else {
            return;
        };
        let thread = topology::current_thread();
        let before = self.stations[number].driver.swap(thread, Ordering::Relaxed);
        if before != 0
            && before != thread
            && let Some(all) = self.placement.all()
        {
            // It may have ended meanwhile.
            let _ = topology::pin_thread(before, all);
        }
        complain(topology::pin_thread(thread, cpus));
    }

    /// A standby runs on any core that drivers have.
    fn leave_the_core(&self) {
        if let Some(cpus) = self.placement.all() {
            complain(topology::pin_current_thread(cpus));
        }
    }

    fn loop_drained(&self) {
        let mut driving = lock(&self.driving);
        *driving -= 1;
        self.drained.notify_all();
    }
}

fn complain(pinned: io::Result<()>) {
    if let Err(error) = pinned {
        log::warn!("cannot pin a handler thread: {error}");
    }
}

/// The end of a handler's thread.
struct Ending<'a> {
    stand_ins: &'a StandIns,
    index: usize,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.stand_ins.ended(self.index, thread::panicking());
    }
}

/// Runs a job's view.
fn run<H: Handler>(job: &mut Job, handler: &mut H) {
    turn_slice::view_begins();
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
