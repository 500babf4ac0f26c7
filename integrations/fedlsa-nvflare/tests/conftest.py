"""The tests that need no FLARE run without an installation too."""

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("fedlsa_nvflare") is None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
