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
    """Results of cells, each computed once for the tests of all processes."""
    store = Store(reproduced / "cells")

    @functools.cache
    def result(cell):
        if not store.has(cell):
            store[cell] = compute(cell)
        return store[cell]

    return result
