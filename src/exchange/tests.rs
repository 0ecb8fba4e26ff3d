//! What goes over the wire of an exchange, without a loop.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::http1::{Event, RequestReader};

/// An exchange whose request is `request`, and its client.
fn asked(request: &[u8]) -> (Exchange, UnixStream) {
    let (ours, client) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    let address = || Endpoint::Ip(SocketAddr::from(([192, 0, 2, 1], 8000)));
    let mut exchange = Exchange::new(
        Stream::from(OwnedFd::from(ours)),
        address(),
        Arc::new(address()),
        Arc::new(Common::new(Limits::default(), Timeouts::default(), false)),
    );
    let event = RequestReader::new().next_event(request, &mut exchange.head, &Limits::default());
    assert!(matches!(event, Ok(Event::Head { .. })));
    exchange.input = request.to_vec();
    exchange.open_response();
    (exchange, client)
}

/// What can be read now.
fn take(client: &mut UnixStream, into: &mut Vec<u8>) {
    if let Err(error) = client.read_to_end(into) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

const REQUESTS: [&[u8]; 3] = [
    b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n",
];

fn pieces() -> impl Strategy<Value = Vec<(usize, bool)>> {
    let size = select(vec![0, 1, 5_000, 32 * 1024, 32 * 1024 + 1, 70_000, 400_000]);
    vec((size, any::<bool>()), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever of a piece goes out at once and whatever is buffered: the client gets what the framing makes of the pieces.
    #[test]
    fn pieces_arrive_in_their_order(
        request in select(&REQUESTS[..]),
        announced in select(vec![None, Some(0), Some(70_000), Some(10_000_000)]),
        pieces in pieces(),
    ) {
        let (mut exchange, mut client) = asked(request);
        let size = announced.map_or(BodySize::Unknown, BodySize::Known);
        let head = ResponseHead::new();
        exchange.start(&head, size);
        let mut reference = exchange.writer;
        let mut expected = exchange.out.clone();
        let mut got = Vec::new();
        for (number, (size, reads)) in pieces.iter().enumerate() {
            let piece = vec![b'a' + number as u8; *size];
            exchange.push(&piece);
            reference.data(&piece, &mut expected);
            if *reads {
                take(&mut client, &mut got);
            }
        }
        exchange.finish();
        reference.end(&mut expected);
        let cut = reference.missing() > 0;
        while exchange.flush().is_ok() && exchange.pending() > 0 {
            take(&mut client, &mut got);
        }
        take(&mut client, &mut got);
        prop_assert!(got == expected, "{} bytes for {}", got.len(), expected.len());
        prop_assert_eq!(exchange.cut, cut);
    }
}

#[test]
fn a_client_that_is_gone_is_found_out_with_the_next_flush() {
    for size in [10, 1 << 20] {
        let (mut exchange, client) = asked(REQUESTS[0]);
        drop(client);
        exchange.start(&ResponseHead::new(), BodySize::Unknown);
        exchange.push(&vec![b'x'; size]);
        exchange.push(b"more");
        exchange.finish();
        assert_eq!(exchange.flush(), Err(Gone), "{size}");
        assert!(exchange.is_gone());
        assert_eq!(exchange.pending(), 0);
    }
}
