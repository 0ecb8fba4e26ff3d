"""A live page over server-sent events, in the style of Datastar: the server sends pieces of the page, the browser puts them
in place. Every open page sees every click, and who else is there.

    m0serve --app-dir apps/sse app:app

The page's own script is thirty lines without a library, so that it works where no CDN is reached; the events are Datastar's
(datastar-patch-elements), so that Datastar's own script could take its place.
"""

import asyncio
import html
import itertools
from contextlib import asynccontextmanager

from datastar_py.starlette import ServerSentEventGenerator
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Live</title>
<style>body { font: 1.1em sans-serif; margin: 3em auto; max-width: 34em } #count { font-size: 3em }</style></head>
<body>
<h1>Live</h1>
<p id="count">…</p>
<p><button id="plus">+1</button> <input id="say" placeholder="say something"></p>
<p id="present"></p>
<ul id="said"></ul>
<script>
const events = new EventSource("/live");
events.addEventListener("datastar-patch-elements", (event) => {
    const lines = event.data.split("\\n");
    const all = (name) => lines.filter((line) => line.startsWith(name + " ")).map((line) => line.slice(name.length + 1));
    const piece = document.createElement("template");
    piece.innerHTML = all("elements").join("\\n");
    const [mode, selector] = [all("mode")[0] || "outer", all("selector")[0]];
    for (const element of [...piece.content.children]) {
        const old = document.querySelector(selector || "#" + element.id);
        if (!old) continue;
        if (mode === "append") old.append(element); else old.replaceWith(element);
    }
});
document.getElementById("plus").onclick = () => fetch("/plus", { method: "POST" });
document.getElementById("say").onchange = (event) => {
    fetch("/say", { method: "POST", body: event.target.value });
    event.target.value = "";
};
</script>
</body></html>
"""

KEEP_ALIVE = 15
"""Seconds of silence after which a comment is sent: proxies close what is silent for a minute."""


class Room:
    """What all pages see."""

    def __init__(self):
        self.count = 0
        self.said = []
        self.pages = set()

    def tell(self, event):
        for queue in self.pages:
            # A page that does not read is left behind, not waited for.
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    def tell_presence(self):
        self.tell(patch(f'<p id="present">{len(self.pages)} here</p>'))


def patch(elements, **options):
    return str(ServerSentEventGenerator.patch_elements(elements, **options))


@asynccontextmanager
async def lifespan(app):
    yield {"room": Room()}


async def page(request):
    return HTMLResponse(PAGE)


async def live(request):
    room = request.state.room

    async def events():
        queue = asyncio.Queue(maxsize=64)
        room.pages.add(queue)
        room.tell_presence()
        try:
            yield patch(f'<p id="count">{room.count}</p>')
            for line in room.said:
                yield patch(f"<li>{line}</li>", selector="#said", mode="append")
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE):
                        event = await queue.get()
                except TimeoutError:
                    event = ": still here\n\n"
                yield event
        finally:
            room.pages.discard(queue)
            room.tell_presence()

    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


async def plus(request):
    room = request.state.room
    room.count += 1
    room.tell(patch(f'<p id="count">{room.count}</p>'))
    return PlainTextResponse("", 204)


async def say(request):
    room = request.state.room
    line = html.escape((await request.body()).decode("utf-8", "replace")[:200])
    room.said = [*room.said, line][-20:]
    room.tell(patch(f"<li>{line}</li>", selector="#said", mode="append"))
    return PlainTextResponse("", 204)


numbers = itertools.count(1)


async def ticks(request):
    """?n= (3) events, ?ms= (100) apart, for whoever has no browser at hand."""
    n, ms = int(request.query_params.get("n", 3)), float(request.query_params.get("ms", 100))

    async def events():
        for _ in range(n):
            yield f"data: {next(numbers)}\n\n"
            await asyncio.sleep(ms / 1000)

    return StreamingResponse(events(), media_type="text/event-stream")


async def present(request):
    """How many pages are open."""
    return PlainTextResponse(f"{len(request.state.room.pages)}\n")


app = Starlette(
    routes=[
        Route("/", page),
        Route("/live", live),
        Route("/plus", plus, methods=["POST"]),
        Route("/say", say, methods=["POST"]),
        Route("/ticks", ticks),
        Route("/present", present),
    ],
    lifespan=lifespan,
)
