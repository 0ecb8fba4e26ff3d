"""WebSockets whose application does not receive: the server keeps little, the client has to wait, nothing is lost."""

import socket
import struct
import threading

import pytest
from asking import APPS, fetch, forget_reports, report
from harness.proc import rss_kb
from test_websocket import HANDSHAKE

MOST = 64 * 1024 * 1024
"""What a client offers: many times what sockets hold on both sides (net.ipv4.tcp_rmem, tcp_wmem)."""


def frames(first, count, size):
    """Binary messages of `size` bytes, masked with zeros, that begin with their numbers."""
    if size < 126:
        head = struct.pack("!BB4x", 0x82, 0x80 | size)
    else:
        head = struct.pack("!BBH4x", 0x82, 0xFE, size) if size < 65536 else struct.pack("!BBQ4x", 0x82, 0xFF, size)
    rest = bytes(size - 8)
    return b"".join(head + number.to_bytes(8) + rest for number in range(first, first + count))


def close_frame(code):
    return b"\x88\x82\x00\x00\x00\x00" + code.to_bytes(2)


@pytest.fixture
def held(shared, one_thread):
    return shared("held:app", *one_thread, app_dir=APPS)


def open_socket(server, path):
    connection = server.connect()
    connection.send(HANDSHAKE.format(path=path, version=13).encode())
    assert connection.read_head().status == 101
    return connection


def next_frame(connection):
    """Opcode and payload of a short frame from the server."""
    first, length = bytes(connection._exactly(2))
    assert first & 0x80 and length < 126
    return first & 0x0F, bytes(connection._exactly(length))


@pytest.mark.parametrize("size", [8, 4096, 300_000])
def test_what_is_not_received_stays_with_the_client(held, size):
    forget_reports(held)
    batch = max(1, 65536 // size)
    with open_socket(held, "/hold") as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        connection.send(frames(0, batch, size))
        # The memory of a server that has run, and has something to keep.
        for _ in range(10):
            fetch(held, "/")
        before = rss_kb(held.pid)
        connection.sock.setblocking(False)
        number, sent, rest, full = batch, 0, b"", 0
        # Full is full when the loop has come round several times and taken nothing more: it answers a request on
        # the same thread each time.
        while full < 20 and sent < MOST:
            if not rest:
                rest = frames(number, batch, size)
                number += batch
            try:
                taken = connection.sock.send(rest)
                sent, rest, full = sent + taken, rest[taken:], 0
            except BlockingIOError:
                full += 1
                fetch(held, "/")
        assert sent < MOST, "the server reads on"
        assert rss_kb(held.pid) - before < 4 * 1024
        fetch(held, "/release")
        connection.sock.settimeout(60)
        connection.send(rest + frames(number, batch, size) + close_frame(4001))
        number += batch
        assert report(held, "hold") == ["hold", number, True, 4001]
        assert next_frame(connection) == (8, (4001).to_bytes(2))


@pytest.mark.parametrize("messages", [32, 60])
@pytest.mark.parametrize("how", ["close", "vanish"])
def test_send_finds_out_that_the_client_has_left(held, messages, how):
    """Its end lies unread in the socket, behind as many messages as are kept, or more; they can still be received."""
    forget_reports(held)
    with open_socket(held, "/talk") as connection:
        connection.send(frames(0, messages, 2000))
        if how == "close":
            connection.send(close_frame(4001))
        connection.half_close()
        fetch(held, "/release")
        code = 4001 if how == "close" else 1006
        assert report(held, "talk") == ["talk", "BrokenPipeError", messages, True, code]


def test_leaving_because_the_client_has_is_not_logged(serve, one_thread):
    server = serve("held:app", *one_thread, app_dir=APPS)
    with open_socket(server, "/talk?raise=1") as connection:
        connection.send(frames(0, 60, 2000))
        connection.half_close()
        fetch(server, "/release")
        connection.drain()
    assert "Traceback" not in server.stderr.text()


def test_a_client_whose_pongs_nobody_reads_is_kept(serve, one_thread):
    server = serve("held:app", "--ws-ping-interval", "0.2", "--ws-ping-timeout", "0.3", *one_thread, app_dir=APPS)
    with open_socket(server, "/hold") as connection:
        connection.send(frames(0, 100, 2000))
        # The fourth ping comes after the first one's answer was due.
        for _ in range(4):
            opcode, payload = next_frame(connection)
            assert opcode == 9
            connection.send(bytes([0x8A, 0x80 | len(payload), 0, 0, 0, 0]) + payload)
        fetch(server, "/release")
        connection.send(frames(100, 1, 2000) + close_frame(1000))
        assert report(server, "hold") == ["hold", 101, True, 1000]


def test_a_flood_of_pongs_leaves_the_others_their_turn(held):
    """Six bytes a frame: they are sent faster than they can be read, so that the socket is never empty."""
    pongs = b"\x8a\x80\x00\x00\x00\x00" * 200_000
    with open_socket(held, "/hold") as flood:
        stop = threading.Event()

        def pour():
            while not stop.is_set():
                flood.sock.sendall(pongs)

        pouring = threading.Thread(target=pour)
        pouring.start()
        try:
            for _ in range(20):
                assert fetch(held, "/").status == 200
            assert pouring.is_alive()
        finally:
            stop.set()
            pouring.join()
    fetch(held, "/release")
