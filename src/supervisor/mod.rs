//! The process: what is started in which order, what ends it, and with which exit code.
//!
//! | exit code | meaning |
//! | --- | --- |
//! | 0 | stopped as asked; every request in flight was answered |
//! | 1 | could not start for a reason outside the application (address in use, …), or requests were cut at the stop |
//! | 2 | the command line is wrong, or names an interpreter that doesn't fit |
//! | 3 | the application could not be loaded |
//! | 128 + n | a second signal n ended it at once |

#![forbid(unsafe_code)]

use std::process::ExitCode;

use crate::config::Settings;
use crate::exchange::{Common, LocalAnswers};
use crate::local::Health;
use crate::net::{self, Listener};
use crate::observe::access::AccessLog;
use crate::sync::Arc;

#[cfg(feature = "python")]
mod python;
mod signals;

#[cfg(feature = "python")]
pub use python::run;
pub use signals::StopRequests;

const FAILURE: u8 = 1;

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

/// `4 loops × 5 handlers`, `1 loop`: how many threads of which kind.
fn shape(settings: &Settings) -> String {
    let loops = match settings.threads {
        1 => "1 loop".to_string(),
        many => format!("{many} loops"),
    };
    match settings.blocking_threads {
        0 => loops,
        standbys => format!("{loops} × {} handlers", standbys + 1),
    }
}
