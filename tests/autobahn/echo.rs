//! The testee of the Autobahn test suite: sends back every message, on the protocol cores alone.
//!
//! `ws_echo [ADDRESS]` (127.0.0.1:0) prints the URL it listens on. One blocking thread for each connection; what
//! m0serve's loop does about time-outs and backpressure is not here.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use m0serve::http1::{self, Head, Limits, RequestReader, Version};
use m0serve::websocket::{DeflateSettings, Event, Handshake, Settings, WebSocket};

/// Beyond it, what has been written is sent before more is read.
const HIGH_WATER: usize = 256 * 1024;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("ws://{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = serve(stream) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let accepted = open(&mut stream, &mut input, &mut out)?;
    stream.write_all(&out)?;
    out.clear();
    let Some(mut websocket) = accepted else {
        return Ok(());
    };
    while !websocket.is_closed() {
        let mut at = 0;
        // A failure has written its Close frame, and closed.
        while let Ok((used, event)) = websocket.receive(&mut input[at..], &mut out) {
            at += used;
            // The event borrows the connection, as it may lie in there.
            let (text, message) = match event {
                None => break,
                Some(Event::Text(text)) => (true, text.as_bytes().to_vec()),
                Some(Event::Binary(bytes)) => (false, bytes.to_vec()),
                Some(_) => continue,
            };
            let sent = match text {
                true => {
                    let text = String::from_utf8(message).expect("an event's text");
                    websocket.send_text(&text, &mut out)
                }
                false => websocket.send_binary(&message, &mut out),
            };
            sent.expect("no message comes after a Close");
            if out.len() > HIGH_WATER {
                stream.write_all(&out)?;
                out.clear();
            }
        }
        input.drain(..at);
        stream.write_all(&out)?;
        out.clear();
        if !websocket.is_closed() && !read(&mut stream, &mut input)? {
            websocket.end_of_input();
        }
    }
    // The client has to see the Close frame, not a reset for what it sent meanwhile.
    stream.shutdown(std::net::Shutdown::Write)?;
    input.clear();
    while read(&mut stream, &mut input)? {
        input.clear();
    }
    Ok(())
}

/// The opening handshake. `input` keeps what follows it.
fn open(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> io::Result<Option<WebSocket>> {
    let (mut reader, mut head) = (RequestReader::new(), Head::default());
    loop {
        match reader.next_event(input, &mut head, &Limits::default()) {
            Ok(http1::Event::NeedData) => {
                if !read(stream, input)? {
                    return Ok(None);
                }
            }
            Ok(http1::Event::Head { consumed }) => {
                let fields = head
                    .fields
                    .iter()
                    .map(|field| (field.name.of(input), field.value.of(input)));
                let http11 = head.version == Version::Http11;
                let settings = Settings {
                    // What the suite's biggest cases need, and whatever its compression cases ask for.
                    max_message: 64 * 1024 * 1024,
                    deflate: Some(DeflateSettings {
                        context_takeover: true,
                        client_context_takeover: true,
                        ..DeflateSettings::default()
                    }),
                };
                let handshake = Handshake::read(head.method.of(input), http11, fields, &settings);
                let websocket = match handshake {
                    Ok(handshake) => {
                        let accepted = handshake.accept(None, [].into_iter(), out);
                        Some(accepted.expect("neither a subprotocol nor fields"))
                    }
                    Err(refusal) => {
                        refuse(refusal.status(), &refusal.to_string(), out);
                        None
                    }
                };
                input.drain(..consumed);
                return Ok(websocket);
            }
            Ok(_) => return Ok(None),
            Err(error) => {
                refuse(error.status(), &error.to_string(), out);
                return Ok(None);
            }
        }
    }
}

fn refuse(status: u16, text: &str, out: &mut Vec<u8>) {
    http1::error_response(status, text, b"Thu, 01 Jan 1970 00:00:00 GMT", false, out);
}

/// `false` at the end.
fn read(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<bool> {
    let length = input.len();
    input.resize(length + 64 * 1024, 0);
    let read = stream.read(&mut input[length..]);
    input.truncate(length + *read.as_ref().unwrap_or(&0));
    read.map(|read| read > 0)
}
