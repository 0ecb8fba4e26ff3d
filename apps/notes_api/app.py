"""Notes over HTTP and SQLite, in FastAPI: the shape of a small service, with validation, a dependency, background work and
a WebSocket that tells of every change.

    m0serve --app-dir apps/notes_api app:app

NOTES_DB names the database file; without it the notes live in a temporary one and go with the process.
The API's own page is at /docs.
"""

import asyncio
import os
import sqlite3
import tempfile
from contextlib import asynccontextmanager, closing
from typing import Annotated

from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, Response, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, Field

SCHEMA = "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, title TEXT NOT NULL, body TEXT NOT NULL)"


class NoteIn(BaseModel):
    title: str = Field(min_length=1, max_length=200)
    body: str = ""


class Note(NoteIn):
    id: int


def connect(path):
    # A request's dependency and its view may run in two threads of the pool, one after the other.
    connection = sqlite3.connect(path, timeout=20, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


@asynccontextmanager
async def lifespan(app):
    path = os.environ.get("NOTES_DB")
    directory = None
    if path is None:
        directory = tempfile.TemporaryDirectory(prefix="notes")
        path = os.path.join(directory.name, "notes.sqlite3")
    with closing(connect(path)) as connection, connection:
        connection.execute(SCHEMA)
    yield {"path": path, "listeners": set()}
    if directory is not None:
        directory.cleanup()


app = FastAPI(title="Notes", lifespan=lifespan)


def database(request: Request):
    """A connection for this request; it runs in the thread pool, as the routes that use it do."""
    with closing(connect(request.state.path)) as connection:
        yield connection


Database = Annotated[sqlite3.Connection, Depends(database)]


async def tell(listeners, what):
    for queue in list(listeners):
        queue.put_nowait(what)


@app.get("/")
async def hello():
    return {"message": "Hello, World!"}


@app.get("/notes")
def list_notes(database: Database, limit: int = 20) -> list[Note]:
    rows = database.execute("SELECT * FROM notes ORDER BY id DESC LIMIT ?", (min(limit, 200),))
    return [Note(**row) for row in rows]


@app.post("/notes", status_code=201)
def add_note(note: NoteIn, database: Database, request: Request, response: Response, tasks: BackgroundTasks) -> Note:
    # Committed before the answer: who gets it may ask for the note at once.
    with database:
        cursor = database.execute("INSERT INTO notes (title, body) VALUES (?, ?)", (note.title, note.body))
    response.headers["location"] = f"/notes/{cursor.lastrowid}"
    tasks.add_task(tell, request.state.listeners, {"added": cursor.lastrowid})
    return Note(id=cursor.lastrowid, **note.model_dump())


def find(database, number):
    row = database.execute("SELECT * FROM notes WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise HTTPException(404, f"there is no note {number}")
    return row


@app.get("/notes/{number}")
def get_note(number: int, database: Database) -> Note:
    return Note(**find(database, number))


@app.put("/notes/{number}")
def change_note(number: int, note: NoteIn, database: Database, request: Request, tasks: BackgroundTasks) -> Note:
    find(database, number)
    with database:
        database.execute("UPDATE notes SET title = ?, body = ? WHERE id = ?", (note.title, note.body, number))
    tasks.add_task(tell, request.state.listeners, {"changed": number})
    return Note(id=number, **note.model_dump())


@app.delete("/notes/{number}", status_code=204)
def delete_note(number: int, database: Database, request: Request, tasks: BackgroundTasks):
    find(database, number)
    with database:
        database.execute("DELETE FROM notes WHERE id = ?", (number,))
    tasks.add_task(tell, request.state.listeners, {"deleted": number})


@app.websocket("/changes")
async def changes(socket: WebSocket):
    """One message for each change, until the client goes."""
    await socket.accept()
    queue = asyncio.Queue()
    socket.state.listeners.add(queue)

    async def pass_on():
        while True:
            await socket.send_json(await queue.get())

    sender = asyncio.create_task(pass_on())
    try:
        while True:
            await socket.receive_text()
    except WebSocketDisconnect:
        pass
    finally:
        socket.state.listeners.discard(queue)
        sender.cancel()
