//! Sockets: where connections come from, and the connection's two directions.
//!
//! Owns the system calls on sockets and the rules that surround them (which options are set, who removes a Unix
//! socket's file, how errors read). Must not know HTTP, loops or deadlines. Listeners are made on the main thread;
//! `accept` and everything on [`Stream`] is called by whichever thread owns the loop or the connection at the moment.
#![forbid(unsafe_code)]

mod descriptors;
mod listener;

pub use descriptors::allow_descriptors;
pub use listener::{BindError, Listener, bind_all};

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny};

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An IPv4 client of a dual-stack listener is an IPv4 address here, not `::ffff:a.b.c.d`.
    Ip(SocketAddr),
    /// The socket's path; clients commonly have none.
    Unix(Option<PathBuf>),
}

impl Endpoint {
    /// What the kernel calls the address; anything that is neither IP nor a named Unix socket is an unnamed one.
    fn of(address: Option<SocketAddrAny>) -> Endpoint {
        let Some(address) = address else {
            return Endpoint::Unix(None);
        };
        if let Ok(ip) = SocketAddr::try_from(address.clone()) {
            return Endpoint::Ip(match ip.ip().to_canonical() {
                IpAddr::V4(mapped) => SocketAddr::from((mapped, ip.port())),
                // As it is: a link-local address keeps its zone.
                IpAddr::V6(_) => ip,
            });
        }
        let unix = rustix::net::SocketAddrUnix::try_from(address).ok();
        Endpoint::Unix(unix.and_then(|unix| {
            use std::os::unix::ffi::OsStrExt;
            unix.path_bytes()
                .map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)))
        }))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Ip(address) => address.fmt(f),
            Endpoint::Unix(Some(path)) => write!(f, "unix:{}", path.display()),
            Endpoint::Unix(None) => f.write_str("unix:"),
        }
    }
}

/// Below this much room a receive buffer grows first: a tiny read costs as much as a large one.
const SMALL_ROOM: usize = 512;

/// One accepted connection. Non-blocking, closed on exec; closed when dropped.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
}

impl Stream {
    /// Appends what the kernel has, at most `max` bytes, to `buf`; 0 is the peer's end of stream, `WouldBlock` means
    /// that there is nothing yet.
    ///
    /// Reads into the capacity that `buf` has, growing it to hold `max` more only when less than 512 bytes are free.
    /// A buffer with more than `max` bytes free costs a memset of `max` bytes: give the whole room as `max` instead.
    pub fn recv(&self, buf: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        if max == 0 {
            return Ok(0);
        }
        if buf.capacity() - buf.len() < SMALL_ROOM.min(max) {
            buf.reserve_exact(max);
        }
        // A non-blocking receive is not interrupted by signals, but an inherited socket's owner may have its own mind.
        loop {
            let received = if buf.capacity() - buf.len() <= max {
                rustix::net::recv(
                    &self.fd,
                    rustix::buffer::spare_capacity(buf),
                    RecvFlags::empty(),
                )
                .map(|(_, count)| count)
            } else {
                let start = buf.len();
                buf.resize(start + max, 0);
                let received = rustix::net::recv(&self.fd, &mut buf[start..], RecvFlags::empty())
                    .map(|(_, count)| count);
                buf.truncate(start + received.unwrap_or(0));
                received
            };
            match received {
                Err(rustix::io::Errno::INTR) => {}
                received => return Ok(received?),
            }
        }
    }

    /// Sends what fits into the kernel's buffer. A peer that is gone is an error (EPIPE, ECONNRESET), never a signal.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    /// Sends the two pieces as one (a head and its body, without copying them together); returns the sum sent.
    pub fn send_two(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        if first.is_empty() || second.is_empty() {
            return self.send(if first.is_empty() { second } else { first });
        }
        let pieces = [IoSlice::new(first), IoSlice::new(second)];
        loop {
            let mut none = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.fd, &pieces, &mut none, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    /// Sends a piece of a file without copying it through this process (sendfile(2)) and moves `offset` on; 0 is the file's
    /// end. There is no MSG_NOSIGNAL here: the process ignores SIGPIPE, as Rust's and CPython's start-up both arrange.
    pub fn send_file(&self, file: impl AsFd, offset: &mut u64, max: usize) -> io::Result<usize> {
        loop {
            match rustix::fs::sendfile(&self.fd, &file, Some(offset), max) {
                Err(rustix::io::Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    /// Tells the peer that nothing more will come, while what it sends can still be read (RFC 9112 9.6: the first half of
    /// a lingering close).
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// Closing will discard what was not sent and reset the connection, so that the peer can't take a part for the whole.
    pub fn reset_on_close(&self) {
        // Not for Unix sockets, which have no reset: there the cut is all there is to see.
        let _ = rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO));
    }

    /// Blocks until more can be sent or the peer is gone (true), or the time is over (false).
    pub fn wait_writable(&self, timeout: Duration) -> io::Result<bool> {
        self.wait(PollFlags::OUT, timeout)
    }

    /// Blocks until something can be read or the peer is gone (true), or the time is over (false).
    pub fn wait_readable(&self, timeout: Duration) -> io::Result<bool> {
        self.wait(PollFlags::IN, timeout)
    }

    fn wait(&self, for_what: PollFlags, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            // Beyond what the clock can hold: as good as for ever.
            let left = deadline.map(|deadline| {
                let left = deadline.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: left.as_secs() as _,
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            match rustix::event::poll(&mut [PollFd::new(&self.fd, for_what)], left.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The address that the client connected to: a listener on every address learns it only from the connection.
    pub fn local(&self) -> io::Result<Endpoint> {
        Ok(Endpoint::of(Some(rustix::net::getsockname(&self.fd)?)))
    }
}

impl From<OwnedFd> for Stream {
    /// The descriptor must be a connected, non-blocking stream socket.
    fn from(fd: OwnedFd) -> Stream {
        Stream { fd }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
