"""Uploads in few bits: what is read is what was meant up to half a step, and nothing is lost for good."""

import numpy as np
import pytest

from fedlsa.errors import ArgumentError, ArgumentTypeError, MessageError
from fedlsa.network.protocol.client import client_finish, client_step
from fedlsa.network.protocol.closing import close_round, finish, finished
from fedlsa.network.protocol.coding import Coding, decode, encode, mark
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import accept, open_round
from fedlsa.network.protocol.server_state import ServerState

D = 2


def run(method, local, coding, rounds):
    """All thetas of a run of two sites without faults, the last server state, and the sites'."""
    settings = RunSettings(
        name="e", method=method, step_size=0.5, local_steps=5, rounds=rounds, sites=("a", "b"), weights=(1, 2)
    )
    state, sites, path = ServerState.start(settings, D), {}, []
    while not finished(state):
        state, orders = open_round(state, settings.sites)
        for site, work in orders.items():
            sites[site], answer = client_step(sites.get(site), work, local, coding)
            state, reason = accept(state, site, answer.record())
            assert reason is None
        state, _ = close_round(state)
        path.append(state.theta)
    return np.array(path), state, sites


def pulling_apart(theta, xi, eta, steps, first, seed, agent):
    """Two sites that disagree strongly about the first coordinate, and agree slowly that the second is 10."""
    A, b = np.array([1.0, 0.1]), np.array([2.0 if agent == 0 else -1.0, 1.0])
    for _ in range(steps):
        theta = theta - eta * (A * theta - b - xi)
    return theta


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("feedback", [True, False])
def test_what_is_read_is_within_half_a_step_of_what_was_meant(bits, feedback):
    rng = np.random.default_rng(0)
    for _ in range(200):
        d = int(rng.integers(1, 9))
        delta, residual = rng.standard_normal(d) * 10.0 ** rng.integers(-9, 9), rng.standard_normal(d)
        out = encode(delta, residual, Coding(bits=bits, feedback=feedback))
        wanted = delta + residual if feedback else delta
        step = np.abs(wanted).max() / (2 ** (bits - 1) - 1)
        assert np.abs(out.delta - wanted).max() <= 0.5 * step * (1 + 1e-12)
        np.testing.assert_array_equal(decode(out.payload, d), out.delta)
        np.testing.assert_array_equal(out.residual, wanted - out.delta if feedback else np.zeros(d))


@pytest.mark.parametrize("delta", [np.zeros(3), np.full(3, 1e-300), np.array([1e99, 0, -1e99])])
def test_nothing_and_extremes_are_written_too(delta):
    for bits in (None, 8, 16):
        out = encode(delta, np.zeros(3), Coding(bits=bits))
        assert np.abs(out.delta - delta).max() <= np.abs(delta).max() / 127


def test_fewer_bits_are_fewer_bytes():
    delta = np.random.default_rng(0).standard_normal(100)
    sizes = [sum(a.nbytes for a in encode(delta, delta * 0, Coding(bits=b)).payload.values()) for b in (8, 16, None)]
    assert sizes == [108, 208, 800]


def test_a_long_upload_is_shortened_to_the_clip():
    out = encode(np.array([3.0, 4.0]), np.zeros(2), Coding(clip=1.0))
    np.testing.assert_allclose(out.delta, [0.6, 0.8], rtol=1e-15)
    np.testing.assert_array_equal(encode(np.array([0.3, 0.4]), np.zeros(2), Coding(clip=1.0)).delta, [0.3, 0.4])


def test_scafflsa_with_eight_bits_reaches_the_solution_itself_because_its_uploads_vanish():
    path, state, _ = run("scafflsa", pulling_apart, Coding(bits=8), 150)
    np.testing.assert_allclose(path[-1], [0.0, 10.0], rtol=0, atol=1e-6)
    assert np.abs(state.settings.shares @ state.xi).max() < 1e-12


def test_error_feedback_saves_what_rounding_would_lose_where_uploads_do_not_vanish():
    """FedLSA's first coordinates stay large: beside them the small moves of the second round to nothing."""
    exact, _, _ = run("fedlsa", pulling_apart, Coding(), 150)
    np.testing.assert_allclose(exact[-1], [0.0, 10.0], rtol=0, atol=1e-6)
    fed, _, _ = run("fedlsa", pulling_apart, Coding(bits=8), 250)
    stuck, _, _ = run("fedlsa", pulling_apart, Coding(bits=8, feedback=False), 250)
    assert np.ptp(stuck[-100:, 1]) == 0
    assert 10 - stuck[-1, 1] > 0.01
    assert abs(10 - fed[-100:, 1].mean()) < 1e-3


def test_control_variates_sum_to_zero_exactly_with_rounded_and_noised_uploads():
    secret = np.random.default_rng(3)
    settings = RunSettings(name="e", method="scafflsa", step_size=0.5, local_steps=5, rounds=20, sites=("a", "b"))
    state, sites = ServerState.start(settings, D), {}
    while not finished(state):
        state, orders = open_round(state, settings.sites)
        for site, work in orders.items():
            sites[site], answer = client_step(
                sites.get(site), work, pulling_apart, Coding(bits=8, clip=0.5, noise=0.3), secret
            )
            state, _ = accept(state, site, answer.record())
        state, _ = close_round(state)
    xi = [client_finish(sites[s], last).xi for s, last in finish(state).items()]
    assert np.abs(xi[0] + xi[1]).max() < 1e-13
    assert np.abs(xi[0]).max() > 0.1
    assert sites["a"].releases == 20


def test_residuals_of_replies_that_were_not_averaged_are_not_used():
    settings = RunSettings(name="e", method="fedlsa", step_size=0.5, local_steps=5, rounds=9, sites=("a", "b"))
    state = ServerState.start(settings, D)
    state, orders = open_round(state, ["a", "b"])
    held, one = client_step(None, orders["a"], pulling_apart, Coding(bits=8))
    assert held.next_residual.any()
    state, _ = close_round(state)  # nothing arrived
    state, orders = open_round(state, ["a", "b"])
    held, other = client_step(held, orders["a"], pulling_apart, Coding(bits=8))
    np.testing.assert_array_equal(one.payload["codes"], other.payload["codes"])
    state, _ = accept(state, "a", other.record())
    state, _ = close_round(state)
    residual = held.next_residual
    state, orders = open_round(state, ["a", "b"])
    held, _ = client_step(held, orders["a"], pulling_apart, Coding(bits=8))
    np.testing.assert_array_equal(held.residual, residual)


def test_marks_tell_payloads_apart():
    one = encode(np.array([1.0, 2.0]), np.zeros(2), Coding()).payload
    assert mark(one) == mark({"delta": np.array([1.0, 2.0])})
    others = [{"delta": np.array([1.0, 2.0 + 1e-15])}, {"delta": np.array([2.0, 1.0])}]
    assert len({mark(p) for p in (one, *others)}) == 3
    assert 0 <= mark(one) < 2**48


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({}, "must be 'delta'"),
        ({"delta": np.zeros(3)}, "shape"),
        ({"delta": np.array([np.nan, 0])}, "finite"),
        ({"codes": np.zeros(2, np.int8)}, "must be 'delta'"),
        ({"codes": np.zeros(2, np.int16), "scale": np.array([1e200])}, "huge"),
        ({"codes": np.zeros(2, np.int16), "scale": np.array([1.0], np.float32)}, "float64"),
    ],
)
def test_dishonest_payloads_are_refused(payload, words):
    with pytest.raises(MessageError, match=words):
        decode(payload, 2)


@pytest.mark.parametrize("arguments", [{"bits": 4}, {"clip": 0}, {"clip": 1, "noise": -1}, {"noise": 1}])
def test_codings_that_make_no_sense_are_refused_by_name(arguments):
    with pytest.raises(ArgumentError, match=f"{list(arguments)[-1]} must"):
        Coding(**arguments)
    with pytest.raises(ArgumentTypeError, match="feedback must be True or False"):
        Coding(feedback=1)
