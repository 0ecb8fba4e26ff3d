"""Says on stderr what happens at the end of the interpreter, in order; counts the views that began."""

import atexit
import itertools
import os
import sys
import threading
from urllib.parse import parse_qs

import reporting

_views = itertools.count()
GATE = os.environ.get("LIFECYCLE_GATE")


def _say(text):
    print(text, file=sys.stderr, flush=True)


def _at_exit():
    _say(f"atexit ran in {threading.current_thread().name} after {next(_views)} views")


atexit.register(_at_exit)


def _worker():
    reporting.hold(GATE, "worker")
    _say("the thread ended")


if GATE:
    threading.Thread(target=_worker, name="worker").start()


def _spin():
    while True:
        sum(range(100))


if os.environ.get("LIFECYCLE_SPIN"):
    threading.Thread(target=_spin, name="spinner", daemon=True).start()


def application(environ, start_response):
    next(_views)
    query = {k: v[-1] for k, v in parse_qs(environ["QUERY_STRING"]).items()}
    if "gate" in query:
        reporting.hold(query["gate"], environ["PATH_INFO"])
    body = environ["wsgi.input"].read() or b"served"
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/stream":
        return (b"piece " for _ in range(50))
    return [body]
