//! The command line: arguments and environment to settings, help, version.
//!
//! Owns how settings are written down, and exit code 2 for wrong usage. Must not start anything. Main thread.
#![forbid(unsafe_code)]

mod docs;
mod flags;

use std::ffi::{OsStr, OsString};
use std::sync::LazyLock;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::config::{ConfigError, Settings};
use crate::observe::log;
use crate::topology::Topology;
use flags::Flags;

/// The exit code for wrong usage.
pub const USAGE: u8 = 2;

/// Reads the process's arguments and environment, and sets the log's level. Ends the process where it was asked to show
/// something, and with exit code 2 where it was asked wrongly.
pub fn parse() -> Settings {
    let settings = match parse_from(std::env::args_os(), &Topology::read()) {
        Ok(Outcome::Serve(settings)) => settings,
        Ok(Outcome::Show(text)) => {
            use std::io::Write;
            // A closed pipe (`| head`) is no failure of ours.
            let _ = std::io::stdout().write_all(text.as_bytes());
            std::process::exit(0);
        }
        Err(error) => error.exit(),
    };
    log::set_level(settings.log_level);
    for name in unknown_variables(std::env::vars_os().map(|(name, _)| name)) {
        log::warn!("the environment variable {name} is no setting of m0serve and has no effect");
    }
    *settings
}

/// What the arguments ask for.
#[derive(Debug)]
enum Outcome {
    Serve(Box<Settings>),
    Show(String),
}

fn parse_from(
    arguments: impl IntoIterator<Item = OsString>,
    topology: &Topology,
) -> Result<Outcome, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // The short help has a line for each option and one for all variables.
    let short_help = arguments.iter().any(|argument| argument == "-h");
    let mut command = command().mut_args(|arg| {
        let is_empty = arg
            .get_env()
            .and_then(std::env::var_os)
            .is_some_and(|value| value.is_empty());
        let arg = if is_empty {
            arg.env(None::<&'static str>)
        } else {
            arg
        };
        arg.hide_env(short_help).hide_env_values(true)
    });
    let matches = command
        .try_get_matches_from_mut(&arguments)
        .map_err(|error| explain(error, &command, &arguments))?;
    let flags = Flags::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if flags.print_config_docs {
        return Ok(Outcome::Show(docs::page(&self::command())));
    }
    let print_config = flags.print_config;
    let given = flags.given();
    if given.app.spec.is_none() && !print_config {
        let text = "which application? Give its module and attribute: m0serve app:application";
        return Err(command.error(ErrorKind::MissingRequiredArgument, text));
    }
    let refuse = |command: &mut Command, error: ConfigError| {
        command.error(ErrorKind::ValueValidation, error)
    };
    let settings = given
        .check(topology)
        .map_err(|error| refuse(&mut command, error))?;
    if print_config {
        return Ok(Outcome::Show(effective(&matches, &settings)));
    }
    Ok(Outcome::Serve(Box::new(settings)))
}

fn command() -> Command {
    Flags::command().version(version())
}

/// Version, linked interpreter, ABI.
fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let interpreter = option_env!("M0_LINKED_PYTHON").unwrap_or("without an interpreter");
        format!("{} ({interpreter})", env!("CARGO_PKG_VERSION"))
    });
    &TEXT
}

/// Every setting with its value and where that comes from, and what depends on the machine.
fn effective(matches: &ArgMatches, settings: &Settings) -> String {
    let mut text = String::new();
    for arg in command().get_arguments() {
        let (id, Some(variable)) = (arg.get_id().as_str(), docs::variable(arg)) else {
            continue;
        };
        let values = matches.get_raw(id).map(|raw| {
            raw.map(OsStr::to_string_lossy)
                .collect::<Vec<_>>()
                .join(",")
        });
        let source = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => "command line".to_owned(),
            Some(ValueSource::EnvVariable) => variable,
            _ => "default".to_owned(),
        };
        let name = arg
            .get_long()
            .map_or("MODULE:ATTRIBUTE".to_owned(), |long| format!("--{long}"));
        text.push_str(&format!(
            "{name:24} {:32} # {source}\n",
            values.unwrap_or_default()
        ));
    }
    text.push_str(&format!(
        "# loops: {}, on cores: {}\n",
        settings.threads, settings.placement
    ));
    text
}

/// Options of other servers, and what does the same here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("--host", "--bind HOST:PORT"),
    ("--port", "--bind HOST:PORT"),
    ("--uds", "--bind unix:PATH"),
    ("--fd", "--bind fd://NUMBER"),
    ("--chdir", "--app-dir DIR"),
    ("--pythonpath", "--app-dir DIR"),
    ("--access-logfile", "--access-log PATH"),
    ("--access-logformat", "--access-log-format FORMAT"),
    ("--access-log-fmt", "--access-log-format FORMAT"),
    ("--keep-alive", "--timeout-idle SECONDS"),
    ("--timeout-keep-alive", "--timeout-idle SECONDS"),
    ("--timeout-graceful-shutdown", "--graceful-timeout SECONDS"),
    ("--limit-request-fields", "--limit-fields COUNT"),
    ("--limit-request-field_size", "--limit-field-size SIZE"),
    ("--limit-concurrency", "--limit-connections COUNT"),
    ("--worker-connections", "--limit-connections COUNT"),
    ("--backpressure", "--queue-limit COUNT"),
    ("--runtime-threads", "--threads COUNT"),
    ("--url-path-prefix", "--root-path PATH"),
];

/// Adds to clap's message what it can't know: other servers' names, and that a value came from the environment.
fn explain(mut error: clap::Error, command: &Command, arguments: &[OsString]) -> clap::Error {
    let tip = |text: String| ContextValue::StyledStrs(vec![StyledStr::from(text)]);
    let Some(ContextValue::String(named)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    // "--threads <COUNT>", "--unknown"
    let option = named.split([' ', '=']).next().unwrap_or(named).to_owned();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            if let Some((_, ours)) = ELSEWHERE.iter().find(|(theirs, _)| *theirs == option) {
                error.remove(ContextKind::SuggestedArg);
                error.insert(ContextKind::Suggested, tip(format!("use {ours}")));
            }
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let arg = command.get_arguments().find(|arg| match arg.get_long() {
                Some(long) => option.strip_prefix("--") == Some(long),
                None => option.starts_with('['),
            });
            let on_command_line = arguments.iter().any(|argument| {
                let argument = argument.to_string_lossy();
                let short = arg
                    .and_then(|arg| arg.get_short())
                    .map(|short| format!("-{short}"));
                argument.split('=').next() == Some(&option)
                    || short.is_some_and(|short| argument.starts_with(&short))
            });
            if let Some(variable) = arg.and_then(docs::variable)
                && !on_command_line
                && std::env::var_os(&variable).is_some()
            {
                let text = format!("the value comes from the environment variable {variable}");
                error.insert(ContextKind::Suggested, tip(text));
            }
        }
        _ => {}
    }
    error
}

/// Variables that are no settings but are known: switches for measurements, and what the project's scripts read.
const NO_SETTINGS: &[&str] = &[
    "M0_BATON",
    "M0_POOL_TURN",
    "M0_LOOP_ATTACHED",
    "M0_PY313",
    "M0_PY314T",
];

fn unknown_variables(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let command = command();
    let known: Vec<String> = command.get_arguments().filter_map(docs::variable).collect();
    let mut unknown: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("M0_"))
        .filter(|name| !known.contains(name) && !NO_SETTINGS.contains(&name.as_str()))
        .collect();
    unknown.sort_unstable();
    unknown
}

#[cfg(test)]
mod tests;
