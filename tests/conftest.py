"""What all tests share: property tests that draw the same examples every time, and the examples as modules."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

settings.register_profile("fedlsa", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fedlsa")
