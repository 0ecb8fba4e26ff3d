"""What holds an event loop up is told (--slow-callback-ms), and named."""

import re

from asking import APPS, BARE, fetch, wait_for
from harness.proc import thread_count


def test_a_blocking_view_is_named(serve, kind):
    server = serve("app:app", "--slow-callback-ms", "100", *kind, app_dir=BARE)
    assert fetch(server, "/blocking?ms=600").status == 200
    told = server.stderr.wait_for(r"the event loop has been held for (\d+) ms by blocking \((\S+)\)")
    assert int(told[1]) >= 100
    assert re.fullmatch(r".*/asgi_bare/app\.py:\d+", told[2])
    assert server.stderr.wait_for(r"time\.sleep\(ms / 1000\)")
    whole = server.stderr.wait_for(r"the event loop was held for (\d+) ms")
    assert int(whole[1]) >= 500


def test_it_is_found_in_whatever_task(serve, one_thread):
    """Frameworks run views in tasks of their own."""
    server = serve("starts:in_a_task", "--slow-callback-ms", "100", *one_thread, app_dir=APPS)
    assert fetch(server, "/").status == 200
    assert server.stderr.wait_for(r"held for \d+ ms by the_view \(\S+starts\.py:\d+\)")


def test_waiting_is_not_holding(serve, one_thread):
    server = serve("app:app", "--slow-callback-ms", "100", *one_thread, app_dir=BARE)
    for path in ("/slow?ms=400", "/in_thread?ms=400", "/"):
        assert fetch(server, path).status == 200
    server.ended_by_test = True
    assert server.stop() == 0
    assert "event loop has been held" not in server.stderr.text()


def test_without_the_setting_nobody_watches(serve, one_thread):
    server = serve("app:app", *one_thread, app_dir=BARE)
    threads = thread_count(server.pid)
    watched = serve("app:app", "--slow-callback-ms", "100", *one_thread, app_dir=BARE)
    wait_for(lambda: thread_count(watched.pid) == threads + 1, "the watch")
    assert fetch(server, "/blocking?ms=300").status == 200
    assert "held" not in server.stderr.text()
