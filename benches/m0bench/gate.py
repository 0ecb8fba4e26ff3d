"""The regression gate: `ci/bench gate`. Pre-release, on a quiet machine.

Runs an arm beside a comparator that does not change with the tree, and compares the ratio of their CPU per request
with the ratio in the last artifact of the suite. A loss of more than ten per cent fails. The crate's criterion benches are
held to their last artifact in the same way, by their ratio to another project's parser.
"""

from dataclasses import replace

from . import environment, measure, parts
from .artifacts import Shelf
from .environment import say
from .suites import GATE_PAIRS, GATE_SUITE, SUITES

ALLOWED = 1.10


def ratio(artifact, arm, comparator, case, metric="cpu_us"):
    """The arm's metric by the comparator's, from one artifact; None if either has no row."""
    medians = {row["arm"]: row["summary"]["median"] for row in artifact["rows"] if row["case"] == case and row["summary"]}
    if arm not in medians or comparator not in medians:
        return None
    return medians[arm][metric] / medians[comparator][metric]


def verdict(now, last, allowed=ALLOWED):
    """"passed", "failed", or why neither can be said."""
    if now is None:
        return "not measured"
    if last is None:
        return "no record"
    return "failed" if now > last * allowed else "passed"


def main(options):
    status = 0
    for interpreter in ("3.13", "3.14t") if options.python == "both" else (options.python,):
        site = environment.Site(interpreter, options.m0serve, options.peers_only, options.venv)
        suite = SUITES[GATE_SUITE]
        names = {name for arm, comparator, _ in GATE_PAIRS for name in (arm, comparator)}
        groups = tuple(replace(group, arms=tuple(arm for arm in group.arms if arm in names)) for group in suite.groups)
        suite = replace(suite, groups=groups)
        settings = measure.Settings(options.rounds or suite.rounds, options.seconds or suite.seconds, options.warmup)
        if options.quick:
            suite, settings = measure.quick(suite, settings)
        artifact = measure.Run(suite, site, settings).run().artifact()
        record = Shelf().get(GATE_SUITE, interpreter)
        for arm, comparator, case in GATE_PAIRS:
            now = ratio(artifact, arm, comparator, case)
            last = ratio(record, arm, comparator, case) if record else None
            result = verdict(now, last)
            if options.quick and result == "failed":
                result = "failed, but a quick run measures nothing"
            numbers = " against ".join("–" if value is None else f"{value:.3f}" for value in (now, last))
            print(f"{interpreter} {arm} / {comparator}, CPU per request: {numbers} in {record['file'] if record else 'no artifact'}: {result}")
            if result == "failed":
                status = 1
            elif result in ("not measured", "no record"):
                status = max(status, 0 if options.quick else 3)
        status = max(status, _parts(site, options, interpreter))
    if status == 1:
        say(f"a loss of more than {round((ALLOWED - 1) * 100)} %: run it again on a quiet machine before believing it")
    return status


def _parts(site, options, interpreter):
    suite = SUITES["parts"]
    settings = measure.Settings(options.rounds or suite.rounds, options.seconds or suite.seconds)
    if options.quick:
        suite, settings = measure.quick(suite, settings)
    record = Shelf().get("parts", interpreter)
    if record is None:
        print(f"{interpreter} parts: no record")
        return 0 if options.quick else 3
    then, status = parts.ratios(record), 0
    for key, now in parts.ratios(parts.Run(suite, site, settings).run().artifact()).items():
        result = verdict(now, then.get(key))
        if result == "failed":
            print(f"{interpreter} {' '.join(key)}, by {parts.COMPARATOR[1]}: {now:.3f} against {then[key]:.3f} in {record['file']}: {result}")
            status = 0 if options.quick else 1
    print(f"{interpreter} parts: {'failed' if status else 'passed'}")
    return status
