"""Applications as people have them: FastAPI, Django, FastHTML, server-sent events."""

import hashlib
import json
import os
import re

import httpx
import pytest
from asking import APPS, wait_for
from harness.serving import REPOSITORY, environment


@pytest.fixture
def fastapi(shared, kind):
    server = shared("fastapi_app:app", *kind, app_dir=APPS)
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


def test_fastapi_json_and_validation(fastapi):
    assert fastapi.get("/json").json() == {"message": "Hello, World!"}
    answer = fastapi.post("/items/7?q=x", json={"name": "tea", "price": 2.5})
    assert answer.json() == {"number": 7, "name": "tea", "price": 2.5, "q": "x"}
    wrong = fastapi.post("/items/seven", json={"name": "t", "price": -1})
    assert wrong.status_code == 422
    assert {tuple(item["loc"]) for item in wrong.json()["detail"]} == {("path", "number"), ("body", "name"), ("body", "price")}
    missing = fastapi.get("/missing")
    assert (missing.status_code, missing.headers["x-why"]) == (404, "gone")
    assert fastapi.get("/broken").status_code == 500
    assert "x-time" in fastapi.get("/json").headers


def test_fastapi_dependencies_with_context_variables(fastapi):
    for name in ("ann", "bob"):
        assert fastapi.get("/user", headers={"x-user": name}).json() == {"before": "nobody", "user": name}
    assert fastapi.get("/user").json()["user"] == "anonymous"


def test_fastapi_threads_groups_and_time_outs(fastapi):
    assert fastapi.get("/sync").json() == {"main": False}
    found = fastapi.get("/group").json()
    assert found == {"found": [1, 2, 3], "cancelled": True, "task": True, "library": "asyncio"}
    assert fastapi.get("/fail_after").json() == {"timed_out": True}


def test_threads_of_synchronous_views_are_kept(shared, one_thread):
    """AnyIO's idle workers serve again: one request after the other, so one thread answers all of them."""
    server = shared("fastapi_app:app", *one_thread, app_dir=APPS)
    with httpx.Client(base_url=server.url, timeout=20) as client:
        first = client.get("/visits").json()
        assert [client.get("/visits").json() for _ in range(5)] == [first + n for n in range(1, 6)]


def test_fastapi_bodies(fastapi):
    assert fastapi.get("/stream?n=5").text == "0\n1\n2\n3\n4\n"
    assert fastapi.get("/stream?n=3&ms=5").text == "0\n1\n2\n"
    assert fastapi.get("/stream_sync").text == "0\n1\n2\n3\n4\n"
    with open(APPS / "fastapi_app.py", "rb") as file:
        assert fastapi.get("/file").content == file.read()
    part = fastapi.get("/file", headers={"range": "bytes=3-9"})
    assert (part.status_code, len(part.content)) == (206, 7)
    data = os.urandom(300_000)
    assert fastapi.post("/upload", files={"file": ("a.bin", data)}).json() == {"name": "a.bin", "size": 300_000, "sum": sum(data)}
    assert fastapi.post("/raw", content=(b"x" * 1000 for _ in range(100))).json() == {"total": 100_000}


def test_fastapi_background_lifespan_and_disconnects(shared, one_thread):
    server = shared("fastapi_app:app", *one_thread, app_dir=APPS)
    with httpx.Client(base_url=server.url, timeout=20) as client:
        assert client.get("/background?word=tidy").json() == {"accepted": "tidy"}
        assert client.get("/queue?item=one").json() == {"queued": "one", "started": True}
        with client.stream("GET", "/events") as events:
            assert next(events.iter_lines()) == "data: 0"
        expected = {"tidy", "tidy in a thread", "worked on one", "events ended"}
        wait_for(lambda: expected <= set(client.get("/done").json()), "what was to be done")


@pytest.fixture
def django(shared, kind, tmp_path_factory):
    directory = tmp_path_factory.getbasetemp() / "django_asgi"
    directory.mkdir(exist_ok=True)
    os.environ["DJANGO_DB"] = str(directory / f"{kind[1]}{len(kind)}.sqlite3")
    try:
        server = shared("djangoproj.asgi:application", *kind, app_dir=REPOSITORY / "apps" / "django_asgi")
    finally:
        del os.environ["DJANGO_DB"]
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


def test_django(django):
    assert django.get("/").text == "Hello, World!"
    assert django.get("/sync").json() == {"main_thread": False}
    assert django.get("/slow?ms=5").text == "slept 5 ms\n"
    assert django.get("/stream?n=4&size=1000").content == b"d" * 4000
    assert django.get("/error").status_code == 500
    meta = django.get("/meta?a=%C3%B6").json()
    assert meta["query"] == {"a": "ö"}
    assert meta["remote"] == "127.0.0.1"
    assert meta["uri"] == f"{django.base_url}/meta?a=%C3%B6"


def test_django_orm_sessions_and_uploads(django):
    made = django.post("/notes/", json={"title": "one", "body": "b"})
    assert made.status_code == 201
    assert django.get(made.headers["location"]).json()["title"] == "one"
    assert django.post("/notes/", data={"title": ""}).status_code == 400
    assert django.delete(made.headers["location"]).status_code == 204
    assert django.get(made.headers["location"]).status_code == 404
    assert [django.get("/visits").json()["visits"] for _ in range(3)] == [1, 2, 3]
    data = os.urandom(3_000_000)
    answer = django.post("/upload", data={"a": "b"}, files={"file": ("f.bin", data)}).json()
    assert answer["fields"] == {"a": "b"}
    assert answer["files"]["file"]["sha256"] == hashlib.sha256(data).hexdigest()


def test_django_hears_of_clients_that_go(shared, one_thread, tmp_path_factory):
    directory = tmp_path_factory.getbasetemp() / "django_asgi"
    directory.mkdir(exist_ok=True)
    env = environment(DJANGO_DB=directory / f"ended-{one_thread[1]}.sqlite3")
    server = shared("djangoproj.asgi:application", *one_thread, app_dir=REPOSITORY / "apps" / "django_asgi", env=env)
    with httpx.Client(base_url=server.url, timeout=20) as client:
        client.get("/ended")
        with client.stream("GET", "/events") as events:
            assert next(events.iter_lines()) == "data: 0"
        found = []
        wait_for(lambda: found.extend(client.get("/ended").json()) or "events ended" in found, "the events' end")
        with pytest.raises(httpx.ReadTimeout):
            client.get("/slow?ms=60000", timeout=0.3)
        wait_for(lambda: found.extend(client.get("/ended").json()) or "slow was cancelled" in found, "the cancellation")


def test_fasthtml(shared, kind):
    server = shared("app:app", *kind, app_dir=REPOSITORY / "apps" / "fasthtml")
    with httpx.Client(base_url=server.url, timeout=20) as client:
        assert "You were here 1 times." in client.get("/").text
        assert "You were here 2 times." in client.get("/").text
        added = client.post("/todos", data={"text": "<milk>"}, headers={"HX-Request": "true"}).text
        number = re.search(r"todo-(\d+)", added)[1]
        assert "&lt;milk&gt;" in added
        assert client.delete(f"/todos/{number}").status_code == 200
        assert client.get("/hello").text == "Hello, World!"


def test_notes_api(shared, kind):
    server = shared("app:app", *kind, app_dir=REPOSITORY / "apps" / "notes_api", bind=("127.0.0.1:0",))
    import websockets.sync.client

    with httpx.Client(base_url=server.url, timeout=20) as client:
        made = client.post("/notes", json={"title": "one"})
        assert made.status_code == 201
        place = made.headers["location"]
        if "--threads" not in kind:
            # Each thread has a state, and so a database, of its own here.
            assert client.get(place).json()["title"] == "one"
            changed = client.put(place, json={"title": "two", "body": "b"})
            assert changed.json()["title"] == "two"
            with websockets.sync.client.connect(server.url.replace("http", "ws") + "/changes") as changes:
                # An answer to a ping: the view listens.
                changes.ping().wait(10)
                assert client.delete(place).status_code == 204
                assert "deleted" in json.loads(changes.recv(timeout=10))
            assert client.get(place).status_code == 404
        assert client.post("/notes", json={"title": ""}).status_code == 422


def test_server_sent_events(shared, one_thread):
    server = shared("app:app", *one_thread, app_dir=REPOSITORY / "apps" / "sse")
    with httpx.Client(base_url=server.url, timeout=20) as client:
        assert "EventSource" in client.get("/").text
        with client.stream("GET", "/live") as live:
            assert live.headers["content-type"].startswith("text/event-stream")
            lines = live.iter_lines()

            def until(text):
                for line in lines:
                    if text in line:
                        return
                raise AssertionError(text)

            until('id="count"')
            assert client.get("/present").text == "1\n"
            client.post("/plus")
            until('<p id="count">1</p>')
            client.post("/say", content="<hi>")
            until("&lt;hi&gt;")
        # The page is gone: whoever is told of the next click finds out.
        wait_for(lambda: client.post("/plus") and client.get("/present").text == "0\n", "the page's end")
