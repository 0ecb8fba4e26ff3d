"""Starts the peers that have no command line of their own, or one that can't find a module in the app's folder.

    python serve.py SERVER MODULE:ATTRIBUTE PORT

Runs under the benchmark's virtual environment, in the application's folder.
"""

import importlib
import os
import sys


def main(server, target, port):
    sys.path.insert(0, os.getcwd())
    module, _, attribute = target.partition(":")
    application = getattr(importlib.import_module(module), attribute)
    print(f"listening on http://127.0.0.1:{port}", flush=True)
    if server == "bjoern":
        import bjoern

        bjoern.run(application, "127.0.0.1", port)
    elif server == "fastwsgi":
        import fastwsgi

        # Level 3 is its own default: errors only. Everything else is left as it comes.
        fastwsgi.run(application, "127.0.0.1", port, loglevel=3)
    else:
        raise SystemExit(f"no such server: {server}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
