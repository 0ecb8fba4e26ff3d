"""Memory and descriptors: flat over many requests, bounded for large bodies, small for idle streams."""

import asyncio
import resource

import pytest
import websockets
from asking import BARE, descriptors_settle, fetch
from harness import wire
from harness.proc import open_descriptors, peak_rss_kb, reset_peak_rss, rss_kb

MB = 1024


def many(server, count, requests, per_batch=50):
    """`count` requests on one connection, pipelined."""
    with server.connect() as connection:
        batch = b"".join(requests[i % len(requests)] for i in range(per_batch))
        for _ in range(count // per_batch):
            connection.send(batch)
            for _ in range(per_batch):
                assert connection.read_response().status == 200


MIXED = [
    wire.get("/", "Accept: */*", "User-Agent: test"),
    wire.post("/echo", b"x" * 1024),
    wire.get("/stream?n=2"),
    wire.get("/slow?ms=0"),
    wire.post_chunked("/read", b"a" * 10, b"b" * 20),
]


def test_memory_is_flat_over_requests(serve, kind):
    server = serve("app:app", *kind, app_dir=BARE)
    many(server, 4000, MIXED)
    before = rss_kb(server.pid)
    many(server, 10_000, MIXED)
    assert rss_kb(server.pid) - before < 2 * MB


def test_memory_is_flat_over_connections(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE)

    def round_of(count):
        for number in range(count):
            response = fetch(server, f"/scope?{number}", f"X-Name-{number}: {number}")
            assert response.status == 200

    round_of(1000)
    before, descriptors = rss_kb(server.pid), open_descriptors(server.pid)
    round_of(2000)
    assert rss_kb(server.pid) - before < 2 * MB
    descriptors_settle(server, descriptors)


def test_memory_is_flat_over_websockets(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE)

    async def talk(count):
        for _ in range(count):
            async with websockets.connect(server.url.replace("http", "ws") + "/echo") as client:
                for size in (10, 1000, 100_000):
                    await client.send("x" * size)
                    await client.recv()

    asyncio.run(talk(60))
    before, descriptors = rss_kb(server.pid), open_descriptors(server.pid)
    asyncio.run(talk(200))
    assert rss_kb(server.pid) - before < 4 * MB
    descriptors_settle(server, descriptors)


@pytest.mark.big
def test_a_gigabyte_up_and_down(serve, one_thread):
    server = serve("app:app", *one_thread, "--limit-body", "0", app_dir=BARE)
    size = 1 << 30
    piece = bytes(range(256)) * 1024
    fetch(server, "/")
    reset_peak_rss(server.pid)
    before = rss_kb(server.pid)
    with server.connect() as connection:
        connection.send(f"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(size // len(piece)):
            connection.send(piece)
        response = connection.read_response()
        assert response.body == f"len={size} sum={sum(range(256)) * (size // 256)}\n".encode()
        connection.send(wire.get(f"/stream?n=16384&size=65536"))
        assert connection.read_head().status == 200
        received = 0
        while chunk := connection.read_chunk():
            received += len(chunk)
        assert received == size
    assert peak_rss_kb(server.pid) - before < 8 * MB


@pytest.mark.big
def test_half_a_million_requests(serve, kind):
    server = serve("app:app", *kind, app_dir=BARE)
    requests = [wire.get("/", "Accept: */*")]
    many(server, 50_000, requests, 100)
    before = rss_kb(server.pid)
    many(server, 500_000, requests, 100)
    assert rss_kb(server.pid) - before < MB


def test_idle_streams_are_small(serve, one_thread):
    """What an idle stream costs in all: asyncio's own two KiB for a task and its coroutine are in it."""
    count = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * count)), hard))
    server = serve("app:app", *one_thread, app_dir=BARE)
    fields = ["Accept: text/event-stream", "User-Agent: " + "x" * 80, "Cookie: " + "c" * 60]

    def open_streams(number):
        streams = [server.connect() for _ in range(number)]
        for stream in streams:
            stream.send(wire.get("/until_disconnect", *fields))
        for stream in streams:
            assert stream.read_head().status == 200
        return streams

    streams = open_streams(100)
    before = rss_kb(server.pid)
    descriptors = open_descriptors(server.pid)
    more = open_streams(count)
    assert (rss_kb(server.pid) - before) / count < 8
    for stream in more:
        stream.close()
    descriptors_settle(server, descriptors)
    for stream in streams:
        stream.close()
    assert fetch(server, "/").status == 200
