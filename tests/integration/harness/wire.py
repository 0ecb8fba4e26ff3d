"""A raw HTTP/1.1 client that sends exactly the bytes it is given and reads answers strictly.

Strict means: whatever RFC 9110 or RFC 9112 forbids a server to send raises `Malformed`. A laxer reader
(http.client, requests) would repair such an answer and hide the fault. Socket time-outs are there to turn a
hang into a failure; no test takes its meaning from one.
"""

import array
import fcntl
import re
import select
import socket
import struct
import termios
import time
from dataclasses import dataclass, field

HANG = 15.0
"""Seconds after which a silent peer counts as hung. Never part of an expectation."""

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2}) ([\t \x21-\x7e\x80-\xff]*)")
_FIELD_VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t \x21-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")


class Malformed(AssertionError):
    """The server sent something that HTTP/1.1 forbids."""


class Closed(AssertionError):
    """The connection ended before an answer began."""


class Truncated(AssertionError):
    """The connection ended within an answer. `response` holds what had arrived."""

    def __init__(self, response, why):
        super().__init__(f"{why}; so far: {response}")
        self.response = response


@dataclass
class Response:
    version: str
    status: int
    reason: bytes
    fields: list
    """(name, value) as bytes, in the order and case of the wire."""
    framing: str = ""
    """How the body's end was known: none, length, chunked or close."""
    body: bytes = b""
    chunks: list = field(default_factory=list)
    trailers: list = field(default_factory=list)
    interim: list = field(default_factory=list)
    """Status codes of the 1xx answers that came before this one."""

    def all(self, name):
        """Every value of a field, as latin-1 text."""
        wanted = name.lower().encode("latin-1")
        return [v.decode("latin-1") for n, v in self.fields if n.lower() == wanted]

    def one(self, name):
        """The value of a field that may be there at most once; None where it is not."""
        values = self.all(name)
        if len(values) > 1:
            raise Malformed(f"{name} was sent {len(values)} times: {values}")
        return values[0] if values else None

    @property
    def connection(self):
        return [t.strip().lower() for v in self.all("connection") for t in v.split(",") if t.strip()]

    @property
    def closes(self):
        return "close" in self.connection


def _split_fields(block):
    fields = []
    for line in block.split(b"\r\n"):
        if b"\n" in line or b"\r" in line:
            raise Malformed(f"bare CR or LF in a field line: {line!r}")
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name):
            raise Malformed(f"not a field line: {line!r}")
        value = value.strip(b" \t")
        if not _FIELD_VALUE.fullmatch(value):
            raise Malformed(f"forbidden octets in a field value: {line!r}")
        fields.append((name, value))
    return fields


def parse_head(block):
    """A response head without the empty line that ends it."""
    status_line, _, rest = block.partition(b"\r\n")
    match = _STATUS_LINE.fullmatch(status_line)
    if not match:
        raise Malformed(f"not a status line: {status_line!r}")
    fields = _split_fields(rest) if rest else []
    return Response("1." + match[1].decode(), int(match[2]), match[3], fields)


class Connection:
    """One client connection: exact bytes out, strictly read answers in."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(HANG)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self._ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- sending ---------------------------------------------------------------------------------

    def send(self, data):
        self.sock.sendall(data)

    def offer(self, data, step=None):
        """Send as much as the server takes, `step` bytes at a time.

        For requests that are refused before their end: a server may close then, and the rest of what
        is sent meets a reset. Returns False where that happened.
        """
        step = step or len(data)
        try:
            for at in range(0, len(data), step):
                self.sock.sendall(data[at : at + step])
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def send_read_by_server(self, data):
        """Send, then wait until the server has taken the bytes out of its socket, or has answered.

        Only a Unix socket tells the sender that its bytes were *read* (SIOCOUTQ), which makes "the first
        part was read alone" an event instead of a guess.
        """
        assert self.sock.family == socket.AF_UNIX
        self.sock.sendall(data)
        deadline = time.monotonic() + HANG
        while self.unread_by_server() and not select.select([self.sock], [], [], 0)[0]:
            assert time.monotonic() < deadline, "the server doesn't read"

    def unread_by_server(self):
        size = array.array("i", [0])
        fcntl.ioctl(self.sock.fileno(), termios.TIOCOUTQ, size)
        return size[0]

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        """Close with RST, as a client does that died."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()

    # -- receiving -------------------------------------------------------------------------------

    def _fill(self):
        """Receive once. False at the end of the stream (FIN or RST)."""
        if self._ended:
            return False
        try:
            data = self.sock.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            self._ended = True
            return False
        self.received += data
        return True

    def _until(self, mark):
        start = 0
        while (at := self.received.find(mark, start)) < 0:
            start = max(0, len(self.received) - len(mark) + 1)
            if not self._fill():
                return None
        taken = bytes(self.received[:at])
        del self.received[: at + len(mark)]
        return taken

    def _exactly(self, size):
        while len(self.received) < size:
            if not self._fill():
                return None
        taken = bytes(self.received[:size])
        del self.received[:size]
        return taken

    def _all(self):
        while self._fill():
            pass
        taken = bytes(self.received)
        self.received.clear()
        return taken

    def read_head(self):
        """The next head of any kind, 1xx included; no body is read."""
        block = self._until(b"\r\n\r\n")
        if block is None:
            if self.received:
                raise Truncated(bytes(self.received), "the connection ended within a head")
            raise Closed("the connection ended before an answer")
        return parse_head(block)

    def read_response(self, method="GET"):
        """The next final response, its body included, checked against RFC 9110 and RFC 9112."""
        interim = []
        while (response := self.read_head()).status < 200:
            for name in ("content-length", "transfer-encoding"):
                if response.all(name):
                    raise Malformed(f"{name} in a {response.status} answer")  # RFC 9110 8.6, RFC 9112 6.1
            interim.append(response.status)
        response.interim = interim
        self._check_head(response)
        self._read_body(response, method)
        return response

    @staticmethod
    def _check_head(response):
        lengths = response.all("content-length")
        codings = response.all("transfer-encoding")
        if len(lengths) > 1 or (lengths and not re.fullmatch(r"[0-9]{1,19}", lengths[0])):
            raise Malformed(f"content-length: {lengths}")
        if lengths and codings:
            raise Malformed("both content-length and transfer-encoding")  # RFC 9112 6.2
        if codings and [c.lower() for c in codings] != ["chunked"]:
            raise Malformed(f"transfer-encoding: {codings}")
        if response.status == 204 and (lengths or codings):
            raise Malformed("a 204 with framing fields")  # RFC 9110 8.6, RFC 9112 6.1
        date = response.one("date")  # RFC 9110 6.6.1: MUST in 2xx, 3xx and 4xx
        if date is None and response.status < 500:
            raise Malformed(f"no date in a {response.status}")
        if date is not None and not _DATE.fullmatch(date):
            raise Malformed(f"date: {date!r}")

    def _read_body(self, response, method):
        length = response.one("content-length")
        if method == "HEAD" or response.status in (204, 304):
            response.framing = "none"
        elif response.all("transfer-encoding"):
            response.framing = "chunked"
            self._read_chunks(response)
        elif length is not None:
            response.framing = "length"
            body = self._exactly(int(length))
            if body is None:
                response.body = bytes(self.received)
                self.received.clear()
                raise Truncated(response, f"content-length {length}, but {len(response.body)} octets came")
            response.body = body
        else:
            # RFC 9112 9.3: without a length the connection can't persist.
            response.framing = "close"
            response.body = self._all()

    def read_chunk(self):
        """The data of one chunk; b"" for the last one (trailers are left to be read); None at the end."""
        line = self._until(b"\r\n")
        if line is None:
            return None
        if not _CHUNK_SIZE.fullmatch(line):
            raise Malformed(f"chunk size line: {line!r}")
        size = int(line, 16)
        if size == 0:
            return b""
        data = self._exactly(size + 2)
        if data is None:
            return None
        if data[-2:] != b"\r\n":
            raise Malformed(f"chunk data end in {data[-2:]!r}")
        return data[:-2]

    def _read_chunks(self, response):
        while True:
            chunk = self.read_chunk()
            if chunk is None:
                response.body = b"".join(response.chunks)
                raise Truncated(response, "the connection ended before the last chunk")
            if chunk == b"":
                break
            response.chunks.append(chunk)
        response.body = b"".join(response.chunks)
        while True:
            line = self._until(b"\r\n")
            if line is None:
                raise Truncated(response, "the connection ended within the trailers")
            if line == b"":
                return
            response.trailers += _split_fields(line)

    def expect_end(self):
        """Nothing more comes and the server closes. A reset is a fault unless bytes of ours were unread."""
        rest = self._all()
        if rest:
            raise Malformed(f"unexpected octets after the last answer: {rest[:200]!r}")

    def drain(self):
        """Everything up to the end of the stream, unparsed."""
        return self._all()

    def exchange(self, request, method="GET"):
        self.send(request)
        return self.read_response(method)


def connect(address, **options):
    """Connect to an address as the start-up line prints it: http://HOST:PORT or unix:PATH."""
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(HANG)
        sock.connect(address.removeprefix("unix:"))
        return Connection(sock)
    host, port = host_and_port(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(HANG)
    if "receive_buffer" in options:  # before connect: it bounds the window that is announced
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["receive_buffer"])
    sock.connect((host, port))
    return Connection(sock)


def host_and_port(address):
    match = re.fullmatch(r"http://(?:\[([0-9a-f:]+)\]|([^:/]+)):(\d+)/?", address)
    assert match, f"not an address: {address!r}"
    return match[1] or match[2], int(match[3])


def get(path="/", *fields, version="1.1", method="GET"):
    """A request head with a Host; `fields` are whole lines."""
    lines = [f"{method} {path} HTTP/{version}", "Host: a", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def post(path, body, *fields, version="1.1"):
    return get(path, f"Content-Length: {len(body)}", *fields, version=version, method="POST") + body


def chunked(*chunks, trailers=b""):
    """The chunked coding of some data, the last chunk included."""
    coded = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks)
    return coded + b"0\r\n" + trailers + b"\r\n"


def post_chunked(path, *chunks, fields=(), trailers=b""):
    return get(path, "Transfer-Encoding: chunked", *fields, method="POST") + chunked(*chunks, trailers=trailers)
