"""Several requests in flight on one connection (RFC 9112 9.3.2), and every split of their bytes."""

import threading

import pytest

from harness.wire import HANG, get, post, post_chunked

BARE = "probe:application"

SEQUENCE = [
    (get("/target/1"), "GET", b"GET /target/1?"),
    (post("/echo", b"two"), "POST", b"two"),
    (get("/target/3", method="HEAD"), "HEAD", b""),
    (post_chunked("/echo", b"fo", b"ur", trailers=b"X-T: 1\r\n"), "POST", b"four"),
    (get("/stream?n=2&size=3"), "GET", b"xxxxxx"),
    (post("/unread", b"GET / HTTP/1.1\r\n\r\n"), "POST", b"unread"),
    (get("/status?status=204+No+Content"), "GET", b""),
    (b"\r\n" + get("/target/8?q"), "GET", b"GET /target/8?q"),
    (post("/echo", b""), "POST", b""),
    (get("/target/last", "Connection: close"), "GET", b"GET /target/last?"),
]
WHOLE = b"".join(request for request, _, _ in SEQUENCE)


def _read_sequence(client):
    for request, method, body in SEQUENCE:
        response = client.read_response(method)
        assert response.status in (200, 204)
        assert response.body == body, request
    client.expect_end()


def test_in_order(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(WHOLE)
        _read_sequence(client)


def test_byte_by_byte(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.offer(WHOLE, 1)
        _read_sequence(client)


@pytest.mark.parametrize("step", [2, 3, 7, 64, 100])
def test_in_steps(shared, mode, step):
    with shared(*mode, BARE).connect() as client:
        client.offer(WHOLE, step)
        _read_sequence(client)


def test_every_split(serve, mode, short_path):
    """Two parts, cut at each octet, the first read by the server before the second is sent."""
    server = serve(*mode, BARE, bind=[f"unix:{short_path}"])
    for at in range(1, len(WHOLE)):
        with server.connect() as client:
            client.send_read_by_server(WHOLE[:at])
            client.send(WHOLE[at:])
            try:
                _read_sequence(client)
            except AssertionError as error:
                raise AssertionError(f"split at {at}: {WHOLE[max(0, at - 20) : at]!r} | {WHOLE[at : at + 20]!r}") from error


def test_every_octet_read_alone(serve, mode, short_path):
    server = serve(*mode, BARE, bind=[f"unix:{short_path}"])
    with server.connect() as client:
        for at in range(len(WHOLE)):
            client.send_read_by_server(WHOLE[at : at + 1])
        _read_sequence(client)


def test_deep_pipeline(shared, mode):
    """More requests than any buffer holds, sent while nothing is read by us at first."""
    count = 2000
    with shared(*mode, BARE).connect() as client:
        sender = threading.Thread(target=client.send, args=(b"".join(get(f"/target/{n}") for n in range(count)),))
        sender.start()
        for n in range(count):
            assert client.read_response().body == f"GET /target/{n}?".encode()
        sender.join(HANG)
        assert client.exchange(get("/target/after")).status == 200


def test_deep_pipeline_of_long_answers(shared, mode):
    """Answers pile up before a client that only sends: bounded by back-pressure, nothing lost."""
    with shared(*mode, BARE).connect() as client:
        sender = threading.Thread(target=client.send, args=(get("/block?size=200000") * 100,))
        sender.start()
        for _ in range(100):
            assert len(client.read_response().body) == 200_000
        sender.join(HANG)


def test_large_bodies_in_a_pipeline(shared, mode):
    bodies = [bytes([n]) * (300_000 * n) for n in range(1, 5)]
    with shared(*mode, BARE).connect() as client:
        data = b"".join(post("/echo", body) + get(f"/target/{len(body)}") for body in bodies)
        sender = threading.Thread(target=client.send, args=(data,))
        sender.start()
        for body in bodies:
            assert client.read_response().body == body
            assert client.read_response().body == f"GET /target/{len(body)}?".encode()
        sender.join(HANG)


def test_behind_a_slow_view(shared, pool_mode, gate):
    """What follows on the same connection waits its turn; others don't."""
    server = shared(*pool_mode, BARE)
    with server.connect() as client:
        client.send(get(f"/hold?gate={gate.path}") + get("/target/behind") + post("/echo", b"body"))
        visit = gate.next()
        assert server.fetch(get("/target/other")).body == b"GET /target/other?"
        visit.release()
        assert client.read_response().body == b"held"
        assert client.read_response().body == b"GET /target/behind?"
        assert client.read_response().body == b"body"


def test_sent_while_the_view_runs(shared, mode, gate):
    """Bytes that arrive while a handler owns the connection are seen when it is given back."""
    with shared(*mode, BARE).connect() as client:
        client.send(get(f"/hold?gate={gate.path}"))
        visit = gate.next()
        client.send(get("/target/behind")[:20])
        visit.release()
        assert client.read_response().body == b"held"
        client.send(get("/target/behind")[20:])
        assert client.read_response().body == b"GET /target/behind?"


def test_slow_views_in_one_pipeline_run_one_after_another(shared, mode, gate):
    """A connection's requests never run at once: their effects would come in any order."""
    with shared(*mode, BARE).connect() as client:
        client.send(get(f"/hold?gate={gate.path}") * 3)
        for _ in range(3):
            visit = gate.next()
            assert gate.is_empty()
            visit.release()
            assert client.read_response().body == b"held"


def test_half_close_behind_a_pipeline(shared, mode):
    """A client that has said all it will say still gets every answer."""
    with shared(*mode, BARE).connect() as client:
        client.send(b"".join(get(f"/target/{n}") for n in range(20)))
        client.half_close()
        for n in range(20):
            assert client.read_response().body == f"GET /target/{n}?".encode()
        client.expect_end()


def test_close_in_the_middle_ends_the_pipeline(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.offer(get("/target/1") + get("/target/2", "Connection: close") + get("/target/3") * 100)
        assert client.read_response().body == b"GET /target/1?"
        assert client.read_response().closes
        client.expect_end()
