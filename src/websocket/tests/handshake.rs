//! The opening handshake, the grammar of its fields, and the negotiation of RFC 7692 7.1.

use super::super::extension::{answer, negotiate};
use super::super::{AcceptError, DeflateSettings, Handshake, Refusal, Settings, is_requested};

type Fields = Vec<(&'static str, &'static str)>;

/// RFC 6455 1.3.
const RIGHT: [(&str, &str); 5] = [
    ("Host", "server.example.com"),
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
];

fn bytes<'a>(fields: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

fn read(fields: &[(&str, &str)]) -> Result<Handshake, Refusal> {
    Handshake::read(b"GET", true, bytes(fields), &Settings::default())
}

/// The right ones, one of them with other values: none leaves it out.
fn with(name: &'static str, values: &[&'static str]) -> Fields {
    let mut fields: Fields = RIGHT
        .into_iter()
        .filter(|(other, _)| *other != name)
        .collect();
    fields.extend(values.iter().map(|value| (name, *value)));
    fields
}

fn accepted(handshake: &Handshake) -> String {
    let mut out = Vec::new();
    handshake.accept(None, [].into_iter(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_example() {
    let handshake = read(&RIGHT).unwrap();
    assert_eq!(
        accepted(&handshake),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    );
    assert!(handshake.subprotocols().is_empty());
}

#[test]
fn what_else_is_right() {
    for (name, values) in [
        ("Connection", &["keep-alive, Upgrade"][..]), // Firefox; Unit #1624, uvicorn #1344
        ("Connection", &["keep-alive", "UPGRADE"]),
        ("Connection", &["upgrade,keep-alive"]),
        ("Connection", &[" , Upgrade ,"]),
        ("Upgrade", &["WebSocket"]),
        ("Upgrade", &["h2c, websocket"]),
        ("Sec-WebSocket-Version", &[" 13 "]),
        ("Sec-WebSocket-Key", &["x3JJHMbDL1EzLkh9GBhXDw=="]),
        ("Sec-WebSocket-Key", &["AAAAAAAAAAAAAAAAAAAAAB=="]), // letters by chance
        ("Content-Length", &["0"]),
        (
            "Sec-WebSocket-Extensions",
            &["x-unknown; a=\"b\", permessage-deflate"],
        ),
    ] {
        let fields = with(name, values);
        assert!(read(&fields).is_ok(), "{name}: {values:?}");
        assert!(is_requested(bytes(&fields)));
    }
    let lower: Vec<_> = RIGHT
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), *value))
        .collect();
    let lower: Vec<_> = lower
        .iter()
        .map(|(name, value)| (&name[..], *value))
        .collect();
    assert!(read(&lower).is_ok());
}

#[test]
fn what_is_refused() {
    use Refusal::*;
    for (name, values, refusal, status) in [
        ("Host", &[][..], Host, 400),
        ("Host", &["a", "b"], Host, 400),
        ("Connection", &[], Connection, 400),
        ("Connection", &["keep-alive"], Connection, 400),
        ("Connection", &["upgraded"], Connection, 400),
        ("Connection", &["\"Upgrade\""], Connection, 400),
        ("Upgrade", &[], Upgrade, 400),
        ("Upgrade", &["h2c"], Upgrade, 400),
        ("Upgrade", &["websocket/13"], Upgrade, 400),
        ("Sec-WebSocket-Version", &[], Version, 426),
        ("Sec-WebSocket-Version", &["8"], Version, 426),
        ("Sec-WebSocket-Version", &["13, 8"], Version, 426),
        ("Sec-WebSocket-Version", &["13", "13"], Version, 426),
        ("Sec-WebSocket-Version", &["013"], Version, 426),
        ("Sec-WebSocket-Key", &[], Key, 400),
        ("Sec-WebSocket-Key", &[""], Key, 400),
        ("Sec-WebSocket-Key", &["dGhlIHNhbXBsZSBub25jZQ"], Key, 400),
        ("Sec-WebSocket-Key", &["dGhlIHNhbXBsZSBub25j"], Key, 400),
        ("Sec-WebSocket-Key", &["dGhlIHNhbXBsZSBub25jZWU="], Key, 400),
        ("Sec-WebSocket-Key", &["dGhlIHNhbXBsZSBub25j*Q=="], Key, 400),
        (
            "Sec-WebSocket-Key",
            &["dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ=="],
            Key,
            400,
        ),
        ("Sec-WebSocket-Protocol", &["a b"], Subprotocols, 400),
        ("Sec-WebSocket-Protocol", &["a", "\"b\""], Subprotocols, 400),
        ("Sec-WebSocket-Protocol", &["é"], Subprotocols, 400),
        (
            "Sec-WebSocket-Extensions",
            &["permessage-deflate; ="],
            Extensions,
            400,
        ),
        ("Transfer-Encoding", &["chunked"], Body, 400),
        ("Content-Length", &["1"], Body, 400),
    ] {
        let error = read(&with(name, values)).unwrap_err();
        assert_eq!(
            (error, error.status()),
            (refusal, status),
            "{name}: {values:?}"
        );
    }
    let settings = Settings::default();
    let error = Handshake::read(b"POST", true, bytes(&RIGHT), &settings).unwrap_err();
    assert_eq!(
        (error, error.status(), error.fields()),
        (Method, 405, &[("Allow", "GET")][..])
    );
    let error = Handshake::read(b"GET", false, bytes(&RIGHT), &settings).unwrap_err();
    assert_eq!((error, error.status()), (HttpVersion, 400));
    assert_eq!(
        Version.fields(),
        [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    );
}

#[test]
fn requests_that_do_not_ask() {
    for (name, values) in [
        ("Connection", &[][..]),
        ("Connection", &["close"]),
        ("Upgrade", &[]),
        ("Upgrade", &["h2c"]),
    ] {
        assert!(
            !is_requested(bytes(&with(name, values))),
            "{name}: {values:?}"
        );
    }
    // A wrong one asks all the same, and is refused.
    assert!(is_requested(bytes(&with("Sec-WebSocket-Key", &[]))));
}

#[test]
fn subprotocols_of_all_fields_in_order() {
    let fields = with(
        "Sec-WebSocket-Protocol",
        &["chat, superchat", ",", "v2.x", "chat"],
    );
    let handshake = read(&fields).unwrap();
    assert_eq!(handshake.subprotocols(), ["chat", "superchat", "v2.x"]);
    let mut out = Vec::new();
    handshake
        .accept(Some("superchat"), [].into_iter(), &mut out)
        .unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(
        out.contains("\r\nSec-WebSocket-Protocol: superchat\r\n"),
        "{out}"
    );
}

#[test]
fn the_application_s_mistakes() {
    let handshake = read(&with("Sec-WebSocket-Protocol", &["chat"])).unwrap();
    let mut out = b"before".to_vec();
    for (subprotocol, field, error) in [
        (Some("Chat"), ("x", "y"), AcceptError::Subprotocol),
        (Some(""), ("x", "y"), AcceptError::Subprotocol),
        (None, ("x y", "y"), AcceptError::Field),
        (None, ("", "y"), AcceptError::Field),
        (None, ("x", "a\r\nb: c"), AcceptError::Field),
        (None, ("x", "a\0"), AcceptError::Field),
        (None, ("upgrade", "h2c"), AcceptError::Reserved),
        (
            None,
            ("Sec-Websocket-Protocol", "chat"),
            AcceptError::Reserved,
        ),
        (None, ("Content-Length", "0"), AcceptError::Reserved),
    ] {
        let fields = [("fine", "\u{e9}\t"), field];
        let result = handshake.accept(subprotocol, bytes(&fields), &mut out);
        assert_eq!(result.unwrap_err(), error, "{subprotocol:?} {field:?}");
        assert_eq!(out, b"before");
    }
    let fields = [("set-cookie", "a=b"), ("Server", "m0serve")];
    handshake
        .accept(Some("chat"), bytes(&fields), &mut out)
        .unwrap();
    assert!(out.ends_with(b"\r\nset-cookie: a=b\r\nServer: m0serve\r\n\r\n"));
}

/// Offers, and the answers of a server that wants nothing of its own.
#[test]
fn negotiation_with_a_server_that_allows_everything() {
    let settings = DeflateSettings {
        context_takeover: true,
        client_context_takeover: true,
        ..DeflateSettings::default()
    };
    check_answers(
        &settings,
        &[
            (&["permessage-deflate"], Some("")),
            (&["permessage-deflate; client_max_window_bits"], Some("")),
            (&["Permessage-Deflate; Client_Max_Window_Bits"], Some("")),
            (&["permessage-deflate; client_max_window_bits=15"], Some("")),
            (
                &["permessage-deflate; client_max_window_bits=\"10\""],
                Some(""),
            ),
            (&["permessage-deflate; client_max_window_bits=8"], Some("")),
            (
                &["permessage-deflate; server_max_window_bits=10"],
                Some("; server_max_window_bits=10"),
            ),
            (
                &["permessage-deflate; server_max_window_bits=\"10\""],
                Some("; server_max_window_bits=10"),
            ),
            (
                &["permessage-deflate; server_max_window_bits=\"\\10\""],
                Some("; server_max_window_bits=10"),
            ),
            (
                &["permessage-deflate;server_no_context_takeover"],
                Some("; server_no_context_takeover"),
            ),
            (
                &["permessage-deflate ; client_no_context_takeover"],
                Some("; client_no_context_takeover"),
            ),
            (
                &[
                    "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
               server_max_window_bits=9; client_max_window_bits=9",
                ],
                Some(
                    "; server_no_context_takeover; client_no_context_takeover; \
                  server_max_window_bits=9",
                ),
            ),
            // The first that can be accepted, over all fields.
            (
                &[
                    "permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=10",
                ],
                Some("; server_max_window_bits=10"),
            ),
            (&["foo", "permessage-deflate; x, bar; y=\"b\""], None),
            (
                &[
                    "permessage-deflate; x",
                    "permessage-deflate; server_no_context_takeover",
                ],
                Some("; server_no_context_takeover"),
            ),
            (
                &["permessage-deflate, permessage-deflate; server_no_context_takeover"],
                Some(""),
            ),
            // Declined (RFC 7692 7.1).
            (&["permessage-deflate; unknown"], None),
            (&["permessage-deflate; server_max_window_bits"], None),
            (&["permessage-deflate; server_max_window_bits=8"], None),
            (&["permessage-deflate; server_max_window_bits=7"], None),
            (&["permessage-deflate; server_max_window_bits=16"], None),
            (&["permessage-deflate; server_max_window_bits=010"], None),
            (&["permessage-deflate; server_max_window_bits=+9"], None),
            (&["permessage-deflate; client_max_window_bits=7"], None),
            (&["permessage-deflate; client_max_window_bits=16"], None),
            (&["permessage-deflate; server_no_context_takeover=1"], None),
            (
                &["permessage-deflate; client_no_context_takeover=true"],
                None,
            ),
            (
                &["permessage-deflate; client_no_context_takeover; client_no_context_takeover"],
                None,
            ),
            (
                &["permessage-deflate; server_no_context_takeover; server_no_context_takeover"],
                None,
            ),
            (
                &["permessage-deflate; client_max_window_bits; client_max_window_bits=10"],
                None,
            ),
            (
                &["permessage-deflate; server_max_window_bits=10; server_max_window_bits=10"],
                None,
            ),
            (&["x-webkit-deflate-frame"], None),
            (&[""], None),
            (&[], None),
        ],
    );
}

#[test]
fn negotiation_with_a_server_that_saves_memory() {
    let none = "; server_no_context_takeover; client_no_context_takeover";
    check_answers(
        &DeflateSettings::default(),
        &[
            // What Chrome and Firefox offer.
            (&["permessage-deflate; client_max_window_bits"], Some(none)),
            (&["permessage-deflate"], Some(none)),
            (
                &["permessage-deflate; server_max_window_bits=14"],
                Some(&format!("{none}; server_max_window_bits=14")),
            ),
        ],
    );
    let settings = DeflateSettings {
        client_context_takeover: true,
        ..DeflateSettings::default()
    };
    check_answers(
        &settings,
        &[(
            &["permessage-deflate"],
            Some("; server_no_context_takeover"),
        )],
    );
}

fn check_answers(settings: &DeflateSettings, cases: &[(&[&str], Option<&str>)]) {
    for (fields, expected) in cases {
        let agreed = negotiate(fields.iter().map(|field| field.as_bytes()), Some(settings));
        let agreed = agreed.unwrap();
        let answer = agreed.as_ref().map(answer);
        let expected = expected.map(|expected| format!("permessage-deflate{expected}"));
        assert_eq!(answer, expected, "{fields:?}");
    }
}

#[test]
fn extensions_that_are_malformed() {
    let settings = DeflateSettings::default();
    for field in [
        "permessage deflate",
        ";",
        "a;",
        "a; ;b",
        "a; =b",
        "a; b=",
        "a; b=\"",
        "a; b=\"c",
        "a; b=\"\"",
        "a; b=\"c d\"",
        "a; b=\"c\"d",
        "a; b=\"c\"\"d\"",
        "a; b=\"c\\\"",
        "a; b c",
        "a\0",
        "a, b; c=\"d,e\"",
        "permessage-deflate, \"",
    ] {
        let result = negotiate([field.as_bytes()].into_iter(), Some(&settings));
        assert!(result.is_err(), "{field}");
        // Whether or not compression is wanted.
        assert!(
            negotiate([field.as_bytes()].into_iter(), None).is_err(),
            "{field}"
        );
    }
}

#[test]
fn no_compression_unless_it_is_set() {
    let settings = Settings {
        deflate: None,
        ..Settings::default()
    };
    let fields = with("Sec-WebSocket-Extensions", &["permessage-deflate"]);
    let handshake = Handshake::read(b"GET", true, bytes(&fields), &settings).unwrap();
    assert!(!accepted(&handshake).contains("Extensions"));
    let handshake = read(&fields).unwrap();
    let answer = "\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover;";
    assert!(accepted(&handshake).contains(answer));
}
