"""The control of the probe `idle`: an application whose own thread wakes a hundred times a second."""

import threading
import time


def _tick():
    while True:
        time.sleep(0.01)


threading.Thread(target=_tick, daemon=True).start()


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "13")])
    return [b"Hello, World!"]
