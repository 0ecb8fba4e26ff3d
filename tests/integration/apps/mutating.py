"""Changes its environ as middleware does; says whether it found a change of an earlier request."""


def application(environ, start_response):
    clean = "changed.by" not in environ and "wsgi.version" in environ and environ["SCRIPT_NAME"] == ""
    environ["changed.by"] = "a request"
    environ["SCRIPT_NAME"] = "/changed"
    del environ["wsgi.version"]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"clean" if clean else b"dirty"]
