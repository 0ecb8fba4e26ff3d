//! WebSocket frames as a client needs them (RFC 6455 section 5): masked ones to send, the head of what came back.
//! Bytes in, bytes out: no socket, no clock.

/// Text, continuation, close, ping, pong (RFC 6455 section 5.2).
pub const CONTINUATION: u8 = 0x0;
pub const TEXT: u8 = 0x1;
pub const CLOSE: u8 = 0x8;
pub const PING: u8 = 0x9;
pub const PONG: u8 = 0xA;

/// The mask of every frame. A client must pick unpredictable ones to protect proxies (section 10.3); on loopback there
/// is none, and a fixed mask lets the frame be made once.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A whole frame from a client.
pub fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 14);
    frame.push(0x80 | opcode);
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&MASK);
    frame.extend(
        payload
            .iter()
            .zip(MASK.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    frame
}

/// The head of a frame from a server, and where its payload lies.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub fin: bool,
    pub opcode: u8,
    /// Bytes before the payload.
    pub head: usize,
    pub payload: usize,
}

/// `Ok(None)`: not all of the frame is there yet. `Err`: no frame that a server may send without an extension.
pub fn parse(input: &[u8]) -> Result<Option<Frame>, &'static str> {
    let &[first, second, ..] = input else {
        return Ok(None);
    };
    if first & 0x70 != 0 {
        return Err("a reserved bit is set");
    }
    if second & 0x80 != 0 {
        return Err("a server must not mask");
    }
    let (head, payload) = match second & 0x7f {
        126 => match input.get(2..4) {
            Some(length) => (4, u64::from(u16::from_be_bytes([length[0], length[1]]))),
            None => return Ok(None),
        },
        127 => match input.get(2..10) {
            Some(length) => (
                10,
                u64::from_be_bytes(length.try_into().expect("eight bytes")),
            ),
            None => return Ok(None),
        },
        length => (2, u64::from(length)),
    };
    let payload = usize::try_from(payload).map_err(|_| "a frame longer than memory")?;
    if input.len() - head < payload {
        return Ok(None);
    }
    Ok(Some(Frame {
        fin: first & 0x80 != 0,
        opcode: first & 0x0f,
        head,
        payload,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 6455 section 5.7: the examples there.
    #[test]
    fn masked_is_the_rfc_example() {
        assert_eq!(
            masked(TEXT, b"Hello"),
            [
                0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58
            ]
        );
    }

    #[test]
    fn parse_takes_the_rfc_examples() {
        let hello = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
        let frame = Frame {
            fin: true,
            opcode: TEXT,
            head: 2,
            payload: 5,
        };
        assert_eq!(parse(&hello), Ok(Some(frame)));
        let first = [0x01, 0x03, 0x48, 0x65, 0x6c];
        let frame = Frame {
            fin: false,
            opcode: TEXT,
            head: 2,
            payload: 3,
        };
        assert_eq!(parse(&first), Ok(Some(frame)));
        let mut long = vec![0x82, 0x7e, 0x01, 0x00];
        long.extend([7; 256]);
        let frame = Frame {
            fin: true,
            opcode: 2,
            head: 4,
            payload: 256,
        };
        assert_eq!(parse(&long), Ok(Some(frame)));
        let mut longer = vec![0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0];
        longer.extend([7; 65536]);
        let frame = Frame {
            fin: true,
            opcode: 2,
            head: 10,
            payload: 65536,
        };
        assert_eq!(parse(&longer), Ok(Some(frame)));
    }

    #[test]
    fn parse_waits_for_every_missing_byte() {
        let hello = [0x81, 0x7e, 0x00, 0x02, b'o', b'k'];
        for end in 0..hello.len() {
            assert_eq!(parse(&hello[..end]), Ok(None), "{end} bytes");
        }
        assert!(parse(&hello).unwrap().is_some());
    }

    #[test]
    fn parse_refuses_masks_and_extensions() {
        assert!(parse(&[0x81, 0x85, 1, 2, 3, 4]).is_err());
        assert!(parse(&[0xc1, 0x05]).is_err());
    }
}
