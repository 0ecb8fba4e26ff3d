//! The settings of one server, validated.
//!
//! Owns what a setting may be and which go together; `cli` owns how they are written down. Must not open anything but to
//! see that a path exists. Made on the main thread at start, read-only from then on.
#![forbid(unsafe_code)]

pub mod address;
mod values;

pub use address::BindAddress;
pub use values::{
    EventLoop, Interface, Lifespan, Seconds, Size, Threads, UnderscoreNames, parse_mode,
};

use std::path::PathBuf;
use std::time::Duration;

use crate::http1::Limits;
use crate::observe::access;
use crate::observe::log::Level;
use crate::topology::{Pin, Placement, Topology};
use crate::websocket;

/// Everything a server is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub app: AppSpec,
    /// Never empty.
    pub binds: Vec<BindAddress>,
    pub backlog: u32,
    /// Loops; `auto` is resolved.
    pub threads: usize,
    /// Standby handlers for each loop.
    pub blocking_threads: usize,
    /// Threads that may be added while others stream for long.
    pub streaming_threads: usize,
    pub workers: usize,
    pub pin: Pin,
    /// What `pin` comes to on this machine.
    pub placement: Placement,
    pub limits: Limits,
    pub limit_connections: usize,
    pub queue_limit: usize,
    pub timeouts: Timeouts,
    pub access_log: Option<AccessLogSpec>,
    pub log_level: Level,
    pub health_path: Option<String>,
}

/// Which application, and how it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSpec {
    /// `module:attribute`, `module:factory()`, or `module`.
    pub spec: Option<String>,
    /// First on `sys.path`.
    pub app_dir: PathBuf,
    /// The attribute is a function that makes the application.
    pub factory: bool,
    /// An interpreter or the directory of a virtual environment; none: the environment's.
    pub python: Option<PathBuf>,
    pub interface: Interface,
    /// SCRIPT_NAME (WSGI) or root_path (ASGI): empty, or a slash first and none at the end.
    pub root_path: String,
    pub header_underscores: UnderscoreNames,
    pub asgi: AsgiSpec,
}

/// How an ASGI application is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsgiSpec {
    pub event_loop: EventLoop,
    pub lifespan: Lifespan,
    /// A callback that holds the event loop for longer is logged.
    pub slow_callback: Option<Duration>,
    pub websocket: websocket::Settings,
    /// None: WebSockets are not pinged.
    pub pings: Option<Pings>,
}

/// How a WebSocket's client shows that it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pings {
    pub interval: Duration,
    /// From a ping until its pong.
    pub timeout: Duration,
}

impl Default for AppSpec {
    fn default() -> AppSpec {
        AppSpec {
            spec: None,
            app_dir: PathBuf::from("."),
            factory: false,
            python: None,
            interface: Interface::Auto,
            root_path: String::new(),
            header_underscores: UnderscoreNames::Drop,
            asgi: AsgiSpec::default(),
        }
    }
}

/// How long is waited for whom. Each is one of a kind; none follows from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head.
    pub head: Duration,
    /// Without a byte of the request's body.
    pub body: Duration,
    /// Between requests on a kept-alive connection, and before the first.
    pub idle: Duration,
    /// Without the client taking a byte of the response.
    pub write: Duration,
    /// For requests in flight when the server stops.
    pub graceful: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            write: Duration::from_secs(30),
            graceful: Duration::from_secs(30),
        }
    }
}

/// An access log that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSpec {
    pub target: access::Target,
    pub format: access::Format,
}

/// A setting that can't be, or can't be together with another: which one, what it was, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flag}{}: {reason}", if .value.is_empty() { String::new() } else { format!(" {}", .value) })]
pub struct ConfigError {
    /// `--threads`, say, or `APP`.
    pub flag: &'static str,
    pub value: String,
    pub reason: String,
}

impl ConfigError {
    pub fn new(flag: &'static str, value: impl ToString, reason: impl Into<String>) -> ConfigError {
        ConfigError {
            flag,
            value: value.to_string(),
            reason: reason.into(),
        }
    }
}

/// Settings as they were given, each right by itself.
#[derive(Clone, Debug)]
pub struct Given {
    pub app: AppSpec,
    pub binds: Vec<BindAddress>,
    pub uds_mode: u32,
    pub backlog: u32,
    pub threads: Threads,
    pub blocking_threads: usize,
    /// Threads that may be added while others stream for long.
    pub streaming_threads: usize,
    pub workers: usize,
    pub pin: Pin,
    pub limits: Limits,
    pub limit_connections: usize,
    pub queue_limit: usize,
    pub timeouts: Timeouts,
    pub access_log: Option<access::Target>,
    pub access_log_format: String,
    pub log_level: Level,
    pub health_path: Option<String>,
}

/// All threads of a process that run Python. Each has an interpreter's thread state and a stack; beyond this many the
/// machine is busy with them alone.
const MOST_HANDLERS: usize = 4096;
/// Heads are addressed with 32 bits; this is far below and far above what any client sends.
const LARGEST_HEAD: usize = 16 * 1024 * 1024;

impl Given {
    /// Checks what goes together and resolves what depends on the machine.
    pub fn check(self, topology: &Topology) -> Result<Settings, ConfigError> {
        check_app(&self.app)?;
        check_limits(&self.limits)?;
        let binds = self.check_binds()?;
        if self.workers > 1 {
            let reason = "several processes are not built yet: use --threads for more loops in one process, or start \
                          several servers";
            return Err(ConfigError::new("--workers", self.workers, reason));
        }
        let threads = match self.threads {
            Threads::Auto => topology.usable(),
            Threads::Exactly(threads) => threads,
        };
        let handlers = threads.saturating_mul(self.blocking_threads.saturating_add(1));
        if handlers > MOST_HANDLERS {
            let reason = format!(
                "with --threads {threads} that makes {handlers} threads in one process; {MOST_HANDLERS} is the most"
            );
            return Err(ConfigError::new(
                "--blocking-threads",
                self.blocking_threads,
                reason,
            ));
        }
        let placement = self
            .pin
            .place(threads, topology)
            .map_err(|error| ConfigError::new("--pin", &self.pin, error.to_string()))?;
        if let Some(path) = &self.health_path {
            check_path("--health-path", path)?;
        }
        let access_log = self
            .access_log
            .map(|target| {
                let format = access::Format::compile(&self.access_log_format).map_err(|error| {
                    ConfigError::new(
                        "--access-log-format",
                        &self.access_log_format,
                        error.to_string(),
                    )
                })?;
                Ok(AccessLogSpec { target, format })
            })
            .transpose()?;
        Ok(Settings {
            app: self.app,
            binds,
            backlog: self.backlog,
            threads,
            blocking_threads: self.blocking_threads,
            streaming_threads: self.streaming_threads,
            workers: self.workers,
            pin: self.pin,
            placement,
            limits: self.limits,
            limit_connections: self.limit_connections,
            queue_limit: self.queue_limit,
            timeouts: self.timeouts,
            access_log,
            log_level: self.log_level,
            health_path: self.health_path,
        })
    }

    fn check_binds(&self) -> Result<Vec<BindAddress>, ConfigError> {
        let mut binds: Vec<BindAddress> = Vec::with_capacity(self.binds.len());
        for bind in &self.binds {
            let mut bind = bind.clone();
            if let BindAddress::Unix { mode, .. } = &mut bind {
                *mode = self.uds_mode;
            }
            // Port 0 is another port each time.
            if binds.contains(&bind) && !matches!(bind, BindAddress::Tcp { port: 0, .. }) {
                return Err(ConfigError::new(
                    "--bind",
                    bind,
                    "the same address is given twice; leave one out",
                ));
            }
            binds.push(bind);
        }
        if binds.is_empty() {
            return Err(ConfigError::new(
                "--bind",
                "",
                "no address to listen on; give one as in --bind 127.0.0.1:8000",
            ));
        }
        Ok(binds)
    }
}

fn check_limits(limits: &Limits) -> Result<(), ConfigError> {
    for (flag, value) in [
        ("--limit-request-line", limits.request_line),
        ("--limit-field-size", limits.field_size),
    ] {
        if value > limits.head_size {
            let reason = format!(
                "is more than --limit-head-size {} allows for all of the head; raise that too",
                Size(limits.head_size as u64)
            );
            return Err(ConfigError::new(flag, Size(value as u64), reason));
        }
    }
    if limits.head_size > LARGEST_HEAD {
        let reason = format!(
            "a head is held in memory whole; {} is the most",
            Size(LARGEST_HEAD as u64)
        );
        return Err(ConfigError::new(
            "--limit-head-size",
            Size(limits.head_size as u64),
            reason,
        ));
    }
    Ok(())
}

fn check_app(app: &AppSpec) -> Result<(), ConfigError> {
    if let Some(spec) = &app.spec {
        values::check_spec(spec).map_err(|reason| ConfigError::new("APP", spec, reason))?;
        if app.factory && spec.ends_with(')') {
            let reason = format!(
                "{spec} calls the factory already; leave out either --factory or the parentheses"
            );
            return Err(ConfigError::new("--factory", "", reason));
        }
    }
    if !app.app_dir.is_dir() {
        let reason = if app.app_dir.exists() {
            "is not a directory"
        } else {
            "there is no such directory"
        };
        return Err(ConfigError::new("--app-dir", app.app_dir.display(), reason));
    }
    if let Some(python) = &app.python
        && !python.exists()
    {
        let reason =
            "there is no such file; give an interpreter or the directory of a virtual environment";
        return Err(ConfigError::new("--python", python.display(), reason));
    }
    if !app.root_path.is_empty() {
        check_path("--root-path", &app.root_path)?;
        if app.root_path.ends_with('/') {
            let reason = "ends with a slash, which would stand twice in every path; leave it out";
            return Err(ConfigError::new("--root-path", &app.root_path, reason));
        }
    }
    Ok(())
}

fn check_path(flag: &'static str, path: &str) -> Result<(), ConfigError> {
    if !path.starts_with('/') {
        return Err(ConfigError::new(
            flag,
            path,
            format!("a path begins with a slash: /{path}"),
        ));
    }
    if let Some(wrong) = path
        .chars()
        .find(|c| c.is_whitespace() || c.is_control() || "?#".contains(*c))
    {
        return Err(ConfigError::new(
            flag,
            path,
            format!("{wrong:?} is not part of a path"),
        ));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
