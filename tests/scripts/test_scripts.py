"""scripts/py313 and scripts/py314t: their output, environment and errors. Each leg of ci/test tests the script of its
own interpreter, whose parts are all made by then: what is tested here is how they are found again."""

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
NAME = "py%d%d%s" % (*sys.version_info[:2], "t" if FREE_THREADED else "")
SCRIPT = ROOT / "scripts" / NAME
OVERRIDE = "M0_" + NAME.upper()


def run(*command, cwd=ROOT, **environment):
    return subprocess.run(
        [SCRIPT, *command],
        cwd=cwd,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def printed():
    result = run()
    assert result.returncode == 0, result.stderr
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


def test_prints_three_lines_that_hold():
    said = printed()
    assert list(said) == ["PYTHON", "VENV", "M0SERVE"]
    assert all(os.path.isabs(path) for path in said.values())
    question = "import sys, sysconfig; print(sys.version_info[:2], bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
    answer = f"{sys.version_info[:2]} {FREE_THREADED}\n"
    for python in (said["PYTHON"], Path(said["VENV"], "bin", "python")):
        assert subprocess.check_output([python, "-c", question], text=True) == answer
    assert said["M0SERVE"] == str(ROOT / "target" / NAME / "release" / "m0serve")
    assert os.access(said["M0SERVE"], os.X_OK)


def test_a_second_run_takes_less_than_a_second():
    printed()
    # The fastest of three: the machine may be busy with something else, the script never gets faster than it is.
    times = []
    for _ in range(3):
        begun = time.monotonic()
        printed()
        times.append(time.monotonic() - begun)
    assert min(times) < 1, times


def test_command_gets_the_venv_and_m0serve_first(tmp_path):
    said = printed()
    program = (
        "import os, shutil, sys; print(os.getcwd()); print(sys.prefix); print(os.environ['VIRTUAL_ENV']);"
        "print(shutil.which('m0serve')); print('PYTHONHOME' in os.environ); print(os.environ['M0_THREADS'])"
    )
    result = run("python", "-c", program, cwd=tmp_path, PYTHONHOME="/nonexistent", M0_THREADS="3")
    assert result.stdout.splitlines() == [
        str(tmp_path.resolve()),
        said["VENV"],
        said["VENV"],
        said["M0SERVE"],
        "False",
        "3",
    ], result.stderr


def test_the_process_becomes_the_command():
    with subprocess.Popen([SCRIPT, "python", "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE) as process:
        assert int(process.stdout.read()) == process.pid


def test_status_and_output_are_the_commands_own():
    result = run("sh", "-c", "echo out; echo err >&2; exit 42")
    assert (result.returncode, result.stdout) == (42, "out\n")
    assert result.stderr.endswith("err\n")


def test_an_unknown_command_is_named():
    result = run("no-such-command")
    assert result.returncode == 127
    assert "no-such-command: command not found" in result.stderr


def test_runs_within_itself():
    result = run(SCRIPT, "python", "-c", "import sys; print(sys.prefix)")
    assert result.stdout.strip() == printed()["VENV"], result.stderr


def test_the_override_is_taken():
    said = printed()
    # A venv's python stands for the interpreter behind it.
    result = run(**{OVERRIDE: str(Path(said["VENV"], "bin", "python"))})
    assert dict(line.split("=", 1) for line in result.stdout.splitlines()) == said, result.stderr


@pytest.mark.parametrize(
    "override, expected",
    [
        ("/no/such/python", "no such program"),
        ("{other}", "does not name a usable CPython"),
        ("/bin/false", "does not name a usable CPython"),
    ],
)
def test_a_wrong_override_is_refused(override, expected, tmp_path):
    # An interpreter of another version, played by this one under a changed version.
    other = tmp_path / "python3.7"
    other.write_text(
        "#!/bin/sh\n"
        f"exec {sys.executable} -c 'import sys; sys.version_info = (3, 7, 0, \"final\", 0); sys.argv[1:3] = sys.argv[2:4];"
        " exec(sys.stdin.read())' \"$@\"\n"
    )
    other.chmod(0o755)
    result = run(**{OVERRIDE: override.format(other=other)})
    assert result.returncode == 1
    assert not result.stdout
    assert OVERRIDE in result.stderr and expected in result.stderr


def test_build_settings_of_the_caller_do_not_leak():
    said = printed()
    result = run(
        PYO3_PYTHON="/no/such/python",
        PYO3_CONFIG_FILE="/no/such/file",
        CARGO_TARGET_DIR="/no/such/target",
        CARGO_BUILD_TARGET="none",
        M0_WORKERS="7",
    )
    assert dict(line.split("=", 1) for line in result.stdout.splitlines()) == said, result.stderr
