"""An extension module that says nothing about the GIL, and so brings it back on a free-threaded build."""

import subprocess
import sysconfig

import pytest

SOURCE = """
#include <Python.h>
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "oldext", NULL, -1, NULL };
PyMODINIT_FUNC PyInit_oldext(void) { return PyModule_Create(&module); }
"""

SAID = "the module oldext does not declare that it can run without it"
"""What the server says about it."""


on_free_threaded_builds = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="a GIL build has nothing to bring back"
)


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """The folder with `oldext`. A test module has this fixture by importing it."""
    folder = tmp_path_factory.mktemp("oldext")
    source = folder / "oldext.c"
    source.write_text(SOURCE)
    target = folder / f"oldext{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(target)], check=True)
    return folder
