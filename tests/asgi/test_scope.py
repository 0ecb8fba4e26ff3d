"""Scopes: what an application is told of a request (ASGI "HTTP & WebSocket ASGI Message Format", 2.5)."""

import json
import socket

import pytest
from asking import APPS, BARE, fetch, fetch_json
from harness import wire


def scope_of(server, target="/scope", *fields, **options):
    response = server.fetch(wire.get(target, *fields, **options))
    assert response.status == 200, response
    return json.loads(response.body)


def test_a_plain_get(bare):
    with bare.connect() as connection:
        client = list(connection.sock.getsockname())
        host, port = wire.host_and_port(bare.address)
        response = connection.exchange(wire.get("/scope?a=1&b=%20", "X-One: 1", "x-TWO:  two "))
        scope = json.loads(response.body)
    assert scope["type"] == "http"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.5"}
    assert scope["http_version"] == "1.1"
    assert scope["method"] == "GET"
    assert scope["scheme"] == "http"
    assert scope["path"] == "/scope"
    assert scope["raw_path"] == "/scope"
    assert scope["query_string"] == "a=1&b=%20"
    assert scope["root_path"] == ""
    assert scope["client"] == client
    assert scope["server"] == [host, int(port)]
    assert ["x-one", "1"] in scope["headers"] and ["x-two", "two"] in scope["headers"]
    assert set(scope["extensions"]) == {
        "http.response.early_hint",
        "http.response.pathsend",
        "http.response.trailers",
        "http.response.zerocopysend",
    }


def test_the_types_are_those_of_the_specification(bare):
    types = fetch_json(bare, "/scope/types")
    assert types == {
        "type": "str",
        "asgi": "dict",
        "http_version": "str",
        "method": "str",
        "scheme": "str",
        "path": "str",
        "raw_path": "bytes",
        "query_string": "bytes",
        "root_path": "str",
        "headers": "list",
        "client": "tuple",
        "server": "tuple",
        "state": "dict",
        "extensions": "dict",
    }


@pytest.mark.parametrize(
    "raw, path",
    [
        ("/scope/%C3%B6", "/scope/ö"),
        ("/scope/a%2Fb", "/scope/a/b"),
        ("/scope/%c0", "/scope/\ufffd"),
        ("/scope/%E2%82", "/scope/\ufffd"),
        ("/scope/%", "/scope/%"),
        ("/scope/%zz", "/scope/%zz"),
        ("/scope/+", "/scope/+"),
        ("//scope", "//scope"),
    ],
)
def test_paths_are_decoded_and_kept_raw(shared, one_thread, raw, path):
    server = shared("paths:app", *one_thread, app_dir=APPS)
    scope = scope_of(server, raw + "?q=%2F")
    assert (scope["raw_path"], scope["path"], scope["query_string"]) == (raw, path, "q=%2F")


def test_octets_beyond_ascii_in_a_path(shared, one_thread):
    server = shared("paths:app", *one_thread, app_dir=APPS)
    with server.connect() as connection:
        connection.send(b"GET /\xe2\x80\xa6\xff HTTP/1.1\r\nHost: a\r\n\r\n")
        response = connection.read_response()
    if response.status == 200:
        scope = json.loads(response.body)
        assert scope["path"] == "/\u2026\ufffd"
    else:
        assert response.status == 400


@pytest.mark.parametrize("target", ["http://example.org/scope?x=1", "http://example.org:80/scope?x=1"])
def test_the_absolute_form_replaces_host(bare, target):
    scope = scope_of(bare, target)
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/scope", "/scope", "x=1")
    hosts = [value for name, value in scope["headers"] if name == "host"]
    assert hosts == [target.split("/")[2]]


def test_http_1_0(bare):
    with bare.connect() as connection:
        connection.send(b"GET /scope HTTP/1.0\r\n\r\n")
        response = connection.read_response()
        scope = json.loads(response.body)
    assert scope["http_version"] == "1.0"
    assert scope["headers"] == []


def test_names_come_in_lower_case_and_fields_in_their_order(bare):
    response = fetch(bare, "/headers", "X-B: 1", "X-A: 2", "X-B: 3", "UPPER_Case: 4", "X-Latin: \xe9")
    lines = response.body.decode().splitlines()
    assert [line for line in lines if not line.startswith("host")] == [
        "x-b=1",
        "x-a=2",
        "x-b=3",
        "upper_case=4",
        "x-latin=\xe9",
    ]


def test_many_names_and_values_on_one_connection(bare):
    """The cache of header pairs gives nobody another one's."""
    with bare.connect() as connection:
        for number in range(300):
            fields = [f"X-Name-{number % 7}: {number % 3}", f"X-Odd-{number}: {number}", f"Cookie: c={number}"]
            response = connection.exchange(wire.get("/headers", *fields))
            lines = response.body.decode().splitlines()[1:]
            assert lines == [f"x-name-{number % 7}={number % 3}", f"x-odd-{number}={number}", f"cookie=c={number}"]


def test_a_lower_case_method_is_uppercased(bare):
    assert scope_of(bare, method="get")["method"] == "GET"
    assert fetch(bare, "/scope", method="PATCH").status == 200


def test_unix_sockets_have_no_addresses(serve, one_thread, tmp_path_factory):
    import tempfile

    with tempfile.TemporaryDirectory(prefix="m0") as directory:
        server = serve("app:app", *one_thread, app_dir=BARE, bind=(f"unix:{directory}/s",))
        scope = fetch_json(server, "/scope")
    assert scope["client"] is None and scope["server"] is None


def test_the_address_reached_is_told_not_the_wildcard(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE, bind=("0.0.0.0:0",))
    port = int(server.address.rsplit(":", 1)[1].rstrip("/"))
    with wire.Connection(socket.create_connection(("127.0.0.2", port))) as connection:
        scope = json.loads(connection.exchange(wire.get("/scope")).body)
    assert scope["server"] == ["127.0.0.2", port]


@pytest.mark.parametrize("target, path", [("/scope", "/api/scope"), ("/api/scope", "/api/scope")])
def test_the_mount_point_is_in_root_path_and_path(shared, one_thread, target, path):
    server = shared("paths:app", "--root-path", "/api", *one_thread, app_dir=APPS)
    scope = scope_of(server, target)
    assert (scope["root_path"], scope["path"], scope["raw_path"]) == ("/api", path, path)


def test_nothing_leaks_from_scope_to_scope(shared, one_thread):
    """An application that changes what it got changes it for itself."""
    server = shared("paths:vandal", *one_thread, app_dir=APPS)
    with server.connect() as connection:
        answers = [connection.exchange(wire.get("/x?y")).body for _ in range(3)]
    assert len(set(answers)) == 1


def test_each_request_has_a_copy_of_the_state(lone):
    first = fetch_json(lone, "/state?add=1")
    second = fetch_json(lone, "/state")
    assert first["of_one_request"] is None and second["of_one_request"] is None
    assert second["shared"][-1] == "1"


def test_each_request_has_a_context_of_its_own(bare):
    with bare.connect() as connection:
        for _ in range(3):
            assert connection.exchange(wire.get("/context")).body == b"unset\n"


def test_tasks_have_names_and_the_first_thread_is_the_main_one(shared, one_thread):
    server = shared("app:app", *one_thread, app_dir=BARE)
    who = fetch_json(server, "/whoami")
    assert who["main"] is True
    assert who["thread"] == who["started_in"]
    assert who["loop"].startswith(one_thread[1])
