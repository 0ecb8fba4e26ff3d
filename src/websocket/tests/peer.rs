//! The client's side, written plainly from RFC 6455 5.2 and RFC 7692 7.2.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

pub const FIN: u8 = 0x80;
pub const RSV1: u8 = 0x40;
pub const CONTINUATION: u8 = 0;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// A masked frame; `first` is its first byte.
pub fn frame_masked(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ ..126 => frame.push(0x80 | len as u8),
        len @ 126..65536 => {
            frame.push(0x80 | 126);
            frame.extend((len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(
        payload
            .iter()
            .enumerate()
            .map(|(i, byte)| byte ^ mask[i % 4]),
    );
    frame
}

pub fn frame(first: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame_masked(first, payload.as_ref(), [0x37, 0xfa, 0x21, 0x3d])
}

pub fn text(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | TEXT, payload)
}

pub fn binary(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | BINARY, payload)
}

pub fn ping(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | PING, payload)
}

pub fn pong(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | PONG, payload)
}

pub fn close(code: u16, reason: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | CLOSE, [&code.to_be_bytes(), reason.as_ref()].concat())
}

/// A message in frames that end where `ends` says, and at its end.
pub fn fragmented(opcode: u8, payload: &[u8], ends: &[usize]) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut begin = 0;
    for &end in ends {
        let opcode = if frames.is_empty() {
            opcode
        } else {
            CONTINUATION
        };
        frames.push(frame(opcode, &payload[begin..end]));
        begin = end;
    }
    let opcode = if frames.is_empty() {
        opcode
    } else {
        CONTINUATION
    };
    frames.push(frame(FIN | opcode, &payload[begin..]));
    frames.concat()
}

/// A frame that the server has sent: its first byte and its payload.
pub type Sent = (u8, Vec<u8>);

/// The server's frames; panics if there is anything else, or a mask.
pub fn sent(mut bytes: &[u8]) -> Vec<Sent> {
    fn number(bytes: &[u8]) -> usize {
        bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | usize::from(byte))
    }
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (size, len) = match bytes[1] {
            126 => (4, number(&bytes[2..4])),
            127 => (10, number(&bytes[2..10])),
            short => (2, usize::from(short)),
        };
        assert!(bytes[1] < 128, "a masked frame");
        frames.push((bytes[0], bytes[size..size + len].to_vec()));
        bytes = &bytes[size + len..];
    }
    frames
}

/// A client's compressor and decompressor.
pub struct Codec {
    compress: Compress,
    decompress: Decompress,
    compress_takeover: bool,
    decompress_takeover: bool,
}

impl Codec {
    /// Window bits and context takeover of what the client sends, and of what it gets.
    pub fn new(
        (compress_bits, compress_takeover): (u8, bool),
        (decompress_bits, decompress_takeover): (u8, bool),
    ) -> Codec {
        Codec {
            compress: Compress::new_with_window_bits(Compression::new(9), false, compress_bits),
            decompress: Decompress::new_with_window_bits(false, decompress_bits),
            compress_takeover,
            decompress_takeover,
        }
    }

    pub fn compress(&mut self, payload: &[u8]) -> Vec<u8> {
        if !self.compress_takeover {
            self.compress.reset();
        }
        if payload.is_empty() {
            return vec![0]; // RFC 7692 7.2.3.6
        }
        let mut bytes = Vec::with_capacity(payload.len() + payload.len() / 100 + 100);
        self.compress
            .compress_vec(payload, &mut bytes, FlushCompress::Sync)
            .unwrap();
        assert!(bytes.len() < bytes.capacity());
        bytes.truncate(bytes.len() - 4);
        bytes
    }

    pub fn decompress(&mut self, payload: &[u8]) -> Vec<u8> {
        if !self.decompress_takeover {
            self.decompress.reset(false);
        }
        let input = [payload, &[0, 0, 0xff, 0xff]].concat();
        let begin = self.decompress.total_in();
        let mut bytes = Vec::with_capacity(1024);
        loop {
            let used = (self.decompress.total_in() - begin) as usize;
            let status = self
                .decompress
                .decompress_vec(&input[used..], &mut bytes, FlushDecompress::Sync)
                .unwrap();
            assert_ne!(status, Status::StreamEnd);
            if bytes.len() < bytes.capacity() {
                break;
            }
            bytes.reserve(bytes.len());
        }
        bytes
    }
}

/// Bytes that look like chance and are the same each time (xorshift).
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(len)
    .collect()
}

/// Text of `len` bytes that compresses as JSON does.
pub fn json(len: usize) -> String {
    let mut text = String::new();
    for i in 0.. {
        if text.len() >= len {
            break;
        }
        text += &format!(
            "{{\"id\": {i}, \"name\": \"item {}\", \"price\": {}.5}},",
            i * 7919 % 1009,
            i % 97
        );
    }
    text.truncate(len);
    text
}
