"""What an application keeps beyond its request must be safe to use: no crash, no octet in another's answer."""

import pytest

from harness.wire import get, post

APP = "stash:application"


@pytest.mark.parametrize("path", ["/use", "/use-in-thread"])
@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_kept_beyond_the_end(serve, mode, path, size):
    server = serve(*mode, APP)
    with server.connect() as client:
        for n in range(5):
            assert client.exchange(post("/keep", b"k" * size, f"X-Mark: {n}")).body == b"kept"
        response = client.exchange(get(path))
        assert response.status == 200
        assert not response.all("x-stale")
        lines = response.body.decode().splitlines()
        assert [line.split()[:3] for line in lines] == [["POST", "/keep", str(n)] for n in range(5)]
        assert b"stale" not in response.body
        assert client.exchange(post("/keep", b"again", "X-Mark: last")).body == b"kept"
        assert client.exchange(get("/use")).body.startswith(b"POST /keep last")


def test_used_while_another_request_runs(serve, mode):
    """From other connections, and after the first one is gone."""
    server = serve(*mode, APP)
    for n in range(5):
        assert server.fetch(post("/keep", b"body", f"X-Mark: {n}")).body == b"kept"
    assert len(server.fetch(get("/use")).body.splitlines()) == 5


def test_kept_until_the_end_of_the_process(serve, mode):
    """Finalising frees them last."""
    server = serve(*mode, APP)
    for n in range(3):
        server.fetch(post("/keep", b"k" * 600_000, f"X-Mark: {n}"))
    assert server.stop() == 0


def test_cycles_through_the_environ_are_collected(serve, mode):
    """environ and start_response in a cycle: garbage, not a leak. Objects are counted behind a collection, because
    3.14t's collector lets the memory grow by a tenth each time before it starts."""
    server = serve(*mode, APP)
    request = get("/cycle", *(f"X-{n}: {'v' * 100}" for n in range(20)))

    def objects():
        server.fetch(get("/objects"))
        return server.fetch(get("/objects")).body.decode()

    def rounds(count):
        with server.connect() as client:
            for _ in range(count):
                client.send(request * 50)
                for _ in range(50):
                    client.read_response()

    rounds(10)
    before = objects()
    rounds(60)
    after = objects()
    assert int(after.split()[0]) - int(before.split()[0]) < 500, f"{before} became {after}"
