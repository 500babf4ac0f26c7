"""What all tests of the theory share."""

import pytest

from fedlsa.theory import tuning


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Compiled passes for every number of pairs, as larger problems have; test_pair_passes holds the others to them."""
    monkeypatch.setattr(tuning, "COMPILED_FROM", 0)
