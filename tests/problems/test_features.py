"""Feature maps: dimension, length at most one, independence, settings; and whatever else may stand for a map."""

import json

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedlsa.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from fedlsa.problems import features
from fedlsa.problems.features import Aggregation, Fourier, OneHot, RadialBasis, TileCoding, names_of

LOW, HIGH = (-1.0, 0.0), (1.0, 3.0)
BOXES = [
    (TileCoding(LOW, HIGH, tiles=4), 16),
    (TileCoding(LOW, HIGH, tiles=(2, 3), tilings=3), 3 * 6 - 2),
    (TileCoding([0, 0, 0], [1, 1, 1], tiles=2, tilings=8), 8 * 8 - 7),
    (Fourier(LOW, HIGH, order=3), 16),
    (Fourier(LOW, HIGH, order=3, total=True), 10),
    (Fourier(0, 1, order=5), 6),
    (RadialBasis(LOW, HIGH, centres=(3, 4)), 12),
    (RadialBasis(LOW, HIGH, centres=[[0, 0], [0.5, 2], [-1, 3]], width=0.3), 3),
]
NUMBERED = [
    (OneHot(6), 6),
    (OneHot(6, without=[5, 2]), 4),
    (Aggregation(6, 4), 4),
    (Aggregation(6, [0, 1, 1, 0, 2, -1]), 3),
]


def states_of(box, n, margin=0.0):
    rng = np.random.default_rng(0)
    low, high = np.array(box.low), np.array(box.high)
    return low + (high - low) * ((1 + 2 * margin) * rng.random((n, len(low))) - margin)


@pytest.mark.parametrize(("box", "dim"), BOXES, ids=lambda x: str(x)[:48])
def test_features_of_a_box_have_the_stated_dimension_unit_length_at_most_and_are_independent(box, dim):
    inside = box(states_of(box, 4000))
    assert inside.shape == (4000, dim) == (4000, box.dim)
    assert inside.dtype == np.float64
    assert np.linalg.matrix_rank(inside) == dim
    outside = box(states_of(box, 4000, margin=5.0))
    for phi in (inside, outside):
        assert (np.linalg.norm(phi, axis=1) <= 1 + 1e-12).all()
    corners = np.clip(states_of(box, 4000, margin=5.0), box.low, box.high)
    np.testing.assert_array_equal(outside, box(corners))  # outside counts as the nearest point of the box


@pytest.mark.parametrize(("kind", "dim"), NUMBERED, ids=str)
def test_features_of_numbered_states_are_unit_vectors_or_nothing(kind, dim):
    phi = kind(np.arange(6))
    assert phi.shape == (6, dim) == (6, kind.dim)
    assert np.linalg.matrix_rank(phi) == dim
    assert set(phi.sum(axis=1)) <= {0.0, 1.0}
    assert set(phi.ravel()) == {0.0, 1.0}


@pytest.mark.parametrize("kind", [k for k, _ in BOXES + NUMBERED], ids=lambda x: str(x)[:48])
def test_settings_pass_through_json_and_give_an_equal_map(kind):
    assert features.from_settings(json.loads(json.dumps(kind.settings()))) == kind
    assert eval(repr(kind)) == kind


def test_values_written_out_by_hand():
    assert OneHot(3, without=[1])([2, 1, 0]).tolist() == [[0, 1], [0, 0], [1, 0]]
    assert Aggregation(5, 2)(range(5)).argmax(axis=1).tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(Fourier(0, 2, order=2)([0.5]), np.cos(np.pi * np.arange(3) / 4)[None] / 3**0.5)
    # two grids of two tiles: one changes at 1/2, the other, displaced by half a tile, at 1/4 (without its last tile)
    tiles = TileCoding(0, 1, tiles=2, tilings=2)([0.0, 0.3, 0.9]) * 2**0.5
    np.testing.assert_allclose(tiles, [[1, 0, 1], [1, 0, 0], [0, 1, 0]])
    near = RadialBasis(0, 1, centres=2, width=0.5)([0.25])
    bump = np.exp([-(0.5**2) / 2, -(1.5**2) / 2])
    np.testing.assert_allclose(near[0], bump / bump.sum())


def test_narrow_bumps_far_from_every_centre_do_not_underflow():
    phi = RadialBasis(0, 1, centres=[[0.0], [0.1]], width=1e-3)([1.0, 0.0])
    np.testing.assert_allclose(phi, [[0, 1], [1, 0]], atol=1e-12)


def test_anything_that_gives_features_can_stand_for_a_map():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    x = np.linspace(0, 1, 5)[:, None]
    polynomial = preprocessing.PolynomialFeatures(2).fit(x)
    np.testing.assert_allclose(features.apply(polynomial, x), np.hstack([x**0, x, x**2]))
    sparse = preprocessing.OneHotEncoder().fit(np.arange(3)[:, None])
    assert features.apply(sparse, np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert features.apply(lambda s: csr_array(s**2), x).tolist() == (x**2).tolist()
    assert features.apply([[1.0, 2], [3, 4]], np.array([1, 0, 1])).tolist() == [[3, 4], [1, 2], [3, 4]]
    assert features.apply(OneHot(2), [1]).tolist() == [[0, 1]]


class Unfitted:
    def transform(self, x):
        raise RuntimeError("this transformer\nis not fitted yet")


BAD_USES = [
    (
        lambda s: s,
        [1.0, 2],
        ArgumentError,
        "what features gives for 2 states must be an array of finite numbers of shape",
    ),
    (lambda s: np.full((2, 1), np.nan), [0, 1], ArgumentError, "got nan at [0, 0]"),
    (np.eye(2), [0, 2], ArgumentError, "states must be integers from 0 to 1; got 2 at [1]"),
    (np.eye(2), [0.5], ArgumentError, "states must be integers from 0 to 1; got 0.5 at [0]"),
    ("one-hot", [0], ArgumentTypeError, "features must be an array of finite numbers of shape (S, d); got 'one-hot'"),
    (Unfitted(), [[0.0]], ArgumentError, "fitted transformer for states of shape (1, 1); got: this transformer is not"),
    (OneHot, [0], ArgumentTypeError, "features must be a feature map, not its class; got OneHot"),
    (np.zeros((3, 0)), [0], ArgumentError, "features must have at least one column; got shape (1, 0)"),
    (Fourier(LOW, HIGH, 1), [[0.0, 0, 0]], ArgumentError, "states must be an array of finite numbers of shape (n, 2)"),
    (OneHot(10**12), [0], ArgumentError, "the number of states must be at most 0 to fit into"),
    (OneHot(3), [-1], ArgumentError, "states must be integers from 0 to 2; got -1 at [0]"),
]


@pytest.mark.parametrize(("kind", "states", "error", "message"), BAD_USES)
def test_what_gives_no_features_is_named(kind, states, error, message):
    with pytest.raises(error) as caught:
        features.apply(kind, states)
    assert message in str(caught.value)


BAD_MAPS = [
    (lambda: OneHot(0), ArgumentError, "states must be a positive integer; got 0"),
    (lambda: OneHot(3, without=[3]), ArgumentError, "without must be a non-negative integer and at most 2; got 3"),
    (lambda: OneHot(2, without=[0, 1]), ArgumentError, "without must leave at least one state; got all 2"),
    (lambda: OneHot(2, without=1), ArgumentTypeError, "without must be a list of states; got 1"),
    (lambda: Aggregation(3, [0, 1]), ArgumentError, "groups must hold the group of each of 3 states; got 2 entries"),
    (
        lambda: Aggregation(3, [0, 2, 2]),
        ArgumentError,
        "groups must be numbered from 0 without gaps; got none with number 1",
    ),
    (lambda: Aggregation(2, [-1, -1]), ArgumentError, "got none with number 0"),
    (lambda: Aggregation(3, 4), ArgumentError, "groups must be a positive integer and at most 3; got 4"),
    (lambda: Fourier([0, -np.inf], [1, np.inf], 2), ArgumentError, "low must be an array of finite numbers"),
    (lambda: Fourier([0, 0], [1], 2), ArgumentError, "high must be an array of finite numbers of shape (2,)"),
    (lambda: Fourier("box", 1, 2), ArgumentTypeError, "low must be an array of finite numbers"),
    (lambda: Fourier(1, 0, 2), ArgumentError, "high must be above low; got 0 against 1 for coordinate 0"),
    (lambda: Fourier(0, 1, -1), ArgumentError, "order must be a non-negative integer; got -1"),
    (lambda: TileCoding(LOW, HIGH, (2, 2, 2)), ArgumentError, "tiles must be one integer, or one per coordinate (2)"),
    (lambda: TileCoding(LOW, HIGH, 2, 0), ArgumentError, "tilings must be a positive integer; got 0"),
    (
        lambda: RadialBasis(LOW, HIGH, [[0.0]]),
        ArgumentError,
        "centres must be an array of finite numbers of shape (d, 2)",
    ),
    (lambda: RadialBasis(LOW, HIGH, 3, width=0), ArgumentError, "width must be a finite number above 0; got 0"),
    (lambda: features.from_settings({"name": "Fourrier"}), UnknownNameError, "did you mean 'Fourier'?"),
    (lambda: features.from_settings({"name": "OneHot"}), ArgumentError, "settings must hold 'states' for OneHot"),
    (lambda: features.from_settings({"name": "OneHot", "sates": 3}), UnknownNameError, "did you mean 'states'?"),
    (lambda: features.from_settings([1]), ArgumentTypeError, "must be a mapping with the key 'name'; got [1]"),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD_MAPS)
def test_maps_that_cannot_be_are_refused(make, error, message):
    with pytest.raises(error) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (OneHot(4, without=[1]), ("state 0", "state 2", "state 3")),
        (Aggregation(6, 2), ("group 0", "group 1")),
        (TileCoding(0, 1, 2), ("tile 0", "tile 1")),
        (TileCoding(0, 1, 2, 2), ("tiling 0, tile 0", "tiling 0, tile 1", "tiling 1, tile 0")),
        (Fourier([0, 0], [1, 1], 2, total=True), ("constant", "x1", "2 x1", "x0", "x0 + x1", "2 x0")),
        (RadialBasis([0, -1], [4, 1], (3, 1)), ("bump at 0, 0", "bump at 2, 0", "bump at 4, 0")),
        (RadialBasis(0, 4, [[1.0], [3.0]]), ("bump at 1", "bump at 3")),
    ],
)
def test_features_have_names(kind, names):
    if isinstance(kind, Fourier):
        names = tuple(n if n == "constant" else f"cos(pi ({n}))" for n in names)
    assert kind.names == names
    assert len(names) == kind.dim
    assert names_of(kind, kind.dim) == names


def test_names_of_a_transformer_are_its_own_and_others_are_numbered():
    class Named:
        def __init__(self, *names):
            self.names = names

        def get_feature_names_out(self):
            if not self.names:
                raise ValueError("not fitted")
            return np.array(self.names, object)

    assert names_of(Named("1", "x0^2 x1"), 2) == ("1", "x0^2 x1")
    for other in (Named(), Named("a"), Named("a", "a"), np.eye(2), np.sin):
        assert names_of(other, 2) == ("feature 0", "feature 1")
