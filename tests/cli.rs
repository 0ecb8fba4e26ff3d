//! The binary's command line from outside: the environment, exit codes, what goes to which stream.

use std::process::{Command, Output};

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_m0serve"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What `--print-config` says of one setting.
fn setting(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = run(&[arguments, &["--print-config"]].concat(), environment);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line = text(&output.stdout)
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap()
        .split_whitespace()
        .skip(1)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_command_line_goes_before_the_environment_and_an_empty_variable_is_none() {
    assert_eq!(setting("--backlog", &[], &[]), "2048 # default");
    assert_eq!(
        setting("--backlog", &[], &[("M0_BACKLOG", "7")]),
        "7 # M0_BACKLOG"
    );
    assert_eq!(
        setting("--backlog", &["--backlog", "9"], &[("M0_BACKLOG", "7")]),
        "9 # command line"
    );
    assert_eq!(
        setting("--backlog", &[], &[("M0_BACKLOG", "")]),
        "2048 # default"
    );
    assert_eq!(
        setting("MODULE:ATTRIBUTE", &[], &[("M0_APP", "a:b")]),
        "a:b # M0_APP"
    );
    assert_eq!(
        setting("--bind", &[], &[("M0_BIND", "127.0.0.1:1,[::1]:1")]),
        "127.0.0.1:1,[::1]:1 # M0_BIND"
    );
    for (value, shown) in [("1", "1"), ("true", "true"), ("0", "0"), ("off", "off")] {
        assert_eq!(
            setting("--factory", &[], &[("M0_FACTORY", value)]),
            format!("{shown} # M0_FACTORY")
        );
    }
}

#[test]
fn a_wrong_variable_is_named_and_ends_with_2() {
    for (name, value) in [
        ("M0_THREADS", "many"),
        ("M0_BIND", "nowhere"),
        ("M0_FACTORY", "maybe"),
        ("M0_LOG_LEVEL", "loud"),
        ("M0_TIMEOUT_HEAD", "0"),
        ("M0_LIMIT_BODY", "much"),
    ] {
        let output = run(&["a:b"], &[(name, value)]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let error = text(&output.stderr);
        assert!(
            error.contains(&format!(
                "the value comes from the environment variable {name}"
            )),
            "{error}"
        );
        assert!(output.stdout.is_empty());
    }
    // The same value on the command line isn't blamed on the environment.
    let output = run(&["a:b", "--threads", "many"], &[("M0_THREADS", "2")]);
    assert!(!text(&output.stderr).contains("environment variable"));
    let output = run(&["a:b", "-bx"], &[("M0_BIND", ":80")]);
    assert!(!text(&output.stderr).contains("environment variable"));
}

#[test]
fn usage_errors_end_with_2_and_help_with_0() {
    for arguments in [
        &[][..],
        &["--no-such"],
        &["a:b", "--workers", "2"],
        &["a.py"],
    ] {
        let output = run(arguments, &[]);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{arguments:?}"
        );
        assert!(text(&output.stderr).starts_with("error: "));
    }
    for arguments in [["-h"], ["--help"], ["--version"], ["--print-config-docs"]] {
        let output = run(&arguments, &[]);
        assert_eq!(
            (output.status.code(), output.stderr.len()),
            (Some(0), 0),
            "{arguments:?}"
        );
        assert!(!output.stdout.is_empty());
    }
}
