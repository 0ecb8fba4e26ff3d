//! Sockets on loopback and in temporary directories: options, bounds, files, and what errors say.

use super::*;
use crate::config::BindAddress;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

const SOON: Duration = Duration::from_secs(10);

fn tcp(host: &str, port: u16) -> BindAddress {
    BindAddress::Tcp {
        host: host.into(),
        port,
    }
}

fn unix(path: &Path) -> BindAddress {
    BindAddress::Unix {
        path: path.into(),
        mode: 0o600,
    }
}

fn port(listener: &Listener) -> u16 {
    match listener.local() {
        Endpoint::Ip(address) => address.port(),
        Endpoint::Unix(_) => panic!("a TCP listener was expected"),
    }
}

/// Accepts the connection that is known to be on its way.
fn accept(listener: &Listener) -> (Stream, Endpoint) {
    loop {
        match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let seconds = Timespec {
                    tv_sec: 10,
                    tv_nsec: 0,
                };
                let ready = rustix::event::poll(
                    &mut [PollFd::new(listener, PollFlags::IN)],
                    Some(&seconds),
                );
                assert_eq!(ready, Ok(1), "no connection arrived");
            }
            accepted => return accepted.unwrap(),
        }
    }
}

fn pair() -> (TcpStream, Stream) {
    let listener = Listener::bind(&tcp("127.0.0.1", 0), 8).unwrap();
    let client = TcpStream::connect(("127.0.0.1", port(&listener))).unwrap();
    let (stream, _) = accept(&listener);
    (client, stream)
}

#[test]
fn a_tcp_listener_knows_its_real_port_and_sets_the_connections_options() {
    let listener = Listener::bind(&tcp("127.0.0.1", 0), 8).unwrap();
    assert_ne!(port(&listener), 0);
    assert_eq!(
        listener.url(),
        format!("http://127.0.0.1:{}", port(&listener))
    );
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );

    let client = TcpStream::connect(("127.0.0.1", port(&listener))).unwrap();
    let (stream, peer) = accept(&listener);
    assert_eq!(peer, Endpoint::Ip(client.local_addr().unwrap()));
    assert_eq!(
        stream.local().unwrap(),
        Endpoint::Ip(client.peer_addr().unwrap())
    );
    assert!(rustix::net::sockopt::tcp_nodelay(&stream).unwrap());
    assert!(
        rustix::fs::fcntl_getfl(&stream)
            .unwrap()
            .contains(rustix::fs::OFlags::NONBLOCK)
    );
    assert!(
        rustix::io::fcntl_getfd(&stream)
            .unwrap()
            .contains(rustix::io::FdFlags::CLOEXEC)
    );
    assert_eq!(
        stream.recv(&mut Vec::new(), 10).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

#[test]
fn receiving_appends_and_never_exceeds_its_bound() {
    let (mut client, stream) = pair();
    client.write_all(b"0123456789abcdef").unwrap();
    assert!(stream.wait_readable(SOON).unwrap());

    let mut tight = b"x".to_vec();
    assert_eq!(stream.recv(&mut tight, 4).unwrap(), 4);
    assert_eq!(tight, b"x0123");
    // More room than the bound.
    let mut roomy = Vec::with_capacity(4096);
    roomy.push(b'y');
    assert_eq!(stream.recv(&mut roomy, 4).unwrap(), 4);
    assert_eq!(roomy, b"y4567");
    // Room within the bound is used as it is: no growth.
    let mut some = Vec::with_capacity(1024);
    let before = some.capacity();
    assert_eq!(stream.recv(&mut some, 4096).unwrap(), 8);
    assert_eq!(
        (some.as_slice(), some.capacity()),
        (&b"89abcdef"[..], before)
    );
    // Nothing there: the buffer stays as it was, in both ways of reading.
    assert_eq!(
        stream.recv(&mut some, 2).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    assert_eq!(some, b"89abcdef");
    assert_eq!(stream.recv(&mut some, 0).unwrap(), 0);
    drop(client);
    assert!(stream.wait_readable(SOON).unwrap());
    assert_eq!(stream.recv(&mut some, 100).unwrap(), 0);
}

#[test]
fn two_pieces_arrive_as_one_and_half_a_close_leaves_the_other_half() {
    let (mut client, stream) = pair();
    assert_eq!(stream.send_two(b"head ", b"body").unwrap(), 9);
    assert_eq!(stream.send_two(b"", b"!").unwrap(), 1);
    assert_eq!(stream.send_two(b"?", b"").unwrap(), 1);
    stream.shutdown_write().unwrap();
    let mut got = String::new();
    client.read_to_string(&mut got).unwrap();
    assert_eq!(got, "head body!?");
    client.write_all(b"late").unwrap();
    assert!(stream.wait_readable(SOON).unwrap());
    let mut late = Vec::new();
    stream.recv(&mut late, 100).unwrap();
    assert_eq!(late, b"late");
}

#[test]
fn a_file_is_sent_from_where_it_is_asked() {
    let (mut client, stream) = pair();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"0123456789").unwrap();
    let mut offset = 3;
    assert_eq!(stream.send_file(&file, &mut offset, 4).unwrap(), 4);
    assert_eq!(offset, 7);
    assert_eq!(stream.send_file(&file, &mut offset, 100).unwrap(), 3);
    assert_eq!(stream.send_file(&file, &mut offset, 100).unwrap(), 0);
    stream.shutdown_write().unwrap();
    let mut got = String::new();
    client.read_to_string(&mut got).unwrap();
    assert_eq!(got, "3456789");
}

#[test]
fn a_full_connection_blocks_until_it_is_read_and_a_dead_one_is_an_error_not_a_signal() {
    let (mut client, stream) = pair();
    let block = vec![7u8; 1 << 20];
    let mut sent = 0;
    loop {
        match stream.send(&block) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(!stream.wait_writable(Duration::from_millis(20)).unwrap());
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; sent];
        client.read_exact(&mut got).unwrap();
        client
    });
    assert!(stream.wait_writable(SOON).unwrap());
    drop(reader.join().unwrap());
    // The reset may need a first send to be seen; SIGPIPE would end the test process.
    let error = loop {
        match stream.send(&block) {
            Ok(_) => assert!(stream.wait_writable(SOON).unwrap()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(stream.wait_writable(SOON).unwrap());
            }
            Err(error) => break error.kind(),
        }
    };
    assert!(
        [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&error),
        "{error}"
    );
}

#[test]
fn a_name_with_several_addresses_listens_on_all_of_them_at_one_port() {
    let listeners = bind_all(&[tcp("localhost", 0)], 8).unwrap();
    let first = port(&listeners[0]);
    for listener in &listeners {
        assert_eq!(port(listener), first);
        assert!(listener.url().starts_with("http://"));
    }
    TcpStream::connect((Ipv4Addr::LOCALHOST, first)).unwrap();
}

/// Machines without IPv6 exist (some containers): what the test needs is asked for first.
fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[test]
fn every_address_is_one_dual_stack_listener_with_plain_ipv4_peers() {
    let listeners = bind_all(&[tcp("", 0)], 8).unwrap();
    assert_eq!(listeners.len(), 1);
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port(&listeners[0]))).unwrap();
    let (stream, peer) = accept(&listeners[0]);
    assert_eq!(peer, Endpoint::Ip(client.local_addr().unwrap()));
    assert_eq!(
        stream.local().unwrap().to_string(),
        client.peer_addr().unwrap().to_string()
    );
    if has_ipv6() {
        assert_eq!(
            listeners[0].url(),
            format!("http://[::]:{}", port(&listeners[0]))
        );
        TcpStream::connect((Ipv6Addr::LOCALHOST, port(&listeners[0]))).unwrap();
    }
}

#[test]
fn ipv4_and_ipv6_wildcards_share_a_port() {
    if !has_ipv6() {
        return;
    }
    let free = port(&Listener::bind(&tcp("::", 0), 8).unwrap());
    let listeners = bind_all(&[tcp("::", free), tcp("0.0.0.0", free)], 8).unwrap();
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, free)).unwrap();
    let (_, peer) = accept(&listeners[1]);
    assert_eq!(peer, Endpoint::Ip(client.local_addr().unwrap()));
}

#[test]
fn errors_say_where_and_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = Listener::bind(&tcp("127.0.0.1", port), 8).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!(
        "cannot listen on 127.0.0.1:{port}: the address is in use"
    )));

    // RFC 2606: .invalid never resolves. RFC 5737: 192.0.2.0/24 is nobody's.
    let error = Listener::bind(&tcp("no-such-host.invalid", 80), 8)
        .unwrap_err()
        .to_string();
    assert!(error.contains(
        "no-such-host.invalid:80: the host name \"no-such-host.invalid\" cannot be resolved"
    ));
    let error = Listener::bind(&tcp("192.0.2.1", 0), 8)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("this machine has no such address"),
        "{error}"
    );
    let error = Listener::bind(&unix(Path::new("/no-such-directory/a.sock")), 8)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no such file or directory"), "{error}");
    let long = format!("/tmp/{}", "x".repeat(120));
    let error = Listener::bind(&unix(Path::new(&long)), 8)
        .unwrap_err()
        .to_string();
    assert!(error.contains("too long"), "{error}");
}

#[test]
fn one_bad_address_of_several_opens_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sock");
    bind_all(&[unix(&path), tcp("192.0.2.1", 0)], 8).unwrap_err();
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_has_its_mode_serves_and_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sock");
    let listener = Listener::bind(&unix(&path), 8).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(listener.url(), format!("unix:{}", path.display()));
    assert_eq!(listener.local(), &Endpoint::Unix(Some(path.clone())));

    let mut client = UnixStream::connect(&path).unwrap();
    let (stream, peer) = accept(&listener);
    assert_eq!(peer, Endpoint::Unix(None));
    client.write_all(b"hello").unwrap();
    assert!(stream.wait_readable(SOON).unwrap());
    let mut got = Vec::new();
    stream.recv(&mut got, 64).unwrap();
    assert_eq!(got, b"hello");

    drop(listener);
    assert!(!path.exists());
}

#[test]
fn only_a_stale_unix_socket_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sock");
    // Nobody listens any more; the file stayed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(&unix(&path), 1).unwrap();
    UnixStream::connect(&path).unwrap();

    // Somebody listens, also when the queue is full.
    let error = Listener::bind(&unix(&path), 8).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let mut waiting = Vec::new();
    loop {
        let client = socket2::Socket::new(
            socket2::Domain::UNIX,
            socket2::Type::STREAM.nonblocking(),
            None,
        )
        .unwrap();
        match client.connect(&socket2::SockAddr::unix(&path).unwrap()) {
            Ok(()) => waiting.push(client),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert_eq!(
        Listener::bind(&unix(&path), 8).unwrap_err().kind(),
        io::ErrorKind::AddrInUse
    );
    assert!(path.exists());
    drop(listener);

    // A file of another kind is not ours to touch.
    fs::write(&path, "precious").unwrap();
    let error = Listener::bind(&unix(&path), 8).unwrap_err().to_string();
    assert!(error.contains("not a socket"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_successors_unix_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.sock");
    let old = Listener::bind(&unix(&path), 8).unwrap();
    fs::remove_file(&path).unwrap();
    let new = Listener::bind(&unix(&path), 8).unwrap();
    drop(old);
    UnixStream::connect(&path).unwrap();
    drop(new);

    let mut handed_over = Listener::bind(&unix(&path), 8).unwrap();
    handed_over.keep_socket_file();
    drop(handed_over);
    assert!(path.exists());
}

/// Leaves a copy of the socket under a number that no other test gets, as a parent process would.
fn inherited(socket: impl AsFd, number: RawFd) -> BindAddress {
    let copy = rustix::io::fcntl_dupfd_cloexec(socket, number).unwrap();
    assert_eq!(copy.into_raw_fd(), number);
    BindAddress::Inherited(number)
}

#[test]
fn an_inherited_listener_serves_and_a_connection_is_refused() {
    let parent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = parent.local_addr().unwrap();
    let listener = Listener::bind(&inherited(&parent, 801), 8).unwrap();
    assert_eq!(listener.local(), &Endpoint::Ip(address));
    let client = TcpStream::connect(address).unwrap();
    let (stream, _) = accept(&listener);
    assert!(rustix::net::sockopt::tcp_nodelay(&stream).unwrap());

    let error = Listener::bind(&inherited(&client, 802), 8)
        .unwrap_err()
        .to_string();
    assert!(error.contains("not a listener"), "{error}");
}

#[test]
fn endpoints_read_well() {
    assert_eq!(
        Endpoint::Ip("[::1]:80".parse().unwrap()).to_string(),
        "[::1]:80"
    );
    assert_eq!(
        Endpoint::Unix(Some("/run/a".into())).to_string(),
        "unix:/run/a"
    );
    assert_eq!(Endpoint::Unix(None).to_string(), "unix:");
}
