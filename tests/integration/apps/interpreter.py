"""Shows the interpreter that the application runs in."""

import asyncio
import json
import locale
import os
import signal
import subprocess
import sys
import sysconfig
import threading

print("printed at import")
print("printed to stderr at import", file=sys.stderr)


def _facts():
    return {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "argv": sys.argv,
        "path": sys.path,
        "version": list(sys.version_info[:3]),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "utf8_mode": sys.flags.utf8_mode,
        "encoding": locale.getpreferredencoding(False),
        "fs_encoding": sys.getfilesystemencoding(),
        "stdout_encoding": sys.stdout.encoding,
        "main_module": sys.modules["__main__"].__name__,
        "main_thread": threading.main_thread().name,
        "cwd": os.getcwd(),
        "sigpipe": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
        "modules": sorted(m for m in sys.modules if "." not in m),
    }


def _child():
    """What a child process inherits: blocked signals and descriptors."""
    script = "import os; print(open('/proc/self/status').read()); print(os.listdir('/proc/self/fd'))"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, close_fds=False)
    blocked = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("SigBlk"))
    return {"blocked": int(blocked, 16), "code": done.returncode, "descriptors": done.stdout.splitlines()[-1]}


def _fork():
    """A child made by fork runs Python and ends; the parent goes on."""
    child = os.fork()
    if child == 0:
        os._exit(sum(range(5)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def _hello():
    await asyncio.sleep(0)
    return await asyncio.to_thread(str.upper, "hello")


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/child":
        facts = _child()
    elif path == "/fork":
        facts = _fork()
    elif path == "/asyncio":
        facts = asyncio.run(_hello())
    elif path == "/thread":
        found = []
        thread = threading.Thread(target=lambda: found.append(sum(range(100))))
        thread.start()
        thread.join()
        facts = found[0]
    else:
        facts = _facts()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(facts).encode()]
