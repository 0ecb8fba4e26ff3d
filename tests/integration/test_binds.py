"""Addresses: several, IPv6, Unix sockets, inherited descriptors, and those that can't be had."""

import os
import re
import socket
import stat

from harness import serving
from harness.wire import connect, get, host_and_port

BARE = "probe:application"


def _answers(server):
    for n in range(len(server.addresses)):
        with server.connect(n) as client:
            assert client.exchange(get()).body == b"hello"


def test_port_0_is_told(serve, mode):
    server = serve(*mode, BARE)
    assert host_and_port(server.address)[1] > 0
    _answers(server)


def test_several(serve, mode, short_path, ipv6):
    server = serve(*mode, BARE, bind=["127.0.0.1:0", "127.0.0.2:0", "[::1]:0", f"unix:{short_path}"])
    assert len(server.addresses) == 4
    assert server.addresses[3] == f"unix:{short_path}"
    _answers(server)


def test_a_name(serve, any_mode):
    _answers(serve(*any_mode, BARE, bind=["localhost:0"]))


def test_unix(serve, mode, short_path):
    server = serve(*mode, BARE, bind=[f"unix:{short_path}"])
    assert stat.S_ISSOCK(os.stat(short_path).st_mode)
    _answers(server)
    assert server.stop() == 0
    assert not os.path.exists(short_path), "the creator removes it"


def test_unix_stale_socket(serve, any_mode, short_path):
    """Left by a process that was killed: nobody listens, so it is replaced."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(short_path)
    _answers(serve(*any_mode, BARE, bind=[f"unix:{short_path}"]))


def test_unix_in_use(serve, any_mode, short_path):
    server = serve(*any_mode, BARE, bind=[f"unix:{short_path}"])
    code, _, stderr = serving.run(*any_mode, "--bind", f"unix:{short_path}", BARE)
    assert code not in (0, 2, 3) and code > 0
    assert short_path in stderr
    _answers(server)


def test_unix_path_of_a_file(any_mode, short_path):
    """Not a socket: never deleted."""
    with open(short_path, "w") as file:
        file.write("precious")
    code, _, stderr = serving.run(*any_mode, "--bind", f"unix:{short_path}", BARE)
    assert code > 0
    assert short_path in stderr
    with open(short_path) as file:
        assert file.read() == "precious"


def test_address_in_use(any_mode):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, stderr = serving.run(*any_mode, "--bind", f"127.0.0.1:{port}", BARE)
    assert code not in (0, 2, 3) and code > 0
    assert f"127.0.0.1:{port}" in stderr
    assert re.search("in use", stderr, re.IGNORECASE)
    assert "panicked" not in stderr


def test_an_address_not_of_this_machine(any_mode):
    code, _, stderr = serving.run(*any_mode, "--bind", "192.0.2.1:0", BARE)  # TEST-NET-1, RFC 5737
    assert code > 0
    assert "192.0.2.1" in stderr


def test_restart_on_the_same_port(serve, mode):
    """Connections in TIME_WAIT don't block the address."""
    server = serve(*mode, BARE)
    port = host_and_port(server.address)[1]
    with server.connect() as client:
        client.exchange(get("/", "Connection: close"))
        client.expect_end()
    assert server.stop() == 0
    _answers(serve(*mode, BARE, bind=[f"127.0.0.1:{port}"]))


def test_an_inherited_descriptor(serve, mode):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        server = serve(*mode, BARE, bind=[f"fd://{number}"], pass_fds=[number])
        port = listener.getsockname()[1]
        with connect(f"http://127.0.0.1:{port}") as client:
            assert client.exchange(get()).body == b"hello"
        assert server.stop() == 0


def test_a_descriptor_that_is_none(any_mode):
    code, _, stderr = serving.run(*any_mode, "--bind", "fd://77", BARE)
    assert code > 0
    assert "77" in stderr


def test_binds_by_environment(serve, any_mode):
    server = serve(*any_mode, BARE, bind=[], env=serving.environment(M0_BIND="127.0.0.1:0"))
    _answers(server)


def test_several_binds_by_environment(serve, any_mode):
    server = serve(*any_mode, BARE, bind=[], env=serving.environment(M0_BIND="127.0.0.1:0,127.0.0.2:0"))
    assert len(server.addresses) == 2
    _answers(server)


def test_unix_mode(serve, any_mode, short_path):
    serve(*any_mode, "--uds-mode", "600", BARE, bind=[f"unix:{short_path}"])
    assert stat.S_IMODE(os.stat(short_path).st_mode) == 0o600


def test_a_flag_goes_before_its_environment(serve, any_mode):
    server = serve(*any_mode, BARE, env=serving.environment(M0_BIND="127.0.0.3:0"))
    assert host_and_port(server.address)[0] == "127.0.0.1"
