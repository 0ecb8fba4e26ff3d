"""Brings the GIL back on a free-threaded build by importing `oldext` (tests/integration/harness/oldext.py): on /import, or in the
lifespan with GIL_IN_LIFESPAN set. Every other path answers whether the GIL is on."""

import os
import sys


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        assert (await receive())["type"] == "lifespan.startup"
        if os.environ.get("GIL_IN_LIFESPAN"):
            import oldext
        await send({"type": "lifespan.startup.complete"})
        assert (await receive())["type"] == "lifespan.shutdown"
        return await send({"type": "lifespan.shutdown.complete"})
    if scope["path"] == "/import":
        import oldext  # noqa: F401
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(getattr(sys, "_is_gil_enabled", lambda: True)()).encode()})
