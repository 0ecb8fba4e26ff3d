//! docs/configuration.md, made from the flag table.
//!
//! Owns the page's form; the words are the table's. A test holds the committed page to it. Main thread, then the process
//! ends.

use std::fmt::Write;

use clap::{Arg, Command};

use super::flags::HEADINGS;

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from src/cli/flags.rs: m0serve --print-config-docs > docs/configuration.md -->

`m0serve [OPTIONS] MODULE:ATTRIBUTE`

Each setting is an option on the command line or an environment variable. The command line goes before the environment,
the environment before the default; an empty variable counts as none. `m0serve --print-config` shows what came out and
where from. A wrong setting ends the start with exit code 2 and says what to write instead.

Sizes are bytes, or have `KiB`, `MiB` or `GiB` behind them. Seconds may have a fraction. Options that are on or off take
`1`, `true`, `yes` or `on` and `0`, `false`, `no` or `off` as variables.
";

pub(super) fn page(command: &Command) -> String {
    let mut page = INTRODUCTION.to_owned();
    for heading in HEADINGS {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {heading}\n");
        for arg in command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set() && arg.get_help_heading() == Some(heading))
        {
            section(arg, &mut page);
        }
    }
    page
}

fn section(arg: &Arg, page: &mut String) {
    let _ = write!(page, "\n### `{}`\n\n", spelling(arg));
    let what = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let whole = arg
        .get_long_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let _ = writeln!(page, "{what}.");
    if let Some(variable) = variable(arg) {
        let default = match default(arg) {
            Some(default) => format!("`{default}`"),
            None => "none".to_owned(),
        };
        let unit = unit(arg).map(|unit| format!(" {unit}")).unwrap_or_default();
        let _ = write!(
            page,
            "\n- Variable: `{variable}`\n- Default: {default}{unit}\n"
        );
    }
    if let Some(why) = whole
        .strip_prefix(&what)
        .map(str::trim)
        .filter(|why| !why.is_empty())
    {
        let _ = write!(page, "\n{why}\n");
    }
}

/// `--bind <ADDRESS>`, `-b`
fn spelling(arg: &Arg) -> String {
    let value = arg
        .get_value_names()
        .and_then(|names| names.first())
        .map(|name| name.to_string());
    let takes_value = arg.get_action().takes_values();
    match (arg.get_long(), value) {
        (None, value) => value.unwrap_or_default(),
        (Some(long), value) => {
            let short = arg
                .get_short()
                .map(|short| format!("-{short}, "))
                .unwrap_or_default();
            let value = value
                .filter(|_| takes_value)
                .map(|value| format!(" {value}"))
                .unwrap_or_default();
            format!("{short}--{long}{value}")
        }
    }
}

pub(super) fn variable(arg: &Arg) -> Option<String> {
    arg.get_env()
        .map(|name| name.to_string_lossy().into_owned())
}

fn default(arg: &Arg) -> Option<String> {
    if !arg.get_action().takes_values() {
        return Some("off".into());
    }
    let values: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    Some(values.join(",")).filter(|values| !values.is_empty())
}

fn unit(arg: &Arg) -> Option<&'static str> {
    let name = arg.get_value_names()?.first()?.as_str();
    match name {
        "SECONDS" => Some("seconds"),
        // A default with a unit names it itself.
        "SIZE"
            if arg.get_default_values()[0]
                .as_encoded_bytes()
                .iter()
                .all(u8::is_ascii_digit) =>
        {
            Some("bytes")
        }
        _ => None,
    }
}
