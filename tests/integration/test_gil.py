"""The GIL that comes back on a free-threaded build: served on, said so, and the handlers take turns from then on."""

from harness.oldext import SAID, extension, on_free_threaded_builds  # noqa: F401
from harness.serving import environment
from harness.wire import get

pytestmark = on_free_threaded_builds


def test_an_import_at_the_start(serve, mode, extension):
    server = serve(*mode, "gil:application", env=environment(PYTHONPATH=str(extension), GIL_AT_IMPORT="1"))
    assert server.fetch(get("/")).body == b"True"
    assert "GIL on" in server.stderr.text()
    assert SAID in server.stderr.text()


def test_an_import_inside_a_request(serve, mode, extension):
    server = serve(*mode, "gil:application", env=environment(PYTHONPATH=str(extension)))
    assert "GIL off" in server.stderr.text()
    with server.connect() as client:
        assert client.exchange(get("/")).body == b"False"
        assert client.exchange(get("/import")).body == b"True"
        # It is looked at every so many requests, and said once it has stayed on for a while.
        for _ in range(200_000):
            client.exchange(get("/"))
            if SAID in server.stderr.text():
                break
        else:
            raise AssertionError(server.stderr.text())
        for _ in range(100):
            assert client.exchange(get("/")).body == b"True"
    assert server.stderr.text().count(SAID) == 1
