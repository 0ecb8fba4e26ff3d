//! Which settings go together, and what a refusal says.

use super::*;
use crate::topology::tests::equal_cpus;

/// What the flags' defaults come to.
pub(crate) fn given() -> Given {
    Given {
        app: AppSpec {
            spec: Some("app:application".into()),
            ..AppSpec::default()
        },
        binds: vec!["127.0.0.1:8000".parse().unwrap()],
        uds_mode: 0o600,
        backlog: 64,
        threads: Threads::Exactly(1),
        streaming_threads: 64,
        blocking_threads: 0,
        workers: 1,
        pin: Pin::Auto,
        limits: Limits::default(),
        limit_connections: 100,
        queue_limit: 100,
        timeouts: Timeouts::default(),
        access_log: None,
        access_log_format: "combined".into(),
        log_level: Level::Info,
        health_path: None,
    }
}

fn check(change: impl FnOnce(&mut Given)) -> Result<Settings, String> {
    let mut given = given();
    change(&mut given);
    given
        .check(&equal_cpus(4))
        .map_err(|error| error.to_string())
}

#[test]
fn what_depends_on_the_machine_is_resolved() {
    let settings = check(|given| given.threads = Threads::Auto).unwrap();
    assert_eq!(settings.threads, 4);
    assert_eq!(settings.placement, Placement::Each(vec![0, 1, 2, 3]));
    assert_eq!(check(|_| ()).unwrap().threads, 1);
    let settings = check(|given| {
        given.threads = Threads::Exactly(2);
        given.pin = Pin::List(vec![3, 1]);
    });
    assert_eq!(settings.unwrap().placement, Placement::Each(vec![3, 1]));
}

#[test]
fn the_mode_goes_to_unix_sockets() {
    let settings = check(|given| given.binds.push("unix:/run/a.sock".parse().unwrap())).unwrap();
    assert_eq!(
        settings.binds[1],
        BindAddress::Unix {
            path: "/run/a.sock".into(),
            mode: 0o600
        }
    );
}

#[test]
fn the_access_logs_format_is_compiled_when_it_is_used() {
    let log = |target: Option<access::Target>, format: &'static str| {
        check(move |given| {
            given.access_log = target;
            given.access_log_format = format.into();
        })
    };
    let spec = log(Some(access::Target::Stdout), "json")
        .unwrap()
        .access_log
        .unwrap();
    assert_eq!(spec.format, access::Format::compile("json").unwrap());
    assert_eq!(log(None, "%(z)s").unwrap().access_log, None);
    let error = log(Some(access::Target::Stdout), "%(z)s").unwrap_err();
    assert!(
        error.starts_with("--access-log-format %(z)s: there is no atom"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_flag_value_and_advice() {
    type Change = Box<dyn FnOnce(&mut Given)>;
    let cases: Vec<(Change, &str, &str)> = vec![
        (
            Box::new(|given| given.workers = 2),
            "--workers 2: ",
            "--threads",
        ),
        (
            Box::new(|given| given.blocking_threads = 5000),
            "--blocking-threads 5000: ",
            "4096 is the most",
        ),
        (
            Box::new(|given| given.blocking_threads = usize::MAX),
            "--blocking-threads",
            "4096 is the most",
        ),
        (
            Box::new(|given| given.pin = Pin::List(vec![9])),
            "--pin 9: ",
            "may use 0-3",
        ),
        (
            Box::new(|given| given.pin = Pin::List(vec![0, 1])),
            "--pin 0,1: ",
            "for 1 loop",
        ),
        (
            Box::new(|given| given.binds.push(given.binds[0].clone())),
            "--bind 127.0.0.1:8000: ",
            "twice",
        ),
        (
            Box::new(|given| given.binds.clear()),
            "--bind: ",
            "no address",
        ),
        (
            Box::new(|given| given.limits.head_size = 100),
            "--limit-request-line 8190: ",
            "--limit-head-size 100",
        ),
        (
            Box::new(|given| given.limits.head_size = 1 << 30),
            "--limit-head-size 1GiB: ",
            "16MiB is the most",
        ),
        (
            Box::new(|given| given.app.spec = Some("a.py".into())),
            "APP a.py: ",
            "without .py",
        ),
        (
            Box::new(|given| {
                given.app.spec = Some("a:make()".into());
                given.app.factory = true;
            }),
            "--factory: ",
            "leave out either",
        ),
        (
            Box::new(|given| given.app.app_dir = "/no/such".into()),
            "--app-dir /no/such: ",
            "no such directory",
        ),
        (
            Box::new(|given| given.app.app_dir = "/dev/null".into()),
            "--app-dir /dev/null: ",
            "not a directory",
        ),
        (
            Box::new(|given| given.app.python = Some("/no/python".into())),
            "--python /no/python: ",
            "no such file",
        ),
        (
            Box::new(|given| given.app.root_path = "api".into()),
            "--root-path api: ",
            "/api",
        ),
        (
            Box::new(|given| given.app.root_path = "/api/".into()),
            "--root-path /api/: ",
            "leave it out",
        ),
        (
            Box::new(|given| given.health_path = Some("/a?b".into())),
            "--health-path /a?b: ",
            "'?'",
        ),
    ];
    for (change, start, advice) in cases {
        let error = check(change).unwrap_err();
        assert!(
            error.starts_with(start) && error.contains(advice),
            "{error}"
        );
    }
}

#[test]
fn port_0_may_be_asked_for_twice() {
    let settings = check(|given| given.binds = vec!["127.0.0.1:0".parse().unwrap(); 2]);
    assert_eq!(settings.unwrap().binds.len(), 2);
}
