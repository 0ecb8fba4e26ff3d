"""Requests that must be served: the freedom that RFC 9110 and RFC 9112 leave to a client."""

import json

import pytest

from harness.wire import chunked, get, post, post_chunked

BARE = "probe:application"


def _served(server, request, method="GET"):
    with server.connect() as client:
        return client.exchange(request, method)


ACCEPTED = {
    # RFC 9112 2.2: an empty line or two before the request line is ignored.
    "leading-crlf": b"\r\nGET /target/a HTTP/1.1\r\nHost: a\r\n\r\n",
    # RFC 9110 5.5: whitespace around values is not part of them.
    "no-space": b"GET /target/a HTTP/1.1\r\nHost:a\r\n\r\n",
    "many-spaces": b"GET /target/a HTTP/1.1\r\nHost: \t a \t \r\n\r\n",
    "tab-inside": b"GET /target/a HTTP/1.1\r\nHost: a\r\nX-A: b\tc\r\n\r\n",
    "empty-value": b"GET /target/a HTTP/1.1\r\nHost: a\r\nX-A:\r\nX-B: \r\n\r\n",
    "case-of-names": b"GET /target/a HTTP/1.1\r\nhOsT: a\r\ncOnNeCtIoN: kEEp-AlIVe\r\n\r\n",
    "obs-text": b"GET /target/a HTTP/1.1\r\nHost: a\r\nX-A: caf\xe9 \xff\x80\r\n\r\n",
    # RFC 9110 5.6.2: all of tchar.
    "odd-names": b"GET /target/a HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~09azAZ: b\r\n\r\n",
    "host-port": b"GET /target/a HTTP/1.1\r\nHost: a.example:8080\r\n\r\n",
    "host-ipv6": b"GET /target/a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    # RFC 9110 2.5: a higher minor version is served as ours.
    "version-1.2": b"GET /target/a HTTP/1.2\r\nHost: a\r\n\r\n",
    # RFC 9112 6.3 (5) allows equal lengths once reduced; a server may also refuse.
    "get-with-length": b"GET /target/a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "length-leading-zeros": b"GET /target/a HTTP/1.1\r\nHost: a\r\nContent-Length: 0005\r\n\r\nhello",
    "length-zero": b"GET /target/a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "get-chunked": b"GET /target/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"hello"),
    "te-case": b"GET /target/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n" + chunked(b"hello"),
    "te-spaces": b"GET /target/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \t chunked \r\n\r\n" + chunked(b"hello"),
    "te-field": b"GET /target/a HTTP/1.1\r\nHost: a\r\nTE: trailers, deflate\r\n\r\n",
    # RFC 9110 7.8: an upgrade that is not offered is ignored.
    "upgrade": b"GET /target/a HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n\r\n",
    "connection-list": b"GET /target/a HTTP/1.1\r\nHost: a\r\nConnection: , keep-alive,, x-a ,\r\n\r\n",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_and_the_connection_goes_on(shared, mode, name):
    with shared(*mode, BARE).connect() as client:
        response = client.exchange(ACCEPTED[name])
        assert (response.status, response.body) == (200, b"GET /target/a?")
        assert not response.closes
        assert client.exchange(get("/target/next")).body == b"GET /target/next?"


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_byte_by_byte(shared, any_mode, name):
    with shared(*any_mode, BARE).connect() as client:
        client.offer(ACCEPTED[name], 1)
        assert client.read_response().body == b"GET /target/a?"


@pytest.mark.parametrize("method", ["get", "BREW", "M-SEARCH", "PATCH", "DELETE", "PROPFIND", "A!#$%&'*+-.^_`|~1", "X" * 32])
def test_any_token_is_a_method(shared, mode, method):
    response = shared(*mode, BARE).fetch(get("/target/a", method=method), method)
    assert response.body == f"{method} /target/a?".encode()


def test_options_asterisk(shared, mode):
    """RFC 9112 3.2.4. What the path is then, PEP 3333 doesn't say: it must be answered, and not crash."""
    response = shared(*mode, BARE).fetch(get("*", method="OPTIONS"))
    assert response.status < 500


ABSOLUTE = {
    "host-replaced": (b"GET http://b.example:81/target/a?q=1 HTTP/1.1\r\nHost: ignored\r\n\r\n", "b.example:81"),
    "scheme-case": (b"GET HTTP://b.example/target/a?q=1 HTTP/1.1\r\nHost: b.example\r\n\r\n", "b.example"),
    "https": (b"GET https://b.example/target/a?q=1 HTTP/1.1\r\nHost: b.example\r\n\r\n", "b.example"),
    "ipv6": (b"GET http://[::1]:81/target/a?q=1 HTTP/1.1\r\nHost: [::1]:81\r\n\r\n", "[::1]:81"),
}


@pytest.mark.parametrize("name", ABSOLUTE)
def test_absolute_form(shared, mode, name):
    """RFC 9112 3.2.2: must be accepted; its authority replaces what Host said."""
    request, host = ABSOLUTE[name]
    request = request.replace(b"/target/a", b"/environ")
    environ = json.loads(shared(*mode, BARE).fetch(request).body)["environ"]
    assert environ["HTTP_HOST"] == ["str", host]
    assert environ["PATH_INFO"] == ["str", "/environ"]
    assert environ["QUERY_STRING"] == ["str", "q=1"]


def test_absolute_form_without_a_path(shared, mode):
    """RFC 9112 3.2.1: an empty path is sent on as `/`."""
    assert shared(*mode, BARE).fetch(b"GET http://b.example HTTP/1.1\r\nHost: b.example\r\n\r\n").body == b"hello"


def test_equal_lengths_are_one_or_refused(shared, mode):
    """RFC 9112 6.3 (5): either reading is right, a third is not."""
    for fields in ("Content-Length: 5\r\nContent-Length: 5", "Content-Length: 5, 5"):
        with shared(*mode, BARE).connect() as client:
            client.offer(f"POST /echo HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\nhello".encode() + get("/target/next"))
            response = client.read_response()
            if response.status == 200:
                assert response.body == b"hello"
                assert client.read_response().body == b"GET /target/next?"
            else:
                assert response.status == 400
                client.expect_end()


BODIES = {
    "empty": [],
    "one": [b"hello"],
    "two": [b"hel", b"lo"],
    "one-octet-each": [bytes([n]) for n in b"a longer text, octet by octet"],
    "sixteen": [b"x" * 16, b"y" * 255, b"z" * 4096],
    "crlf-inside": [b"\r\n0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"],
    "large": [b"l" * 100_000, b"m" * 700_000],
}


@pytest.mark.parametrize("name", BODIES)
def test_chunked_body(shared, mode, name):
    chunks = BODIES[name]
    with shared(*mode, BARE).connect() as client:
        assert client.exchange(post_chunked("/echo", *chunks)).body == b"".join(chunks)
        assert client.exchange(get("/target/next")).body == b"GET /target/next?"


CODINGS = {
    "extension": b"5;name=value\r\nhello\r\n0\r\n\r\n",
    "extension-quoted": b'5;name="a;b\\"c"\r\nhello\r\n0\r\n\r\n',
    "extension-bare": b"5;name\r\nhello\r\n0;last\r\n\r\n",
    "extensions": b"5;a=1;b=2;c\r\nhello\r\n0\r\n\r\n",
    "leading-zeros": b"0005\r\nhello\r\n000\r\n\r\n",
    "trailer": b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n",
    "trailers": b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\nX-Other:\r\n\r\n",
    # RFC 9110 6.5.1: a trailer must never act as a header.
    "trailer-framing": b"5\r\nhello\r\n0\r\nContent-Length: 50\r\nTransfer-Encoding: x\r\nHost: b\r\n\r\n",
}


@pytest.mark.parametrize("name", CODINGS)
@pytest.mark.parametrize("step", [None, 1])
def test_chunked_codings(shared, mode, name, step):
    with shared(*mode, BARE).connect() as client:
        client.offer(get("/echo", "Transfer-Encoding: chunked", method="POST") + CODINGS[name], step)
        assert client.read_response().body == b"hello"
        assert client.exchange(get("/target/next")).body == b"GET /target/next?"


@pytest.mark.parametrize("digits", [b"a", b"A"])
def test_chunk_sizes_in_either_case(shared, mode, digits):
    body = digits + b"\r\n0123456789\r\n0\r\n\r\n"
    response = shared(*mode, BARE).fetch(get("/echo", "Transfer-Encoding: chunked", method="POST") + body)
    assert response.body == b"0123456789"


def test_a_trailer_is_not_a_header(shared, mode):
    request = post_chunked("/environ", b"hello", trailers=b"X-Trailer: 1\r\nX-Forwarded-For: evil\r\n")
    environ = json.loads(shared(*mode, BARE).fetch(request).body)["environ"]
    assert not {"HTTP_X_TRAILER", "HTTP_X_FORWARDED_FOR"} & set(environ)


@pytest.mark.parametrize("size", [1, 100, 8190, 65_536, 524_287, 524_288, 524_289, 3_000_000])
def test_bodies_of_known_length(shared, mode, size):
    """In memory, at the border to the temporary file (512 KiB), and in the file."""
    body = bytes(n & 255 for n in range(256)) * (size // 256 + 1)
    with shared(*mode, BARE).connect() as client:
        assert client.exchange(post("/echo", body[:size])).body == body[:size]
        assert client.exchange(get("/target/next")).body == b"GET /target/next?"


def test_an_unread_body_is_not_the_next_request(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.send(post("/unread", b"GET /target/smuggled HTTP/1.1\r\nHost: a\r\n\r\n") + get("/target/next"))
        assert client.read_response().body == b"unread"
        assert client.read_response().body == b"GET /target/next?"


@pytest.mark.parametrize("path", ["/", "/stream", "/sized", "/environ", "/fail", "/block?size=3000000"])
def test_head_is_get_without_the_body(shared, mode, path):
    """RFC 9110 9.3.2: nothing follows the head; the fields may only be those of GET."""
    server = shared(*mode, BARE)
    with server.connect() as client:
        of_get = client.exchange(get(path))
    with server.connect() as client:
        client.send(get(path, method="HEAD"))
        of_head = client.read_response("HEAD")
        assert of_head.status == of_get.status
        lengths = {of_head.one("content-length"), of_get.one("content-length")} - {None}
        assert len(lengths) <= 1 or path == "/environ"
        if of_head.closes:
            client.expect_end()
        else:
            assert client.exchange(get("/target/next")).body == b"GET /target/next?"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
@pytest.mark.parametrize("length", [None, "4"])
def test_statuses_without_a_body(shared, mode, status, length):
    """RFC 9110 15.3.5 and 15.4.5, RFC 9112 6.3 (1): the head's empty line is the end, whatever the view returned."""
    path = "/status?status=" + status.replace(" ", "+") + (f"&length={length}" if length else "")
    with shared(*mode, BARE).connect() as client:
        response = client.exchange(get(path))
        assert (response.status, response.body) == (int(status[:3]), b"")
        assert not response.all("transfer-encoding")
        assert client.exchange(get("/target/next")).body == b"GET /target/next?"


def test_205_has_no_content(shared, mode):
    """RFC 9110 15.3.6: a server must not generate content in a 205; its length is 0 then."""
    with shared(*mode, BARE).connect() as client:
        response = client.exchange(get("/status?status=205+Reset+Content&length=0"))
        assert response.status == 205
