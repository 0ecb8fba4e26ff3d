"""Short ways to ask a server."""

import json

from conftest import wait_for
from harness import wire


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
    from harness.proc import open_descriptors

    wait_for(lambda: open_descriptors(server.pid) <= count, f"{count} open descriptors")
