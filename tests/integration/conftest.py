"""Fixtures of the integration tests.

m0serve is taken from $M0SERVE, else from PATH. Most tests run once per mode of serving. `shared` gives a
server that several tests use (they must leave it as they found it); `serve` starts one for a single test.
"""

import signal
import socket
import tempfile

import pytest

from harness.gates import Gate
from harness.serving import Server

MODES = {
    "inline": ("--threads", "1", "--blocking-threads", "0"),
    "pool": ("--threads", "1", "--blocking-threads", "4"),
    "loops": ("--threads", "2", "--blocking-threads", "2"),
}


class Mode(tuple):
    """The arguments of a mode, with its name."""

    name = ""

    @property
    def has_pool(self):
        return self.name != "inline"


def _mode(name):
    mode = Mode(MODES[name])
    mode.name = name
    return mode


@pytest.fixture(params=list(MODES))
def mode(request):
    return _mode(request.param)


@pytest.fixture(params=[name for name in MODES if name != "inline"])
def pool_mode(request):
    """The modes in which a view that blocks leaves others served; a lone loop is stranded by design."""
    return _mode(request.param)


@pytest.fixture
def any_mode():
    """For what doesn't depend on the mode: the one with most in it."""
    return _mode("loops")


@pytest.fixture
def serve():
    """Start servers for this test; each must end with exit code 0 unless the test has ended it itself."""
    servers = []

    def start(*args, **options):
        server = Server(*args, **options)
        servers.append(server)
        return server.wait_until_listening()

    yield start
    faults = []
    for server in servers:
        if server.is_running():
            server.send_signal(signal.SIGTERM)
            try:
                code = server.wait()
            except Exception as error:
                server.kill()
                code = repr(error)
            if code != 0:
                faults.append(f"{server.args} ended with {code}:\n{server.stderr.text()}")
        if "panicked at" in server.stderr.text():
            faults.append(f"{server.args} panicked:\n{server.stderr.text()}")
    assert not faults, "\n".join(faults)


@pytest.fixture(scope="session")
def _running():
    servers = {}
    yield servers
    for server in servers.values():
        if server.is_running():
            server.send_signal(signal.SIGTERM)
    faults = []
    for server in servers.values():
        try:
            code = server.wait()
        except Exception as error:
            server.kill()
            code = repr(error)
        if code != 0:
            faults.append(f"{server.args} ended with {code}:\n{server.stderr.text()[-4000:]}")
    assert not faults, "\n".join(faults)


@pytest.fixture
def shared(_running):
    """A server with these arguments that runs for the whole session."""
    used = []

    def get(*args, **options):
        key = (args, tuple(sorted(options.items())))
        if "env" in options:  # a tuple of items there, so that it can be part of the key
            options["env"] = dict(options["env"])
        server = _running.get(key)
        if server is None or not server.is_running():
            server = Server(*args, **options)
            _running[key] = server
            server.wait_until_listening()
        used.append(server)
        return server

    yield get
    for server in used:
        server.assert_sound()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.close()


@pytest.fixture
def short_path():
    """A path for a Unix socket, short enough for sun_path (108 octets)."""
    with tempfile.TemporaryDirectory(prefix="m0") as directory:
        yield f"{directory}/s"


@pytest.fixture(scope="session")
def ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 loopback here")
