"""Keep-alive and `Connection` in HTTP/1.0 and 1.1 (RFC 9112 9.3), and how a body's end is known to each."""

import pytest

from harness.wire import get, post

BARE = "probe:application"


def test_1_1_persists(shared, mode):
    with shared(*mode, BARE).connect() as client:
        for n in range(50):
            response = client.exchange(get(f"/target/{n}"))
            assert response.body == f"GET /target/{n}?".encode()
            assert (response.version, response.closes) == ("1.1", False)


@pytest.mark.parametrize(
    "field",
    ["Connection: close", "Connection: Close", "connection: x, CLOSE ,y", "Connection: keep-alive, close",
     "Connection: keep-alive\r\nConnection: close", "Connection: close\r\nConnection: keep-alive"],
)  # fmt: skip
def test_1_1_closes_when_asked(shared, mode, field):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/target/a", field) + get("/target/smuggled"))
        response = client.read_response()
        assert response.closes, "RFC 9112 9.6: the last response says so"
        client.expect_end()


@pytest.mark.parametrize("field", ["Connection: closed", "Connection: not-close", "X-Connection: close", "Connection: \"close\""])
def test_1_1_persists_unless_asked(shared, mode, field):
    with shared(*mode, BARE).connect() as client:
        assert not client.exchange(get("/target/a", field)).closes
        assert client.exchange(get("/target/b")).status == 200


def test_1_0_closes(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/target/a", version="1.0") + get("/target/smuggled", version="1.0"))
        response = client.read_response()
        assert response.body == b"GET /target/a?"
        assert "keep-alive" not in response.connection
        client.expect_end()


def test_1_0_without_host(shared, mode):
    assert shared(*mode, BARE).fetch(b"GET /target/a HTTP/1.0\r\n\r\n").body == b"GET /target/a?"


@pytest.mark.parametrize("field", ["Connection: keep-alive", "Connection: Keep-Alive", "connection: x, keep-alive"])
def test_1_0_persists_when_asked(shared, mode, field):
    """RFC 9112 C.2.2: the answer must say keep-alive, or an HTTP/1.0 client waits for the close."""
    with shared(*mode, BARE).connect() as client:
        for n in range(3):
            response = client.exchange(get(f"/target/{n}", field, version="1.0"))
            assert "keep-alive" in response.connection
            assert response.framing == "length"
        assert not client.exchange(get("/target/last", version="1.0")).connection.count("keep-alive")
        client.expect_end()


def test_1_0_close_wins(shared, mode):
    with shared(*mode, BARE).connect() as client:
        assert "keep-alive" not in client.exchange(get("/", "Connection: keep-alive, close", version="1.0")).connection
        client.expect_end()


@pytest.mark.parametrize("field", [(), ("Connection: keep-alive",)])
def test_1_0_gets_no_chunks(shared, mode, field):
    """RFC 9112 6.1: no Transfer-Encoding to HTTP/1.0; a body of unknown length ends with the connection."""
    with shared(*mode, BARE).connect() as client:
        response = client.exchange(get("/stream?n=3&size=5", *field, version="1.0"))
        assert (response.framing, response.body) == ("close", b"x" * 15)
        assert "keep-alive" not in response.connection
        client.expect_end()


def test_1_1_gets_chunks(shared, mode):
    with shared(*mode, BARE).connect() as client:
        response = client.exchange(get("/stream?n=3&size=5"))
        assert (response.framing, response.body) == ("chunked", b"x" * 15)
        assert client.exchange(get("/target/next")).status == 200


def test_1_1_streams_and_closes_when_asked(shared, mode):
    with shared(*mode, BARE).connect() as client:
        response = client.exchange(get("/stream?n=3&size=5", "Connection: close"))
        assert response.body == b"x" * 15
        assert response.closes
        client.expect_end()


def test_1_0_post(shared, mode):
    with shared(*mode, BARE).connect() as client:
        response = client.exchange(post("/echo", b"hello", "Connection: keep-alive", version="1.0"))
        assert response.body == b"hello"
        assert client.exchange(post("/echo", b"again", version="1.0")).body == b"again"
        client.expect_end()


def test_1_0_post_without_a_length_has_no_body(shared, mode):
    """RFC 9112 6.3 (7): a request never extends to the close."""
    response = shared(*mode, BARE).fetch(get("/echo", version="1.0", method="POST"))
    assert response.body == b""


def test_a_500_of_the_view_keeps_the_connection(shared, mode):
    """The fault is the application's; the framing is intact (the body was taken). Closing would be allowed."""
    with shared(*mode, BARE).connect() as client:
        response = client.exchange(post("/fail", b"hello"))
        assert response.status == 500
        if response.closes:
            client.expect_end()
        else:
            assert client.exchange(get("/target/next")).status == 200


def test_a_silent_end_between_requests_is_no_error(shared, mode):
    server = shared(*mode, BARE)
    before = len(server.stderr.lines)
    with server.connect() as client:
        client.exchange(get())
        client.half_close()
        client.expect_end()
    with server.connect() as client:
        client.half_close()
        client.expect_end()
    with server.connect() as client:
        client.reset()
    assert server.fetch(get()).status == 200
    assert not [line for line in server.stderr.lines[before:] if "error" in line.lower()]
