"""Where the applications are, and short ways to ask a server."""

import json
import sysconfig
import time
from pathlib import Path

from harness import wire
from harness.proc import open_descriptors
from harness.serving import REPOSITORY
from harness.wire import HANG

BARE = REPOSITORY / "apps" / "asgi_bare"
APPS = Path(__file__).resolve().parent / "apps"

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def wait_for(find, what):
    """The first result of `find` that is true. For what happens soon after its cause, elsewhere."""
    deadline = time.monotonic() + HANG
    while not (found := find()):
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.01)
    return found


def fetch(server, path, *fields, method="GET"):
    return server.fetch(wire.get(path, *fields, method=method), method)


def fetch_json(server, path, *fields):
    response = fetch(server, path, *fields)
    assert response.status == 200, response
    return json.loads(response.body)


def report(server, first):
    """The report whose first item is `first`; others are thrown away."""

    def look():
        return next((found for found in fetch_json(server, "/reports") if found[0] == first), None)

    return wait_for(look, f"a report of {first}")


def forget_reports(server):
    fetch_json(server, "/reports")


def descriptors_settle(server, count):
    """The server's open descriptors come back to `count`."""
    wait_for(lambda: open_descriptors(server.pid) <= count, f"{count} open descriptors")
