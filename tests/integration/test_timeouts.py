"""Deadlines for head, body, idle and write. Each test waits for the server's act; no duration is asserted but the hang.

What must *not* time out is tested with deadlines far away, so that a slow machine can't fail it.
"""

import threading

import pytest

from harness.wire import get, post

BARE = "probe:application"
FAR = ("--timeout-head", "600", "--timeout-body", "600", "--timeout-idle", "600", "--timeout-write", "600")


def _with(**near):
    """The deadlines of FAR, with some of them near."""
    args = list(FAR)
    for name, value in near.items():
        args[args.index(f"--timeout-{name}") + 1] = value
    return tuple(args)


@pytest.mark.parametrize("part", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ", b"GET / HTTP/1.1\r\nHost: a\r\n\r"])
def test_an_unfinished_head_gets_408(shared, mode, part):
    with shared(*mode, *_with(head="1"), BARE).connect() as client:
        client.send(part)
        response = client.read_response()
        assert response.status == 408
        assert response.closes
        client.expect_end()


def test_a_head_that_trickles_gets_408(shared, mode):
    """The deadline is for the whole head: an octet now and then doesn't move it (slowloris)."""
    with shared(*mode, *_with(head="1"), BARE).connect() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ")
        stop = threading.Event()

        def trickle():
            while not stop.wait(0.1):
                if not client.offer(b"a"):
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert client.read_response().status == 408
        finally:
            stop.set()
            thread.join()


def test_an_unfinished_second_head_gets_408(shared, mode):
    with shared(*mode, *_with(head="1"), BARE).connect() as client:
        assert client.exchange(get()).status == 200
        client.send(b"GET / HT")
        assert client.read_response().status == 408
        client.expect_end()


@pytest.mark.parametrize(
    "part",
    [get("/echo", "Content-Length: 5", method="POST"),
     get("/echo", "Content-Length: 5", method="POST") + b"hell",
     get("/echo", "Transfer-Encoding: chunked", method="POST"),
     get("/echo", "Transfer-Encoding: chunked", method="POST") + b"5\r\nhel",
     get("/echo", "Transfer-Encoding: chunked", method="POST") + b"5\r\nhello\r\n0\r\n",
     get("/echo", "Content-Length: 2000000", method="POST") + b"b" * 1_500_000],
    ids=["none", "length", "chunked", "chunk", "trailer", "spooled"],
)  # fmt: skip
def test_an_unfinished_body_gets_408(shared, mode, part):
    with shared(*mode, *_with(body="1"), BARE).connect() as client:
        client.send(part)
        response = client.read_response()
        assert response.status == 408
        assert response.closes
        client.expect_end()


def test_a_silent_connection_is_closed_without_a_word(shared, mode):
    """Nobody asked anything: an answer could be taken for that of a request just being sent."""
    with shared(*mode, *_with(head="1", idle="1"), BARE).connect() as client:
        client.expect_end()


def test_an_idle_connection_is_closed_without_a_word(shared, mode):
    with shared(*mode, *_with(idle="1"), BARE).connect() as client:
        assert client.exchange(get()).status == 200
        client.expect_end()


def test_idle_and_head_are_separate(shared, mode):
    """granian #718: a short head deadline doesn't close connections that rest between requests."""
    server = shared(*mode, *_with(head="1"), BARE)
    with server.connect() as resting, server.connect() as stuck:
        assert resting.exchange(get()).status == 200
        stuck.send(b"GET / HTTP/1.1\r\n")
        assert stuck.read_response().status == 408  # a head deadline has passed since
        assert resting.exchange(get("/target/a")).status == 200


def test_a_slow_view_is_nobody_s_timeout(serve, pool_mode, gate):
    """head, body and idle deadlines don't run while the view does."""
    server = serve(*pool_mode, *_with(head="1", body="1", idle="1"), BARE)
    with server.connect() as client, server.connect() as idle:
        client.send(post(f"/hold?gate={gate.path}", b"hello"))
        visit = gate.next()
        assert idle.exchange(get()).status == 200
        idle.expect_end()  # these deadlines have passed since
        with server.connect() as stuck:
            stuck.send(b"GET / HT")
            assert stuck.read_response().status == 408
        visit.release()
        assert client.read_response().body == b"held"


def test_a_reader_that_stalls_is_dropped(shared, mode, gate):
    """The write deadline frees the view and closes its iterable."""
    server = shared(*mode, *_with(write="1"), "bodies:application")
    with server.connect(receive_buffer=4096) as client:
        client.send(get(f"/endless?gate={gate.path}"))
        assert client.read_head().status == 200
        assert gate.next_message() == "closed"
    assert server.fetch(get("/list")).body == b"hello"


def test_a_reader_that_stalls_on_a_whole_body_is_dropped(shared, mode):
    """Nothing waits in a view here: the loop alone has to notice."""
    server = shared(*mode, *_with(write="1"), BARE)
    with server.connect(receive_buffer=4096) as client:
        client.send(get("/block?size=20000000"))
        response = client.read_head()
        size = int(response.one("content-length"))
        _wait_until_closed(client)
        received = len(client.drain())
        assert received < size


def _wait_until_closed(client):
    """Wait for the server's close without reading: POLLRDHUP or POLLHUP comes behind unread data, too."""
    import select

    poll = select.poll()
    poll.register(client.sock, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    assert poll.poll(30_000), "the server doesn't drop a client that doesn't read"


def test_a_slow_but_steady_reader_is_served(shared, any_mode):
    """Octets taken move the write deadline: it is a stall time-out, not a limit on the whole transfer.

    The reader takes far more per deadline than a socket buffer holds, so that the server sees progress.
    """
    server = shared(*any_mode, *_with(write="1"), BARE)
    with server.connect(receive_buffer=1 << 18) as client:
        client.send(get("/block?size=60000000"))
        response = client.read_head()
        left = int(response.one("content-length")) - len(client.received)
        pause = threading.Event()
        pauses = 50
        while left:
            for _ in range(8):
                if left:
                    data = client.sock.recv(min(left, 1 << 17))
                    assert data, "cut off although it reads steadily"
                    left -= len(data)
            if pauses:
                pauses -= 1
                pause.wait(0.03)
