"""An ASGI application without dependencies: the benchmarks' cheapest view, and one route for each thing that ASGI 3 lets
an application do or get wrong, so that tests and people can see how a server takes it.

    m0serve --app-dir apps/asgi_bare app:app

ROUTES and SOCKETS at the end are the lists of routes.
"""

import asyncio
import contextvars
import json
import os
import sys
import tempfile
import threading
import time
from urllib.parse import parse_qsl

TEXT = (b"content-type", b"text/plain; charset=utf-8")
HELLO = b"Hello, World!"
HELLO_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"13")],
}
HELLO_BODY = {"type": "http.response.body", "body": HELLO}


async def app(scope, receive, send):
    if scope["type"] == "http":
        await ROUTES.get(scope["path"], not_found)(scope, receive, send)
    elif scope["type"] == "websocket":
        await SOCKETS.get(scope["path"], turned_away)(scope, receive, send)
    else:
        await lifespan(scope, receive, send)


application = app


async def lifespan(scope, receive, send):
    """LIFESPAN in the environment makes it go wrong: see each word below."""
    mode = os.environ.get("LIFESPAN", "")
    if mode == "unsupported":
        raise ValueError("no lifespan here")
    assert (await receive())["type"] == "lifespan.startup"
    if mode == "startup-failed":
        await send({"type": "lifespan.startup.failed", "message": "the database is gone"})
        return
    if mode == "startup-raises":
        raise RuntimeError("raised while starting")
    if mode == "startup-hangs":
        print("starting for ever", file=sys.stderr, flush=True)
        await asyncio.Event().wait()
    scope["state"]["started_in"] = threading.get_ident()
    scope["state"]["shared"] = []
    print("lifespan started", file=sys.stderr, flush=True)
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.shutdown"
    print("lifespan stopping", file=sys.stderr, flush=True)
    if mode == "shutdown-hangs":
        await asyncio.Event().wait()
    if mode == "shutdown-failed":
        await send({"type": "lifespan.shutdown.failed", "message": "the cache would not close"})
        return
    await send({"type": "lifespan.shutdown.complete"})


async def hello(scope, receive, send):
    await send(HELLO_START)
    await send(HELLO_BODY)


async def not_found(scope, receive, send):
    await text(send, "not found\n", 404)


async def text(send, body, status=200, *headers):
    body = body.encode()
    await start(send, status, TEXT, (b"content-length", str(len(body)).encode()), *headers)
    await send({"type": "http.response.body", "body": body})


async def start(send, status, *headers, **more):
    await send({"type": "http.response.start", "status": status, "headers": list(headers), **more})


async def body(send, data, more=False):
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def as_json(send, value):
    data = json.dumps(value, indent=1, sort_keys=True, default=plain).encode() + b"\n"
    await start(send, 200, (b"content-type", b"application/json"))
    await body(send, data)


def plain(value):
    return value.decode("latin-1") if isinstance(value, bytes) else repr(value)


def query(scope):
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


async def pieces(receive):
    """The pieces of the request's body, as they come."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone("disconnected while the body was awaited")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


class Gone(Exception):
    pass


class Deliberate(Exception):
    """What the routes that go wrong raise."""


# Time.


async def slow(scope, receive, send):
    """Awaits ?ms= (200)."""
    ms = float(query(scope).get("ms", 200))
    await asyncio.sleep(ms / 1000)
    await text(send, f"slept {ms:g} ms\n")


async def busy(scope, receive, send):
    """Computes for ?ms= (1) of processor time, and holds the event loop meanwhile."""
    ms = float(query(scope).get("ms", 1))
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        pass
    await text(send, f"computed {ms:g} ms\n")


async def blocking(scope, receive, send):
    """What nobody should do in an async view: time.sleep for ?ms= (200)."""
    ms = float(query(scope).get("ms", 200))
    time.sleep(ms / 1000)
    await text(send, f"blocked for {ms:g} ms\n")


async def in_thread(scope, receive, send):
    """Blocks where it may: in a thread of the default executor."""
    ms = float(query(scope).get("ms", 200))
    await asyncio.to_thread(time.sleep, ms / 1000)
    await text(send, f"slept {ms:g} ms in a thread\n")


async def whoami(scope, receive, send):
    loop = asyncio.get_running_loop()
    await as_json(
        send,
        {
            "thread": threading.get_ident(),
            "main": threading.current_thread() is threading.main_thread(),
            "loop": type(loop).__module__,
            "task": asyncio.current_task().get_name(),
            "started_in": scope["state"].get("started_in"),
            "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        },
    )


# The request.


async def scope_json(scope, receive, send):
    """The whole scope; bytes as latin-1."""
    await as_json(send, {key: [list(pair) for pair in value] if key == "headers" else value for key, value in scope.items()})


async def scope_types(scope, receive, send):
    """The class of each value of the scope."""
    await as_json(send, {key: type(value).__name__ for key, value in scope.items()})


async def headers(scope, receive, send):
    """The request's fields as they were passed on; ?n= adds as many to the answer."""
    n = int(query(scope).get("n", 0))
    lines = "".join(f"{name.decode('latin-1')}={value.decode('latin-1')}\n" for name, value in scope["headers"])
    await text(send, lines, 200, *((f"x-field-{i}".encode(), f"value {i}".encode()) for i in range(n)))


async def state(scope, receive, send):
    """What the lifespan left: each request has a copy, of which the objects are shared. ?add= adds to one of them."""
    if "add" in query(scope):
        scope["state"]["shared"].append(query(scope)["add"])
    seen = scope["state"].get("of_one_request")
    scope["state"]["of_one_request"] = "seen"
    await as_json(send, {"shared": scope["state"].get("shared"), "of_one_request": seen})


VARIABLE = contextvars.ContextVar("VARIABLE", default="unset")


async def context(scope, receive, send):
    """A context variable that every request sets: none sees another's."""
    seen = VARIABLE.get()
    VARIABLE.set("set by another request")
    await asyncio.sleep(0)
    await text(send, seen + "\n")


# The request's body. Each reader answers with the length and the sum of the bytes.


async def read(scope, receive, send):
    """All of it."""
    length = total = count = 0
    async for piece in pieces(receive):
        count += 1
        length += len(piece)
        total += sum(piece)
    await text(send, f"len={length} sum={total}\n", 200, (b"x-pieces", str(count).encode()))


async def read_part(scope, receive, send):
    """One piece; the rest is left."""
    message = await receive()
    await text(send, f"len={len(message['body'])} more={message['more_body']}\n")


async def read_none(scope, receive, send):
    """Does not look at the body."""
    await text(send, "not read\n")


async def read_slowly(scope, receive, send):
    """A piece each ?ms= (50)."""
    ms = float(query(scope).get("ms", 50))
    length = 0
    async for piece in pieces(receive):
        length += len(piece)
        await asyncio.sleep(ms / 1000)
    await text(send, f"len={length}\n")


async def echo(scope, receive, send):
    """The body comes back."""
    kind = dict(scope["headers"]).get(b"content-type", b"application/octet-stream")
    data = b"".join([piece async for piece in pieces(receive)])
    await start(send, 200, (b"content-type", kind), (b"content-length", str(len(data)).encode()))
    await body(send, data)


async def echo_stream(scope, receive, send):
    """The body comes back piece by piece, while it comes in."""
    await start(send, 200, (b"content-type", b"application/octet-stream"))
    async for piece in pieces(receive):
        await body(send, piece, True)
    await body(send, b"")


async def receive_after(scope, receive, send):
    """What receive() gives after the body, and after the response."""
    async for _ in pieces(receive):
        pass
    waiting = asyncio.ensure_future(receive())
    await text(send, "complete\n")
    REPORTS.append([(await waiting)["type"], (await receive())["type"]])


REPORTS = []


async def reports(scope, receive, send):
    """What other routes have reported since this was asked for last."""
    found, REPORTS[:] = list(REPORTS), []
    await as_json(send, found)


# The response's body.


async def stream(scope, receive, send):
    """?n= (3) chunks of ?size= (13) bytes each, ?ms= (0) apart; without a length unless ?length=1."""
    options = query(scope)
    n, size, ms = (float(options.get(key, default)) for key, default in (("n", 3), ("size", 13), ("ms", 0)))
    n, size = int(n), int(size)
    extra = [(b"content-length", str(n * size).encode())] if options.get("length") == "1" else []
    await start(send, 200, TEXT, *extra)
    chunk = (HELLO * (size // len(HELLO) + 1))[:size]
    for i in range(n):
        if ms and i:
            await asyncio.sleep(ms / 1000)
        await body(send, chunk, True)
    await body(send, b"")


async def endless(scope, receive, send):
    """64 KiB for ever; how it ends is reported."""
    await start(send, 200, (b"content-type", b"application/octet-stream"))
    sent = 0
    try:
        while True:
            await body(send, b"e" * 65536, True)
            sent += 1
    except OSError as error:
        REPORTS.append(["endless", "OSError", type(error).__name__])
        raise


async def until_disconnect(scope, receive, send):
    """Starts a response and waits for the client to go; what receive() said is reported."""
    await start(send, 200, TEXT)
    await body(send, b"waiting\n", True)
    while (message := await receive())["type"] != "http.disconnect":
        pass
    REPORTS.append(["until_disconnect", message["type"]])


async def wait_for_disconnect(scope, receive, send):
    """The same before any answer."""
    while (message := await receive())["type"] != "http.disconnect":
        pass
    REPORTS.append(["wait_for_disconnect", message["type"]])


async def drip(scope, receive, send):
    """?n= (200) small sends, ?ms= (5) apart, whatever becomes of the client; errors are reported."""
    options = query(scope)
    await start(send, 200, TEXT)
    failures = []
    for _ in range(int(options.get("n", 200))):
        try:
            await body(send, b"drip\n", True)
        except OSError as error:
            failures.append(type(error).__name__)
        await asyncio.sleep(float(options.get("ms", 5)) / 1000)
    REPORTS.append(["drip", len(failures) > 0, sorted(set(failures))])


async def head_first(scope, receive, send):
    """The head goes out while the body is still being made."""
    await start(send, 200, TEXT)
    await asyncio.sleep(float(query(scope).get("ms", 300)) / 1000)
    await body(send, b"late body\n")


async def status(scope, receive, send):
    """The status ?code= (200), with a body that HEAD, 204 and 304 must not show."""
    await start(send, int(query(scope).get("code", 200)), TEXT)
    await body(send, b"a body\n")


async def announced(scope, receive, send):
    """content-length: ?length= over a body of ?size= bytes; they may differ."""
    options = query(scope)
    await start(send, 200, TEXT, (b"content-length", options.get("length", "5").encode()))
    await body(send, b"x" * int(options.get("size", 5)))


async def cookies(scope, receive, send):
    """Two fields of one name stay two."""
    await text(send, "two cookies\n", 200, (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2; Path=/"))


async def background(scope, receive, send):
    """Goes on for ?ms= (300) after its response."""
    await text(send, "the rest follows\n")
    await asyncio.sleep(float(query(scope).get("ms", 300)) / 1000)
    REPORTS.append(["background", "done"])


# Extensions.


async def path_send(scope, receive, send):
    """A file of ?size= (100000) bytes by http.response.pathsend; ?length=1 announces its length."""
    options = query(scope)
    with tempfile.NamedTemporaryFile() as file:
        write_numbers(file, int(options.get("size", 100_000)))
        extra = [(b"content-length", options.get("size", "100000").encode())] if options.get("length") == "1" else []
        await start(send, 200, (b"content-type", b"application/octet-stream"), *extra)
        await send({"type": "http.response.pathsend", "path": options.get("path", file.name)})


async def zerocopy_send(scope, receive, send):
    """Parts of a file of ?size= (100000) bytes by http.response.zerocopysend: the second half, then the first."""
    size = int(query(scope).get("size", 100_000))
    with tempfile.TemporaryFile() as file:
        write_numbers(file, size)
        await start(send, 200, (b"content-type", b"application/octet-stream"))
        half = size // 2
        await send({"type": "http.response.zerocopysend", "file": file, "offset": half, "more_body": True})
        await send({"type": "http.response.zerocopysend", "file": file, "offset": 0, "count": half})


def write_numbers(file, size):
    for begin in range(0, size, 65536):
        file.write(bytes(i % 251 for i in range(begin, min(begin + 65536, size))))
    file.flush()


async def early_hint(scope, receive, send):
    await send({"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload; as=style", b"</a.js>; rel=preload"]})
    await text(send, "hinted\n")


async def trailers(scope, receive, send):
    await start(send, 200, TEXT, (b"trailer", b"x-sum, x-count"), trailers=True)
    await body(send, b"with trailers\n")
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"1")], "more_trailers": True})
    await send({"type": "http.response.trailers", "headers": [(b"x-count", b"2")]})


# Mistakes.


async def error(scope, receive, send):
    raise Deliberate("an error in the view")


async def error_started(scope, receive, send):
    """Raises after http.response.start: nothing was sent yet, so a plain 500 is due."""
    await start(send, 200, TEXT)
    raise Deliberate("an error after the start")


async def error_body(scope, receive, send):
    """Raises after the first chunk."""
    await start(send, 200, TEXT)
    await body(send, b"one ", True)
    raise Deliberate("an error in the body")


async def error_later(scope, receive, send):
    """Raises after a wait."""
    await asyncio.sleep(0.01)
    raise Deliberate("an error after a wait")


async def error_after(scope, receive, send):
    """Raises when the response is complete: for the log only."""
    await text(send, "complete\n")
    raise Deliberate("an error after the response")


async def error_exit(scope, receive, send):
    """SystemExit in a view is a view's failure, not the server's end."""
    raise SystemExit(3)


async def error_exit_later(scope, receive, send):
    await asyncio.sleep(0.01)
    raise SystemExit(3)


async def error_none(scope, receive, send):
    """Returns without a word."""


async def error_unfinished(scope, receive, send):
    """Returns in the midst of the body."""
    await start(send, 200, TEXT)
    await body(send, b"one ", True)


async def error_cancelled(scope, receive, send):
    raise asyncio.CancelledError


MISTAKES = {
    "body_first": [{"type": "http.response.body", "body": b"x"}],
    "start_twice": [{"type": "http.response.start", "status": 200}, {"type": "http.response.start", "status": 200}],
    "no_type": [{"status": 200}],
    "no_status": [{"type": "http.response.start"}],
    "unknown_type": [{"type": "http.response.push"}],
    "bad_status": [{"type": "http.response.start", "status": 99}],
    "interim_status": [{"type": "http.response.start", "status": 103}],
    "status_text": [{"type": "http.response.start", "status": "200 OK"}],
    "header_crlf": [{"type": "http.response.start", "status": 200, "headers": [(b"x-split", b"a\r\nx-injected: 1")]}],
    "header_str": [{"type": "http.response.start", "status": 200, "headers": [("x-name", b"value")]}],
    "header_triple": [{"type": "http.response.start", "status": 200, "headers": [(b"a", b"b", b"c")]}],
    "header_name": [{"type": "http.response.start", "status": 200, "headers": [(b"x name", b"value")]}],
    "headers_number": [{"type": "http.response.start", "status": 200, "headers": 7}],
    "body_str": [
        {"type": "http.response.start", "status": 200},
        {"type": "http.response.body", "body": "text"},
    ],
    "not_a_dict": ["http.response.start"],
    "websocket": [{"type": "websocket.accept"}],
    "trailers": [{"type": "http.response.trailers", "headers": []}],
}


async def mistake(scope, receive, send):
    """Sends ?kind= of MISTAKES, and answers with the exception that send() raised."""
    for message in MISTAKES[query(scope)["kind"]]:
        try:
            await send(message)
        except Exception as raised:
            found = f"{type(raised).__name__}: {raised}\n".encode()
            # The answer may have begun: then it is ended with what there is to say.
            try:
                await start(send, 200, TEXT)
            except RuntimeError:
                pass
            await body(send, found)
            return
    await body(send, b"no exception\n")


async def send_after(scope, receive, send):
    """Sends once more after the response; the exception is reported."""
    await text(send, "complete\n")
    try:
        await body(send, b"more")
    except Exception as raised:
        REPORTS.append(["send_after", type(raised).__name__])


KEPT = []


async def keep(scope, receive, send):
    """Keeps send and receive beyond the request."""
    KEPT[:] = [receive, send]
    await text(send, "kept\n")


async def use_kept(scope, receive, send):
    """Uses what /keep kept."""
    kept_receive, kept_send = KEPT
    message = await kept_receive()
    try:
        await kept_send(HELLO_BODY)
        found = "sent"
    except Exception as raised:
        found = type(raised).__name__
    await text(send, f"{message['type']} {found}\n")


async def foreign_thread(scope, receive, send):
    """send() on another thread than the event loop's."""
    def attempt():
        try:
            send(HELLO_START)
        except Exception as raised:
            return type(raised).__name__
        return "sent"

    await text(send, await asyncio.to_thread(attempt) + "\n")


async def as_tasks(scope, receive, send):
    """receive() and send() as tasks, and a receive() that is given up: no message is lost."""
    first = await asyncio.create_task(receive())
    try:
        await asyncio.wait_for(receive(), 0.01)
        found = "a message too many"
    except TimeoutError:
        found = f"{first['type']} {first['body'].decode()}"
    await asyncio.create_task(send({"type": "http.response.start", "status": 200, "headers": [TEXT]}))
    await asyncio.create_task(send({"type": "http.response.body", "body": found.encode() + b"\n"}))


# WebSockets.


async def turned_away(scope, receive, send):
    await receive()
    await send({"type": "websocket.close"})


async def accept(receive, send, **more):
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept", **more})


async def socket_echo(scope, receive, send):
    await accept(receive, send)
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") is not None:
            await send({"type": "websocket.send", "text": message["text"]})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})
    REPORTS.append(["echo", message["code"], message.get("reason", "")])


async def socket_scope(scope, receive, send):
    """The scope as one message."""
    chosen = scope["subprotocols"][0] if scope["subprotocols"] else None
    await accept(receive, send, subprotocol=chosen, headers=[(b"x-answer", b"42")])
    shown = {key: [list(pair) for pair in value] if key == "headers" else value for key, value in scope.items()}
    await send({"type": "websocket.send", "text": json.dumps(shown, default=plain)})
    await send({"type": "websocket.close"})


async def socket_close(scope, receive, send):
    """Closes with ?code= and ?reason=."""
    options = query(scope)
    await accept(receive, send)
    await send({"type": "websocket.close", "code": int(options.get("code", 1000)), "reason": options.get("reason", "")})
    REPORTS.append(["close", (await receive())["type"]])


async def socket_denied(scope, receive, send):
    """An HTTP response in place of a WebSocket."""
    await receive()
    await send({"type": "websocket.http.response.start", "status": 401, "headers": [TEXT, (b"www-authenticate", b"Basic")]})
    await send({"type": "websocket.http.response.body", "body": b"who are ", "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b"you?\n"})


async def socket_error(scope, receive, send):
    """Raises: before accepting with ?when=before, else after."""
    if query(scope).get("when") == "before":
        raise Deliberate("an error before the handshake")
    await accept(receive, send)
    raise Deliberate("an error in a WebSocket")


async def socket_return(scope, receive, send):
    """Returns without closing."""
    await accept(receive, send)
    await send({"type": "websocket.send", "text": "bye"})


async def socket_flood(scope, receive, send):
    """?n= (1000) messages of ?size= (65536) bytes, as fast as the client takes them."""
    options = query(scope)
    await accept(receive, send)
    payload = b"f" * int(options.get("size", 65536))
    try:
        for _ in range(int(options.get("n", 1000))):
            await send({"type": "websocket.send", "bytes": payload})
    except OSError as error:
        REPORTS.append(["flood", type(error).__name__])
        raise
    await send({"type": "websocket.close"})


async def socket_sleepy(scope, receive, send):
    """Accepts, and receives only when ?ms= (500) have passed; then echoes the number of messages."""
    await accept(receive, send)
    await asyncio.sleep(float(query(scope).get("ms", 500)) / 1000)
    count = 0
    while (await receive())["type"] == "websocket.receive":
        count += 1
        if count == int(query(scope).get("n", 1)):
            await send({"type": "websocket.send", "text": str(count)})


async def socket_mistakes(scope, receive, send):
    """Messages that have no place; the exceptions are sent."""
    await receive()
    found = []

    async def attempt(message):
        try:
            await send(message)
            found.append("sent")
        except Exception as raised:
            found.append(type(raised).__name__)

    await attempt({"type": "websocket.send", "text": "too early"})
    await attempt({"type": "websocket.accept", "subprotocol": "unheard-of"})
    await attempt({"type": "websocket.accept", "headers": [(b"sec-websocket-accept", b"forged")]})
    await send({"type": "websocket.accept"})
    await attempt({"type": "websocket.accept"})
    await attempt({"type": "websocket.send"})
    await attempt({"type": "websocket.send", "text": b"bytes"})
    await attempt({"type": "http.response.start", "status": 200})
    await attempt({"type": "websocket.close", "code": 1006})
    await send({"type": "websocket.send", "text": json.dumps(found)})
    await send({"type": "websocket.close"})
    await attempt({"type": "websocket.send", "text": "too late"})
    REPORTS.append(["mistakes", found[-1]])


ROUTES = {
    "/": hello,
    "/slow": slow,
    "/busy": busy,
    "/blocking": blocking,
    "/in_thread": in_thread,
    "/whoami": whoami,
    "/scope": scope_json,
    "/scope/types": scope_types,
    "/headers": headers,
    "/state": state,
    "/context": context,
    "/read": read,
    "/read/part": read_part,
    "/read/none": read_none,
    "/read/slowly": read_slowly,
    "/echo": echo,
    "/echo/stream": echo_stream,
    "/receive_after": receive_after,
    "/reports": reports,
    "/stream": stream,
    "/endless": endless,
    "/until_disconnect": until_disconnect,
    "/wait_for_disconnect": wait_for_disconnect,
    "/drip": drip,
    "/head_first": head_first,
    "/status": status,
    "/announced": announced,
    "/cookies": cookies,
    "/background": background,
    "/pathsend": path_send,
    "/zerocopysend": zerocopy_send,
    "/early_hint": early_hint,
    "/trailers": trailers,
    "/error": error,
    "/error/started": error_started,
    "/error/body": error_body,
    "/error/later": error_later,
    "/error/after": error_after,
    "/error/exit": error_exit,
    "/error/exit_later": error_exit_later,
    "/error/none": error_none,
    "/error/unfinished": error_unfinished,
    "/error/cancelled": error_cancelled,
    "/mistake": mistake,
    "/send_after": send_after,
    "/keep": keep,
    "/use_kept": use_kept,
    "/foreign_thread": foreign_thread,
    "/as_tasks": as_tasks,
}

SOCKETS = {
    "/echo": socket_echo,
    "/scope": socket_scope,
    "/close": socket_close,
    "/denied": socket_denied,
    "/error": socket_error,
    "/return": socket_return,
    "/flood": socket_flood,
    "/sleepy": socket_sleepy,
    "/mistakes": socket_mistakes,
}
