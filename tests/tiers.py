"""Which cells of a long list `make test` runs; the others are marked as long and run in `make test-marked`."""

import pytest


def longer(*values):
    """Values of a cell that takes longer than `make test` has time for."""
    return pytest.param(*values, marks=pytest.mark.long)


def mostly_long(values, kept):
    """All of the values, of which `make test` runs those that are kept."""
    values, kept = list(values), list(kept)
    unknown = [value for value in kept if value not in values]
    assert not unknown, f"there is no {unknown} to keep"
    return [v if v in kept else longer(*(v if isinstance(v, tuple) else (v,))) for v in values]
