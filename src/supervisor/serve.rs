//! Serving a Python application in this process.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use super::StopRequests;
use crate::config::Settings;
use crate::exchange::{Common, LocalAnswers};
use crate::local::Health;
use crate::net::{self, Listener};
use crate::observe::access::AccessLog;
use crate::observe::log;
use crate::pool::turn_slice::TurnSlice;
use crate::pool::{Controls, Shape};
use crate::python::{App, AsgiApp, Interpreter, Plan, StartError};
use crate::server::{Application, Server};
use crate::sync::Arc;
use crate::topology::{Pin, Placement};

/// The exit code of what went wrong outside the application.
const FAILURE: u8 = 1;

/// Serves until a signal asks to stop.
pub fn run(settings: Settings) -> ExitCode {
    match serve(settings) {
        Ok(code) => code,
        Err(refusal) => refusal.end(),
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Refusal {
        Refusal {
            code: error.code,
            text: error.text,
        }
    }
}

fn serve(settings: Settings) -> Result<ExitCode, Refusal> {
    let common = common(&settings)?;
    let logs = Arc::clone(&common);
    let rotated = Arc::clone(&common);
    // Before the interpreter: it leaves signals alone that are taken.
    let stop = StopRequests::take_over(move || rotated.reopen_logs()).map_err(Refusal::failure)?;
    let mut interpreter = Interpreter::start(&settings.app)?;
    let app = match interpreter.load_app() {
        Ok(app) => app,
        Err(error) => {
            // Threads and exit handlers that the half-imported application left behind.
            interpreter.finish();
            return Err(error.into());
        }
    };
    let app = match app {
        App::Wsgi(app) => app,
        App::Asgi(app) => return serve_asgi(app, interpreter, settings, common, stop),
    };
    let listeners = listen(&settings)?;

    let handlers = settings.threads * (settings.blocking_threads + 1);
    let controls = Controls::from_env();
    let turns = Arc::new(TurnSlice::new(
        interpreter.gil_enabled(),
        controls.turn_slice && handlers > 1,
    ));
    let pool = Shape {
        threads: settings.threads,
        blocking_threads: settings.blocking_threads,
        streaming_threads: settings.streaming_threads,
        controls,
        placement: settings.placement.clone(),
    };
    let application = Application {
        factory: app.factory(handlers, Arc::clone(&turns)),
        turns,
        local_answers: local_answers(&settings),
    };
    let server = Server::start(pool, listeners, common, application).map_err(Refusal::failure)?;
    // Whatever the log's level: it tells where a port 0 ended up.
    eprintln!(
        "m0serve {} · {} · wsgi · {} · cores {} · listening on {}",
        env!("CARGO_PKG_VERSION"),
        interpreter.describe(),
        shape(&settings),
        settings.placement,
        server.addresses().join(" and "),
    );

    stop.wait();
    log::info!(
        "stopping: requests in flight have {} s",
        settings.timeouts.graceful.as_secs_f64()
    );
    let done = server.stop();
    logs.close_logs();
    if !done {
        // Handlers that are still inside views hold thread states: the interpreter can't be ended under them.
        signal_hook::low_level::exit(FAILURE.into());
    }
    interpreter.finish();
    Ok(ExitCode::SUCCESS)
}

fn serve_asgi(
    app: AsgiApp,
    mut interpreter: Interpreter,
    settings: Settings,
    common: Arc<Common>,
    stop: StopRequests,
) -> Result<ExitCode, Refusal> {
    if settings.blocking_threads > 0 {
        log::warn!("--blocking-threads has no meaning for an ASGI application");
    }
    let described = interpreter.describe();
    let threads = match settings.threads {
        1 => "1 loop".to_string(),
        many => format!("{many} loops"),
    };
    // Threads that the application starts, a pool for blocking calls above all, inherit where their maker may run.
    let placement = match settings.pin {
        Pin::Auto => Placement::Anywhere("ASGI applications start threads of their own"),
        _ => settings.placement.clone(),
    };
    let (binds, backlog) = (settings.binds.clone(), settings.backlog);
    let unfinished = Arc::clone(&common);
    let plan = Plan {
        threads: settings.threads,
        placement: placement.clone(),
        common,
        local_answers: local_answers(&settings),
        listen: Box::new(move || {
            net::bind_all(&binds, backlog).map_err(|error| StartError {
                code: FAILURE,
                text: error.to_string(),
            })
        }),
        announce: Box::new(move |started| {
            eprintln!(
                "m0serve {} · {described} · asgi · {} · {threads} · cores {placement} · listening on {}",
                env!("CARGO_PKG_VERSION"),
                started.event_loop,
                started.addresses.join(" and "),
            );
        }),
        wait_for_stop: Box::new(move || stop.wait()),
        give_up: Box::new(move || {
            unfinished.close_logs();
            signal_hook::low_level::exit(FAILURE.into())
        }),
    };
    let logs = Arc::clone(&plan.common);
    let served = app.serve(&mut interpreter, plan);
    logs.close_logs();
    let finished = interpreter.finish();
    match served {
        Ok(true) if finished => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::from(FAILURE)),
        Err(error) => Err(error.into()),
    }
}

/// Why the process ends before it serves.
struct Refusal {
    code: u8,
    text: String,
}

impl Refusal {
    fn failure(error: impl std::fmt::Display) -> Refusal {
        Refusal {
            code: FAILURE,
            text: error.to_string(),
        }
    }

    fn end(self) -> ExitCode {
        eprintln!("m0serve: {}", self.text.trim_end());
        ExitCode::from(self.code)
    }
}

fn common(settings: &Settings) -> Result<Arc<Common>, Refusal> {
    let access_log = match &settings.access_log {
        Some(spec) => Some(
            AccessLog::open(spec.target.clone(), spec.format.clone()).map_err(Refusal::failure)?,
        ),
        None => None,
    };
    if settings.limit_connections > 0 {
        let asked = settings.limit_connections as u64;
        match net::allow_descriptors(asked) {
            Ok(allowed) if allowed < asked => log::warn!(
                "--limit-connections is {asked}, but the process may have {allowed} at most (ulimit -Hn): beyond them \
                 new connections wait"
            ),
            Ok(_) => {}
            Err(error) => log::warn!("cannot raise the limit of open files: {error}"),
        }
    }
    let mut common = Common::new(
        settings.limits,
        settings.timeouts,
        settings.blocking_threads > 0,
    );
    common.limit_connections = settings.limit_connections;
    common.queue_limit = settings.queue_limit;
    common.access_log = access_log;
    Ok(Arc::new(common))
}

fn listen(settings: &Settings) -> Result<Vec<Listener>, Refusal> {
    net::bind_all(&settings.binds, settings.backlog).map_err(Refusal::failure)
}

fn local_answers(settings: &Settings) -> Option<Arc<dyn LocalAnswers>> {
    settings
        .health_path
        .as_deref()
        .map(|path| Arc::new(Health::new(path)) as Arc<dyn LocalAnswers>)
}

/// `4 loops, 20 handlers`: how many threads of which kind. A loop's driver is a handler too.
fn shape(settings: &Settings) -> String {
    let count = |number: usize, word: &str| {
        format!("{number} {word}{}", if number == 1 { "" } else { "s" })
    };
    let handlers = settings.threads * (settings.blocking_threads + 1);
    format!(
        "{}, {}",
        count(settings.threads, "loop"),
        count(handlers, "handler")
    )
}
