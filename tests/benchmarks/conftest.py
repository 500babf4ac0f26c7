"""The benchmark is a folder of scripts, not part of the package: let the tests import from it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
