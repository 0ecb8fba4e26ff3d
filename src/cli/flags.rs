//! The flag table: every setting once, with its name, environment variable, default, and the reason for it.
//!
//! Owns what is written on the command line, in `--help` and in docs/configuration.md, which all come from here. The first
//! paragraph of a flag's text is its line in `-h`; the rest says why. Must not check what goes together (`config`).

// The texts are help texts first: brackets in them are the command line's, not links.
#![allow(rustdoc::broken_intra_doc_links)]

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::builder::BoolishValueParser;

use crate::config::{
    AppSpec, AsgiSpec, BindAddress, EventLoop, Given, Interface, Lifespan, Pings, Seconds, Size,
    Threads, Timeouts, UnderscoreNames, parse_mode,
};
use crate::http1::Limits;
use crate::observe::access;
use crate::observe::log::Level;
use crate::topology::Pin;
use crate::websocket;

pub(super) const HEADINGS: [&str; 8] = [
    APPLICATION,
    LISTENING,
    THREADS,
    ASGI,
    LIMITS,
    TIMEOUTS,
    LOGGING,
    OPERATION,
];
const APPLICATION: &str = "Application";
const LISTENING: &str = "Listening";
const THREADS: &str = "Threads and processes";
const ASGI: &str = "ASGI";
const LIMITS: &str = "Limits";
const TIMEOUTS: &str = "Time-outs";
const LOGGING: &str = "Logging";
const OPERATION: &str = "Operation";

/// An application server for Python.
#[derive(Debug, Parser)]
#[command(
    name = "m0serve",
    bin_name = "m0serve",
    max_term_width = 100,
    next_display_order = 1,
    override_usage = "m0serve [OPTIONS] MODULE:ATTRIBUTE",
    after_help = "Each option can also be given as an environment variable, M0_ and its name: M0_THREADS=4. An option on \
                  the command line goes before the environment; an empty variable counts as none.",
    disable_help_flag = true,
    disable_version_flag = true
)]
pub(super) struct Flags {
    /// The application: MODULE:ATTRIBUTE, MODULE:FACTORY() or MODULE
    ///
    /// The attribute may be dotted. With the module alone, `application` is looked for, then `app`: the names that Django
    /// and most others use.
    #[arg(value_name = "MODULE:ATTRIBUTE", env = "M0_APP", help_heading = APPLICATION, display_order = 0)]
    app: Option<String>,

    /// Where the application's modules are: put first on sys.path
    ///
    /// The current directory, as with `python -m`.
    #[arg(long, value_name = "DIR", env = "M0_APP_DIR", default_value = ".", help_heading = APPLICATION)]
    app_dir: PathBuf,

    /// The attribute is a function that makes the application
    ///
    /// Off: a callable is taken for the application itself. `MODULE:FACTORY()` says the same in one word.
    #[arg(long, env = "M0_FACTORY", value_parser = BoolishValueParser::new(), help_heading = APPLICATION)]
    factory: bool,

    /// An interpreter or a virtual environment's directory, whose packages are used
    ///
    /// Without it $VIRTUAL_ENV counts, then the `python3` on PATH. It must be of the version and ABI that this binary is
    /// linked with (--version).
    #[arg(long, value_name = "PATH", env = "M0_PYTHON", help_heading = APPLICATION)]
    python: Option<PathBuf>,

    /// How the application is called: auto, wsgi or asgi
    ///
    /// auto looks at the callable.
    #[arg(long, value_name = "NAME", env = "M0_INTERFACE", default_value_t = Interface::Auto, help_heading = APPLICATION)]
    interface: Interface,

    /// The path that the application is mounted at behind a proxy (SCRIPT_NAME)
    ///
    /// Empty: at the root.
    #[arg(long, value_name = "PATH", env = "M0_ROOT_PATH", default_value = "", hide_default_value = true, help_heading = APPLICATION)]
    root_path: String,

    /// Request fields with an underscore in their names: drop, refuse (400) or allow
    ///
    /// In a WSGI environ X_Forwarded_User and X-Forwarded-User are the same name, so that a client could spoof what a proxy
    /// sets. Nothing that a browser sends has an underscore.
    #[arg(
        long, value_name = "WHAT", env = "M0_HEADER_UNDERSCORES", default_value_t = UnderscoreNames::Drop,
        help_heading = APPLICATION
    )]
    header_underscores: UnderscoreNames,

    /// Where to listen: HOST:PORT, [IPV6]:PORT, :PORT, unix:PATH or fd://NUMBER; repeatable
    ///
    /// Only this machine can reach the default; a proxy or --bind :8000 opens it to others. Port 0 takes a free one, which
    /// the start-up line tells. Several addresses in the variable are separated by commas.
    #[arg(
        short, long, value_name = "ADDRESS", env = "M0_BIND", default_value = "127.0.0.1:8000",
        value_delimiter = ',', help_heading = LISTENING
    )]
    bind: Vec<BindAddress>,

    /// Connections that may wait in the kernel to be accepted
    ///
    /// Enough for a burst while all loops are busy; the kernel cuts it to net.core.somaxconn (4096 on most machines).
    #[arg(
        long, value_name = "COUNT", env = "M0_BACKLOG", default_value_t = 2048,
        value_parser = clap::value_parser!(u32).range(1..), help_heading = LISTENING
    )]
    backlog: u32,

    /// Permission bits of Unix sockets, in octal
    ///
    /// Any local user may connect, as to a port: the proxy commonly runs as another user than the application. The
    /// socket's directory can restrict it.
    #[arg(
        long, value_name = "MODE", env = "M0_UDS_MODE", default_value = "666", value_parser = parse_mode,
        help_heading = LISTENING
    )]
    uds_mode: u32,

    /// Event loops in the process, or auto: one for each usable performance core
    ///
    /// One is right where the GIL lets one thread run at a time. On a free-threaded build more loops use more cores, if
    /// the application's own code is safe to run in several threads: that is for its owner to say, hence not the default.
    #[arg(long, value_name = "COUNT", env = "M0_THREADS", default_value_t = Threads::Exactly(1), help_heading = THREADS)]
    threads: Threads,

    /// Standby threads for each loop, which take over when a view is slow
    ///
    /// 0: each loop runs its views itself, which is fastest when all of them are fast; but a view that waits makes the
    /// other connections of its loop wait too. With views that wait for databases or other servers, 4 is a good start.
    /// More threads mean more database connections, which commonly are what runs out first.
    #[arg(long, value_name = "COUNT", env = "M0_BLOCKING_THREADS", default_value_t = 0, help_heading = THREADS)]
    blocking_threads: usize,

    /// Threads that may be added while others stream for long
    ///
    /// A response that is streamed for more than 50 ms (server-sent events, a slow download of a generator) keeps its thread;
    /// the pool gets another one for as long. At most this many; beyond them, streams occupy the pool's own threads. Has no
    /// meaning without --blocking-threads.
    #[arg(
        long, value_name = "COUNT", env = "M0_STREAMING_THREADS", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(..=4096), help_heading = THREADS
    )]
    streaming_threads: u32,

    /// Processes
    ///
    /// One: threads share the application's memory. More than one is not built yet.
    #[arg(
        short, long, value_name = "COUNT", env = "M0_WORKERS", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..), help_heading = THREADS
    )]
    workers: u32,

    /// Cores for the loops: auto, off, or a list as in 0,2-3
    ///
    /// auto gives each loop a performance core of its own if there are exactly as many loops as such cores and no CPU
    /// quota. With fewer, another server on this machine might have chosen the same cores; then the scheduler decides,
    /// among the performance cores.
    #[arg(long, value_name = "CORES", env = "M0_PIN", default_value_t = Pin::Auto, help_heading = THREADS)]
    pin: Pin,

    /// The event loop of an ASGI application: auto, asyncio or uvloop
    ///
    /// auto takes uvloop if it can be imported. The start-up line tells which one runs.
    #[arg(id = "loop", long = "loop", value_name = "NAME", env = "M0_LOOP", default_value_t = EventLoop::Auto, help_heading = ASGI)]
    event_loop: EventLoop,

    /// Whether an ASGI application is told of start and stop: auto, on or off
    ///
    /// auto goes on without if the application does not know the lifespan protocol; on refuses to start then. Each loop
    /// (--threads) has a lifespan, and a state, of its own.
    #[arg(long, value_name = "WHEN", env = "M0_LIFESPAN", default_value_t = Lifespan::Auto, help_heading = ASGI)]
    lifespan: Lifespan,

    /// Log what holds the event loop for longer, with its stack; 0: off
    ///
    /// Blocking code in an async view makes all other requests of the loop wait. 100 finds it; a thread watches the loop
    /// then. Off, because nothing is to pay for it.
    #[arg(long, value_name = "MILLISECONDS", env = "M0_SLOW_CALLBACK_MS", default_value_t = 0, help_heading = ASGI)]
    slow_callback_ms: u32,

    /// Bytes of a WebSocket message (closed with 1009 beyond)
    ///
    /// After decompression. uvicorn's figure, which applications written for it rely on.
    #[arg(
        long, value_name = "SIZE", env = "M0_WS_MAX_SIZE", default_value_t = Size(websocket::Settings::default().max_message as u64),
        value_parser = at_least::<125>, help_heading = ASGI
    )]
    ws_max_size: Size,

    /// Between two pings on a WebSocket; 0: none are sent
    ///
    /// Proxies close connections that are silent for a minute, and a client that is gone without a word is noticed.
    #[arg(
        long, value_name = "SECONDS", env = "M0_WS_PING_INTERVAL", default_value_t = Seconds(Duration::from_secs(20)),
        value_parser = Seconds::parse_or_zero, help_heading = ASGI
    )]
    ws_ping_interval: Seconds,

    /// For the answer to a ping; then the WebSocket is closed
    ///
    /// As long as the interval: a client may be on a train.
    #[arg(
        long, value_name = "SECONDS", env = "M0_WS_PING_TIMEOUT", default_value_t = Seconds(Duration::from_secs(20)),
        help_heading = ASGI
    )]
    ws_ping_timeout: Seconds,

    /// Compress WebSocket messages for clients that can (permessage-deflate): on or off
    ///
    /// Text shrinks to a quarter or less, for some 10 KiB of memory for each connection that uses it.
    #[arg(
        long, value_name = "WHETHER", env = "M0_WS_COMPRESSION", default_value = "on", value_parser = on_or_off,
        help_heading = ASGI
    )]
    ws_compression: bool,

    /// Bytes of a request line (414 beyond)
    ///
    /// Apache's and gunicorn's figure; RFC 9112 section 3 asks for 8000 at least.
    #[arg(
        long, value_name = "SIZE", env = "M0_LIMIT_REQUEST_LINE", default_value_t = Size(Limits::default().request_line as u64),
        value_parser = at_least::<64>, help_heading = LIMITS
    )]
    limit_request_line: Size,

    /// Bytes of one field line of a request (431 beyond)
    ///
    /// Apache's and gunicorn's figure; all cookies for one site fit in 4 KiB in most browsers.
    #[arg(
        long, value_name = "SIZE", env = "M0_LIMIT_FIELD_SIZE", default_value_t = Size(Limits::default().field_size as u64),
        value_parser = at_least::<64>, help_heading = LIMITS
    )]
    limit_field_size: Size,

    /// Fields of a request (431 beyond)
    ///
    /// Apache's and gunicorn's figure; browsers send twelve to twenty, proxies add a few.
    #[arg(
        long, value_name = "COUNT", env = "M0_LIMIT_FIELDS", default_value_t = Limits::default().fields as u32,
        value_parser = clap::value_parser!(u32).range(1..=32_768), help_heading = LIMITS
    )]
    limit_fields: u32,

    /// Bytes of a request's whole head (431 beyond)
    ///
    /// What a client that never ends its head can make this server hold; the other three alone would allow 800 KiB.
    #[arg(
        long, value_name = "SIZE", env = "M0_LIMIT_HEAD_SIZE", default_value_t = Size(Limits::default().head_size as u64),
        value_parser = at_least::<64>, help_heading = LIMITS
    )]
    limit_head_size: Size,

    /// Bytes of a request's body (413 beyond); 0: no limit
    ///
    /// Bodies above 512 KiB wait in temporary files, not in memory: this guards the disk. The application may know better
    /// and refuse earlier.
    #[arg(
        long, value_name = "SIZE", env = "M0_LIMIT_BODY", default_value_t = Size(Limits::default().body),
        help_heading = LIMITS
    )]
    limit_body: Size,

    /// Connections open at once; more are turned away
    ///
    /// An idle connection costs some 1.5 KiB and one descriptor. `ulimit -n` must allow as many.
    #[arg(
        long, value_name = "COUNT", env = "M0_LIMIT_CONNECTIONS", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS
    )]
    limit_connections: u32,

    /// Requests that wait for a free thread; more are answered with 503 and Retry-After
    ///
    /// At 10 ms each, four threads work off the default in 2.5 seconds. Whoever waits longer has mostly given up, and
    /// answering them late would keep everybody late.
    #[arg(
        long, value_name = "COUNT", env = "M0_QUEUE_LIMIT", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS
    )]
    queue_limit: u32,

    /// For a request's head, from its first byte on (408 beyond)
    ///
    /// A head is one or two packets. Slow clients cost no thread here, only a connection.
    #[arg(long, value_name = "SECONDS", env = "M0_TIMEOUT_HEAD", default_value_t = default_timeouts().head, help_heading = TIMEOUTS)]
    timeout_head: Seconds,

    /// Without a byte of the request's body (408 beyond)
    ///
    /// It counts from the last byte, so a long upload may take as long as it makes progress.
    #[arg(long, value_name = "SECONDS", env = "M0_TIMEOUT_BODY", default_value_t = default_timeouts().body, help_heading = TIMEOUTS)]
    timeout_body: Seconds,

    /// Between two requests on a connection, and before the first
    ///
    /// Longer than the 60 seconds for which common proxies and load balancers keep theirs: whoever closes first should be
    /// the client, or a request may meet a connection that is just being closed.
    #[arg(long, value_name = "SECONDS", env = "M0_TIMEOUT_IDLE", default_value_t = default_timeouts().idle, help_heading = TIMEOUTS)]
    timeout_idle: Seconds,

    /// Without the client taking a byte of the response
    ///
    /// It counts from the last byte that was taken; a download may take as long as it makes progress.
    #[arg(long, value_name = "SECONDS", env = "M0_TIMEOUT_WRITE", default_value_t = default_timeouts().write, help_heading = TIMEOUTS)]
    timeout_write: Seconds,

    /// For requests in flight when the server stops; then they are cut
    ///
    /// What systemd, Kubernetes and gunicorn wait too, or more. A second signal stops at once.
    #[arg(
        long, value_name = "SECONDS", env = "M0_GRACEFUL_TIMEOUT", default_value_t = default_timeouts().graceful,
        value_parser = Seconds::parse_or_zero, help_heading = TIMEOUTS
    )]
    graceful_timeout: Seconds,

    /// Write a line for each response: a file's path, - for standard output, or off
    ///
    /// Off, because the proxy in front commonly has one already. The file is written by a thread of its own, a tenth of a
    /// second behind.
    #[arg(long, value_name = "PATH", env = "M0_ACCESS_LOG", default_value = "off", value_parser = access_log, help_heading = LOGGING)]
    access_log: AccessLog,

    /// Its form: combined, common, json, or a text with gunicorn's atoms, as in '%(h)s "%(r)s" %(s)s'
    ///
    /// combined is what log analysers read. The atoms are h l u t r s m U q H b B f a T M D L p {name}i {name}o {name}e.
    #[arg(long, value_name = "FORMAT", env = "M0_ACCESS_LOG_FORMAT", default_value = "combined", help_heading = LOGGING)]
    access_log_format: String,

    /// What is told on standard error: error, warn, info or debug, and all before it
    ///
    /// info has a line at start and one at stop, and what goes wrong; nothing per request.
    #[arg(long, value_name = "LEVEL", env = "M0_LOG_LEVEL", default_value_t = Level::Info, help_heading = LOGGING)]
    log_level: Level,

    /// Answer this path with 200 without calling the application, for load balancers
    ///
    /// None by default: the path belongs to the application unless its owner gives it away.
    #[arg(long, value_name = "PATH", env = "M0_HEALTH_PATH", help_heading = OPERATION)]
    health_path: Option<String>,

    /// Show the settings and where each comes from, and exit
    #[arg(long, help_heading = OPERATION)]
    pub(super) print_config: bool,

    /// Print docs/configuration.md and exit
    #[arg(long, hide = true)]
    pub(super) print_config_docs: bool,

    /// Show this text, short with -h, with reasons with --help
    #[arg(short, long, action = clap::ArgAction::Help, help_heading = OPERATION)]
    help: Option<bool>,

    /// Show the version and the interpreter that this binary is linked with
    #[arg(short = 'V', long, action = clap::ArgAction::Version, help_heading = OPERATION)]
    version: Option<bool>,
}

fn default_timeouts() -> TimeoutDefaults {
    let Timeouts {
        head,
        body,
        idle,
        write,
        graceful,
    } = Timeouts::default();
    TimeoutDefaults {
        head: Seconds(head),
        body: Seconds(body),
        idle: Seconds(idle),
        write: Seconds(write),
        graceful: Seconds(graceful),
    }
}

struct TimeoutDefaults {
    head: Seconds,
    body: Seconds,
    idle: Seconds,
    write: Seconds,
    graceful: Seconds,
}

/// The value of `--access-log`: none for off.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AccessLog(Option<access::Target>);

/// A path, or a word: environments are often set to true and false.
fn access_log(text: &str) -> Result<AccessLog, String> {
    match text {
        "off" | "false" | "no" | "0" => Ok(AccessLog(None)),
        "-" | "on" | "true" | "yes" | "1" => Ok(AccessLog(Some(access::Target::Stdout))),
        // The application was meant: the path was forgotten.
        path if path.contains(':') && !path.contains('/') => Err(format!(
            "is a file's path missing before {path}? Write --access-log - {path}, or ./{path} for such a file"
        )),
        path => Ok(AccessLog(Some(access::Target::File(path.into())))),
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

fn at_least<const LEAST: u64>(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size.0 < LEAST {
        return Err(format!(
            "at least {LEAST} bytes are needed for any request to pass"
        ));
    }
    Ok(size)
}

impl Flags {
    /// The settings as given; `config` checks what goes together.
    pub(super) fn given(self) -> Given {
        Given {
            app: AppSpec {
                spec: self.app,
                app_dir: self.app_dir,
                factory: self.factory,
                python: self.python,
                interface: self.interface,
                root_path: self.root_path,
                header_underscores: self.header_underscores,
                asgi: AsgiSpec {
                    event_loop: self.event_loop,
                    lifespan: self.lifespan,
                    slow_callback: (self.slow_callback_ms > 0)
                        .then(|| Duration::from_millis(self.slow_callback_ms.into())),
                    websocket: websocket::Settings {
                        max_message: self.ws_max_size.0 as usize,
                        deflate: self.ws_compression.then(Default::default),
                    },
                    pings: (!self.ws_ping_interval.0.is_zero()).then_some(Pings {
                        interval: self.ws_ping_interval.0,
                        timeout: self.ws_ping_timeout.0,
                    }),
                },
            },
            binds: self.bind,
            uds_mode: self.uds_mode,
            backlog: self.backlog,
            threads: self.threads,
            blocking_threads: self.blocking_threads,
            streaming_threads: self.streaming_threads as usize,
            workers: self.workers as usize,
            pin: self.pin,
            limits: Limits {
                request_line: self.limit_request_line.0 as usize,
                field_size: self.limit_field_size.0 as usize,
                fields: self.limit_fields as usize,
                head_size: self.limit_head_size.0 as usize,
                body: self.limit_body.0,
            },
            limit_connections: self.limit_connections as usize,
            queue_limit: self.queue_limit as usize,
            timeouts: Timeouts {
                head: self.timeout_head.0,
                body: self.timeout_body.0,
                idle: self.timeout_idle.0,
                write: self.timeout_write.0,
                graceful: self.graceful_timeout.0,
            },
            access_log: self.access_log.0,
            access_log_format: self.access_log_format,
            log_level: self.log_level,
            health_path: self.health_path,
        }
    }
}
