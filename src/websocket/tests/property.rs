//! What holds for all messages, all splits, all bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::WebSocket;
use super::super::deflate::Agreed;
use super::peer::*;
use super::{Got, Outcome, feed, ignore};

#[derive(Clone, Debug)]
struct Message {
    text: bool,
    payload: Vec<u8>,
    compressed: bool,
    ends: Vec<Index>,
    /// A ping behind each frame but the last.
    ping: Option<Vec<u8>>,
    masks: Vec<[u8; 4]>,
}

fn message() -> impl Strategy<Value = Message> {
    let payload = prop_oneof![
        ".{0,40}".prop_map(|text| (true, text.into_bytes())),
        (0..3000_usize).prop_map(|len| (true, json(len).into_bytes())),
        vec(any::<u8>(), 0..300).prop_map(|bytes| (false, bytes)),
    ];
    let ping = proptest::option::of(vec(any::<u8>(), 0..125));
    (
        payload,
        any::<bool>(),
        vec(any::<Index>(), 0..5),
        ping,
        vec(any::<[u8; 4]>(), 1..7),
    )
        .prop_map(|((text, payload), compressed, ends, ping, masks)| Message {
            text,
            payload,
            compressed,
            ends,
            ping,
            masks,
        })
}

fn agreed() -> impl Strategy<Value = Agreed> {
    (
        9..=15_u8,
        any::<bool>(),
        any::<bool>(),
        1..=9_u8,
        0..200_usize,
    )
        .prop_map(
            |(server_bits, server_takeover, client_takeover, level, min_size)| Agreed {
                server_bits,
                server_takeover,
                client_takeover,
                level,
                min_size,
            },
        )
}

fn codec(agreed: Agreed) -> Codec {
    Codec::new(
        (15, agreed.client_takeover),
        (agreed.server_bits, agreed.server_takeover),
    )
}

/// The messages' bytes, and what has to come of them.
fn encode(messages: &[Message], agreed: Agreed) -> (Vec<u8>, Vec<Got>) {
    let (mut input, mut expected) = (Vec::new(), Vec::new());
    let mut client = codec(agreed);
    for message in messages {
        let mut opcode = if message.text { TEXT } else { BINARY };
        let payload = match message.compressed {
            true => {
                opcode |= RSV1;
                client.compress(&message.payload)
            }
            false => message.payload.clone(),
        };
        let mut ends: Vec<_> = message
            .ends
            .iter()
            .map(|end| end.index(payload.len() + 1))
            .collect();
        ends.sort();
        let mut masks = message.masks.iter().copied().cycle();
        let mut begin = 0;
        for end in ends {
            input.extend(frame_masked(
                opcode,
                &payload[begin..end],
                masks.next().unwrap(),
            ));
            if let Some(payload) = &message.ping {
                input.extend(frame_masked(FIN | PING, payload, masks.next().unwrap()));
                expected.push(Got::Ping(payload.clone()));
            }
            (begin, opcode) = (end, CONTINUATION);
        }
        input.extend(frame_masked(
            FIN | opcode,
            &payload[begin..],
            masks.next().unwrap(),
        ));
        expected.push(match message.text {
            true => Got::Text(String::from_utf8(message.payload.clone()).unwrap()),
            false => Got::Binary(message.payload.clone()),
        });
    }
    (input, expected)
}

/// `input` in pieces that end at `cuts`.
fn pieces<'a>(input: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
    cuts.extend([0, input.len()]);
    cuts.sort();
    cuts.windows(2).map(|cut| &input[cut[0]..cut[1]]).collect()
}

fn run(input: &[u8], cuts: &[Index], max_message: usize, agreed: Option<Agreed>) -> Outcome {
    let mut websocket = WebSocket::new(max_message, agreed);
    feed(&mut websocket, pieces(input, cuts), ignore)
}

proptest! {
    #[test]
    fn messages_come_as_they_were_sent(
        messages in vec(message(), 0..6),
        agreed in agreed(),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let (input, expected) = encode(&messages, agreed);
        let outcome = run(&input, &cuts, 1 << 20, Some(agreed));
        prop_assert_eq!(outcome.failure, None);
        prop_assert_eq!(outcome.events, expected);
    }

    /// The client understands what is sent, whatever is given back in between.
    #[test]
    fn messages_go_as_they_were_given(
        messages in vec((message(), any::<bool>()), 0..6),
        agreed in agreed(),
    ) {
        let mut client = codec(agreed);
        let mut websocket = WebSocket::new(1 << 20, Some(agreed));
        for (message, release) in messages {
            let mut out = Vec::new();
            match String::from_utf8(message.payload.clone()) {
                Ok(text) if message.text => websocket.send_text(&text, &mut out).unwrap(),
                _ => websocket.send_binary(&message.payload, &mut out).unwrap(),
            }
            if release {
                websocket.release();
            }
            let [(first, payload)] = &sent(&out)[..] else { panic!("one frame") };
            prop_assert_eq!(first & 0xf, if message.text { TEXT } else { BINARY });
            let payload = match first & RSV1 {
                0 => payload.clone(),
                _ => client.decompress(payload),
            };
            prop_assert_eq!(payload, message.payload);
        }
    }

    /// Right or wrong: one of the bytes is another, the limit is low. Any split comes to the same.
    #[test]
    fn any_split_comes_to_the_same(
        messages in vec(message(), 1..4),
        agreed in agreed(),
        damage in proptest::option::of((any::<Index>(), 1..=255_u8)),
        cuts in vec(any::<Index>(), 1..12),
        max_message in 0..4000_usize,
    ) {
        let (mut input, _) = encode(&messages, agreed);
        if let Some((at, change)) = damage {
            let at = at.index(input.len());
            input[at] ^= change;
        }
        let whole = run(&input, &[], max_message, Some(agreed));
        prop_assert_eq!(&run(&input, &cuts, max_message, Some(agreed)), &whole);
        let every: Vec<_> = (0..input.len()).map(|at| at..at + 1).map(|at| &input[at]).collect();
        let mut websocket = WebSocket::new(max_message, Some(agreed));
        prop_assert_eq!(&feed(&mut websocket, every, ignore), &whole);
    }

    /// Bytes by chance never panic, and what comes of them doesn't depend on the split.
    #[test]
    fn bytes_by_chance(
        input in vec(any::<u8>(), 0..600),
        first in prop_oneof![Just(None), (0..8_usize, 128..=255_u8).prop_map(Some)],
        cuts in vec(any::<Index>(), 0..8),
        deflate in proptest::option::of(agreed()),
    ) {
        let mut input = input;
        if let Some((kind, second)) = first {
            // Past the header's rules, most of the time.
            input.splice(0..0, [[0x81, 0x82, 0x01, 0x88, 0x89, 0x8a, 0xc1, 0x42][kind], second]);
        }
        let whole = run(&input, &[], 1000, deflate);
        prop_assert_eq!(run(&input, &cuts, 1000, deflate), whole);
    }

    /// Compressed data by chance: bounded, and the same however it comes.
    #[test]
    fn compressed_bytes_by_chance(
        payload in vec(any::<u8>(), 0..300),
        cuts in vec(any::<Index>(), 0..8),
        agreed in agreed(),
        text in any::<bool>(),
    ) {
        let input = frame(FIN | RSV1 | if text { TEXT } else { BINARY }, &payload);
        let whole = run(&input, &[], 1000, Some(agreed));
        if let Some(Got::Binary(bytes)) = whole.events.first() {
            prop_assert!(bytes.len() <= 1000);
        }
        prop_assert_eq!(run(&input, &cuts, 1000, Some(agreed)), whole);
    }
}
