"""What /endless, /split, /fail and /wait say; anything else answers with its path and the fields that begin with x-, and says
so on stderr."""

import asyncio
import json
import sys

GATE = asyncio.Event()


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise ValueError("HTTP only")
    path = scope["path"]
    print("reached", flush=True, file=sys.stderr)
    if path.startswith("/fail"):
        raise RuntimeError("on purpose")
    if path == "/wait":
        await GATE.wait()
    elif path == "/go":
        GATE.set()
    headers = [(b"x-split", b"a\r\nX: 1")] if path == "/split" else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while path == "/endless":
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
    body = b""
    if scope["method"] == "POST":
        body = (await receive())["body"]
    own = [[name.decode(), value.decode("latin-1")] for name, value in scope["headers"] if name.startswith(b"x")]
    await send({"type": "http.response.body", "body": json.dumps([path, own, len(body)]).encode()})
