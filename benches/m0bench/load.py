"""Load generators: wrk for every row, h2load as the second opinion, ws-load for WebSockets, and a process that keeps
slow requests in flight. Each runs as a process of its own whose CPU time is read when it ends.

wrk 4 corrects its percentiles for coordinated omission from the connection's mean interval; h2load does not. Expect
h2load's p99 to be at or below wrk's.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import environment

HERE = Path(__file__).resolve().parent
# wrk counts an answer that takes longer as a time-out. Controls take seconds: they are slow, not failed.
TIMEOUT = 30

_BROWSER = (
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"),
    ("Accept-Language", "en-US,en;q=0.9"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Cache-Control", "max-age=0"),
    ("Upgrade-Insecure-Requests", "1"),
    ("Sec-Fetch-Site", "same-origin"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-User", "?1"),
    ("Sec-Fetch-Dest", "document"),
    ("Referer", "http://127.0.0.1/"),
)


class LoadFailure(Exception):
    """The load generator itself failed: no row can be made of this."""


def request_fields(count):
    """`count` header fields, Host not among them but counted: a browser's first, then x-extra-N."""
    fields = list(_BROWSER[: max(0, count - 1)])
    fields += [(f"x-extra-{n}", "0123456789abcdef0123456789abcdef") for n in range(count - 1 - len(fields))]
    return fields


class _Timed:
    """What a load generator printed, how long it ran and what CPU it used."""

    def __init__(self, command, environment_more=None):
        begun = time.monotonic()
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment_more or {})},
            )  # fmt: skip
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                process.wait()
                raise
            process.returncode = os.waitstatus_to_exitcode(status)
            self.wall = time.monotonic() - begun
            self.cpu = usage.ru_utime + usage.ru_stime
            out.seek(0)
            self.text = out.read()
        if process.returncode != 0:
            raise LoadFailure(f"{Path(command[0]).name} ended with status {process.returncode}: {self.text.strip()[-200:]}")


def parse_report(text):
    """The dictionary that report.lua or ws-load printed."""
    for line in text.splitlines():
        if line.startswith("M0BENCH "):
            return json.loads(line[8:])
    raise LoadFailure(f"no report in: {text.strip()[-200:]}")


def result(report, wall, cpu):
    """A load's part of a row. `seconds` is the generator's own clock: its start and its end are left out."""
    seconds = report["duration_us"] / 1e6
    return {
        "requests": report["requests"],
        "seconds": round(seconds, 4),
        "rps": round(report["requests"] / seconds, 1) if seconds else 0.0,
        **{f"{name}_ms": round(report[f"{name}_us"] / 1000, 3) for name in ("p50", "p90", "p99", "p999", "max")},
        "errors": {name: report[name] for name in ("connect", "read", "write", "status", "timeout")},
        "load_cores": round(cpu / wall, 3) if wall else 0.0,
    }


def wrk(port, case, seconds):
    command = [environment.tool("wrk"), "-t", "1", "-c", str(case.connections), "-d", f"{max(1, round(seconds))}s"]
    command += ["--timeout", f"{TIMEOUT}s", "-s", str(HERE / "report.lua")]
    for name, value in request_fields(case.fields):
        command += ["-H", f"{name}: {value}"]
    if case.close:
        command += ["-H", "Connection: close"]
    command.append(f"http://127.0.0.1:{port}{case.path}")
    timed = _Timed(command, {"M0_BENCH_METHOD": case.method, "M0_BENCH_SEND": str(case.send)})
    return result(parse_report(timed.text), timed.wall, timed.cpu)


def request_body(size):
    """The body that report.lua sends."""
    return (b"0123456789abcdef" * -(-size // 16))[:size]


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def parse_h2load_log(lines):
    """h2load's log: start (µs), status, duration (µs). Returns durations in order of length, and the failures."""
    durations, failures = [], 0
    for line in lines:
        fields = line.split()
        if len(fields) == 3:
            durations.append(int(fields[2]))
            failures += not fields[1].startswith("2")
    return sorted(durations), failures


def h2load(port, case, seconds=None, requests=None):
    """The second opinion on a row, or an exact number of requests (the memory suite)."""
    with tempfile.TemporaryDirectory(prefix="m0bench-") as folder:
        log = Path(folder) / "log"
        command = [environment.tool("h2load"), "--h1", "-t", "1", "-c", str(case.connections)]
        command += ["-n", str(requests)] if requests else ["-D", str(max(1, round(seconds)))]
        if not requests:
            command += ["--log-file", str(log)]
        for name, value in request_fields(case.fields):
            command += ["-H", f"{name}: {value}"]
        timed = _Timed([*command, f"http://127.0.0.1:{port}{case.path}"])
        if requests:
            done, failed = parse_h2load_counts(timed.text)
            return {"requests": done, "failed": failed, "seconds": round(timed.wall, 3)}
        with open(log) as lines:
            durations, failed = parse_h2load_log(lines)
        if not durations:
            raise LoadFailure(f"h2load made no request: {timed.text.strip()[-200:]}")
        return {
            "tool": "h2load",
            "requests": len(durations),
            "rps": round(len(durations) / max(1, round(seconds)), 1),
            "p50_ms": round(percentile(durations, 0.50) / 1000, 3),
            "p99_ms": round(percentile(durations, 0.99) / 1000, 3),
            "max_ms": round(durations[-1] / 1000, 3),
            "failed": failed,
        }


def parse_h2load_counts(text):
    """(succeeded, failed) from h2load's line `requests: N total, … succeeded, N failed, …`."""
    for line in text.splitlines():
        if line.startswith("requests:"):
            counts = {word: int(number) for number, word in (part.split()[:2] for part in line[9:].split(","))}
            return counts["succeeded"], counts["failed"] + counts.get("errored", 0) + counts.get("timeout", 0)
    raise LoadFailure(f"no count in: {text.strip()[-200:]}")


def ws_load(site, port, case, seconds):
    command = [site.program("ws-load"), "--connect", f"127.0.0.1:{port}", "--connections", str(case.connections)]
    command += ["--seconds", str(seconds), "--size", str(case.send)]
    timed = _Timed(command)
    return result(parse_report(timed.text), timed.wall, timed.cpu)


class SlowRequests:
    """Keeps `count` requests to a slow path in flight from another process, each on its own connection."""

    def __init__(self, port, path, count):
        self._process = None
        self._count = count
        self.finished = 0
        if count:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "slow_requests.py"), str(port), path, str(count)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip

    def __enter__(self):
        if self._process:
            # It says so once every connection's first request was sent.
            if self._process.stdout.readline().strip() != "in flight":
                raise LoadFailure("the slow requests did not start")
        return self

    def __exit__(self, *_):
        if not self._process:
            return
        try:
            out, _ = self._process.communicate("", timeout=60)
            report = json.loads(out.strip().splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            self._process.kill()
            raise LoadFailure(f"the slow requests did not end: {error!r}") from error
        self.finished = report["finished"]
        if report["failed"]:
            raise LoadFailure(f"{report['failed']} slow requests failed: {report['why']}")
        if self.finished < self._count:
            raise LoadFailure(f"only {self.finished} of at least {self._count} slow requests were answered")
