"""The bars that the issues set, as data over artifacts: `ci/bench bars` holds the newest artifacts against them, and
docs/benchmarks.md shows the result. A bar whose rows don't exist yet is not shown as met or missed.
"""

from dataclasses import dataclass

from . import figures
from .artifacts import Shelf


@dataclass(frozen=True)
class Bar:
    what: str
    suite: str
    interpreter: str
    expression: str  # as in a number span, without suite and interpreter
    sense: str  # "≤" or "≥"
    bar: float
    unit: str = "×"


def _both(what, suite, expression, sense, bar, unit="×"):
    return [Bar(what, suite, interpreter, expression, sense, bar, unit) for interpreter in ("3.13", "3.14t")]


def _ratio(left, right, case, metric):
    return f"{left}:{case}:{metric} / {right}:{case}:{metric}"


BARS = [
    *_both("view on the loop, CPU per request, to the floor's", "layer-split", _ratio("m0serve-inline", "floor", "hello", "cpu_us"), "≤", 1.7),
    Bar("view on the loop, rps, to fastwsgi's", "layer-split", "3.13", _ratio("m0serve-inline", "fastwsgi", "hello", "rps"), "≥", 1.25),
    Bar("view on the loop, rps, to bjoern's", "layer-split", "3.13", _ratio("m0serve-inline", "bjoern", "hello", "rps"), "≥", 1.45),
    Bar("view on the loop, rps, to granian's with one blocking thread", "layer-split", "3.14t",
        _ratio("m0serve-inline", "granian-bt1", "hello", "rps"), "≥", 2.2),
    *_both("pool on, CPU per request, to pool off", "layer-split", _ratio("m0serve-pool", "m0serve-inline", "hello", "cpu_us"), "≤", 1.10),
    *_both("pool on, rps, to granian's with four blocking threads", "layer-split", _ratio("m0serve-pool", "granian-bt4", "hello", "rps"), "≥", 2.2),
    *_both("pool on, CPU per request, to granian's", "layer-split", _ratio("m0serve-pool", "granian-bt4", "hello", "cpu_us"), "≤", 0.4),
    *_both("two slow views in flight, rps, to none in flight", "mixed-workload", "m0serve-pool:slow-2:rps / m0serve-pool:slow-0:rps", "≥", 0.95),
    *_both("two slow views in flight, fast p99", "mixed-workload", "m0serve-pool:slow-2:p99_ms", "≤", 1.5, "ms"),
    *_both("two slow views in flight, fast p99, to granian's", "mixed-workload", _ratio("m0serve-pool", "granian-bt4", "slow-2", "p99_ms"), "≤", 1.0),
    *_both("Django, two slow views in flight, fast p99, to granian's", "mixed-workload",
           _ratio("m0serve-pool", "granian-bt4", "django-slow-2", "p99_ms"), "≤", 1.0),
    *_both("Django, two slow views in flight, rps, to granian's", "mixed-workload",
           _ratio("m0serve-pool", "granian-bt4", "django-slow-2", "rps"), "≥", 1.1),
    Bar("fairness, p99", "fairness", "3.13", "m0serve-pool:busy:p99_ms", "≤", 7, "ms"),
    Bar("fairness, p99 without barrier and baton, to p99 with them", "fairness", "3.13",
        _ratio("m0serve-no-barrier", "m0serve-pool", "busy", "p99_ms"), "≥", 5),
    *_both("a view of 35 µs, rps, to the same without the barrier", "fairness",
           _ratio("m0serve-pool", "m0serve-no-turns", "busy-35us", "rps"), "≥", 0.95),
    Bar("fairness, p99", "fairness", "3.14t", "m0serve-pool:busy:p99_ms", "≤", 8, "ms"),
    *_both("ASGI bare, 16 connections, rps, to uvicorn's with uvloop", "asgi", _ratio("m0serve-asgi-uvloop", "uvicorn-uvloop", "get-c16", "rps"), "≥", 3.5),
    *_both("ASGI bare, 16 connections, rps, to granian's", "asgi", _ratio("m0serve-asgi-uvloop", "granian-uvloop", "get-c16", "rps"), "≥", 2.2),
    *_both("ASGI bare, 64 connections, rps, to uvicorn's with uvloop", "asgi", _ratio("m0serve-asgi-uvloop", "uvicorn-uvloop", "get-c64", "rps"), "≥", 3.5),
    *_both("ASGI bare, 64 connections, rps, to granian's", "asgi", _ratio("m0serve-asgi-uvloop", "granian-uvloop", "get-c64", "rps"), "≥", 2.2),
    *_both("ASGI bare, 16 connections, CPU per request, to granian's", "asgi", _ratio("m0serve-asgi-uvloop", "granian-uvloop", "get-c16", "cpu_us"), "≤", 0.4),
    *_both("ASGI bare, 16 connections, p99, to uvicorn's with uvloop", "asgi", _ratio("m0serve-asgi-uvloop", "uvicorn-uvloop", "get-c16", "p99_ms"), "≤", 1.0),
    *_both("ASGI bare, 16 connections, p99, to granian's", "asgi", _ratio("m0serve-asgi-uvloop", "granian-uvloop", "get-c16", "p99_ms"), "≤", 1.0),
    *_both("ASGI bare, 64 connections, CPU per request, to granian's", "asgi", _ratio("m0serve-asgi-uvloop", "granian-uvloop", "get-c64", "cpu_us"), "≤", 0.4),
    *_both("ASGI bare, 64 connections, p99, to uvicorn's with uvloop", "asgi", _ratio("m0serve-asgi-uvloop", "uvicorn-uvloop", "get-c64", "p99_ms"), "≤", 1.0),
    *_both("ASGI bare, 64 connections, p99, to granian's", "asgi", _ratio("m0serve-asgi-uvloop", "granian-uvloop", "get-c64", "p99_ms"), "≤", 1.0),
    *_both("ASGI, 1 KiB posted, rps, to uvicorn's", "asgi", _ratio("m0serve-asgi-uvloop", "uvicorn-uvloop", "post-1k-c16", "rps"), "≥", 2.5),
    *_both("ASGI, 1 KiB posted, rps, to granian's", "asgi", _ratio("m0serve-asgi-uvloop", "granian-uvloop", "post-1k-c16", "rps"), "≥", 2.0),
    *_both("FastAPI, rps, to uvicorn's", "asgi", _ratio("m0serve-asgi-uvloop", "uvicorn-uvloop", "fastapi", "rps"), "≥", 1.25),
    *_both("FastAPI, rps, to granian's", "asgi", _ratio("m0serve-asgi-uvloop", "granian-uvloop", "fastapi", "rps"), "≥", 1.1),
    *_both("ASGI, two slow awaits in flight, fast p99, to two in flight elsewhere", "asgi-mixed",
           "m0serve-asgi-uvloop:slow-2:p99_ms / m0serve-asgi-uvloop:slow-2-elsewhere:p99_ms", "≤", 1.1),
    *_both("ASGI, two slow awaits in flight, rps, to none in flight", "asgi-mixed",
           "m0serve-asgi-uvloop:slow-2:rps / m0serve-asgi-uvloop:slow-0:rps", "≥", 0.9),
    *_both("WebSocket echo, rps, to granian's", "websocket", _ratio("m0serve-asgi-uvloop", "granian-ws", "text-64", "rps"), "≥", 1.0),
    *_both("WebSocket echo, rps, to uvicorn's", "websocket", _ratio("m0serve-asgi-uvloop", "uvicorn-websockets", "text-64", "rps"), "≥", 1.0),
    *_both("RSS after 100,000 requests, 4 loops and 16 handlers", "memory", "m0serve-t4-pool:bare:loaded_rss_mb", "≤", 20, "MB"),
    *_both("four processes, PSS, to one with four loops", "memory",
           "m0serve-4-processes:bare:loaded_pss_mb / m0serve-t4-pool:bare:loaded_pss_mb", "≥", 1.6),
    *_both("growth over 400,000 further requests", "memory", "m0serve-t4-pool:bare:growth_mb", "≤", 1.0, "MB"),
    *_both("ASGI: growth over 400,000 further requests", "memory-asgi", "m0serve-asgi-uvloop:bare:growth_mb", "≤", 1.0, "MB"),
    *_both("an idle keep-alive connection", "memory", "m0serve-t4-pool:bare:connection_kb", "≤", 1.5, "KiB"),
    Bar("two loops with a pool, rps, to one without (CPU-bound view)", "scaling", "3.14t",
        _ratio("m0serve-t2-pool", "m0serve-inline", "busy-1ms", "rps"), "≥", 1.8),
    Bar("one loop with a pool, rps, to one without (CPU-bound view)", "scaling", "3.14t",
        _ratio("m0serve-pool", "m0serve-inline", "busy-1ms", "rps"), "≥", 1.8),
    Bar("two loops, rps, to one (CPU-bound view)", "scaling", "3.14t", _ratio("m0serve-t2", "m0serve-inline", "busy-1ms", "rps"), "≥", 1.8),
    Bar("bridge, one thread", "parts", "3.13", "bridge:bridge/request:ns", "≤", 1300, "ns"),
    Bar("bridge, one thread", "parts", "3.14t", "bridge:bridge/request:ns", "≤", 1700, "ns"),
    Bar("bridge, two threads, requests a second, to one", "parts", "3.14t", "bridge:threads/1:ns / bridge:threads/2:ns", "≥", 1.9),
    Bar("bridge, two threads, CPU per request, to one", "parts", "3.14t", "bridge:cpu/2:ns / bridge:cpu/1:ns", "≤", 1.05),
]  # fmt: skip


def judged(shelf):
    """[(bar, value, met)] of the bars that the artifacts can answer."""
    results = []
    for bar in BARS:
        try:
            value = figures.evaluate(f"{bar.suite}/{bar.interpreter} {bar.expression}", shelf)
        except figures.Unknown:
            continue
        met = value <= bar.bar if bar.sense == "≤" else value >= bar.bar
        results.append((bar, value, met))
    return results


def main():
    """Prints every bar that can be judged. Status 1 when one is missed."""
    shelf = Shelf()
    results = judged(shelf)
    for bar, value, met in results:
        print(f"{'met   ' if met else 'MISSED'} {bar.interpreter:6} {bar.what}: {figures.form(value)} {bar.unit} (bar {bar.sense} {bar.bar:g})")
    print(f"{sum(met for *_, met in results)} met, {sum(not met for *_, met in results)} missed, {len(BARS) - len(results)} without rows yet")
    return 0 if all(met for *_, met in results) else 1
