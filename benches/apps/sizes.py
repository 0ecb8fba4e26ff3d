"""Bodies of a chosen size. GET /bytes/N answers N bytes; POST /sink reads the body and answers its length and sum."""

_bodies = {}


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path.startswith("/bytes/"):
        size = int(path[7:])
        body = _bodies.get(size)
        if body is None:
            body = _bodies[size] = bytes(range(256)) * (size // 256) + bytes(size % 256)
    elif path == "/sink":
        got = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        # The length and a sample of it: a body that was cut or shifted changes the answer, and the view stays cheap.
        body = b"len=%d sum=%d" % (len(got), sum(got[:: max(1, len(got) // 64)]))
    else:
        start_response("404 Not Found", [("Content-Length", "0")])
        return []
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(body)))])
    return [body]
