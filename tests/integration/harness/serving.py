"""m0serve as a child process: started, awaited by its own start-up line, ended by a signal to its pid."""

import os
import re
import resource
import signal
import subprocess
import threading
from pathlib import Path

from . import wire

APPS = Path(__file__).resolve().parent.parent / "apps"
REPOSITORY = Path(__file__).resolve().parents[3]
START = 30.0
"""Seconds a start may take on a loaded machine before it counts as hung."""

_SWITCHES = {"M0_POOL_TURN", "M0_BATON", "M0_LOOP_ATTACHED"}


def executable():
    return os.environ.get("M0SERVE", "m0serve")


def environment(**changes):
    """The caller's environment without settings of the server; a change to None removes a name."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("M0_") or k in _SWITCHES}
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


class _Lines:
    """Collects one output stream line by line; a thread reads it so that the child never blocks."""

    def __init__(self, stream):
        self.lines = []
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._pump, args=(stream,), daemon=True)
        self._thread.start()

    def _pump(self, stream):
        for raw in stream:
            with self._changed:
                self.lines.append(raw.decode("utf-8", "backslashreplace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, pattern, after=0, timeout=START):
        """The first match at or after line `after`, or None where the stream ended without one."""
        found = None

        def look():
            nonlocal found
            for line in self.lines[after:]:
                if found := re.search(pattern, line):
                    return True
            return self._ended

        with self._changed:
            assert self._changed.wait_for(look, timeout), (
                f"nothing matched {pattern!r} within {timeout} s:\n" + "\n".join(self.lines)
            )
        return found

    def finish(self):
        self._thread.join(START)
        assert not self._thread.is_alive(), "a child of the server still holds its output"

    def text(self):
        with self._changed:
            return "\n".join(self.lines)


class Server:
    """One m0serve process."""

    def __init__(self, *args, bind=("127.0.0.1:0",), app_dir=APPS, env=None, cwd=None, descriptors=None, pass_fds=()):
        self.args = [executable()]
        if app_dir is not None:
            self.args += ["--app-dir", str(app_dir)]
        for address in bind:
            self.args += ["--bind", address]
        self.args += map(str, args)
        limit = None
        if descriptors is not None:
            # The hard limit too: the server raises the soft one as far as it may.
            limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))  # noqa: E731
        self.process = subprocess.Popen(
            self.args,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env if env is not None else environment(),
            cwd=cwd,
            preexec_fn=limit,
            pass_fds=pass_fds,
            start_new_session=True,  # a Ctrl-C at the terminal is for pytest alone
        )
        self.pid = self.process.pid
        self.stderr = _Lines(self.process.stderr)
        self.stdout = _Lines(self.process.stdout)
        self.addresses = []

    def wait_until_listening(self):
        match = self.stderr.wait_for(r"listening on (\S+(?: and \S+)*)")
        if match is None:
            code = self.process.wait(START)
            raise AssertionError(f"{self.args} ended with {code} before listening:\n{self.stderr.text()}")
        self.addresses = match[1].split(" and ")
        return self

    @property
    def address(self):
        return self.addresses[0]

    @property
    def url(self):
        return self.address.rstrip("/")

    def connect(self, index=0, **options):
        return wire.connect(self.addresses[index], **options)

    def fetch(self, request, method="GET"):
        """One request on its own connection."""
        with self.connect() as connection:
            return connection.exchange(request, method)

    def is_running(self):
        return self.process.poll() is None

    def send_signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=60.0):
        code = self.process.wait(timeout)
        self.stderr.finish()
        self.stdout.finish()
        return code

    def stop(self, number=signal.SIGTERM, timeout=60.0):
        """Ask the server to end and return its exit code (negative: a signal killed it)."""
        if self.is_running():
            self.send_signal(number)
        return self.wait(timeout)

    def kill(self):
        if self.is_running():
            self.process.kill()
        self.process.wait()

    def assert_sound(self):
        """It runs, and no Rust thread of it has panicked."""
        assert self.is_running(), f"the server died with {self.process.returncode}:\n{self.stderr.text()}"
        assert "panicked at" not in self.stderr.text(), self.stderr.text()


def run(*args, env=None, cwd=None, app_dir=APPS):
    """Run m0serve to its end, for starts that fail: (exit code, stdout, stderr)."""
    command = [executable(), *(["--app-dir", str(app_dir)] if app_dir is not None else []), *map(str, args)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        env=env if env is not None else environment(),
        cwd=cwd,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr
