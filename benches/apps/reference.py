"""What an application answers when no server is in the way: the body that every server has to give back.

    python reference.py wsgi|asgi MODULE:ATTRIBUTE  <requests  >answers

Standard input: one JSON object a line with method, path, query, body (base64). Standard output: one JSON object a
line with status and body (base64). Runs under the benchmark's virtual environment, in the application's folder.
"""

import asyncio
import base64
import importlib
import io
import json
import os
import sys


def call_wsgi(application, request):
    body = base64.b64decode(request["body"])
    environ = {
        "REQUEST_METHOD": request["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": request["path"],
        "QUERY_STRING": request["query"],
        "CONTENT_LENGTH": str(len(body)) if body else "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    status = []
    chunks = []

    def start_response(line, headers, exc_info=None):
        status[:] = [int(line[:3])]
        return chunks.append

    result = application(environ, start_response)
    try:
        chunks.extend(result)
    finally:
        if hasattr(result, "close"):
            result.close()
    return status[0], b"".join(chunks)


async def call_asgi(application, request):
    body = base64.b64decode(request["body"])
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request["method"],
        "scheme": "http",
        "path": request["path"],
        "raw_path": request["path"].encode(),
        "query_string": request["query"].encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    sent = []
    incoming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if incoming:
            return incoming.pop()
        await asyncio.get_running_loop().create_future()  # no disconnect: nobody waits for one here

    async def send(message):
        sent.append(message)

    await application(scope, receive, send)
    status = next(message["status"] for message in sent if message["type"] == "http.response.start")
    return status, b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")


async def with_lifespan(application, requests):
    """Runs the requests between start-up and shutdown, for applications that prepare themselves there."""
    to_app, from_app = asyncio.Queue(), asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
    task = asyncio.ensure_future(application(scope, to_app.get, from_app.put))
    to_app.put_nowait({"type": "lifespan.startup"})
    started = asyncio.ensure_future(from_app.get())
    await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
    answers = [await call_asgi(application, request) for request in requests]
    started.cancel()
    task.cancel()
    await asyncio.gather(task, started, return_exceptions=True)
    return answers


def main(interface, target):
    sys.path.insert(0, os.getcwd())
    output = os.dup(1)
    os.dup2(2, 1)  # whatever the application prints must not mix with the answers
    module, _, attribute = target.partition(":")
    application = getattr(importlib.import_module(module), attribute)
    requests = [json.loads(line) for line in sys.stdin]
    if interface == "wsgi":
        answers = [call_wsgi(application, request) for request in requests]
    else:
        answers = asyncio.run(with_lifespan(application, requests))
    with os.fdopen(output, "w") as out:
        for status, body in answers:
            print(json.dumps({"status": status, "body": base64.b64encode(body).decode()}), file=out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
