"""One view per shape of body that PEP 3333 allows, and per way of getting it wrong.

The path names the shape. With `?gate=` the body reports to the test when close() is called.
"""

import io
import sys
from urllib.parse import parse_qs

import reporting

_TEXT = [("Content-Type", "text/plain")]


class Body:
    """An iterable that reports its close()."""

    def __init__(self, chunks, gate=None, word="closed"):
        self.chunks = chunks
        self.gate = gate
        self.word = word

    def __iter__(self):
        return iter(self.chunks)

    def close(self):
        if self.gate:
            reporting.report(self.gate, self.word)


class SizedBody(Body):
    def __len__(self):
        return 1


class LyingBody(Body):
    """Says that it has one chunk and has three."""

    def __len__(self):
        return 1


class BrokenLength(Body):
    def __len__(self):
        raise RuntimeError("no length today")


class OldIterable:
    """Iterable through the sequence protocol alone."""

    def __getitem__(self, index):
        return (b"old", b"-", b"fashioned")[index]


class FailingClose(Body):
    def close(self):
        super().close()
        raise RuntimeError("close() failed")


class NextOnly:
    """An iterator whose close() is called even when iteration failed at once."""

    def __init__(self, gate):
        self.gate = gate

    def __iter__(self):
        return self

    def __next__(self):
        raise RuntimeError("the first chunk failed")

    def close(self):
        reporting.report(self.gate, "closed")


class IterFails(Body):
    def __iter__(self):
        raise RuntimeError("__iter__ failed")


def raising(*chunks):
    yield from chunks
    raise RuntimeError("mid-body")


def raising_exit(*chunks):
    yield from chunks
    raise SystemExit(3)


def endless(size=65536):
    chunk = b"e" * size
    while True:
        yield chunk


def late_start(environ, start_response, query):
    start_response("201 Created", [("X-Late", "yes"), *_TEXT])
    yield b"late"


def late_start_after_empty(environ, start_response, query):
    yield b""
    yield b""
    start_response("202 Accepted", [("X-Late", "yes"), *_TEXT])
    yield b""
    yield b"late"


def never_started(environ, start_response, query):
    yield b"data without a head"


def replaced(environ, start_response, query):
    """Empty chunks don't send the head, so exc_info may still replace it."""
    start_response("200 OK", _TEXT)
    yield b""
    try:
        raise ValueError("found out late")
    except ValueError:
        start_response("503 Sorry", [("X-Replaced", "yes"), *_TEXT], sys.exc_info())
    yield b"replaced"


def too_late(environ, start_response, query):
    """The head has gone out: start_response must raise what it is given, and the body is cut."""
    start_response("200 OK", _TEXT)
    yield b"first"
    try:
        raise ValueError("too late for another head")
    except ValueError as error:
        try:
            start_response("500 Oops", _TEXT, sys.exc_info())
        except ValueError as raised:
            reporting.report(query["gate"], "same" if raised is error else "another")
            raise
        reporting.report(query["gate"], "not raised")


def simple(make):
    def view(environ, start_response, query):
        start_response("200 OK", _TEXT)
        return make(query)

    return view


def with_length(length, make):
    def view(environ, start_response, query):
        start_response("200 OK", [*_TEXT, ("Content-Length", length)])
        return make(query)

    return view


def write_only(environ, start_response, query):
    write = start_response("200 OK", _TEXT)
    write(b"written ")
    write(b"")
    write(b"twice")
    return []


def write_then_return(environ, start_response, query):
    write = start_response("200 OK", _TEXT)
    write(b"written ")
    return [b"and ", b"returned"]


def write_with_length(environ, start_response, query):
    write = start_response("200 OK", [*_TEXT, ("Content-Length", "10")])
    write(b"01234")
    return Body([b"56789"], query.get("gate"))


def write_text(environ, start_response, query):
    write = start_response("200 OK", _TEXT)
    try:
        write("text")
    except TypeError as error:
        return [type(error).__name__.encode()]
    return [b"accepted"]


def write_then_hold(environ, start_response, query):
    write = start_response("200 OK", _TEXT)
    write(b"first")
    reporting.hold(query["gate"], "written")
    return [b"second"]


def write_then_raise(environ, start_response, query):
    write = start_response("200 OK", _TEXT)
    write(b"first")
    raise RuntimeError("after write")


def file_wrapper(make):
    def view(environ, start_response, query):
        headers = [("Content-Length", query["length"])] if "length" in query else []
        start_response("200 OK", [*_TEXT, *headers])
        return environ["wsgi.file_wrapper"](*make(query))

    return view


class ReportingFile(io.BytesIO):
    def __init__(self, data, gate):
        super().__init__(data)
        self.gate = gate

    def close(self):
        if self.gate:
            reporting.report(self.gate, "closed")
            self.gate = None
        super().close()


def real_file(query):
    file = open(query["path"], "rb")
    file.seek(int(query.get("offset", "0")))
    return (file,)


class NoFileno:
    """A file-like object of the least kind: read() only."""

    def __init__(self, data):
        self.data = io.BytesIO(data)

    def read(self, size):
        return self.data.read(size)


VIEWS = {
    "list": simple(lambda q: [b"hel", b"lo"]),
    "list-one": simple(lambda q: [b"hello"]),
    "list-empty": simple(lambda q: []),
    "list-of-empty": simple(lambda q: [b"", b""]),
    "list-mixed": simple(lambda q: [b"", b"hel", b"", b"lo", b""]),
    "tuple": simple(lambda q: (b"hel", b"lo")),
    "tuple-one": simple(lambda q: (b"hello",)),
    "tuple-empty": simple(lambda q: ()),
    "set-one": simple(lambda q: {b"hello"}),
    "bytes": simple(lambda q: b"hello"),
    "iterator": simple(lambda q: iter([b"hel", b"lo"])),
    "map": simple(lambda q: map(bytes.lower, [b"HEL", b"LO"])),
    "generator": simple(lambda q: (c for c in (b"hel", b"lo"))),
    "generator-empty": simple(lambda q: iter(())),
    "generator-of-empty": simple(lambda q: iter((b"", b""))),
    "generator-empty-first": simple(lambda q: iter((b"", b"", b"hello"))),
    "custom": simple(lambda q: Body([b"hel", b"lo"], q.get("gate"))),
    "custom-one": simple(lambda q: SizedBody([b"hello"], q.get("gate"))),
    "old": simple(lambda q: OldIterable()),
    "lying": simple(lambda q: LyingBody([b"one", b"two", b"three"], q.get("gate"))),
    "broken-length": simple(lambda q: BrokenLength([b"hello"], q.get("gate"))),
    "file": simple(lambda q: io.BytesIO(b"hel\nlo\n")),
    "none": simple(lambda q: None),
    "number": simple(lambda q: 5),
    "text": simple(lambda q: "text"),
    "list-of-text": simple(lambda q: ["text"]),
    "list-of-numbers": simple(lambda q: [1, 2]),
    "generator-of-text": simple(lambda q: (c for c in ("text",))),
    "text-second": simple(lambda q: Body([b"first", "second"], q.get("gate"))),
    "raise-first": simple(lambda q: Body(raising(), q.get("gate"))),
    "raise-after-empty": simple(lambda q: Body(raising(b"", b""), q.get("gate"))),
    "raise-second": simple(lambda q: Body(raising(b"first"), q.get("gate"))),
    "exit-second": simple(lambda q: Body(raising_exit(b"first"), q.get("gate"))),
    "raise-second-with-length": with_length("10", lambda q: Body(raising(b"first"), q.get("gate"))),
    "next-fails": simple(lambda q: NextOnly(q["gate"])),
    "iter-fails": simple(lambda q: IterFails([], q["gate"])),
    "failing-close": simple(lambda q: FailingClose([b"hel", b"lo"], q.get("gate"))),
    "endless": simple(lambda q: Body(endless(), q.get("gate"))),
    "endless-with-length": with_length(str(1 << 40), lambda q: Body(endless(), q.get("gate"))),
    "longer": with_length("3", lambda q: Body([b"hello"], q.get("gate"))),
    "longer-chunks": with_length("3", lambda q: Body([b"he", b"ll", b"o"], q.get("gate"))),
    "longer-list": with_length("3", lambda q: [b"he", b"llo"]),
    "shorter": with_length("9", lambda q: Body([b"hello"], q.get("gate"))),
    "shorter-list": with_length("9", lambda q: [b"hello"]),
    "shorter-empty": with_length("9", lambda q: []),
    "exact": with_length("5", lambda q: Body([b"hel", b"lo"], q.get("gate"))),
    "length-zero": with_length("0", lambda q: Body([], q.get("gate"))),
    "late-start": late_start,
    "late-start-after-empty": late_start_after_empty,
    "never-started": never_started,
    "replaced": replaced,
    "too-late": too_late,
    "write": write_only,
    "write-then-return": write_then_return,
    "write-with-length": write_with_length,
    "write-text": write_text,
    "write-then-hold": write_then_hold,
    "write-then-raise": write_then_raise,
    "wrapped-bytesio": file_wrapper(lambda q: (ReportingFile(b"hello", q.get("gate")),)),
    "wrapped-blocks": file_wrapper(lambda q: (ReportingFile(b"x" * 100_000, q.get("gate")), 1000)),
    "wrapped-file": file_wrapper(real_file),
    "wrapped-least": file_wrapper(lambda q: (NoFileno(b"hello"), 2)),
}


def application(environ, start_response):
    query = {k: v[-1] for k, v in parse_qs(environ["QUERY_STRING"]).items()}
    return VIEWS[environ["PATH_INFO"][1:]](environ, start_response, query)
