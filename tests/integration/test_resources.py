"""Memory, descriptors and processor time over many requests, and when they run out."""

import contextlib
import time

from harness import proc
from harness.wire import Closed, Connection, get, post

BARE = "probe:application"
MIX = [
    (get("/"), "GET"),
    (get("/environ", *(f"X-{n}: value {n}" for n in range(12))), "GET"),
    (post("/echo", b"b" * 100), "POST"),
    (get("/stream?n=3&size=10"), "GET"),
    (get("/nowhere", method="HEAD"), "HEAD"),
]


def _ask(client: Connection, count):
    """`count` requests of the mix, fifty in flight."""
    for _ in range(count // 50):
        client.send(b"".join(request for request, _ in MIX * 10))
        for _, method in MIX * 10:
            assert client.read_response(method).status == 200


def test_ten_thousand_requests_grow_little(serve, mode, record_property):
    """Less than 12 MB is the line of failure; the goal is none."""
    server = serve(*mode, BARE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(4)]
        for client in clients:
            _ask(client, 250)
        before = proc.rss_kb(server.pid)
        for client in clients:
            _ask(client, 2500)
        growth = proc.rss_kb(server.pid) - before
    record_property("rss_kb", before)
    record_property("rss_growth_kb", growth)
    print(f"{mode.name}: RSS {before} kB, growth over 10,000 requests {growth} kB")
    assert growth < 12 * 1024


def test_connections_leave_nothing_behind(serve, mode):
    server = serve(*mode, BARE)
    for _ in range(50):
        server.fetch(get())
    before = proc.open_descriptors(server.pid), proc.thread_count(server.pid)
    for n in range(300):
        client = server.connect()
        client.offer([get(), get("/", "Connection: close"), b"GET", b"bad\r\n\r\n", b"G"][n % 5])
        client.reset() if n % 2 else client.close()
    end = time.monotonic() + 15
    while proc.open_descriptors(server.pid) > before[0]:
        assert time.monotonic() < end, "descriptors of closed connections stay open"
        assert server.fetch(get()).status == 200
    assert proc.thread_count(server.pid) == before[1]


def test_an_idle_server_uses_no_processor(serve, mode):
    """No periodic tick: nothing is done for a second by loops, handlers or monitor, with idle connections open."""
    server = serve(*mode, BARE)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            assert stack.enter_context(server.connect()).exchange(get()).status == 200
        before = proc.cpu_seconds(server.pid)
        time.sleep(1)
        assert proc.cpu_seconds(server.pid) - before < 0.1


def test_out_of_descriptors(serve, mode):
    """EMFILE: served again once some are free, and no spinning meanwhile on the connection that can't be accepted."""
    server = serve(*mode, BARE, descriptors=64)
    clients = [server.connect() for _ in range(100)]
    try:
        for client in clients:
            client.send(get())
        served = clients[0]
        assert served.read_response().body == b"hello"
        before = proc.cpu_seconds(server.pid)
        time.sleep(1)
        used = proc.cpu_seconds(server.pid) - before
        assert used < 0.3, f"{used} s of processor time in a second of nothing to do"
        for _ in range(20):
            assert served.exchange(get()).body == b"hello"
        for client in clients[1:60]:
            client.close()
        for client in clients[60:]:
            try:
                assert client.read_response().body == b"hello"
            except Closed:
                pass  # turned away for want of a descriptor
        assert served.exchange(get()).body == b"hello"
    finally:
        for client in clients:
            client.close()
    assert server.fetch(get()).body == b"hello"


def test_many_large_requests_give_their_memory_back(serve, mode, record_property):
    """Buffers that grew for one request don't stay with its connection."""
    server = serve(*mode, BARE)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(100)]
        for client in clients:
            client.exchange(get())
        before = proc.rss_kb(server.pid)
        for client in clients:
            assert len(client.exchange(post("/echo", b"b" * 400_000)).body) == 400_000
        growth = proc.rss_kb(server.pid) - before
        record_property("rss_growth_kb", growth)
        assert growth < 16 * 1024, "a hundred idle connections hold on to what they had"
