"""Ending: signals, the drain, its bound, the interpreter's end. No answer is lost.

"Not lost" means here: every view that began is answered completely; every request that the server had read
before the signal is answered completely; an answer that was begun is never cut; and a connection that ends
without an answer had no request of it handed to a view. The last answer on a connection announces its close.
"""

import contextlib
import re
import signal
import threading
import time

import pytest

from harness.wire import HANG, Closed, Truncated, connect, get, post

APP = "lifecycle:application"
SIGNALS = [signal.SIGTERM, signal.SIGINT]


def _until_refused(server):
    """The server has stopped accepting: an event that others can see, by asking now and then."""
    end = time.monotonic() + HANG
    pause = threading.Event()
    while time.monotonic() < end:
        try:
            connect(server.address).close()
        except (ConnectionRefusedError, FileNotFoundError, ConnectionResetError):
            return
        pause.wait(0.005)
    raise AssertionError("the server still accepts after the signal")


@pytest.mark.parametrize("number", SIGNALS)
def test_idle(serve, mode, number):
    server = serve(*mode, APP)
    assert server.stop(number) == 0
    assert re.search(r"atexit ran in MainThread after 0 views", server.stderr.text())


@pytest.mark.parametrize("number", SIGNALS)
def test_after_requests(serve, mode, number):
    server = serve(*mode, APP)
    for _ in range(20):
        assert server.fetch(get()).status == 200
    with server.connect() as idle, server.connect() as silent:
        assert idle.exchange(get()).status == 200
        assert server.stop(number) == 0
        idle.expect_end()
        silent.expect_end()
    assert "after 21 views" in server.stderr.text()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_view_in_flight_is_answered(serve, mode, gate, number):
    """gunicorn #2529, #3821: and its answer announces the close."""
    server = serve(*mode, APP)
    with server.connect() as client:
        client.send(get(f"/?gate={gate.path}"))
        visit = gate.next()
        server.send_signal(number)
        if mode.has_pool:
            _until_refused(server)
        visit.release()
        response = client.read_response()
        assert (response.status, response.body) == (200, b"served")
        # A lone loop is inside the view, so that nobody can tell when the signal has been noticed.
        assert response.closes or not mode.has_pool
        client.expect_end()
    assert server.wait() == 0
    assert "after 1 views" in server.stderr.text()


def test_idle_connections_are_closed_at_once(serve, pool_mode, gate):
    """granian #568: they don't hold up the stop, nor wait for the slow view."""
    server = serve(*pool_mode, APP)
    with server.connect() as busy, server.connect() as idle, server.connect() as silent:
        assert idle.exchange(get()).status == 200
        busy.send(get(f"/?gate={gate.path}"))
        visit = gate.next()
        server.send_signal(signal.SIGTERM)
        idle.expect_end()
        silent.expect_end()
        visit.release()
        assert busy.read_response().status == 200
    assert server.wait() == 0


def test_a_stream_in_flight_is_finished(serve, pool_mode, gate):
    server = serve(*pool_mode, "probe:application")
    with server.connect() as client:
        client.send(get(f"/hold-between?gate={gate.path}"))
        assert client.read_head().status == 200
        assert client.read_chunk() == b"first"
        visit = gate.next()
        server.send_signal(signal.SIGTERM)
        _until_refused(server)
        visit.release()
        assert client.read_chunk() == b"second"
        assert client.read_chunk() == b""
        client._until(b"\r\n")
        client.expect_end()
    assert server.wait() == 0


def test_a_slow_reader_gets_all_of_its_answer(serve, mode):
    server = serve(*mode, "probe:application")
    with server.connect(receive_buffer=4096) as client:
        client.send(get("/block?size=20000000"))
        response = client.read_head()
        server.send_signal(signal.SIGTERM)
        _until_refused(server)
        left = int(response.one("content-length")) - len(client.received)
        while left:
            data = client.sock.recv(min(left, 1 << 20))
            assert data, f"{left} octets of the answer were lost"
            left -= len(data)
        client.received.clear()
        client.expect_end()
    assert server.wait() == 0


def test_queued_requests_are_answered(serve, mode, gate, short_path):
    """Read by the server before the signal, not yet in a view."""
    server = serve(*mode, APP, bind=[f"unix:{short_path}"])
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(12)]
        held = 0
        if mode.has_pool:
            for client in clients:
                client.send_read_by_server(get(f"/?gate={gate.path}"))
            held = len(clients)
        else:  # a lone loop reads only the first
            clients = clients[:1]
            clients[0].send(get(f"/?gate={gate.path}"))
            held = 1
        first = gate.next()
        server.send_signal(signal.SIGTERM)
        if mode.has_pool:
            _until_refused(server)
        first.release()
        for _ in range(held - 1):
            gate.next().release()
        for client in clients:
            response = client.read_response()
            assert (response.status, response.body) == (200, b"served")
            assert response.closes or not mode.has_pool
            client.expect_end()
    assert server.wait() == 0
    assert f"after {held} views" in server.stderr.text()


@pytest.mark.parametrize("round_", range(2))
def test_under_load(serve, mode, round_):
    """Many keep-alive clients that never stop asking; the signal comes in the middle."""
    server = serve(*mode, APP)
    complete, faults = [], []
    warm = threading.Barrier(9)

    def talk(n):
        answered = 0
        try:
            while True:
                try:
                    client = server.connect()
                except (ConnectionRefusedError, ConnectionResetError):
                    return
                with client:
                    while True:
                        path = "/stream" if n % 4 == 3 else "/"
                        request = post(path, b"b" * 5000) if n % 2 else get(path)
                        if not client.offer(request):
                            break
                        try:
                            response = client.read_response()
                        except Closed:
                            break
                        assert response.status == 200
                        answered += 1
                        if answered == 20:
                            warm.wait()
                        if response.closes:
                            client.expect_end()
                            break
        except (Truncated, AssertionError, threading.BrokenBarrierError) as fault:
            faults.append((n, fault))
        finally:
            complete.append(answered)

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    warm.wait(HANG)
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
    assert not faults, faults
    began = int(re.search(r"after (\d+) views", server.stderr.text())[1])
    assert sum(complete) == began, f"{began} views began, {sum(complete)} were answered"


def test_the_drain_is_bounded(serve, pool_mode, gate):
    """A view that never ends: --graceful-timeout later the process ends all the same."""
    server = serve(*pool_mode, "--graceful-timeout", "1", APP)
    with server.connect() as client:
        client.send(get(f"/?gate={gate.path}"))
        gate.next()
        server.send_signal(signal.SIGTERM)
        assert server.wait() in (0, 1)


@pytest.mark.parametrize(
    "part", [b"GET / HTTP/1.1\r\nHost", get("/", "Content-Length: 5", method="POST") + b"hel"], ids=["head", "body"]
)
def test_the_drain_is_bounded_for_unfinished_requests(serve, mode, part):
    server = serve(*mode, "--graceful-timeout", "1", APP)
    with server.connect() as client:
        client.send(part)
        assert server.fetch(get()).status == 200
        assert server.stop() in (0, 1)


def test_the_drain_is_bounded_for_endless_answers(serve, mode):
    server = serve(*mode, "--graceful-timeout", "1", "bodies:application")
    with server.connect(receive_buffer=4096) as client:
        client.send(get("/endless"))
        assert client.read_head().status == 200
        assert server.stop() in (0, 1)


@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_ends_at_once(serve, pool_mode, gate, second):
    """The graceful time-out is far away."""
    server = serve(*pool_mode, "--graceful-timeout", "3000", APP)
    with server.connect() as client:
        client.send(get(f"/?gate={gate.path}"))
        gate.next()
        server.send_signal(signal.SIGTERM)
        _until_refused(server)
        server.send_signal(second)
        code = server.wait()
        assert code not in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGKILL)


def test_threads_and_atexit(serve, any_mode, gate):
    """threading._shutdown waits for the application's threads; then atexit runs, in the main thread."""
    from harness import serving

    server = serve(*any_mode, APP, env=serving.environment(LIFECYCLE_GATE=gate.path))
    worker = gate.next()
    assert server.fetch(get()).status == 200
    server.send_signal(signal.SIGTERM)
    _until_refused(server)
    worker.release()
    assert server.wait() == 0
    lines = [line for line in server.stderr.lines if line.startswith(("the thread", "atexit"))]
    assert lines == ["the thread ended", "atexit ran in MainThread after 1 views"]


def test_a_daemon_thread_that_computes(serve, mode):
    """It is frozen or ended at finalisation; that must not crash or hang the exit."""
    from harness import serving

    server = serve(*mode, APP, env=serving.environment(LIFECYCLE_SPIN=1))
    for _ in range(10):
        assert server.fetch(get()).status == 200
    assert server.stop() == 0
    assert "atexit ran" in server.stderr.text()


def test_stop_right_after_the_start(serve, mode):
    for _ in range(5):
        assert serve(*mode, APP).stop() == 0
