"""Applications about start and stop."""

import asyncio
import functools
import itertools
import os
import sys
import threading
import time

if os.environ.get("HIDE_UVLOOP"):
    sys.modules["uvloop"] = None


def say(text):
    print(text, file=sys.stderr, flush=True)


async def plain_lifespan(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    say("stopped in order")
    await send({"type": "lifespan.shutdown.complete"})


async def answer(send, body=b"served\n", more=False):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def background(scope, receive, send):
    if scope["type"] == "lifespan":
        return await plain_lifespan(scope, receive, send)
    await answer(send)
    await asyncio.sleep(0.3)
    say("background work ended")


async def stubborn(scope, receive, send):
    """Streams for ever; needs a different while to clean up, each."""
    if scope["type"] == "lifespan":
        return await plain_lifespan(scope, receive, send)
    number = int(scope["query_string"])
    try:
        await answer(send, b"begun\n", True)
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05 * number)
        say(f"cleaned up {number}")


async def immortal(scope, receive, send):
    """Does not end when it is cancelled."""
    if scope["type"] == "lifespan":
        return await plain_lifespan(scope, receive, send)
    await answer(send, b"begun\n", True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            pass


numbers = itertools.count(1)


async def second_fails(scope, receive, send):
    if scope["type"] == "lifespan":
        if next(numbers) == 2:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": "the second does not start"})
            return
        return await plain_lifespan(scope, receive, send)
    await answer(send)


async def generators(scope, receive, send):
    if scope["type"] == "lifespan":
        return await plain_lifespan(scope, receive, send)

    async def endless():
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            say("generator closed")

    def in_thread():
        time.sleep(0.2)
        say("thread of the executor ended")

    generator = endless()
    await anext(generator)
    kept.append(generator)
    asyncio.get_running_loop().run_in_executor(None, in_thread)
    await answer(send)


kept = []


async def stops_the_loop(scope, receive, send):
    if scope["type"] == "lifespan":
        return await plain_lifespan(scope, receive, send)
    asyncio.get_running_loop().stop()
    await answer(send)


def wsgi(environ, start_response):
    start_response("200 OK", [])
    return [b"wsgi\n"]


def asgi2(scope):
    async def call(receive, send):
        await answer(send)

    return call


def plain_function(scope, receive, send):
    return [b"no coroutine"]


class Callable:
    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await plain_lifespan(scope, receive, send)
        assert threading.current_thread() is threading.main_thread()
        await answer(send)

    async def method(self, scope, receive, send):
        await self(scope, receive, send)


def make():
    return Callable()


instance = Callable()


async def with_prefix(prefix, scope, receive, send):
    await instance(scope, receive, send)


partial = functools.partial(with_prefix, "x")


def pass_through(function):
    @functools.wraps(function)
    async def wrapped(*args):
        return await function(*args)

    return wrapped


@pass_through
async def decorated(scope, receive, send):
    await instance(scope, receive, send)


async def in_a_task(scope, receive, send):
    if scope["type"] == "lifespan":
        return await plain_lifespan(scope, receive, send)

    async def the_view():
        time.sleep(0.5)

    await asyncio.create_task(the_view())
    await answer(send)
