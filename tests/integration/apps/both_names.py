"""Has `application` and `app`: the name that PEP 3333 uses goes first."""


def _make(text):
    def application(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [text]

    return application


app = _make(b"app")
application = _make(b"application")
