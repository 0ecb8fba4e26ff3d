"""Probes: yes-or-no measurements of what the pool promises, each with a control in the same run that has to fail. A
probe whose control does not fail has stopped measuring, and counts as failed itself.

Pre-release, on a quiet machine; rounds alternate between treatment and control, medians decide.
"""

import concurrent.futures
import http.client
import statistics
import time
from dataclasses import replace

from . import environment, load, proc
from .catalogue import APPS, ARMS, FREE_THREADED, GIL
from .environment import say
from .servers import Server, StartFailure, fetch
from .suites import Case

ROUNDS = 3
HEALTH = "/-/probe-health"
FAIRNESS_MS = {GIL: 7.0, FREE_THREADED: 8.0}
ISOLATION_MS = 1.5


class Outcome:
    """What a probe found, line by line, and whether all of it held."""

    def __init__(self, name, interpreter):
        self.name = f"{name} on {interpreter}"
        self.passed = True
        self.asked = 0

    def expect(self, what, value, sense, bar, unit):
        held = value is not None and (value <= bar if sense == "≤" else value >= bar)
        self.passed &= held
        self.asked += 1
        shown = "nothing" if value is None else f"{value:.3g}"
        print(f"{'ok  ' if held else 'FAIL'} {self.name}: {what}: {shown} {unit} (wanted {sense} {bar:g})", flush=True)
        return held

    def control(self, what, value, sense, bar, unit):
        if not self.expect(f"control: {what}", value, sense, bar, unit):
            print(f"     {self.name}: the control did not fail as it must: the probe can't see what it is for", flush=True)

    def note(self, text):
        print(f"     {self.name}: {text}", flush=True)


class Probing:
    """What the probes of one interpreter share."""

    def __init__(self, site, options):
        self.site = site
        self.seconds = 1.0 if options.quick else options.seconds
        self.rounds = 1 if options.quick else ROUNDS
        self.window = 3.0 if options.quick else 10.0

    def server(self, arm, app="wsgi_bare", **env):
        return Server(arm, APPS[app], self.site, extra_env=env)

    def loaded(self, arm, cases, **env):
        """{case name: load's result} of one fresh server."""
        with self.server(arm, **env) as server:
            load.wrk(server.port, cases[0], min(2.0, self.seconds))
            results = {}
            for case in cases:
                with load.SlowRequests(server.port, case.slow_path, case.slow):
                    results[case.name] = load.wrk(server.port, case, self.seconds)
                if errors := {name: count for name, count in results[case.name]["errors"].items() if count}:
                    raise load.LoadFailure(f"{arm.name} {case.name}: {errors}")
            return results

    def alternated(self, variants, cases):
        """{(variant, case): {metric: median}} of `{variant: (arm, environment)}`, one after the other in each round."""
        collected = {}
        for number in range(self.rounds):
            for variant, (arm, env) in variants.items():
                for case, result in self.loaded(arm, cases, **env).items():
                    collected.setdefault((variant, case), []).append(result)
                    say(f"round {number + 1}/{self.rounds} {variant} {case}: {result['rps']:.0f} rps, p99 {result['p99_ms']} ms")
        return {
            key: {metric: statistics.median(result[metric] for result in results) for metric in ("rps", "p50_ms", "p99_ms")}
            for key, results in collected.items()
        }


def fairness(probing, outcome):
    """Sixteen connections on 300 µs of Python, four handlers: everybody's turn comes; without barrier and baton they convoy."""
    control = dict(ARMS["m0serve-no-barrier"].env)
    if probing.site.interpreter == FREE_THREADED:
        # Without a GIL nothing convoys: the control brings it back.
        control["PYTHON_GIL"] = "1"
    found = probing.alternated(
        {"as it is": (ARMS["m0serve-pool"], {}), "control": (ARMS["m0serve-pool"], control)}, [Case("busy", path="/busy?ms=0.3")]
    )
    own, other = found["as it is", "busy"]["p99_ms"], found["control", "busy"]["p99_ms"]
    outcome.expect("p99", own, "≤", FAIRNESS_MS[probing.site.interpreter], "ms")
    outcome.control(f"p99 without barrier and baton ({other:.3g} ms), to p99 with them", other / own, "≥", 5, "×")


def isolation(probing, outcome):
    """Fast requests beside 0, 1 and 2 views of 200 ms: nothing happens to them; without a pool they stall."""
    cases = [Case(f"slow-{n}", slow=n) for n in (0, 1, 2)]
    variants = {"threads": (ARMS["m0serve-pool"], {}), "no pool": (ARMS["m0serve-inline"], {})}
    workers = ARMS["m0serve-w2-pool"]
    try:
        with probing.server(workers):
            variants["processes"] = (workers, {})
    except StartFailure as error:
        outcome.note(f"processes left out: {error}")
    found = probing.alternated(variants, cases)
    for mode in ("threads", "processes"):
        if mode in variants:
            outcome.expect(f"{mode}: p99 with two slow views", found[mode, "slow-2"]["p99_ms"], "≤", ISOLATION_MS, "ms")
            outcome.expect(f"{mode}: rps with two slow views, to none", found[mode, "slow-2"]["rps"] / found[mode, "slow-0"]["rps"], "≥", 0.95, "×")
    outcome.control("p99 without a pool, one slow view", found["no pool", "slow-1"]["p99_ms"], "≥", 100, "ms")


def scaling(probing, outcome):
    """A second loop doubles what a CPU-bound view gets; with the GIL brought back it does not.

    Without standbys: one loop's would take the second core too.
    """
    if probing.site.interpreter != FREE_THREADED:
        outcome.note("left out: only a build without a GIL can scale in one process")
        return
    case = Case("busy", path="/busy?ms=1")
    one, two = ARMS["m0serve-inline"], ARMS["m0serve-t2"]
    gil = {"PYTHON_GIL": "1"}
    found = probing.alternated({"one": (one, {}), "two": (two, {}), "one, GIL": (one, gil), "two, GIL": (two, gil)}, [case])
    outcome.expect("two loops to one", found["two", "busy"]["rps"] / found["one", "busy"]["rps"], "≥", 1.8, "×")
    outcome.control("two loops to one with the GIL on", found["two, GIL", "busy"]["rps"] / found["one, GIL", "busy"]["rps"], "≤", 1.3, "×")


def idle(probing, outcome):
    """A server with nothing to do sleeps; one whose application ticks is seen ticking."""
    counts = {}
    for name, app in (("own", "wsgi_bare"), ("control", "ticking")):
        with probing.server(ARMS["m0serve-t4-pool"], app) as server:
            fetch(server.port)
            # The connection's end and the last time-outs belong to the request: begin when a whole second was quiet
            # or, for the control that never is, after three.
            last = proc.wakeups(server.pids)
            for _ in range(3):
                time.sleep(1)
                now = proc.wakeups(server.pids)
                if now == last:
                    break
                last = now
            before = proc.wakeups(server.pids)
            time.sleep(probing.window)
            counts[name] = (proc.wakeups(server.pids) - before) / probing.window
    outcome.expect("wake-ups a second", counts["own"], "≤", 0.2, "")
    outcome.control("wake-ups a second with a ticking application", counts["control"], "≥", 50, "")


def stranding(probing, outcome):
    """More slow views at once than there are threads: health still answers at once, and every view is finished."""
    loops, handlers, hold = 1, 4, 1.0
    count = loops * handlers + loops + 5

    def at_once(arm):
        """(slowest health answer while the views run, how many views were answered, how long all took)."""
        arm = replace(arm, command=(*arm.command[:-1], "--health-path", HEALTH, arm.command[-1]))
        with probing.server(arm) as server, concurrent.futures.ThreadPoolExecutor(count) as clients:
            fetch(server.port)
            begun = time.monotonic()
            views = [clients.submit(fetch, server.port, f"/slow?ms={hold * 1000:g}", timeout=60) for _ in range(count)]
            slowest = 0.0
            # Health is asked from when the views must have been taken up until they are all done.
            time.sleep(0.2)
            while not all(view.done() for view in views):
                asked = time.monotonic()
                try:
                    status, *_ = fetch(server.port, HEALTH, timeout=60)
                    assert status == 200, f"health answered {status}"
                except (OSError, http.client.HTTPException) as error:
                    raise load.LoadFailure(f"health: {error!r}") from error
                slowest = max(slowest, time.monotonic() - asked)
                time.sleep(0.02)
            took = time.monotonic() - begun
            answered = sum(not view.exception() and view.result()[0] == 200 for view in views)
        return slowest * 1000, answered, took

    slowest, answered, took = at_once(ARMS["m0serve-pool"])
    outcome.expect(f"health while {count} views of {hold:g} s run", slowest, "≤", 100, "ms")
    outcome.expect("views answered", answered, "≥", count, f"of {count}")
    # A loop may keep one handler in reserve: then handlers + loops - 1 views run at a time.
    outcome.expect("time for all of them", took, "≤", hold * (-(-count // (handlers + loops - 1)) + 1), "s")
    blocked, *_ = at_once(ARMS["m0serve-inline"])
    outcome.control("health without a pool", blocked, "≥", 500, "ms")


PROBES = {"fairness": fairness, "isolation": isolation, "scaling": scaling, "idle": idle, "stranding": stranding}


def main(names, interpreters, options):
    failed = 0
    for interpreter in interpreters:
        probing = Probing(environment.Site(interpreter, options.m0serve, options.peers_only, options.venv), options)
        for name in dict.fromkeys(names):
            outcome = Outcome(name, interpreter)
            try:
                PROBES[name](probing, outcome)
            except (StartFailure, load.LoadFailure, OSError) as error:
                outcome.passed = False
                print(f"FAIL {outcome.name}: {probing.site.strip_paths(str(error))}", flush=True)
            failed += not outcome.passed
            verdict = "FAILED" if not outcome.passed else "passed" if outcome.asked else "not asked:"
            print(f"{verdict} {outcome.name}\n", flush=True)
    return 1 if failed else 0
