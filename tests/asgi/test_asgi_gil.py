"""The GIL that comes back on a free-threaded build under ASGI threads: served on, and said so once."""

import pytest
from asking import APPS
from harness.oldext import SAID, extension, on_free_threaded_builds  # noqa: F401
from harness.serving import environment
from harness.wire import get

pytestmark = on_free_threaded_builds

LOOPS = [("--loop", "asyncio"), ("--loop", "asyncio", "--threads", "2")]


def until_said(server, clients, words):
    # It is looked at every so many turns of the loops, and said once it has stayed on for a while.
    for _ in range(200_000):
        for client in clients:
            client.exchange(get("/"))
        if words in server.stderr.text():
            break
    else:
        raise AssertionError(server.stderr.text())
    for _ in range(1000):
        for client in clients:
            assert client.exchange(get("/")).body == b"True"
    assert server.stderr.text().count("the GIL is on") == 1


@pytest.mark.parametrize("loops", LOOPS)
def test_an_import_inside_a_request(serve, loops, extension):
    server = serve("gil:app", *loops, app_dir=APPS, env=environment(PYTHONPATH=str(extension)))
    assert "GIL off" in server.stderr.text()
    # Several, so that both threads have some.
    clients = [server.connect() for _ in range(4)]
    assert clients[0].exchange(get("/")).body == b"False"
    assert clients[0].exchange(get("/import")).body == b"True"
    until_said(server, clients, SAID)
    for client in clients:
        client.close()


@pytest.mark.parametrize("loops", LOOPS)
def test_an_import_in_the_lifespan(serve, loops, extension):
    changes = {"PYTHONPATH": str(extension), "GIL_IN_LIFESPAN": "1"}
    server = serve("gil:app", *loops, app_dir=APPS, env=environment(**changes))
    with server.connect() as client:
        until_said(server, [client], SAID)


def test_a_warning_that_is_filtered_away(serve, extension):
    """Nobody learns the name then."""
    changes = {"PYTHONPATH": str(extension), "PYTHONWARNINGS": "ignore"}
    server = serve("gil:app", *LOOPS[1], app_dir=APPS, env=environment(**changes))
    with server.connect() as client:
        assert client.exchange(get("/import")).body == b"True"
        until_said(server, [client], "an extension module does not declare that it can run without it")
