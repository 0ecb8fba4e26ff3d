"""The GIL that comes back on a free-threaded build: served on, said so, and the handlers take turns from then on."""

import subprocess
import sysconfig

import pytest

from harness.serving import environment
from harness.wire import get

SOURCE = """
#include <Python.h>
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "oldext", NULL, -1, NULL };
PyMODINIT_FUNC PyInit_oldext(void) { return PyModule_Create(&module); }
"""

SAID = "the module oldext does not declare that it can run without it"

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="a GIL build has nothing to bring back"
)


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """The folder of an extension module that says nothing about the GIL."""
    folder = tmp_path_factory.mktemp("oldext")
    source = folder / "oldext.c"
    source.write_text(SOURCE)
    target = folder / f"oldext{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(target)], check=True)
    return folder


def test_an_import_at_the_start(serve, mode, extension):
    server = serve(*mode, "gil:application", env=environment(PYTHONPATH=str(extension), GIL_AT_IMPORT="1"))
    assert server.fetch(get("/")).body == b"True"
    assert "GIL on" in server.stderr.text()
    assert SAID in server.stderr.text()


def test_an_import_inside_a_request(serve, mode, extension):
    server = serve(*mode, "gil:application", env=environment(PYTHONPATH=str(extension)))
    assert "GIL off" in server.stderr.text()
    with server.connect() as client:
        assert client.exchange(get("/")).body == b"False"
        assert client.exchange(get("/import")).body == b"True"
        # It is looked at every so many requests, and said once it has stayed on for a while.
        for _ in range(200_000):
            client.exchange(get("/"))
            if SAID in server.stderr.text():
                break
        else:
            raise AssertionError(server.stderr.text())
        for _ in range(100):
            assert client.exchange(get("/")).body == b"True"
    assert server.stderr.text().count(SAID) == 1
