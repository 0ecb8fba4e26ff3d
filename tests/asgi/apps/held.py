"""WebSockets that receive nothing until they are told to: what the server keeps meanwhile is its own business.

GET /release lets the open ones go on, GET /reports tells what came of them. Messages begin with their number, in 8 bytes.
"""

import asyncio
import json
from urllib.parse import parse_qsl

HELD = set()
REPORTS = []


async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await SOCKETS[scope["path"]](scope, receive, send)
    elif scope["type"] == "http":
        answer = []
        if scope["path"] == "/release":
            for gate in HELD:
                gate.set()
        elif scope["path"] == "/reports":
            answer, REPORTS[:] = list(REPORTS), []
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})
    else:
        raise ValueError("no lifespan here")


async def accept(receive, send):
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})


async def released():
    gate = asyncio.Event()
    HELD.add(gate)
    try:
        await gate.wait()
    finally:
        HELD.remove(gate)


async def receive_all(receive):
    """How many messages came, whether each was the next one, and the close code."""
    count, in_order = 0, True
    while (message := await receive())["type"] == "websocket.receive":
        in_order &= int.from_bytes(message["bytes"][:8]) == count
        count += 1
    return [count, in_order, message["code"]]


async def hold(scope, receive, send):
    """Receives when it is released."""
    await accept(receive, send)
    await released()
    REPORTS.append(["hold", *await receive_all(receive)])


async def talk(scope, receive, send):
    """Sends until that fails, then receives; with ?raise=1 the failure is its end."""
    await accept(receive, send)
    await released()
    try:
        while True:
            await send({"type": "websocket.send", "bytes": b"x"})
            await asyncio.sleep(0)
    except OSError as error:
        if dict(parse_qsl(scope["query_string"].decode())).get("raise"):
            raise
        REPORTS.append(["talk", type(error).__name__, *await receive_all(receive)])


SOCKETS = {"/hold": hold, "/talk": talk}
