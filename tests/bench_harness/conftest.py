"""Tests of the benchmark harness itself: what it reads, counts and renders. No server is started here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))
