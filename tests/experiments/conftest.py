"""What the tests of experiments share: cells computed once, and a private catalogue that their scripts import."""

import functools
import sys
from pathlib import Path

import pytest

from fedlsa.experiments import compute

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def look():
    """Results of cells, each computed once."""
    return functools.cache(compute)
