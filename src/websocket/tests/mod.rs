//! Tests of the protocol core. `peer` is a client of its own: it shares no code with what it tests.

mod autobahn;
mod compression;
mod handshake;
mod parts;
mod peer;
mod property;
mod utf8;

use super::{Event, Failure, WebSocket};

/// An event that outlives the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, String),
}

impl From<Event<'_>> for Got {
    fn from(event: Event<'_>) -> Got {
        match event {
            Event::Text(text) => Got::Text(text.into()),
            Event::Binary(bytes) => Got::Binary(bytes.into()),
            Event::Ping(bytes) => Got::Ping(bytes.into()),
            Event::Pong(bytes) => Got::Pong(bytes.into()),
            Event::Close { code, reason } => Got::Close(code, reason.into()),
        }
    }
}

/// What a connection came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub events: Vec<Got>,
    pub failure: Option<Failure>,
    pub out: Vec<u8>,
}

/// Feeds pieces as a loop would: what isn't used is kept and given in again with more behind it. `on` sees each event and
/// may answer.
pub(super) fn feed(
    websocket: &mut WebSocket,
    pieces: impl IntoIterator<Item = impl AsRef<[u8]>>,
    mut on: impl FnMut(&Got, &mut WebSocket, &mut Vec<u8>),
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece.as_ref());
        let mut at = 0;
        loop {
            let (used, event) = match websocket.receive(&mut buffer[at..], &mut outcome.out) {
                Ok((used, event)) => (used, event.map(Got::from)),
                Err(failure) => {
                    assert!(websocket.is_closed());
                    outcome.failure = Some(failure);
                    return outcome;
                }
            };
            at += used;
            match event {
                None => break,
                Some(event) => {
                    on(&event, websocket, &mut outcome.out);
                    outcome.events.push(event);
                }
            }
        }
        buffer.drain(..at);
        assert!(
            buffer.len() <= WebSocket::REST,
            "{} bytes left",
            buffer.len()
        );
    }
    outcome
}

/// The testee of the Autobahn test suite: sends back what it gets.
pub(super) fn echo(got: &Got, websocket: &mut WebSocket, out: &mut Vec<u8>) {
    match got {
        Got::Text(text) => websocket.send_text(text, out).unwrap(),
        Got::Binary(bytes) => websocket.send_binary(bytes, out).unwrap(),
        Got::Ping(_) | Got::Pong(_) | Got::Close(..) => {}
    }
}

pub(super) fn ignore(_: &Got, _: &mut WebSocket, _: &mut Vec<u8>) {}

/// Without compression.
pub(super) fn plain(max_message: usize) -> WebSocket {
    WebSocket::new(max_message, None)
}

/// The input in pieces of `size` bytes.
pub(super) fn chopped(input: &[u8], size: usize) -> std::slice::Chunks<'_, u8> {
    input.chunks(size)
}
