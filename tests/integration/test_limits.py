"""Each limit, exactly at it and one beyond it.

A request line is measured without its CRLF; a field from the first octet of its name to the last of its
value, without the CRLF; a body by its decoded octets.
"""

import pytest

from harness.wire import get, post, post_chunked

BARE = "probe:application"


def _refused(server, request, statuses, step=None):
    with server.connect() as client:
        client.offer(request + get("/target/smuggled"), step)
        response = client.read_response()
        assert response.status in statuses
        assert response.closes
        client.expect_end()


def _line(length):
    target = b"/target/".ljust(length - len(b"GET  HTTP/1.1"), b"a")
    line = b"GET " + target + b" HTTP/1.1"
    assert len(line) == length
    return line + b"\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("limit", [None, 100, 20_000])
def test_request_line(shared, mode, limit):
    args = ("--limit-request-line", str(limit)) if limit else ()
    limit = limit or 8190
    server = shared(*mode, *args, BARE)
    assert server.fetch(_line(limit)).status == 200
    _refused(server, _line(limit + 1), {414})
    _refused(server, _line(limit + 1), {414}, step=1000)


def test_a_request_line_without_end(shared, mode):
    """It is refused while it grows, not when it ends."""
    with shared(*mode, BARE).connect() as client:
        client.offer(b"GET /" + b"a" * 100_000, 4096)
        assert client.read_response().status == 414
        client.expect_end()


def test_a_method_without_end(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.offer(b"G" * 100_000, 4096)
        assert client.read_response().status in (400, 414, 501)
        client.expect_end()


def _field(length):
    field = b"X-A: ".ljust(length, b"b")
    return b"GET /target/a HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n"


@pytest.mark.parametrize("limit", [None, 100, 20_000])
def test_field_size(shared, mode, limit):
    args = ("--limit-field-size", str(limit)) if limit else ()
    limit = limit or 8190
    server = shared(*mode, *args, BARE)
    assert server.fetch(_field(limit)).status == 200
    _refused(server, _field(limit + 1), {431})
    _refused(server, _field(limit + 1), {431}, step=1000)


def test_a_field_without_end(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.offer(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: " + b"a" * 100_000, 4096)
        assert client.read_response().status == 431
        client.expect_end()


def test_a_field_name_without_end(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.offer(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a" * 100_000, 4096)
        assert client.read_response().status in (400, 431)
        client.expect_end()


def _fields(count):
    return get("/target/a", *(f"X-{n}: v" for n in range(count - 1)))  # Host is one of them


@pytest.mark.parametrize("limit", [None, 5, 1000])
def test_number_of_fields(shared, mode, limit):
    args = ("--limit-fields", str(limit)) if limit else ()
    limit = limit or 100
    server = shared(*mode, *args, BARE)
    assert server.fetch(_fields(limit)).status == 200
    _refused(server, _fields(limit + 1), {431})


def test_fields_without_end(shared, mode):
    with shared(*mode, BARE).connect() as client:
        client.offer(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 50_000, 4096)
        assert client.read_response().status == 431
        client.expect_end()


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_whole_head(shared, mode, beyond):
    """The other limits together would allow 800 KiB for each client that never ends its head: 64 KiB are enough."""
    fields = b"".join((b"X-%03d: " % n).ljust(6000, b"v") + b"\r\n" for n in range(10))
    start = b"GET /target/a HTTP/1.1\r\nHost: a\r\n" + fields
    end = b"\r\n\r\n"
    request = start + b"X-Last: ".ljust(65_536 + beyond - len(start) - len(end), b"v") + end
    assert len(request) == 65_536 + beyond
    server = shared(*mode, BARE)
    if beyond:
        _refused(server, request, {431})
    else:
        assert server.fetch(request).status == 200


def test_the_whole_head_by_option(shared, mode):
    server = shared(*mode, "--limit-head-size", "10000", BARE)
    assert server.fetch(get("/target/a", "X-A: " + "a" * 4000, "X-B: " + "b" * 4000)).status == 200
    _refused(server, get("/target/a", *(f"X-{n}: " + "a" * 4000 for n in range(3))), {431})


def test_body_of_known_length(shared, mode):
    server = shared(*mode, "--limit-body", "1000", BARE)
    with server.connect() as client:
        assert client.exchange(post("/count", b"b" * 1000)).body == b"1000"
        assert client.exchange(post("/count", b"b" * 1000)).body == b"1000"
    _refused(server, post("/count", b"b" * 1001), {413})


def test_body_in_chunks(shared, mode):
    server = shared(*mode, "--limit-body", "1000", BARE)
    with server.connect() as client:
        assert client.exchange(post_chunked("/count", *[b"b" * 100] * 10)).body == b"1000"
        assert client.exchange(post_chunked("/count", b"b" * 1000)).body == b"1000"
    _refused(server, post_chunked("/count", b"b" * 1001), {413})
    _refused(server, post_chunked("/count", *[b"b" * 100] * 10, b"b"), {413})


def test_a_body_in_the_temporary_file_is_limited_too(shared, mode):
    limit = 1 << 20
    server = shared(*mode, "--limit-body", str(limit), BARE)
    assert server.fetch(post("/count", b"b" * limit)).body == str(limit).encode()
    assert server.fetch(post_chunked("/count", *[b"b" * 65_536] * 16)).body == str(limit).encode()
    _refused(server, post("/count", b"b" * (limit + 1)), {413})
    _refused(server, post_chunked("/count", *[b"b" * 65_536] * 16, b"b"), {413})


def test_limits_by_environment(serve, any_mode):
    """Every flag has its M0_ name."""
    from harness.serving import environment

    server = serve(*any_mode, BARE, env=environment(M0_LIMIT_BODY=10, M0_LIMIT_FIELDS=3, M0_LIMIT_REQUEST_LINE=64))
    assert server.fetch(post("/echo", b"0123456789")).status == 200
    assert server.fetch(post("/echo", b"0123456789X")).status == 413
    assert server.fetch(_fields(4)).status == 431
    assert server.fetch(_line(65)).status == 414
