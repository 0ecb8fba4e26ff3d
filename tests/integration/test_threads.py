"""Views and threads: how many at once, who waits, and what a request finds in its thread."""

import contextlib
import select
import threading

import pytest

from harness import serving
from harness.wire import HANG, get, post

BARE = "probe:application"


def test_a_fresh_context_for_each_request(shared, mode):
    """On free-threaded builds new threads inherit the context; a request must not see another's variables."""
    server = shared(*mode, BARE)
    with server.connect() as client:
        for _ in range(20):
            assert client.exchange(get("/context")).body.startswith(b"fresh ")
    for _ in range(20):
        assert server.fetch(get("/context")).body.startswith(b"fresh ")


def test_a_generator_keeps_its_request_s_context(shared, mode):
    """The body is made in the context of the call: what the view set, its generator sees, however often it waits."""
    server = shared(*mode, "contexts:application")
    with server.connect() as client:
        for n in range(10):
            assert client.exchange(get(f"/?n={n}")).body == f"n={n} n={n} n={n} ".encode()
    with server.connect(receive_buffer=4096) as client, server.connect() as other:
        client.send(get("/big?mark"))
        assert client.read_head().status == 200
        for n in range(5):
            assert other.exchange(get(f"/?n={n}")).body == f"n={n} n={n} n={n} ".encode()
        while chunk := client.read_chunk():
            assert set(chunk.split()) == {b"mark"}
        assert chunk == b""


def test_slow_views_delay_nobody(shared, pool_mode, gate):
    """All threads of the pool but one are in views that wait: others are served at once."""
    server = shared(*pool_mode, BARE)
    standby = int(pool_mode[1]) * int(pool_mode[3]) - 1
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(standby)]
        visits = []
        for client in slow:
            client.send(get(f"/hold?gate={gate.path}"))
            visits.append(gate.next())
        for _ in range(50):
            assert server.fetch(get("/target/now")).status == 200
        for client, visit in zip(slow, visits, strict=True):
            visit.release()
            assert client.read_response().body == b"held"


def test_more_slow_views_than_threads(shared, mode, gate):
    """They wait their turn; all are answered."""
    server = shared(*mode, BARE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(20)]
        for client in clients:
            client.send(get(f"/hold?gate={gate.path}"))
        for _ in clients:
            gate.next().release()
        for client in clients:
            assert client.read_response().body == b"held"


def test_a_view_blocked_on_another_request(serve, pool_mode, gate):
    """One view waits for what only another request brings: the pool must run both."""
    server = serve(*pool_mode, "meeting:application")
    with server.connect() as first, server.connect() as second:
        first.send(get("/wait"))
        second.send(get("/come"))
        assert first.read_response().body == b"met"
        assert second.read_response().body == b"came"


def _next_refusals(clients, count, gate=None):
    """Read until `count` clients have their answer; those held at the gate are let go as they come, if one is given."""
    refused = []
    waiting = {client.sock.fileno(): client for client in clients}
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN)
    if gate is not None:
        poll.register(gate, select.POLLIN)
    answered = 0
    while answered < count:
        ready = poll.poll(HANG * 1000)
        assert ready, f"{answered} answers of {count} came"
        for number, _ in ready:
            if gate is not None and number == gate.fileno():
                gate.next().release()
                continue
            response = waiting[number].read_response()
            if response.status == 503:
                assert response.one("retry-after")
                refused.append(response)
            else:
                assert response.body == b"held"
            answered += 1
            clients.remove(waiting[number])
            poll.unregister(number)
    return refused


def test_the_queue_is_bounded(serve, pool_mode, gate):
    """--queue-limit: what finds no place gets 503 and Retry-After; the others are served."""
    server = serve(*pool_mode, "--queue-limit", "2", BARE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(40)]
        for client in clients:
            client.send(get(f"/hold?gate={gate.path}"))
        refused = _next_refusals(clients, 40, gate)
        assert 0 < len(refused) <= 40 - 2
    assert server.fetch(get("/target/after")).status == 200


def test_a_full_queue_is_refused_at_once(serve, pool_mode, gate):
    """While every thread is held: the refusals come without any view ending."""
    server = serve(*pool_mode, "--queue-limit", "2", BARE)
    loops, standby = int(pool_mode[1]), int(pool_mode[3])
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(loops * (standby + 1 + 2) + 10)]
        for client in clients:
            client.send(get(f"/hold?gate={gate.path}"))
        assert len(_next_refusals(clients, 10)) >= 10
        _next_refusals(clients, len(clients), gate)


def test_requests_of_many_threads(shared, mode):
    """Bodies of many sizes from many connections at once: each comes back to its sender."""
    server = shared(*mode, BARE)
    faults = []

    def talk(n):
        try:
            with server.connect() as client:
                for round_ in range(20):
                    body = f"{n}-{round_} ".encode() * (1 + (n * 37 + round_ * 101) % 3000)
                    assert client.exchange(post("/echo", body)).body == body
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults


@pytest.mark.parametrize("switch", ["M0_BATON=0", "M0_POOL_TURN=0", "M0_LOOP_ATTACHED=1"])
def test_switches_for_comparison(serve, mode, switch):
    """The controls of the benchmarks change the cost of an answer, never the answer."""
    name, _, value = switch.partition("=")
    server = serve(*mode, BARE, env=serving.environment(**{name: value}))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(10)]
        for round_ in range(20):
            for n, client in enumerate(clients):
                client.send(post("/echo", f"{n} {round_}".encode()) + get(f"/target/{n}"))
            for n, client in enumerate(clients):
                assert client.read_response().body == f"{n} {round_}".encode()
                assert client.read_response().body == f"GET /target/{n}?".encode()


@pytest.mark.parametrize("pin", ["off", "0", "auto"])
def test_pinning(serve, mode, pin):
    """A list must have a core for each loop, so two loops get two entries."""
    import os

    cores = sorted(os.sched_getaffinity(0))
    loops = int(mode[1])
    if pin == "0":
        if len(cores) < loops:
            pytest.skip("fewer cores than loops")
        pin = ",".join(map(str, cores[:loops]))
    server = serve(*mode, "--pin", pin, BARE)
    assert server.fetch(get("/target/a")).status == 200
    assert set(os.sched_getaffinity(server.pid)) == set(cores), "the main thread, and what it starts, stay free"


@pytest.mark.parametrize("threads", ["1", "2", "3", "auto"])
@pytest.mark.parametrize("handlers", ["0", "1", "3"])
def test_numbers_of_threads(serve, threads, handlers):
    server = serve("--threads", threads, "--blocking-threads", handlers, BARE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(20)]
        for client in clients:
            client.send(get("/target/a"))
        for client in clients:
            assert client.read_response().body == b"GET /target/a?"
    assert server.stop() == 0


def test_connections_spread_over_the_loops(serve):
    """Two loops: a view held on one loop doesn't strand a connection of the other."""
    server = serve("--threads", "2", "--blocking-threads", "0", "contexts:application")
    seen = set()
    for _ in range(200):
        with server.connect() as client:
            seen.add(client.exchange(get("/thread")).body)
        if len(seen) == 2:
            break
    assert len(seen) == 2
