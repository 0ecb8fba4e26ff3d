"""The artifact's schema: what is accepted, what is refused, which artifact pages may show."""

import json

import pytest
from m0bench import artifacts
from sample import artifact, measurement, row, three


def good():
    return artifact([three("floor", "hello", cpu_us=[4, 5, 6]), three("m0serve-inline", "hello", cpu_us=[7, 8, 9], rps=[1, 3, 2])])


def test_median_min_and_max_are_taken_for_each_column():
    summary = artifacts.summary([measurement(rps=10, p99_ms=3), measurement(rps=30, p99_ms=1), measurement(rps=20, p99_ms=2)])
    assert (summary["median"]["rps"], summary["min"]["rps"], summary["max"]["rps"]) == (20, 10, 30)
    assert summary["median"]["p99_ms"] == 2
    assert "errors" not in summary["median"]


def test_a_column_that_a_round_lacks_is_left_out():
    rounds = [measurement(), measurement()]
    del rounds[1]["cpu_us"]
    assert "cpu_us" not in artifacts.summary(rounds)["median"]


def test_write_and_read_again(tmp_path):
    path = artifacts.write(good(), tmp_path)
    assert path.name == "layer-split-3.14t-20260101T000000Z.json"
    assert artifacts.read(path) == good()


def faulty(change):
    value = good()
    change(value)
    return artifacts.problems(value)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda a: a.pop("machine"), "machine"),
        (lambda a: a.update(schema=99), "schema 99"),
        (lambda a: a.update(utc="yesterday"), "no artifact's name"),
        (lambda a: a["rows"].append(a["rows"][0]), "twice"),
        (lambda a: a["rows"][0].update(arm="unknown"), "not described"),
        (lambda a: a["rows"][0].update(summary=None), "neither a summary nor a reason"),
        (lambda a: a["rows"][0].update(failed="socket errors"), "failed and has a summary"),
        (lambda a: a["rows"][0]["rounds"].pop(), "2 rounds of 3"),
        (lambda a: a["rows"][0]["summary"]["median"].update(rps=1e9), "not that of its rounds"),
        (lambda a: a["absent"].update(granian="no such file: /ro" + "ot/.cache/x"), "path of a machine"),
    ],
)
def test_faults_are_found(change, part):
    assert any(part in fault for fault in faulty(change)), faulty(change)


def test_nothing_is_wrong_with_a_good_one():
    assert artifacts.problems(good()) == []


def test_a_broken_artifact_is_not_written(tmp_path):
    value = good()
    value["rows"][0]["summary"]["median"]["rps"] = 1e9
    with pytest.raises(ValueError):
        artifacts.write(value, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("settings", [{"quick": True}, {"partial": True}, {"rounds": 2}])
def test_some_runs_are_not_for_pages(settings):
    value = good()
    value["settings"].update(settings)
    assert artifacts.publishable(value)


def test_a_control_that_did_not_fail_keeps_a_run_from_the_pages():
    control = {"arm": "m0serve-inline", "case": "slow-1", "metric": "p99_ms", "at_least": 100, "value": 2.0, "held": False, "why": ""}
    assert artifacts.publishable({**good(), "controls": [control]})
    assert not artifacts.publishable({**good(), "controls": [{**control, "value": 190.0, "held": True}]})


def test_the_newest_that_pages_may_show_is_taken(tmp_path):
    old, new, quick = good(), good(), good()
    new["utc"], quick["utc"] = "20260102T000000Z", "20260103T000000Z"
    quick["settings"]["quick"] = True
    for value in (old, new, quick):
        (tmp_path / artifacts.file_name(value)).write_text(json.dumps(value))
    assert artifacts.Shelf(tmp_path).get("layer-split", "3.14t")["utc"] == "20260102T000000Z"
    assert artifacts.Shelf(tmp_path).get("layer-split", "3.13") is None


def test_a_failed_row_has_no_summary():
    value = artifact([row("granian-bt4", "hello", measurement(), failed="socket errors: 3 read")])
    assert artifacts.problems(value) == []
