"""What a run needs around it: the interpreter, one virtual environment for all Python servers, tools, and the
machine's facts for the artifact.

Every Python server of a run, m0serve included, gets the same interpreter and the same virtual environment. It lives
under ${XDG_CACHE_HOME:-~/.cache}/m0serve/bench, keyed by the interpreter and the pinned requirements, and counts as
made once it holds the file .complete.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .catalogue import FREE_THREADED, GIL

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {GIL: "py313", FREE_THREADED: "py314t"}
PACKAGES = {"wrk": "wrk", "h2load": "nghttp2-client", "go": "golang-go"}
# What peers are compiled against on this interpreter: Debian package -> a file that it brings.
HEADERS = {GIL: {"libev-dev": "/usr/include/ev.h"}, FREE_THREADED: {}}
# Peers whose distribution and arm have different names.
DISTRIBUTIONS = {"uwsgi": "uWSGI"}


class Missing(Exception):
    """Something that a run can't do without, and what would bring it."""


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "m0serve" / "bench"


def alone():
    """Keeps the machine to this run until the process ends: two at once measure each other."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / "running.lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Missing("another ci/bench or ci/probe is running; wait for its end, or end it") from None
    _held.append(lock)


_held = []


def run(command, **more):
    """Runs a preparing command; its output goes to stderr, and a failure names the command."""
    result = subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, **more)
    if result.returncode != 0:
        raise Missing(f"{' '.join(map(str, command[:4]))} … ended with status {result.returncode}")


def install(packages):
    """Debian packages: installed when we may, asked for when we may not."""
    if not packages:
        return
    command = f"apt-get install -y --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Missing(f"missing: {', '.join(packages)}. Install: sudo {command}")
    say(f"installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(command.split(), env=environment)
    except Missing:
        run(["apt-get", "update"], env=environment)
        run(command.split(), env=environment)


def tool(name):
    """The path of a load generator or compiler, installed if need be."""
    if not shutil.which(name):
        install([PACKAGES[name]])
    path = shutil.which(name)
    if not path:
        raise Missing(f"{name} is still missing after installing {PACKAGES[name]}")
    return path


def tool_version(name):
    """The version line of a tool that is there, else None."""
    if not shutil.which(name):
        return None
    arguments = {"wrk": ["-v"], "go": ["version"]}.get(name, ["--version"])
    done = subprocess.run([name, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return " ".join(lines[0].split()[:4]).removesuffix(" Copyright") if lines else None


class Site:
    """Everything that a run on one interpreter stands on."""

    def __init__(self, interpreter, m0serve=None, peers_only=False, venv=None, before=None):
        self.root = ROOT
        self.interpreter = interpreter
        self.m0serve = Path(m0serve).resolve() if m0serve else None
        self.m0serve_why = None
        self.before = Path(before).resolve() if before else None
        self.python = None
        self._find_python(peers_only)
        self.venv = Path(venv).resolve() if venv else self._environment()
        self._built = {}

    # -- interpreter and m0serve

    def _find_python(self, peers_only):
        script = self.root / "scripts" / SCRIPTS[self.interpreter]
        if script.exists() and not peers_only and not self.m0serve:
            say(f"{SCRIPTS[self.interpreter]}: interpreter and release build")
            done = subprocess.run([str(script)], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                raise Missing(f"scripts/{SCRIPTS[self.interpreter]} ended with status {done.returncode}")
            values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
            self.python = Path(values["PYTHON"])
            self.m0serve = Path(values["M0SERVE"])
            return
        if not self.m0serve:
            self.m0serve_why = "left out (--peers-only)" if peers_only else f"scripts/{SCRIPTS[self.interpreter]} is not there"
        # The interpreter that the scripts would take, without building m0serve for it.
        shell = '. scripts/lib/interpreter.sh; m0_select "$1"; m0_interpreter; printf "%s\\n" "$m0_python"'
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", shell, "bash", self.interpreter],
            cwd=self.root, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0 or not done.stdout.strip():
            raise Missing(f"no CPython {self.interpreter}")
        self.python = Path(done.stdout.strip())

    # -- virtual environment

    def requirement_files(self):
        wanted = [self.root / "apps" / "requirements.txt", self.root / "benches" / "peers" / f"requirements-{self.interpreter}.txt"]
        return [path for path in wanted if path.exists()]

    def _environment(self):
        key = hashlib.sha256(str(self.python).encode())
        for path in self.requirement_files():
            key.update(path.read_bytes())
        venv = cache() / f"venv-{self.interpreter}-{key.hexdigest()[:12]}"
        if (venv / ".complete").exists():
            return venv
        install([package for package, header in HEADERS[self.interpreter].items() if not os.path.exists(header)])
        shutil.rmtree(venv, ignore_errors=True)
        venv.parent.mkdir(parents=True, exist_ok=True)
        say(f"making the peers' environment for {self.interpreter} (some minutes the first time)")
        run([self.python, "-m", "venv", venv])
        arguments = [argument for path in self.requirement_files() for argument in ("-r", path)]
        run([venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *arguments])
        (venv / ".complete").touch()
        return venv

    # -- programs

    def program(self, name):
        """The path of an arm's program; Missing when there is none."""
        if name == "m0serve":
            if not self.m0serve or not self.m0serve.exists():
                raise Missing(f"m0serve: {self.m0serve_why or 'not built'}")
            return str(self.m0serve)
        if name == "m0serve-before":
            if not self.before.exists():
                raise Missing("the binary named by --before is not there")
            return str(self.before)
        if name in ("epoll-floor", "ws-load", "hello", "go-hello"):
            if name not in self._built:
                self._built[name] = self._build(name)
            return str(self._built[name])
        path = self.venv / "bin" / name
        if not path.exists():
            raise Missing(f"{name} is not in the peers' environment")
        return str(path)

    def _build(self, name):
        target = self.root / "target" / "bench"
        if name == "go-hello":
            target.mkdir(parents=True, exist_ok=True)
            # GOFLAGS: the source has no dependency, so nothing may be fetched.
            run([tool("go"), "build", "-o", target / name, "."], cwd=self.root / "benches" / "peers" / "go",
                env={**os.environ, "GOFLAGS": "-mod=readonly"})  # fmt: skip
            return target / name
        if name == "hello":
            if not (self.root / "apps/hello/main.rs").exists():
                raise Missing("apps/hello is not there")
            command = ["cargo", "build", "--quiet", "--release", "--locked", "--no-default-features", "--example", "hello"]
            run([*command, "--target-dir", target], cwd=self.root)
            return target / "release" / "examples" / name
        folder = {"epoll-floor": "benches/floor", "ws-load": "benches/ws_load"}[name]
        manifest = self.root / folder / "Cargo.toml"
        if not manifest.exists():
            raise Missing(f"{folder} is not there")
        run(["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", manifest, "--target-dir", target])
        return target / "release" / name

    def server_environment(self, app_dir, home="/nonexistent"):
        """A clean environment: the same for each server, with nothing of the person's own shell that could matter."""
        keep = {name: os.environ[name] for name in ("TMPDIR", "TZ") if name in os.environ}
        return {
            **keep,
            "HOME": str(home),
            "PATH": f"{self.venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "VIRTUAL_ENV": str(self.venv),
            "PYTHONPATH": str(app_dir),
            "PYTHONWARNINGS": "ignore",
            "LANG": "C.UTF-8",
        }

    def strip_paths(self, text):
        """Takes this machine's folders out of a text that goes into an artifact."""
        for path, name in (
            (self.venv, "VENV"),
            (self.root, "."),
            (self.python.parents[1] if self.python else None, "PYTHON"),
            (Path.home(), "HOME"),
        ):
            if path and str(path) != "/":
                text = text.replace(str(path), name)
        return re.sub(r"/tmp/[\w.-]+", "TMP", text)

    # -- facts for the artifact

    def versions(self):
        """Version of every distribution in the servers' environment."""
        done = subprocess.run(
            [self.venv / "bin" / "pip", "list", "--format", "json", "--disable-pip-version-check"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return {item["name"]: item["version"] for item in json.loads(done.stdout)}

    def m0serve_facts(self):
        if not self.m0serve or not self.m0serve.exists():
            return None
        done = subprocess.run([self.m0serve, "--version"], capture_output=True, text=True, env=self.server_environment(self.root))
        return {
            "version": self.strip_paths(done.stdout.strip().splitlines()[0]) if done.stdout.strip() else None,
            "sha256": hashlib.sha256(self.m0serve.read_bytes()).hexdigest(),
            "bytes": self.m0serve.stat().st_size,
        }


def _read(path, otherwise=None):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return otherwise


def machine():
    cpuinfo = _read("/proc/cpuinfo", "")
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.M)
    total = re.search(r"^MemTotal:\s*(\d+)", _read("/proc/meminfo", "MemTotal: 0"), re.M)
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in cpuinfo,
        "memory_mb": int(total.group(1)) // 1024,
        "kernel": f"{platform.system()} {platform.release()}",
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "not shown by this machine"),
        "transparent_hugepages": _read("/sys/kernel/mm/transparent_hugepage/enabled", "unknown"),
        "tcp_tw_reuse": _read("/proc/sys/net/ipv4/tcp_tw_reuse"),
    }


def load_average():
    return [round(value, 2) for value in os.getloadavg()]


def commit():
    """The tree's commit, and whether anything that is measured differs from it."""

    def git(*arguments):
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    changed = git("status", "--porcelain", "--", ".", ":!benches/results", ":!docs", ":!README.md")
    return {"sha": git("rev-parse", "HEAD"), "dirty": bool(changed) if changed is not None else None}
