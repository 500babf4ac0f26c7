"""What only a run at full scale asks for."""

import numpy as np
import pytest

from fedlsa.experiments import EXPERIMENTS, Scale
from fedlsa.experiments.cells import compute


@pytest.mark.long
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_every_limit_of_the_largest_problems_is_known(preset):
    """At full size: a quick run has few agents, and never asks for limits of a thousand."""
    cells = {c for e in EXPERIMENTS.values() for group in e.groups(Scale(preset)).values() for c in group}
    large = [c for c in cells if c.kind == "limit" and c.columns["agents"] == 1000]
    assert len(large) >= 40
    for cell in large:
        assert not any(np.isnan(v.values).any() for v in compute(cell).values()), cell.text
