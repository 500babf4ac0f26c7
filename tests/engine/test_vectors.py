"""Every operation on wide vectors against what it means in NumPy."""

import operator

import numpy as np
import pytest
from numba import njit

from fedlsa.engine import memory
from fedlsa.engine.cpu_steps import RankOneTables, RidgeTables, decay
from fedlsa.engine.memory import (
    first_lane,
    gather,
    integers,
    load,
    load_block,
    load_few,
    load_wide,
    look_up,
    rows,
    store,
    store_rows,
)
from fedlsa.engine.vectors import Shape, align_stack, fma, fold, spread, wide_product

g = np.random.default_rng(0)
X, Y, Z = (g.normal(size=40) for _ in range(3))
U, V = (g.integers(0, 2**32, 40, dtype=np.uint64).astype(np.uint32) for _ in range(2))
SHAPE = Shape(4, 2)  # two rows of four lanes


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


def test_wide_product_gives_both_halves():
    @njit
    def run(x, m, high, low):
        h, lo = wide_product(load(x, 0, 8), m)
        store(high, 0, h)
        store(low, 0, lo)

    high, low = np.empty(8, np.uint32), np.empty(8, np.uint32)
    run(U, np.uint64(0xD2511F53), high, low)
    product = U[:8].astype(np.uint64) * np.uint64(0xD2511F53)
    assert (high == product >> np.uint64(32)).all()
    assert (low == product & np.uint64(0xFFFFFFFF)).all()


def test_loads_take_what_stands_at_their_offset():
    @njit
    def run(shape, x, i, out, wide):
        store(out, 0, load(x, 3, 4))
        store(out, 4, load_block(shape, x, 5))
        store(out, 12, load_few(shape, x, 7))
        store(wide, 0, load_wide(i, 2, 4))

    out, wide = np.empty(14), np.empty(4, np.uint64)
    run(SHAPE, X, U, out, wide)
    assert (out == np.concatenate([X[3:7], X[5:13], X[7:9]])).all()
    assert (wide == U[2:6]).all()
    assert memory.load_words in (memory.load, memory.load_wide)


def test_wide_lanes_are_cut_when_stored_in_narrow_ones():
    @njit
    def run(i, out):
        x = load_wide(i, 0, 4)
        store(out, 0, x * x)

    out = np.empty(4, np.uint32)
    run(U, out)
    assert (out == U[:4] * U[:4]).all()


def test_gather_looks_up_each_lane():
    @njit
    def run(table, index, out):
        store(out, 0, gather(table, load(index, 0, 16)))

    index, out = g.integers(0, 40, 16).astype(np.uint32), np.empty(16, np.uint32)
    run(U, index, out)
    assert (out == U[index]).all()


def test_integers_and_look_up_give_tuples():
    @njit
    def run(shape, index, table):
        k = integers(shape, index, 1)
        return k, look_up(table, k, 2, 1)

    index = np.array([9, 4, 11, 9], np.uint32)
    k, found = run(SHAPE, index, U)
    assert k == (4, 11)
    assert found == (U[9], U[23])


def test_rows_of_several_chains_stand_side_by_side():
    @njit
    def run(shape, table, index, at, out, back):
        here = integers(shape, index, 0)
        x = rows(shape, table, here)
        store(out, 0, x)
        store(out, 8, first_lane(shape, table, here))
        store_rows(shape, back, integers(shape, at, 0), x)

    index, at = np.array([20, 3], np.uint32), np.array([0, 6])
    out, back = np.empty(16), np.zeros(12)
    run(SHAPE, X, index, at, out, back)
    assert (out[:8] == np.append(X[20:24], X[3:7])).all()
    assert out[8:].tolist() == [X[20], 0, 0, 0, X[3], 0, 0, 0]
    assert (back == np.concatenate([X[20:24], [0, 0], X[3:7], [0, 0]])).all()


@pytest.mark.parametrize(("d", "G"), [(2, 1), (4, 2), (8, 4), (16, 1)])
def test_fold_sums_each_row_as_a_halving_tree_whatever_stands_beside_it(d, G):
    @njit
    def run(shape, x, out, wide):
        align_stack()
        total = fold(shape, load_block(shape, x, 0))
        store(out, 0, total)
        store(wide, 0, spread(shape, total))
        return len(shape)

    x, out, wide = g.normal(size=d * G) * 10.0 ** g.integers(-8, 8, d * G), np.empty(G), np.empty(d * G)
    assert run(Shape(d, G), x, out, wide) == d
    for k in range(G):
        tree = x[k * d : (k + 1) * d]
        while len(tree) > 1:
            tree = tree[: len(tree) // 2] + tree[len(tree) // 2 :]
        assert out[k] == tree[0]
    assert (wide == np.repeat(out, d)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_ridge_shrinks_in_the_precision_of_the_run(dtype):
    @njit
    def run(tables, eta, x, y, out):
        store(out, 0, decay(tables, eta, load(x, 0, 8), load(y, 0, 8)))

    x, y, eta, ridge = X.astype(dtype), Y.astype(dtype), dtype(0.25), dtype(0.5)
    plain = RankOneTables(x, V, y)
    out = np.empty(8, dtype)
    run(plain, eta, x, y, out)
    assert (out == x[:8] + y[:8]).all()
    run(RidgeTables(*plain, ridge), eta, x, y, out)
    np.testing.assert_allclose(out, x[:8] - eta * ridge * x[:8] + y[:8], rtol=0, atol=8 * np.finfo(dtype).eps)
