"""start_response to PEP 3333, and what an application may not send."""

import heads
import pytest

from harness.wire import Closed, get

APP = "heads:application"


def _ask(server, name, method="GET"):
    return server.fetch(get("/" + name, method=method), method)


def test_plain(shared, mode):
    response = _ask(shared(*mode, APP), "ok")
    assert (response.status, response.reason, response.body) == (200, b"OK", b"body")
    assert response.one("content-type") == "text/plain"
    assert response.one("content-length") == "4"
    assert response.one("date")


def test_no_headers(shared, mode):
    response = _ask(shared(*mode, APP), "no-headers")
    assert (response.status, response.body) == (200, b"body")
    assert response.one("content-type") is None, "nothing is invented for the application"


def test_reason(shared, mode):
    response = _ask(shared(*mode, APP), "reason")
    assert (response.status, response.reason) == (299, b"Something \xe9lse, with spaces")


def test_order_and_repetition_are_kept(shared, mode):
    fields = _ask(shared(*mode, APP), "order").fields
    own = [(n, v) for n, v in fields if n.lower() in (b"x-b", b"set-cookie", b"x-a", b"x-lower")]
    assert own == [
        (b"X-B", b"1"), (b"Set-Cookie", b"a=1"), (b"X-A", b"2"), (b"Set-Cookie", b"b=2"), (b"x-lower", b"3"),
    ]  # fmt: skip


def test_values(shared, mode):
    server = shared(*mode, APP)
    assert _ask(server, "latin-1").one("x-accent") == "caf\xe9 \xff"
    assert _ask(server, "empty-value").one("x-empty") == ""
    assert _ask(server, "spaces").one("x-spaces") == "a  b"
    assert _ask(server, "subclass").one("x-a") == "b"


def test_date_and_server_may_be_the_application_s(shared, mode):
    server = shared(*mode, APP)
    assert _ask(server, "own-date").one("date") == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert _ask(server, "own-server").one("server") == "mine/1"


def test_many_headers(shared, mode):
    response = _ask(shared(*mode, APP), "many")
    assert sum(n.startswith(b"X-") for n, _ in response.fields) == 500


def test_the_list_is_taken_at_the_call(shared, mode):
    assert _ask(shared(*mode, APP), "headers-kept").one("x-a") == "1"


def test_it_returns_write(shared, mode):
    assert _ask(shared(*mode, APP), "returns-write").body == b"True"


@pytest.mark.parametrize("name", ["exc-info-none", "exc-info-keyword"])
def test_no_exc_info(shared, mode, name):
    assert _ask(shared(*mode, APP), name).body == b"body"


def test_never_called(shared, mode):
    response = _ask(shared(*mode, APP), "never")
    assert response.status == 500
    assert b"body" != response.body


def test_twice_without_exc_info_is_an_error(shared, mode):
    """PEP 3333: raised in the application; if it is caught the first head stands."""
    response = _ask(shared(*mode, APP), "twice")
    assert response.status == 200
    assert response.body.startswith(b"raised ")
    assert response.one("x-call") == "first"


def test_twice_uncaught_is_500(shared, mode):
    assert _ask(shared(*mode, APP), "twice-uncaught").status == 500


def test_exc_info_replaces_a_head_not_yet_sent(shared, mode):
    response = _ask(shared(*mode, APP), "replaced")
    assert (response.status, response.reason) == (500, b"Replaced")
    assert response.one("x-call") == "second"
    assert response.body == b"replaced"


def test_exc_info_in_the_first_call(shared, mode):
    response = _ask(shared(*mode, APP), "first-with-exc-info")
    assert (response.status, response.reason, response.body) == (500, b"Error page", b"page")


@pytest.mark.parametrize("name", heads.BAD)
def test_what_may_not_be_sent(shared, mode, name):
    """500 and a line in the log; nothing of the forbidden octets reaches the client."""
    server = shared(*mode, APP)
    before = len(server.stderr.lines)
    with server.connect() as client:
        client.send(get("/" + name) + get("/ok"))
        response = client.read_response()
        assert response.status == 500
        assert not response.all("x-evil")
        assert b"Traceback" not in response.body, "the details are for the log"
        if response.closes:
            client.expect_end()
        else:
            assert client.read_response().body == b"body"
    assert server.stderr.wait_for(r"\S", after=before), "the log doesn't mention it"


@pytest.mark.parametrize("name", heads.HOP_BY_HOP)
def test_hop_by_hop_fields_are_the_server_s(shared, mode, name):
    """PEP 3333 forbids them to applications. They may cost a 500 or be dropped, but never change the framing."""
    with shared(*mode, APP).connect() as client:
        client.send(get("/" + name))
        response = client.read_response()
        assert response.status in (200, 500)
        for field in ("keep-alive", "te"):
            assert not response.all(field)
        if response.all("upgrade"):  # RFC 9110 7.8: allowed in any answer, as an offer, with its connection option
            assert "upgrade" in response.connection
        if response.status == 200:
            assert response.body == b"body"
        if response.closes:
            client.expect_end()
        else:
            assert client.exchange(get("/ok")).body == b"body"


@pytest.mark.parametrize("name", ["value-split", "name-split", "status-split", "value-lf"])
def test_response_splitting(shared, mode, name):
    """uvicorn CVE-2020-7695: 500, and the connection is closed."""
    with shared(*mode, APP).connect() as client:
        response = client.exchange(get("/" + name))
        assert response.status == 500
        assert b"Evil" not in response.body
        try:
            assert client.exchange(get("/ok")).body == b"body"
        except (Closed, BrokenPipeError, ConnectionResetError):
            assert response.closes


@pytest.mark.parametrize("name", ["ok", "never", "value-split", "replaced", "many"])
def test_head(shared, mode, name):
    with shared(*mode, APP).connect() as client:
        client.send(get("/" + name, method="HEAD"))
        of_head = client.read_response("HEAD")
        assert of_head.status == shared(*mode, APP).fetch(get("/" + name)).status
        if of_head.closes:
            client.expect_end()
        else:
            assert client.exchange(get("/ok")).body == b"body"
