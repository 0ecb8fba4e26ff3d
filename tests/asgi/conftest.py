"""Fixtures of the ASGI tests.

Most tests run on both event loops, and on a free-threaded build with two threads as well. `bare` is apps/asgi_bare, served
for the whole session; `serve` starts a server for a single test.
"""

import signal

import pytest
from asking import BARE, FREE_THREADED
from harness.serving import Server

KINDS = {
    "uvloop": ("--loop", "uvloop"),
    "asyncio": ("--loop", "asyncio"),
}
if FREE_THREADED:
    KINDS["threads"] = ("--loop", "uvloop", "--threads", "2")


@pytest.fixture(params=list(KINDS))
def kind(request):
    """Arguments that choose the event loop."""
    return KINDS[request.param]


@pytest.fixture(params=["uvloop", "asyncio"])
def one_thread(request):
    """The same for what is about one thread's state."""
    return KINDS[request.param]


def _end(servers, expected=0):
    faults = []
    for server in servers:
        if server.is_running():
            server.send_signal(signal.SIGTERM)
        try:
            code = server.wait()
        except Exception as error:
            server.kill()
            code = repr(error)
        text = server.stderr.text()
        if code != expected and not server.ended_by_test:
            faults.append(f"{server.args} ended with {code}:\n{text[-6000:]}")
        if "panicked" in text or "never retrieved" in text or "was destroyed but it is pending" in text:
            faults.append(f"{server.args} said:\n{text[-6000:]}")
    assert not faults, "\n".join(faults)


def _start(*args, **options):
    server = Server(*args, **options)
    server.ended_by_test = False
    return server


@pytest.fixture
def serve():
    """Start servers for this test; each must end with exit code 0 unless the test has ended it itself."""
    servers = []

    def start(*args, wait=True, **options):
        server = _start(*args, **options)
        servers.append(server)
        return server.wait_until_listening() if wait else server

    yield start
    for server in servers:
        server.ended_by_test = not server.is_running()
    _end(servers)


@pytest.fixture(scope="session")
def _running():
    servers = {}
    yield servers
    _end(servers.values())


@pytest.fixture
def shared(_running):
    """A server with these arguments that runs for the whole session."""
    used = []

    def get(*args, **options):
        key = (args, tuple(sorted((name, str(value)) for name, value in options.items())))
        server = _running.get(key)
        if server is None or not server.is_running():
            server = _running[key] = _start(*args, **options)
            server.wait_until_listening()
        used.append(server)
        return server

    yield get
    for server in used:
        server.assert_sound()


@pytest.fixture
def bare(shared, kind):
    return shared("app:app", *kind, app_dir=BARE)


@pytest.fixture
def lone(shared, one_thread):
    """apps/asgi_bare on one thread: what one request reports, another can ask for."""
    return shared("app:app", *one_thread, app_dir=BARE)
