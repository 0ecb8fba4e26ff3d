"""A FastAPI application as people write them: what frameworks need of a server, all at once."""

import asyncio
import contextvars
import threading
import time
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
import sniffio_or_anyio as library
from fastapi import BackgroundTasks, Depends, FastAPI, File, Header, HTTPException, Request, UploadFile, WebSocket
from fastapi import WebSocketDisconnect
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.middleware.base import BaseHTTPMiddleware

done = []
user = contextvars.ContextVar("user", default="nobody")


@asynccontextmanager
async def lifespan(app):
    queue = asyncio.Queue()
    worker = asyncio.create_task(work(queue))
    yield {"queue": queue, "started": True}
    worker.cancel()
    print("lifespan ended", flush=True)


async def work(queue):
    while True:
        item = await queue.get()
        done.append(f"worked on {item}")


app = FastAPI(lifespan=lifespan)


class Item(BaseModel):
    name: str = Field(min_length=2)
    price: float = Field(gt=0)


async def current_user(x_user: Annotated[str | None, Header()] = None):
    """A dependency with a context variable: it is set for this request and no other."""
    before = user.get()
    token = user.set(x_user or "anonymous")
    yield before
    user.reset(token)


class Timing(BaseHTTPMiddleware):
    async def dispatch(self, request, call_next):
        begun = time.perf_counter()
        response = await call_next(request)
        response.headers["x-time"] = f"{time.perf_counter() - begun:.6f}"
        return response


app.add_middleware(Timing)


@app.get("/json")
async def json_route():
    return {"message": "Hello, World!"}


@app.post("/items/{number}")
async def create(number: int, item: Item, q: str | None = None):
    return {"number": number, "name": item.name, "price": item.price, "q": q}


@app.get("/missing")
async def missing():
    raise HTTPException(404, "not here", headers={"x-why": "gone"})


@app.get("/broken")
async def broken():
    raise RuntimeError("broken on purpose")


@app.get("/user")
async def who(before: Annotated[str, Depends(current_user)]):
    await asyncio.sleep(0)
    return {"before": before, "user": user.get()}


@app.get("/background")
async def background(tasks: BackgroundTasks, word: str):
    async def later():
        await asyncio.sleep(0.05)
        done.append(word)

    tasks.add_task(later)
    tasks.add_task(done.append, word + " in a thread")
    return {"accepted": word}


@app.get("/done")
async def what_was_done():
    return done


@app.get("/queue")
async def enqueue(request: Request, item: str):
    request.state.queue.put_nowait(item)
    return {"queued": item, "started": request.state.started}


@app.get("/sync")
def sync_route(ms: float = 50):
    """In a thread of anyio's pool; the context comes along."""
    time.sleep(ms / 1000)
    return {"main": threading.current_thread() is threading.main_thread()}


of_thread = threading.local()


@app.get("/visits")
def visits():
    """How often the thread that answers was asked before, this time included."""
    of_thread.visits = getattr(of_thread, "visits", 0) + 1
    return of_thread.visits


@app.get("/group")
async def group():
    """anyio's task groups and cancel scopes need the current task to be right."""
    found = []

    async def one(number):
        await anyio.sleep(0.01 * number)
        found.append(number)

    async with anyio.create_task_group() as tasks:
        for number in (3, 1, 2):
            tasks.start_soon(one, number)
    with anyio.move_on_after(0.02) as scope:
        await anyio.sleep(5)
    task = asyncio.current_task()
    return {
        "found": found,
        "cancelled": scope.cancelled_caught,
        "task": anyio.get_current_task().id == id(task),
        "library": library.current(),
    }


@app.get("/fail_after")
async def fail_after():
    """A time-out around the whole view: anyio cancels the request's own task."""
    try:
        with anyio.fail_after(0.02):
            await anyio.sleep(5)
    except TimeoutError:
        return {"timed_out": True}


@app.get("/stream")
async def stream(n: int = 5, ms: float = 0):
    async def chunks():
        for number in range(n):
            yield f"{number}\n".encode()
            await asyncio.sleep(ms / 1000)

    return StreamingResponse(chunks(), media_type="text/plain")


@app.get("/stream_sync")
def stream_sync(n: int = 5):
    return StreamingResponse((f"{number}\n".encode() for number in range(n)), media_type="text/plain")


@app.get("/events")
async def events(request: Request):
    async def forever():
        try:
            number = 0
            while not await request.is_disconnected():
                yield f"data: {number}\n\n"
                number += 1
                await asyncio.sleep(0.02)
        finally:
            done.append("events ended")

    return StreamingResponse(forever(), media_type="text/event-stream")


@app.get("/file")
async def file():
    return FileResponse(__file__, media_type="text/x-python")


@app.post("/upload")
async def upload(file: Annotated[UploadFile, File()]):
    data = await file.read()
    return {"name": file.filename, "size": len(data), "sum": sum(data)}


@app.post("/raw")
async def raw(request: Request):
    total = 0
    async for piece in request.stream():
        total += len(piece)
    return {"total": total}


@app.websocket("/chat")
async def chat(socket: WebSocket, before: Annotated[str, Depends(current_user)]):
    await socket.accept()
    try:
        while True:
            await socket.send_json({"you": user.get(), "said": (await socket.receive_json())["say"]})
    except WebSocketDisconnect as end:
        done.append(f"chat ended with {end.code}")


@app.websocket("/guarded")
async def guarded(socket: WebSocket):
    raise HTTPException(403, "members only")
