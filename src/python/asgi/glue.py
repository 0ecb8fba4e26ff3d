"""What a thread does once: its event loop, the lifespan protocol, the loop's end.

Run by m0serve, not imported by anybody: what happens for every request is native. Texts that come from here go to the log.
"""

import asyncio
import sys
import sysconfig
import traceback


def make_loop(kind):
    """The event loop that was asked for ("auto": uvloop if it is there), and its name."""
    if kind != "asyncio":
        try:
            import uvloop
        except ImportError:
            if kind == "uvloop":
                raise
        else:
            loop = uvloop.new_event_loop()
            asyncio.set_event_loop(loop)
            return loop, f"uvloop {uvloop.__version__}"
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop, "asyncio"


class Lifespan:
    """One run of the lifespan protocol (ASGI "Lifespan Protocol", 2.0).

    start() and stop() return a word and a text:
    "complete", "failed" (the application said so, with its message), "unsupported" (with a traceback if the
    application had begun with it), "aborted", "late".
    """

    def __init__(self, app, state):
        self._app = app
        self._state = state
        self._task = None
        self._received = 0
        self._stopping = None
        self._answers = {}
        self._error = None

    async def start(self):
        loop = asyncio.get_running_loop()
        self._stopping = loop.create_future()
        self._answers = {"startup": loop.create_future(), "shutdown": loop.create_future()}
        self._task = loop.create_task(self._run(), name="lifespan")
        return await self._answers["startup"]

    def abort(self):
        """The server is stopped. True if the application had not started yet."""
        startup = self._answers.get("startup")
        pending = startup is not None and not startup.done()
        if pending:
            startup.set_result(("aborted", ""))
        return pending

    async def stop(self, timeout):
        startup = self._answers.get("startup")
        if startup is None or startup.result()[0] != "complete":
            return "unsupported", ""
        if not self._stopping.done():
            self._stopping.set_result(None)
        done, _ = await asyncio.wait([self._answers["shutdown"]], timeout=timeout)
        answer = self._answers["shutdown"].result() if done else ("late", "")
        # After its answer it has nothing to do but to return.
        await asyncio.wait([self._task], timeout=1)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)
        return answer

    async def _run(self):
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self._state,
        }
        word = "unsupported"
        try:
            await self._app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            word = "aborted"
        except BaseException:
            self._error = traceback.format_exc()
        # One that raises before it has asked for anything doesn't know the protocol; that is no error.
        text = self._error or "" if self._received else ""
        self._answer("startup", (word, text))
        self._answer("shutdown", (word, text))

    def _answer(self, event, answer):
        future = self._answers[event]
        if not future.done():
            future.set_result(answer)

    async def _receive(self):
        self._received += 1
        if self._received == 1:
            return {"type": "lifespan.startup"}
        await asyncio.shield(self._stopping)
        if self._received == 2:
            return {"type": "lifespan.shutdown"}
        return await asyncio.get_running_loop().create_future()

    async def _send(self, message):
        kind = message["type"]
        event, _, word = kind.removeprefix("lifespan.").partition(".")
        if event not in self._answers or word not in ("complete", "failed"):
            raise RuntimeError(f"{kind!r} is no message of the lifespan protocol")
        if event == "shutdown" and not self._stopping.done():
            raise RuntimeError(f"{kind!r} was sent before \"lifespan.shutdown\" was received")
        if self._answers[event].done():
            raise RuntimeError(f"{kind!r} was sent, but the {event} has ended")
        self._answer(event, (word, str(message.get("message", ""))))


def run(loop):
    """Runs the event loop until somebody stops it, as run_forever() does, but for a task of its own.

    What belongs to the whole program is tied by libraries to the task that the event loop was started for: AnyIO's worker
    threads end with it (`find_root_task`). Without such a task they would end with the request that first needed one.
    """
    task = loop.create_task(_stay(loop), name="m0serve")
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        pass
    except RuntimeError:
        # Stopped before the task was done. It ends with all others, in finish().
        if loop.is_closed():
            raise


async def _stay(loop):
    await loop.create_future()


async def finish(timeout):
    """Cancels what is left on the loop; returns the names of tasks that don't end."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    stuck = set()
    if tasks:
        done, stuck = await asyncio.wait(tasks, timeout=timeout)
        for task in done:
            if not task.cancelled() and task.exception() is not None:
                loop.call_exception_handler(
                    {"message": "a task failed while it was cancelled", "exception": task.exception(), "task": task}
                )
    await loop.shutdown_asyncgens()
    # Threads that don't end must not hold the server up: it says so and goes.
    try:
        await asyncio.wait_for(loop.shutdown_default_executor(), timeout)
    except TimeoutError:
        stuck.add("a thread of the default executor")
    return [str(task) for task in stuck]


def holder(thread):
    """What the thread is doing: the innermost function of the application's own, and the stack."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "a thread that has ended", ""
    stack = traceback.extract_stack(frame)
    ours = [summary for summary in stack if not summary.filename.startswith(_LIBRARIES)]
    named = (ours or stack)[-1]
    # The event loop's own frames come first, and say nothing.
    while len(stack) > 1 and stack[0].filename.startswith(_ASYNCIO):
        del stack[0]
    return f"{named.name} ({named.filename}:{named.lineno})", "".join(stack.format())


_ASYNCIO = (asyncio.__path__[0], "<m0serve>")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}) + ("<",)
