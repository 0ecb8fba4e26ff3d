"""The application's own virtual environment: found by --python, VIRTUAL_ENV or PATH; another interpreter is refused."""

import glob
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from harness import serving
from harness.wire import get

FLASK = ["flask", "werkzeug", "jinja2", "markupsafe", "itsdangerous", "click", "blinker"]


def _install(directory):
    """Put Flask into a venv as pip would, from the files of the environment that runs the tests: no network."""
    (site,) = glob.glob(f"{directory}/lib/python3.*/site-packages")
    for name in FLASK:
        for file in importlib.metadata.files(name):
            source = Path(file.locate())
            if file.parts[0] != ".." and source.is_file() and "__pycache__" not in file.parts:
                target = Path(site, *file.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    Path(site, "only_in_this_venv.py").write_text("HERE = True\n")


@pytest.fixture(scope="module")
def own_venv(tmp_path_factory):
    directory = tmp_path_factory.mktemp("user") / "venv"
    venv.create(directory, with_pip=False, symlinks=True)
    _install(directory)
    return directory


@pytest.fixture(scope="module")
def empty_venv(tmp_path_factory):
    directory = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(directory, with_pip=False, symlinks=True)
    return directory


@pytest.fixture
def project(tmp_path):
    """A user's project: Flask from its venv, and a module that only that venv has."""
    (tmp_path / "site_app.py").write_text(
        "import sys\n"
        "import flask\n"
        "import only_in_this_venv\n"
        "app = flask.Flask(__name__)\n"
        "@app.get('/')\n"
        "def index():\n"
        "    return {'prefix': sys.prefix, 'executable': sys.executable, 'flask': flask.__file__}\n"
    )
    return tmp_path


def _in_venv(server, directory):
    facts = json.loads(server.fetch(get()).body)
    assert os.path.realpath(facts["prefix"]) == os.path.realpath(directory)
    assert facts["flask"].startswith(str(directory))
    assert facts["executable"].startswith(str(directory))


def test_python_option(serve, any_mode, own_venv, project):
    server = serve(*any_mode, "--python", own_venv / "bin" / "python", "site_app:app", app_dir=project,
                   env=serving.environment(VIRTUAL_ENV=None))  # fmt: skip
    _in_venv(server, own_venv)


def test_virtual_env(serve, any_mode, own_venv, project):
    server = serve(*any_mode, "site_app:app", app_dir=project, env=serving.environment(VIRTUAL_ENV=own_venv))
    _in_venv(server, own_venv)


def test_path(serve, any_mode, own_venv, project):
    path = f"{own_venv}/bin:{os.environ['PATH']}"
    server = serve(*any_mode, "site_app:app", app_dir=project, env=serving.environment(VIRTUAL_ENV=None, PATH=path))
    _in_venv(server, own_venv)


def test_python_option_goes_first(serve, any_mode, own_venv, empty_venv, project):
    server = serve(*any_mode, "--python", own_venv / "bin" / "python", "site_app:app", app_dir=project,
                   env=serving.environment(VIRTUAL_ENV=empty_venv))  # fmt: skip
    _in_venv(server, own_venv)


def test_python_by_environment(serve, any_mode, own_venv, project):
    server = serve(*any_mode, "site_app:app", app_dir=project,
                   env=serving.environment(VIRTUAL_ENV=None, M0_PYTHON=own_venv / "bin" / "python"))  # fmt: skip
    _in_venv(server, own_venv)


def test_another_venv_has_no_flask(any_mode, empty_venv, project):
    """The control: without the right venv the application can't be imported."""
    code, _, stderr = serving.run(*any_mode, "--bind", "127.0.0.1:0", "site_app:app", app_dir=project,
                                  env=serving.environment(VIRTUAL_ENV=empty_venv))  # fmt: skip
    assert code == 3
    assert "flask" in stderr


def _ours():
    return f"{sys.version_info[0]}.{sys.version_info[1]}" + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")


def _another_interpreter():
    """Any Python 3 on this machine of a version other than the one that runs the tests."""
    places = [*os.environ["PATH"].split(os.pathsep), "/usr/bin", "/usr/local/bin",
              *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin")),
              *glob.glob(os.path.expanduser("~/.local/share/uv/python/*/bin"))]  # fmt: skip
    for place in places:
        for found in sorted(glob.glob(f"{place}/python3*")):
            if not os.access(found, os.X_OK) or found.endswith("-config"):
                continue
            script = "import sys, sysconfig; print('%d.%d%s' % (*sys.version_info[:2], 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''))"
            try:
                done = subprocess.run([found, "-I", "-c", script], capture_output=True, text=True, timeout=20)
            except OSError:
                continue
            if done.returncode == 0 and done.stdout.strip() not in ("", _ours()):
                return found, done.stdout.strip()
    return None


def test_another_version_is_refused(any_mode):
    """docs: a venv of another version has no site-packages under this one, and CPython says nothing about it."""
    found = _another_interpreter()
    if found is None:
        pytest.skip("this machine has one Python only")
    path, version = found
    code, _, stderr = serving.run(*any_mode, "--python", path, "--bind", "127.0.0.1:0", "probe:application")
    assert code > 0
    assert version in stderr, "names the interpreter asked for"
    ours = rf"{sys.version_info[0]}\.{sys.version_info[1]}(\.\d+)?" + ("t" if "t" in _ours() else r"\b")
    assert re.search(ours, stderr), "names the one that this binary is for"
    assert "listening on" not in stderr


def test_no_interpreter_there(any_mode, tmp_path):
    missing = tmp_path / "python"
    code, _, stderr = serving.run(*any_mode, "--python", missing, "--bind", "127.0.0.1:0", "probe:application")
    assert code > 0
    assert str(missing) in stderr


def test_not_an_interpreter(any_mode):
    code, _, stderr = serving.run(*any_mode, "--python", shutil.which("true"), "--bind", "127.0.0.1:0", "probe:application")
    assert code > 0
    assert shutil.which("true") in stderr
    assert "panicked" not in stderr
