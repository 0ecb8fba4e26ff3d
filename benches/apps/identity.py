"""Who serves? Answers every request with the facts that an artifact records about the serving process.

M0_BENCH_TARGET names the application that will be measured: it is imported first, since an import can bring
the GIL back on a free-threaded build, and the row has to say so.
"""

import importlib
import json
import os
import platform
import sys
import sysconfig
import threading

_target = os.environ.get("M0_BENCH_TARGET", "")
if _target:
    getattr(importlib.import_module(_target.partition(":")[0]), _target.partition(":")[2])


def _facts(loop=None):
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return json.dumps(
        {
            "python": platform.python_version(),
            "implementation": sys.implementation.name,
            "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
            "gil_enabled": gil,
            "switch_interval": sys.getswitchinterval(),
            "loop": loop,
            "thread": threading.current_thread().name,
            "venv": sys.prefix != sys.base_prefix,
        }
    ).encode()


def application(environ, start_response):
    body = _facts()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    import asyncio

    loop = asyncio.get_running_loop()
    body = _facts(f"{type(loop).__module__}.{type(loop).__qualname__}")
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})
