"""The applications that are measured and the arms that serve them, as data.

An arm is one server with one set of flags. Its command is a template; the words in braces are filled in when it
starts, and artifacts keep the template, so that they hold no path of the machine they were made on:

  {port}      the port on 127.0.0.1         {target}   module:attribute
  {app_dir}   the application's folder      {body}     what the root answers (servers without Python)
  {peers}     benches/peers

The program is looked up by name: `m0serve`, `epoll-floor`, `go-hello`, `hello` are built by this project, all
others come from the benchmark's virtual environment.
"""

from dataclasses import dataclass, field

GIL = "3.13"
FREE_THREADED = "3.14t"
INTERPRETERS = (GIL, FREE_THREADED)


@dataclass(frozen=True)
class App:
    name: str
    interface: str
    directory: str
    target: str


APPS = {
    app.name: app
    for app in (
        App("wsgi_bare", "wsgi", "apps/wsgi_bare", "app:application"),
        App("django_wsgi", "wsgi", "apps/django_wsgi", "djangoproj.wsgi:application"),
        App("asgi_bare", "asgi", "apps/asgi_bare", "app:application"),
        App("django_asgi", "asgi", "apps/django_asgi", "djangoproj.asgi:application"),
        App("fasthtml", "asgi", "apps/fasthtml", "app:app"),
        App("fastapi_json", "asgi", "benches/apps", "fastapi_json:app"),
        App("ws_echo", "asgi", "benches/apps", "ws_echo:app"),
        App("sizes", "wsgi", "benches/apps", "sizes:application"),
        App("ticking", "wsgi", "benches/apps", "ticking:application"),
    )
}


@dataclass(frozen=True)
class Arm:
    name: str
    server: str
    command: tuple[str, ...]
    serves: str = "wsgi"  # wsgi, asgi, or "body" for a server without Python that answers one text
    interpreters: tuple[str, ...] = INTERPRETERS
    env: dict[str, str] = field(default_factory=dict)
    processes: int = 1  # this many copies, each on its own port
    keep_alive: bool = True  # False: the server closes after each answer
    awaited: bool = False  # its subject may not be built yet: left out, with the reason, when it refuses to start
    ours: bool = False


def _m0(name, *flags, serves="wsgi", **more):
    command = ("m0serve", *flags, "--bind", "127.0.0.1:{port}", "--app-dir", "{app_dir}", "{target}")
    return Arm(name, "m0serve", command, serves=serves, ours=True, **more)


def _threads(loops, handlers):
    return ("--threads", str(loops), "--blocking-threads", str(handlers))


def _granian(name, interface, *flags, **more):
    command = ("granian", "--interface", interface, "--host", "127.0.0.1", "--port", "{port}", "--workers", "1")
    return Arm(name, "granian", (*command, *flags, "--no-ws", "{target}"), serves=interface, **more)


def _granian_wsgi(name, io_threads, blocking_threads):
    threads = ("--runtime-threads", str(io_threads), "--blocking-threads", str(blocking_threads))
    return _granian(name, "wsgi", *threads)


def _gunicorn(name, *flags, **more):
    command = ("gunicorn", "--bind", "127.0.0.1:{port}", *flags, "{target}")
    return Arm(name, "gunicorn", command, **more)


def _uvicorn(name, loop):
    command = ("uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--loop", loop, "--http", "httptools")
    return Arm(name, "uvicorn", (*command, "--no-access-log", "--log-level", "warning", "{target}"), serves="asgi")


def _hypercorn(name, worker_class):
    command = ("hypercorn", "--bind", "127.0.0.1:{port}", "--worker-class", worker_class, "{target}")
    return Arm(name, "hypercorn", command, serves="asgi")


NO_BARRIER = {"M0_POOL_TURN": "0", "M0_BATON": "0"}

ARMS = {
    arm.name: arm
    for arm in (
        # Servers without Python: what no server that runs Python can reach.
        Arm("floor", "epoll-floor", ("epoll-floor", "--bind", "127.0.0.1:{port}", "--body", "{body}"), serves="body"),
        Arm("go-1", "go", ("go-hello", "--bind", "127.0.0.1:{port}", "--body", "{body}"), serves="body", env={"GOMAXPROCS": "1"}),
        Arm("hello", "m0serve", ("hello", "127.0.0.1:{port}"), serves="body", awaited=True, ours=True),
        # m0serve, WSGI.
        _m0("m0serve-inline", *_threads(1, 0)),
        _m0("m0serve-pool", *_threads(1, 4)),
        _m0("m0serve-pool-1", *_threads(1, 1)),
        _m0("m0serve-t2", *_threads(2, 0)),
        _m0("m0serve-t2-pool", *_threads(2, 4)),
        _m0("m0serve-t4-pool", *_threads(4, 4)),
        _m0("m0serve-w2", "--workers", "2", *_threads(1, 0), awaited=True),
        _m0("m0serve-w2-pool", "--workers", "2", *_threads(1, 4), awaited=True),
        _m0("m0serve-w4", "--workers", "4", *_threads(1, 0), awaited=True),
        _m0("m0serve-4-processes", *_threads(1, 0), processes=4),
        # Controls: with these off, the failure that the design prevents has to show.
        _m0("m0serve-no-barrier", *_threads(1, 4), env=NO_BARRIER),
        _m0("m0serve-no-turns", *_threads(1, 4), env={"M0_POOL_TURN": "0"}),
        _m0("m0serve-no-baton", *_threads(1, 4), env={"M0_BATON": "0"}),
        _m0("m0serve-attached", *_threads(1, 4), env={"M0_LOOP_ATTACHED": "1"}),
        # WSGI peers.
        _granian_wsgi("granian-bt1", 1, 1),
        _granian_wsgi("granian-bt2", 1, 2),
        _granian_wsgi("granian-bt4", 1, 4),
        _granian_wsgi("granian-rt2-bt2", 2, 2),
        _gunicorn("gunicorn-sync", "--workers", "1", keep_alive=False),
        _gunicorn("gunicorn-sync-w2", "--workers", "2", keep_alive=False),
        _gunicorn("gunicorn-gthread-1", "--worker-class", "gthread", "--workers", "1", "--threads", "1"),
        _gunicorn("gunicorn-gthread-2", "--worker-class", "gthread", "--workers", "1", "--threads", "2"),
        _gunicorn("gunicorn-gthread-4", "--worker-class", "gthread", "--workers", "1", "--threads", "4"),
        _gunicorn("gunicorn-gthread-w4", "--worker-class", "gthread", "--workers", "4", "--threads", "1"),
        Arm("waitress-4", "waitress", ("waitress-serve", "--listen", "127.0.0.1:{port}", "--threads", "4", "{target}")),
        Arm(
            "uwsgi-4",
            "uwsgi",
            ("uwsgi", "--http11-socket", "127.0.0.1:{port}", "--module", "{target}", "--threads", "4", "--enable-threads")
            + ("--disable-logging", "--need-app", "--die-on-term", "--virtualenv", "{venv}"),
            interpreters=(GIL,),
        ),
        # The raw-speed peers: C, one loop, no pool, no isolation. They need a GIL.
        Arm("fastwsgi", "fastwsgi", ("python", "{peers}/serve.py", "fastwsgi", "{target}", "{port}"), interpreters=(GIL,)),
        Arm("bjoern", "bjoern", ("python", "{peers}/serve.py", "bjoern", "{target}", "{port}"), interpreters=(GIL,)),
        # ASGI.
        _m0("m0serve-asgi-uvloop", "--interface", "asgi", "--loop", "uvloop", serves="asgi", awaited=True),
        _m0("m0serve-asgi-asyncio", "--interface", "asgi", "--loop", "asyncio", serves="asgi", awaited=True),
        _granian("granian-uvloop", "asgi", "--runtime-threads", "1", "--loop", "uvloop"),
        _granian("granian-asyncio", "asgi", "--runtime-threads", "1", "--loop", "asyncio"),
        _uvicorn("uvicorn-uvloop", "uvloop"),
        _uvicorn("uvicorn-asyncio", "asyncio"),
        _hypercorn("hypercorn-uvloop", "uvloop"),
        _hypercorn("hypercorn-asyncio", "asyncio"),
        # The same with WebSockets on.
        Arm(
            "granian-ws",
            "granian",
            ("granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", "{port}", "--workers", "1")
            + ("--runtime-threads", "1", "--loop", "uvloop", "--ws", "{target}"),
            serves="asgi",
        ),
        Arm(
            "uvicorn-websockets",
            "uvicorn",
            ("uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--loop", "uvloop", "--http", "httptools")
            + ("--ws", "websockets", "--no-access-log", "--log-level", "warning", "{target}"),
            serves="asgi",
        ),
        Arm(
            "uvicorn-wsproto",
            "uvicorn",
            ("uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--loop", "uvloop", "--http", "httptools")
            + ("--ws", "wsproto", "--no-access-log", "--log-level", "warning", "{target}"),
            serves="asgi",
        ),
    )
}
