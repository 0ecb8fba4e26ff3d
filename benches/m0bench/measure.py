"""A suite's run on one interpreter: who serves (identity), parity of bodies, rounds with the arms alternating, rows.

Every arm is started afresh in every round. The order of the arms turns by one each round, so that no arm always runs
behind the same neighbour. A round whose load saw a socket error, a wrong status or a dead worker makes its row
failed: a failed measurement is never read as a slow server.
"""

import base64
import contextlib
import json
import socket
import subprocess
import time
from dataclasses import dataclass, replace

from . import artifacts, environment, load, proc
from .catalogue import APPS, ARMS
from .environment import Missing, say
from .servers import Server, StartFailure, fetch

# Where other processes of the machine took this much of a core, the round is marked as disturbed.
DISTURBED = 0.15


@dataclass(frozen=True)
class Settings:
    rounds: int
    seconds: float
    warmup: float = 1.5
    quick: bool = False
    only_arms: tuple[str, ...] = ()
    only_cases: tuple[str, ...] = ()


class Run:
    """One suite on one site; `artifact()` is what came of it."""

    def __init__(self, suite, site, settings):
        self.suite = suite
        self.site = site
        self.settings = settings
        self.rows = {}  # (arm, case) -> list of rounds
        self.reasons = {}  # (arm, case) -> why the row failed
        self.arms = {}  # name -> what the artifact records about it
        self.absent = {}  # name -> reason
        self.incomplete = []  # absences that are a fault of the set-up
        self.cross_checks = {}

    # -- preparation

    def plan(self):
        """[(group, arms, cases)] that can be measured here, after everything that can't has been written down."""
        plan = []
        for group in self.suite.groups:
            app = APPS[group.app]
            arms = [ARMS[name] for name in group.arms if self.site.interpreter in ARMS[name].interpreters]
            if self.settings.only_arms:
                arms = [arm for arm in arms if arm.name in self.settings.only_arms]
            if self.site.before:
                arms = [variant for arm in arms for variant in with_before(arm)]
            cases = [case for case in group.cases if not self.settings.only_cases or case.name in self.settings.only_cases]
            if not cases or not arms:
                continue
            if not (self.site.root / app.directory / (app.target.partition(":")[0].replace(".", "/") + ".py")).exists():
                self._leave_out(f"app {app.name}", "the application is not there yet", fault=False)
                continue
            references = self._references(app, cases)
            cases = [case for case in cases if case.name in references]
            body = references[cases[0].name].decode("latin-1") if cases and len(references[cases[0].name]) < 4096 else ""
            arms = [arm for arm in arms if self._usable(arm, app, body, group)]
            if arms and cases:
                plan.append((app, arms, cases, references, body))
        return plan

    def _leave_out(self, name, reason, fault):
        self.absent[name] = reason
        if fault:
            self.incomplete.append(name)
        say(f"left out: {name}: {reason}")

    def _references(self, app, cases):
        """What the application itself answers to each case; cases that it doesn't answer are left out."""
        lines = []
        for case in cases:
            path, _, query = case.path.partition("?")
            body = base64.b64encode(load.request_body(case.send if case.method != "GET" else 0)).decode()
            lines.append(json.dumps({"method": case.method, "path": path, "query": query, "body": body}))
        done = subprocess.run(
            [self.site.venv / "bin" / "python", self.site.root / "benches/apps/reference.py", app.interface, app.target],
            input="\n".join(lines) + "\n", capture_output=True, text=True,
            cwd=self.site.root / app.directory, env=self.site.server_environment(self.site.root / app.directory),
        )  # fmt: skip
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            self._leave_out(f"app {app.name}", f"it can't be called: {self.site.strip_paths(last[0])}", fault=True)
            return {}
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        references = {}
        for case, answer in zip(cases, answers, strict=True):
            if answer["status"] != case.status:
                self._leave_out(f"case {case.name}", f"{app.name} answers {answer['status']} to {case.path}", fault=True)
            else:
                references[case.name] = base64.b64decode(answer["body"])
        return references

    def _usable(self, arm, app, body, group):
        """Whether the arm starts, and who serves then: with the same flags, asked once before the rounds."""
        if arm.name in self.absent:
            return False
        try:
            seen = self._identity(arm, app, body)
        except Missing as error:
            self._leave_out(arm.name, str(error), fault=arm.server != "m0serve")
            return False
        except (StartFailure, OSError, ValueError) as error:
            self._leave_out(arm.name, self.site.strip_paths(f"does not start: {error}"), fault=not arm.awaited)
            return False
        wanted = self.site.interpreter.rstrip("t")
        if seen and not seen["python"].startswith(wanted + "."):
            self._leave_out(arm.name, f"serves with Python {seen['python']}, wanted {self.site.interpreter}", fault=True)
            return False
        known = self.arms.setdefault(
            arm.name,
            {"server": arm.server, "serves": arm.serves, "command": list(arm.command), "env": arm.env,
             "processes": arm.processes, "keep_alive": arm.keep_alive, "ours": arm.ours, "seen": {}},
        )  # fmt: skip
        if seen:
            known["seen"][group.app] = seen
        return True

    def _identity(self, arm, app, body):
        if arm.serves == "body":
            with Server(arm, app, self.site, body=body) as server:
                fetch(server.port)
            return None
        folder = self.site.root / "benches" / "apps"
        target = "identity:asgi" if app.interface == "asgi" else "identity:application"
        environment_more = {"M0_BENCH_TARGET": app.target, "PYTHONPATH": f"{self.site.root / app.directory}:{folder}"}
        with Server(arm, app, self.site, extra_env=environment_more, target=target, app_dir=folder) as server:
            status, answer, _ = fetch(server.port)
        if status != 200:
            raise StartFailure(f"the identity application answered {status}")
        return json.loads(answer)

    # -- rounds

    def run(self):
        begun = time.time()
        self.load_before = environment.load_average()
        plan = self.plan()
        for number in range(self.settings.rounds):
            for app, arms, cases, references, body in plan:
                turn = number % len(arms)
                for arm in arms[turn:] + arms[:turn]:
                    self._one(arm, app, cases, references, body, number)
        self.load_after = environment.load_average()
        self.took = time.time() - begun
        return self

    def _one(self, arm, app, cases, references, body, number):
        # A server that closes after each answer has nothing to say about kept connections.
        cases = [case for case in cases if arm.keep_alive or case.close]
        label = f"{self.suite.name} {self.site.interpreter} round {number + 1}/{self.settings.rounds} {arm.name}"
        try:
            with Server(arm, app, self.site, body=body) as server:
                for position, case in enumerate(cases):
                    if (arm.name, case.name) in self.reasons:
                        continue
                    try:
                        measured = self._case(server, arm, case, references, warm=position == 0)
                    except (load.LoadFailure, OSError) as error:
                        self._fail(arm, case, self.site.strip_paths(f"{type(error).__name__}: {error}; server: {server.last_words()}"))
                        if not server.alive():
                            break
                        continue
                    if measured:
                        self.rows.setdefault((arm.name, case.name), []).append(measured)
                        say(f"{label} {case.name}: {_line(self.suite, measured)}")
                for case in cases:
                    if complaints := server.complaints():
                        self._fail(arm, case, f"the server complained: {complaints[0]}")
                    elif not server.alive():
                        self._fail(arm, case, f"the server ended: {server.last_words()}")
        except (StartFailure, Missing) as error:
            for case in cases:
                self._fail(arm, case, self.site.strip_paths(f"round {number + 1}: {error}"))

    def _fail(self, arm, case, why):
        if (arm.name, case.name) not in self.reasons:
            say(f"FAILED {arm.name} {case.name}: {why}")
            self.reasons[(arm.name, case.name)] = why
            self.rows.setdefault((arm.name, case.name), [])

    def _case(self, server, arm, case, references, warm):
        if self.suite.kind != "websocket" and case.parity and not self._parity(server, arm, case, references):
            return None
        measure = {"http": self._http, "websocket": self._websocket, "memory": self._memory}[self.suite.kind]
        return measure(server, arm, case, warm)

    def _parity(self, server, arm, case, references):
        for port in server.ports:
            body = load.request_body(case.send) if case.method != "GET" else None
            status, answer, _ = fetch(port, case.path, case.method, body)
            if status != case.status or answer != references[case.name]:
                self._fail(arm, case, f"answers {status} with {len(answer)} bytes that are not the application's {len(references[case.name])}")
                return False
        return True

    def _http(self, server, arm, case, warm):
        waited, left = proc.drain_time_wait(server.port)
        warmup = self.settings.warmup if warm else self.settings.warmup / 2
        # Kept connections warm a server for churn as well, and leave no port in TIME_WAIT.
        load.wrk(server.port, replace(case, close=False) if arm.keep_alive else case, warmup if arm.keep_alive else 0.5)
        with contextlib.ExitStack() as around:
            slow_port = server.port
            if case.elsewhere:
                slow_port = around.enter_context(Server(arm, server.app, self.site)).port
            slow = around.enter_context(load.SlowRequests(slow_port, case.slow_path, case.slow))
            measured = self._under_load(server, lambda: load.wrk(server.port, case, self.settings.seconds))
        measured.update(slow_finished=slow.finished, time_wait_before=left, drained_s=round(waited, 1))
        self._judge(arm, case, measured)
        if case.cross_check and (arm.name, case.name) not in self.reasons:
            check = load.h2load(server.port, case, seconds=self.settings.seconds)
            if check["failed"]:
                self._fail(arm, case, f"h2load: {check['failed']} requests failed")
            self.cross_checks.setdefault((arm.name, case.name), []).append(check)
        return measured

    def _websocket(self, server, arm, case, warm):
        load.ws_load(self.site, server.port, case, self.settings.warmup / (1 if warm else 2))
        measured = self._under_load(server, lambda: load.ws_load(self.site, server.port, case, self.settings.seconds))
        self._judge(arm, case, measured)
        return measured

    def _under_load(self, server, generate):
        """Runs a load with the server's, the generator's and everybody else's CPU read around it."""
        busy, steal = proc.machine_busy()
        before, begun = server.cpu_seconds(), time.monotonic()
        measured = generate()
        wall, used = time.monotonic() - begun, server.cpu_seconds() - before
        busy_after, steal_after = proc.machine_busy()
        memory = server.memory()
        others = (busy_after - busy - used) / wall - measured["load_cores"]
        measured.update(
            cores=round(used / wall, 3),
            cpu_us=round(used * 1e6 / measured["requests"], 3) if measured["requests"] else None,
            other_cores=round(max(0.0, others), 3),
            steal_cores=round((steal_after - steal) / wall, 3),
            rss_mb=round(memory["rss_kb"] / 1024, 2),
            pss_mb=round(memory["pss_kb"] / 1024, 2),
            processes=memory["processes"],
            threads=memory["threads"],
        )
        if measured["other_cores"] + measured["steal_cores"] > DISTURBED:
            say(f"disturbed: other processes used {measured['other_cores']} cores, the hypervisor took {measured['steal_cores']}")
        return measured

    def _judge(self, arm, case, measured):
        errors = {name: count for name, count in measured["errors"].items() if count}
        if errors:
            self._fail(arm, case, "socket errors: " + ", ".join(f"{count} {name}" for name, count in errors.items()))
        elif not measured["requests"]:
            self._fail(arm, case, "no request was answered")

    def _memory(self, server, arm, case, warm):
        """Idle, after `requests`, with idle connections held, and (ours) after many more requests."""
        for port in server.ports:
            fetch(port, case.path)
        idle = server.settled_memory()

        def requests(total):
            for port in server.ports:
                done = load.h2load(port, case, requests=total // len(server.ports))
                if done["failed"]:
                    raise load.LoadFailure(f"{done['failed']} requests failed")
            return server.settled_memory()

        total, more, held = self.suite.requests, self.suite.more_requests, self.suite.idle_connections
        if self.settings.quick:
            total, more, held = 2000, 2000, 50
        loaded = requests(total)
        with IdleConnections(server.port, case.path, held) as idlers:
            holding = server.settled_memory()
            kept = idlers.held
        measured = {
            "requests": total,
            "idle_rss_mb": round(idle["rss_kb"] / 1024, 2),
            "idle_pss_mb": round(idle["pss_kb"] / 1024, 2),
            "loaded_rss_mb": round(loaded["rss_kb"] / 1024, 2),
            "loaded_pss_mb": round(loaded["pss_kb"] / 1024, 2),
            "loaded_private_mb": round(loaded["private_kb"] / 1024, 2),
            "connections_kept": kept,
            "processes": loaded["processes"],
            "threads": loaded["threads"],
        }
        if kept == held:
            # A server that closes idle connections at once or within a second or two has no cost of one to show.
            measured["connection_kb"] = round((holding["rss_kb"] - loaded["rss_kb"]) / held, 3)
        if arm.ours and case.grows:
            again = requests(more)
            measured["growth_mb"] = round((again["rss_kb"] - max(loaded["rss_kb"], holding["rss_kb"])) / 1024, 3)
        return measured

    # -- result

    def controls(self):
        """Whether the controls failed as they must; one that was not measured says so."""
        results = []
        for control in self.suite.controls:
            if self.site.interpreter not in control.interpreters:
                continue
            summary = artifacts.summary(self.rows.get((control.arm, control.case), []))
            value = summary["median"].get(control.metric) if summary else None
            held = None if value is None else value >= control.at_least
            results.append({"arm": control.arm, "case": control.case, "metric": control.metric, "at_least": control.at_least,
                            "value": value, "held": held, "why": control.why})  # fmt: skip
            if held is False:
                say(f"CONTROL BROKEN: {control.arm} {control.case} {control.metric} = {value}, must be ≥ {control.at_least}: {control.why}")
        return results

    def artifact(self):
        rows = []
        for (arm, case), rounds in self.rows.items():
            failed = self.reasons.get((arm, case))
            row = {"arm": arm, "case": case, "failed": failed, "rounds": rounds}
            row["summary"] = None if failed or not rounds else artifacts.summary(rounds)
            if (arm, case) in self.cross_checks:
                checks = self.cross_checks[(arm, case)]
                row["cross_check"] = {"rounds": checks, "median": artifacts.medians(checks)}
            rows.append(row)
        return {
            "schema": artifacts.SCHEMA,
            "suite": self.suite.name,
            "utc": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            "commit": environment.commit(),
            "interpreter": self.site.interpreter,
            "machine": {**environment.machine(), "load_before": self.load_before, "load_after": self.load_after},
            "tools": {name: environment.tool_version(name) for name in ("wrk", "h2load", "go", "rustc")},
            "distributions": self.site.versions(),
            "m0serve": self.site.m0serve_facts(),
            "settings": {
                "rounds": self.settings.rounds,
                "seconds": self.settings.seconds,
                "warmup": self.settings.warmup,
                "quick": self.settings.quick,
                "partial": bool(self.settings.only_arms or self.settings.only_cases or self.site.before),
                "took_s": round(self.took),
            },
            "cases": [vars(case) for group in self.suite.groups for case in group.cases],
            "arms": self.arms,
            "rows": rows,
            "controls": self.controls(),
            "absent": self.absent,
            "incomplete": self.incomplete,
        }


def with_before(arm):
    """The arm, and beside one of m0serve's the same flags with the binary from before a change."""
    if arm.command[0] != "m0serve":
        return [arm]
    return [arm, replace(arm, name=f"{arm.name}@before", command=("m0serve-before", *arm.command[1:]))]


class IdleConnections:
    """Keep-alive connections that made one request each and wait."""

    def __init__(self, port, path, count):
        self._address = ("127.0.0.1", port)
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self._count = count
        self._sockets = []

    def __enter__(self):
        for _ in range(self._count):
            connection = socket.create_connection(self._address, timeout=10)
            connection.sendall(self._request)
            self._sockets.append(connection)
            connection.recv(65536)
        return self

    @property
    def held(self):
        """How many are still open: the others were closed by the server."""
        count = 0
        for connection in self._sockets:
            connection.setblocking(False)
            try:
                while connection.recv(65536):  # the rest of an answer that came in pieces
                    pass
            except BlockingIOError:
                count += 1
            except OSError:
                pass
        return count

    def __exit__(self, *_):
        for connection in self._sockets:
            connection.close()


def _line(suite, measured):
    return " ".join(f"{name}={measured[name]}" for name in suite.columns if measured.get(name) is not None)


def quick(suite, settings):
    """A smoke's settings: one short round of a small part, which checks the harness and measures nothing."""
    groups = tuple(replace(group, cases=group.cases[:2]) for group in suite.groups)
    return replace(suite, groups=groups), replace(settings, rounds=1, seconds=1, warmup=1, quick=True)
