"""Bodies far larger than memory should ever hold (granian #885): bounded buffers in both directions."""

import hashlib
import select
import socket
import threading

import pytest

from harness import proc
from harness.wire import HANG, get

GIGABYTE = 1_000_000_000
FLAT_KB = 16 * 1024
"""How much the high-water mark may rise in a transfer: bounded buffers, and pages that the allocator keeps."""


def _send_pieces(client, piece, total):
    view = memoryview(piece)
    while total:
        client.sock.sendall(view[: min(total, len(piece))])
        total -= min(total, len(piece))


def _receive(client, size):
    """Count `size` octets of body without keeping them."""
    buffer = bytearray(1 << 20)
    left = size - len(client.received)
    client.received.clear()
    while left:
        count = client.sock.recv_into(buffer, min(left, len(buffer)))
        assert count, f"cut off with {left} octets to come"
        left -= count


def _warm(server):
    """Reach the steady state first, so that start-up costs are not taken for growth."""
    for path in ("/stream?n=100&size=65536", "/sized?n=100&size=65536"):
        server.fetch(get(path))
    with server.connect() as client:
        client.send(get("/count", "Content-Length: 4000000", method="POST"))
        _send_pieces(client, b"w" * 1_000_000, 4_000_000)
        client.read_response()
    proc.reset_peak_rss(server.pid)
    return proc.rss_kb(server.pid)


def _growth(server, before, record_property):
    growth = proc.peak_rss_kb(server.pid) - before
    record_property("rss_growth_kb", growth)
    print(f"RSS {before} kB, peak growth {growth} kB")
    assert growth < FLAT_KB
    return growth


@pytest.mark.big
def test_upload_of_a_gigabyte(serve, mode, record_property):
    server = serve(*mode, "probe:application")
    before = _warm(server)
    with server.connect() as client:
        client.send(get("/count", f"Content-Length: {GIGABYTE}", method="POST"))
        _send_pieces(client, b"u" * (1 << 20), GIGABYTE)
        assert client.read_response().body == str(GIGABYTE).encode()
    _growth(server, before, record_property)


@pytest.mark.big
def test_chunked_upload_of_a_gigabyte(serve, any_mode, record_property):
    server = serve(*any_mode, "probe:application")
    before = _warm(server)
    with server.connect() as client:
        client.send(get("/count", "Transfer-Encoding: chunked", method="POST"))
        piece = (b"%x\r\n" % (1 << 16) + b"u" * (1 << 16) + b"\r\n") * 16
        rounds = GIGABYTE >> 20
        _send_pieces(client, piece, rounds * len(piece))
        client.send(b"0\r\n\r\n")
        assert client.read_response().body == str(rounds << 20).encode()
    _growth(server, before, record_property)


def test_an_upload_arrives_unchanged(shared, mode):
    """Through the temporary file: each octet at its place."""
    data = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(1 << 16))
    with shared(*mode, "probe:application").connect() as client:
        client.send(get("/digest", f"Content-Length: {len(data)}", method="POST") + data)
        assert client.read_response().body.decode() == f"{len(data)} {hashlib.sha256(data).hexdigest()}"


@pytest.mark.big
@pytest.mark.parametrize("size", [65536, 1_000_000])
def test_download_of_a_gigabyte(serve, mode, size, record_property):
    server = serve(*mode, "probe:application")
    before = _warm(server)
    with server.connect() as client:
        client.send(get(f"/sized?n={GIGABYTE // size}&size={size}"))
        response = client.read_head()
        _receive(client, int(response.one("content-length")))
        assert client.exchange(get("/target/next")).status == 200
    _growth(server, before, record_property)


@pytest.mark.big
def test_chunked_download_of_a_gigabyte(serve, any_mode, record_property):
    server = serve(*any_mode, "probe:application")
    before = _warm(server)
    with server.connect() as client:
        client.send(get(f"/stream?n={GIGABYTE >> 20}&size={1 << 20}"))
        assert client.read_head().one("transfer-encoding") == "chunked"
        total = 0
        while chunk := client.read_chunk():
            total += len(chunk)
        assert chunk == b""
        assert total == GIGABYTE >> 20 << 20
    _growth(server, before, record_property)


def _until_full(server, client):
    """Wait until the server's side of the connection is full: the kernel holds all that it will take.

    The server's send queue and our receive queue stop growing only when back-pressure has reached the view;
    that is seen as the process using no more CPU time over a number of looks.
    """
    pause = threading.Event()
    still, last = 0, None
    for _ in range(1000):
        now = (proc.cpu_seconds(server.pid), _queued(client))
        still = still + 1 if now == last else 0
        if still == 10:
            return
        last = now
        pause.wait(0.02)
    raise AssertionError("the server is still busy with a client that doesn't read")


def _queued(client):
    import array
    import fcntl
    import termios

    size = array.array("i", [0])
    fcntl.ioctl(client.sock.fileno(), termios.FIONREAD, size)
    return size[0]


@pytest.mark.parametrize("path", ["/stream?n=100000&size=65536", "/sized?n=100000&size=65536"])
def test_slow_readers_grow_no_memory(serve, mode, path, record_property):
    """Ten clients ask for six gigabytes each and read nothing (fewer than handlers would starve nobody)."""
    server = serve(*mode, "probe:application")
    before = _warm(server)
    clients = [server.connect(receive_buffer=4096) for _ in range(10)]
    for client in clients:
        client.send(get(path))
    _until_full(server, clients[0])
    growth = _growth(server, before, record_property)
    for client in clients:
        client.reset()
    assert server.fetch(get("/target/after")).status == 200
    assert growth < 10 * 1024


def test_slow_readers_delay_nobody(serve, mode):
    """granian #873: more clients than threads hold on to endless answers, and others are served."""
    server = serve(*mode, "probe:application")
    clients = [server.connect(receive_buffer=4096) for _ in range(12)]
    for client in clients:
        client.send(get("/stream?n=100000&size=65536"))
        assert client.read_head().status == 200
    for _ in range(50):
        assert server.fetch(get("/target/now")).status == 200
    for client in clients:
        client.close()


def test_a_large_body_that_is_read_late(shared, mode):
    """A whole answer that the socket doesn't take goes back to the loop with the connection."""
    server = shared(*mode, "probe:application")
    with server.connect(receive_buffer=4096) as client:
        client.send(get("/block?size=5000000"))
        readable, _, _ = select.select([client.sock], [], [], HANG)
        assert readable
        for _ in range(20):
            assert server.fetch(get("/target/other")).status == 200
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        assert client.read_response().body == b"y" * 5_000_000
        assert client.exchange(get("/target/next")).status == 200
