"""What Django keeps per thread, while the pool takes loops from threads whose views are slow.

A view is *rescued* here if it runs on the thread that drove a loop before it came, and another thread drives that loop
before the view ends. Both are read from /proc: a driver of an idle server waits in epoll, and no other handler does.
"""

import contextlib
import itertools
import json
import threading
import time

import pytest

from harness import proc, serving
from harness.wire import HANG, get

CALL = ["called", "started", "view"]
"""The steps before a request sets anything; the others are behind that."""


def _eventually(what, look):
    """Poll for a condition; a time-out is a hang."""
    end = time.monotonic() + HANG
    while not (found := look()):
        assert time.monotonic() < end, what
        time.sleep(0.001)
    return found


class Held:
    """A view at the gate."""

    def __init__(self, n, client, visit, thread):
        self.n, self.client, self.visit, self.thread = n, client, visit, thread
        self.tried = []
        """Requests that were to be held like this, but were let go."""

    def finish(self):
        self.visit.release()
        return self.client.read_response()


class Site:
    """The server, and the numbers of the requests that it was asked."""

    def __init__(self, server, mode, gate, database):
        self.server, self.gate, self.database = server, gate, database
        self.loops, self.has_pool = int(mode[1]), mode.has_pool
        self.handlers = self.loops * (int(mode[3]) + 1)
        self._numbers = itertools.count(1)
        self.asked = []
        self._stack = contextlib.ExitStack()

    def connect(self, **options):
        return self._stack.enter_context(self.server.connect(**options))

    def close(self):
        self._stack.close()

    def request(self, path, query=""):
        n = str(next(self._numbers))
        self.asked.append(n)
        return n, get(f"{path}?n={n}&{query}")

    def ask(self, path, query="", client=None):
        """One request, answered: its number and the answer's body."""
        n, request = self.request(path, query)
        if client is not None:
            response = client.exchange(request)
        else:
            response = self.server.fetch(request)
        assert response.status == 200, response.body
        return n, response.body

    def drivers(self):
        """The threads that drive, as soon as nothing else goes on."""

        def all_wait():
            found = proc.drivers(self.server.pid)
            if found is None:
                pytest.skip("this kernel doesn't say what a thread waits in")
            return found if len(found) == self.loops else None

        return _eventually("every loop has a driver", all_wait)

    def hold(self, path, query="", client=None):
        """Ask for a view that stays at the gate."""
        client = client or self.connect()
        n, request = self.request(path, f"{query}&gate={self.gate.path}")
        client.send(request)
        return self.at_gate(n, client)

    def at_gate(self, n, client):
        visit = self.gate.next()
        at, thread = visit.message.split()
        assert at == n
        return Held(n, client, visit, int(thread))

    def hold_rescued(self, path, query=""):
        """The same, of a view whose loop was taken from its thread. Where there are no standbys: of any."""
        if not self.has_pool:
            return self.hold(path, query)
        tried = []
        for _ in range(200):
            drove = self.drivers()
            held = self.hold(path, query)
            if held.thread in drove:
                _eventually("the loop is rescued", lambda: self._all_driven_without(held.thread))
                held.tried = tried
                return held
            # The pool expected long views, and a standby has this one. Short ones make it think otherwise.
            assert held.finish().status == 200
            tried.append(held.n)
            with self.server.connect() as client:
                for _ in range(30):
                    client.exchange(get("/nothing"))
        raise AssertionError("no view was run by the driver of its loop")

    def _all_driven_without(self, thread):
        drive = proc.drivers(self.server.pid)
        return len(drive) == self.loops and thread not in drive

    def meanwhile(self, held, paths_and_queries):
        """Requests that come while a view is held; its answer, and theirs. A lone loop answers them behind it."""
        clients = [self.connect() for _ in paths_and_queries]
        asked = [self.request(*one) for one in paths_and_queries]
        answers = []
        for client, (_, request) in zip(clients, asked, strict=True):
            client.send(request)
            if self.has_pool:
                answers.append(client.read_response())
        first = held.finish()
        if not self.has_pool:
            answers = [client.read_response() for client in clients]
        for client in clients:
            client.close()
        assert all(answer.status == 200 for answer in (first, *answers))
        return first, answers, [n for n, _ in asked]

    def traces(self):
        """Of every request so far, when all are at their end."""

        def all_ended():
            traces = json.loads(self.server.fetch(get("/traces")).body)
            ended = all(n in traces and traces[n][-1]["step"] == "finished" for n in self.asked)
            return traces if ended else None

        return _eventually("every request's response is closed, and the signal sent", all_ended)


@pytest.fixture
def site(serve, mode, gate, tmp_path):
    sites = []

    def start(*args, **settings):
        database = tmp_path / "threads.sqlite3"
        env = serving.environment(THREADS_DB=database, DJANGO_SETTINGS_MODULE=None, **settings)
        sites.append(Site(serve(*mode, *args, "django_threads:application", env=env), mode, gate, database))
        return sites[-1]

    yield start
    for one in sites:
        one.close()


def _steps(trace):
    return [note["step"] for note in trace]


def _threads(trace):
    return {(note["thread"], note["ident"]) for note in trace}


def _mixed_load(site, clients=4, requests=25):
    """Short views, and ones that compute for longer than a slice, from several connections at once."""
    faults = []

    def talk(which):
        try:
            with site.server.connect() as client:
                for round_ in range(requests):
                    ms = 3 if (which + round_) % 5 == 0 else 0
                    site.ask("/trace", f"ms={ms}&pieces={round_ % 3}", client)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=talk, args=(which,)) for which in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults


@pytest.mark.parametrize("how", ["waiting", "busy"])
def test_a_request_stays_on_its_thread(site, how):
    """From the call to request_finished, also of a view that is rescued, whole answers and streamed ones."""
    site = site()
    query = "busy=1" if how == "busy" else ""
    for pieces in (0, 3):
        held = site.hold_rescued("/trace", f"{query}&pieces={pieces}")
        _, _, others = site.meanwhile(held, [("/trace", f"pieces={n % 3}") for n in range(10)])
        traces = site.traces()
        [(thread, _)] = _threads(traces[held.n])
        assert thread == held.thread
        for n in others:
            [(other, _)] = _threads(traces[n])
            assert not site.has_pool or other != thread, "the loop went on without the thread of the slow view"
    _mixed_load(site)
    traces = site.traces()
    for n in site.asked:
        body = ["first piece", "last piece"] if "first piece" in _steps(traces[n]) else []
        assert _steps(traces[n]) == [*CALL, "set", "held", *body, "close", "finished"]
        assert len(_threads(traces[n])) == 1, traces[n]


def test_a_client_that_goes_away_from_a_rescued_view(site):
    """The response is closed on its thread all the same, in its context."""
    site = site()
    held = site.hold_rescued("/trace", "pieces=1000&size=10000")
    held.client.reset()
    if site.has_pool:
        site.ask("/trace")
    held.visit.release()
    trace = site.traces()[held.n]
    assert _steps(trace)[-2:] == ["close", "finished"]
    assert [thread for thread, _ in _threads(trace)] == [held.thread]
    assert {note["mark"] for note in trace[-2:]} == {held.n}


def test_contexts_are_fresh_and_last_as_long_as_the_request(site):
    """Context variables, and asgiref's Local, which lives in one: nothing of an earlier request is found, on whichever
    thread, and what the view sets is there up to the end. Thread-critical Locals are the thread's: what its last request
    set is found, and what this one sets stays."""
    site = site()
    for pieces in (0, 2, 0, 2):
        held = site.hold_rescued("/trace", f"pieces={pieces}")
        site.meanwhile(held, [("/trace", f"pieces={n % 3}") for n in range(10)])
    _mixed_load(site)
    traces = site.traces()
    found = 0
    for n in site.asked:
        for note in traces[n]:
            if note["step"] in CALL:
                assert (note["mark"], note["local"]) == (None, None), note
                assert note["critical"] == note["last"], note
                found += note["critical"] is not None
            else:
                assert (note["mark"], note["local"], note["critical"]) == (n, n, n), note
    assert found, "threads had more than one request"


def test_contexts_of_bodies_that_wait_for_their_clients(site):
    """A client reads slowly; a lone loop serves others between two pieces of the body."""
    site = site()
    client = site.connect(receive_buffer=4096)
    held = site.hold("/trace", "pieces=200&size=50000", client)
    held.visit.release()
    assert client.read_head().status == 200
    others = [site.ask("/trace", f"pieces={n % 3}")[0] for n in range(10)]
    traces = json.loads(site.server.fetch(get("/traces")).body)
    assert "last piece" not in _steps(traces[held.n]), "the body was to be longer than what buffers hold"
    while client.read_chunk():
        pass
    traces = site.traces()
    for n in [held.n, *others]:
        assert len(_threads(traces[n])) == 1
        for note in traces[n]:
            expected = None if note["step"] in CALL else n
            assert (note["mark"], note["local"]) == (expected, expected), note


def _connections_by_thread(traces, step="held"):
    found = {}
    for trace in traces.values():
        for note in trace:
            if note["step"] == step:
                found.setdefault(note["thread"], set()).add(note["connection"])
    return found


def test_persistent_connections_are_one_a_thread(site):
    """CONN_MAX_AGE without end. No stand-ins, which are threads of their own, with connections of their own."""
    site = site("--streaming-threads", "0")
    for pieces in (0, 2, 0, 2):
        held = site.hold_rescued("/trace", f"pieces={pieces}")
        site.meanwhile(held, [("/trace", "pieces=2") for _ in range(10)])
        _mixed_load(site, requests=10)
    traces = site.traces()
    by_thread = _connections_by_thread(traces)
    assert all(len(used) == 1 for used in by_thread.values()), by_thread
    serials = {serial for used in by_thread.values() for serial in used}
    assert None not in serials
    assert len(serials) == len(by_thread) <= site.handlers, "no two threads share a connection"
    assert len(by_thread) > 1 or not site.has_pool
    for n in site.asked:
        used = {note["connection"] for note in traces[n] if note["step"] not in CALL}
        assert len(used) == 1, traces[n]
    assert proc.descriptors_of(site.server.pid, site.database) == len(serials)


@pytest.mark.parametrize("mode", ["pool", "loops"], indirect=True)
def test_connections_of_stand_ins_end_with_their_threads(site):
    """A thread that streams for long gets a stand-in, and later one of the pool's threads ends: so does its connection."""
    site = site()
    at_first = proc.thread_count(site.server.pid)
    for _ in range(4):
        held = site.hold("/trace", "pieces=1000000")
        held.visit.release()
        assert held.client.read_head().status == 200
        while proc.thread_count(site.server.pid) == at_first:
            assert held.client.read_chunk()
        _mixed_load(site, requests=5)
        held.client.reset()

        def one_has_ended():
            site.ask("/trace")
            return proc.thread_count(site.server.pid) == at_first

        _eventually("a thread ends for the stand-in", one_has_ended)
    traces = site.traces()
    used = _connections_by_thread(traces)
    assert all(len(serials) == 1 for serials in used.values()), used
    alive = {thread: serials for thread, serials in used.items() if proc.is_thread_of(site.server.pid, thread)}
    assert len(alive) < len(used), "threads with connections have ended"
    assert len(alive) <= site.handlers

    def only_theirs():
        # Django's connections are in cycles: only the collector frees them.
        assert site.server.fetch(get("/collect")).status == 200
        return proc.descriptors_of(site.server.pid, site.database) == len(alive)

    _eventually("the connections that are open are the living threads'", only_theirs)


def test_connections_without_persistence_end_with_their_request(site):
    """CONN_MAX_AGE=0: Django closes them on request_finished, on the thread that has them."""
    site = site(THREADS_MAX_AGE=0)
    for pieces in (0, 2, 0, 2):
        held = site.hold_rescued("/trace", f"pieces={pieces}")
        site.meanwhile(held, [("/trace", "pieces=2") for _ in range(10)])
    _mixed_load(site)
    traces = site.traces()
    seen = set()
    for n in site.asked:
        before = [note["connection"] for note in traces[n] if note["step"] in CALL]
        assert before == [None] * len(CALL), "the thread's last request had left its connection"
        [*within, last] = [note["connection"] for note in traces[n] if note["step"] not in CALL]
        assert len(set(within)) == 1 and within[0] is not None, traces[n]
        assert last is None, "request_finished left it open"
        assert within[0] not in seen
        seen.add(within[0])
    assert proc.descriptors_of(site.server.pid, site.database) == 0


def _rows_of(numbers):
    return {f"{n}-{row}" for n in numbers for row in (1, 2)}


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_rescued_transaction_ends_alone(site, end):
    """While it is held before its first row, others commit and roll back; while it is held between its rows, others read.
    All of its rows are there afterwards, or none, and just those of the others that were committed."""
    site = site()
    there = set()

    def hold(at):
        held = site.hold_rescued("/write", f"at={at}&end={end}")
        if end == "commit":
            there.update(_rows_of(held.tried))
        return held

    def finish(held, others):
        first, answers, numbers = site.meanwhile(held, others)
        assert first.body == b"2"
        return answers, numbers, _rows_of([held.n]) if end == "commit" else set()

    def rows():
        names = json.loads(site.ask("/rows")[1])
        assert len(names) == len(set(names))
        return set(names)

    held = hold("begun")
    answers, numbers, own = finish(held, [("/write", f"end={how}") for how in ("commit", "rollback", "commit")])
    assert [answer.body for answer in answers] == [b"2", b"2", b"2"]
    there |= own | _rows_of([numbers[0], numbers[2]])
    assert rows() == there

    held = hold("written")
    answers, _, own = finish(held, [("/rows", "")] * 5)
    for answer in answers:
        assert set(json.loads(answer.body)) == (there if site.has_pool else there | own)
    assert rows() == there | own

    traces = site.traces()
    for trace in traces.values():
        assert len(_threads(trace)) == 1
        for note in trace:
            assert note["in_atomic"] == (note["step"] == "written"), note
