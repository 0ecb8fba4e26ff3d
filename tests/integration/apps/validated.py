"""wsgiref's validator around an application: it checks both sides of PEP 3333 and raises what it finds."""

import os
import sys
from wsgiref.validate import validator

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../apps/wsgi_bare"))

import app as wsgi_bare  # noqa: E402

bare = validator(wsgi_bare.application)


@validator
def application(environ, start_response):
    """The validator wants exactly one argument of read() and readline()."""
    input_ = environ["wsgi.input"]
    way = environ["PATH_INFO"][1:]
    if way == "read":
        body = b"".join(iter(lambda: input_.read(3), b""))
    elif way == "readline":
        body = b"".join(iter(lambda: input_.readline(5), b""))
    elif way == "readlines":
        body = b"".join(input_.readlines())
    elif way == "iterate":
        body = b"".join(input_)
    else:
        body = way.encode("latin-1")
    environ["wsgi.errors"].write("validated\n")
    environ["wsgi.errors"].flush()
    if way == "write":
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        write(body)
        return []
    if way == "generator":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (bytes([octet]) for octet in body)
    if way == "empty":
        start_response("204 No Content", [])
        return []
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
