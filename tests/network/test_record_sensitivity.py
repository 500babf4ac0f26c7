"""What one row can change in an answer: neighbouring data sets with the same draws, and a search for the worst.

`ratio` is how far their answers are apart, over the bound 2 eta G K of theory/privacy.py: it must never exceed 1, and
the worst pairs should come near it, or the bound would be silly.
"""

from dataclasses import replace

import numpy as np
import pytest
from tiers import longer

from fedlsa.engine.local import Rows, alias_slots
from fedlsa.engine.random import OBSERVATION, choose, words
from fedlsa.errors import ArgumentError
from fedlsa.theory.privacy import check_unit, most_draws, most_probable, rho_of, rho_of_answer

ROUNDING = 1e-9


def drawn(n, seed, steps):
    """The rows that a site draws : (steps,)."""
    slots = alias_slots(n)
    shift = 32 - (len(slots).bit_length() - 1)
    return np.array([choose(int(w), int(slots[int(w) >> shift]), shift) for w in words(seed, 0, OBSERVATION, 0, steps)])


class Pair:
    """Two data sets that differ in row `at`, and an order: the same theta, xi, step size, local steps and draws."""

    def __init__(self, rng, n, d, eta, clip, ridge=0.0, steps=40, spread=1.0):
        self.n, self.eta, self.clip, self.ridge, self.steps, self.seed = n, eta, clip, ridge, steps, 5
        draws = drawn(n, self.seed, steps)
        self.at = int(np.bincount(draws, minlength=n).argmax())
        self.K = int((draws == self.at).sum())
        self.u = rng.standard_normal((n, d)) * np.exp(spread * rng.standard_normal((n, 1)))
        self.y = 3 * rng.standard_normal(n)
        self.other_u, self.other_y = (
            rng.standard_normal(d) * np.exp(spread * rng.standard_normal()),
            rng.standard_normal(),
        )
        self.theta, self.xi = rng.standard_normal((2, d))

    def answers(self, whole):
        for changed in (False, True):
            u, y = self.u.copy(), self.y.copy()
            if changed:
                u[self.at], y[self.at] = self.other_u, self.other_y
            local = Rows(u, u, y, self.ridge, alias_slots(self.n), self.clip, averaged=whole)
            yield local(self.theta, self.xi, self.eta, self.steps, 0, self.seed, 0)

    def ratio(self, whole=False):
        one, other = self.answers(whole)
        K = self.steps / self.n if whole else self.K
        return float(np.linalg.norm(one - other)) / (2 * self.eta * self.clip * K)


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "means"])
@pytest.mark.parametrize("ridge", [0.0, 0.5, 10.0])
@pytest.mark.parametrize("eta", [longer(0.003), 0.1])
def test_no_pair_of_neighbours_is_further_apart_than_the_bound(eta, ridge, whole):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(150):
        clip, spread = float(np.exp(rng.normal())), float(rng.choice([0.3, 2.0, 6.0]))
        pair = Pair(rng, int(rng.integers(1, 9)), int(rng.integers(1, 5)), eta, clip, ridge, spread=spread)
        found.append(pair.ratio(whole))
    assert max(found) <= 1 + ROUNDING
    assert max(found) > 0.3 * (1 - eta * ridge) ** 40  # some random pair comes near it; a ridge pulls all together


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "means"])
def test_the_worst_pair_that_a_search_finds_is_within_the_bound(whole):
    rng, best = np.random.default_rng(1), []
    for _ in range(6):
        pair = Pair(rng, 4, 2, 0.2, 0.5)
        at, scale = pair.ratio(whole), 1.0
        for _ in range(400):
            tried = Pair.__new__(Pair)
            tried.__dict__ = {
                name: value + scale * rng.standard_normal(np.shape(value)) * rng.integers(0, 2)
                if name in ("u", "y", "other_u", "other_y", "theta", "xi")
                else value
                for name, value in pair.__dict__.items()
            }
            if (now := tried.ratio(whole)) > at:
                pair, at = tried, now
            else:
                scale = max(0.05, scale * 0.99)
        best.append(at)
    assert 0.9 < max(best) <= 1 + ROUNDING


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "means"])
def test_a_pair_that_pulls_in_opposite_directions_attains_the_bound(whole):
    pair = Pair(np.random.default_rng(2), 3, 2, 0.1, 0.7)
    pair.u[:], pair.u[pair.at], pair.other_u = 0.0, [1.0, 0.0], np.array([1.0, 0.0])
    pair.y[pair.at], pair.other_y = 1e6, -1e6
    assert pair.ratio(whole) == pytest.approx(1, abs=ROUNDING)


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "means"])
def test_where_models_are_far_away_the_rounding_of_floats_is_within_the_bound_too(whole):
    rng, order = np.random.default_rng(0), {"local": "means" if whole else "rows", "step_size": 0.1}
    for _ in range(300):
        n, d, clip = int(rng.integers(1, 9)), int(rng.integers(1, 5)), float(np.exp(rng.normal()))
        pair = Pair(rng, n, d, 0.1, clip, spread=float(rng.choice([0.3, 2.0])))
        pair.theta *= 10.0 ** rng.integers(6, 14)
        pair.y = pair.u @ pair.theta + 0.01 * rng.normal(size=n)  # residuals that are not clipped, all of them rounded
        pair.other_u, pair.other_y = pair.u[pair.at].copy(), pair.y[pair.at] * (1 + 1e-9)
        one, other = pair.answers(whole)
        longest = np.linalg.norm(pair.theta) + 0.1 * (pair.steps + 1) * (clip + np.linalg.norm(pair.xi))
        order |= {"row_clip": clip, "local_steps": pair.steps, "rows": n, "longest": float(longest)}
        assert rho_of(float(np.linalg.norm(one - other)), 1.0) <= rho_of_answer("record", 1e9, 1e-9, dim=d, **order)


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "means"])
@pytest.mark.parametrize("size", [0.0, 1e-320, 1e-170, 1e160, 1e208, 1e300, np.inf])
@pytest.mark.parametrize("target", [0.0, 1e300, -np.inf])
def test_a_row_beyond_the_range_of_squares_moves_no_more_than_any_other(size, target, whole):
    rng = np.random.default_rng(4)
    for direction in ([1.0, 0.0], [1.0, -1.0]):
        pair = Pair(rng, 4, 2, 0.2, 0.5)
        pair.other_u, pair.other_y = np.array(direction), target
        pair.other_u[pair.other_u != 0] *= size
        pair.theta = np.array([1e100, 1e100])
        pair.y = pair.u @ pair.theta
        with np.errstate(all="ignore"):
            one, other = pair.answers(whole)
            longest = np.linalg.norm(pair.theta) + 0.2 * 41 * (0.5 + np.linalg.norm(pair.xi))
            floats = 2.0**-53 * pair.steps * (4 * 2 + 24 + 16 * whole) * longest
        assert np.isfinite(other).all()
        assert np.linalg.norm(one - other) <= floats
        pair.theta = rng.standard_normal(2)  # near, where the bound is that of the row clip
        pair.y = 3 * rng.standard_normal(4)
        assert pair.ratio(whole) <= 1 + ROUNDING


def test_without_weights_for_long_rows_the_bound_would_be_broken():
    def plain(u, y, hat, eta, clip):  # Huber's step alone
        length = np.linalg.norm(u)
        return hat - eta * u * np.clip(u @ hat - y, -clip / length, clip / length)

    eta, clip, u = 1.0, 1e6, np.array([3.0, 0.0])  # eta |u|^2 = 9
    one, other = np.zeros(2), np.array([0.01, 0.0])
    far = [float(np.linalg.norm(one - other))]
    for _ in range(3):
        one, other = plain(u, 1.0, one, eta, clip), plain(u, 1.0, other, eta, clip)
        far.append(float(np.linalg.norm(one - other)))
    assert far[-1] > 100 * far[0]
    table = u[None]
    rows = Rows(table, table, np.ones(1), 0.0, alias_slots(1), clip)
    ends = [rows(start, np.zeros(2), eta, 3, 0, 0, 0) for start in (np.zeros(2), np.array([0.01, 0.0]))]
    assert np.linalg.norm(ends[0] - ends[1]) <= far[0]


def test_rows_of_a_value_function_drift_apart_so_the_unit_record_is_refused():
    # two states and discount 0.9: phi (gamma phi' - phi)^T of a transition to a larger feature makes steps grow
    u, v = np.array([[1.0, 0.0]]), np.array([[1.0 - 0.9 * 2.0, 0.0]])
    local = Rows(u, v, np.ones(1), 0.0, alias_slots(1))
    ends = [local(start, np.zeros(2), 0.5, 20, 0, 0, 0) for start in (np.zeros(2), np.array([0.01, 0.0]))]
    assert np.linalg.norm(ends[0] - ends[1]) > 1
    with pytest.raises(ArgumentError, match="row_clip must be None"):
        replace(local, row_clip=1.0)
    with pytest.raises(ArgumentError, match="unit must be 'site' for a value function"):
        check_unit("record", regression=False)
    check_unit("record", regression=True)
    check_unit("site", regression=False)


def test_rows_are_drawn_more_often_than_the_bound_as_seldom_as_stated():
    n, H, seeds, tail = 20, 30, 4000, 0.02
    K = most_draws(H, n, tail)
    draws = np.array([(drawn(n, seed, H) == 7).sum() for seed in range(seeds)])
    assert np.mean(draws > K) <= tail + 4 * np.sqrt(tail / seeds)
    assert np.mean(draws > K - 1) > tail  # the smallest such bound


@pytest.mark.parametrize("n", [1, 3, 1000, 2**20 + 7, 3_000_001])
def test_no_row_is_likelier_than_the_bound_takes_it_to_be(n):
    slots = alias_slots(n).astype(np.int64)
    shift = 32 - (len(slots).bit_length() - 1)
    own, alias = (
        slots & ((1 << shift) - 1),
        slots >> shift,
    )  # the slot's own outcome below the threshold, else the alias
    share = np.zeros(max(n, len(slots)), np.int64)
    np.add.at(share, np.arange(len(slots)), own)
    np.add.at(share, alias, (1 << shift) - own)
    assert share.sum() == 2**32
    assert share.max() / 2**32 <= most_probable(n) < 1.002 / n + 2.0**-30


def test_an_answers_cost_is_that_of_its_bound_and_never_more_than_a_sites():
    order = {"step_size": 0.01, "row_clip": 2.0, "local_steps": 50, "rows": 1000}
    K = most_draws(50, 1000)
    assert rho_of_answer("record", 1.0, 0.5, **order) == pytest.approx(rho_of(2 * 0.01 * 2.0 * K, 0.5), rel=1e-8)
    whole = rho_of_answer("record", 1.0, 0.5, local="means", **order)
    assert whole == pytest.approx(rho_of(2 * 0.01 * 2.0 * 50 / 1000, 0.5), rel=1e-8)
    assert whole < 1e-3 * rho_of_answer("record", 1.0, 0.5, **order)  # no row is drawn five times there
    one = rho_of_answer("record", 1.0, 0.5, **{**order, "row_clip": 1e9})
    assert one == rho_of_answer("site", 1.0, 0.5)
    more = rho_of_answer("record", 1.0, 0.5, local="means", dim=3, grid=1e-3, longest=1e9, **order)
    assert more > whole


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"row_clip": None}, "row_clip must be given"),
        ({"ridge": 200.0}, "ridge must be at most 1 / step_size"),
        ({"rows": 0}, "rows must be a positive integer"),
        ({"local_steps": 0}, "local_steps must be a positive integer"),
        ({"local": "columns"}, "local must be"),
    ],
)
def test_what_the_bound_needs_is_asked_for(changed, words):
    order = {"step_size": 0.01, "row_clip": 2.0, "local_steps": 50, "rows": 1000}
    with pytest.raises(ArgumentError, match=words):
        rho_of_answer("record", 1.0, 0.5, **(order | changed))
