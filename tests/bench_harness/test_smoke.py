"""`ci/bench --quick` for real: it starts this tree's m0serve, loads it and renders what came out. It measures nothing: it
shows that the harness works on this machine and with this server."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
M0SERVE = os.environ.get("M0SERVE") or shutil.which("m0serve")
INTERPRETER = "3.14t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "%d.%d" % sys.version_info[:2]

pytestmark = [
    pytest.mark.skipif(not M0SERVE, reason="no m0serve: set M0SERVE or put it on PATH"),
    pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in the environment that scripts/ make"),
    pytest.mark.skipif(
        not shutil.which("wrk") and not (os.geteuid() == 0 and shutil.which("apt-get")), reason="no wrk, and it can't be installed"
    ),
]


def bench(*arguments):
    command = [ROOT / "ci" / "bench", *arguments, "--quick", "--python", INTERPRETER, "--m0serve", M0SERVE, "--venv", sys.prefix]
    environment = {name: value for name, value in os.environ.items() if name != "M0SERVE"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_a_suite_from_start_to_table():
    done = bench("mixed-workload", "--arm", "m0serve-inline", "--arm", "m0serve-pool", "--case", "slow-0", "--case", "slow-1")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| **m0serve-")]
    assert len(lines) == 4, done.stdout + done.stderr
    assert not any("failed" in line for line in lines)
    # The control, read from the printed row: a loop without a pool stands still for as long as a 200 ms view runs.
    stalled = next(line for line in lines if line.startswith("| **m0serve-inline** | slow-1 "))
    assert float(stalled.split("|")[-4].replace(",", "")) > 100, stalled


def test_a_server_that_does_not_start_is_not_a_row():
    done = bench("fairness", "--arm", "granian-bt4")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "left out: granian-bt4" in done.stdout + done.stderr
