"""The suite `parts`: the criterion benches of the crate (`[[bench]]` in Cargo.toml), run several times and recorded like
any other suite, so that they have a baseline and a place on the pages.

A bench of the name `parser` needs no Python and is built without it; all others are built for the run's interpreter, with
the crate's feature `bench`.
"""

import json
import os
import re
import shutil
import time

from . import artifacts, environment
from .environment import run, say

# What the ratio of a part is taken to: a foreign parser on the same bytes, which does not change with the tree.
COMPARATOR = ("parser", "request/httparse_alone")
WITHOUT_PYTHON = ("parser",)


def benches(cargo_toml):
    """The names of the crate's criterion benches."""
    return re.findall(r'^\[\[bench\]\]\s*\nname = "([\w-]+)"', cargo_toml, re.M)


def estimates(folder):
    """{"group/name": nanoseconds (median)} of criterion's last run."""
    found = {}
    for path in sorted(folder.glob("**/new/estimates.json")):
        found[path.parent.parent.relative_to(folder).as_posix()] = json.loads(path.read_text())["median"]["point_estimate"]
    return found


class Run:
    """As measure.Run, for criterion benches."""

    def __init__(self, suite, site, settings):
        self.suite = suite
        self.site = site
        self.settings = settings
        self.rows = {}
        self.absent = {}

    def run(self):
        begun = time.time()
        self.load_before = environment.load_average()
        names = benches((self.site.root / "Cargo.toml").read_text())
        names = [name for name in names if not self.settings.only_arms or name in self.settings.only_arms]
        for number in range(self.settings.rounds):
            for name in names:
                for part, nanoseconds in self._one(name).items():
                    self.rows.setdefault((name, part), []).append({"ns": round(nanoseconds, 3)})
                say(f"parts {self.site.interpreter} round {number + 1}/{self.settings.rounds} {name}")
        self.load_after = environment.load_average()
        self.took = time.time() - begun
        return self

    def _one(self, name):
        target = self.site.root / "target" / "bench" / ("parts" if name in WITHOUT_PYTHON else f"parts-{self.site.interpreter}")
        home = target / "criterion"
        shutil.rmtree(home, ignore_errors=True)
        env = {**os.environ, "CRITERION_HOME": str(home)}
        seconds = 0.5 if self.settings.quick else max(1.0, self.settings.seconds / 2)
        arguments = ["--bench", name, "--", "--warm-up-time", "0.5", "--measurement-time", str(seconds)]
        if name in WITHOUT_PYTHON:
            command = ["cargo", "bench", "--quiet", "--locked", "--no-default-features", "--target-dir", target, *arguments]
            run(command, cwd=self.site.root, env=env)
        else:
            # The scripts' own way to call cargo: the interpreter that the crate is linked with comes from there.
            shell = '. scripts/lib/interpreter.sh; m0_select "$1"; m0_interpreter; m0_venv; m0_target=$2; shift 2; PATH=$m0_venv/bin:$PATH; m0_cargo "$@"'
            command = ["bash", "-euo", "pipefail", "-c", shell, "bash", self.site.interpreter, target]
            run([*command, "bench", "--quiet", "--locked", "--features", "bench", *arguments], cwd=self.site.root, env=env)
        found = estimates(home)
        if not found:
            raise environment.Missing(f"cargo bench --bench {name} left no estimates")
        return found

    def artifact(self):
        flags = {name: ["--no-default-features"] if name in WITHOUT_PYTHON else ["--features", "bench"] for name, _ in self.rows}
        commands = {name: ["cargo", "bench", *arguments, "--bench", name] for name, arguments in flags.items()}
        return {
            "schema": artifacts.SCHEMA,
            "suite": self.suite.name,
            "utc": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            "commit": environment.commit(),
            "interpreter": self.site.interpreter,
            "machine": {**environment.machine(), "load_before": self.load_before, "load_after": self.load_after},
            "tools": {name: environment.tool_version(name) for name in ("rustc",)},
            "distributions": {},
            "m0serve": None,
            "settings": {
                "rounds": self.settings.rounds,
                "seconds": self.settings.seconds,
                "warmup": 0.5,
                "quick": self.settings.quick,
                "partial": bool(self.settings.only_arms),
                "took_s": round(self.took),
            },
            "cases": [],
            "arms": {
                name: {"server": "criterion", "serves": "nothing", "command": command, "env": {}, "processes": 1,
                       "keep_alive": True, "ours": True, "seen": {}}
                for name, command in commands.items()
            },
            "rows": [
                {"arm": name, "case": part, "failed": None, "rounds": rounds, "summary": artifacts.summary(rounds)}
                for (name, part), rounds in self.rows.items()
            ],
            "controls": [],
            "absent": self.absent,
            "incomplete": [],
        }  # fmt: skip


def ratios(artifact):
    """{(bench, part): its time by the comparator's} of an artifact; empty without the comparator."""
    medians = {(row["arm"], row["case"]): row["summary"]["median"]["ns"] for row in artifact["rows"] if row["summary"]}
    base = medians.get(COMPARATOR)
    return {key: value / base for key, value in medians.items() if key != COMPARATOR} if base else {}
