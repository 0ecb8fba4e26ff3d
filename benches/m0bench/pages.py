"""Pages made from artifacts: docs/benchmarks.md as a whole, the SVG charts in docs/charts, and in README.md and other
pages the blocks between `<!-- bench:begin NAME -->` and `<!-- bench:end -->` and the number spans of figures.py.

`render()` writes them; `check()` says what is stale, what can't be filled, and which figure stands without a source.
"""

import re
import sys

from . import artifacts, bars, charts, figures
from .artifacts import Shelf
from .catalogue import INTERPRETERS
from .environment import ROOT
from .suites import SUITES

PAGE = "docs/benchmarks.md"
CHARTS = "docs/charts"
# Pages whose figures must have a source. In all others spans and blocks are filled, but prose is free.
HELD = ("README.md", "docs/performance.md")
_BLOCK = re.compile(r"^<!-- bench:begin (?P<name>[a-z -]+?) -->\n(?P<body>.*?)^<!-- bench:end -->$", re.M | re.S)

COLUMNS = {
    "rps": ("rps", 0), "p50_ms": ("p50 ms", 2), "p90_ms": ("p90 ms", 2), "p99_ms": ("p99 ms", 2), "max_ms": ("max ms", 1),
    "cores": ("cores", 2), "cpu_us": ("CPU µs/request", 1), "rss_mb": ("RSS MB", 1), "pss_mb": ("PSS MB", 1),
    "idle_rss_mb": ("idle RSS MB", 1), "loaded_rss_mb": ("RSS MB after load", 1), "loaded_pss_mb": ("PSS MB after load", 1),
    "growth_mb": ("growth MB", 2), "connection_kb": ("KiB per idle connection", 2), "processes": ("processes", 0), "threads": ("threads", 0), "ns": ("ns", 1),
}  # fmt: skip
# Metrics on which servers are compared for the list of what is lost, and the sense of better.
_COMPARED = {"rps": max, "p99_ms": min, "cpu_us": min, "loaded_rss_mb": min, "idle_rss_mb": min, "connection_kb": min}


def cell(row, name):
    """A median with its spread, or nothing where the row has no such number."""
    digits = COLUMNS[name][1]
    summary = row["summary"]
    if not summary or summary["median"].get(name) is None:
        return ""
    middle, least, most = (summary[which][name] for which in ("median", "min", "max"))
    text = f"{middle:,.{digits}f}"
    if name in ("rps", "p99_ms") and least != most:
        text += f" ({least:,.{digits}f}–{most:,.{digits}f})"
    return text


def suite_table(artifact, suite):
    """The rows of an artifact as a Markdown table; a failed row gives its reason instead of numbers."""
    names = [name for name in suite.columns if any(r["summary"] and name in r["summary"]["median"] for r in artifact["rows"])]
    cases = list(dict.fromkeys(row["case"] for row in artifact["rows"]))
    head = ["server"] + (["case"] if len(cases) > 1 else []) + [COLUMNS[name][0] for name in names]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * (len(head) - len(names)) + " ---: |" * len(names)]
    for case in cases:
        for row in artifact["rows"]:
            if row["case"] != case:
                continue
            name = f"**{row['arm']}**" if artifact["arms"][row["arm"]]["ours"] else row["arm"]
            first = [name] + ([case] if len(cases) > 1 else [])
            if row["failed"]:
                reason = row["failed"].replace("|", "\\|").replace("\n", " ")
                cells = [f"*failed: {reason}*", *[""] * (len(names) - 1)] if names else [f"*failed: {reason}*"]
            else:
                cells = [cell(row, column) for column in names]
            lines.append("| " + " | ".join(first + cells) + " |")
    return "\n".join(lines)


def _seen(artifact, arm):
    """Who served, in a few words: the GIL's state and the event loop as the server saw them."""
    parts = []
    for seen in artifact["arms"][arm]["seen"].values():
        part = "GIL on" if seen["gil_enabled"] else "GIL off"
        if seen.get("loop"):
            part += f", {seen['loop'].partition('.')[0]}"
        if part not in parts:
            parts.append(part)
    return "; ".join(parts)


def _server(artifact, arm):
    server = artifact["arms"][arm]["server"]
    versions = {name.lower(): version for name, version in artifact["distributions"].items()}
    if server == "criterion":
        return "criterion"
    if server == "m0serve":
        return (artifact["m0serve"] or {}).get("version") or "m0serve"
    return f"{server} {versions[server]}" if server in versions else artifact["tools"].get(server) or server


def _flags(artifact):
    lines = []
    for name, arm in artifact["arms"].items():
        env = "".join(f"{key}={value} " for key, value in sorted(arm["env"].items()))
        copies = f" ({arm['processes']} copies)" if arm["processes"] > 1 else ""
        seen = _seen(artifact, name)
        lines.append(f"- {name}: {_server(artifact, name)}{copies}, `{env}{' '.join(arm['command'])}`" + (f" ({seen})" if seen else ""))
    return "\n".join(lines)


def _origin(artifact):
    machine, commit = artifact["machine"], artifact["commit"]
    sha = (commit["sha"] or "unknown")[:12] + (" with changes" if commit["dirty"] else "")
    return (
        f"Source: [{artifact['file']}](../benches/results/{artifact['file']}), commit {sha}; {machine['cpu']}, "
        f"{machine['usable_cores']} cores{', virtual' if machine['virtual'] else ''}, {machine['kernel']}, "
        f"governor {machine['governor']}, load {machine['load_before'][0]} before and {machine['load_after'][0]} after; "
        f"{artifact['settings']['rounds']} rounds of {artifact['settings']['seconds']:g} s."
    )


def _remarks(artifact):
    lines = []
    for row in artifact["rows"]:
        if row.get("cross_check") and row["summary"]:
            check, own = row["cross_check"]["median"], row["summary"]["median"]
            lines.append(f"h2load on {row['arm']} {row['case']}: {check['rps']:,.0f} rps ({check['rps'] / own['rps']:.2f} of wrk's), p99 {check['p99_ms']:.2f} ms.")
    disturbed = sorted({row["arm"] for row in artifact["rows"] if any(r.get("other_cores", 0) + r.get("steal_cores", 0) > 0.15 for r in row["rounds"])})
    if disturbed:
        lines.append(f"Other processes were busy in at least one round of: {', '.join(disturbed)}.")
    load = [r["load_cores"] for row in artifact["rows"] for r in row["rounds"] if "load_cores" in r]
    if load:
        lines.append(f"The load generator used {min(load):.2f} to {max(load):.2f} cores of the same machine.")
    for control in artifact["controls"]:
        if control["held"]:
            lines.append(f"Control: {control['arm']} {control['case']}, {COLUMNS[control['metric']][0]} {figures.form(control['value'])}, and it must be ≥ {control['at_least']:g}: {control['why']}.")
    for name, reason in artifact["absent"].items():
        if not name.startswith(("app ", "case ")):
            lines.append(f"Not measured: {name} ({reason}).")
    return "\n".join(f"- {line}" for line in lines)


def suite_section(shelf, suite):
    """All of a suite that artifacts hold; empty when they hold nothing."""
    found = [artifact for interpreter in INTERPRETERS if (artifact := shelf.get(suite.name, interpreter))]
    if not found:
        return ""
    parts = [f"## {suite.title}", suite.question, *suite.notes]
    for artifact in found:
        interpreter = artifact["interpreter"]
        parts += [
            f"### {suite.name} on Python {interpreter}",
            f"![{suite.title}, Python {interpreter}](charts/{suite.name}-{interpreter}.svg)",
            suite_table(artifact, suite),
            _remarks(artifact),
            _origin(artifact),
            f"<details><summary>Versions and flags</summary>\n\n{_flags(artifact)}\n\n</details>",
        ]
    return "\n\n".join(part for part in parts if part)


def bars_block(shelf):
    results = bars.judged(shelf)
    if not results:
        return ""
    lines = ["| bar | Python | measured | wanted | |", "| --- | --- | ---: | ---: | --- |"]
    for bar, value, met in results:
        lines.append(f"| {bar.what} | {bar.interpreter} | {figures.form(value)} {bar.unit} | {bar.sense} {bar.bar:g} {bar.unit} | {'met' if met else '**missed**'} |")
    return "\n".join(lines)


def lost_block(shelf):
    """Every case and metric in which the best peer with Python beats the best of our arms by more than five per cent."""
    lines = []
    for suite in SUITES.values():
        for interpreter in INTERPRETERS:
            artifact = shelf.get(suite.name, interpreter)
            if not artifact:
                continue
            for case in dict.fromkeys(row["case"] for row in artifact["rows"]):
                for metric, better in _COMPARED.items():
                    ours, peers = [], []
                    for row in artifact["rows"]:
                        arm = artifact["arms"][row["arm"]]
                        if row["case"] == case and row["summary"] and row["summary"]["median"].get(metric) is not None and arm["serves"] != "body":
                            value = (row["summary"]["median"][metric], row["arm"])
                            if not arm["ours"]:
                                peers.append(value)
                            elif not arm["env"]:
                                ours.append(value)
                    if not ours or not peers:
                        continue
                    (own, our_arm), (peer, peer_arm) = better(ours), better(peers)
                    behind = own < peer / 1.05 if better is max else own > peer * 1.05
                    if behind:
                        name = COLUMNS[metric][0]
                        lines.append(f"- {suite.name}, {interpreter}, {case}, {name}: {peer_arm} {figures.form(peer)}, {our_arm} {figures.form(own)}.")
    return "\n".join(lines)


# What the README's table shows: label, suite, case, metric, then the arm in each column.
_HEADLINE = (
    ("bare WSGI, requests per second", "layer-split", "hello", "rps", ("m0serve-pool", "granian-bt4", None)),
    ("bare WSGI, CPU µs per request", "layer-split", "hello", "cpu_us", ("m0serve-pool", "granian-bt4", None)),
    ("bare WSGI, p99 ms while two 200 ms views run", "mixed-workload", "slow-2", "p99_ms", ("m0serve-pool", "granian-bt4", "gunicorn-gthread-4")),
    ("Django, requests per second", "mixed-workload", "django-slow-0", "rps", ("m0serve-pool", "granian-bt4", "gunicorn-gthread-4")),
    ("Django, p99 ms while two 200 ms views run", "mixed-workload", "django-slow-2", "p99_ms", ("m0serve-pool", "granian-bt4", "gunicorn-gthread-4")),
    ("bare ASGI, requests per second", "asgi", "get-c16", "rps", ("m0serve-asgi-uvloop", "granian-uvloop", "uvicorn-uvloop")),
    ("FastAPI, requests per second", "asgi", "fastapi", "rps", ("m0serve-asgi-uvloop", "granian-uvloop", "uvicorn-uvloop")),
    ("WSGI, 4 loops or workers: RSS MB after 100,000 requests", "memory", "bare", "loaded_rss_mb", ("m0serve-t4-pool", "granian-bt4", "gunicorn-gthread-w4")),
)  # fmt: skip


def headline_block(shelf):
    """The README's table: per interpreter, m0serve, granian, and gunicorn or uvicorn."""
    lines = ["| Python | | m0serve | granian | gunicorn or uvicorn |", "| --- | --- | ---: | ---: | ---: |"]
    for interpreter in reversed(INTERPRETERS):
        for label, suite, case, metric, arms in _HEADLINE:
            cells = []
            for arm in arms:
                row = shelf.row(suite, interpreter, arm, case) if arm else None
                cells.append(figures.form(row["summary"]["median"][metric]) if row and row["summary"] else "–")
            if cells[0] != "–":
                lines.append(f"| {interpreter} | {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else ""


_INTRO = """\
# Benchmarks

This page is rendered by `ci/bench render` from the newest artifacts in [benches/results](../benches/results/README.md);
`ci/bench check` (part of `ci/test`) fails when it is stale. What was learnt from the numbers is in
[performance.md](performance.md).

How the rows are made:

- One command makes a table from nothing: `ci/bench NAME`. The peers live in an environment of their own with pinned versions
  (`benches/peers`), on the same interpreter as m0serve, and serve the same application; each must give back the application's own
  body before it is timed.
- Each server is started afresh in every round; the arms of a round alternate, and their order turns from round to round.
  Numbers are medians over the rounds, with the extremes in parentheses.
- wrk with one thread and, where nothing else is said, 16 kept connections sends a browser's request of twelve fields. Its percentiles
  are corrected for coordinated omission. h2load measures some rows a second time.
- CPU is that of the server's whole process tree, from /proc, divided by the requests answered; "cores" is the same divided by the
  time. A server that looks twice as fast may use twice the cores.
- A row with a socket error, a wrong status or a dead worker is failed, not slow. Every server has a port of its own, and a row waits until
  few sockets of that port are left in TIME_WAIT.
- Compare rows of one table. Absolute numbers move by half between days on one and the same machine, ratios within a run don't.
"""


def page(shelf):
    parts = [_INTRO.rstrip()]
    if block := bars_block(shelf):
        parts += ["## The bars", "What the project set itself, against the newest artifacts.", block]
    sections = [section for suite in SUITES.values() if (section := suite_section(shelf, suite))]
    if sections:
        lost = lost_block(shelf)
        parts += [
            "## What is lost",
            "Where the best peer that runs Python is more than five per cent better than the best of m0serve's own rows:",
            lost or "nowhere in the artifacts shown here.",
        ]
        parts += sections
    else:
        parts.append("No artifact has been recorded yet.")
    return "\n\n".join(parts) + "\n"


def _block(name, shelf):
    words = name.split()
    if words[0] == "suite" and len(words) == 2 and words[1] in SUITES:
        found = [shelf.get(words[1], interpreter) for interpreter in INTERPRETERS]
        return "\n\n".join(f"{suite_table(a, SUITES[words[1]])}\n\n{_origin(a)}" for a in found if a)
    if name == "headline":
        return headline_block(shelf)
    if name == "bars":
        return bars_block(shelf)
    raise KeyError(name)


def fill(text, shelf):
    """(text with blocks and spans filled, [what can't be])."""
    faults = []

    def one(match):
        try:
            body = _block(match["name"], shelf)
        except KeyError:
            faults.append(f"no such block: {match['name']}")
            return match[0]
        return f"<!-- bench:begin {match['name']} -->\n{body}\n<!-- bench:end -->" if body else f"<!-- bench:begin {match['name']} -->\n<!-- bench:end -->"

    text = _BLOCK.sub(one, text)
    text, unfilled = figures.fill(text, shelf)
    return text, faults + [f"span {expression!r}: {why}" for expression, why in unfilled]


def outputs(root=ROOT, folder=None):
    """{path: text} of everything that is made from artifacts, and the faults met on the way."""
    shelf = Shelf(folder or root / "benches" / "results")
    made, faults = {PAGE: page(shelf)}, []
    for suite, interpreter in shelf:
        if suite in SUITES:
            made[f"{CHARTS}/{suite}-{interpreter}.svg"] = charts.suite_chart(shelf.get(suite, interpreter), SUITES[suite])
    names = {path.name for paths in artifacts.stored(shelf.folder).values() for path in paths}
    for path in sorted([*root.glob("*.md"), *(root / "docs").glob("*.md")]):
        name = path.relative_to(root).as_posix()
        if name == PAGE:
            continue
        text, problems = fill(path.read_text(), shelf)
        made[name] = text
        faults += [f"{name}: {problem}" for problem in problems]
        if name in HELD:
            faults += [f"{name}:{line}: {figure!r} stands without a source" for line, figure in figures.sourceless(text, names)]
    return made, faults


def stale(root=ROOT, folder=None):
    """What the tree has otherwise than the artifacts say, and every other fault."""
    made, faults = outputs(root, folder)
    for name, text in made.items():
        path = root / name
        if not path.exists() or path.read_text() != text:
            faults.append(f"{name} is stale: run ci/bench render")
    for path in sorted((root / CHARTS).glob("*.svg")):
        if path.relative_to(root).as_posix() not in made:
            faults.append(f"{path.relative_to(root)} belongs to no artifact: run ci/bench render")
    for paths in artifacts.stored(folder or root / "benches" / "results").values():
        for path in paths:
            faults += [f"{path.name}: {problem}" for problem in artifacts.problems(artifacts.read(path))]
    return faults


def render():
    made, faults = outputs()
    (ROOT / CHARTS).mkdir(parents=True, exist_ok=True)
    for path in (ROOT / CHARTS).glob("*.svg"):
        if path.relative_to(ROOT).as_posix() not in made:
            path.unlink()
    for name, text in made.items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"rendered {name}")
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0


def check():
    faults = stale()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0
