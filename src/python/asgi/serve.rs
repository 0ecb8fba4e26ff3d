//! Serving an ASGI application: T threads, started one after another, and the thread that tells them what to do.
//!
//! Start: each thread's event loop and lifespan, in turn; then the listeners; then all serve. Stop: no new connections,
//! requests in flight are finished within the graceful time-out, then every lifespan is ended, and the loops. The first
//! ASGI thread is the main thread, as applications expect that install signal handlers of their own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::super::StartError;
use super::super::interpreter::Interpreter;
use super::super::thread::ThreadState;
use super::AsgiApp;
use super::watch::{Patient, Pulse, watch};
use super::worker::{Inbox, Order, Report, Worker};
use crate::event_loop::{Loop, Port};
use crate::exchange::{Common, LocalAnswers};
use crate::net::Listener;
use crate::observe::log;
use crate::pool::turn_slice::TurnSlice;
use crate::sync::{Arc, Ordering};
use crate::topology::{self, Placement};

/// What serving takes besides the application. The functions are called on a thread of the server's own.
pub struct Plan {
    pub threads: usize,
    pub placement: Placement,
    pub common: Arc<Common>,
    pub local_answers: Option<Arc<dyn LocalAnswers>>,
    /// Opens the listeners, once every lifespan has started.
    pub listen: Box<dyn FnOnce() -> Result<Vec<Listener>, StartError> + Send>,
    /// The server accepts connections.
    pub announce: Box<dyn FnOnce(&Started) + Send>,
    /// Returns when the server is to stop.
    pub wait_for_stop: Box<dyn FnOnce() + Send>,
    /// Ends the process at once: a thread is stuck in the application.
    pub give_up: Box<dyn FnOnce() + Send>,
}

/// What the start-up line tells.
pub struct Started {
    pub addresses: Vec<String>,
    /// The event loop's name: `asyncio`, `uvloop 0.22.1`.
    pub event_loop: String,
}

impl AsgiApp {
    /// Serves until it is to stop. False if requests were cut.
    pub fn serve(self, interpreter: &mut Interpreter, plan: Plan) -> Result<bool, StartError> {
        if plan.threads > 1 && interpreter.gil_enabled() {
            return Err(StartError {
                code: StartError::USAGE,
                text: format!(
                    "--threads {}: on an interpreter with a GIL, threads of an ASGI application would only wait for each \
                     other; use --workers, or a free-threaded build of Python",
                    plan.threads
                ),
            });
        }
        let app = Arc::new(self);
        let (reports, received) = channel();
        let inboxes = (0..plan.threads)
            .map(|_| Inbox::new().map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(no_thread)?;
        let watched = app.spec.slow_callback;
        let pulses: Vec<Option<Arc<Pulse>>> = (0..plan.threads)
            .map(|_| watched.map(|_| Arc::default()))
            .collect();
        // They take no turns, each on its event loop: it only tells who found out first.
        let turns = Arc::new(TurnSlice::new(interpreter.gil_enabled(), false));
        let worker = |index: usize| Worker {
            app: Arc::clone(&app),
            inbox: Arc::clone(&inboxes[index]),
            reports: reports.clone(),
            graceful: plan.common.timeouts.graceful,
            pulse: pulses[index].clone(),
            turns: Arc::clone(&turns),
        };
        let first = worker(0);
        let others = (1..plan.threads).map(worker).collect();
        let placement = plan.placement.clone();
        let server = Server {
            plan,
            inboxes: inboxes.clone(),
            reports,
            received,
            watched,
            pulses: pulses.iter().flatten().map(Arc::clone).collect(),
        };
        let server = thread::Builder::new()
            .name("m0serve".into())
            .spawn(move || server.run(others))
            .map_err(no_thread)?;
        pin(&placement, 0);
        interpreter.attached(|py| first.run(py));
        server
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn no_thread(error: std::io::Error) -> StartError {
    StartError {
        code: 1,
        text: format!("cannot start a thread: {error}"),
    }
}

fn pin(placement: &Placement, index: usize) {
    if let Some(Err(error)) = placement.cpus(index).map(topology::pin_current_thread) {
        log::warn!("cannot pin an ASGI thread: {error}");
    }
}

/// The server's own thread: it never touches Python.
struct Server {
    plan: Plan,
    inboxes: Vec<Arc<Inbox>>,
    reports: Sender<Report>,
    received: Receiver<Report>,
    /// After how long a callback is logged, and by what it is found.
    watched: Option<Duration>,
    pulses: Vec<Arc<Pulse>>,
}

impl Server {
    fn run(self, others: Vec<Worker>) -> Result<bool, StartError> {
        let Server {
            plan,
            inboxes,
            reports,
            received,
            watched,
            pulses,
        } = self;
        let (wait_for_stop, stop) = (plan.wait_for_stop, reports.clone());
        // Left behind when the server ends for another reason: it waits for a signal, and holds nothing.
        thread::Builder::new()
            .name("m0serve-stop".into())
            .spawn(move || {
                wait_for_stop();
                let _ = stop.send(Report::Stop);
            })
            .map_err(no_thread)?;

        let graceful = plan.common.timeouts.graceful;
        let mut crew = Crew {
            inboxes,
            received,
            started: 1,
            give_up: plan.give_up,
        };
        let mut threads = Vec::new();
        let mut event_loop = match crew.wait_until_ready() {
            Ok(name) => name,
            Err(stop) => return crew.call_off(stop, graceful),
        };
        for (index, worker) in (1..).zip(others) {
            let placement = plan.placement.clone();
            let thread = thread::Builder::new()
                .name(format!("m0serve-asgi-{index}"))
                .spawn(move || {
                    pin(&placement, index);
                    let state = ThreadState::make();
                    state.attached(|py| worker.run(py));
                });
            threads.push(match thread {
                Ok(thread) => thread,
                Err(error) => return crew.call_off(Halt::Failed(no_thread(error)), graceful),
            });
            crew.started += 1;
            event_loop = match crew.wait_until_ready() {
                Ok(name) => name,
                Err(stop) => return crew.call_off(stop, graceful),
            };
        }
        let ports = match serve(&crew, plan.listen, &plan.common, plan.local_answers) {
            Ok((ports, addresses)) => {
                (plan.announce)(&Started {
                    addresses,
                    event_loop,
                });
                ports
            }
            Err(error) => return crew.call_off(Halt::Failed(error), graceful),
        };

        let watch = match watched.map(|limit| start_watch(limit, pulses, &ports)) {
            Some(Ok(watch)) => Some(watch),
            Some(Err(error)) => {
                log::error!("cannot watch the event loops: {error}");
                None
            }
            None => None,
        };
        let mut end = crew.wait_for_end();
        if end.is_none() {
            log::info!(
                "stopping: requests in flight have {} s",
                graceful.as_secs_f64()
            );
        }
        if let Some((over, thread)) = watch {
            drop(over);
            // It only logs; a panic there has been told by the panic hook.
            let _ = thread.join();
        }
        plan.common.draining.store(true, Ordering::Relaxed);
        for port in &ports {
            port.mailbox.ring();
        }
        let clean = crew.wait_for_all(graceful, &mut end);
        for thread in threads {
            if thread.join().is_err() {
                log::error!("an ASGI thread panicked");
            }
        }
        match end {
            Some(error) => Err(error),
            None => Ok(clean),
        }
    }
}

/// The watch ends when the sender is dropped.
fn start_watch(
    limit: Duration,
    pulses: Vec<Arc<Pulse>>,
    ports: &[Port],
) -> std::io::Result<(Sender<()>, thread::JoinHandle<()>)> {
    let patients = pulses
        .into_iter()
        .zip(ports)
        .map(|(pulse, port)| Patient {
            pulse,
            mailbox: Arc::clone(&port.mailbox),
        })
        .collect();
    let (sender, over) = channel();
    let thread = thread::Builder::new()
        .name("m0serve-watch".into())
        .spawn(move || watch(patients, limit, &over))?;
    Ok((sender, thread))
}

/// Opens the listeners, makes the loops and hands them out.
fn serve(
    crew: &Crew,
    listen: Box<dyn FnOnce() -> Result<Vec<Listener>, StartError> + Send>,
    common: &Arc<Common>,
    local_answers: Option<Arc<dyn LocalAnswers>>,
) -> Result<(Vec<Port>, Vec<String>), StartError> {
    let listeners = listen()?;
    let addresses = listeners.iter().map(Listener::url).collect();
    let loops = Loop::make(crew.inboxes.len(), listeners.into(), common, local_answers).map_err(
        |error| StartError {
            code: 1,
            text: format!("cannot make an event loop: {error}"),
        },
    )?;
    let ports = loops.iter().map(|event_loop| event_loop.port()).collect();
    for (inbox, event_loop) in crew.inboxes.iter().zip(loops) {
        inbox.post(Order::Serve(event_loop));
    }
    Ok((ports, addresses))
}

/// Why serving does not begin.
enum Halt {
    /// Asked to.
    Stopped,
    Failed(StartError),
}

/// The ASGI threads, as the server's thread sees them.
struct Crew {
    inboxes: Vec<Arc<Inbox>>,
    received: Receiver<Report>,
    /// Threads that live.
    started: usize,
    give_up: Box<dyn FnOnce() + Send>,
}

impl Crew {
    /// Waits for the thread that was started last.
    fn wait_until_ready(&mut self) -> Result<String, Halt> {
        let begun = Instant::now();
        let mut told = false;
        loop {
            match self.received.recv_timeout(STILL_STARTING) {
                Ok(Report::Ready(name)) => return Ok(name),
                Ok(Report::Failed(error)) => {
                    self.started -= 1;
                    return Err(Halt::Failed(error));
                }
                Ok(Report::Finished(_)) => self.started -= 1,
                Ok(Report::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Halt::Stopped);
                }
                Err(RecvTimeoutError::Timeout) if !told => {
                    told = true;
                    log::warn!(
                        "the application has been starting for {} s (lifespan.startup); nothing is accepted yet",
                        begun.elapsed().as_secs()
                    );
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Ends the threads that were started before it came to serving.
    fn call_off(self, why: Halt, graceful: Duration) -> Result<bool, StartError> {
        for inbox in &self.inboxes {
            inbox.post(Order::Stop);
        }
        let mut ignored = None;
        let clean = self.wait_for_all(graceful, &mut ignored);
        match why {
            Halt::Stopped => Ok(clean),
            Halt::Failed(error) => Err(error),
        }
    }

    /// Waits until the server is to stop; an error if a thread ended by itself.
    fn wait_for_end(&mut self) -> Option<StartError> {
        loop {
            match self.received.recv() {
                Ok(Report::Stop) | Err(_) => return None,
                Ok(Report::Ready(_)) => {}
                Ok(Report::Finished(_)) => {
                    self.started -= 1;
                    return Some(StartError {
                        code: 1,
                        text: "an ASGI thread ended by itself".into(),
                    });
                }
                Ok(Report::Failed(error)) => {
                    self.started -= 1;
                    return Some(error);
                }
            }
        }
    }

    /// Waits for all threads; false if one cut requests. One that is stuck in the application ends the process.
    fn wait_for_all(mut self, graceful: Duration, error: &mut Option<StartError>) -> bool {
        // The drain, cancelled requests, the lifespan, and what is left on the loop: each has its own time-out.
        let deadline = Instant::now() + 2 * graceful + STUCK;
        let mut clean = true;
        while self.started > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.received.recv_timeout(left) {
                Ok(Report::Finished(whole)) => {
                    self.started -= 1;
                    clean &= whole;
                }
                Ok(Report::Failed(failed)) => {
                    self.started -= 1;
                    error.get_or_insert(failed);
                }
                Ok(Report::Ready(_) | Report::Stop) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    log::error!("{} ASGI threads are stuck in the application", self.started);
                    (self.give_up)();
                    return false;
                }
            }
        }
        clean
    }
}

/// After this long a word about an application that is still starting.
const STILL_STARTING: Duration = Duration::from_secs(10);
/// What the time-outs that follow the graceful ones come to.
const STUCK: Duration = Duration::from_secs(20);
