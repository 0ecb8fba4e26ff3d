"""The iterable that a view returns: every shape of it, its exceptions, its close(), its length."""

import pytest

from harness.wire import Closed, Truncated, get

APP = "bodies:application"


def _ask(server, path):
    return server.fetch(get("/" + path))


def _next_is_served(client):
    assert client.exchange(get("/list")).body == b"hello"


SHAPES = {
    # name: (body, the framing it must have, or None for any)
    "list": (b"hello", None),
    "list-one": (b"hello", "length"),
    "list-empty": (b"", None),
    "list-of-empty": (b"", None),
    "list-mixed": (b"hello", None),
    "tuple": (b"hello", None),
    "tuple-one": (b"hello", "length"),
    "tuple-empty": (b"", None),
    "set-one": (b"hello", "length"),
    "iterator": (b"hello", "chunked"),
    "map": (b"hello", "chunked"),
    "generator": (b"hello", "chunked"),
    "generator-empty": (b"", None),
    "generator-of-empty": (b"", None),
    "generator-empty-first": (b"hello", "chunked"),
    "custom": (b"hello", "chunked"),
    "custom-one": (b"hello", "length"),
    "old": (b"old-fashioned", "chunked"),
    "file": (b"hel\nlo\n", "chunked"),
    "exact": (b"hello", "length"),
    "length-zero": (b"", "length"),
    "write": (b"written twice", "chunked"),
    "write-then-return": (b"written and returned", "chunked"),
    "write-with-length": (b"0123456789", "length"),
    "wrapped-bytesio": (b"hello", None),
    "wrapped-bytesio?length=5": (b"hello", "length"),
    "wrapped-blocks": (b"x" * 100_000, None),
    "wrapped-blocks?length=100000": (b"x" * 100_000, "length"),
    "wrapped-least": (b"hello", None),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(shared, mode, name):
    body, framing = SHAPES[name]
    with shared(*mode, APP).connect() as client:
        response = client.exchange(get("/" + name))
        assert (response.status, response.body) == (200, body)
        assert framing in (None, response.framing)
        assert b"" not in response.chunks
        _next_is_served(client)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_to_1_0(shared, mode, name):
    with shared(*mode, APP).connect() as client:
        response = client.exchange(get("/" + name, version="1.0"))
        assert (response.status, response.body) == (200, SHAPES[name][0])
        client.expect_end()


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_to_head(shared, mode, name):
    with shared(*mode, APP).connect() as client:
        client.send(get("/" + name, method="HEAD"))
        assert client.read_response("HEAD").status == 200
        _next_is_served(client)


def test_bytes_as_the_iterable(shared, mode):
    """Iterating it gives numbers, which PEP 3333 doesn't allow: one chunk, or a 500."""
    response = _ask(shared(*mode, APP), "bytes")
    assert response.status == 500 or response.body == b"hello"


LATE = {"late-start": 201, "late-start-after-empty": 202}


@pytest.mark.parametrize("name", LATE)
def test_late_start_response(shared, mode, name):
    """granian #845, waitress #51: the head goes out with the first octets, not before."""
    response = _ask(shared(*mode, APP), name)
    assert (response.status, response.body) == (LATE[name], b"late")
    assert response.one("x-late") == "yes"


def test_exc_info_in_a_generator_before_the_first_octet(shared, mode):
    response = _ask(shared(*mode, APP), "replaced")
    assert (response.status, response.one("x-replaced"), response.body) == (503, "yes", b"replaced")


def test_exc_info_after_the_head_is_raised(shared, mode, gate):
    with shared(*mode, APP).connect() as client:
        client.send(get(f"/too-late?gate={gate.path}"))
        assert gate.next_message() == "same", "PEP 3333: re-raised with its own traceback"
        with pytest.raises(Truncated) as cut:
            client.read_response()
        assert cut.value.response.body == b"first"
        client.expect_end()


INVALID = [
    "none", "number", "list-of-text", "list-of-numbers", "generator-of-text", "text", "never-started",
    "raise-first", "raise-after-empty", "next-fails?gate=G", "iter-fails?gate=G",
]  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_a_fault_before_the_first_octet_is_a_500(shared, mode, gate, name):
    server = shared(*mode, APP)
    before = len(server.stderr.lines)
    with server.connect() as client:
        response = client.exchange(get("/" + name.replace("=G", f"={gate.path}")))
        assert response.status == 500
        assert b"Traceback" not in response.body
        if response.closes:
            client.expect_end()
        else:
            _next_is_served(client)
    assert server.stderr.wait_for(r"\S", after=before)


@pytest.mark.parametrize("name", ["raise-second", "exit-second", "raise-second-with-length", "text-second", "write-then-raise"])
def test_a_fault_within_the_body_cuts_the_connection(shared, mode, name):
    """gunicorn #3410: no second head, no last chunk: the client must see that the body is not whole."""
    server = shared(*mode, APP)
    before = len(server.stderr.lines)
    with server.connect() as client:
        client.send(get("/" + name) + get("/list"))
        with pytest.raises(Truncated) as cut:
            client.read_response()
        assert cut.value.response.status == 200
        assert cut.value.response.body == b"first"
        client.expect_end()
    assert server.stderr.wait_for(r"Traceback|Error", after=before)
    assert _ask(server, "list").body == b"hello"


def test_a_fault_within_the_body_to_1_0(shared, mode):
    """Nothing can tell the client but the close; it must not look like keep-alive."""
    with shared(*mode, APP).connect() as client:
        response = client.exchange(get("/raise-second", "Connection: keep-alive", version="1.0"))
        assert response.body == b"first"
        client.expect_end()


CLOSED = {
    # A name, and whether the body is whole.
    "custom": True,
    "custom-one": True,
    "exact": True,
    "longer": True,
    "longer-chunks": True,
    "length-zero": True,
    "write-with-length": True,
    "wrapped-bytesio": True,
    "wrapped-blocks": True,
    "raise-first": True,
    "raise-after-empty": True,
    "next-fails": True,
    "iter-fails": True,
    "broken-length": None,
    "lying": None,
    "failing-close": True,
    "raise-second": False,
    "exit-second": False,
    "text-second": False,
    "raise-second-with-length": False,
    "shorter": False,
}


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_close_exactly_once(shared, mode, gate, name, method):
    server = shared(*mode, APP)
    with server.connect() as client:
        client.send(get(f"/{name}?gate={gate.path}", method=method))
        try:
            client.read_response(method)
        except Truncated:
            assert CLOSED[name] is not True
        assert gate.next_message() == "closed"
    for _ in range(3):
        assert _ask(server, "list").body == b"hello"
    assert gate.is_empty(), "close() was called again"


@pytest.mark.parametrize("path", ["endless", "endless-with-length"])
@pytest.mark.parametrize("leave", ["close", "reset"])
def test_close_when_the_client_goes(shared, mode, gate, path, leave):
    """waitress #236, flask #6123."""
    server = shared(*mode, APP)
    client = server.connect(receive_buffer=4096)
    client.send(get(f"/{path}?gate={gate.path}"))
    assert client.read_head().status == 200
    getattr(client, leave)()
    assert gate.next_message() == "closed"
    assert _ask(server, "list").body == b"hello"
    assert gate.is_empty()


def test_close_when_the_client_goes_while_the_view_waits(shared, mode, gate):
    """The client is gone before the next chunk is made."""
    server = shared(*mode, "probe:application")
    client = server.connect()
    client.send(get(f"/hold-between?gate={gate.path}"))
    assert client.read_head().status == 200
    visit = gate.next()
    client.reset()
    visit.release()
    assert server.fetch(get()).body == b"hello"


def test_close_for_statuses_without_a_body(shared, mode, gate):
    """Their body is dropped, not the duty to close it."""
    server = shared(*mode, APP)
    with server.connect() as client:
        client.send(get(f"/custom?gate={gate.path}", method="HEAD"))
        client.read_response("HEAD")
        assert gate.next_message() == "closed"
        _next_is_served(client)
    assert gate.is_empty()


def test_chunks_go_out_as_they_come(shared, mode, gate):
    """PEP 3333: the server must not delay a block until the next is asked for."""
    with shared(*mode, "probe:application").connect() as client:
        client.send(get(f"/hold-between?gate={gate.path}"))
        assert client.read_head().one("transfer-encoding") == "chunked"
        visit = gate.next()
        assert client.read_chunk() == b"first"
        visit.release()
        assert client.read_chunk() == b"second"
        assert client.read_chunk() == b""


def test_written_data_goes_out_at_once(shared, mode, gate):
    """PEP 3333: write() has passed the data on before it returns, the head with it."""
    with shared(*mode, APP).connect() as client:
        client.send(get(f"/write-then-hold?gate={gate.path}"))
        visit = gate.next()
        assert client.read_head().status == 200
        assert client.read_chunk() == b"first"
        visit.release()
        assert client.read_chunk() == b"second"
        assert client.read_chunk() == b""


def test_write_wants_bytes(shared, mode):
    assert _ask(shared(*mode, APP), "write-text").body == b"TypeError"


@pytest.mark.parametrize("name", ["longer", "longer-chunks", "longer-list"])
def test_a_body_longer_than_announced_is_cut(shared, mode, name):
    """gunicorn 27.0.0's notes. What is beyond the length must never be read as the next answer."""
    with shared(*mode, APP).connect() as client:
        client.send(get("/" + name))
        response = client.read_response()
        assert (response.status, response.body) == (200, b"hel")
        try:
            _next_is_served(client)
        except (Closed, BrokenPipeError, ConnectionResetError):
            assert response.closes


@pytest.mark.parametrize("name", ["shorter", "shorter-list", "shorter-empty"])
def test_a_body_shorter_than_announced_ends_the_connection(shared, mode, name):
    """The next answer must not fill up this one. A fault known before the head may also become a 500."""
    with shared(*mode, APP).connect() as client:
        client.send(get("/" + name) + get("/list"))
        try:
            response = client.read_response()
            assert response.status == 500
        except Truncated as cut:
            assert cut.response.status == 200
            assert cut.response.body in (b"hello", b"")
            client.expect_end()


@pytest.mark.parametrize("name", ["lying", "broken-length"])
def test_a_length_that_is_not_one_harms_no_framing(shared, mode, name):
    """PEP 3333 lets a server believe len(): then the announced length rules, else all chunks come."""
    with shared(*mode, APP).connect() as client:
        client.send(get("/" + name) + get("/list"))
        response = client.read_response()
        if response.status == 200:
            assert response.body in (b"one", b"onetwothree", b"hello")
        if response.closes:
            client.expect_end()
        else:
            assert client.read_response().body == b"hello"


def test_a_close_that_fails_spoils_no_answer(shared, mode):
    server = shared(*mode, APP)
    before = len(server.stderr.lines)
    with server.connect() as client:
        assert client.exchange(get("/failing-close")).body == b"hello"
    assert server.stderr.wait_for(r"close\(\) failed", after=before)
    assert _ask(server, "list").status == 200


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
@pytest.mark.parametrize("length", [True, False])
def test_file_wrapper_with_a_file(shared, mode, tmp_path, size, length):
    data = bytes(n % 251 for n in range(1000)) * (size // 1000 + 1)
    data = data[:size]
    path = tmp_path / "file"
    path.write_bytes(data)
    query = f"/wrapped-file?path={path}" + (f"&length={size}" if length else "")
    with shared(*mode, APP).connect() as client:
        response = client.exchange(get(query))
        assert (response.status, response.body) == (200, data)
        _next_is_served(client)


def test_file_wrapper_starts_where_the_file_stands(shared, mode, tmp_path):
    """PEP 3333: transmission begins at the file's current position."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert _ask(shared(*mode, APP), f"wrapped-file?path={path}&offset=4").body == b"456789"


@pytest.mark.parametrize("length", [3, 20])
def test_file_wrapper_keeps_to_the_length(shared, mode, tmp_path, length):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with shared(*mode, APP).connect() as client:
        client.send(get(f"/wrapped-file?path={path}&length={length}") + get("/list"))
        if length < 10:
            assert client.read_response().body == b"012"
        else:
            with pytest.raises(Truncated):
                client.read_response()
            client.expect_end()
