"""Brings the GIL back on a free-threaded build by importing `oldext`, an extension that doesn't declare itself safe without
it: on `/import`, or as it is loaded with GIL_AT_IMPORT set. Every other path answers whether the GIL is on."""

import os
import sys

if os.environ.get("GIL_AT_IMPORT"):
    import oldext


def application(environ, start_response):
    if environ["PATH_INFO"] == "/import":
        import oldext  # noqa: F401
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(getattr(sys, "_is_gil_enabled", lambda: True)()).encode()]
