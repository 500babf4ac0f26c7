"""Long rounds of few agents on the GPU, in segments that run at the same time, against the other engines."""

import warnings

import gallery
import numpy as np
import pytest
import test_cuda
from test_cuda import LONGER, SEEDS, SIMULATED, WEIGHTS, both, check_agreement, garnet, regression

import fedlsa as fl

pytestmark = test_cuda.pytestmark
FEW = 2 if SIMULATED else 20  # agents: a warp serves each of them
CASES = {
    "correction": (lambda: garnet(agents=FEW), fl.SCAFFLSA(0.1, 37 * LONGER), {"xi_0": True}),
    "lengths and steps that differ, weights": (
        lambda: garnet(agents=FEW, weights=WEIGHTS[:FEW]), fl.Scaffnew(fl.PowerStep(0.2, 0.5), 0.05), {"xi_0": True},
    ),
    "a ridge": (lambda: regression(5, agents=FEW, ridge=0.1), fl.SCAFFLSA(0.05, 21), {}),
    "averaged and projected": (
        lambda: garnet(agents=FEW), fl.FedLSA(0.5, 18, projection=0.5, average_after=2), {},
    ),
    "single precision": (lambda: garnet(agents=FEW), fl.SCAFFLSA(0.1, 5), {"dtype": "float32"}),
}  # fmt: skip


@pytest.fixture
def kinds(monkeypatch):
    """Every run is cut into segments, however short its rounds; the kinds of the kernels that were built."""
    from fedlsa.engine.cuda import blocks, gpu_launch
    from fedlsa.engine.cuda.gpu_kernel import build

    built = []
    monkeypatch.setattr(gpu_launch, "processors", lambda: 3 * SEEDS)
    monkeypatch.setattr(blocks, "SPREAD_STEPS", 0)
    monkeypatch.setattr(gpu_launch.Group, "segment", lambda self: 2)
    monkeypatch.setattr(gpu_launch, "build", lambda kind, hook: built.append(kind) or build(kind, hook))
    if SIMULATED:
        monkeypatch.setattr(blocks, "MOST_TEAMS", 2)
    return built


@pytest.mark.parametrize("name", CASES)
def test_segments_of_a_round_give_what_its_steps_give(name, kinds):
    """Over two launches or more, from any of the four words of a block on."""
    make, algorithm, keywords = CASES[name]
    check_agreement(both(make(), algorithm, 3 * LONGER, **keywords), keywords)
    assert all(kind.team > kind.L and kind.parts >= 2 for kind in kinds)


HOSTILE = ("corridor",) if SIMULATED else ("corridor", "absorbing chain", "periodic chain")


@pytest.mark.parametrize("name", HOSTILE)
def test_segments_of_hostile_problems(name, kinds):
    """A Jordan block, and chains without noise."""
    case = gallery.CASES[name]()
    for make in (fl.SCAFFLSA,) if SIMULATED else (fl.FedLSA, fl.SCAFFLSA):
        check_agreement(both(case.problem, make(case.eta, 10 if SIMULATED else 300), 2 if SIMULATED else 20), {})
    assert all(kind.team > kind.L for kind in kinds)


@pytest.mark.skipif(SIMULATED, reason="many steps")
def test_segments_of_runs_that_diverge(kinds):
    """Steps so long that products of many of them overflow: in the same round as on the processor, with equal numbers
    before it, relative to their size.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        on_gpu, on_cpu = both(regression(5, agents=FEW), fl.SCAFFLSA(3.0, 90), 4)
    assert all(kind.team > kind.L for kind in kinds)
    np.testing.assert_array_equal(on_gpu["diverged_at"], on_cpu["diverged_at"])
    assert (on_cpu["diverged_at"] >= 0).all()
    size = np.maximum(1.0, np.abs(on_cpu["theta"].values).max(axis=-1, keepdims=True))
    known = np.isfinite(size) & (size < 1e150)
    assert known[:, 1:].any()
    error = np.abs(on_gpu["theta"].values - on_cpu["theta"].values) / size
    assert np.where(known, error, 0).max() <= 1e-9
