"""A method of one's own is checked at its first use, in every engine: what compiled code would take in silence."""

from dataclasses import dataclass

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.paths import round_paths
from fedlsa.errors import ArgumentError, ArgumentTypeError

RING = fl.problems.ring(agents=4)
WRONG_ARGUMENT = (ArgumentError, ArgumentTypeError)


def lengths(of):
    """A method whose rounds have lengths `of` (uniform, thin)."""
    return type("Lengths", (fl.FedLSA,), {"observations": lambda self, uniform, thin: of(uniform, thin)})(0.1, 3)


def gains(of):
    """A method whose gains are `of` (eta, updates)."""
    return type("Gains", (fl.FedLSA,), {"gain": lambda self, eta, updates: of(eta, updates)})(0.1, 3)


def server(step):
    """A method with a step of the server."""
    return type("Server", (fl.SCAFFLSA,), {"server_step": staticmethod(step)})(0.1, 3)


def returns(theta, mean, parameters):
    return mean


def writes_and_returns(theta, mean, parameters):
    theta[:] = mean
    return theta


def rebinds(theta, mean, parameters):
    theta = 0.5 * theta + 0.5 * mean


def does_nothing(theta, mean, parameters):
    pass


WRONG = [
    (
        lengths(lambda u, thin: np.full(len(u), 2.5)),
        "observations of Lengths must be whole numbers below 2**63; got 2.5",
    ),
    (
        lengths(lambda u, thin: np.full(len(u), np.nan)),
        "observations of Lengths must be an array of finite numbers .*; got nan",
    ),
    (
        lengths(lambda u, thin: np.full(len(u), np.inf)),
        "observations of Lengths must be an array of finite numbers .*; got inf",
    ),
    (lengths(lambda u, thin: np.full(len(u), 2**63, np.uint64)), "observations of Lengths must be whole .*; got 9.22"),
    (lengths(lambda u, thin: np.zeros(len(u), int)), "observations of Lengths must be at least 1, .*; got 0"),
    (lengths(lambda u, thin: np.full(len(u), -2.0)), "observations of Lengths must be at least 1, .*; got -2"),
    (lengths(lambda u, thin: 3), r"observations of Lengths must be an array .* of shape .64,.; got shape"),
    (lengths(lambda u, thin: None), "observations of Lengths must be an array .* of shape .64,.; got None"),
    (
        gains(lambda eta, updates: np.full(len(eta), np.nan)),
        "gain of Gains must be an array of finite numbers .*; got nan at",
    ),
    (gains(lambda eta, updates: 1 / (0 * eta)), "gain of Gains must be an array of finite numbers .*; got inf at"),
    (gains(lambda eta, updates: 0.5), "gain of Gains must be an array of finite numbers of shape .64,.; got shape"),
    (gains(lambda eta, updates: ["a"] * len(eta)), "gain of Gains must be an array .* of shape .64,.; got .'a'"),
    (
        server(returns),
        "server_step of Server must overwrite theta and return nothing; got an array of shape .2,. .* back",
    ),
    (server(writes_and_returns), "server_step of Server must overwrite theta and return nothing; got an array"),
    (server(rebinds), "server_step of Server must overwrite theta; got one that leaves it as it is"),
    (server(does_nothing), "server_step of Server must overwrite theta; got one that leaves it as it is"),
]


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize(("method", "message"), WRONG, ids=[message[:60] for _, message in WRONG])
def test_what_a_method_must_not_say_of_its_rounds_is_refused_by_method_rule_and_value(engine, method, message):
    with np.errstate(all="ignore"), pytest.raises(WRONG_ARGUMENT, match="^" + message.replace("**", r"\*\*")):
        fl.simulate(RING, method, rounds=4, seeds=1, engine=engine)


def test_rounds_that_are_rarely_wrong_are_refused_when_they_come():
    """64 quantiles of the law of lengths do not see them."""
    rare = lengths(lambda u, thin: np.where(u < 0.001, 0.5, 3.0))
    type(rare).random_lengths = True
    with pytest.raises(ArgumentError, match=r"observations of Lengths must be whole numbers below 2\*\*63; got 0\.5"):
        fl.simulate(RING, rare, rounds=20_000, seeds=1)


def test_the_paths_of_agents_are_drawn_by_the_same_rules():
    with pytest.raises(ArgumentError, match="observations of Lengths must be whole numbers"):
        round_paths(RING, lengths(lambda u, thin: np.full(len(u), 2.5)), 3)


def test_whole_numbers_of_any_kind_are_lengths():
    for kind in (np.int32, np.uint8, np.float32, float):
        run = fl.simulate(RING, lengths(lambda u, thin, kind=kind: np.full(len(u), 3, kind)), rounds=4, seeds=1)
        assert run.samples.values[0, -1] == 12


@dataclass(frozen=True, repr=False)
class Careful(fl.SCAFFLSA):
    """A server that moves only where it is asked to move far."""

    @staticmethod
    def server_step(theta, mean, parameters):
        far = 0.0
        for i in range(len(theta)):
            far += abs(mean[i] - theta[i])
        if far > 0.1:
            for i in range(len(theta)):
                theta[i] = mean[i]


def test_a_server_that_writes_only_sometimes_is_taken():
    runs = [fl.simulate(RING, Careful(0.1, 3), rounds=4, seeds=1, engine=e).theta.values for e in ("cpu", "reference")]
    assert np.abs(runs[0] - runs[1]).max() < 1e-9
