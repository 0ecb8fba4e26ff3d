"""Finding the application and the interpreter; what a user reads when it isn't there. 3: the application; 2: usage."""

import json
import os
import re

import pytest

from harness import serving
from harness.wire import get

LOADED = {
    "probe:application": b"hello",
    "probe": b"hello",
    "only_app": b"app",
    "only_app:app": b"app",
    "both_names": b"application",
    "nested.package.module:app": b"app",
    "nested.package.module:Holder.Inner.application": b"app",
    "factories:make()": b"made",
    "factories:Site.make()": b"made by a dotted name",
    "factories:site": b"instance",
    "factories:site.serve": b"bound method",
    "factories:Site.static": b"static method",
    "factories:Site.Inner.klass": b"class method",
    "factories:PerRequest": b"a class",
    "factories:slots": b"slots",
    "factories:partial": b"partial",
}


@pytest.mark.parametrize("spec", LOADED)
def test_loaded(serve, any_mode, spec):
    server = serve(*any_mode, spec)
    for _ in range(5):
        assert server.fetch(get()).body == LOADED[spec]


def test_factory_flag(serve, any_mode):
    assert serve(*any_mode, "--factory", "factories:make").fetch(get()).body == b"made"


def test_app_dir_is_the_working_directory_by_default(serve, any_mode):
    server = serve(*any_mode, "only_app:app", app_dir=None, cwd=serving.APPS)
    assert server.fetch(get()).body == b"app"


def test_app_dir_may_be_relative(serve, any_mode):
    server = serve(*any_mode, "package.module:app", app_dir="nested", cwd=serving.APPS,
                   env=serving.environment(PYTHONPATH=serving.APPS))  # fmt: skip
    assert server.fetch(get()).body == b"app"


FAILED = {
    "nowhere:application": r"nowhere",
    "nested.nowhere:application": r"nested\.nowhere",
    "probe:nothing": r"nothing",
    "factories:Site.nothing": r"nothing",
    "factories:number": r"callable",
    "factories:make_nothing()": r"callable|None",
    "factories:make_and_fail()": r"LookupError: the factory failed",
    "factories:needs_more()": r"TypeError|argument",
    "no_application": r"application",
    "broken_import:application": r"ZeroDivisionError: broken at import",
    "broken_dependency:application": r"a_module_that_is_not_there",
    "broken_syntax:application": r"SyntaxError",
    "exits:application": r"SystemExit",
}


@pytest.mark.parametrize("spec", FAILED)
def test_failed_with_code_3(any_mode, spec):
    code, _, stderr = serving.run(*any_mode, "--bind", "127.0.0.1:0", spec)
    assert code == 3, stderr
    assert re.search(FAILED[spec], stderr), stderr
    assert "panicked" not in stderr
    assert "listening on" not in stderr


@pytest.mark.parametrize(
    "spec, frame",
    [("broken_import:application", "_deep"), ("factories:make_and_fail()", "make_and_fail"),
     ("broken_dependency:application", "import a_module_that_is_not_there")],
)  # fmt: skip
def test_a_fault_of_the_application_shows_its_traceback(any_mode, spec, frame):
    _, _, stderr = serving.run(*any_mode, "--bind", "127.0.0.1:0", spec)
    assert "Traceback (most recent call last)" in stderr
    assert frame in stderr


USAGE = {
    "no application": ([], ""),
    "unknown option": (["--no-such-option", "probe:application"], "no-such-option"),
    "two applications": (["probe:application", "only_app:app"], ""),
    "threads": (["--threads", "many", "probe:application"], "threads"),
    "no threads": (["--threads", "0", "probe:application"], "threads"),
    "negative": (["--threads", "-1", "probe:application"], ""),
    "bind": (["--bind", "127.0.0.1:port", "probe:application"], "bind"),
    "bind port": (["--bind", "127.0.0.1:70000", "probe:application"], "bind"),
    "interface": (["--interface", "cgi", "probe:application"], "interface"),
    "timeout": (["--timeout-head", "soon", "probe:application"], "timeout-head"),
    "missing value": (["probe:application", "--bind"], "bind"),
    "workers": (["--workers", "2", "probe:application"], "workers"),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage_with_code_2(name):
    args, word = USAGE[name]
    code, _, stderr = serving.run(*args)
    assert code == 2, stderr
    assert word in stderr
    assert "panicked" not in stderr


def test_usage_by_environment():
    code, _, stderr = serving.run("probe:application", env=serving.environment(M0_THREADS="many"))
    assert code == 2
    assert "many" in stderr


def test_help_and_version():
    for flag in ("--help", "-h", "--version", "-V"):
        code, stdout, stderr = serving.run(flag)
        assert (code, stderr) == (0, "")
        assert "m0serve" in stdout
    _, stdout, _ = serving.run("--help")
    for flag in ("--bind", "--threads", "--blocking-threads", "--app-dir", "--factory", "--graceful-timeout"):
        assert flag in stdout


def test_the_start_up_line(serve, any_mode):
    server = serve(*any_mode, "interpreter:application")
    facts = json.loads(server.fetch(get()).body)
    line = next(line for line in server.stderr.lines if "listening on" in line)
    version = ".".join(map(str, facts["version"])) + ("t" if facts["free_threaded"] else "")
    assert re.search(r"m0serve \d+\.\d+\.\d+", line)
    assert f"CPython {version}" in line
    if facts["free_threaded"]:
        assert ("GIL off" in line) == (not facts["gil"])
    assert "wsgi" in line
    assert re.search(r"2 loops, 6 handlers", line)
    assert server.address in line


def test_the_interpreter(serve, any_mode, tmp_path):
    """UTF-8 mode and locale as the python3 of the venv would have them; argv and executable are there."""
    server = serve(*any_mode, "interpreter:application", cwd=tmp_path)
    facts = json.loads(server.fetch(get()).body)
    assert os.path.basename(facts["executable"]).startswith("python")
    assert facts["argv"] and facts["argv"][0]
    assert facts["fs_encoding"] == "utf-8"
    assert facts["encoding"].lower().replace("-", "") == "utf8"
    assert facts["main_thread"] == "MainThread"
    assert facts["cwd"] == str(tmp_path)
    assert str(serving.APPS) in facts["path"]
    assert facts["sigpipe"], "a write to a closed pipe must not end the process"


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_locales(serve, any_mode, locale):
    server = serve(*any_mode, "interpreter:application", env=serving.environment(LC_ALL=locale, PYTHONUTF8=None))
    facts = json.loads(server.fetch(get()).body)
    assert facts["fs_encoding"] == "utf-8"
    assert facts["stdout_encoding"].lower().replace("-", "") == "utf8"


def test_what_a_child_process_inherits(shared, mode):
    """No blocked signals (it could not be ended) and none of the server's sockets (they would outlive it)."""
    child = json.loads(shared(*mode, "interpreter:application").fetch(get("/child")).body)
    assert child["code"] == 0
    assert child["blocked"] == 0
    # stdin, the two pipes and the directory being listed
    assert len(re.findall(r"'\d+'", child["descriptors"])) <= 4, child["descriptors"]


@pytest.mark.parametrize("path, result", [("/fork", 10), ("/asyncio", "HELLO"), ("/thread", 4950)])
@pytest.mark.filterwarnings("ignore")
def test_what_views_do_besides(shared, mode, path, result):
    """Processes, event loops and threads of their own, in whatever thread they run."""
    server = shared(*mode, "interpreter:application")
    for _ in range(5):
        assert json.loads(server.fetch(get(path)).body) == result


def test_output_of_the_application_is_not_lost(serve, any_mode):
    server = serve(*any_mode, "interpreter:application")
    assert server.stop() == 0
    assert "printed at import" in server.stdout.text()
    assert "printed to stderr at import" in server.stderr.text()
