//! Descriptors that the process was born with (`--bind fd://3`, systemd's socket activation).
//!
//! Owns the one place where a bare number becomes an owned descriptor, which is why it holds the only `unsafe` block
//! of the socket code. It must not decide what the descriptor is used for: `net` looks at the kind of socket.
//! Runs on the main thread, before other threads start.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::io::FdFlags;

/// The numbers handed out so far: a number has one owner, so it is given away once.
static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Takes the socket that the parent process left open under this number; child processes will not inherit it further.
///
/// Standard input, output and error stay what they are. A number that isn't an open socket, and one that was taken
/// before, are refused.
pub fn take_socket(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "0, 1 and 2 are standard input, output and error; an inherited socket has a number from 3 on",
        ));
    }
    let mut taken = TAKEN.lock().unwrap_or_else(|poison| poison.into_inner());
    if taken.contains(&number) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the same inherited socket is named twice",
        ));
    }
    if !is_socket(number)? {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the inherited descriptor is not a socket",
        ));
    }
    // SAFETY: the descriptor is open (looked up just now) and is a socket. The parent left it for this process; the
    // option that names it says so, and nothing in this process opened it: sockets of our own are made after the
    // inherited ones are taken, and `TAKEN` keeps a second owner from arising. The main thread owns the result.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    taken.push(number);
    rustix::io::fcntl_setfd(fd.as_fd(), FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Whether the number is an open socket, asked without touching the descriptor itself (proc(5), /proc/pid/fd).
fn is_socket(number: RawFd) -> io::Result<bool> {
    match std::fs::read_link(format!("/proc/self/fd/{number}")) {
        Ok(target) => Ok(target
            .as_os_str()
            .as_encoded_bytes()
            .starts_with(b"socket:")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no descriptor with this number was inherited",
        )),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn an_open_socket_is_taken_once_and_closed_on_exec() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // A number that no other test gets and that belongs to nobody now, as after an exec.
        let number = rustix::io::fcntl_dupfd_cloexec(&listener, 800)
            .unwrap()
            .into_raw_fd();
        let taken = take_socket(number).unwrap();
        assert_eq!(taken.as_raw_fd(), number);
        assert!(
            rustix::io::fcntl_getfd(&taken)
                .unwrap()
                .contains(FdFlags::CLOEXEC)
        );
        TcpStream::connect(address).unwrap();
        assert!(
            take_socket(number)
                .unwrap_err()
                .to_string()
                .contains("twice")
        );
    }

    #[test]
    fn what_is_no_inherited_socket_is_refused() {
        assert!(
            take_socket(1)
                .unwrap_err()
                .to_string()
                .contains("from 3 on")
        );
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(
            take_socket(file.as_raw_fd())
                .unwrap_err()
                .to_string()
                .contains("not a socket")
        );
        // Far above any limit on open files.
        assert_eq!(
            take_socket(i32::MAX).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
