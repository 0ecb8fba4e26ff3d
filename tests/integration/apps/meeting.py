"""One request waits in its view until another one comes."""

import threading

_came = threading.Event()


def application(environ, start_response):
    if environ["PATH_INFO"] == "/wait":
        met = _came.wait(30)
        body = b"met" if met else b"alone"
    else:
        _came.set()
        body = b"came"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]
