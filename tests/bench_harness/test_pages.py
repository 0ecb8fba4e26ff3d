"""Figures, tables, charts and the check for stale ones, on small artifacts; and the tree's own pages."""

import xml.etree.ElementTree as ElementTree

import pytest
from m0bench import artifacts, bars, charts, figures, gate, pages, parts
from m0bench.catalogue import APPS, ARMS
from m0bench.suites import GATE_PAIRS, GATE_SUITE, SUITES
from sample import artifact, measurement, row, three

SUITE = SUITES["layer-split"]


def rows():
    return [
        three("floor", "hello", rps=[150_000, 160_000, 155_000], cpu_us=[4, 4.2, 4.1]),
        three("m0serve-inline", "hello", rps=[110_000, 120_000, 130_000], cpu_us=[6.0, 6.1, 6.2], p99_ms=[0.3, 0.4, 0.35]),
        three("m0serve-pool", "hello", rps=[100_000, 105_000, 110_000], cpu_us=[6.5, 6.6, 6.7]),
        three("granian-bt4", "hello", rps=[40_000, 41_000, 42_000], cpu_us=[25, 26, 27], rss_mb=[50, 51, 52]),
    ]


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "benches" / "results").mkdir(parents=True)
    artifacts.write(artifact(rows()), tmp_path / "benches" / "results")
    return tmp_path


@pytest.fixture
def shelf(tree):
    return artifacts.Shelf(tree / "benches" / "results")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("layer-split/3.14t m0serve-inline:hello:rps", "120,000"),
        ("layer-split/3.14t m0serve-inline:hello:rps | k", "120k"),
        ("layer-split/3.14t m0serve-inline:hello:rps@min", "110,000"),
        ("layer-split/3.14t m0serve-inline:hello:rps / granian-bt4:hello:rps | .1f", "2.9"),
        ("layer-split/3.14t granian-bt4:hello:cpu_us - floor:hello:cpu_us", "21.9"),
        ("layer-split/3.14t @distributions.django", "6.1.3"),
        ("layer-split/3.14t @machine.cpu", "A processor"),
        ("layer-split/3.14t m0serve-inline:hello:p99_ms", "0.35"),
    ],
)
def test_expressions(shelf, expression, text):
    assert figures.text_of(expression, shelf) == text


@pytest.mark.parametrize(
    "expression",
    [
        "nonsense",
        "layer-split/3.13 m0serve-inline:hello:rps",
        "layer-split/3.14t nobody:hello:rps",
        "layer-split/3.14t m0serve-inline:hello:speed",
        "layer-split/3.14t @distributions.nothing",
    ],
)
def test_unanswerable_expressions(shelf, expression):
    with pytest.raises(figures.Unknown):
        figures.text_of(expression, shelf)


def span(value, expression="layer-split/3.14t m0serve-inline:hello:rps | k"):
    return f"<!--num {expression}-->{value}<!--/num-->"


def test_spans_are_filled_and_stay_spans(shelf):
    text, faults = figures.fill(f"It does {span('?')} rps.", shelf)
    assert text == f"It does {span('120k')} rps."
    assert not faults
    assert figures.fill(text, shelf) == (text, [])


def test_a_span_without_answer_is_a_fault(shelf):
    text, faults = figures.fill(span("1", "layer-split/3.13 floor:hello:rps"), shelf)
    assert len(faults) == 1
    assert "no artifact" in faults[0][1]


@pytest.mark.parametrize(
    "prose",
    ["It serves 120k rps.", "It is 2.9 × faster.", "CPU is 6.1 µs a request.", "p99 of 0.35 ms", "It is 3 times faster.", "20 MB RSS after load", "p99 1.5 ms"],
)
def test_figures_without_source_are_found(prose):
    assert figures.sourceless(prose, set())


@pytest.mark.parametrize(
    "prose",
    [
        "Bodies up to 512 KiB stay in memory.",
        "The slice is 1 ms and the time-out 30 s.",
        "Python 3.13 and 3.14t.",
        "```\nRequests/sec: 120000 rps\n```",
        "`--rounds 3` of 12 rps`".replace("of 12 rps`", "`"),
        "It serves <!--num a/3.13 b:c:d-->120k<!--/num--> rps.",
        "It once served 100k rps. <!--source: counted by hand, not kept-->",
        "<!-- bench:begin headline -->\n| 100 rps |\n<!-- bench:end -->",
    ],
)
def test_settings_spans_and_sourced_figures_are_not(prose):
    assert figures.sourceless(prose, set()) == []


def test_a_source_must_exist():
    prose = "100 rps <!--source: layer-split-3.13-20260101T000000Z.json-->"
    assert figures.sourceless(prose, set())
    assert not figures.sourceless(prose, {"layer-split-3.13-20260101T000000Z.json"})


def test_the_line_of_a_sourceless_figure():
    assert figures.sourceless("one\ntwo\n\nthree\n100 rps here\n", set()) == [(5, "100 rps")]


def test_table_has_a_line_for_each_row_and_marks_failures():
    value = artifact([*rows()[:2], row("granian-bt4", "hello", measurement(rps=1.0), failed="socket errors: 3 read")])
    lines = pages.suite_table(value, SUITE).splitlines()
    assert len(lines) == 2 + 3
    assert "120,000 (110,000–130,000)" in lines[3]
    assert "**m0serve-inline**" in lines[3]
    assert "failed: socket errors: 3 read" in lines[4]
    assert len({line.count("|") for line in lines}) == 1


def test_charts_are_xml_with_a_bar_for_each_measured_row():
    value = artifact([*rows(), row("hello", "hello", failed="it ended")])
    tree = ElementTree.fromstring(charts.suite_chart(value, SUITE))
    bars_drawn = [e for e in tree.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(bars_drawn) == 4
    widths = [float(bar.get("width")) for bar in bars_drawn]
    assert widths[3] == max(widths)  # the chart shows CPU, of which granian uses most here
    assert not charts.is_fraction_of([4.1, 6.1, 6.6, 26])


def test_chart_of_very_unequal_rows_is_logarithmic():
    value = artifact([three("m0serve-inline", "slow-1", p99_ms=[190, 195, 200]), three("m0serve-pool", "slow-1", p99_ms=[1.0, 1.1, 1.2])])
    text = charts.suite_chart(value, SUITES["mixed-workload"])
    assert "logarithmic" in text
    widths = [float(e.get("width")) for e in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[1] > 20


def write_pages(tree):
    made, faults = pages.outputs(tree)
    (tree / "docs" / "charts").mkdir(exist_ok=True)
    for name, text in made.items():
        (tree / name).write_text(text)
    return faults


def test_what_was_rendered_is_not_stale(tree):
    (tree / "README.md").write_text(f"# m0serve\n\n{span('?')} rps\n\n<!-- bench:begin headline -->\n<!-- bench:end -->\n")
    assert write_pages(tree) == []
    assert pages.stale(tree) == []
    readme = (tree / "README.md").read_text()
    assert "120k" in readme
    assert "| 3.14t | bare WSGI, requests per second | 105,000 | 41,000 | – |" in readme


def test_changed_figures_pages_and_charts_are_stale(tree):
    (tree / "README.md").write_text(f"# m0serve\n\n{span('?')} rps\n")
    write_pages(tree)
    (tree / "README.md").write_text((tree / "README.md").read_text().replace("120k", "121k"))
    (tree / "docs/benchmarks.md").write_text((tree / "docs/benchmarks.md").read_text() + "more\n")
    (tree / "docs/charts/layer-split-3.14t.svg").write_text("<svg/>")
    (tree / "docs/charts/tail-3.13.svg").write_text("<svg/>")
    faults = "\n".join(pages.stale(tree))
    for part in ("README.md is stale", "docs/benchmarks.md is stale", "layer-split-3.14t.svg is stale", "tail-3.13.svg belongs to no artifact"):
        assert part in faults


def test_a_newer_artifact_makes_pages_stale(tree):
    write_pages(tree)
    newer = artifact(rows(), utc="20260301T000000Z")
    artifacts.write(newer, tree / "benches" / "results")
    assert any("benchmarks.md is stale" in fault for fault in pages.stale(tree))


def test_the_readme_may_not_claim_without_source(tree):
    (tree / "README.md").write_text("m0serve does 500k rps.\n")
    write_pages(tree)
    assert any("stands without a source" in fault for fault in pages.stale(tree))


def test_the_page_says_what_is_lost(tree):
    worse = rows()
    worse[3] = three("granian-bt4", "hello", rps=[400_000, 410_000, 420_000], cpu_us=[25, 26, 27])
    artifacts.write(artifact(worse, utc="20260401T000000Z"), tree / "benches" / "results")
    lost = pages.lost_block(artifacts.Shelf(tree / "benches" / "results"))
    assert "granian-bt4 410,000" in lost
    assert "cpu" not in lost.lower()


def test_bars_are_judged_from_artifacts(shelf):
    judged = {bar.what: (round(value, 3), met) for bar, value, met in bars.judged(shelf)}
    assert judged["view on the loop, CPU per request, to the floor's"] == (1.488, True)
    assert judged["pool on, CPU per request, to granian's"] == (0.254, True)
    assert "fairness, p99" not in judged


def test_every_bar_names_rows_that_suites_have():
    for bar in bars.BARS:
        suite = SUITES[bar.suite]
        assert bar.interpreter in suite.interpreters
        known = {(arm, case.name) for group in suite.groups for arm in group.arms for case in group.cases}
        for reference in bar.expression.split():
            if ":" in reference:
                arm, case, _ = reference.split(":")
                if suite.kind == "parts":
                    # An arm is a bench, a case its group and function; functions can be counted out, groups are named.
                    assert arm in parts.benches((pages.ROOT / "Cargo.toml").read_text()), (bar.what, reference)
                    assert f'"{case.partition("/")[0]}"' in (pages.ROOT / "benches" / f"{arm}.rs").read_text(), (bar.what, reference)
                    continue
                assert (arm, case) in known, (bar.what, reference)
                assert bar.interpreter in ARMS[arm].interpreters, (bar.what, arm)


def test_the_headline_names_rows_that_suites_have():
    for _, suite, case, _, arms in pages._HEADLINE:
        known = {(arm, c.name) for group in SUITES[suite].groups for arm in group.arms for c in group.cases}
        assert all((arm, case) in known for arm in arms if arm)


def test_suites_name_known_arms_and_applications():
    for suite in SUITES.values():
        for group in suite.groups:
            app = APPS[group.app]
            for name in group.arms:
                assert ARMS[name].serves in (app.interface, "body"), (suite.name, name)
            assert len({case.name for case in group.cases}) == len(group.cases)
        names = [case.name for group in suite.groups for case in group.cases]
        assert len(set(names)) == len(names), f"{suite.name}: two groups share a case's name"
        for control in suite.controls:
            assert any(control.arm in g.arms and control.case in [c.name for c in g.cases] for g in suite.groups)
        assert set(suite.columns) <= set(pages.COLUMNS)


def test_gate_compares_ratios_not_numbers():
    before = artifact(rows())
    slower_machine = artifact([three(r["arm"], "hello", cpu_us=[2 * m["cpu_us"] for m in r["rounds"]]) for r in rows()])
    ratio = gate.ratio(before, "m0serve-inline", "floor", "hello")
    assert gate.verdict(gate.ratio(slower_machine, "m0serve-inline", "floor", "hello"), ratio) == "passed"
    assert gate.verdict(ratio * 1.11, ratio) == "failed"
    assert gate.verdict(ratio * 1.09, ratio) == "passed"
    assert gate.verdict(None, ratio) == "not measured"
    assert gate.verdict(ratio, None) == "no record"


def test_parts_are_the_crates_benches_and_compare_by_ratio(tmp_path):
    assert parts.benches('[x]\n[[bench]]\nname = "parser"\nharness = false\n\n[[bench]]\nname = "bridge"\n') == ["parser", "bridge"]
    folder = tmp_path / "request" / "head" / "new"
    folder.mkdir(parents=True)
    (folder / "estimates.json").write_text('{"median": {"point_estimate": 123.5}, "mean": {"point_estimate": 200}}')
    assert parts.estimates(tmp_path) == {"request/head": 123.5}
    rows = [row("parser", "request/httparse_alone", {"ns": 100.0}), row("parser", "request/head", {"ns": 150.0})]
    assert parts.ratios({"rows": rows}) == {("parser", "request/head"): 1.5}
    assert parts.ratios({"rows": rows[1:]}) == {}
    assert parts.benches((pages.ROOT / "Cargo.toml").read_text())


def test_gate_pairs_are_rows_of_its_suite():
    group = SUITES[GATE_SUITE].groups[0]
    for arm, comparator, case in GATE_PAIRS:
        assert {arm, comparator} <= set(group.arms)
        assert case in [c.name for c in group.cases]


def test_the_trees_own_pages_are_up_to_date():
    assert pages.stale() == []
