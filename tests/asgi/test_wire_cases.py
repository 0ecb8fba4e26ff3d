"""Cases that other servers got wrong in public, asked of the ASGI side: the same parser as for WSGI, another way to answer.

What has a test of its own nearby (paths, disconnects, bodies against their lengths, WebSockets) is not repeated here.
"""

import json
import signal

import pytest
from asking import APPS, fetch, wait_for
from harness import wire

POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


@pytest.fixture
def server(shared, one_thread):
    return shared("wire_cases:app", *one_thread, app_dir=APPS)


@pytest.mark.parametrize(
    "statuses, request_",
    [
        pytest.param({400, 501}, POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", id="unknown coding"),
        pytest.param({400, 501}, POST + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", id="identity"),
        pytest.param({400}, POST + b"Content-Length: 5\r\n" + CHUNKED, id="length and coding"),
        pytest.param({400}, POST + b"Content-Length: 1\r\nContent-Length: 5\r\n\r\nhello", id="two lengths"),
        pytest.param({400}, POST + b"Content-Length : 5\r\n\r\nhello", id="space before the colon"),
        pytest.param({400}, b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", id="CR in a value"),
        pytest.param({400}, b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", id="NUL in a value"),
        pytest.param({400}, b"GET / HTTP/1.1\nHost: a\n\n", id="bare LF"),
        pytest.param({400}, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", id="two hosts"),
        pytest.param({400}, b"GET / HTTP/1.1\r\n\r\n", id="no host"),
    ],
)
def test_refused_without_the_application(server, statuses, request_):
    reached = server.stderr.text().count("reached")
    with server.connect() as connection:
        connection.offer(request_)
        response = connection.read_response()
        assert response.status in statuses and response.closes
        connection.drain()
    assert server.stderr.text().count("reached") == reached


def test_two_spellings_of_a_name_stay_two(server):
    """Nothing maps `_` to `-` here, as CGI does: both pass, and neither passes for the other."""
    _, fields, _ = json.loads(fetch(server, "/", "X-Forwarded-User: good", "X_Forwarded_User: evil").body)
    assert fields == [["x-forwarded-user", "good"], ["x_forwarded_user", "evil"]]


def test_a_split_response_is_a_500_and_the_end(server):
    with server.connect() as connection:
        response = connection.exchange(wire.get("/split"))
        assert response.status == 500 and response.closes and not response.all("x")
        connection.expect_end()


def test_the_log_cannot_be_forged(serve, one_thread, tmp_path):
    path = tmp_path / "access.log"
    server = serve(
        "wire_cases:app", "--access-log", path, "--access-log-format", "%(m)s %(U)s %(s)s", *one_thread, app_dir=APPS
    )
    assert fetch(server, "/fail/%1b[31m%0aFAKE").status == 500
    server.ended_by_test = True
    assert server.stop() == 0
    said = server.stderr.text()
    assert "the application failed on GET /fail" in said and "\x1b" not in said
    assert not any(line.startswith("FAKE") for line in said.splitlines())
    (line,) = path.read_text().splitlines()
    assert line.startswith("GET /fail") and line.endswith("500") and "\x1b" not in line


EXPECT = b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"


def test_exactly_one_continue(server):
    with server.connect() as connection:
        connection.send(POST + EXPECT)
        assert connection.read_head().status == 100
        connection.send(b"hello")
        response = connection.read_response()
        assert (response.status, response.interim) == (200, [])


def test_no_continue_to_http_1_0(server):
    with server.connect() as connection:
        connection.send(b"POST / HTTP/1.0\r\nHost: a\r\n" + EXPECT)
        # Only a whole body brings an answer, and nothing may come before it.
        fetch(server, "/")
        connection.send(b"hello")
        response = connection.read_response()
        assert (response.status, response.interim) == (200, [])
        assert json.loads(response.body)[2] == 5


def test_no_continue_where_it_is_refused(shared, one_thread):
    server = shared("wire_cases:app", "--limit-body", "1000", *one_thread, app_dir=APPS)
    for expected, length, expectation in [(413, 1001, b"100-continue"), (417, 5, b"a-miracle")]:
        with server.connect() as connection:
            connection.send(POST + b"Content-Length: %d\r\nExpect: %s\r\n\r\n" % (length, expectation))
            response = connection.read_response()
            assert (response.status, response.interim, response.closes) == (expected, [], True)


def test_silent_clients_and_endless_answers_hold_up_nobody(server):
    connections = [server.connect() for _ in range(28)]
    for number, connection in enumerate(connections):
        if number >= 20:
            connection.send(wire.get("/endless"))
            assert connection.read_head().status == 200
        elif number % 2:
            connection.send(b"GET / HTTP/1.1\r\nHos")
    for _ in range(20):
        assert fetch(server, "/").status == 200
    for connection in connections:
        connection.reset()
    assert fetch(server, "/").status == 200


def test_the_drain_announces_itself(serve, one_thread):
    """A request in flight is answered with `Connection: close`; an idle connection ends at once, without a word."""
    server = serve("wire_cases:app", *one_thread, app_dir=APPS)
    with server.connect() as idle, server.connect() as waiting, server.connect() as half:
        assert idle.exchange(wire.get("/")).status == 200
        waiting.send(wire.get("/wait"))
        # Behind it on the same thread, and of the application all the same.
        half.send(wire.get("/go")[:-2])
        wait_for(lambda: server.stderr.text().count("reached") == 2, "the second request")
        server.send_signal(signal.SIGTERM)
        idle.expect_end()
        half.send(b"\r\n")
        for connection in (half, waiting):
            response = connection.read_response()
            assert response.status == 200 and response.closes
    server.ended_by_test = True
    assert server.wait() == 0
