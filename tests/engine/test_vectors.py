"""Every operation on wide vectors against what it means in NumPy."""

import operator

import numpy as np
import pytest
from numba import njit

from fedlsa.engine.vectors import (
    add_rows,
    align_stack,
    convert,
    first_lane,
    fma,
    fold,
    gather,
    integers,
    load,
    load_again,
    look_up,
    rows,
    rows_of_seeds,
    spread,
    store,
)

g = np.random.default_rng(0)
X, Y, Z = (g.normal(size=40) for _ in range(3))
U, V = (g.integers(0, 2**32, 40, dtype=np.uint64).astype(np.uint32) for _ in range(2))


def lanewise(op):
    @njit
    def run(x, y):
        out = np.zeros(16, x.dtype)
        store(out, 0, op(load(x, 0, 8), load(y, 2, 8)))
        return out

    return run


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_floating_point_arithmetic_is_lane_by_lane(op, dtype):
    x, y = X.astype(dtype), Y.astype(dtype)
    out = lanewise(op)(x, y)
    assert (out[:8] == op(x[:8], y[2:10])).all()
    assert (out[8:] == 0).all()  # nothing is written beyond the vector


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.and_, operator.xor])
def test_integer_arithmetic_wraps_lane_by_lane(op):
    assert (lanewise(op)(U, V)[:8] == op(U[:8], V[2:10])).all()


def test_shifts_are_by_each_lanes_own_amount_and_bring_in_zeros():
    by = (V % 32).astype(np.uint32)
    assert (lanewise(operator.rshift)(U, by)[:8] == U[:8] >> by[2:10]).all()


def test_a_scalar_goes_to_all_lanes():
    @njit
    def run(x, i, out, k):
        store(out, 0, 3.0 * load(x, 0, 4))
        store(out, 4, load(x, 0, 4) - x[9])
        store(k, 0, load(i, 0, 4) + np.uint64(7))

    out, k = np.empty(8), np.empty(4, np.uint32)
    run(X, U, out, k)
    assert (out == np.append(3 * X[:4], X[:4] - X[9])).all()
    assert (k == U[:4] + np.uint32(7)).all()


def test_fma_rounds_once():
    @njit
    def run(x, y, z, out):
        store(out, 0, fma(load(x, 0, 4), load(y, 0, 4), load(z, 0, 4)))

    tiny = 2.0**-30
    x, y, z = np.array([1 + tiny, 1, 2, 0]), np.array([1 - tiny, 1, 3, 5]), np.array([-1.0, 1, 4, 6])
    out = np.empty(4)
    run(x, y, z, out)
    assert out.tolist() == [-(tiny**2), 2, 10, 6]  # with two roundings the first would be 0


def test_loads_take_what_stands_at_their_offset():
    @njit
    def run(x, out):
        store(out, 0, load(x, 3, 4))

    out = np.empty(4)
    run(X, out)
    assert (out == X[3:7]).all()


def test_gather_looks_up_each_lane():
    @njit
    def run(table, index, out):
        store(out, 0, gather(table, load(index, 0, 16)))

    index, out = g.integers(0, 40, 16).astype(np.uint32), np.empty(16, np.uint32)
    run(U, index, out)
    assert (out == U[index]).all()


def test_integers_and_look_up_give_tuples():
    @njit
    def run(index, table):
        k = integers(index, 1, 2)
        return k, look_up(table, load_again(k), 2, 1)

    index = np.array([9, 4, 11, 9], np.uint32)
    k, found = run(index, U)
    assert k == (4, 11)
    assert found == (U[9], U[23])


def test_rows_of_several_chains_stand_side_by_side():
    @njit
    def run(table, index, out):
        here = integers(index, 0, 2)
        store(out, 0, rows(table, here, 4))
        store(out, 8, first_lane(table, here, 2, 1, 4))

    index, out = np.array([10, 3], np.uint32), np.empty(16)
    run(X, index, out)
    assert (out[:8] == np.append(X[10:14], X[3:7])).all()
    assert out[8:].tolist() == [X[21], 0, 0, 0, X[7], 0, 0, 0]


@pytest.mark.parametrize("same", [True, False])
def test_rows_of_seeds_are_those_of_each_lane_or_of_the_first(same):
    @njit
    def run(table, start, same, out):
        store(out, 0, rows_of_seeds(table, start, 1, same, 2, 4))

    start, out = np.array([9, 20, 3, 7]), np.empty(8)
    run(X, start, same, out)
    assert (out == np.append(X[20:24], X[20:24] if same else X[3:7])).all()


def test_rows_are_added_with_their_weights_in_their_order():
    @njit
    def run(x, weights, out):
        store(out, 0, add_rows(load(x, 0, 4), weights, 3, load(x, 4, 8)))

    x = np.array([1e17, 1, 2, 3, -1e17, 4, 5, 6, 1, 7, 8, 9])
    weights, out = np.array([9.0, 9, 9, 1, 0.5, 9]), np.empty(4)
    run(x, weights, out)
    assert (out == (x[:4] + x[4:8]) + 0.5 * x[8:]).all()  # in another order the 0.5 of the first sum would be lost


def test_numbers_change_their_precision():
    @njit
    def run(x, narrow, wide):
        store(narrow, 0, convert(load(x, 0, 8), np.float32))
        store(wide, 0, convert(load(narrow, 0, 8), np.float64))

    narrow, wide = np.empty(8, np.float32), np.empty(8)
    run(X, narrow, wide)
    assert (narrow == X[:8].astype(np.float32)).all()
    assert (wide == narrow).all()


@pytest.mark.parametrize(("d", "G"), [(2, 1), (4, 2), (8, 4), (16, 1)])
def test_fold_sums_each_row_as_a_halving_tree_whatever_stands_beside_it(d, G):
    n = d * G

    @njit
    def run(x, out, wide):
        align_stack()
        total = fold(load(x, 0, n), d)
        store(out, 0, total)
        store(wide, 0, spread(total, d))

    x, out, wide = g.normal(size=d * G) * 10.0 ** g.integers(-8, 8, d * G), np.empty(G), np.empty(d * G)
    run(x, out, wide)
    for k in range(G):
        tree = x[k * d : (k + 1) * d]
        while len(tree) > 1:
            tree = tree[: len(tree) // 2] + tree[len(tree) // 2 :]
        assert out[k] == tree[0]
    assert (wide == np.repeat(out, d)).all()
