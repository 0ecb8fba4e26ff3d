"""A WSGI application that shows what it was given: the environ, the body, the thread."""

import contextvars
import hashlib
import json
import threading
from urllib.parse import parse_qs

import reporting

_TEXT = [("Content-Type", "text/plain")]
_mark = contextvars.ContextVar("mark", default="fresh")


def hello(environ, start_response, query):
    start_response("200 OK", _TEXT)
    return [b"hello"]


def show_environ(environ, start_response, query):
    """Every key with its value's type, and the value where it is text."""
    shown = {
        key: [type(value).__name__, value if isinstance(value, (str, bool, list, tuple)) else None]
        for key, value in environ.items()
    }
    body = json.dumps({"type": type(environ).__name__, "environ": shown}).encode()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [body]


def target(environ, start_response, query):
    """Method, path and query on one line, so that answers in a pipeline can be told apart."""
    line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
    start_response("200 OK", _TEXT)
    return [line.encode("latin-1")]


def echo(environ, start_response, query):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    return [body]


def digest(environ, start_response, query):
    """Length and SHA-256 of the body, read in pieces: flat memory however long it is."""
    total, sum_ = 0, hashlib.sha256()
    for piece in iter(lambda: environ["wsgi.input"].read(1 << 20), b""):
        total += len(piece)
        sum_.update(piece)
    start_response("200 OK", _TEXT)
    return [f"{total} {sum_.hexdigest()}".encode()]


def count(environ, start_response, query):
    """Length of the body only."""
    total = sum(len(piece) for piece in iter(lambda: environ["wsgi.input"].read(1 << 20), b""))
    start_response("200 OK", _TEXT)
    return [str(total).encode()]


def unread(environ, start_response, query):
    """Answers without a look at the body."""
    start_response("200 OK", _TEXT)
    return [b"unread"]


def stream(environ, start_response, query):
    """`n` chunks of `size` octets, of unknown length together."""
    chunk = b"x" * int(query.get("size", "5"))
    start_response("200 OK", _TEXT)
    return (chunk for _ in range(int(query.get("n", "3"))))


def sized(environ, start_response, query):
    """`n` chunks of `size` octets with a Content-Length."""
    n, size = int(query.get("n", "3")), int(query.get("size", "5"))
    chunk = b"x" * size
    start_response("200 OK", [*_TEXT, ("Content-Length", str(n * size))])
    return (chunk for _ in range(n))


def block(environ, start_response, query):
    """One body of `size` octets."""
    start_response("200 OK", _TEXT)
    return [b"y" * int(query["size"])]


def hold(environ, start_response, query):
    """Stays in the view until the test opens the gate."""
    reporting.hold(query["gate"], environ["PATH_INFO"])
    start_response("200 OK", _TEXT)
    return [b"held"]


def hold_between(environ, start_response, query):
    """Sends one chunk, then waits at the gate, then sends another."""
    start_response("200 OK", _TEXT)
    yield b"first"
    reporting.hold(query["gate"], "between")
    yield b"second"


def status(environ, start_response, query):
    """Answers with the status of the query; the body is there whether allowed or not."""
    headers = list(_TEXT)
    if "length" in query:
        headers.append(("Content-Length", query["length"]))
    start_response(query["status"], headers)
    return [b"body"]


def context(environ, start_response, query):
    """The context variable as found; leaves another value behind."""
    found = _mark.get()
    _mark.set("left by a request")
    start_response("200 OK", _TEXT)
    return [f"{found} {threading.get_ident()}".encode()]


def fail(environ, start_response, query):
    raise RuntimeError("the view failed: " + query.get("word", ""))


ROUTES = {
    "/": hello,
    "/environ": show_environ,
    "/target": target,
    "/echo": echo,
    "/digest": digest,
    "/count": count,
    "/unread": unread,
    "/stream": stream,
    "/sized": sized,
    "/block": block,
    "/hold": hold,
    "/hold-between": hold_between,
    "/status": status,
    "/context": context,
    "/fail": fail,
}


def application(environ, start_response):
    query = {k: v[-1] for k, v in parse_qs(environ["QUERY_STRING"], keep_blank_values=True).items()}
    view = ROUTES.get(environ["PATH_INFO"])
    if view is None:
        # Anything else: the environ, so that a test of odd paths sees what became of them.
        view = target if environ["PATH_INFO"].startswith("/target/") else show_environ
    return view(environ, start_response, query)


def shown(environ, start_response):
    """The environ, whatever the path."""
    return show_environ(environ, start_response, {})
