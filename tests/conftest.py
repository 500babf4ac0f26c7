"""What all tests share: property tests that draw the same examples every time, and the examples as modules."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: on busy cores, threads of BLAS wait for one another

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

settings.register_profile("fedlsa", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fedlsa")
