//! What the WSGI bridge costs in process, for each interpreter: `ci/bench parts`, or for one that cargo finds
//! `cargo bench --features bench --bench bridge`.
//!
//! The request is the twelve-header GET of `ci/bench`, the application `benches/apps/bridge.py`.
//!
//! | group | what one iteration is |
//! | --- | --- |
//! | `bridge` | a request, or one part of it, on one thread |
//! | `threads` | a request of N threads at once: the time of all over the requests of all |
//! | `cpu` | the same in CPU time, which other processes' share of the machine does not show in: what a request costs a thread |
//! | `control` | as `threads`, but arithmetic that shares nothing: how much of a second core the machine gives |

#[path = "shared/browser.rs"]
mod browser;

use std::hint::{black_box, spin_loop};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use browser::GET;
use criterion::{Criterion, SamplingMode};
use m0serve::python::bench::{Part, Site};
use rustix::time::{ClockId, clock_gettime};

const PARTS: [(&str, Part); 7] = [
    ("environ", Part::Environ),
    ("call", Part::Call),
    ("response", Part::Response),
    ("attach_detach", Part::AttachDetach),
    ("context_kept", Part::ContextKept),
    ("context_new", Part::ContextNew),
    ("callables_new", Part::CallablesNew),
];

/// As many as the project's machine has cores.
const MOST_THREADS: usize = 2;

fn one_thread(c: &mut Criterion, site: &Site) {
    let mut lane = site.lane(0, GET);
    assert!(lane.answer().ends_with(b"\r\n\r\nHello, World!"));
    let mut group = c.benchmark_group("bridge");
    group.bench_function("request", |b| b.iter_custom(|count| lane.requests(count)));
    group.bench_function("parse", |b| b.iter(|| lane.parse()));
    for (name, part) in PARTS {
        group.bench_function(name, |b| b.iter_custom(|count| lane.repeat(part, count)));
    }
    group.finish();
}

#[derive(Clone, Copy)]
enum Work {
    Requests,
    Arithmetic,
}

/// Of the order of a request.
fn arithmetic(count: u64) {
    for _ in 0..count {
        let sum = (0..1000u64).fold(0u64, |sum, term| black_box(sum.rotate_left(5) ^ term));
        black_box(sum);
    }
}

/// Threads with a lane each, which are there before anything is timed.
struct Crew {
    orders: Vec<Sender<(Work, u64)>>,
    reports: Receiver<Report>,
}

/// One thread's share of a run.
struct Report {
    begun: Instant,
    ended: Instant,
    cpu: Duration,
}

impl Crew {
    fn new<'scope>(scope: &'scope Scope<'scope, '_>, site: &'scope Site, threads: usize) -> Crew {
        let (report, reports) = channel();
        let arrived = Arc::new(AtomicUsize::new(0));
        let orders = (0..threads).map(|index| {
            let (order, orders) = channel();
            let (report, arrived) = (report.clone(), Arc::clone(&arrived));
            scope.spawn(move || work(site, index, threads, &orders, &report, &arrived));
            order
        });
        Crew {
            orders: orders.collect(),
            reports,
        }
    }

    /// Every thread does `count` of it, all at once.
    fn run(&self, work: Work, count: u64) -> Vec<Report> {
        for order in &self.orders {
            order.send((work, count)).expect("a thread that works");
        }
        let reports = self.orders.iter().map(|_| self.reports.recv());
        reports.map(|report| report.expect("a report")).collect()
    }
}

/// A thread of a crew, until there are no more orders.
fn work(
    site: &Site,
    index: usize,
    threads: usize,
    orders: &Receiver<(Work, u64)>,
    report: &Sender<Report>,
    arrived: &AtomicUsize,
) {
    let mut lane = site.lane(index, GET);
    let mut round = 0;
    while let Ok((work, count)) = orders.recv() {
        round += threads;
        // A barrier that spins: waking a thread takes longer than many a request, and would count as the bridge's.
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < round {
            spin_loop();
        }
        let (begun, cpu) = (Instant::now(), cpu_time());
        match work {
            Work::Requests => {
                lane.requests(count);
            }
            Work::Arithmetic => arithmetic(count),
        }
        let cpu = cpu_time() - cpu;
        let ended = Instant::now();
        if report.send(Report { begun, ended, cpu }).is_err() {
            return;
        }
    }
}

/// The present thread's.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn threads_at_once(c: &mut Criterion, site: &Site) {
    for (group_name, work) in [
        ("threads", Work::Requests),
        ("cpu", Work::Requests),
        ("control", Work::Arithmetic),
    ] {
        let mut group = c.benchmark_group(group_name);
        // Every sample long enough that the ends of the threads, which never meet exactly, don't matter.
        group.sampling_mode(SamplingMode::Flat).sample_size(20);
        for threads in 1..=MOST_THREADS {
            std::thread::scope(|scope| {
                let crew = Crew::new(scope, site, threads);
                group.bench_function(threads.to_string(), |b| {
                    b.iter_custom(|count| {
                        let reports = crew.run(work, count);
                        let total = if group_name == "cpu" {
                            reports.iter().map(|report| report.cpu).sum()
                        } else {
                            elapsed(&reports)
                        };
                        total / threads as u32
                    });
                });
            });
        }
        group.finish();
    }
}

/// From the first thread's begin to the last one's end.
fn elapsed(reports: &[Report]) -> Duration {
    let begun = reports.iter().map(|report| report.begun).min();
    let ended = reports.iter().map(|report| report.ended).max();
    begun
        .zip(ended)
        .map_or(Duration::ZERO, |(begun, ended)| ended - begun)
}

fn main() {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/apps");
    let site = &Site::load(&apps, "bridge:app", MOST_THREADS);
    // The main thread is the interpreter's, as when serving: handlers have threads of their own.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut criterion = Criterion::default().configure_from_args();
            one_thread(&mut criterion, site);
            threads_at_once(&mut criterion, site);
            criterion.final_summary();
        });
    });
}
