"""Expect: 100-continue (RFC 9110 10.1.1)."""

import select

import pytest

from harness.wire import chunked, get

BARE = "probe:application"
EXPECT = "Expect: 100-continue"


def test_one_100_then_the_answer(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/echo", "Content-Length: 5", EXPECT, method="POST"))
        assert client.read_head().status == 100
        client.send(b"hello")
        response = client.read_response()
        assert (response.interim, response.body) == ([], b"hello")
        assert client.exchange(get("/target/next")).status == 200


def test_one_100_for_a_body_in_pieces(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/echo", "Content-Length: 5", EXPECT, method="POST"))
        assert client.read_head().status == 100
        client.offer(b"hello", 1)
        assert client.read_response().interim == []


def test_chunked(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/echo", "Transfer-Encoding: chunked", EXPECT, method="POST"))
        assert client.read_head().status == 100
        client.send(chunked(b"hel", b"lo"))
        response = client.read_response()
        assert (response.interim, response.body) == ([], b"hello")


@pytest.mark.parametrize("value", ["100-Continue", "100-CONTINUE"])
def test_the_value_has_no_case(shared, mode, value):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/echo", "Content-Length: 5", "Expect: " + value, method="POST"))
        assert client.read_head().status == 100
        client.send(b"hello")
        assert client.read_response().body == b"hello"


def test_a_body_already_there_needs_no_100(shared, mode):
    """The 100 may be left out then; the answer comes in either case, and once."""
    with shared(*mode, BARE).connect() as client:
        client.send(get("/echo", "Content-Length: 5", EXPECT, method="POST") + b"hello")
        response = client.read_response()
        assert response.interim in ([], [100])
        assert response.body == b"hello"


@pytest.mark.parametrize("fields", [("Content-Length: 0",), ()])
def test_no_body_no_100(shared, mode, fields):
    """RFC 9110 10.1.1: without content to come there is nothing to be continued."""
    with shared(*mode, BARE).connect() as client:
        client.send(get("/target/a", *fields, EXPECT))
        response = client.read_response()
        assert (response.interim, response.body) == ([], b"GET /target/a?")


def test_never_to_1_0(shared, mode):
    """RFC 9110 10.1.1: a server that gets it in an HTTP/1.0 request must ignore it."""
    with shared(*mode, BARE).connect() as client:
        client.send(get("/echo", "Content-Length: 5", EXPECT, method="POST", version="1.0") + b"hello")
        response = client.read_response()
        assert (response.interim, response.body) == ([], b"hello")


def test_too_long_a_body_is_refused_without_100(shared, mode):
    with shared(*mode, "--limit-body", "1000", BARE).connect() as client:
        client.send(get("/echo", "Content-Length: 1001", EXPECT, method="POST"))
        response = client.read_response()
        assert (response.status, response.interim) == (413, [])
        assert response.closes
        client.expect_end()


def test_unknown_expectation_is_refused_without_100(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/echo", "Content-Length: 5", "Expect: 200-ok", method="POST"))
        response = client.read_response()
        assert (response.status, response.interim) == (417, [])
        assert response.closes
        client.expect_end()


def test_a_malformed_head_is_refused_without_100(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(get("/echo", "Content-Length: 5", "Content-Length: 6", EXPECT, method="POST"))
        response = client.read_response()
        assert (response.status, response.interim) == (400, [])
        client.expect_end()


def test_the_100_of_a_later_request_waits_for_the_answers_before_it(shared, pool_mode, gate):
    """Answers keep the order of the requests (RFC 9112 9.3.2), interim ones too."""
    with shared(*pool_mode, BARE).connect() as client:
        client.send(get(f"/hold?gate={gate.path}") + get("/echo", "Content-Length: 5", EXPECT, method="POST"))
        visit = gate.next()
        assert not select.select([client.sock], [], [], 0)[0]
        visit.release()
        assert client.read_head().status == 200
        assert client._exactly(4) == b"held"
        assert client.read_head().status == 100
        client.send(b"hello")
        assert client.read_response().body == b"hello"
