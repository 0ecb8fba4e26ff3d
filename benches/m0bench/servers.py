"""One server from start to stop: its command line, its readiness, its process tree, what it logged."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from . import proc


class StartFailure(Exception):
    """The server did not come up; the text is its own last words."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def expand(template, values):
    """Fills the braces of a command. Only known names: a body may hold braces of its own."""
    out = []
    for part in template:
        for name, value in values.items():
            part = part.replace("{" + name + "}", str(value))
        out.append(part)
    return out


def fetch(port, path="/", method="GET", body=None, timeout=10.0, headers=None):
    """(status, body, header list) of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read(), response.getheaders()
    finally:
        connection.close()


class Server:
    """A running arm: one process tree, or several copies of it. Use it as a context."""

    def __init__(self, arm, app, site, body="", extra_env=None, target=None, app_dir=None):
        self.arm = arm
        self.app = app
        self.site = site
        self.ports = []
        self._processes = []
        self._logs = []
        self._work = tempfile.mkdtemp(prefix="m0bench-")
        self._values = {
            "app_dir": app_dir or site.root / app.directory,
            "target": target or app.target,
            "body": body,
            "peers": site.root / "benches" / "peers",
            "venv": site.venv,
        }
        self._env = {**site.server_environment(self._values["app_dir"], self._work), **arm.env, **(extra_env or {})}

    def __enter__(self):
        try:
            for _ in range(self.arm.processes):
                self._start_one()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def port(self):
        return self.ports[0]

    @property
    def pids(self):
        return [process.pid for process in self._processes]

    def _start_one(self):
        port = free_port()
        command = expand(self.arm.command, {**self._values, "port": port})
        command[0] = self.site.program(command[0])
        log = open(os.path.join(self._work, f"log-{len(self._processes)}"), "w+b")
        process = subprocess.Popen(
            command,
            cwd=self._values["app_dir"] if os.path.isdir(self._values["app_dir"]) else self._work,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self._processes.append(process)
        self._logs.append(log)
        self.ports.append(port)
        self._wait_ready(process, port)

    def _wait_ready(self, process, port, patience=30.0):
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise StartFailure(f"exit {process.returncode}: {self.last_words()}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
                return
            except OSError:
                time.sleep(0.02)
        raise StartFailure(f"no answer on its port within {patience:.0f} s: {self.last_words()}")

    def log_text(self):
        texts = []
        for log in self._logs:
            log.flush()
            texts.append(Path(log.name).read_text(errors="replace"))
        return "\n".join(texts)

    def last_words(self):
        """The line that says what went wrong if there is one, else the last."""
        lines = [line for line in self.log_text().splitlines() if line.strip()]
        said = [line for line in lines if "error" in line.lower()] or lines[-1:]
        return self.site.strip_paths(said[0])[:300] if said else "(nothing logged)"

    def alive(self):
        return all(process.poll() is None for process in self._processes)

    def complaints(self):
        """Signs in the log that a worker died or was replaced in the run: its rows then measured something else."""
        signs = ("respawn", "traceback (most recent call last)", "panicked at", "segmentation fault", "worker exiting unexpectedly")
        return [self.site.strip_paths(line)[:200] for line in self.log_text().splitlines() if any(sign in line.lower() for sign in signs)][:3]

    def cpu_seconds(self):
        return proc.cpu_seconds(self.pids)

    def memory(self):
        return proc.memory(self.pids)

    def settled_memory(self, patience=10.0):
        """Memory once it stands still: workers come up one after another, and allocators give back late."""
        last, deadline = self.memory(), time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(0.5)
            now = self.memory()
            if now["processes"] == last["processes"] and abs(now["rss_kb"] - last["rss_kb"]) <= last["rss_kb"] // 500:
                return now
            last = now
        return last

    def stop(self):
        """Ends the process trees: politely, then not. Only what this object started."""
        trees = {pid: proc.tree(pid) for pid in self.pids}
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # Workers that outlived their parent are still in the session that we made for them.
            for pid in trees[process.pid]:
                if pid != process.pid and process.pid == _session(pid):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        for log in self._logs:
            log.close()
        self._processes = []
        shutil.rmtree(self._work, ignore_errors=True)


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
