"""Clients that misbehave: silent, half open, half closed, gone; and the cap on their number."""

import contextlib
import select
import socket

import pytest

from harness.wire import HANG, Closed, get, post

BARE = "probe:application"


def test_silent_and_half_open_clients_delay_nobody(shared, mode):
    """gunicorn #3518, cheroot #91: twenty that send nothing or half a head."""
    server = shared(*mode, BARE)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(20)]
        half = [stack.enter_context(server.connect()) for _ in range(20)]
        for client in half:
            client.send(b"GET /target/a HTTP/1.1\r\nHo")
        bodies = [stack.enter_context(server.connect()) for _ in range(20)]
        for client in bodies:
            client.send(get("/echo", "Content-Length: 10", method="POST") + b"hello")
        for _ in range(50):
            assert server.fetch(get("/target/now")).status == 200
        for client in silent:
            assert client.exchange(get("/target/a")).status == 200
        for client in half:
            client.send(b"st: a\r\n\r\n")
            assert client.read_response().status == 200
        for client in bodies:
            client.send(b"hello")
            assert client.read_response().body == b"hellohello"


def test_half_close_after_a_request(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/target/a"))
        client.half_close()
        assert client.read_response().body == b"GET /target/a?"
        client.expect_end()


def test_half_close_after_a_body(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(post("/echo", b"b" * 1_000_000))
        client.half_close()
        assert client.read_response().body == b"b" * 1_000_000
        client.expect_end()


def test_half_close_before_a_stream(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/stream?n=1000&size=1000"))
        client.half_close()
        assert len(client.read_response().body) == 1_000_000
        client.expect_end()


def test_half_close_while_the_view_runs(shared, mode, gate):
    with shared(*mode, BARE).connect() as client:
        client.send(get(f"/hold?gate={gate.path}"))
        visit = gate.next()
        client.half_close()
        visit.release()
        assert client.read_response().body == b"held"
        client.expect_end()


@pytest.mark.parametrize(
    "part",
    [b"G", b"GET / HTTP/1.1\r\nHost: a\r\n", get("/echo", "Content-Length: 5", method="POST") + b"hell",
     get("/echo", "Transfer-Encoding: chunked", method="POST") + b"5\r\nhello\r\n"],
    ids=["line", "head", "length", "chunked"],
)  # fmt: skip
def test_half_close_within_a_request(shared, mode, part):
    """RFC 9112 8: an incomplete request is not acted upon: a 400 or a plain close."""
    server = shared(*mode, BARE)
    with server.connect() as client:
        client.send(part)
        client.half_close()
        with contextlib.suppress(Closed):
            response = client.read_response()
            assert response.status == 400
        client.expect_end()


def test_a_refusal_survives_a_client_that_is_still_sending(shared, mode):
    """RFC 9112 9.6: closing with unread bytes resets the connection and may destroy the answer; so it lingers."""
    server = shared(*mode, "--limit-body", "1000", BARE)
    for _ in range(5):
        with server.connect() as client:
            client.offer(post("/echo", b"b" * 2_000_000), 65_536)
            response = client.read_response()
            assert (response.status, response.closes) == (413, True)


def test_a_refusal_ends_in_fin_not_reset(shared, mode):
    """The client's bytes behind the fault are read and dropped; then the end is a clean one."""
    with shared(*mode, BARE).connect() as client:
        client.send(b"GET / HTTP/9.9\r\nHost: a\r\n\r\n" + b"x" * 100_000)
        assert client.read_response().status == 505
        client.half_close()
        assert client.sock.recv(1) == b""  # ConnectionResetError here is the fault


def test_lingering_has_an_end(shared, any_mode):
    """A client that never stops sending after a refusal doesn't hold the connection for ever (ten seconds now)."""
    server = shared(*any_mode, BARE)
    with server.connect() as client:
        client.send(b"GET / HTTP/9.9\r\nHost: a\r\n\r\n")
        assert client.read_response().status == 505
        gone = select.poll()
        gone.register(client.sock, select.POLLHUP | select.POLLERR)
        for _ in range(200):
            if gone.poll(250) or not client.offer(b"x"):
                return
        raise AssertionError("a refused connection is read from without end")


def test_a_client_that_resets_while_its_view_runs(shared, mode, gate):
    server = shared(*mode, BARE)
    client = server.connect()
    client.send(get(f"/hold?gate={gate.path}") + get("/target/b"))
    visit = gate.next()
    client.reset()
    visit.release()
    assert server.fetch(get("/target/a")).status == 200


def test_a_client_that_resets_in_its_upload(shared, mode):
    server = shared(*mode, BARE)
    for size in (10, 100_000, 1_000_000):
        client = server.connect()
        client.send(get("/echo", "Content-Length: 2000000", method="POST") + b"b" * size)
        client.reset()
    assert server.fetch(get("/target/a")).status == 200


def test_a_client_that_resets_in_its_download(shared, mode):
    server = shared(*mode, BARE)
    for path in ("/block?size=20000000", "/stream?n=1000&size=65536", "/sized?n=1000&size=65536"):
        client = server.connect(receive_buffer=4096)
        client.send(get(path))
        assert client.read_head().status == 200
        client.reset()
    assert server.fetch(get("/target/a")).status == 200


def test_many_connections_that_come_and_go(shared, mode):
    server = shared(*mode, BARE)
    for _ in range(300):
        with server.connect() as client:
            assert client.exchange(get("/target/a", "Connection: close")).status == 200


def test_five_hundred_at_once(shared, mode):
    server = shared(*mode, BARE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(500)]
        for round_ in range(2):
            for n, client in enumerate(clients):
                client.send(get(f"/target/{n}/{round_}"))
            for n, client in enumerate(clients):
                assert client.read_response().body == f"GET /target/{n}/{round_}?".encode()


def test_the_connection_cap(serve, any_mode):
    """--limit-connections: those beyond it wait in the backlog or are turned away; a place that gets free is used."""
    server = serve(*any_mode, "--limit-connections", "4", BARE)
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(server.connect()) for _ in range(4)]
        for client in inside:
            assert client.exchange(get("/target/in")).status == 200
        beyond = stack.enter_context(server.connect())
        beyond.offer(get("/target/beyond"))
        for client in inside:  # still served while the other one waits
            assert client.exchange(get("/target/in")).status == 200
        if select.select([beyond.sock], [], [], 0)[0]:
            response = beyond.read_response()  # turned away: it must say why
            assert response.status == 503
            assert response.closes
            beyond = None
        inside.pop().close()
        if beyond is not None:
            assert beyond.read_response().status == 200
        else:
            _until_served(server)
    _until_served(server)


def _until_served(server):
    """A freed place is noticed by the loop in its own time: ask until it has (a hang fails)."""
    import time

    end = time.monotonic() + HANG
    while time.monotonic() < end:
        with server.connect() as client:
            client.offer(get("/target/after"))
            try:
                if client.read_response().status == 200:
                    return
            except Closed:
                pass
    raise AssertionError("no place became free")


@pytest.mark.parametrize("place", ["start", "head", "body"])
def test_urgent_data_harms_its_own_connection_at_most(shared, mode, place):
    """TCP urgent data is no part of HTTP. A read stops at its mark, so a loop that takes a short read for the last one
    leaves what is behind the mark lying until a deadline closes the connection: nobody else may notice."""
    server = shared(*mode, BARE)
    with server.connect() as client:
        request = post("/echo", b"hello")
        at = {"start": 0, "head": 10, "body": len(request) - 3}[place]
        client.send(request[:at])
        client.sock.send(b"!", socket.MSG_OOB)
        client.offer(request[at:])
        for _ in range(10):
            assert server.fetch(get("/target/a")).status == 200
