"""Exceptions in views: a 500 for the client, the traceback for the log, and a server that goes on; wsgi.errors."""

import pytest

from harness.wire import get, post

APP = "faults:application"

FAULTS = {
    "error": r"RuntimeError: a plain error",
    "chained": r"direct cause",
    "after-start": r"RuntimeError: after start_response",
    "system-exit": r"SystemExit: 7",
    "sys-exit": r"words at exit",
    "keyboard-interrupt": r"KeyboardInterrupt",
    "generator-exit": r"GeneratorExit",
    "base-exception": r"BaseException: of the base",
    "recursion": r"RecursionError",
    "memory": r"MemoryError",
    "unprintable": r"_Unprintable",
    "surrogates": r"RuntimeError: a lone",
    "wrong-arguments": r"TypeError: wrong_arguments\(\)",
    "no-such-view": r"KeyError: 'no-such-view'",
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(shared, mode, name):
    server = shared(*mode, APP)
    before = len(server.stderr.lines)
    with server.connect() as client:
        response = client.exchange(post("/" + name, b"with a body"))
        assert response.status == 500
        assert b"Traceback" not in response.body
        assert b"Error" not in response.body.replace(b"Internal Server Error", b"")
        if not response.closes:
            assert client.exchange(get("/ok")).body == b"ok"
    assert server.stderr.wait_for(FAULTS[name], after=before)
    assert server.stderr.wait_for("faults.py|KeyError", after=before)
    assert server.fetch(get("/ok")).body == b"ok"


def test_many_faults_in_a_row(shared, mode):
    server = shared(*mode, APP)
    for _ in range(20):
        for name in ("error", "recursion", "system-exit"):
            assert server.fetch(get("/" + name)).status == 500
    assert server.fetch(get("/ok")).body == b"ok"


def test_wsgi_errors(shared, mode):
    server = shared(*mode, APP)
    before = len(server.stderr.lines)
    assert server.fetch(get("/errors")).body == b"logged"
    for line in ("written to wsgi.errors", "first of two", "second of two", "printed to wsgi.errors: € \U0001f600"):
        assert server.stderr.wait_for(line, after=before)


def test_wsgi_errors_keeps_a_line_together(shared, mode):
    server = shared(*mode, APP)
    before = len(server.stderr.lines)
    assert server.fetch(get("/errors-in-parts")).body == b"logged"
    assert server.stderr.wait_for("one line in parts", after=before)


def test_wsgi_errors_wants_text(shared, mode):
    assert server_body(shared(*mode, APP), "/errors-of-bytes") == b"TypeError"


def server_body(server, path):
    return server.fetch(get(path)).body
