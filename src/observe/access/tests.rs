//! Each atom, what a client cannot forge, and the writer's promises.

use super::*;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::time::{Instant, UNIX_EPOCH};

struct Line {
    remote: Option<IpAddr>,
    target: &'static [u8],
    query: &'static [u8],
    request: Vec<(&'static [u8], &'static [u8])>,
    body_bytes: u64,
}

impl Logged for Line {
    fn remote(&self) -> Option<IpAddr> {
        self.remote
    }
    fn method(&self) -> &[u8] {
        b"GET"
    }
    fn target(&self) -> &[u8] {
        self.target
    }
    fn path(&self) -> &[u8] {
        self.target.split(|&byte| byte == b'?').next().unwrap()
    }
    fn query(&self) -> &[u8] {
        self.query
    }
    fn protocol(&self) -> &'static str {
        "HTTP/1.1"
    }
    fn request_field(&self, name: &[u8]) -> Option<&[u8]> {
        self.request
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }
    fn status(&self) -> u16 {
        200
    }
    fn response_field(&self, name: &[u8]) -> Option<&[u8]> {
        (name == b"x-request-id").then_some(b"7")
    }
    fn body_bytes(&self) -> u64 {
        self.body_bytes
    }
    fn duration(&self) -> Duration {
        Duration::from_micros(1_234_567)
    }
}

fn usual() -> Line {
    Line {
        remote: Some(Ipv4Addr::LOCALHOST.into()),
        target: b"/a%20b?c=d",
        query: b"c=d",
        request: vec![
            (b"host", b"example.org"),
            (b"referer", b"http://x/"),
            (b"user-agent", b"curl/8"),
            // "Aladdin:open sesame", RFC 7617 section 2
            (b"authorization", b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ],
        body_bytes: 13,
    }
}

fn hostile() -> Line {
    Line {
        remote: None,
        target: b"/%1b\"\x1b[31m\nFAKE",
        query: b"",
        request: vec![
            (b"user-agent", b"a\" 200 1 \"\r\n127.0.0.1 \\\xff"),
            (b"authorization", b"Basic !"),
        ],
        body_bytes: 0,
    }
}

fn line(format: &str, what: &Line) -> String {
    let mut out = Vec::new();
    let moment = UNIX_EPOCH + Duration::from_millis(1_709_164_800_500);
    Format::compile(format)
        .unwrap()
        .write_line(what, moment, &mut out);
    assert_eq!(out.pop(), Some(b'\n'));
    String::from_utf8(out).unwrap()
}

#[test]
fn combined_and_common() {
    assert_eq!(
        line("combined", &usual()),
        r#"127.0.0.1 - Aladdin [29/Feb/2024:00:00:00 +0000] "GET /a%20b?c=d HTTP/1.1" 200 13 "http://x/" "curl/8""#
    );
    assert_eq!(
        line("common", &usual()),
        r#"127.0.0.1 - Aladdin [29/Feb/2024:00:00:00 +0000] "GET /a%20b?c=d HTTP/1.1" 200 13"#
    );
}

#[test]
fn each_atom() {
    let pid = format!("<{}>", std::process::id());
    for (format, expected) in [
        ("%(h)s", "127.0.0.1"),
        ("%(l)s", "-"),
        ("%(u)s", "Aladdin"),
        ("%(m)s %(U)s %(q)s %(H)s", "GET /a%20b c=d HTTP/1.1"),
        ("%(s)s %(B)s %(b)s", "200 13 13"),
        ("%(f)s %(a)s", "http://x/ curl/8"),
        ("%(T)s %(M)s %(D)s %(L)s", "1 1234 1234567 1.234567"),
        ("%(p)s", &pid),
        (
            "%({Host}i)s %({X-Request-ID}o)s %({X-None}i)s",
            "example.org 7 -",
        ),
        ("%({HTTP_USER_AGENT}e)s %({REQUEST_METHOD}e)s", "curl/8 GET"),
        ("100%% %(D)d", "100% 1234567"),
        ("plain", "plain"),
    ] {
        assert_eq!(line(format, &usual()), expected, "{format}");
    }
    assert_eq!(line("%(B)s %(b)s", &hostile()), "0 -");
}

#[test]
fn json_has_every_key() {
    assert_eq!(
        line("json", &usual()),
        format!(
            concat!(
                r#"{{"time":"2024-02-29T00:00:00.500Z","remote":"127.0.0.1","user":"Aladdin","method":"GET","#,
                r#""path":"/a%20b","query":"c=d","protocol":"HTTP/1.1","host":"example.org","referer":"http://x/","#,
                r#""user_agent":"curl/8","status":200,"bytes":13,"duration_us":1234567,"pid":{}}}"#
            ),
            std::process::id()
        )
    );
}

/// uvicorn CVE-2020-7694.
#[test]
fn a_client_cannot_forge_a_line() {
    assert_eq!(
        line("combined", &hostile()),
        r#"- - - [29/Feb/2024:00:00:00 +0000] "GET /%1b\"\x1b[31m\x0aFAKE HTTP/1.1" 200 - "-" "a\" 200 1 \"\x0d\x0a127.0.0.1 \\\xff""#
    );
    let json = line("json", &hostile());
    assert!(
        json.contains(r#""path":"/%1b\"\u001b[31m\u000aFAKE""#)
            && json.contains(r#""remote":null"#),
        "{json}"
    );
}

#[test]
fn a_format_names_the_response_fields_it_reads() {
    let names = |format: &str| {
        let format = Format::compile(format).unwrap();
        format
            .response_fields()
            .map(|name| String::from_utf8(name.to_vec()).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names("%({Content-Type}o)s %({Host}i)s %({X-Request-ID}o)s"),
        ["content-type", "x-request-id"]
    );
    assert!(names("combined").is_empty() && names("json").is_empty());
}

#[test]
fn wrong_formats_are_told_apart() {
    for (format, hint) in [
        ("", "empty"),
        ("%h", "write %(h)s"),
        ("%(h", "write %(h)s"),
        ("%(h)x", "write %(h)s"),
        ("%(z)s", "there is no atom \"z\""),
        ("%({}i)s", "name is missing"),
        ("%({x}z)s", "followed by i, o or e"),
        ("%({wsgi.input}e)s", "not known here"),
        ("a\nb", "one line"),
    ] {
        let error = Format::compile(format).unwrap_err().to_string();
        assert!(error.contains(hint), "{format}: {error}");
    }
}

fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
}

#[test]
fn lines_are_written_soon_and_the_rest_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let log = AccessLog::open(
        Target::File(path.clone()),
        Format::compile("%(m)s").unwrap(),
    )
    .unwrap();
    let logged = Instant::now();
    log.log(&usual());
    until(|| std::fs::read(&path).unwrap() == b"GET\n");
    assert!(logged.elapsed() < Duration::from_secs(1));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..30_000).for_each(|_| log.log(&usual())));
        }
    });
    assert_eq!(log.dropped(), 0);
    drop(log);
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        written.lines().filter(|line| *line == "GET").count(),
        120_001
    );
    assert_eq!(written.len(), 120_001 * 4);
}

#[test]
fn a_renamed_file_is_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (
        directory.path().join("access.log"),
        directory.path().join("access.log.1"),
    );
    let log = AccessLog::open(
        Target::File(path.clone()),
        Format::compile("%(U)s").unwrap(),
    )
    .unwrap();
    log.log(&usual());
    std::fs::rename(&path, &old).unwrap();
    log.reopen();
    until(|| path.exists());
    log.log(&hostile());
    drop(log);
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "/a%20b\n");
    assert!(std::fs::read_to_string(&path).unwrap().contains("FAKE"));
}

#[test]
fn a_target_that_fails_loses_lines_and_counts_them() {
    let log = AccessLog::open(
        Target::File("/dev/full".into()),
        Format::compile("%(m)s").unwrap(),
    )
    .unwrap();
    (0..3).for_each(|_| log.log(&usual()));
    until(|| log.dropped() == 3);

    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("no/access.log");
    let error =
        AccessLog::open(Target::File(missing), Format::compile("json").unwrap()).unwrap_err();
    assert!(
        error.to_string().contains("cannot open the access log"),
        "{error}"
    );
}

#[test]
fn a_stalled_target_bounds_what_waits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_bits_retain(std::fs::Permissions::from_mode(0o600).mode()),
        0,
    )
    .unwrap();
    // Opened for both directions: neither end waits for the other, and nobody reads for now.
    let mut reader = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let log = AccessLog::open(Target::File(path), Format::compile("%(m)s").unwrap()).unwrap();
    let most = (WAITING_LIMIT + 2 * BATCH) / 4;
    (0..2 * most).for_each(|_| log.log(&usual()));
    let dropped = log.dropped() as usize;
    assert!(dropped > most / 2 && dropped < 2 * most, "{dropped}");
    // What was kept arrives complete.
    let mut left = (2 * most - dropped) * 4;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        left -= io::Read::read(&mut reader, &mut buffer).unwrap();
    }
}
