//! Listening sockets: TCP, Unix and inherited.
//!
//! Owns what happens before the first `accept`: resolving, options, replacing a stale socket file, and removing our own
//! at the end. Must not block after it was made. Made and dropped on the main thread; `accept` is called by the thread
//! that drives a loop, by several at once if several loops share the listener.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{Endpoint, Stream};
use crate::config::BindAddress;

/// A socket that takes connections. Non-blocking, closed on exec.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    local: Endpoint,
    /// TCP_NODELAY has to be set on each connection: on Linux they have it from the listener.
    nodelay_each: bool,
    /// The file of a Unix socket that this process made.
    socket_file: Option<SocketFile>,
}

/// Why nothing listens there.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {reason}")]
pub struct BindError {
    address: String,
    reason: String,
    #[source]
    source: io::Error,
}

impl BindError {
    fn new(address: impl ToString, source: io::Error) -> BindError {
        let reason = match source.kind() {
            io::ErrorKind::AddrInUse => {
                "the address is in use by another process; stop that one or choose another --bind".to_owned()
            }
            io::ErrorKind::PermissionDenied => {
                "permission denied (ports below 1024 need root or CAP_NET_BIND_SERVICE, a Unix socket a writable \
                 directory)"
                    .to_owned()
            }
            io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
            io::ErrorKind::NotFound => format!("no such file or directory ({source})"),
            _ => source.to_string(),
        };
        BindError {
            address: address.to_string(),
            reason,
            source,
        }
    }

    fn with_reason(
        address: impl ToString,
        reason: impl Into<String>,
        source: io::Error,
    ) -> BindError {
        BindError {
            address: address.to_string(),
            reason: reason.into(),
            source,
        }
    }

    /// The system's own error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// Opens every address of the list, or none. A name that stands for several addresses (`localhost`: `127.0.0.1` and
/// `::1`) gives a listener for each that this machine has, all on the same port.
///
/// `[::]` takes IPv4 too (dual stack, whatever the sysctl says), except where the list has an IPv4 address on the
/// same port as well. The empty host is `[::]`, or `0.0.0.0` on a machine without IPv6.
pub fn bind_all(addresses: &[BindAddress], backlog: u32) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        match address {
            BindAddress::Tcp { host, port } => {
                let only_v6 = *port != 0
                    && addresses.iter().any(|other| {
                        matches!(other, BindAddress::Tcp { host, port: same }
                            if same == port && host.parse::<Ipv4Addr>().is_ok())
                    });
                bind_tcp(address, host, *port, only_v6, backlog, &mut listeners)?;
            }
            _ => listeners.push(Listener::bind(address, backlog)?),
        }
    }
    Ok(listeners)
}

/// Appends a listener for each address that the host stands for.
fn bind_tcp(
    address: &BindAddress,
    host: &str,
    port: u16,
    only_v6: bool,
    backlog: u32,
    listeners: &mut Vec<Listener>,
) -> Result<(), BindError> {
    if host.is_empty() {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let listener = match Listener::bind_ip(any, only_v6, backlog) {
            Err(error) if no_such_family(&error) => Listener::bind_ip(
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
                false,
                backlog,
            ),
            other => other,
        };
        listeners.push(listener.map_err(|error| BindError::new(address, error))?);
        return Ok(());
    }
    let before = listeners.len();
    let mut chosen_port = port;
    let mut first_error = None;
    for mut ip in resolve(address, host, port)? {
        ip.set_port(chosen_port);
        match Listener::bind_ip(ip, only_v6, backlog) {
            Ok(listener) => {
                if let Endpoint::Ip(local) = listener.local {
                    chosen_port = local.port();
                }
                listeners.push(listener);
            }
            // A name may stand for an address of a family that the machine doesn't speak. That is fine as long as
            // another of its addresses works; an address in use is not.
            Err(error) if no_such_family(&error) => {
                first_error.get_or_insert(error);
            }
            Err(error) => {
                listeners.truncate(before);
                return Err(BindError::new(ip, error));
            }
        }
    }
    match first_error {
        Some(error) if listeners.len() == before => Err(BindError::new(address, error)),
        _ => Ok(()),
    }
}

fn no_such_family(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

/// The addresses of a host name, without repetitions, IPv4 first: the start-up line shows the first.
fn resolve(address: &BindAddress, host: &str, port: u16) -> Result<Vec<SocketAddr>, BindError> {
    let found = (host, port).to_socket_addrs().map_err(|error| {
        let reason = format!("the host name {host:?} cannot be resolved ({error})");
        BindError::with_reason(address, reason, error)
    })?;
    let mut ips: Vec<SocketAddr> = Vec::new();
    for ip in found {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips.sort_by_key(|ip| ip.is_ipv6());
    if ips.is_empty() {
        let error = io::Error::from(io::ErrorKind::NotFound);
        return Err(BindError::with_reason(
            address,
            format!("the host name {host:?} has no address"),
            error,
        ));
    }
    Ok(ips)
}

impl Listener {
    /// Opens one address; of a name that stands for several, the first that works (see [`bind_all`]).
    pub fn bind(address: &BindAddress, backlog: u32) -> Result<Listener, BindError> {
        match address {
            BindAddress::Tcp { host, port } => {
                let mut listeners = Vec::new();
                bind_tcp(address, host, *port, false, backlog, &mut listeners)?;
                Ok(listeners.swap_remove(0))
            }
            BindAddress::Unix { path, mode } => Listener::bind_unix(address, path, *mode, backlog),
            BindAddress::Inherited(number) => crate::inherited::take_socket(*number)
                .and_then(|fd| Listener::adopt(fd, backlog))
                .map_err(|error| BindError::with_reason(address, error.to_string(), error)),
        }
    }

    fn bind_ip(ip: SocketAddr, only_v6: bool, backlog: u32) -> io::Result<Listener> {
        let socket = Socket::new(
            Domain::for_address(ip),
            Type::STREAM.nonblocking().cloexec(),
            None,
        )?;
        // Restarting must not wait for the old server's connections in TIME_WAIT (socket(7)). Not SO_REUSEPORT:
        // two servers on one port are a mistake that should be told.
        socket.set_reuse_address(true)?;
        if let SocketAddr::V6(v6) = ip {
            socket.set_only_v6(only_v6 || !v6.ip().is_unspecified())?;
        }
        // Responses are written whole; waiting for more to send (Nagle) only delays the last segment.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SockAddr::from(ip))?;
        socket.listen(clamp(backlog))?;
        Listener::of(socket.into(), None)
    }

    fn bind_unix(
        address: &BindAddress,
        path: &Path,
        mode: u32,
        backlog: u32,
    ) -> Result<Listener, BindError> {
        let failed = |error: io::Error| BindError::new(address, error);
        let name = SockAddr::unix(path).map_err(|error| {
            BindError::with_reason(
                address,
                "the path is too long for a Unix socket (107 bytes at most)",
                error,
            )
        })?;
        // Two servers that start at once must not both find the file stale. The lock is on the directory, so it leaves
        // nothing behind; where it can't be had (some network file systems) the window stays open.
        let _lock = lock_directory(path);
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
            .map_err(failed)?;
        if let Err(error) = socket.bind(&name) {
            if error.kind() != io::ErrorKind::AddrInUse {
                return Err(failed(error));
            }
            remove_stale(address, path)?;
            socket.bind(&name).map_err(failed)?;
        }
        // From here on the file is ours to remove, also when a later step fails. Nobody can connect before `listen`, so
        // there is no moment with the wrong permissions.
        let file = SocketFile::made_now(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        socket.listen(clamp(backlog)).map_err(failed)?;
        Listener::of(socket.into(), Some(file)).map_err(failed)
    }

    /// An inherited socket: it is bound already; whether it listens already is the parent's choice.
    fn adopt(fd: OwnedFd, backlog: u32) -> io::Result<Listener> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text.to_owned());
        if sockopt::socket_type(&fd)? != SocketType::STREAM {
            return Err(invalid("the inherited socket is not a stream socket"));
        }
        if rustix::net::getpeername(&fd).is_ok() {
            return Err(invalid(
                "the inherited socket is a connection, not a listener (systemd: Accept=no)",
            ));
        }
        let family = sockopt::socket_domain(&fd)?;
        if ![
            AddressFamily::INET,
            AddressFamily::INET6,
            AddressFamily::UNIX,
        ]
        .contains(&family)
        {
            return Err(invalid("the inherited socket is neither TCP nor Unix"));
        }
        if family != AddressFamily::UNIX {
            sockopt::set_tcp_nodelay(&fd, true)?;
        }
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        if !sockopt::socket_acceptconn(&fd)? {
            rustix::net::listen(&fd, clamp(backlog))?;
        }
        Listener::of(fd, None)
    }

    fn of(fd: OwnedFd, socket_file: Option<SocketFile>) -> io::Result<Listener> {
        let local = Endpoint::of(Some(rustix::net::getsockname(&fd)?));
        let nodelay_each = matches!(local, Endpoint::Ip(_)) && !cfg!(target_os = "linux");
        Ok(Listener {
            fd,
            local,
            nodelay_each,
            socket_file,
        })
    }

    /// The next connection, non-blocking, closed on exec, with TCP_NODELAY. `WouldBlock`: none waits.
    ///
    /// Failures of the waiting connection itself are skipped (accept(2): Linux passes them on here; they say nothing
    /// about the listener). What remains is about this process or machine: EMFILE, ENFILE, ENOBUFS, ENOMEM.
    pub fn accept(&self) -> io::Result<(Stream, Endpoint)> {
        loop {
            match rustix::net::acceptfrom_with(
                &self.fd,
                SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            ) {
                Ok((fd, peer)) => {
                    if self.nodelay_each {
                        // A connection that is gone already is found out by the first read.
                        let _ = sockopt::set_tcp_nodelay(&fd, true);
                    }
                    return Ok((Stream::from(fd), Endpoint::of(peer)));
                }
                Err(
                    Errno::INTR
                    | Errno::CONNABORTED
                    | Errno::PROTO
                    | Errno::NETDOWN
                    | Errno::NOPROTOOPT
                    | Errno::HOSTDOWN
                    | Errno::NONET
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH,
                ) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The address as the kernel has it: the real port where 0 was asked for.
    pub fn local(&self) -> &Endpoint {
        &self.local
    }

    /// The address in the form that a client is given: `http://127.0.0.1:8000`, `unix:/run/app.sock`.
    pub fn url(&self) -> String {
        match &self.local {
            Endpoint::Ip(address) => format!("http://{address}"),
            unix => unix.to_string(),
        }
    }

    /// The file of a Unix socket is no longer this listener's to remove (its successor listens there already).
    pub fn keep_socket_file(&mut self) {
        if let Some(file) = &mut self.socket_file {
            file.creator = None;
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// The file of a Unix socket: removed when dropped, by the process that made it only (not by its forks), and only if it
/// still is the same file.
#[derive(Debug)]
struct SocketFile {
    /// Absolute: the application may change the working directory.
    path: PathBuf,
    device: u64,
    inode: u64,
    /// The process that may remove the file.
    creator: Option<u32>,
}

impl SocketFile {
    fn made_now(path: &Path) -> io::Result<SocketFile> {
        let path = std::path::absolute(path)?;
        let metadata = fs::symlink_metadata(&path)?;
        Ok(SocketFile {
            path,
            device: metadata.dev(),
            inode: metadata.ino(),
            creator: Some(std::process::id()),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.creator != Some(std::process::id()) {
            return;
        }
        if let Ok(metadata) = fs::symlink_metadata(&self.path)
            && (metadata.dev(), metadata.ino()) == (self.device, self.inode)
        {
            // Nothing is left to tell it to at this point; the next start replaces a stale file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// How long a start waits for another that is at the same work in the same directory. The work takes microseconds; a
/// stranger who locks the directory must not keep us from starting.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

fn lock_directory(path: &Path) -> Option<fs::File> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = fs::File::open(directory).ok()?;
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5))
            }
            Err(_) => return None,
        }
    }
}

/// Removes a socket file that nobody listens on; refuses to touch anything else.
fn remove_stale(address: &BindAddress, path: &Path) -> Result<(), BindError> {
    let failed = |error: io::Error| BindError::new(address, error);
    let in_use = || io::Error::from(io::ErrorKind::AddrInUse);
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        // Gone meanwhile: all the better.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.file_type().is_socket() {
        let reason = "a file that is not a socket has this name; remove it or choose another path";
        return Err(BindError::with_reason(address, reason, in_use()));
    }
    let probe =
        Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None).map_err(failed)?;
    match probe.connect(&SockAddr::unix(path).map_err(failed)?) {
        // unix(7): nobody listens.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                _ => Ok(()),
            }
        }
        // Connected, or its queue is full (EAGAIN): somebody is there. Any other answer is no proof that nobody is.
        Ok(()) => Err(failed(in_use())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(failed(in_use())),
        Err(error) => Err(failed(error)),
    }
}

/// The kernel cuts the backlog to its own limit (net.core.somaxconn) itself.
fn clamp(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}
