"""start_response called rightly and wrongly; the path names the call."""

import sys

_TEXT = ("Content-Type", "text/plain")


class TextLike(str):
    """A str subclass: text all the same."""


def _fail():
    try:
        raise ValueError("the cause")
    except ValueError:
        return sys.exc_info()


def plain(status, headers, *rest):
    def view(environ, start_response):
        start_response(status, headers, *rest)
        return [b"body"]

    return view


def never(environ, start_response):
    return [b"body"]


def twice(environ, start_response):
    """The second call without exc_info is an error of the application; the first head stands."""
    start_response("200 OK", [_TEXT, ("X-Call", "first")])
    try:
        start_response("201 Created", [_TEXT, ("X-Call", "second")])
    except Exception as error:
        return [b"raised ", type(error).__name__.encode()]
    return [b"not raised"]


def twice_uncaught(environ, start_response):
    start_response("200 OK", [_TEXT])
    start_response("201 Created", [_TEXT])
    return [b"body"]


def replaced(environ, start_response):
    start_response("200 OK", [_TEXT, ("X-Call", "first")])
    try:
        raise ValueError("before the head went out")
    except ValueError:
        start_response("500 Replaced", [_TEXT, ("X-Call", "second")], sys.exc_info())
    return [b"replaced"]


def first_with_exc_info(environ, start_response):
    """exc_info in the first call is allowed (an error page that starts the response)."""
    start_response("500 Error page", [_TEXT], _fail())
    return [b"page"]


def exc_info_none(environ, start_response):
    start_response("200 OK", [_TEXT], None)
    return [b"body"]


def exc_info_keyword(environ, start_response):
    start_response("200 OK", [_TEXT], exc_info=None)
    return [b"body"]


def headers_kept_alive(environ, start_response):
    """The list is the server's to change, the application's object must not be needed any more."""
    headers = [_TEXT, ("X-A", "1")]
    start_response("200 OK", headers)
    headers.clear()
    headers.append(("X-A", "changed"))
    return [b"body"]


def returns_write(environ, start_response):
    return [str(callable(start_response("200 OK", [_TEXT]))).encode()]


VIEWS = {
    "ok": plain("200 OK", [_TEXT]),
    "no-headers": plain("200 OK", []),
    "reason": plain("299 Something \xe9lse, with spaces", [_TEXT]),
    "subclass": plain(TextLike("200 OK"), [(TextLike("X-A"), TextLike("b"))]),
    "order": plain(
        "200 OK", [("X-B", "1"), ("Set-Cookie", "a=1"), ("X-A", "2"), ("Set-Cookie", "b=2"), ("x-lower", "3"), _TEXT]
    ),
    "latin-1": plain("200 OK", [_TEXT, ("X-Accent", "caf\xe9 \xff")]),
    "empty-value": plain("200 OK", [_TEXT, ("X-Empty", "")]),
    "spaces": plain("200 OK", [_TEXT, ("X-Spaces", "  a  b  ")]),
    "own-date": plain("200 OK", [_TEXT, ("Date", "Thu, 01 Jan 1970 00:00:00 GMT")]),
    "own-server": plain("200 OK", [_TEXT, ("Server", "mine/1")]),
    "many": plain("200 OK", [_TEXT, *((f"X-{n}", "v" * 100) for n in range(500))]),
    "never": never,
    "twice": twice,
    "twice-uncaught": twice_uncaught,
    "replaced": replaced,
    "first-with-exc-info": first_with_exc_info,
    "exc-info-none": exc_info_none,
    "exc-info-keyword": exc_info_keyword,
    "headers-kept": headers_kept_alive,
    "returns-write": returns_write,
}

BAD = {
    "status-int": plain(200, [_TEXT]),
    "status-bytes": plain(b"200 OK", [_TEXT]),
    "status-none": plain(None, [_TEXT]),
    "status-empty": plain("", [_TEXT]),
    "status-short": plain("20 OK", [_TEXT]),
    "status-long": plain("2000 OK", [_TEXT]),
    "status-words": plain("abc OK", [_TEXT]),
    "status-padded": plain(" 200 OK", [_TEXT]),
    "status-split": plain("200 OK\r\nX-Evil: 1", [_TEXT]),
    "status-lf": plain("200 OK\nX-Evil: 1", [_TEXT]),
    "status-nul": plain("200 O\0K", [_TEXT]),
    "status-wide": plain("200 \u20ac", [_TEXT]),
    "status-zero": plain("000 Zero", [_TEXT]),
    "status-interim": plain("100 Continue", [_TEXT]),
    "headers-none": plain("200 OK", None),
    "headers-number": plain("200 OK", 5),
    "header-single": plain("200 OK", [("X-Alone",)]),
    "header-triple": plain("200 OK", [("X-A", "b", "c")]),
    "header-text": plain("200 OK", ["X-A: b"]),
    "header-none": plain("200 OK", [None]),
    "name-bytes": plain("200 OK", [(b"X-A", "b")]),
    "name-none": plain("200 OK", [(None, "b")]),
    "name-empty": plain("200 OK", [("", "b")]),
    "name-space": plain("200 OK", [("X A", "b")]),
    "name-colon": plain("200 OK", [("X-A:", "b")]),
    "name-split": plain("200 OK", [("X-A\r\nX-Evil", "b")]),
    "name-accent": plain("200 OK", [("X-\xe9", "b")]),
    "name-wide": plain("200 OK", [("X-\u20ac", "b")]),
    "value-bytes": plain("200 OK", [("X-A", b"b")]),
    "value-int": plain("200 OK", [("Content-Length", 4)]),
    "value-none": plain("200 OK", [("X-A", None)]),
    "value-split": plain("200 OK", [("X-A", "a\r\nX-Evil: 1")]),
    "value-lf": plain("200 OK", [("X-A", "a\nX-Evil: 1")]),
    "value-cr": plain("200 OK", [("X-A", "a\rX-Evil: 1")]),
    "value-nul": plain("200 OK", [("X-A", "a\0b")]),
    "value-escape": plain("200 OK", [("X-A", "a\x1bb")]),
    "value-wide": plain("200 OK", [("X-A", "\u20ac")]),
    "length-words": plain("200 OK", [("Content-Length", "abc")]),
    "length-negative": plain("200 OK", [("Content-Length", "-4")]),
    "length-plus": plain("200 OK", [("Content-Length", "+4")]),
    "length-huge": plain("200 OK", [("Content-Length", "9" * 40)]),
    "length-twice": plain("200 OK", [("Content-Length", "4"), ("Content-Length", "5")]),
}

HOP_BY_HOP = {
    "connection-keep": plain("200 OK", [_TEXT, ("Connection", "keep-alive")]),
    "connection-close": plain("200 OK", [_TEXT, ("Connection", "close")]),
    "keep-alive": plain("200 OK", [_TEXT, ("Keep-Alive", "timeout=5")]),
    "transfer-encoding": plain("200 OK", [_TEXT, ("Transfer-Encoding", "chunked")]),
    "transfer-encoding-and-length": plain(
        "200 OK", [_TEXT, ("Transfer-Encoding", "chunked"), ("Content-Length", "4")]
    ),
    "upgrade": plain("200 OK", [_TEXT, ("Upgrade", "websocket")]),
    "te": plain("200 OK", [_TEXT, ("TE", "trailers")]),
    "trailer": plain("200 OK", [_TEXT, ("Trailer", "X-A")]),
}


def application(environ, start_response):
    name = environ["PATH_INFO"][1:]
    return (VIEWS.get(name) or BAD.get(name) or HOP_BY_HOP[name])(environ, start_response)
