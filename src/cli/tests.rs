//! The flag table against what comes out of it. Its environment is tested from outside, in tests/cli.rs.

use super::*;
use crate::config::{BindAddress, Interface, Timeouts, UnderscoreNames};
use crate::http1::Limits;
use crate::observe::access;
use crate::observe::log::Level;
use crate::topology::tests::equal_cpus;
use crate::topology::{Pin, Placement};
use std::time::Duration;

fn outcome(line: &str) -> Result<Outcome, clap::Error> {
    let arguments = std::iter::once("m0serve")
        .chain(line.split_whitespace())
        .map(OsString::from);
    parse_from(arguments, &equal_cpus(4))
}

fn settings(line: &str) -> Settings {
    match outcome(line) {
        Ok(Outcome::Serve(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    let error = outcome(line).unwrap_err();
    assert_eq!(error.exit_code(), i32::from(USAGE), "{line}");
    error.to_string()
}

fn shown(line: &str) -> String {
    match outcome(line) {
        Ok(Outcome::Show(text)) => text,
        Err(error) if error.exit_code() == 0 => error.to_string(),
        other => panic!("{line}: {other:?}"),
    }
}

/// Options that are settings: all but --help and its kind.
fn flags() -> Vec<clap::Arg> {
    let no_settings = ["print_config", "print_config_docs", "help", "version"];
    command()
        .get_arguments()
        .filter(|arg| !no_settings.contains(&arg.get_id().as_str()))
        .cloned()
        .collect()
}

#[test]
fn the_table_is_sound() {
    command().debug_assert();
}

#[test]
fn every_setting_has_its_variable_heading_and_reason() {
    for arg in flags() {
        let id = arg.get_id().to_string();
        assert_eq!(
            docs::variable(&arg),
            Some(format!("M0_{}", id.to_uppercase()))
        );
        assert!(
            flags::HEADINGS.contains(&arg.get_help_heading().unwrap()),
            "{id}"
        );
        let (short, long) = (
            arg.get_help().unwrap().to_string(),
            arg.get_long_help().unwrap().to_string(),
        );
        assert!(!short.ends_with('.') && long.starts_with(&short), "{id}");
        assert!(
            long[short.len()..].trim_start().ends_with('.'),
            "{id} says nothing of why"
        );
    }
}

#[test]
fn the_configuration_page_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let page = shown("--print-config-docs");
    assert!(
        committed == page,
        "write it anew: m0serve --print-config-docs > docs/configuration.md"
    );
    for arg in flags() {
        assert!(page.contains(&format!("Variable: `{}`", docs::variable(&arg).unwrap())));
    }
}

#[test]
fn defaults() {
    let defaults = settings("app:application");
    assert_eq!(defaults.app.spec.as_deref(), Some("app:application"));
    assert_eq!(
        defaults.binds,
        ["127.0.0.1:8000".parse::<BindAddress>().unwrap()]
    );
    assert_eq!(
        (
            defaults.threads,
            defaults.blocking_threads,
            defaults.workers
        ),
        (1, 0, 1)
    );
    assert_eq!(defaults.limits, Limits::default());
    assert_eq!(defaults.timeouts, Timeouts::default());
    assert_eq!(defaults.access_log, None);
    assert_eq!(defaults.log_level, Level::Info);
    assert_eq!(defaults.app.header_underscores, UnderscoreNames::Drop);
}

#[test]
fn every_option_arrives() {
    let all = settings(
        "m:f --app-dir / --factory --python /dev/null --interface asgi --root-path /api --header-underscores refuse \
         -b 127.0.0.1:0 --bind unix:/tmp/x,:80 --backlog 5 --uds-mode 660 --threads 2 --blocking-threads 3 -w 1 \
         --pin 1,0 --limit-request-line 100 --limit-field-size 1KiB --limit-fields 7 --limit-head-size 2KiB \
         --limit-body 0 --limit-connections 9 --queue-limit 8 --timeout-head 1 --timeout-body 2 --timeout-idle 3 \
         --timeout-write 4.5 --graceful-timeout 0 --access-log /tmp/log --access-log-format json --log-level debug \
         --health-path /up",
    );
    assert!(all.app.factory);
    assert_eq!(
        (all.app.app_dir.to_str(), all.app.root_path.as_str()),
        (Some("/"), "/api")
    );
    assert_eq!(
        all.app.python.as_deref().and_then(std::path::Path::to_str),
        Some("/dev/null")
    );
    assert_eq!(all.app.interface, Interface::Asgi);
    assert_eq!(all.app.header_underscores, UnderscoreNames::Refuse);
    let unix = BindAddress::Unix {
        path: "/tmp/x".into(),
        mode: 0o660,
    };
    assert_eq!(
        all.binds,
        ["127.0.0.1:0".parse().unwrap(), unix, ":80".parse().unwrap()]
    );
    assert_eq!((all.backlog, all.threads, all.blocking_threads), (5, 2, 3));
    assert_eq!(
        (all.pin, all.placement),
        (Pin::List(vec![1, 0]), Placement::Each(vec![1, 0]))
    );
    let limits = Limits {
        request_line: 100,
        field_size: 1024,
        fields: 7,
        head_size: 2048,
        body: 0,
    };
    assert_eq!(
        (all.limits, all.limit_connections, all.queue_limit),
        (limits, 9, 8)
    );
    let seconds = Duration::from_secs_f64;
    let timeouts = Timeouts {
        head: seconds(1.0),
        body: seconds(2.0),
        idle: seconds(3.0),
        write: seconds(4.5),
        graceful: Duration::ZERO,
    };
    assert_eq!(all.timeouts, timeouts);
    let log = all.access_log.unwrap();
    assert_eq!(log.target, access::Target::File("/tmp/log".into()));
    assert_eq!(log.format, access::Format::compile("json").unwrap());
    assert_eq!(
        (all.log_level, all.health_path.as_deref()),
        (Level::Debug, Some("/up"))
    );
}

#[test]
fn the_access_logs_target() {
    let target = |value: &str| {
        settings(&format!("m:a --access-log {value}"))
            .access_log
            .map(|log| log.target)
    };
    for off in ["off", "false", "no", "0"] {
        assert_eq!(target(off), None);
    }
    for stdout in ["-", "on", "true", "yes", "1"] {
        assert_eq!(target(stdout), Some(access::Target::Stdout));
    }
    assert_eq!(target("./off"), Some(access::Target::File("./off".into())));
    assert!(refusal("--access-log m:a").contains("--access-log - m:a"));
}

#[test]
fn wrong_usage_says_what_to_write() {
    for (line, hint) in [
        ("", "m0serve app:application"),
        ("m:a --thread 2", "similar argument exists: '--threads'"),
        ("m:a --threads", "a value is required"),
        (
            "m:a --threads x",
            "'--threads <COUNT>': write a number or auto",
        ),
        (
            "m:a --workers 2",
            "--workers 2: several processes are not built yet",
        ),
        ("m:a --workers 0", "'--workers <COUNT>'"),
        ("m:a --timeout-head 0", "at least 0.001"),
        ("m:a --timeout-head 5m", "number of seconds"),
        ("m:a --limit-request-line 10", "at least 64"),
        ("m:a --limit-body 1kb", "KiB"),
        ("m:a --bind 8000", "127.0.0.1:8000"),
        ("m:a --log-level loud", "error, warn, info and debug"),
        ("m:a --pin 7", "--pin 7: CPU 7 is not one"),
        (
            "m:a --access-log - --access-log-format %(z)s",
            "no atom \"z\"",
        ),
        ("m:a n:b", "unexpected argument 'n:b'"),
        (
            "m:a --threads 1 --threads 2",
            "cannot be used multiple times",
        ),
        ("app.py", "app:application"),
    ] {
        let error = refusal(line);
        assert!(error.contains(hint), "{line}: {error}");
    }
}

#[test]
fn options_of_other_servers_are_translated_to_ones_that_exist() {
    for (theirs, ours) in ELSEWHERE {
        let error = refusal(&format!("m:a {theirs} 1"));
        assert!(error.contains(&format!("tip: use {ours}")), "{error}");
        let option = ours
            .split(' ')
            .next()
            .unwrap()
            .trim_start_matches('-')
            .to_owned();
        assert!(
            flags().iter().any(|arg| arg.get_long() == Some(&option)),
            "{ours}"
        );
        assert!(
            flags()
                .iter()
                .all(|arg| arg.get_long() != theirs.strip_prefix("--")),
            "{theirs}"
        );
    }
}

#[test]
fn help_is_grouped_and_version_names_the_interpreter() {
    let (short, long) = (shown("-h"), shown("--help"));
    let mut rest = short.as_str();
    for heading in flags::HEADINGS {
        rest = &rest[rest.find(&format!("\n{heading}:\n")).unwrap()..];
        assert!(long.contains(&format!("\n{heading}:\n")));
    }
    assert!(
        short.lines().all(|line| line.chars().count() <= 100),
        "{short}"
    );
    assert!(!short.contains("[env:") && long.contains("[env: M0_THREADS]"));
    assert!(shown("--version").starts_with(concat!("m0serve ", env!("CARGO_PKG_VERSION"), " (")));
}

#[test]
fn the_settings_are_shown_with_their_source() {
    let text = shown("m:a --threads auto --print-config");
    let line = |name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(line("--threads").ends_with("# command line") && line("--threads").contains(" auto "));
    assert!(line("--backlog").contains(" 2048 ") && line("--backlog").ends_with("# default"));
    assert!(text.ends_with("# loops: 4, on cores: 0-3\n"), "{text}");
}

#[test]
fn variables_that_are_no_settings_are_noticed() {
    let names = [
        "M0_WORKER",
        "M0_THREADS",
        "M0_PY314T",
        "M0_BATON",
        "PATH",
        "M0_A",
    ];
    assert_eq!(
        unknown_variables(names.into_iter().map(OsString::from)),
        ["M0_A", "M0_WORKER"]
    );
}
