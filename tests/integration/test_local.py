"""What m0serve answers by itself, and what it writes about requests."""

import json
import re

from harness.wire import get, post

BARE = "probe:application"


def test_health_without_python(serve, mode):
    server = serve(*mode, "--health-path", "/health", "counting:application")
    for _ in range(5):
        assert server.fetch(get("/health")).status == 200
    assert server.fetch(get("/health", method="HEAD"), "HEAD").status == 200
    assert server.fetch(get("/healthy")).body == b"0", "the path is matched whole, and health reaches no view"


def test_health_while_every_thread_is_held(serve, pool_mode, gate):
    server = serve(*pool_mode, "--health-path", "/health", BARE)
    handlers = int(pool_mode[1]) * int(pool_mode[3])
    clients = [server.connect() for _ in range(handlers * 3)]
    for client in clients:
        client.send(get(f"/hold?gate={gate.path}"))
    for _ in range(handlers):
        gate.next()
    for _ in range(10):
        assert server.fetch(get("/health")).status == 200
    for client in clients:
        client.close()


def _log(serve, mode, *args):
    server = serve(*mode, "--access-log", "-", *args, BARE)
    server.fetch(get("/target/a?b=c", "User-Agent: agent/1", "Referer: http://r/"))
    server.fetch(post("/echo", b"12345"))
    server.fetch(get("/fail"))
    server.fetch(b"broken\r\n\r\n")
    assert server.stop() == 0
    return (server.stdout.text() + "\n" + server.stderr.text()).splitlines()


def test_access_log(serve, mode):
    lines = _log(serve, mode)
    assert [line for line in lines if "GET /target/a?b=c HTTP/1.1" in line and " 200 " in line and "127.0.0.1" in line]
    assert [line for line in lines if "POST /echo HTTP/1.1" in line and " 200 " in line]
    assert [line for line in lines if "GET /fail HTTP/1.1" in line and " 500 " in line]


def test_access_log_format(serve, any_mode):
    """gunicorn's atoms."""
    lines = _log(serve, any_mode, "--access-log-format", "LINE %(h)s|%(m)s|%(U)s|%(q)s|%(H)s|%(s)s|%(B)s|%(f)s|%(a)s|%({user-agent}i)s|%({content-type}o)s|%(D)s")
    first = next(line for line in lines if line.startswith("LINE") and "/target/a" in line)
    assert re.fullmatch(r"LINE 127\.0\.0\.1\|GET\|/target/a\|b=c\|HTTP/1\.1\|200\|17\|http://r/\|agent/1\|agent/1\|text/plain\|\d+", first), first


def test_access_log_json(serve, any_mode):
    lines = _log(serve, any_mode, "--access-log-format", "json")
    records = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(records) >= 3
    assert any(200 in record.values() for record in records)


def test_access_log_in_a_file(serve, any_mode, tmp_path):
    log = tmp_path / "access.log"
    server = serve(*any_mode, "--access-log", log, BARE)
    for n in range(200):
        server.fetch(get(f"/target/{n}"))
    assert server.stop() == 0
    lines = log.read_text().splitlines()
    assert len(lines) == 200
    # Connections end on two loops: which line is written first is theirs.
    logged = sorted(int(re.search(r"GET /target/(\d+) HTTP/1.1", line)[1]) for line in lines)
    assert logged == list(range(200))


def test_no_access_log_by_default(serve, any_mode):
    server = serve(*any_mode, BARE)
    server.fetch(get("/target/a"))
    assert server.stop() == 0
    assert "/target/a" not in server.stdout.text() + server.stderr.text()
