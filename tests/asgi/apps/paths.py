"""Answers any path with its scope."""

import json


def plain(value):
    return value.decode("latin-1") if isinstance(value, bytes) else repr(value)


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise ValueError(scope["type"])
    body = json.dumps(scope, default=plain).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


async def vandal(scope, receive, send):
    """Shows the scope, then breaks all of it that can be broken."""
    if scope["type"] != "http":
        raise ValueError(scope["type"])
    shown = {key: value for key, value in scope.items() if key not in ("client", "state")}
    body = json.dumps(shown, default=plain, sort_keys=True).encode()
    scope["extensions"].clear()
    scope["headers"].append((b"x-vandal", b"1"))
    scope["state"]["x"] = 1
    for key in list(scope):
        del scope[key]
    await send({"type": "http.response.start", "status": 200, "headers": [[b"content-type", b"application/json"]]})
    await send({"type": "http.response.body", "body": memoryview(body)})
