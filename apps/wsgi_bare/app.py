"""A WSGI application without dependencies: the benchmarks' cheapest view, and one route for each thing that PEP 3333
lets an application do or get wrong, so that tests and people can see how a server takes it.

    m0serve --app-dir apps/wsgi_bare app:application

ROUTES at the end is the list of routes.
"""

import sys
import time
from _thread import allocate_lock

# What only some routes need is imported by them: json, tempfile, threading and urllib are six megabytes, and this app is
# there to show what a server needs.

TEXT = ("Content-Type", "text/plain; charset=utf-8")
HELLO = b"Hello, World!"
HELLO_HEADERS = [("Content-Type", "text/plain"), ("Content-Length", str(len(HELLO)))]


def application(environ, start_response):
    return ROUTES.get(environ["PATH_INFO"], not_found)(environ, start_response)


app = application


def hello(environ, start_response):
    start_response("200 OK", HELLO_HEADERS)
    return [HELLO]


def not_found(environ, start_response):
    return text(start_response, "not found\n", "404 Not Found")


def text(start_response, body, status="200 OK", *headers):
    body = body.encode()
    start_response(status, [TEXT, ("Content-Length", str(len(body))), *headers])
    return [body]


def as_json(start_response, value):
    import json
    body = json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def query(environ):
    from urllib.parse import parse_qsl
    return dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True, encoding="latin-1"))


# Time: a view that waits, a view that computes.


def slow(environ, start_response):
    """Waits ?ms= (200): the kind of view that holds a thread but not the processor."""
    ms = float(query(environ).get("ms", 200))
    time.sleep(ms / 1000)
    return text(start_response, f"slept {ms:g} ms\n")


def burn(ms):
    # The thread's own processor time: the work stays the same however many threads compete for a core or the GIL.
    end = time.thread_time() + ms / 1000
    rounds = 0
    while time.thread_time() < end:
        rounds += 1
    return rounds


def busy(environ, start_response):
    """Computes for ?ms= (1) of processor time in Python."""
    ms = float(query(environ).get("ms", 1))
    burn(ms)
    return text(start_response, f"computed {ms:g} ms\n")


def whoami(environ, start_response):
    """The thread that runs the view."""
    import threading
    return text(start_response, f"{threading.get_ident()} {threading.current_thread().name}\n")


# The request.


def environ_json(environ, start_response):
    """The whole environ: strings as they are, everything else as its repr."""
    plain = (str, int, bool, type(None))
    return as_json(
        start_response,
        {
            key: value if type(value) in plain else list(value) if type(value) is tuple else repr(value)
            for key, value in environ.items()
        },
    )


def headers(environ, start_response):
    """The request's fields as the server passed them on; ?n= adds as many fields to the answer."""
    n = int(query(environ).get("n", 0))
    lines = [
        f"{key}={value}\n"
        for key, value in sorted(environ.items())
        if key.startswith("HTTP_") or key in ("CONTENT_TYPE", "CONTENT_LENGTH")
    ]
    return text(start_response, "".join(lines), "200 OK", *((f"X-Field-{i}", f"value {i}") for i in range(n)))


# wsgi.input: each reader answers with the length and the sum of the bytes, so that a lost, doubled or changed
# byte changes the answer.


def summed(start_response, pieces, *more):
    length = total = count = 0
    for piece in pieces:
        count += 1
        length += len(piece)
        total += sum(piece)
    return text(start_response, f"len={length} sum={total}\n", "200 OK", ("X-Pieces", str(count)), *more)


def input_read(environ, start_response):
    """One read()."""
    return summed(start_response, [environ["wsgi.input"].read()])


def input_pieces(environ, start_response):
    """read(?size=) (1000) until it gives nothing."""
    size = int(query(environ).get("size", 1000))
    return summed(start_response, iter(lambda: environ["wsgi.input"].read(size), b""))


def input_readline(environ, start_response):
    """readline() until it gives nothing; with ?size=, readline(size)."""
    size = int(query(environ).get("size", -1))
    read = environ["wsgi.input"].readline
    return summed(start_response, iter((lambda: read(size)) if size >= 0 else read, b""))


def input_readlines(environ, start_response):
    """readlines(), or readlines(?hint=)."""
    hint = query(environ).get("hint")
    stream = environ["wsgi.input"]
    return summed(start_response, stream.readlines() if hint is None else stream.readlines(int(hint)))


def input_iter(environ, start_response):
    """Iteration over the lines."""
    return summed(start_response, environ["wsgi.input"])


def input_twice(environ, start_response):
    """read() twice: the second finds the end of the body."""
    stream = environ["wsgi.input"]
    return summed(start_response, [stream.read()], ("X-Second", str(len(stream.read()))))


def input_part(environ, start_response):
    """Reads ?size= (1) and leaves the rest of the body lying."""
    return summed(start_response, [environ["wsgi.input"].read(int(query(environ).get("size", 1)))])


def input_none(environ, start_response):
    """Does not look at the body."""
    return text(start_response, "not read\n")


def echo(environ, start_response):
    """The body comes back as it was sent, with its type."""
    read = environ["wsgi.input"].read
    body = b"".join(iter(lambda: read(65536), b""))
    kind = environ.get("CONTENT_TYPE") or "application/octet-stream"
    start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


# The response: every kind of iterable.


def stream(environ, start_response):
    """?n= (3) chunks of ?size= (13) bytes each, ?ms= (0) apart, of no announced length unless ?length=1."""
    options = query(environ)
    n, size, ms = (float(options.get(key, default)) for key, default in (("n", 3), ("size", 13), ("ms", 0)))
    n, size = int(n), int(size)
    headers = [TEXT]
    if options.get("length") == "1":
        headers.append(("Content-Length", str(n * size)))
    start_response("200 OK", headers)
    return chunks(n, (HELLO * (size // len(HELLO) + 1))[:size], ms / 1000)


def chunks(n, chunk, pause):
    for i in range(n):
        if pause and i:
            time.sleep(pause)
        yield chunk


class Endless:
    """64 KiB for ever; COUNTS tells how many were begun and how many the server closed."""

    def __init__(self):
        count("begun")

    def __iter__(self):
        return self

    def __next__(self):
        return b"e" * 65536

    def close(self):
        count("closed")


class Counted:
    """The chunks given, and a close() that is counted."""

    def __init__(self, *pieces):
        self.pieces = iter(pieces)
        count("begun")

    def __iter__(self):
        return self

    def __next__(self):
        piece = next(self.pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self):
        count("closed")


COUNTS = {"begun": 0, "closed": 0}
COUNTS_LOCK = allocate_lock()


def count(what):
    with COUNTS_LOCK:
        COUNTS[what] += 1


def closed(environ, start_response):
    """How many iterables with a close() were begun and closed; ?reset=1 starts from 0."""
    with COUNTS_LOCK:
        counts = dict(COUNTS)
        if query(environ).get("reset") == "1":
            COUNTS.update(begun=0, closed=0)
    return as_json(start_response, counts)


def endless(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    return Endless()


def counted(environ, start_response):
    start_response("200 OK", [TEXT])
    return Counted(b"one ", b"two ", b"three\n")


def empty(environ, start_response):
    start_response("200 OK", [TEXT])
    return []


def empty_chunks(environ, start_response):
    """Empty chunks before, between and after: none of them may end the body or start it early."""
    start_response("200 OK", [TEXT])
    return iter([b"", b"one ", b"", b"two\n", b""])


def as_tuple(environ, start_response):
    start_response("200 OK", [TEXT])
    return (b"one ", b"two\n")


def late_start(environ, start_response):
    """A generator: start_response is called only when the first chunk is asked for."""
    start_response("200 OK", [TEXT])
    yield b"late "
    yield b"start\n"


def write(environ, start_response):
    """The write() callable, and an iterable behind it."""
    send = start_response("200 OK", [TEXT])
    send(b"written ")
    send(b"twice ")
    return [b"and returned\n"]


def file(environ, start_response):
    """wsgi.file_wrapper around a real file of ?size= (100000) bytes, from ?offset= (0) on."""
    options = query(environ)
    size, offset = int(options.get("size", 100_000)), int(options.get("offset", 0))
    import tempfile
    whole = tempfile.TemporaryFile()
    for start in range(0, size, 65536):
        whole.write(bytes(i % 251 for i in range(start, min(start + 65536, size))))
    whole.flush()
    whole.seek(offset)
    start_response(
        "200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(max(size - offset, 0)))]
    )
    return environ["wsgi.file_wrapper"](whole)


def status(environ, start_response):
    """The status ?code= (200), with a body that HEAD, 204 and 304 must not show."""
    code = query(environ).get("code", "200")
    start_response(f"{code} Status", [TEXT])
    return [b"a body\n"]


def announced(environ, start_response):
    """Content-Length: ?length= over a body of ?size= bytes; they may differ."""
    options = query(environ)
    start_response("200 OK", [TEXT, ("Content-Length", options.get("length", "5"))])
    return iter([b"x" * int(options.get("size", 5))])


def cookies(environ, start_response):
    """Two fields of one name stay two."""
    return text(start_response, "two cookies\n", "200 OK", ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2; Path=/"))


# Mistakes.


class Deliberate(Exception):
    """What the routes below raise."""


def error(environ, start_response):
    """Raises before anything was said."""
    raise Deliberate("an error in the view")


def error_started(environ, start_response):
    """Raises after start_response: nothing was sent yet, so a plain 500 is due."""
    start_response("200 OK", [TEXT])
    raise Deliberate("an error after start_response")


def error_body(environ, start_response):
    """Raises after the first chunk: too late for another status, so the connection must not end well."""
    start_response("200 OK", [TEXT])
    return Counted(b"one ", Deliberate("an error in the body"))


def error_exit(environ, start_response):
    """SystemExit in a view is a view's failure, not the server's end."""
    raise SystemExit(3)


def error_none(environ, start_response):
    """Returns without a start_response."""
    return [b"never started\n"]


def error_twice(environ, start_response):
    """start_response twice without exc_info."""
    start_response("200 OK", [TEXT])
    start_response("200 OK", [TEXT])
    return [b"twice\n"]


def error_header(environ, start_response):
    """A field value with a line end in it: response splitting."""
    start_response("200 OK", [TEXT, ("X-Split", "a\r\nX-Injected: 1")])
    return [b"split\n"]


def error_status(environ, start_response):
    """A status that is none."""
    start_response(query(environ).get("status", "OK"), [TEXT])
    return [b"what status?\n"]


def error_str(environ, start_response):
    """A chunk that is not bytes."""
    start_response("200 OK", [TEXT])
    return ["text, not bytes\n"]


def error_result(environ, start_response):
    """A result that cannot be iterated."""
    start_response("200 OK", [TEXT])
    return None


def exc_info(environ, start_response):
    """An error page in place of headers that were not sent yet."""
    start_response("200 OK", [TEXT, ("X-First", "1")])
    try:
        raise Deliberate("found out in time")
    except Deliberate:
        start_response("500 Replaced", [TEXT], sys.exc_info())
    return [b"replaced\n"]


def exc_info_late(environ, start_response):
    """exc_info after the headers went out: the server must raise it again."""
    start_response("200 OK", [TEXT])
    yield b"sent "
    try:
        raise Deliberate("found out too late")
    except Deliberate:
        start_response("500 Replaced", [TEXT], sys.exc_info())
    yield b"must not be seen\n"


def errors(environ, start_response):
    """Writes ?line= to wsgi.errors."""
    stream = environ["wsgi.errors"]
    stream.write(query(environ).get("line", "a line") + "\n")
    stream.writelines(["first of writelines\n", "second\n"])
    stream.flush()
    return text(start_response, "logged\n")


ROUTES = {
    "/": hello,
    "/slow": slow,
    "/busy": busy,
    "/thread": whoami,
    "/environ": environ_json,
    "/headers": headers,
    "/input/read": input_read,
    "/input/pieces": input_pieces,
    "/input/readline": input_readline,
    "/input/readlines": input_readlines,
    "/input/iter": input_iter,
    "/input/twice": input_twice,
    "/input/part": input_part,
    "/input/none": input_none,
    "/echo": echo,
    "/stream": stream,
    "/endless": endless,
    "/counted": counted,
    "/closed": closed,
    "/empty": empty,
    "/empty-chunks": empty_chunks,
    "/tuple": as_tuple,
    "/late-start": late_start,
    "/write": write,
    "/file": file,
    "/status": status,
    "/announced": announced,
    "/cookies": cookies,
    "/error": error,
    "/error/started": error_started,
    "/error/body": error_body,
    "/error/exit": error_exit,
    "/error/none": error_none,
    "/error/twice": error_twice,
    "/error/header": error_header,
    "/error/status": error_status,
    "/error/str": error_str,
    "/error/result": error_result,
    "/exc-info": exc_info,
    "/exc-info/late": exc_info_late,
    "/errors": errors,
}
