"""Keeps what belonged to requests beyond their end and uses it afterwards, which must be safe."""

import collections
import gc
import threading

_kept = []
_lock = threading.Lock()


def _use(kept):
    """Touch everything of a request that has ended; say what happened."""
    environ, start_response, write = kept
    results = [environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["HTTP_X_MARK"]]
    for attempt in (
        lambda: environ["wsgi.input"].read(),
        lambda: environ["wsgi.input"].readline(),
        lambda: list(environ["wsgi.input"]),
        lambda: environ["wsgi.errors"].write("used after the request's end\n"),
        lambda: start_response("200 OK", [("X-Stale", "yes")]),
        lambda: write(b"stale octets"),
        lambda: environ["wsgi.file_wrapper"],
    ):
        try:
            attempt()
            results.append("ok")
        except Exception as error:
            results.append(type(error).__name__)
    return results


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/keep":
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        with _lock:
            _kept.append((environ, start_response, write))
        return [b"kept"]
    if path == "/use":
        with _lock:
            kept, _kept[:] = list(_kept), []
        text = "\n".join(" ".join(_use(one)) for one in kept)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [text.encode()]
    if path == "/use-in-thread":
        with _lock:
            kept, _kept[:] = list(_kept), []
        found = []
        thread = threading.Thread(target=lambda: found.extend(" ".join(_use(one)) for one in kept))
        thread.start()
        thread.join()
        start_response("200 OK", [("Content-Type", "text/plain")])
        return ["\n".join(found).encode()]
    if path == "/objects":
        gc.collect()
        counts = collections.Counter(type(o).__name__ for o in gc.get_objects())
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{counts.total()} {counts.most_common(5)}".encode()]
    environ["me"] = environ  # a cycle that only the collector frees
    environ["start"] = start_response
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"cycle"]
