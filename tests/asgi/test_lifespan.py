"""Lifespan, start and stop (ASGI "Lifespan Protocol")."""

import signal
import time

import pytest
from asking import APPS, BARE, FREE_THREADED, fetch, fetch_json
from harness import wire
from harness.serving import environment, run


def with_lifespan(mode):
    return environment(LIFESPAN=mode)


def test_started_before_and_stopped_after(serve, kind):
    server = serve("app:app", *kind, app_dir=BARE)
    lines = server.stderr.lines
    first = next(i for i, line in enumerate(lines) if line == "lifespan started")
    listening = next(i for i, line in enumerate(lines) if "listening on" in line)
    assert first < listening
    assert fetch(server, "/").status == 200
    server.ended_by_test = True
    assert server.stop() == 0
    threads = 2 if "--threads" in kind else 1
    assert server.stderr.text().count("lifespan started") == threads
    assert server.stderr.text().count("lifespan stopping") == threads


@pytest.mark.parametrize("when", ["auto", "on"])
def test_a_startup_that_failed_ends_the_server_with_its_message(one_thread, when):
    code, _, stderr = run(
        "app:app", "--bind", "127.0.0.1:0", "--lifespan", when, *one_thread, app_dir=BARE, env=with_lifespan("startup-failed")
    )
    assert code == 3
    assert "the database is gone" in stderr
    assert "listening" not in stderr


@pytest.mark.skipif(not FREE_THREADED, reason="more threads than one need a free-threaded build")
def test_one_failing_thread_stops_the_others():
    code, _, stderr = run(
        "starts:second_fails", "--bind", "127.0.0.1:0", "--threads", "3", app_dir=APPS
    )
    assert code == 3
    assert "the second does not start" in stderr
    assert stderr.count("stopped in order") == 1


def test_no_lifespan_is_no_error(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE, env=with_lifespan("unsupported"))
    assert fetch(server, "/").status == 200
    assert "Traceback" not in server.stderr.text()


def test_no_lifespan_where_it_is_asked_for(one_thread):
    code, _, stderr = run(
        "app:app", "--bind", "127.0.0.1:0", "--lifespan", "on", *one_thread, app_dir=BARE, env=with_lifespan("unsupported")
    )
    assert code == 3
    assert "no lifespan" in stderr


def test_an_exception_while_starting_is_told_and_goes_on(serve, one_thread):
    """"If an exception is raised ... the server must continue but not send any lifespan events." """
    server = serve("app:app", *one_thread, app_dir=BARE, env=with_lifespan("startup-raises"))
    assert fetch(server, "/").status == 200
    assert "raised while starting" in server.stderr.text()


def test_off_is_off(serve, one_thread):
    server = serve("app:app", "--lifespan", "off", *one_thread, app_dir=BARE)
    assert fetch(server, "/").status == 200
    assert "lifespan started" not in server.stderr.text()
    server.ended_by_test = True
    assert server.stop() == 0
    assert "lifespan stopping" not in server.stderr.text()


def test_a_start_that_hangs_can_be_stopped(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE, env=with_lifespan("startup-hangs"), wait=False)
    assert server.stderr.wait_for("starting for ever")
    server.ended_by_test = True
    assert server.stop() == 0
    assert "listening" not in server.stderr.text()


def test_a_shutdown_that_failed_is_told(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE, env=with_lifespan("shutdown-failed"))
    server.ended_by_test = True
    assert server.stop() == 0
    assert "the cache would not close" in server.stderr.text()


def test_a_shutdown_that_hangs_is_cut(serve, one_thread):
    server = serve("app:app", "--graceful-timeout", "0.5", *one_thread, app_dir=BARE, env=with_lifespan("shutdown-hangs"))
    begun = time.monotonic()
    server.ended_by_test = True
    assert server.stop() == 0
    assert time.monotonic() - begun < 20
    assert "took longer" in server.stderr.text()


def test_an_address_that_is_taken_ends_what_was_started(serve, one_thread):
    holder = serve("app:app", *one_thread, app_dir=BARE)
    address = holder.address.removeprefix("http://").rstrip("/")
    code, _, stderr = run("app:app", "--bind", address, *one_thread, app_dir=BARE)
    assert code == 1
    assert "lifespan started" in stderr and "lifespan stopping" in stderr
    assert address in stderr


# -- the drain -----------------------------------------------------------------------------------


def test_running_requests_are_finished(serve, kind):
    server = serve("app:app", *kind, app_dir=BARE)
    with server.connect() as running, server.connect() as idle, server.connect() as later:
        assert idle.exchange(wire.get("/")).status == 200
        assert later.exchange(wire.get("/")).status == 200
        running.send(wire.get("/slow?ms=700"))
        fetch(server, "/")
        server.send_signal(signal.SIGTERM)
        idle.expect_end()
        response = running.read_response()
        assert (response.status, response.closes) == (200, True)
    server.ended_by_test = True
    assert server.wait() == 0
    assert "lifespan stopping" in server.stderr.text()


def test_background_work_is_finished(serve, one_thread, tmp_path):
    server = serve("starts:background", *one_thread, app_dir=APPS)
    assert fetch(server, "/").status == 200
    server.ended_by_test = True
    assert server.stop() == 0
    text = server.stderr.text()
    assert text.index("background work ended") < text.index("stopped in order")


def test_requests_that_outlive_the_drain(serve, one_thread):
    """Several are cut at different moments; the lifespan's end comes all the same, after them."""
    server = serve("starts:stubborn", "--graceful-timeout", "0.3", *one_thread, app_dir=APPS)
    connections = [server.connect() for _ in range(3)]
    for number, connection in enumerate(connections):
        connection.send(wire.get(f"/?{number}"))
        assert connection.read_head().status == 200
    server.send_signal(signal.SIGTERM)
    server.ended_by_test = True
    assert server.wait() == 1
    text = server.stderr.text()
    assert "3 requests were still running" in text
    for number in range(3):
        assert f"cleaned up {number}" in text
    assert text.index("cleaned up 2") < text.index("stopped in order")
    assert "Event loop stopped before Future completed" not in text
    for connection in connections:
        connection.close()


def test_a_request_that_cannot_be_cancelled(serve, one_thread):
    server = serve("starts:immortal", "--graceful-timeout", "0.2", *one_thread, app_dir=APPS)
    with server.connect() as connection:
        connection.send(wire.get("/"))
        assert connection.read_head().status == 200
        server.send_signal(signal.SIGTERM)
        server.ended_by_test = True
        assert server.wait() == 1
    assert "stopped in order" in server.stderr.text()


def test_async_generators_and_the_executor_are_closed(serve, one_thread):
    server = serve("starts:generators", *one_thread, app_dir=APPS)
    assert fetch(server, "/").status == 200
    server.ended_by_test = True
    assert server.stop() == 0
    text = server.stderr.text()
    assert "generator closed" in text
    assert "thread of the executor ended" in text


def test_the_application_cannot_stop_the_loop(serve, one_thread):
    server = serve("starts:stops_the_loop", *one_thread, app_dir=APPS)
    for _ in range(3):
        assert fetch(server, "/").status == 200
    assert server.stderr.wait_for("the application stopped the event loop")


# -- choices -------------------------------------------------------------------------------------


@pytest.mark.skipif(FREE_THREADED, reason="about the GIL")
def test_threads_on_a_gil_build_are_refused_with_advice():
    code, _, stderr = run("app:app", "--bind", "127.0.0.1:0", "--threads", "2", app_dir=BARE)
    assert code == 2
    assert "--workers" in stderr and "free-threaded" in stderr


@pytest.mark.skipif(not FREE_THREADED, reason="more threads than one need a free-threaded build")
def test_each_thread_has_its_own_lifespan_and_state(serve):
    server = serve("app:app", "--threads", "2", app_dir=BARE)
    seen = set()
    for _ in range(64):
        # Connections are spread over the loops.
        who = fetch_json(server, "/whoami")
        assert who["thread"] == who["started_in"]
        assert who["gil"] is False
        seen.add(who["thread"])
    assert len(seen) == 2


def test_a_missing_uvloop(serve):
    code, _, stderr = run("starts:background", "--bind", "127.0.0.1:0", "--loop", "uvloop", app_dir=APPS, env=environment(HIDE_UVLOOP="1"))
    assert code == 2
    assert "--loop uvloop" in stderr
    server = serve("starts:background", app_dir=APPS, env=environment(HIDE_UVLOOP="1"))
    assert server.stderr.wait_for("asgi · asyncio")


def test_a_wsgi_application_served_as_asgi(serve, one_thread):
    server = serve("starts:wsgi", "--interface", "asgi", "--lifespan", "off", *one_thread, app_dir=APPS)
    assert fetch(server, "/").status == 500
    assert server.stderr.wait_for("TypeError")


def test_asgi_2_is_refused_with_advice():
    code, _, stderr = run("starts:asgi2", "--bind", "127.0.0.1:0", app_dir=APPS)
    assert code == 3
    assert "ASGI 2" in stderr


def test_an_application_that_returns_no_coroutine(serve, one_thread):
    server = serve("starts:plain_function", "--interface", "asgi", *one_thread, app_dir=APPS)
    assert fetch(server, "/").status == 500
    assert server.stderr.wait_for("not a coroutine")


def test_applications_of_every_kind(serve, one_thread):
    for name in ("Callable()", "make()", "instance.method", "partial", "decorated"):
        server = serve(f"starts:{name}", *one_thread, app_dir=APPS)
        assert fetch(server, "/").body == b"served\n", name


