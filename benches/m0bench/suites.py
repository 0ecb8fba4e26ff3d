"""The suites, as data: which question is asked, which arms meet which cases, which controls have to fail.

A case is one way of loading a server. A group binds cases to an application and to the arms that serve it; all
cases of a group are measured on one warm process of each arm, so that a case differs from its neighbour by nothing
else. (A fresh process for each slow level once made Django's lazy imports look like a slow view's tail.)
"""

from dataclasses import dataclass

from .catalogue import GIL, INTERPRETERS

BROWSER = 12  # request fields in all, Host included: what a browser sends


@dataclass(frozen=True)
class Case:
    name: str
    path: str = "/"
    method: str = "GET"
    send: int = 0  # bytes of request body
    connections: int = 16
    fields: int = BROWSER
    close: bool = False  # a new connection for each request
    slow: int = 0  # requests to slow_path kept in flight meanwhile
    slow_path: str = "/slow?ms=200"
    elsewhere: bool = False  # the slow requests go to a second server of the same kind
    status: int = 200
    parity: bool = True  # the body must be the application's own
    grows: bool = True  # memory: watch what further requests add
    cross_check: bool = False  # measure once more with h2load


@dataclass(frozen=True)
class Group:
    app: str
    arms: tuple[str, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Control:
    """A measurement that must come out badly, or the suite has not measured what it is for."""

    arm: str
    case: str
    metric: str
    at_least: float
    interpreters: tuple[str, ...] = INTERPRETERS
    why: str = ""


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    question: str
    groups: tuple[Group, ...]
    kind: str = "http"  # http, websocket, memory or parts
    rounds: int = 3
    seconds: float = 3.0
    interpreters: tuple[str, ...] = INTERPRETERS
    controls: tuple[Control, ...] = ()
    chart: str = "rps"  # the metric that the suite's chart shows
    columns: tuple[str, ...] = ("rps", "p50_ms", "p99_ms", "cores", "cpu_us", "rss_mb")
    notes: tuple[str, ...] = ()
    requests: int = 100_000  # memory: requests before the reading "loaded"
    more_requests: int = 400_000  # memory: further requests of our own arms, which must not grow them
    idle_connections: int = 1000  # memory: idle keep-alive connections held open


def _slow(levels, **more):
    return tuple(Case(f"slow-{level}", slow=level, **more) for level in levels)


_ASGI_ARMS = (
    "m0serve-asgi-uvloop",
    "m0serve-asgi-asyncio",
    "granian-uvloop",
    "granian-asyncio",
    "uvicorn-uvloop",
    "uvicorn-asyncio",
    "hypercorn-uvloop",
)
_ASGI_FRAMEWORK_ARMS = ("m0serve-asgi-uvloop", "granian-uvloop", "uvicorn-uvloop", "uvicorn-asyncio")
_MIXED_ARMS = ("m0serve-inline", "m0serve-pool", "granian-bt4", "gunicorn-gthread-4")

_ALL = (
    Suite(
        "layer-split",
        "Where the time goes: from the bare socket to the application",
        "What does each layer add, from a loop without Python to a whole server, and what do the peers pay for the same?",
        (
            Group(
                "wsgi_bare",
                ("floor", "hello", "m0serve-inline", "m0serve-pool", "granian-bt1", "granian-bt4", "fastwsgi", "bjoern", "uwsgi-4", "go-1"),
                (Case("hello", cross_check=True),),
            ),
        ),
        chart="cpu_us",
        notes=(
            "floor, hello and go-1 run no Python. fastwsgi and bjoern are C extensions with one loop, no thread pool and no isolation; they need a GIL, so they have no row on 3.14t.",
            "go-1 is net/http with GOMAXPROCS=1, since every other row has one serving loop as well.",
        ),
    ),
    Suite(
        "wsgi-modes",
        "Threads, processes and gunicorn, kept alive and not",
        "What do the ways of running WSGI cost beside each other, with connections kept and with one connection a request?",
        (
            Group(
                "django_wsgi",
                ("m0serve-inline", "m0serve-pool", "m0serve-t2", "m0serve-w2", "granian-bt4", "gunicorn-sync-w2", "gunicorn-gthread-4", "waitress-4"),
                (Case("keep-alive"), Case("close", close=True)),
            ),
        ),
        notes=(
            "gunicorn's sync worker closes after every answer: kept connections would measure churn, so it has no such row.",
            "Under close each request has a connection of its own, to a port that no other server of the run had: what they leave in TIME_WAIT takes no port from the next.",
        ),
    ),
    Suite(
        "tail",
        "The keep-alive tail",
        "How far is the slowest hundredth from the middle, over several rounds?",
        (
            Group("wsgi_bare", ("m0serve-inline", "m0serve-pool", "m0serve-t2-pool", "granian-bt4", "gunicorn-gthread-4"), (Case("bare"),)),
            Group("django_wsgi", ("m0serve-inline", "m0serve-pool", "m0serve-t2-pool", "granian-bt4", "gunicorn-gthread-4"), (Case("django"),)),
        ),
        rounds=5,
        chart="p99_ms",
        columns=("rps", "p50_ms", "p90_ms", "p99_ms", "max_ms", "cores", "cpu_us"),
    ),
    Suite(
        "mixed-workload",
        "Fast requests while slow views run",
        "What do one and two 200 ms views in flight do to everybody else?",
        (
            Group("wsgi_bare", _MIXED_ARMS, _slow((0, 1, 2))),
            Group("django_wsgi", _MIXED_ARMS, tuple(Case(f"django-slow-{n}", slow=n) for n in (0, 1, 2))),
        ),
        chart="p99_ms",
        columns=("rps", "p50_ms", "p90_ms", "p99_ms", "max_ms", "cores", "cpu_us"),
        controls=(
            Control("m0serve-inline", "slow-1", "p99_ms", 100, why="without a pool a 200 ms view must stall the others"),
            Control("m0serve-inline", "django-slow-1", "p99_ms", 100, why="without a pool a 200 ms view must stall the others"),
        ),
        notes=("m0serve-inline is the control: it has no pool, so a slow view must stall it.",),
    ),
    Suite(
        "fairness",
        "Sixteen connections, four handlers, 300 µs of Python each",
        "Does every connection get its turn when all handlers want the GIL?",
        (
            Group(
                "wsgi_bare",
                ("m0serve-pool", "m0serve-no-turns", "m0serve-no-barrier", "m0serve-no-baton", "granian-bt4", "gunicorn-gthread-4"),
                (Case("busy", path="/busy?ms=0.3"), Case("busy-35us", path="/busy?ms=0.035")),
            ),
        ),
        chart="p99_ms",
        columns=("rps", "p50_ms", "p90_ms", "p99_ms", "max_ms", "cores", "cpu_us"),
        controls=(Control("m0serve-no-barrier", "busy", "p99_ms", 30, (GIL,), "without barrier and baton the handlers must convoy"),),
        notes=(
            "m0serve-no-barrier is the control (M0_POOL_TURN=0 M0_BATON=0); on a build without a GIL nothing can convoy.",
            "m0serve-no-turns lacks the barrier alone: beside it busy-35us shows what the barrier costs a short view.",
        ),
    ),
    Suite(
        "asgi",
        "ASGI: bare, with a body, and with frameworks",
        "What does an ASGI request cost, at 16, 64 and 256 connections, and how much of it is left under a framework?",
        (
            Group(
                "asgi_bare",
                _ASGI_ARMS,
                (
                    Case("get-c16", cross_check=True),
                    Case("get-c64", connections=64),
                    Case("get-c256", connections=256),
                    Case("post-1k-c16", path="/echo", method="POST", send=1024),
                ),
            ),
            Group("fastapi_json", _ASGI_FRAMEWORK_ARMS, (Case("fastapi", path="/greet?name=Ada&times=3"),)),
            Group("fasthtml", _ASGI_FRAMEWORK_ARMS, (Case("fasthtml"),)),
            Group("django_asgi", _ASGI_FRAMEWORK_ARMS, (Case("django"),)),
        ),
        notes=("hypercorn closes a connection after 1,000 requests: h2load, which measures get-c16 once more, counts the next ones as failed.",),
    ),
    Suite(
        "asgi-mixed",
        "ASGI: fast requests while slow awaits run",
        "Do two 200 ms awaits in flight disturb the others?",
        (
            Group(
                "asgi_bare",
                ("m0serve-asgi-uvloop", "granian-uvloop", "uvicorn-uvloop"),
                (*_slow((0, 2)), Case("slow-2-elsewhere", slow=2, elsewhere=True)),
            ),
        ),
        chart="p99_ms",
        columns=("rps", "p50_ms", "p90_ms", "p99_ms", "max_ms", "cores", "cpu_us"),
        notes=(
            "slow-2-elsewhere is the comparison: who sends the slow requests takes time slices of the same two cores, and here sends them to a second server. What slow-2 has beyond it is the measured server's own.",
        ),
    ),
    Suite(
        "websocket",
        "WebSocket echo",
        "How many messages a second go there and back, and at what cost?",
        (
            Group(
                "ws_echo",
                ("m0serve-asgi-uvloop", "granian-ws", "uvicorn-websockets", "uvicorn-wsproto", "hypercorn-uvloop"),
                (Case("text-64", send=64), Case("text-4k", send=4096), Case("text-64-c256", send=64, connections=256)),
            ),
        ),
        kind="websocket",
        notes=("Messages are text; every client sends the next one when the echo is there. Echoes are compared byte for byte.",),
    ),
    Suite(
        "header-sweep",
        "How the cost grows with the request's fields",
        "What does each further header field cost?",
        (
            Group(
                "wsgi_bare",
                ("floor", "m0serve-inline", "granian-bt1", "fastwsgi", "bjoern"),
                tuple(Case(f"fields-{n}", fields=n) for n in (1, 4, 12, 24, 48)),
            ),
        ),
        chart="cpu_us",
        notes=("Host counts as one. The first twelve are a browser's, further ones are x-extra-N with 32 bytes.",),
    ),
    Suite(
        "body-sizes",
        "How the cost grows with the body",
        "What does a body of a given size cost, received and sent?",
        (
            Group(
                "sizes",
                ("m0serve-inline", "m0serve-pool", "granian-bt4", "gunicorn-gthread-4", "fastwsgi", "bjoern"),
                (
                    Case("get-1k", path="/bytes/1024"),
                    Case("get-64k", path="/bytes/65536"),
                    Case("get-1m", path="/bytes/1048576"),
                    Case("post-1k", path="/sink", method="POST", send=1024),
                    Case("post-64k", path="/sink", method="POST", send=65536),
                    Case("post-1m", path="/sink", method="POST", send=1048576),
                ),
            ),
        ),
        chart="cpu_us",
    ),
    Suite(
        "memory",
        "Memory: idle, after load, per connection",
        "How much memory does a server hold when it has started, after 100,000 requests, and for each idle connection?",
        (
            Group(
                "wsgi_bare",
                ("m0serve-inline", "m0serve-t4-pool", "m0serve-w4", "m0serve-4-processes", "granian-bt4", "gunicorn-gthread-4", "gunicorn-gthread-w4"),
                (Case("bare"),),
            ),
            Group("django_wsgi", ("m0serve-t4-pool", "m0serve-4-processes", "granian-bt4", "gunicorn-gthread-w4"), (Case("django", grows=False),)),
        ),
        kind="memory",
        chart="loaded_rss_mb",
        columns=("idle_rss_mb", "loaded_rss_mb", "loaded_pss_mb", "growth_mb", "connection_kb", "processes", "threads"),
        notes=(
            "RSS counts pages that processes share once for each, PSS once in all. growth: what 400,000 further requests add (our own arms only).",
            "m0serve-4-processes is four separate processes of one loop each, as four containers would run it.",
        ),
    ),
    Suite(
        "memory-asgi",
        "Memory under ASGI",
        "How much memory does an ASGI server hold when it has started, after 100,000 requests, and for each idle connection?",
        (Group("asgi_bare", ("m0serve-asgi-uvloop", "m0serve-asgi-asyncio", "granian-uvloop", "uvicorn-uvloop"), (Case("bare"),)),),
        kind="memory",
        chart="loaded_rss_mb",
        columns=("idle_rss_mb", "loaded_rss_mb", "loaded_pss_mb", "growth_mb", "connection_kb", "processes", "threads"),
    ),
    Suite(
        "scaling",
        "From one loop to two",
        "How much more does a second loop serve when the view needs the CPU?",
        (
            Group(
                "wsgi_bare",
                ("m0serve-inline", "m0serve-t2", "m0serve-pool", "m0serve-t2-pool", "m0serve-w2", "granian-bt1", "granian-bt2", "granian-rt2-bt2", "gunicorn-gthread-1", "gunicorn-gthread-2"),
                (Case("busy-1ms", path="/busy?ms=1"),),
            ),
        ),
        columns=("rps", "p50_ms", "p99_ms", "cores", "cpu_us"),
        notes=("The machine has to feed two serving threads and the load generator: with two cores the generator takes its share from them.",),
    ),
    Suite(
        "parts",
        "The parts by themselves",
        "How long does each part of a request take in process, without a socket?",
        (),
        kind="parts",
        seconds=4.0,
        chart="ns",
        columns=("ns",),
        notes=(
            "Criterion benches of the crate; request/httparse_alone is another project's parser on the same bytes.",
            "threads/2: the time from the first thread's begin to the last one's end, by the requests of both; cpu/2: the CPU time of both, by the requests of both.",
        ),
    ),
)

SUITES = {suite.name: suite for suite in _ALL}

# The gate: an arm against a comparator that runs beside it, from the suite whose last artifact is the record.
GATE_PAIRS = (("m0serve-inline", "floor", "hello"), ("m0serve-pool", "floor", "hello"))
GATE_SUITE = "layer-split"


def expected_seconds(suite, interpreter, arms):
    """About how long a run takes, once everything is built: what each row and each start cost on the project's machine."""
    if suite.kind == "parts":
        return suite.rounds * 80
    total = 0.0
    for group in suite.groups:
        for name in group.arms:
            if interpreter not in arms[name].interpreters:
                continue
            row = {"http": suite.seconds + 1.2, "websocket": suite.seconds + 1.2, "memory": 30.0}[suite.kind]
            checks = sum(suite.seconds + 0.3 for case in group.cases if case.cross_check)
            total += 1.2 + suite.rounds * (1.8 + row * len(group.cases) + checks)
    return total
