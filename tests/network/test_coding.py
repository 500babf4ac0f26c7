"""Uploads on a grid, in few bits, in shares: what is read is what was meant up to half a step, and sums are exact."""

from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from faulty_world import pair_secrets

from fedlsa.errors import ArgumentError, MessageError
from fedlsa.network.protocol.client import SiteRun, client_finish, client_step
from fedlsa.network.protocol.ring import (
    STATISTICS,
    VECTORS,
    Coding,
    Grid,
    add,
    encode,
    from_share,
    masked,
    pair_secret,
    to_floats,
    to_integers,
    to_share,
)
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import ServerState, accept, close_round, finish, finished, open_round

D = 2
SITES = ("a", "b", "c")


def pulling_apart(agent):
    """Sites that disagree strongly about the first coordinate, and agree slowly that the second is 10."""
    A, b = np.array([1.0, 0.1]), np.array([(3.0, -1.0, -2.0)[agent], 1.0])

    def local(theta, xi, eta, steps, label):
        for _ in range(steps):
            theta = theta - eta * (A * theta - b - xi)
        return theta

    return local


def rounded_noise(rng):
    return lambda variance, size: [round(float(e) * float(variance) ** 0.5) for e in rng.standard_normal(size)]


def run(method, rounds, **options):
    """All thetas of a run of three sites without faults, the last server state, and what the sites hold at the end."""
    settings = RunSettings(
        name="e", method=method, step_size=0.5, local_steps=5, rounds=rounds, sites=SITES, outlier=0.0, **options
    )
    secrets, rng = pair_secrets(SITES), np.random.default_rng(3)
    runs = {
        site: SiteRun(
            site,
            settings.sites,
            "t",
            pulling_apart(c),
            settings.coding,
            secrets[site],
            True,
            rounded_noise(rng),
            method,
        )
        for c, site in enumerate(SITES)
    }
    state, sites, path = ServerState.start(settings, D), {}, []
    while not finished(state):
        state, orders = open_round(state, SITES)
        for site, work in orders.items():
            sites[site], answer = client_step(sites.get(site), work, runs[site])
            state, reason = accept(state, site, answer)
            assert reason is None
        state, closed = close_round(state)
        assert closed.averaged, closed.why
        path.append(state.theta)
    ends = {site: client_finish(sites[site], last, runs[site])[0] for site, last in finish(state).items()}
    return np.array(path), state, ends


def test_in_eight_bits_a_site_of_small_weight_still_writes_a_hundredth_of_the_longest_change():
    for sites in (2, 10, 50):
        coding, weight = Coding(clip=3.0, quantise=8), 1 / sites
        grid = coding.grid
        sent = encode(np.array([0.03, 0.0]), np.zeros(2), weight, 0.0, coding)
        assert abs(sent.delta[0] - 0.03) <= 0.01
        most = [encode(np.array([3.0, 0.0]), np.zeros(2), weight, 0.0, coding).integers] * sites
        total = add([to_share(integers, grid.limbs) for integers in most])
        assert from_share(total)[0] * grid.unit == pytest.approx(3.0, rel=0.01)  # the sum is in range


@pytest.mark.parametrize("weight", [0.01, 0.5])
@pytest.mark.parametrize("coding", [Coding(), Coding(clip=3.0, quantise=8)], ids=["64 bits", "8 bits"])
def test_a_change_of_any_length_is_in_range_so_that_no_refusal_tells_of_it(coding, weight):
    for length in (2.9, 1e9, 1e300, np.inf, -np.inf, np.nan):
        out = encode(np.array([length, 1.0]), np.zeros(2), weight, 0.0, coding)
        to_share(out.integers, coding.grid.limbs)
        assert np.isfinite(out.delta).all()


@pytest.mark.parametrize("quantise", [8, 16])
def test_what_is_read_is_within_half_a_step_of_what_was_meant(quantise):
    rng = np.random.default_rng(0)
    for _ in range(200):
        d, weight = int(rng.integers(1, 9)), float(rng.uniform(0.01, 1))
        delta, residual = rng.standard_normal(d), rng.standard_normal(d)
        bound = float(np.linalg.norm(delta + residual)) * 1.01
        coding = Coding(clip=bound, quantise=quantise)
        grid = coding.grid
        out = encode(delta, residual, weight, 0.0, coding)
        assert np.abs(weight * (out.delta - delta - residual)).max() <= 0.5 * grid.unit * (1 + 1e-12)
        np.testing.assert_allclose(out.residual, delta + residual - out.delta, rtol=0, atol=1e-15)
        share = to_share(out.integers, grid.limbs)
        np.testing.assert_allclose(np.array(to_floats(from_share(share), grid.unit)) / weight, out.delta, rtol=1e-15)


@pytest.mark.parametrize("delta", [np.zeros(3), np.full(3, 1e-18), np.array([1e17, 0, -1e17])])
def test_without_bits_numbers_are_kept_to_the_last_digits(delta):
    out = encode(delta, np.zeros(3), 0.25, 0.0, Coding())
    assert np.abs(out.delta - delta).max() <= 2.0**-62 + 1e-15 * np.abs(delta).max()
    assert not out.residual.any()


def test_fewer_bits_are_fewer_bytes():
    grids = [Coding(clip=1.0, quantise=bits).grid for bits in (8, 16, None)]
    assert [to_share([0] * 100, grid.limbs).nbytes for grid in grids] == [200, 400, 1600]


def test_a_long_upload_is_shortened_to_the_clip():
    out = encode(np.array([3.0, 4.0]), np.zeros(2), 1.0, 0.0, Coding(clip=1.0))
    np.testing.assert_allclose(out.delta, [0.6, 0.8], rtol=1e-15)
    out = encode(np.array([3.0, 4.0]), np.zeros(2), 1.0, 2.5, Coding())
    np.testing.assert_allclose(out.delta, [1.5, 2.0], rtol=1e-15)
    out = encode(np.array([0.3, 0.4]), np.zeros(2), 1.0, 2.5, Coding(clip=1.0))
    np.testing.assert_allclose(out.delta, [0.3, 0.4], rtol=1e-15)


def test_scafflsa_with_eight_bits_reaches_the_solution_because_its_uploads_vanish():
    path, _, _ = run("scafflsa", 200, quantise=8, clip=20.0)
    unit = Coding(clip=20.0, quantise=8).grid.unit
    assert np.abs(path[-50:].mean(axis=0) - [0.0, 10.0]).max() < unit  # error feedback: the mean is finer than the grid


def test_control_variates_sum_to_zero_exactly_with_rounded_and_noised_uploads():
    _, _, ends = run("scafflsa", 20, quantise=16, clip=0.5, noise=0.3)
    xi = np.stack([ends[site].xi for site in SITES])
    assert np.abs(xi.sum(axis=0)).max() < 1e-12
    assert np.abs(xi).max() > 0.1


def test_noise_has_the_deviation_that_was_asked_for_and_is_added_to_the_integers():
    drawn = []

    def source(variance, size):
        drawn.append((variance, size))
        return list(range(size))

    coding = Coding(clip=2.0, noise=0.5)
    out = encode(np.array([3.0, 4.0]), np.zeros(2), 0.25, 0.0, coding, source)
    assert drawn == [((Fraction(0.25) * 2**64) ** 2, 2)]
    bare = encode(np.array([3.0, 4.0]), np.zeros(2), 0.25, 0.0, Coding(clip=2.0))
    assert out.integers == [bare.integers[0], bare.integers[1] + 1]
    with pytest.raises(ArgumentError, match="noise must be a source"):
        encode(np.zeros(2), np.zeros(2), 0.25, 0.0, coding)


def test_residuals_of_replies_that_were_not_averaged_are_not_used():
    settings = RunSettings(
        name="e", method="fedlsa", step_size=0.5, local_steps=5, rounds=9, sites=("a", "b"), quantise=8, clip=20.0,
        min_sites=1,
    )  # fmt: skip
    site = SiteRun("a", settings.sites, "t", pulling_apart(0), settings.coding, method="fedlsa")
    state = ServerState.start(settings, D)
    state, orders = open_round(state, ["a", "b"])
    held, one = client_step(None, orders["a"], site)
    assert held.next_residual.any()
    state, _ = close_round(state)  # nothing arrived
    state, orders = open_round(state, ["a", "b"])
    held, other = client_step(held, orders["a"], site)
    np.testing.assert_array_equal(one.share, other.share)
    state, _ = accept(state, "a", other)
    state, closed = close_round(state)
    assert closed.averaged
    residual = held.next_residual
    state, orders = open_round(state, ["a", "b"])
    held, _ = client_step(held, orders["a"], site)
    np.testing.assert_array_equal(held.residual, residual)


# shares


@pytest.mark.parametrize("grid", [VECTORS, STATISTICS, Grid(2.0**-10, 1), Grid(0.37, 2)], ids=str)
def test_sums_of_masked_shares_are_the_sums_of_the_integers(grid):
    rng = np.random.default_rng(1)
    names = [f"site-{c}" for c in range(7)]
    secrets, most = pair_secrets(names), 2 ** (16 * grid.limbs - 2)
    hidden = {name: [most // 10 * int(x) // 1000 for x in rng.integers(-1000, 1000, 5)] for name in names}
    hidden[names[0]][:2] = [most - 1, -(most - 1)]
    shares = {n: masked(to_share(hidden[n], grid.limbs), n, secrets[n], b"label") for n in names}
    assert from_share(add(list(shares.values()))) == [sum(column) for column in zip(*hidden.values(), strict=True)]
    other = {n: masked(to_share(hidden[n], grid.limbs), n, secrets[n], b"other") for n in names}
    assert all((shares[n] != other[n]).any() for n in names)
    wrong = [*list(shares.values())[:-1], other[names[-1]]]  # one of them was told something else
    assert from_share(add(wrong)) != [sum(column) for column in zip(*hidden.values(), strict=True)]


def test_integers_and_their_negatives_survive_limbs_of_every_length():
    rng = np.random.default_rng(2)
    for limbs in (1, 2, 8, 80):
        values = [0, 1, -1, 2 ** (16 * limbs - 2) - 1, -(2 ** (16 * limbs - 2)) + 1]
        values += [int(x) for x in rng.integers(-16000, 16000, 20)]
        share = to_share(values, limbs)
        assert from_share(share) == values
        less = to_share([-v for v in values], limbs)
        both = masked(share, "a", {"b": bytes(32)}, b"label"), masked(less, "b", {"a": bytes(32)}, b"label")
        assert from_share(add(both)) == [0] * len(values)  # what one adds the other takes


def test_fractions_are_written_exactly_and_numbers_out_of_range_are_refused():
    third = Fraction(1.1) * Fraction(2.3) + Fraction(5e-60)
    assert Fraction(to_integers([third], STATISTICS.unit)[0], 2**512) == third
    assert to_floats([1, -3], 0.25) == [0.25, -0.75]
    for bad in ([float("nan")], [float("inf")]):
        with pytest.raises(MessageError, match="finite"):
            to_integers(bad, VECTORS.unit)
    with pytest.raises(MessageError, match="too large"):
        to_share(to_integers([1e19], VECTORS.unit), VECTORS.limbs)


def test_two_sites_have_one_secret_and_a_third_has_not():
    keys = [X25519PrivateKey.generate() for _ in range(3)]
    public = [key.public_key().public_bytes_raw() for key in keys]
    assert pair_secret(keys[0], public[1]) == pair_secret(keys[1], public[0])
    assert pair_secret(keys[2], public[1]) != pair_secret(keys[0], public[1])
    for bad in (b"", b"x" * 31, bytes(32)):  # the last is the point that makes every secret 0
        with pytest.raises(MessageError, match="X25519"):
            pair_secret(keys[0], bad)


@pytest.mark.parametrize(
    "arguments",
    [{"quantise": 4}, {"quantise": 8}, {"clip": 0}, {"clip": 1, "noise": -1}, {"noise": 1}, {"unit": "row"}],
)
def test_codings_that_make_no_sense_are_refused_by_name(arguments):
    with pytest.raises(ArgumentError, match=f"{list(arguments)[-1]} must"):
        Coding(**arguments)
