"""A Django project in one file. Each request leaves a trace: at every step of its life, from the call to the signal that
ends it, on which thread it was, what it found in its context and which database connection was the thread's.

THREADS_DB       the database file
THREADS_MAX_AGE  CONN_MAX_AGE in seconds; unlimited where it is not set
"""

import contextvars
import gc
import itertools
import json
import os
import select
import threading
import time
from urllib.parse import parse_qs

import django
from asgiref.local import Local
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.db.backends.signals import connection_created

import reporting

_age = os.environ.get("THREADS_MAX_AGE")
settings.configure(
    SECRET_KEY="for tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["THREADS_DB"],
            "CONN_MAX_AGE": None if _age is None else int(_age),
            # Writers wait for each other rather than fail.
            "OPTIONS": {"timeout": 30},
        }
    },
    USE_TZ=True,
)
django.setup()

# What needs the settings.
from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402
from django.http import HttpResponse, StreamingHttpResponse  # noqa: E402
from django.urls import path  # noqa: E402

_lock = threading.Lock()
_traces = {}
_connections = itertools.count(1)
_mark = contextvars.ContextVar("mark", default=None)
_local = Local()
_critical = Local(thread_critical=True)
_closing = threading.local()
_last = {}
"""The request that set the thread-critical local last, by the kernel's number of the thread."""


class Row(models.Model):
    name = models.CharField(max_length=40)

    class Meta:
        app_label = "django_threads"


with connection.schema_editor() as _editor:
    _editor.create_model(Row)
connection.close()


def _note(n, step):
    thread = threading.get_native_id()
    noted = {
        "step": step,
        "thread": thread,
        "ident": threading.get_ident(),
        "mark": _mark.get(),
        "local": getattr(_local, "n", None),
        "critical": getattr(_critical, "n", None),
        "last": _last.get(thread),
        "connection": connection.serial if connection.connection is not None else None,
        "in_atomic": connection.in_atomic_block,
    }
    with _lock:
        _traces.setdefault(n, []).append(noted)


def _number(environ):
    return parse_qs(environ["QUERY_STRING"])["n"][0]


def _connected(connection, **_):
    connection.serial = next(_connections)


def _started(environ, **_):
    _note(_number(environ), "started")


def _finished(**_):
    """Django's own receivers, which close connections, were connected first, and are called first."""
    _note(_closing.n, "finished")


connection_created.connect(_connected)
request_started.connect(_started)
request_finished.connect(_finished)


class _Traced:
    """A response that notes its close(), which sends request_finished."""

    def close(self):
        _note(self.n, "close")
        _closing.n = self.n
        super().close()


class _Whole(_Traced, HttpResponse):
    pass


class _Stream(_Traced, StreamingHttpResponse):
    pass


def _hold(request, n):
    """Until the test lets it go on: waiting, or computing on and on."""
    gate = request.GET.get("gate")
    if gate is None:
        return
    message = f"{n} {threading.get_native_id()}"
    if "busy" not in request.GET:
        reporting.hold(gate, message)
        return
    with reporting.say(gate, message) as sock:
        while not select.select([sock], [], [], 0)[0]:
            sum(range(10_000))


def _compute(request):
    """?ms= of the thread's own processor time."""
    end = time.thread_time() + float(request.GET.get("ms", 0)) / 1000
    while time.thread_time() < end:
        pass


def _pieces(n, count, size):
    for piece in range(count):
        if piece == 0:
            _note(n, "first piece")
        Row.objects.exists()
        yield b"x" * size
    _note(n, "last piece")


def trace(request):
    n = request.GET["n"]
    _note(n, "view")
    Row.objects.exists()
    _mark.set(n)
    _local.n = n
    _critical.n = n
    _last[threading.get_native_id()] = n
    _note(n, "set")
    _hold(request, n)
    _compute(request)
    Row.objects.exists()
    _note(n, "held")
    if count := int(request.GET.get("pieces", 0)):
        response = _Stream(_pieces(n, count, int(request.GET.get("size", 10))))
    else:
        response = _Whole(b"whole")
    response.n = n
    return response


class _Undo(Exception):
    pass


def write(request):
    """Two rows in one transaction, which commits or rolls back; the test may hold it before the first and between."""
    n = request.GET["n"]
    gates = request.GET.get("at", "").split(",")
    _note(n, "view")
    try:
        with transaction.atomic():
            if "begun" in gates:
                _hold(request, n)
            Row.objects.create(name=f"{n}-1")
            if "written" in gates:
                _hold(request, n)
            Row.objects.create(name=f"{n}-2")
            own = Row.objects.filter(name__startswith=f"{n}-").count()
            _note(n, "written")
            if request.GET["end"] == "rollback":
                raise _Undo
    except _Undo:
        pass
    response = _Whole(str(own))
    response.n = n
    return response


def rows(request):
    """The rows as this thread's connection sees them."""
    n = request.GET["n"]
    _note(n, "view")
    response = _Whole(json.dumps(list(Row.objects.order_by("pk").values_list("name", flat=True))))
    response.n = n
    return response


urlpatterns = [path("trace", trace), path("write", write), path("rows", rows)]
_django = WSGIHandler()


def application(environ, start_response):
    if environ["PATH_INFO"] in ("/traces", "/collect", "/nothing"):
        # Not through Django: asking must not touch what is asked about, and nothing is as quick.
        body = b""
        if environ["PATH_INFO"] == "/traces":
            with _lock:
                body = json.dumps(_traces).encode()
        if environ["PATH_INFO"] == "/collect":
            gc.collect()
        start_response("200 OK", [("Content-Type", "application/json")])
        return [body]
    _note(_number(environ), "called")
    return _django(environ, start_response)
