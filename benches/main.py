"""The way in for ci/bench and ci/probe."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from m0bench import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1], sys.argv[2:]))
