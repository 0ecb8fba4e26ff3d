//! PEP 3333 "environ Variables", read back from an application.

use super::{Reply, Setting, Site, linked};
use crate::config::{AppSpec, UnderscoreNames};
use crate::net::Endpoint;

/// Answers with one line for each string of the environ, `KEY=repr(value)`.
const DUMP: &str = r#"
last = None
def app(environ, start_response):
    global last
    last = environ
    body = ''.join(f'{k}={v!r}\n' for k, v in sorted(environ.items()) if type(v) is str)
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [body.encode()]
"#;

fn value(reply: &Reply, key: &str) -> Option<String> {
    let prefix = format!("{key}='");
    let body = reply.body();
    let line = body.lines().find(|line| line.starts_with(&prefix))?;
    Some(line[prefix.len()..line.len() - 1].to_owned())
}

#[track_caller]
fn check(reply: &Reply, expected: &[(&str, &str)]) {
    for (key, wanted) in expected {
        assert_eq!(value(reply, key).as_deref(), Some(*wanted), "{key}");
    }
}

#[test]
fn a_browsers_request() {
    let mut site = Site::new(DUMP);
    let reply = site.ask(
        "GET /a/b?x=1&y=%20 HTTP/1.1\r\nHost: a.example:8000\r\nUser-Agent: M\r\nAccept: */*\r\n\
         Accept-Encoding: gzip, br\r\nCookie: a=b\r\nX-Own: 1\r\n\r\n",
    );
    check(
        &reply,
        &[
            ("REQUEST_METHOD", "GET"),
            ("SCRIPT_NAME", ""),
            ("PATH_INFO", "/a/b"),
            ("QUERY_STRING", "x=1&y=%20"),
            ("RAW_URI", "/a/b?x=1&y=%20"),
            ("REQUEST_URI", "/a/b?x=1&y=%20"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_NAME", "192.0.2.1"),
            ("SERVER_PORT", "8000"),
            ("REMOTE_ADDR", "203.0.113.9"),
            ("REMOTE_PORT", "4711"),
            ("HTTP_HOST", "a.example:8000"),
            ("HTTP_USER_AGENT", "M"),
            ("HTTP_ACCEPT", "*/*"),
            ("HTTP_ACCEPT_ENCODING", "gzip, br"),
            ("HTTP_COOKIE", "a=b"),
            ("HTTP_X_OWN", "1"),
            ("wsgi.url_scheme", "http"),
        ],
    );
    assert_eq!(value(&reply, "CONTENT_LENGTH"), None);
    assert_eq!(value(&reply, "CONTENT_TYPE"), None);
    assert_eq!(site.look("last['wsgi.version']"), "(1, 0)");
    assert_eq!(site.look("[last['wsgi.' + k] for k in ('multithread', 'multiprocess', 'run_once', 'input_terminated')]"), "[False, False, False, True]");
    assert_eq!(site.look("type(last)"), "<class 'dict'>");
    assert_eq!(
        site.look("last['wsgi.file_wrapper'].__name__"),
        "FileWrapper"
    );
}

#[test]
fn requests_do_not_see_each_others_values() {
    let mut site = Site::new(DUMP);
    site.ask("POST /x%20y?q HTTP/1.0\r\nHost: one\r\nX-One: 1\r\nContent-Type: a/b\r\nContent-Length: 1\r\n\r\nx");
    let reply = site.ask("GET / HTTP/1.1\r\nHost: two\r\n\r\n");
    check(
        &reply,
        &[
            ("REQUEST_METHOD", "GET"),
            ("PATH_INFO", "/"),
            ("QUERY_STRING", ""),
            ("RAW_URI", "/"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("HTTP_HOST", "two"),
        ],
    );
    for key in ["HTTP_X_ONE", "CONTENT_TYPE", "CONTENT_LENGTH"] {
        assert_eq!(value(&reply, key), None, "{key}");
    }
    assert_eq!(site.look("last['wsgi.input'].read()"), "b''");
}

#[test]
fn an_environ_that_the_application_changes_is_its_own() {
    let mut site = Site::new(
        "def app(environ, start_response):\n    environ.clear()\n    start_response('200 OK', [])\n    return [b'x']\n",
    );
    site.get("/");
    assert_eq!(site.get("/").status(), 200);
}

#[test]
fn paths_are_decoded_to_latin_1() {
    let mut site = Site::new(DUMP);
    for (sent, path) in [
        ("/%c0", "/À"),
        ("/%C3%B6/", "/Ã¶/"),
        ("/a%2Fb", "/a/b"),
        ("/%", "/%"),
        ("/%zz", "/%zz"),
        ("/a+b", "/a+b"),
    ] {
        let reply = site.get(sent);
        check(&reply, &[("PATH_INFO", path), ("RAW_URI", sent)]);
    }
    let reply = site.ask(b"GET /?a=\xe9 HTTP/1.1\r\nHost: a\r\n\r\n");
    if reply.status() == 200 {
        check(&reply, &[("QUERY_STRING", "a=é"), ("PATH_INFO", "/")]);
    }
}

#[test]
fn values_are_latin_1() {
    let mut site = Site::new(DUMP);
    let reply = site.ask(b"GET / HTTP/1.1\r\nHost: a\r\nX-Name: Jos\xe9\r\nX-Utf: \xc3\xa9\r\nX-Empty:\r\nX-One: a\r\n\r\n");
    check(
        &reply,
        &[
            ("HTTP_X_NAME", "José"),
            ("HTTP_X_UTF", "Ã©"),
            ("HTTP_X_EMPTY", ""),
            ("HTTP_X_ONE", "a"),
        ],
    );
}

#[test]
fn repeated_fields_are_joined() {
    let mut site = Site::new(DUMP);
    let reply = site.ask(
        "GET / HTTP/1.1\r\nHost: a\r\nAccept: a\r\naccept: b\r\nACCEPT: c\r\nCookie: a=1\r\nCookie: b=2\r\n\
         X-Own: 1\r\nx-own: 2\r\nX-OWN: 3\r\n\r\n",
    );
    check(
        &reply,
        &[
            ("HTTP_ACCEPT", "a,b,c"),
            ("HTTP_COOKIE", "a=1; b=2"),
            ("HTTP_X_OWN", "1,2,3"),
        ],
    );
}

#[test]
fn names_with_underscores_are_dropped_passed_or_refused() {
    let request =
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-User: good\r\nX_Forwarded_User: evil\r\n\r\n";
    let site = |header_underscores| {
        let spec = AppSpec {
            header_underscores,
            ..linked()
        };
        Site::with(
            DUMP,
            Setting {
                spec,
                ..Setting::default()
            },
        )
    };
    check(
        &site(UnderscoreNames::Drop).ask(request),
        &[("HTTP_X_FORWARDED_USER", "good")],
    );
    check(
        &site(UnderscoreNames::Allow).ask(request),
        &[("HTTP_X_FORWARDED_USER", "good,evil")],
    );
    let mut refusing = site(UnderscoreNames::Refuse);
    assert_eq!(refusing.ask(request).status(), 400);
    assert_eq!(refusing.look("last"), "None");
}

#[test]
fn names_of_the_clients_choice_are_not_kept() {
    let mut site = Site::new(DUMP);
    for round in 0..3 {
        for number in 0..500 {
            let reply = site.ask(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nX-Made-Up-{number}: {round}\r\n\r\n"
            ));
            check(
                &reply,
                &[(&format!("HTTP_X_MADE_UP_{number}"), &round.to_string())],
            );
        }
    }
    let long = "X".repeat(200);
    check(
        &site.ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{long}: 1\r\n\r\n")),
        &[(&format!("HTTP_{long}"), "1")],
    );
}

#[test]
fn the_bodys_length_is_the_collected_ones() {
    let mut site = Site::new(DUMP);
    let reply = site.ask(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nContent-Length: 0005\r\n\r\nhello",
    );
    check(
        &reply,
        &[
            ("CONTENT_LENGTH", "5"),
            ("CONTENT_TYPE", "text/x"),
            ("REQUEST_METHOD", "POST"),
        ],
    );
    assert_eq!(value(&reply, "HTTP_CONTENT_LENGTH"), None);
    let reply = site.ask("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
    check(&reply, &[("CONTENT_LENGTH", "3")]);
    assert_eq!(value(&reply, "HTTP_TRANSFER_ENCODING"), None);
    assert_eq!(site.look("last['wsgi.input'].read()"), "b'abc'");
    let reply = site.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    check(&reply, &[("CONTENT_LENGTH", "0")]);
}

#[test]
fn the_authority_of_an_absolute_target_is_the_host() {
    let mut site = Site::new(DUMP);
    let reply = site.ask("GET http://real.example/p?q HTTP/1.1\r\nHost: other\r\n\r\n");
    check(
        &reply,
        &[
            ("HTTP_HOST", "real.example"),
            ("PATH_INFO", "/p"),
            ("QUERY_STRING", "q"),
            ("RAW_URI", "http://real.example/p?q"),
        ],
    );
}

#[test]
fn odd_targets_and_methods() {
    let mut site = Site::new(DUMP);
    check(
        &site.ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
        &[
            ("PATH_INFO", ""),
            ("RAW_URI", "*"),
            ("REQUEST_METHOD", "OPTIONS"),
        ],
    );
    check(
        &site.ask("BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n"),
        &[("REQUEST_METHOD", "BREW")],
    );
    check(
        &site.ask("GET /? HTTP/1.1\r\nHost: a\r\n\r\n"),
        &[("PATH_INFO", "/"), ("QUERY_STRING", ""), ("RAW_URI", "/?")],
    );
    check(
        &site.ask("GET / HTTP/1.0\r\n\r\n"),
        &[("SERVER_PROTOCOL", "HTTP/1.0")],
    );
}

#[test]
fn a_root_path_is_script_name() {
    let spec = AppSpec {
        root_path: "/api".to_owned(),
        ..linked()
    };
    let mut site = Site::with(
        DUMP,
        Setting {
            spec,
            ..Setting::default()
        },
    );
    for (sent, path) in [
        ("/api/x", "/x"),
        ("/api", ""),
        ("/apix", "/apix"),
        ("/x", "/x"),
        ("/", "/"),
    ] {
        check(
            &site.get(sent),
            &[
                ("SCRIPT_NAME", "/api"),
                ("PATH_INFO", path),
                ("RAW_URI", sent),
            ],
        );
    }
}

#[test]
fn clients_of_unix_sockets_and_changing_clients() {
    let mut site = Site::new(DUMP);
    site.get("/");
    site.peer = Endpoint::Unix(None);
    check(&site.get("/"), &[("REMOTE_ADDR", ""), ("REMOTE_PORT", "")]);
    site.peer = Endpoint::Ip("[2001:db8::1]:9".parse().unwrap());
    check(
        &site.get("/"),
        &[("REMOTE_ADDR", "2001:db8::1"), ("REMOTE_PORT", "9")],
    );
    site.peer = Endpoint::Ip("[2001:db8::1]:10".parse().unwrap());
    check(
        &site.get("/"),
        &[("REMOTE_ADDR", "2001:db8::1"), ("REMOTE_PORT", "10")],
    );
}

#[test]
fn multithread_tells_whether_it_is() {
    let mut site = Site::with(
        DUMP,
        Setting {
            handlers: 2,
            ..Setting::default()
        },
    );
    site.get("/");
    assert_eq!(site.look("last['wsgi.multithread']"), "True");
}
