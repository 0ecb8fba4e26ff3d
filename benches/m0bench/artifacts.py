"""The artifacts: one JSON file for each run of a suite on one interpreter. benches/results/README.md is the schema's
description; `problems()` is its check. Files are only ever added.
"""

import json
import re
import statistics
from pathlib import Path

from .environment import ROOT

SCHEMA = 1
RESULTS = ROOT / "benches" / "results"
_NAME = re.compile(r"^(?P<suite>[a-z0-9-]+)-(?P<interpreter>3\.\d+t?)-(?P<utc>\d{8}T\d{6}Z)\.json$")
_TOP = {
    "schema": int, "suite": str, "utc": str, "commit": dict, "interpreter": str, "machine": dict, "tools": dict,
    "distributions": dict, "settings": dict, "cases": list, "arms": dict, "rows": list, "controls": list,
    "absent": dict, "incomplete": list,
}  # fmt: skip
_ROW = {"arm": str, "case": str, "rounds": list}
# An absolute path under one of these names a person's or a machine's own folder.
_PATH = re.compile(r"(?<![\w.])/(?:root|home|work|tmp|Users|opt|var|mnt|srv|usr/local)/[\w.-]+")


def numbers(record):
    return {name: value for name, value in record.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}


def summary(rounds):
    """{"median": …, "min": …, "max": …} of each number over the rounds, each by itself. None without rounds."""
    if not rounds:
        return None
    names = [name for name in numbers(rounds[0]) if all(name in numbers(r) for r in rounds)]
    columns = {name: [r[name] for r in rounds] for name in names}
    return {
        "median": {name: round(statistics.median(values), 4) for name, values in columns.items()},
        "min": {name: min(values) for name, values in columns.items()},
        "max": {name: max(values) for name, values in columns.items()},
    }


def medians(rounds):
    return summary(rounds)["median"] if rounds else {}


def file_name(artifact):
    return f"{artifact['suite']}-{artifact['interpreter']}-{artifact['utc']}.json"


def write(artifact, folder=RESULTS):
    faults = problems(artifact)
    if faults:
        raise ValueError("the artifact breaks its own schema: " + "; ".join(faults))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(artifact)
    path.write_text(json.dumps(artifact, indent=1, ensure_ascii=False, sort_keys=False) + "\n")
    return path


def read(path):
    return json.loads(Path(path).read_text())


def problems(artifact):
    """Everything that is wrong with an artifact's shape; empty when nothing is."""
    faults = [f"{name}: {kind.__name__} is missing" for name, kind in _TOP.items() if not isinstance(artifact.get(name), kind)]
    if faults:
        return faults
    if artifact["schema"] != SCHEMA:
        faults.append(f"schema {artifact['schema']}, this harness knows {SCHEMA}")
    if not _NAME.match(file_name(artifact)):
        faults.append(f"no artifact's name: {file_name(artifact)}")
    seen = set()
    for row in artifact["rows"]:
        where = f"row {row.get('arm')} {row.get('case')}"
        faults += [f"{where}: {name} is missing" for name, kind in _ROW.items() if not isinstance(row.get(name), kind)]
        if (row.get("arm"), row.get("case")) in seen:
            faults.append(f"{where} is there twice")
        seen.add((row.get("arm"), row.get("case")))
        if row.get("arm") not in artifact["arms"]:
            faults.append(f"{where}: the arm is not described")
        if not row.get("failed"):
            if not row.get("summary"):
                faults.append(f"{where} has neither a summary nor a reason why it failed")
            if len(row.get("rounds", [])) != artifact["settings"].get("rounds"):
                faults.append(f"{where}: {len(row.get('rounds', []))} rounds of {artifact['settings'].get('rounds')}")
            elif row.get("summary") != summary(row["rounds"]):
                faults.append(f"{where}: the summary is not that of its rounds")
        elif row.get("summary"):
            faults.append(f"{where} failed and has a summary all the same")
    faults += [f"holds a path of a machine: {path}" for path in sorted(set(_PATH.findall(json.dumps(artifact, ensure_ascii=False))))]
    return faults


def publishable(artifact):
    """Why pages must not show this artifact; empty when they may."""
    settings = artifact["settings"]
    faults = []
    if settings.get("quick"):
        faults.append("a quick run measures nothing")
    if settings.get("partial"):
        faults.append("only a part of the suite was run")
    if settings.get("rounds", 0) < 3:
        faults.append("fewer than three rounds")
    faults += [
        f"control {c['arm']} {c['case']}: {c['metric']} = {c['value']}, must be ≥ {c['at_least']}"
        for c in artifact["controls"]
        if c["held"] is False
    ]
    return faults


def stored(folder=RESULTS):
    """{(suite, interpreter): [paths, oldest first]} of what lies in the folder."""
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        match = _NAME.match(path.name)
        if match:
            found.setdefault((match["suite"], match["interpreter"]), []).append(path)
    return found


class Shelf:
    """The newest publishable artifact of each suite and interpreter, read once."""

    def __init__(self, folder=RESULTS):
        self.folder = Path(folder)
        self._newest = {}
        for key, paths in stored(folder).items():
            for path in reversed(paths):
                artifact = read(path)
                if not publishable(artifact):
                    artifact["file"] = path.name
                    self._newest[key] = artifact
                    break

    def get(self, suite, interpreter):
        return self._newest.get((suite, interpreter))

    def __iter__(self):
        return iter(self._newest)

    def row(self, suite, interpreter, arm, case):
        artifact = self.get(suite, interpreter)
        for row in artifact["rows"] if artifact else ():
            if row["arm"] == arm and row["case"] == case:
                return row
        return None
