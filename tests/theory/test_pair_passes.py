"""Passes over few pairs in NumPy beside the compiled ones, which are used for many."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import schur

from fedlsa.theory import pair_kernels, pair_passes, tuning
from fedlsa.theory.stein_kernel import from_lanes, in_lanes, maps_in_lanes, solve_pairs


def compared(name, out, *arguments):
    """What both make of the same arguments, added to the same numbers."""
    found = [out.copy(), out.copy()]
    for module, o in zip((pair_passes, pair_kernels), found, strict=True):
        getattr(module, name)(*arguments, o)
    assert not np.array_equal(found[1], out)
    assert_allclose(found[0], found[1], rtol=0, atol=1e-12 * np.abs(found[1]).max())


@pytest.mark.parametrize("count", [[1], [3], [1, 2, 1], [4, 1, 1, 2]], ids=str)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_few_pairs_are_passed_over_as_many_are(count, d):
    rng = np.random.default_rng(d)
    count = np.array(count)
    K, s, tiles = len(count), d * (d + 1) // 2, len(count) * (len(count) + 1) // 2
    weight = rng.random(K)
    F, B, R = rng.standard_normal((3, K, d, d))
    V, W = rng.standard_normal((K, s)), rng.standard_normal((tiles, d, d))
    turned = [np.ascontiguousarray(M.transpose(0, 2, 1)) for M in (F, B, R)]
    k, n = np.triu_indices(K)
    if ((k < n) | (count[k] > 1)).any():
        form = (F, turned[0], B, turned[1])
        compared("pairs", rng.standard_normal((tiles, d, d)), W, (R, turned[2]), form, count, 0.7, 0, K)
    compared("sums", rng.standard_normal((K, d, d)), W, V, weight, count, 0, K)
    compared("alone", rng.standard_normal((K, s)), V, R, F, B, 0, K)
    parts = (rng.standard_normal((K, d)), V, *(rng.standard_normal(shape) for shape in ((d,), (d, d), (K, d, d))))
    own = rng.standard_normal((K, s, (2 * d + 1) * (d + 1)))
    compared("noise", rng.standard_normal((K, s)), parts, own, 0, K)


@pytest.mark.parametrize("count", [[3], [1, 2, 1], [4, 1, 1, 2]], ids=str)
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("radius", [0.5, 0.999])
@pytest.mark.parametrize("stored", [True, False])
def test_few_pairs_have_the_fixed_point_that_many_have(count, d, radius, stored):
    rng = np.random.default_rng(d)
    count = np.array(count)
    K, tiles = len(count), len(count) * (len(count) + 1) // 2
    F = rng.standard_normal((K, d, d))
    F *= radius / np.abs(np.linalg.eigvals(F)).max(axis=1)[:, None, None]
    T, Z = (np.stack(M) for M in zip(*(schur(f, "complex") for f in F), strict=True))
    R, B = rng.standard_normal((2, K, d, d)) + 1j * rng.standard_normal((2, K, d, d))
    weight, few, store = np.full(K, 0.3), np.zeros((K, d, d), complex), np.zeros((tiles if stored else 0, d, d))
    pair_passes.stationary((T, Z, R, B), weight, count, few, store)
    lanes = maps_in_lanes(in_lanes(T), in_lanes(Z), R, B)
    many, expected = np.zeros(lanes[0].shape), np.zeros_like(store)
    solve_pairs(lanes, weight, count, 0, K, many, expected)
    many = from_lanes(many, K)
    assert np.abs(many).max() > 0
    assert_allclose(few, many, rtol=0, atol=1e-10 * np.abs(many).max())
    assert_allclose(store, expected, rtol=0, atol=1e-10 * np.abs(expected).max(initial=0.0))


def test_the_choice_goes_by_size_alone(monkeypatch):
    monkeypatch.setattr(tuning, "COMPILED_FROM", 2**8)
    assert pair_passes.passes(2, 3) is pair_passes
    assert pair_passes.passes(2, tuning.COMPILED_FROM) is pair_kernels
