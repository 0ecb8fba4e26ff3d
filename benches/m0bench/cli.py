"""The command lines of ci/bench and ci/probe.

Exit status: 0 done; 1 a row, a check or a probe failed; 2 wrong usage; 3 something that should have been measured was
not there.
"""

import argparse
import sys
import tempfile

from . import artifacts, environment, measure, parts
from .catalogue import ARMS, INTERPRETERS
from .environment import Missing, say
from .suites import SUITES, expected_seconds


def main(program, arguments):
    try:
        return {"bench": _bench, "probe": _probe}[program](arguments)
    except Missing as error:
        say(f"error: {error}")
        return 3
    except KeyboardInterrupt:
        say("interrupted; nothing was written")
        return 130


def _interpreters(text):
    return INTERPRETERS if text == "both" else (text,)


def _common(parser):
    parser.add_argument("--python", default="both", choices=(*INTERPRETERS, "both"), help="the servers' interpreter (default: both)")
    parser.add_argument("--m0serve", metavar="PATH", help="measure this m0serve instead of building one (needs --python)")
    parser.add_argument("--venv", metavar="DIR", help="use this virtual environment: peers that are not in it are left out")
    parser.add_argument("--peers-only", action="store_true", help="leave m0serve out and don't build it")
    parser.add_argument("--quick", action="store_true", help="a smoke of the harness: short, measures nothing, no artifact")


def _bench(arguments):
    from . import bars, gate, pages

    commands = {"render": pages.render, "check": pages.check, "bars": bars.main, "list": _list}
    if arguments and arguments[0] in commands:
        if arguments[1:]:
            say(f"{arguments[0]} takes no arguments")
            return 2
        return commands[arguments[0]]()
    parser = argparse.ArgumentParser(
        prog="ci/bench",
        description="Benchmarks m0serve beside its peers.",
        epilog="Also: ci/bench list (suites and arms), render (pages from artifacts), check (are they up to date?), "
        "bars (the issues' figures against the newest artifacts), gate (regression gate).",
    )
    parser.add_argument("suites", nargs="+", metavar="SUITE", help=f"{', '.join(SUITES)}, all, or gate")
    _common(parser)
    parser.add_argument("--before", metavar="PATH", help="run each arm of m0serve a second time with this binary, as NAME@before: a change against what was there")
    parser.add_argument("--rounds", type=int, help="rounds of each suite (default: the suite's own, 3 or 5)")
    parser.add_argument("--seconds", type=float, help="seconds of load for each row (default: the suite's own)")
    parser.add_argument("--warmup", type=float, default=1.5, help="seconds of load before a row (default: 1.5)")
    parser.add_argument("--arm", action="append", default=[], metavar="NAME", help="only this arm; repeat it for more (the artifact is marked partial)")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; repeat it for more")
    parser.add_argument("--out", metavar="DIR", help="write artifacts here instead of benches/results")
    options = parser.parse_args(arguments)
    if (options.m0serve or options.before) and options.python == "both":
        parser.error("--m0serve and --before name builds for one interpreter: say which with --python")
    if unknown := [name for name in options.suites if name not in SUITES and name not in ("all", "gate")]:
        parser.error(f"no such suite: {', '.join(unknown)}")
    if unknown := [name for name in options.arm if name not in ARMS and options.suites != ["parts"]]:
        parser.error(f"no such arm: {', '.join(unknown)}")
    if not options.quick:
        environment.alone()
    if options.suites == ["gate"]:
        return gate.main(options)
    if "gate" in options.suites:
        parser.error("gate runs alone")
    names = list(SUITES) if "all" in options.suites else list(dict.fromkeys(options.suites))
    status = 0
    for interpreter in _interpreters(options.python):
        site = environment.Site(interpreter, options.m0serve, options.peers_only, options.venv, getattr(options, "before", None))
        for name in names:
            if interpreter in SUITES[name].interpreters:
                status = max(status, _suite(SUITES[name], site, options))
    return status


def _suite(suite, site, options):
    settings = measure.Settings(
        rounds=options.rounds or suite.rounds,
        seconds=options.seconds or suite.seconds,
        warmup=options.warmup,
        only_arms=tuple(options.arm),
        only_cases=tuple(options.case),
    )
    if options.quick:
        suite, settings = measure.quick(suite, settings)
    runner = parts.Run if suite.kind == "parts" else measure.Run
    run = runner(suite, site, settings).run()
    artifact = run.artifact()
    _print(suite, artifact)
    if not artifact["rows"]:
        say(f"{suite.name} on {site.interpreter}: nothing could be measured, no artifact")
        return 3
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            path = artifacts.write(artifact, options.out or folder)
            _smoke_pages(path, suite)
    else:
        path = artifacts.write(artifact, options.out or artifacts.RESULTS)
        say(f"wrote {path.name}; `ci/bench render` brings it onto the pages")
        for fault in artifacts.publishable(artifact):
            say(f"pages will not show it: {fault}")
    if any(row["failed"] for row in artifact["rows"]) or any(control["held"] is False for control in artifact["controls"] if not options.quick):
        return 1
    return 3 if artifact["incomplete"] else 0


def _smoke_pages(path, suite):
    """A quick run also goes through what pages do with an artifact."""
    from . import charts, pages

    artifact = artifacts.read(path)
    artifact["file"] = path.name
    assert pages.suite_table(artifact, suite).startswith("|")
    assert charts.suite_chart(artifact, suite).startswith("<svg")


def _print(suite, artifact):
    from . import pages

    print(f"\n{suite.name}, {artifact['interpreter']}, {artifact['settings']['took_s']} s\n")
    print(pages.suite_table(artifact, suite))
    for name, reason in artifact["absent"].items():
        print(f"left out: {name}: {reason}")
    print(flush=True)


def _list():
    for suite in SUITES.values():
        minutes = [f"{expected_seconds(suite, interpreter, ARMS) / 60:.0f} min on {interpreter}" for interpreter in suite.interpreters]
        print(f"{suite.name} (about {', '.join(minutes)}): {suite.question}")
        for group in suite.groups:
            print(f"  {group.app}: {', '.join(case.name for case in group.cases)}")
            print(f"    {', '.join(group.arms)}")
    return 0


def _probe(arguments):
    from . import probes

    parser = argparse.ArgumentParser(prog="ci/probe", description="Timing probes, each with a control that has to fail.")
    parser.add_argument("probes", nargs="+", metavar="PROBE", help=f"{', '.join(probes.PROBES)}, or all")
    _common(parser)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of load for each measurement (default: 5)")
    options = parser.parse_args(arguments)
    if options.m0serve and options.python == "both":
        parser.error("--m0serve is one build for one interpreter: name it with --python")
    if unknown := [name for name in options.probes if name not in probes.PROBES and name != "all"]:
        parser.error(f"no such probe: {', '.join(unknown)}")
    if not options.quick:
        environment.alone()
    names = list(probes.PROBES) if "all" in options.probes else options.probes
    return probes.main(names, _interpreters(options.python), options)


if __name__ == "__main__":
    sys.exit("run ci/bench or ci/probe")
