"""wsgi.input in every way of reading that PEP 3333 names: of short bodies, spooled ones and none."""

import io
import json

import pytest
import reading

from harness.wire import get, post, post_chunked

APP = "reading:application"

LINES = b"first line\nsecond\n\n  fourth\r\nno end"
BODIES = {
    "lines": LINES,
    "end-in-newline": b"a\nb\n",
    "newlines": b"\n\n\n",
    "no-newline": b"x" * 5000,
    "one": b"x",
    "octets": bytes(range(256)) * 4,
}
LARGE = (b"l" * 999 + b"\n") * 800 + b"no end"  # beyond 512 KiB: from the temporary file


def _expected(way, body):
    """What an ordinary file gives: wsgi.input has to behave as one that ends with the body."""
    return reading._text(reading.WAYS[way](io.BytesIO(body)))


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("way", reading.WAYS)
def test_ways(shared, mode, way, body):
    body = BODIES[body]
    response = shared(*mode, APP).fetch(post(f"/{way}", body))
    assert response.status == 200
    assert json.loads(response.body) == _expected(way, body)


@pytest.mark.parametrize("way", reading.WAYS)
def test_no_body(shared, mode, way):
    for request in (get(f"/{way}"), post(f"/{way}", b""), post_chunked(f"/{way}")):
        response = shared(*mode, APP).fetch(request)
        assert response.status == 200
        assert json.loads(response.body) == _expected(way, b"")


@pytest.mark.parametrize("way", [way for way in reading.WAYS if way != "short-lines"])
def test_spooled_body(shared, mode, way):
    response = shared(*mode, APP).fetch(post(f"/{way}", LARGE))
    assert response.status == 200
    assert json.loads(response.body) == _expected(way, LARGE)


@pytest.mark.parametrize("way", ["read", "lines", "iterated", "mixed"])
def test_chunked_body(shared, mode, way):
    for body in (LINES, LARGE):
        pieces = [body[at : at + 70_001] for at in range(0, len(body), 70_001)]
        response = shared(*mode, APP).fetch(post_chunked(f"/{way}", *pieces))
        assert json.loads(response.body) == _expected(way, body)


def test_the_end_is_the_body_s_end(shared, mode):
    """Reading on never runs into the next request of the connection."""
    with shared(*mode, APP).connect() as client:
        client.send(post("/read-more", b"body") + post("/lines", b"next\n"))
        assert json.loads(client.read_response().body) == ["body", ""]
        assert json.loads(client.read_response().body) == [["next\n"], ""]


def test_temporary_files_go_away(serve, mode, tmp_path):
    """They are unlinked while open, and closed with the request."""
    from harness import proc, serving

    server = serve(*mode, APP, env=serving.environment(TMPDIR=tmp_path))
    server.fetch(post("/read", LARGE))
    before = proc.open_descriptors(server.pid)
    for _ in range(20):
        assert server.fetch(post("/lines", LARGE)).status == 200
    with server.connect() as client:
        client.send(post("/read", LARGE * 2)[:1_500_000])
        client.reset()
    # The server closes its end some time after the client has: each further request gives it an occasion.
    for _ in range(1000):
        assert server.fetch(post("/read", b"x")).status == 200
        if proc.open_descriptors(server.pid) <= before + 2:
            break
    assert proc.open_descriptors(server.pid) <= before + 2
    assert list(tmp_path.iterdir()) == []
