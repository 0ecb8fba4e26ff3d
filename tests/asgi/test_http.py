"""Requests and responses over HTTP: receive, send, their order, and what goes wrong."""

import contextlib
import socket

import pytest
from asking import BARE, descriptors_settle, fetch, fetch_json, forget_reports, report, wait_for
from harness import wire
from harness.proc import open_descriptors
from harness.serving import environment

# -- request bodies ------------------------------------------------------------------------------


def summed(data):
    return f"len={len(data)} sum={sum(data)}\n".encode()


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 65537, 1_000_000])
def test_bodies_arrive_whole(bare, size):
    data = bytes(i % 251 for i in range(size))
    with bare.connect() as connection:
        assert connection.exchange(wire.post("/read", data)).body == summed(data)
        pieces = [piece for piece in (data[: size // 3], data[size // 3 :]) if piece]
        assert connection.exchange(wire.post_chunked("/read", *pieces)).body == summed(data)
        assert connection.exchange(wire.get("/")).body == b"Hello, World!"


def test_a_small_body_is_one_message(bare):
    response = bare.fetch(wire.post("/read", b"x" * 1000))
    assert response.one("x-pieces") == "1"


def test_chunks_that_came_together_are_received_together(bare):
    response = bare.fetch(wire.post_chunked("/read", *[b"x" * 10] * 50))
    assert response.body == summed(b"x" * 500)
    assert int(response.one("x-pieces")) <= 2


def test_a_body_is_received_while_it_comes(bare):
    with bare.connect() as connection:
        connection.send(b"POST /echo/stream HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst")
        head = connection.read_head()
        assert head.status == 200
        assert connection.read_chunk() == b"first"
        connection.send(b"later")
        assert connection.read_chunk() == b"later"


def test_answers_of_a_burst_do_not_wait_for_requests_that_go_on(bare):
    with contextlib.ExitStack() as stack:
        short, going_on = ([stack.enter_context(bare.connect()) for _ in range(8)] for _ in range(2))
        for _ in range(30):
            for one, other in zip(short, going_on):
                one.send(wire.get("/"))
                other.send(b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
            for one in short:
                assert one.read_response().body == b"Hello, World!"
            for other in going_on:
                other.send(b"x")
                assert other.read_response().body == summed(b"x")


def test_a_client_sends_no_faster_than_it_is_received(lone):
    """Reading pauses with the application: a client cannot fill the server's memory."""
    with lone.connect() as connection:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        size = 64 * 1024 * 1024
        connection.send(f"POST /read/slowly?ms=20 HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode())
        connection.sock.setblocking(False)
        sent = 0
        wait_for(lambda: _fill(connection.sock) == 0, "a full socket")
        with pytest.raises(BlockingIOError):
            for _ in range(1000):
                sent += connection.sock.send(b"x" * 65536)
        assert sent < size
        connection.reset()


def _fill(sock):
    """Sends until the socket is full; how much that was."""
    sent = 0
    try:
        while sent < 1 << 24:
            sent += sock.send(b"x" * 65536)
    except BlockingIOError:
        return sent
    return sent


@pytest.mark.parametrize("size", [100, 200_000, 3_000_000])
def test_what_is_not_read_is_out_of_the_next_requests_way(bare, size):
    with bare.connect() as connection:
        data = b"GET / HTTP/1.1\r\n\r\n" * (size // 18)
        connection.offer(wire.post("/read/none", data))
        response = connection.read_response()
        assert response.body == b"not read\n"
        if not response.closes:
            assert connection.exchange(wire.get("/")).body == b"Hello, World!"


def test_pipelined_requests_are_answered_in_order(bare):
    with bare.connect() as connection:
        connection.send(wire.post("/echo", b"one") + wire.get("/slow?ms=30") + wire.post_chunked("/echo", b"t", b"wo") + wire.get("/"))
        bodies = [connection.read_response().body for _ in range(4)]
    assert bodies == [b"one", b"slept 30 ms\n", b"two", b"Hello, World!"]


def test_receive_says_disconnect_after_the_response(lone):
    forget_reports(lone)
    lone.fetch(wire.post("/receive_after", b"x"))
    assert report(lone, "http.disconnect") == ["http.disconnect", "http.disconnect"]


def test_receive_and_send_as_tasks(bare):
    assert bare.fetch(wire.post("/as_tasks", b"payload")).body == b"http.request payload\n"


# -- 100-continue --------------------------------------------------------------------------------

EXPECTING = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"


def test_continue_is_sent_when_the_body_is_asked_for(bare):
    with bare.connect() as connection:
        connection.send(EXPECTING % b"/read")
        assert connection.read_head().status == 100
        connection.send(b"hello")
        response = connection.read_response()
        assert response.body == summed(b"hello")
        assert connection.exchange(wire.get("/")).status == 200


def test_continue_is_not_sent_if_the_body_is_not_wanted(bare):
    with bare.connect() as connection:
        connection.send(EXPECTING % b"/read/none")
        response = connection.read_response()
        assert response.status == 200 and response.interim == []
        # Whether the body follows is not known: the connection can't be kept.
        assert response.closes


def test_continue_is_not_sent_to_one_that_did_not_wait(bare):
    with bare.connect() as connection:
        connection.send(EXPECTING % b"/read" + b"hello")
        response = connection.read_response()
        assert response.body == summed(b"hello") and response.interim == []


# -- response bodies -----------------------------------------------------------------------------


def test_a_whole_response_has_a_length(bare):
    response = fetch(bare, "/headers")
    assert response.framing == "length"
    assert fetch(bare, "/scope").framing == "length"


def test_streams_are_chunked_or_counted(bare):
    assert fetch(bare, "/stream").framing == "chunked"
    assert fetch(bare, "/stream?length=1").framing == "length"
    with bare.connect() as connection:
        connection.send(b"GET /stream HTTP/1.0\r\n\r\n")
        response = connection.read_response()
        assert (response.framing, response.body) == ("close", b"Hello, World!" * 3)


def test_the_head_does_not_wait_for_the_body(bare):
    with bare.connect() as connection:
        connection.send(wire.get("/head_first?ms=3000"))
        assert connection.read_head().status == 200


@pytest.mark.parametrize("code", [200, 204, 304, 404, 500])
def test_head_and_bodiless_answers(bare, code):
    with bare.connect() as connection:
        response = connection.exchange(wire.get(f"/status?code={code}", method="HEAD"), "HEAD")
        assert (response.status, response.body) == (code, b"")
        response = connection.exchange(wire.get(f"/status?code={code}"))
        assert response.body == (b"" if code in (204, 304) else b"a body\n")
        assert connection.exchange(wire.get("/")).status == 200


def test_two_fields_of_one_name_stay_two(bare):
    assert fetch(bare, "/cookies").all("set-cookie") == ["a=1", "b=2; Path=/"]


def test_a_body_longer_than_announced_is_cut(bare):
    with bare.connect() as connection:
        connection.send(wire.get("/announced?length=3&size=9"))
        assert connection.read_response().body == b"xxx"
        assert connection.exchange(wire.get("/")).body == b"Hello, World!"


def test_a_body_shorter_than_announced_ends_the_connection(bare):
    with bare.connect() as connection:
        connection.send(wire.get("/announced?length=9&size=3") + wire.get("/"))
        with pytest.raises(wire.Truncated) as cut:
            connection.read_response()
        assert cut.value.response.body == b"xxx"


def test_the_connection_goes_on_while_the_application_does(lone):
    """What a framework runs in the background does not hold up the next request."""
    forget_reports(lone)
    with lone.connect() as connection:
        assert connection.exchange(wire.get("/background?ms=300")).status == 200
        assert connection.exchange(wire.get("/")).status == 200
    assert report(lone, "background") == ["background", "done"]


def test_a_slow_reader_stops_the_sender(lone):
    """Backpressure: an endless response does not grow in memory; the others are served meanwhile."""
    from harness.proc import rss_kb

    forget_reports(lone)
    fetch(lone, "/")
    before = rss_kb(lone.pid)
    with lone.connect() as connection:
        connection.send(wire.get("/endless"))
        connection.read_head()
        for _ in range(50):
            assert fetch(lone, "/").status == 200
        assert rss_kb(lone.pid) - before < 8 * 1024
        connection.reset()
    assert report(lone, "endless")[1] == "OSError"


# -- disconnects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize("path", ["/until_disconnect", "/wait_for_disconnect"])
def test_receive_says_disconnect_at_once(lone, path, how):
    forget_reports(lone)
    connection = lone.connect()
    connection.send(wire.get(path))
    if path == "/until_disconnect":
        assert connection.read_head().status == 200
    else:
        # It waits: another request's answer shows that the loop has come by.
        fetch(lone, "/")
    getattr(connection, how)()
    assert report(lone, path[1:]) == [path[1:], "http.disconnect"]
    connection.close()


def test_send_raises_oserror_once_the_client_is_gone(lone):
    forget_reports(lone)
    lines = len(lone.stderr.lines)
    connection = lone.connect()
    connection.send(wire.get("/drip?n=100&ms=2"))
    connection.read_head()
    connection.close()
    assert report(lone, "drip") == ["drip", True, ["BrokenPipeError"]]
    assert not any("Traceback" in line for line in lone.stderr.lines[lines:])


def test_a_half_closed_client_gets_its_answer(bare):
    with bare.connect() as connection:
        connection.send(wire.post("/echo", b"all of it"))
        connection.half_close()
        assert connection.read_response().body == b"all of it"
        connection.expect_end()


def test_a_client_that_leaves_in_its_body(lone):
    """The application hears of it; nobody is answered."""
    with lone.connect() as connection:
        connection.send(b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
        fetch(lone, "/")
        connection.half_close()
        connection.expect_end()
    assert fetch(lone, "/").status == 200


def test_connections_come_back_after_resets(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE)
    fetch(server, "/")
    base = open_descriptors(server.pid)
    for path in ["/endless", "/wait_for_disconnect", "/slow?ms=50", "/until_disconnect"] * 10:
        connection = server.connect()
        connection.send(wire.get(path))
        if path in ("/endless", "/until_disconnect"):
            connection.read_head()
        connection.reset()
    descriptors_settle(server, base)


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/error", "/error/started", "/error/later", "/error/exit", "/error/exit_later"])
def test_an_exception_before_the_answer_is_a_500(bare, path):
    lines = len(bare.stderr.lines)
    response = fetch(bare, path)
    assert response.status == 500
    assert bare.stderr.wait_for(rf"the application failed on GET {path}$", after=lines)
    assert bare.stderr.wait_for(r"(Deliberate|SystemExit): ", after=lines)
    assert fetch(bare, "/").status == 200


@pytest.mark.parametrize("path", ["/error/body", "/error/unfinished"])
def test_an_exception_in_the_body_cuts_it(bare, path):
    with bare.connect() as connection:
        connection.send(wire.get(path))
        with pytest.raises(wire.Truncated) as cut:
            connection.read_response()
        assert cut.value.response.body == b"one "


def test_an_exception_in_the_body_of_a_close_delimited_answer_resets(bare):
    """Cut short it would pass for whole."""
    with bare.connect() as connection:
        connection.send(b"GET /error/body HTTP/1.0\r\n\r\n")
        connection.read_head()
        with pytest.raises(ConnectionResetError):
            while connection.sock.recv(4096):
                pass


@pytest.mark.parametrize("path, said", [("/error/none", "without a response"), ("/error/cancelled", "cancelled")])
def test_no_answer_at_all_is_a_500_and_said(bare, path, said):
    lines = len(bare.stderr.lines)
    assert fetch(bare, path).status == 500
    assert bare.stderr.wait_for(rf"{said} on GET {path}", after=lines)


def test_an_exception_after_the_answer_is_for_the_log(bare):
    lines = len(bare.stderr.lines)
    with bare.connect() as connection:
        assert connection.exchange(wire.get("/error/after")).body == b"complete\n"
        assert connection.exchange(wire.get("/")).status == 200
    assert bare.stderr.wait_for("an error after the response", after=lines)


@pytest.mark.parametrize(
    "kind_of_mistake, error",
    [
        ("body_first", "RuntimeError"),
        ("start_twice", "RuntimeError"),
        ("no_type", "ValueError"),
        ("no_status", "ValueError"),
        ("unknown_type", "RuntimeError"),
        ("bad_status", "ValueError"),
        ("interim_status", "ValueError"),
        ("status_text", "TypeError"),
        ("header_crlf", "ValueError"),
        ("header_str", "TypeError"),
        ("header_triple", "ValueError"),
        ("header_name", "ValueError"),
        ("headers_number", "TypeError"),
        ("body_str", "TypeError"),
        ("not_a_dict", "TypeError"),
        ("websocket", "RuntimeError"),
        ("trailers", "RuntimeError"),
    ],
)
def test_mistakes_are_told_by_send(bare, kind_of_mistake, error):
    response = fetch(bare, f"/mistake?kind={kind_of_mistake}")
    assert response.status == 200
    assert response.body.startswith(error.encode() + b": "), response.body
    assert not response.all("x-injected")


def test_send_after_the_end(lone):
    forget_reports(lone)
    assert fetch(lone, "/send_after").body == b"complete\n"
    assert report(lone, "send_after") == ["send_after", "RuntimeError"]


def test_kept_callables_do_not_reach_another_request(lone):
    with lone.connect() as connection:
        assert connection.exchange(wire.get("/keep")).body == b"kept\n"
        assert connection.exchange(wire.get("/use_kept")).body == b"http.disconnect RuntimeError\n"


def test_send_belongs_to_its_thread(bare):
    assert fetch(bare, "/foreign_thread").body == b"RuntimeError\n"


# -- limits and time-outs ------------------------------------------------------------------------


def test_a_body_beyond_the_limit(shared, one_thread):
    server = shared("app:app", "--limit-body", "1000", *one_thread, app_dir=BARE)
    with server.connect() as connection:
        connection.offer(wire.post("/read", b"x" * 1001))
        assert connection.read_response().status == 413
    with server.connect() as connection:
        connection.send(b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1f4\r\n" + b"x" * 500 + b"\r\n")
        fetch(server, "/")
        connection.offer(b"1f5\r\n" + b"x" * 501 + b"\r\n0\r\n\r\n")
        response = connection.read_response()
        assert (response.status, response.closes) == (413, True)
    assert server.fetch(wire.post("/read", b"x" * 1000)).body == summed(b"x" * 1000)


def test_a_malformed_body(bare):
    with bare.connect() as connection:
        connection.send(b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")
        assert connection.read_response().status == 400


def test_a_malformed_body_after_the_answer_began(bare):
    with bare.connect() as connection:
        connection.send(b"POST /echo/stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        assert connection.read_head().status == 200
        assert connection.read_chunk() == b"a"
        connection.send(b"xyz\r\n")
        # The end, without a last chunk.
        assert connection.read_chunk() is None


def test_a_body_that_does_not_come(shared, one_thread):
    server = shared("app:app", "--timeout-body", "0.3", *one_thread, app_dir=BARE)
    with server.connect() as connection:
        connection.send(b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
        response = connection.read_response()
        assert (response.status, response.closes) == (408, True)
    # Waiting for the application counts for nothing.
    with server.connect() as connection:
        assert connection.exchange(wire.post("/slow?ms=700", b"")).status == 200


def test_a_client_that_does_not_read(shared, one_thread):
    server = shared("app:app", "--timeout-write", "0.3", *one_thread, app_dir=BARE)
    forget_reports(server)
    with server.connect() as connection:
        connection.send(wire.get("/endless"))
        connection.read_head()
        assert report(server, "endless")[1] == "OSError"


def test_idle_connections_time_out(shared, one_thread):
    server = shared("app:app", "--timeout-idle", "0.3", *one_thread, app_dir=BARE)
    with server.connect() as connection:
        assert connection.exchange(wire.get("/")).status == 200
        connection.expect_end()


# -- extensions ----------------------------------------------------------------------------------

def numbers(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize("size", [0, 1, 100_000, 20_000_000])
@pytest.mark.parametrize("length", ["", "&length=1"])
def test_pathsend(bare, size, length):
    with bare.connect() as connection:
        response = connection.exchange(wire.get(f"/pathsend?size={size}{length}"))
        assert response.framing == "length"
        assert response.body == numbers(size)
        assert connection.exchange(wire.get("/")).status == 200


def test_pathsend_of_nothing(bare):
    lines = len(bare.stderr.lines)
    assert fetch(bare, "/pathsend?path=/nowhere/at/all").status == 500
    assert bare.stderr.wait_for("FileNotFoundError", after=lines)
    assert fetch(bare, "/pathsend?path=/").status == 500


def test_pathsend_to_head(bare):
    with bare.connect() as connection:
        response = connection.exchange(wire.get("/pathsend?length=1", method="HEAD"), "HEAD")
        assert response.one("content-length") == "100000"
        assert connection.exchange(wire.get("/")).status == 200


def test_pathsend_to_a_slow_reader(lone):
    with lone.connect() as connection:
        connection.send(wire.get("/pathsend?size=20000000"))
        head = connection.read_head()
        assert head.status == 200
        for _ in range(20):
            assert fetch(lone, "/").status == 200
        body = connection._exactly(20_000_000)
        assert bytes(body) == numbers(20_000_000)


def test_zerocopysend(bare):
    size = 3_000_000
    response = fetch(bare, f"/zerocopysend?size={size}")
    whole = numbers(size)
    assert response.framing == "chunked"
    assert response.body == whole[size // 2 :] + whole[: size // 2]


def test_early_hints(bare):
    with bare.connect() as connection:
        connection.send(wire.get("/early_hint"))
        hint = connection.read_head()
        assert hint.status == 103
        assert hint.all("link") == ["</style.css>; rel=preload; as=style", "</a.js>; rel=preload"]
        response = connection.read_response()
        assert (response.status, response.body) == (200, b"hinted\n")
    with bare.connect() as connection:
        connection.send(b"GET /early_hint HTTP/1.0\r\n\r\n")
        response = connection.read_response()
        assert (response.status, response.interim) == (200, [])


def test_trailers(bare):
    with bare.connect() as connection:
        response = connection.exchange(wire.get("/trailers", "TE: trailers"))
        assert response.framing == "chunked"
        assert response.body == b"with trailers\n"
        assert response.trailers == [(b"x-sum", b"1"), (b"x-count", b"2")]
        assert connection.exchange(wire.get("/")).status == 200


# -- many at once --------------------------------------------------------------------------------


def test_waiting_requests_leave_others_alone(bare):
    with bare.connect() as slow, bare.connect() as fast:
        slow.send(wire.get("/slow?ms=3000"))
        for _ in range(100):
            assert fast.exchange(wire.get("/")).status == 200


def test_two_hundred_at_once(bare):
    connections = [bare.connect() for _ in range(200)]
    try:
        for number, connection in enumerate(connections):
            connection.send(wire.post(f"/echo?n={number}", str(number).encode() * 1000))
        for number, connection in enumerate(connections):
            assert connection.read_response().body == str(number).encode() * 1000
    finally:
        for connection in connections:
            connection.close()


def test_the_loop_that_was_asked_for_runs(bare, kind):
    assert fetch_json(bare, "/whoami")["loop"].split(".")[0] == kind[1]
    assert bare.stderr.wait_for(rf"asgi · {kind[1]}")


# -- around the application ----------------------------------------------------------------------


def test_health_is_answered_without_the_application(shared, one_thread):
    server = shared("app:app", "--health-path", "/up", *one_thread, app_dir=BARE)
    with server.connect() as connection:
        assert connection.exchange(wire.get("/up")).status == 200
        connection.send(wire.post("/up", b"x" * 1000))
        connection.read_response()
        assert connection.exchange(wire.get("/")).body == b"Hello, World!"


def test_the_access_log(serve, one_thread, tmp_path):
    path = tmp_path / "access.log"
    text = '%(m)s %(U)s %(s)s %(B)s %({x-own}i)s %({content-type}o)s'
    server = serve("app:app", "--access-log", path, "--access-log-format", text, *one_thread, app_dir=BARE)
    fetch(server, "/", "X-Own: 1")
    server.fetch(wire.post("/echo", b"x" * 70_000))
    fetch(server, "/pathsend?size=100000")
    fetch(server, "/error")
    fetch(server, "/stream")
    server.ended_by_test = True
    assert server.stop() == 0
    assert path.read_text().splitlines() == [
        "GET / 200 13 1 text/plain",
        "POST /echo 200 70000 - application/octet-stream",
        "GET /pathsend 200 100000 - application/octet-stream",
        "GET /error 500 22 - -",
        "GET /stream 200 39 - text/plain; charset=utf-8",
    ]


def test_asyncio_in_debug_mode(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE, env=environment(PYTHONASYNCIODEBUG="1"))
    for path in ("/", "/slow?ms=5", "/stream?ms=1", "/in_thread?ms=5", "/background?ms=1"):
        assert fetch(server, path).status == 200
    assert server.fetch(wire.post("/read", b"x" * 100_000)).status == 200
