"""WebSockets as applications see them, and as clients do (the codec itself has tests of its own)."""

import asyncio
import json
import signal
import socket

import pytest
import websockets
from asking import APPS, BARE, descriptors_settle, fetch, forget_reports, report
from harness import wire
from harness.proc import open_descriptors, rss_kb
from websockets.exceptions import ConnectionClosed, InvalidStatus


def url(server, path):
    return server.url.replace("http", "ws") + path


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def until_closed(client):
    """The messages until the end, and how it ended."""
    messages = []
    try:
        while True:
            messages.append(await client.recv())
    except ConnectionClosed as end:
        return messages, end.rcvd


@pytest.mark.parametrize("compression", ["deflate", None])
def test_echo(bare, compression):
    async def talk():
        async with websockets.connect(url(bare, "/echo"), compression=compression, max_size=None) as client:
            for message in ["", "hällo ☃", b"", b"\x00\xff" * 10, "x" * 70_000, bytes(range(256)) * 5000]:
                await client.send(message)
                assert await client.recv() == message
            await client.send(["in ", "three ", "fragments"])
            assert await client.recv() == "in three fragments"
            await asyncio.wait_for(await client.ping(), 10)

    run(talk())


def test_the_scope(bare):
    async def talk():
        async with websockets.connect(
            url(bare, "/scope?a=%20"), subprotocols=["chat", "other"], additional_headers={"X-Own": "1"}
        ) as client:
            assert client.subprotocol == "chat"
            assert client.response.headers["x-answer"] == "42"
            assert "date" in client.response.headers
            scope = json.loads(await client.recv())
            assert (await until_closed(client))[1].code == 1000
            return scope

    scope = run(talk())
    assert scope["type"] == "websocket"
    assert scope["scheme"] == "ws"
    assert scope["http_version"] == "1.1"
    assert "method" not in scope
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/scope", "/scope", "a=%20")
    assert scope["subprotocols"] == ["chat", "other"]
    assert scope["extensions"] == {"websocket.http.response": {}}
    assert ["x-own", "1"] in scope["headers"]
    assert "state" in scope and scope["client"][0] == "127.0.0.1"


HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    "Sec-WebSocket-Version: {version}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_keep_alive_and_upgrade_together(bare):
    with bare.connect() as connection:
        connection.send(HANDSHAKE.format(path="/echo", version=13).encode())
        head = connection.read_head()
        assert head.status == 101
        assert head.one("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        # "Hello", masked (RFC 6455 5.7), and its echo.
        connection.send(bytes.fromhex("818537fa213d7f9f4d5158"))
        assert bytes(connection._exactly(7)) == b"\x81\x05Hello"


def test_frames_right_behind_the_handshake(bare):
    with bare.connect() as connection:
        connection.send(HANDSHAKE.format(path="/echo", version=13).encode() + bytes.fromhex("818537fa213d7f9f4d5158"))
        assert connection.read_head().status == 101
        assert bytes(connection._exactly(7)) == b"\x81\x05Hello"


def test_a_wrong_version(bare):
    with bare.connect() as connection:
        response = connection.exchange(HANDSHAKE.format(path="/echo", version=8).encode())
        assert response.status == 426
        assert response.one("sec-websocket-version") == "13"


def test_an_upgrade_to_something_else_is_a_plain_request(bare):
    response = fetch(bare, "/", "Connection: Upgrade", "Upgrade: h2c")
    assert response.body == b"Hello, World!"


@pytest.mark.parametrize(
    "path, status, body",
    [("/nothing", 403, b"Forbidden\n"), ("/denied", 401, b"who are you?\n"), ("/error?when=before", 500, None)],
)
def test_denials(bare, path, status, body):
    async def talk():
        with pytest.raises(InvalidStatus) as refused:
            async with websockets.connect(url(bare, path)):
                pass
        return refused.value.response

    response = run(talk())
    assert response.status_code == status
    if body is not None:
        assert bytes(response.body) == body


def test_a_denied_connection_goes_on(bare):
    with bare.connect() as connection:
        assert connection.exchange(HANDSHAKE.format(path="/denied", version=13).encode()).status == 401
        assert connection.exchange(wire.get("/")).status == 200


@pytest.mark.parametrize("query, code, reason", [("", 1000, ""), ("?code=4001&reason=why%20not", 4001, "why not"), ("?code=3000", 3000, "")])
def test_the_application_closes(lone, query, code, reason):
    forget_reports(lone)

    async def talk():
        async with websockets.connect(url(lone, "/close" + query)) as client:
            return await until_closed(client)

    messages, close = run(talk())
    assert (messages, close.code, close.reason) == ([], code, reason)
    assert report(lone, "close") == ["close", "websocket.disconnect"]


@pytest.mark.parametrize("code, reason", [(1000, ""), (4000, "enough"), (1001, "")])
def test_the_client_closes(lone, code, reason):
    forget_reports(lone)

    async def talk():
        async with websockets.connect(url(lone, "/echo")) as client:
            await client.send("x")
            await client.recv()
            await client.close(code, reason)

    run(talk())
    assert report(lone, "echo") == ["echo", code, reason]


def test_the_client_closes_without_a_code(lone):
    forget_reports(lone)
    with lone.connect() as connection:
        connection.send(HANDSHAKE.format(path="/echo", version=13).encode())
        assert connection.read_head().status == 101
        connection.send(b"\x88\x80\x00\x00\x00\x00")
        assert bytes(connection._exactly(2)) == b"\x88\x00"
        connection.expect_end()
    assert report(lone, "echo") == ["echo", 1005, ""]


@pytest.mark.parametrize("how", ["reset", "close"])
def test_the_client_is_gone(lone, how):
    forget_reports(lone)
    connection = lone.connect()
    connection.send(HANDSHAKE.format(path="/echo", version=13).encode())
    assert connection.read_head().status == 101
    getattr(connection, how)()
    assert report(lone, "echo") == ["echo", 1006, ""]


def test_an_exception_closes_with_1011(bare):
    lines = len(bare.stderr.lines)

    async def talk():
        async with websockets.connect(url(bare, "/error")) as client:
            return await until_closed(client)

    assert run(talk())[1].code == 1011
    assert bare.stderr.wait_for("an error in a WebSocket", after=lines)


def test_returning_closes_with_1000(bare):
    async def talk():
        async with websockets.connect(url(bare, "/return")) as client:
            return await until_closed(client)

    messages, close = run(talk())
    assert (messages, close.code) == (["bye"], 1000)


def test_mistakes_are_told_by_send(lone):
    forget_reports(lone)

    async def talk():
        async with websockets.connect(url(lone, "/mistakes")) as client:
            return json.loads(await client.recv())

    assert run(talk()) == [
        "RuntimeError",
        "ValueError",
        "ValueError",
        "RuntimeError",
        "ValueError",
        "TypeError",
        "RuntimeError",
        "ValueError",
    ]
    assert report(lone, "mistakes") == ["mistakes", "RuntimeError"]


def test_a_message_beyond_the_limit(shared, one_thread):
    server = shared("app:app", "--ws-max-size", "1000", *one_thread, app_dir=BARE)

    async def talk(message, compression):
        async with websockets.connect(url(server, "/echo"), compression=compression) as client:
            await client.send(message)
            return await until_closed(client)

    for compression in ("deflate", None):
        assert run(talk("x" * 1001, compression))[1].code == 1009

    async def fits():
        async with websockets.connect(url(server, "/echo")) as client:
            await client.send("x" * 1000)
            return await client.recv()

    assert run(fits()) == "x" * 1000


def test_text_that_is_not_utf_8(lone):
    with lone.connect() as connection:
        connection.send(HANDSHAKE.format(path="/echo", version=13).encode())
        assert connection.read_head().status == 101
        connection.send(b"\x81\x81\x00\x00\x00\x00\xff")
        frame = bytes(connection._exactly(4))
        assert frame[0] == 0x88 and frame[2:4] == (1007).to_bytes(2)


def test_a_slow_reader_stops_the_sender(lone):
    forget_reports(lone)
    connection = lone.connect()
    connection.send(HANDSHAKE.format(path="/flood?n=100000", version=13).encode())
    assert connection.read_head().status == 101
    fetch(lone, "/")
    before = rss_kb(lone.pid)
    for _ in range(50):
        assert fetch(lone, "/").status == 200
    assert rss_kb(lone.pid) - before < 8 * 1024
    connection.reset()
    assert report(lone, "flood") == ["flood", "BrokenPipeError"]


def test_a_slow_receiver_stops_the_client(lone):
    connection = lone.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    connection.send(HANDSHAKE.format(path="/sleepy?ms=3000", version=13).encode())
    assert connection.read_head().status == 101
    frame = b"\x82\xfe\x10\x00\x00\x00\x00\x00" + b"x" * 4096
    connection.sock.setblocking(False)
    sent = 0
    with pytest.raises(BlockingIOError):
        while sent < 64 * 1024 * 1024:
            sent += connection.sock.send(frame * 16)
    assert sent < 32 * 1024 * 1024
    connection.reset()


def test_messages_that_waited_are_received(lone):
    async def talk():
        async with websockets.connect(url(lone, "/sleepy?ms=200&n=100")) as client:
            for number in range(100):
                await client.send("m" * 2000)
            return await client.recv()

    assert run(talk()) == "100"


def test_pings_and_a_client_that_does_not_answer(shared, one_thread):
    server = shared("app:app", "--ws-ping-interval", "0.2", "--ws-ping-timeout", "0.3", *one_thread, app_dir=BARE)
    forget_reports(server)
    with server.connect() as connection:
        connection.send(HANDSHAKE.format(path="/echo", version=13).encode())
        assert connection.read_head().status == 101
        ping = bytes(connection._exactly(6))
        assert ping[:2] == b"\x89\x04"
        rest = b""
        while b"\x88" not in rest:
            rest += bytes(connection._exactly(1))
        assert report(server, "echo")[:2] == ["echo", 1006]

    async def answers():
        async with websockets.connect(url(server, "/echo"), ping_interval=None) as client:
            await asyncio.sleep(1.2)
            await client.send("still here")
            return await client.recv()

    assert run(answers()) == "still here"


def test_the_drain_closes_with_1012(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE)

    async def talk():
        async with websockets.connect(url(server, "/echo")) as client:
            await client.send("x")
            await client.recv()
            server.send_signal(signal.SIGTERM)
            return await until_closed(client)

    assert run(talk())[1].code == 1012
    server.ended_by_test = True
    assert server.wait() == 0


def test_connections_come_back(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE)
    fetch(server, "/")
    base = open_descriptors(server.pid)

    async def talk(path):
        try:
            async with websockets.connect(url(server, path)) as client:
                await until_closed(client)
        except InvalidStatus:
            pass

    for path in ["/return", "/close", "/denied", "/nothing", "/error", "/error?when=before"] * 3:
        run(talk(path))
    descriptors_settle(server, base)


def test_starlette_over_websockets(shared, one_thread):
    server = shared("fastapi_app:app", *one_thread, app_dir=APPS)

    async def talk():
        async with websockets.connect(url(server, "/chat"), additional_headers={"x-user": "zoe"}) as client:
            await client.send(json.dumps({"say": "hi"}))
            answer = json.loads(await client.recv())
        with pytest.raises(InvalidStatus) as refused:
            async with websockets.connect(url(server, "/guarded")):
                pass
        return answer, refused.value.response.status_code

    assert run(talk()) == ({"you": "zoe", "said": "hi"}, 403)
