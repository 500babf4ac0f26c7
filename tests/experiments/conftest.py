"""What the tests of experiments share: cells computed once, and a private catalogue that their scripts import."""

import functools
import sys
from pathlib import Path

import pytest

from fedlsa.experiments import Store, compute

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory, request):
    """Where `fedlsa reproduce` puts all it makes: one folder for the tests of all processes."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if hasattr(request.config, "workerinput") else base) / "reproduced"


@pytest.fixture(scope="session")
def look(reproduced):
    """Results of cells: as reproduced, where they have been already, or else computed, each once."""
    store = Store(reproduced / "cells")
    return functools.cache(lambda cell: store[cell] if store.has(cell) else compute(cell))
