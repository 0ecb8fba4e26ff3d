"""A small artifact for the tests, as a run would write it."""

import copy

from m0bench import artifacts


def measurement(**more):
    base = {
        "requests": 1000, "seconds": 1.0, "rps": 1000.0, "p50_ms": 0.5, "p90_ms": 0.8, "p99_ms": 1.0, "p999_ms": 2.0, "max_ms": 3.0,
        "errors": {"connect": 0, "read": 0, "write": 0, "status": 0, "timeout": 0},
        "load_cores": 0.5, "cores": 1.0, "cpu_us": 10.0, "other_cores": 0.0, "steal_cores": 0.0, "rss_mb": 10.0, "pss_mb": 9.0,
        "processes": 1, "threads": 6,
    }  # fmt: skip
    return {**base, **more}


def row(arm, case, *rounds, failed=None):
    rounds = [copy.deepcopy(r) for r in rounds]
    return {"arm": arm, "case": case, "failed": failed, "rounds": rounds, "summary": None if failed else artifacts.summary(rounds)}


def described(server, serves="wsgi", ours=False, **more):
    return {
        "server": server, "serves": serves, "command": [server, "--port", "{port}"], "env": {}, "processes": 1, "keep_alive": True,
        "ours": ours, "seen": {"wsgi_bare": {"python": "3.14.7", "gil_enabled": False, "loop": None}}, **more,
    }  # fmt: skip


def artifact(rows, suite="layer-split", interpreter="3.14t", utc="20260101T000000Z", rounds=3, **more):
    return {
        "schema": artifacts.SCHEMA, "suite": suite, "utc": utc, "commit": {"sha": "0123456789abcdef", "dirty": False},
        "interpreter": interpreter,
        "machine": {"cpu": "A processor", "usable_cores": 2, "virtual": True, "kernel": "Linux 6", "governor": "performance",
                    "load_before": [0.1, 0, 0], "load_after": [1.2, 0, 0]},
        "tools": {"wrk": "wrk 4.1.0", "go": "go version go1.19"},
        "distributions": {"granian": "2.8.9", "Django": "6.1.3"},
        "m0serve": {"version": "m0serve 0.1.0", "sha256": "0" * 64, "bytes": 1},
        "settings": {"rounds": rounds, "seconds": 5.0, "warmup": 2.0, "quick": False, "partial": False, "took_s": 60},
        "cases": [], "controls": [], "absent": {}, "incomplete": [],
        "arms": {
            "floor": described("epoll-floor", serves="body", seen={}),
            "m0serve-inline": described("m0serve", ours=True),
            "m0serve-pool": described("m0serve", ours=True),
            "granian-bt4": described("granian"),
        },
        "rows": rows,
        **more,
    }  # fmt: skip


def three(arm, case, **columns):
    """A row of three rounds; each column gives its three values."""
    return row(arm, case, *(measurement(**{name: values[n] for name, values in columns.items()}) for n in range(3)))
