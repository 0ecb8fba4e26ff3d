"""wsgiref.validate finds no fault with the server, nor with apps/wsgi_bare behind it."""

import pytest

from harness import serving
from harness.wire import get, post, post_chunked

STRICT = {"PYTHONWARNINGS": "error::wsgiref.validate.WSGIWarning"}
BODY = b"line\nanother line\nno end"


def _served(serve, mode, app):
    return serve(*mode, app, env=serving.environment(**STRICT))


def _no_complaint(server):
    assert server.stop() == 0
    text = server.stderr.text()
    for word in ("AssertionError", "Traceback", "WSGIWarning", "garbage collected"):
        assert word not in text, text


def test_own_application(serve, mode):
    server = _served(serve, mode, "validated:application")
    for way in ("read", "readline", "readlines", "iterate"):
        assert server.fetch(post(f"/{way}", BODY, "Content-Type: text/plain")).body == BODY
        assert server.fetch(post_chunked(f"/{way}", BODY)).body == BODY
        assert server.fetch(post(f"/{way}", BODY * 50_000)).body == BODY * 50_000
        assert server.fetch(get(f"/{way}")).body == b""
    for way in ("write", "generator", "words%20and%20more", "odd%ff"):
        assert server.fetch(get(f"/{way}")).status == 200
        response = server.fetch(get(f"/{way}?q", version="1.0"))
        assert response.status == 200
    assert server.fetch(get("/empty")).status == 204
    assert server.fetch(get("/words", method="HEAD"), "HEAD").status == 200
    assert server.fetch(get("/words", method="OPTIONS")).status == 200
    _no_complaint(server)


def test_root_path(serve, any_mode):
    server = serve(*any_mode, "--root-path", "/mount", "validated:application", env=serving.environment(**STRICT))
    for path in ("/mount", "/mount/", "/mount/a", "/a", "/"):
        assert server.fetch(get(path)).status == 200
    _no_complaint(server)


def test_over_a_unix_socket(serve, any_mode, short_path):
    server = serve(*any_mode, "validated:application", bind=[f"unix:{short_path}"], env=serving.environment(**STRICT))
    assert server.fetch(post("/read", BODY)).body == BODY
    _no_complaint(server)


BARE_ROUTES = ["/", "/stream", "/stream?length=1", "/headers?n=20", "/counted", "/tuple", "/write", "/late-start", "/cookies"]


def test_wsgi_bare(serve, mode):
    """The routes that obey PEP 3333 to the letter; the others are there to break it."""
    server = _served(serve, mode, "validated:bare")
    for path in BARE_ROUTES:
        response = server.fetch(get(path))
        assert response.status == 200, path
        assert response.body
    assert server.fetch(post("/input/pieces", b"x" * 5000)).body.startswith(b"len=5000 ")
    assert server.fetch(post("/echo", BODY, "Content-Type: text/plain")).body == BODY
    _no_complaint(server)


@pytest.mark.parametrize("path", BARE_ROUTES)
def test_wsgi_bare_unwrapped(shared, mode, path):
    server = shared(*mode, "app:application", app_dir=str(serving.REPOSITORY / "apps/wsgi_bare"))
    assert server.fetch(get(path)).status == 200
