"""What a view is given: PEP 3333's environ, native strings in latin-1, nothing that a client can forge."""

import http.cookies
import json

import pytest

from harness import serving
from harness.wire import connect, get, host_and_port, post, post_chunked

BARE = "probe:application"


def _environ(server, request, method="GET"):
    with server.connect() as client:
        response = client.exchange(request, method)
        assert response.status == 200, response
        shown = json.loads(response.body)
        assert shown["type"] == "dict", "PEP 3333: a builtin dict, no subclass"
        return shown["environ"], client


def _texts(server, request, method="GET"):
    environ, _ = _environ(server, request, method)
    return {k: v for k, (_, v) in environ.items()}


def test_the_required_keys(shared, mode):
    server = shared(*mode, BARE)
    with server.connect() as client:
        client.send(get("/environ?a=b&c", "User-Agent: probe/1", "Accept: */*"))
        own_port = client.sock.getsockname()[1]
        environ = json.loads(client.read_response().body)["environ"]
    host, port = host_and_port(server.address)
    expected = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/environ",
        "QUERY_STRING": "a=b&c",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_PORT": str(own_port),
        "RAW_URI": "/environ?a=b&c",
        "HTTP_HOST": "a",
        "HTTP_USER_AGENT": "probe/1",
        "HTTP_ACCEPT": "*/*",
        "wsgi.url_scheme": "http",
    }
    for key, value in expected.items():
        assert environ[key] == ["str", value], key
    assert environ["SERVER_SOFTWARE"][1].startswith("m0serve")
    assert environ["wsgi.version"] == ["tuple", [1, 0]]
    assert environ["wsgi.multithread"] == ["bool", mode.has_pool]
    assert environ["wsgi.multiprocess"] == ["bool", False]
    assert environ["wsgi.run_once"] == ["bool", False]
    assert environ["wsgi.input_terminated"] == ["bool", True]
    assert {"wsgi.input", "wsgi.errors", "wsgi.file_wrapper"} <= set(environ)


def test_cgi_values_are_native_strings(shared, mode):
    environ, _ = _environ(shared(*mode, BARE), get("/environ", "X-A: b"))
    assert {k: t for k, (t, _) in environ.items() if k.isupper() and t != "str"} == {}


def test_no_body_no_content_fields(shared, mode):
    environ = _texts(shared(*mode, BARE), get("/environ"))
    assert environ.get("CONTENT_LENGTH", "") == ""
    assert environ.get("CONTENT_TYPE", "") == ""
    assert environ["QUERY_STRING"] == ""


def test_content_fields(shared, mode):
    request = post("/environ", b"hello", "Content-Type: text/plain; charset=x")
    environ = _texts(shared(*mode, BARE), request)
    assert environ["REQUEST_METHOD"] == "POST"
    assert environ["CONTENT_LENGTH"] == "5"
    assert environ["CONTENT_TYPE"] == "text/plain; charset=x"
    assert not {"HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE"} & set(environ)


def test_the_length_of_a_chunked_body(shared, mode):
    """The body is whole before the view runs: its length is known, and views that ask only CONTENT_LENGTH find it."""
    environ = _texts(shared(*mode, BARE), post_chunked("/environ", b"hel", b"lo"))
    assert environ["CONTENT_LENGTH"] == "5"


def test_nothing_of_one_request_reaches_the_next(shared, mode):
    """Templates are copied, keys don't stay behind: on one connection, and in every handler."""
    server = shared(*mode, BARE)
    with server.connect() as client:
        for n in range(20):
            client.send(post(f"/environ?n={n}", b"x" * n, f"X-Only-{n}: 1", "Content-Type: a/b"))
            first = json.loads(client.read_response().body)["environ"]
            assert first["QUERY_STRING"][1] == f"n={n}"
            assert [k for k in first if k.startswith("HTTP_X_ONLY")] == [f"HTTP_X_ONLY_{n}"]
            bare = json.loads(client.exchange(get("/environ")).body)["environ"]
            assert not [k for k in bare if k.startswith("HTTP_X_ONLY")]
            assert bare.get("CONTENT_TYPE", ["str", ""])[1] == ""
            assert bare["QUERY_STRING"][1] == ""


def test_views_may_change_the_environ(serve, any_mode):
    server = serve(*any_mode, "mutating:application")
    for _ in range(20):
        assert server.fetch(get("/")).body == b"clean"


def test_no_os_environ(serve, any_mode):
    """granian #878: the process's environment is not the request's, and could forge header names."""
    env = serving.environment(SECRET_OF_THE_PROCESS="1", HTTP_X_FORGED="1", HTTP_HOST="forged", HTTPS="on")
    environ = _texts(serve(*any_mode, BARE, env=env), get("/environ"))
    assert not {"SECRET_OF_THE_PROCESS", "HTTP_X_FORGED", "PATH", "HTTPS"} & set(environ)
    assert environ["HTTP_HOST"] == "a"


def test_underscores_forge_no_header(shared, mode):
    """gunicorn #2799: X_Forwarded_User would become the same key as X-Forwarded-User."""
    server = shared(*mode, BARE)
    for order in (
        ("X-Forwarded-User: good", "X_Forwarded_User: evil"),
        ("X_Forwarded_User: evil", "X-Forwarded-User: good"),
    ):
        assert _texts(server, get("/environ", *order))["HTTP_X_FORWARDED_USER"] == "good"
    environ = _texts(server, get("/environ", "X_Forwarded_User: evil", "Content_Length: 5", "Content_Type: evil"))
    assert "HTTP_X_FORWARDED_USER" not in environ
    assert environ.get("CONTENT_TYPE", "") == ""
    assert environ.get("CONTENT_LENGTH", "") == ""


def test_underscores_as_one_likes(shared, mode):
    """--header-underscores: refuse them, or allow them where a client can't forge what matters."""
    refusing = shared(*mode, "--header-underscores", "refuse", BARE)
    assert refusing.fetch(get("/environ", "X_A: 1")).status == 400
    assert refusing.fetch(get("/environ", "X-A: 1")).status == 200
    allowing = shared(*mode, "--header-underscores", "allow", BARE)
    assert _texts(allowing, get("/environ", "X_A: 1"))["HTTP_X_A"] == "1"


@pytest.mark.parametrize("name", ["X-Long-" + "n" * 200, "X-1", "x-lower-case", "X-UPPER", "!#$%&'*+-.^`|~X"])
def test_any_header_name(shared, mode, name):
    environ = _texts(shared(*mode, BARE), get("/environ", f"{name}: value"))
    assert environ["HTTP_" + name.upper().replace("-", "_")] == "value"


def test_many_unknown_names(shared, mode):
    """The cache of names is bounded; names beyond it work the same."""
    server = shared(*mode, BARE)
    with server.connect() as client:
        for base in range(0, 5000, 50):
            fields = [f"X-Name-{n}: {n}" for n in range(base, base + 50)]
            environ = json.loads(client.exchange(get("/environ", *fields)).body)["environ"]
            for n in range(base, base + 50):
                assert environ[f"HTTP_X_NAME_{n}"] == ["str", str(n)]


def test_repeated_fields_are_one_list(shared, mode):
    """RFC 9110 5.3."""
    environ = _texts(shared(*mode, BARE), get("/environ", "X-A: 1", "X-B: 2", "x-a: 3", "X-A:"))
    assert [part.strip() for part in environ["HTTP_X_A"].split(",")] == ["1", "3", ""]


def test_repeated_cookies_are_one_cookie_string(shared, mode):
    """RFC 6265 5.4, RFC 9113 8.2.3: cookies are joined with a semicolon; a comma would be part of a value."""
    environ = _texts(shared(*mode, BARE), get("/environ", "Cookie: a=1", "Cookie: b=2"))
    cookies = http.cookies.SimpleCookie(environ["HTTP_COOKIE"])
    assert {k: v.value for k, v in cookies.items()} == {"a": "1", "b": "2"}


def test_values_are_latin_1(shared, mode):
    """granian #334: octets become the code points of the same number, as PEP 3333 wants."""
    server = shared(*mode, BARE)
    environ = _texts(server, get("/environ", "X-A: caf\xe9 \xff\x80"))
    assert environ["HTTP_X_A"] == "caf\xe9 \xff\x80"
    request = "GET /environ HTTP/1.1\r\nHost: a\r\nX-A: €\r\n\r\n".encode()
    assert _texts(server, request)["HTTP_X_A"] == "€".encode().decode("latin-1")


PATHS = {
    # wire: (PATH_INFO, QUERY_STRING)
    "/a%2Fb": ("/a/b", ""),
    "/%C3%B6/": ("/\xc3\xb6/", ""),
    "/%c0": ("/\xc0", ""),
    "/a%20b": ("/a b", ""),
    "/a+b": ("/a+b", ""),
    "/%41": ("/A", ""),
    "/%25": ("/%", ""),
    "/%2541": ("/%41", ""),
    "/%": ("/%", ""),
    "/%4": ("/%4", ""),
    "/%zz": ("/%zz", ""),
    "/a%zz%41": ("/a%zzA", ""),
    "//double//slash": ("//double//slash", ""),
    "/a/../b/./c": ("/a/../b/./c", ""),
    "/a;b=c": ("/a;b=c", ""),
    "/a?": ("/a", ""),
    "/a?b%20c=%2F&d": ("/a", "b%20c=%2F&d"),
    "/a?b?c": ("/a", "b?c"),
    "/a%3Fb": ("/a?b", ""),
    "/a?%C3%B6": ("/a", "%C3%B6"),
    "/a%0d%0aX: 1".replace(" ", "%20"): ("/a\r\nX: 1", ""),
    "/a%1b": ("/a\x1b", ""),
    "/@:!$&'()*,=~-._": ("/@:!$&'()*,=~-._", ""),
}


@pytest.mark.parametrize("wire", PATHS)
def test_paths(shared, mode, wire):
    path, query = PATHS[wire]
    environ = _texts(shared(*mode, BARE), get(wire))
    assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == (path, query)
    assert environ["RAW_URI"] == wire, "the target untouched"


@pytest.mark.parametrize("wire", [b"/\xe2\x80\xa6", b"/\xff", b"/a?\xe2\x80\xa6", b"/%00", b"/a#b", b"/a\\b", b'/"<>^`{|}'])
def test_odd_octets_in_the_target(shared, mode, wire):
    """granian #490: latin-1 or a 400, never a crash."""
    server = shared(*mode, BARE)
    response = server.fetch(b"GET " + wire + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    if response.status == 200:
        environ = json.loads(response.body)["environ"]
        assert environ["RAW_URI"][1] == wire.decode("latin-1")
    else:
        assert response.status == 400
    assert server.fetch(get("/target/a")).status == 200


ROOTED = {
    "/": ("/mount", "/"),
    "/other": ("/mount", "/other"),
    "/mount": ("/mount", ""),
    "/mount/": ("/mount", "/"),
    "/mount/a": ("/mount", "/a"),
    "/mounted": ("/mount", "/mounted"),
    "/mount/mount/a": ("/mount", "/mount/a"),
}


@pytest.mark.parametrize("wire", ROOTED)
def test_root_path(shared, mode, wire):
    """Behind a proxy that strips the prefix, and behind one that doesn't."""
    environ = _texts(shared(*mode, "--root-path", "/mount", "probe:shown"), get(wire))
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ROOTED[wire]


def test_protocol_1_0(shared, mode):
    environ = _texts(shared(*mode, BARE), b"GET /environ HTTP/1.0\r\n\r\n")
    assert environ["SERVER_PROTOCOL"] == "HTTP/1.0"
    assert "HTTP_HOST" not in environ


def test_over_a_unix_socket(serve, any_mode, short_path):
    server = serve(*any_mode, BARE, bind=[f"unix:{short_path}"])
    environ = _texts(server, get("/environ"))
    for key in ("SERVER_NAME", "SERVER_PORT", "REMOTE_ADDR"):
        assert isinstance(environ[key], str), "PEP 3333: there, whatever the transport"
    assert environ["SERVER_NAME"]


def test_over_ipv6(serve, any_mode, ipv6):
    server = serve(*any_mode, BARE, bind=["[::1]:0"])
    environ = _texts(server, get("/environ"))
    assert environ["REMOTE_ADDR"] == "::1"
    assert environ["SERVER_PORT"] == str(host_and_port(server.address)[1])


def test_several_binds_tell_themselves_apart(serve, any_mode):
    server = serve(*any_mode, BARE, bind=["127.0.0.1:0", "127.0.0.2:0"])
    for address in server.addresses:
        with connect(address) as client:
            environ = json.loads(client.exchange(get("/environ")).body)["environ"]
        host, port = host_and_port(address)
        assert (environ["SERVER_NAME"][1], environ["SERVER_PORT"][1]) == (host, str(port))
