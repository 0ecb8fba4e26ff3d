//! Serving a Python application in this process.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use super::{FAILURE, Refusal, StopRequests, common, listen, local_answers, shape};
use crate::config::Settings;
use crate::observe::log;
use crate::pool::turn_slice::TurnSlice;
use crate::pool::{Controls, Shape};
use crate::python::{App, Interpreter, StartError};
use crate::server::{Application, Server};
use crate::sync::Arc;

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
    // Before the interpreter: it leaves signals alone that are taken.
    let stop = StopRequests::take_over().map_err(Refusal::failure)?;
    let common = common(&settings)?;
    let mut interpreter = Interpreter::start(&settings.app)?;
    let app = match interpreter.load_app() {
        Ok(app) => app,
        Err(error) => {
            // Threads and exit handlers that the half-imported application left behind.
            interpreter.finish();
            return Err(error.into());
        }
    };
    let App::Wsgi(app) = app;
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
    if !server.stop() {
        // Handlers that are still inside views hold thread states: the interpreter can't be ended under them.
        signal_hook::low_level::exit(FAILURE.into());
    }
    interpreter.finish();
    Ok(ExitCode::SUCCESS)
}
