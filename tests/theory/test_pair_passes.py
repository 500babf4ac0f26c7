"""Passes over few pairs in NumPy beside the compiled ones, which are used for many."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import schur

from fedlsa.theory import pair_kernels, pairs, tuning
from fedlsa.theory.linear import svec
from fedlsa.theory.pair_kernels import from_lanes, in_lanes, maps_in_lanes, solve_pairs

COUNTS = [[1], [3], [1, 2, 1], [4, 1, 1, 2]]


def turned(M):
    return np.ascontiguousarray(M.swapaxes(-1, -2))


@pytest.mark.parametrize("count", COUNTS, ids=str)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_few_pairs_are_passed_over_as_many_are(count, d):
    rng = np.random.default_rng(d)
    count = np.array(count)
    K, tiles = len(count), len(count) * (len(count) + 1) // 2
    F, B, R = rng.standard_normal((3, K, d, d))
    W, before = rng.standard_normal((2, tiles, d, d))
    powers = rng.standard_normal((3, K, d, d))
    for name, arguments in {
        "pairs": (W, (R, turned(R)), (F, turned(F), B, turned(B)), count, 0.7),
        "doubled": (W, powers, turned(powers), count),
    }.items():
        few, many = before.copy(), before.copy()
        getattr(pairs, name)(*arguments, few)
        getattr(pair_kernels, name)(*arguments, 0, K, many)
        exist = pairs.existing(count)
        assert_allclose(few, many, rtol=0, atol=1e-12 * np.abs(many).max())
        assert (many != before)[exist].all()
        assert (few == before)[~exist].all()


@pytest.mark.parametrize("count", COUNTS[1:], ids=str)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_few_pairs_are_summed_as_many_are(count, d):
    rng = np.random.default_rng(d)
    count = np.array(count)
    weight, many = rng.random(len(count)), np.zeros((len(count), d, d))
    W = rng.standard_normal((len(count) * (len(count) + 1) // 2, d, d))
    pair_kernels.sums(W, weight, count, 0, len(count), many)
    assert np.abs(many).max() > 0
    assert_allclose(pairs.sums(W, weight, count), many, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", COUNTS[1:], ids=str)
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("radius", [0.5, 0.999])
@pytest.mark.parametrize("defective", [False, True])
def test_few_pairs_have_the_fixed_point_that_many_have(count, d, radius, defective):
    rng = np.random.default_rng(d)
    count = np.array(count)
    K, tiles = len(count), len(count) * (len(count) + 1) // 2
    F = np.tile(np.eye(d) + np.diag(np.ones(d - 1), 1), (K, 1, 1)) if defective else rng.standard_normal((K, d, d))
    F *= radius / np.abs(np.linalg.eigvals(F)).max(axis=1)[:, None, None]
    R, B = rng.standard_normal((2, K, d, d))
    T, Z = (np.stack(M) for M in zip(*(schur(f, "complex") for f in F), strict=True))
    adjoint, weight, expected = Z.conj().transpose(0, 2, 1), np.full(K, 0.3), np.zeros((tiles, d, d))
    lanes = maps_in_lanes(in_lanes(T), in_lanes(Z), adjoint @ R, adjoint @ B)
    many = np.zeros(lanes[0].shape)
    solve_pairs(lanes, weight, count, 0, K, many, expected)
    W = pairs.stationary(pairs.stein_inverses(F, count), F, R, B, count)
    assert np.abs(expected).max() > 0
    accuracy = (
        1e-11  # eps / (1 - radius^2), once for each of 2 d - 1 steps along Jordan blocks; condition numbers of 4e3
    )
    assert_allclose(W, expected, rtol=0, atol=accuracy * np.abs(expected).max())
    summed = (from_lanes(many, K) @ adjoint).real
    assert_allclose(pairs.sums(W, weight, count), summed, rtol=0, atol=accuracy * np.abs(summed).max())


def test_moments_of_single_groups_are_those_of_matrices():
    rng, d = np.random.default_rng(0), 3
    F, B, R, root = rng.standard_normal((4, 2, d, d))
    V = root @ turned(root)
    mixed = R @ turned(B)
    assert_allclose(pairs.alone(svec(V), R, F, B), svec(F @ V @ turned(F) + mixed + turned(mixed)), rtol=0, atol=1e-12)
    y, u, uy, own = (rng.standard_normal(s) for s in ((2, d), (d,), (2, d, d), (2, 6, 28)))
    U = V[0]
    for k in range(2):
        w = np.block([[U, uy[k], u[:, None]], [uy[k].T, V[k], y[k][:, None]], [u, y[k], 0.0]])
        found = pairs.noise((y, svec(V), u, U, uy), own)[k]
        assert_allclose(found, own[k] @ w[np.triu_indices(2 * d + 1)], rtol=0, atol=1e-12)


def test_the_choice_goes_by_size_alone(monkeypatch):
    monkeypatch.setattr(tuning, "COMPILED_FROM", 3 * 2**4)
    assert not pairs.compiled(2, 2)
    assert pairs.compiled(2, 3)
    assert pairs.compiled(3, 2)
