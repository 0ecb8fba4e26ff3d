"""Counts the requests that reached it before this one."""

import itertools

_seen = itertools.count()


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(next(_seen)).encode()]
