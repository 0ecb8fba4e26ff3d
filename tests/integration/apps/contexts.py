"""Context variables in a view and in the generator that it returns."""

import contextvars
import threading

_mark = contextvars.ContextVar("mark", default="none")


def _pieces(count, size):
    for _ in range(count):
        yield (_mark.get() + " ").encode() * size


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/thread":
        return [str(threading.get_ident()).encode()]
    _mark.set(environ["QUERY_STRING"])
    if environ["PATH_INFO"] == "/big":
        return _pieces(500, 10_000)
    return _pieces(3, 1)
