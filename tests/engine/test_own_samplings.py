"""Samplings from outside fedlsa: another order of the rows, and another law of them."""

from dataclasses import dataclass

import numpy as np
import own_samplings
import pytest
from own_samplings import Prioritised, Reshuffled

import fedlsa as fl
from fedlsa.engine.hooks import draw_pass
from fedlsa.errors import ArgumentError, ArgumentTypeError

RING = fl.problems.ring(agents=3, noise=0.5)


def sampling(**members):
    """An object of a class with these members."""
    return dataclass(frozen=True, repr=False)(type("Mine", (fl.Sampling,), members))()


def test_passes_are_permutations_that_differ_by_seed_agent_and_pass():
    each = [draw_pass(Reshuffled(), *which, 9).tolist() for which in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert all(sorted(rows) == list(range(9)) for rows in each)
    assert len(set(map(tuple, each))) == 4


def test_permutations_are_equally_likely():
    """chi^2 with 5 degrees of freedom is above 25.7 once in 10,000."""
    drawn = [tuple(draw_pass(Reshuffled(), 7, 2, number, 3).tolist()) for number in range(6000)]
    count = np.array([drawn.count(rows) for rows in set(drawn)])
    assert len(count) == 6
    assert np.sum((count - 1000) ** 2 / 1000) < 25.7


def test_a_run_sees_each_row_once_in_a_pass():
    """One step per round with eta = 1 on the rows e_k: theta takes the targets in the order of the pass."""
    p = fl.problems.regression([(np.eye(5), np.arange(1.0, 6))])
    theta = fl.simulate(p, fl.FedLSA(1.0, 1), 10, seeds=3, theta_0=np.zeros(5), sampling=Reshuffled())["theta"].values
    known = (theta != 0).sum(2)
    assert known.tolist() == [[0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5]] * 3


def rare(rows, words):
    if words[0] < 40_000_000:
        rows[0] = 99


WRONG = [
    ({"order": staticmethod(rare)}, "order of Mine must give numbers of rows, below their length, and not raise; got"),
    ({"order": staticmethod(lambda rows: None)}, r"order, .*lambda.*, must be a static function \(rows, words\)"),
    ({"reweighted": lambda self, p: 4}, "reweighted of Mine must be a fedlsa problem; got 4"),
    (
        {"reweighted": lambda self, p: fl.problems.ring(3)},
        "reweighted of Mine must keep b_bar of every agent; got .* off",
    ),
    ({"reweighted": lambda self, p: fl.problems.ring(2)}, "reweighted of Mine must keep A_bar of every agent; got"),
    (
        {"reweighted": lambda self, p: fl.problems.garnet(2).with_prob(fl.problems.garnet(2).prob)},
        "reweighted of Mine must keep A_bar",
    ),
]


@pytest.mark.parametrize("engine", [pytest.param("cpu", marks=pytest.mark.long), "reference"])
@pytest.mark.parametrize(("members", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_what_a_sampling_must_not_say_is_refused(engine, members, message):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=f"^{message}"):
        fl.simulate(RING, fl.FedLSA(0.1, 10), 500, 4, sampling=sampling(**members), engine=engine)


def test_an_order_is_refused_where_it_would_be_another_law_and_by_theory():
    with pytest.raises(ArgumentError, match="problem must have equal prob: order of Reshuffled needs"):
        fl.simulate(fl.problems.garnet(2), fl.FedLSA(0.1, 2), 3, sampling=Reshuffled())
    with pytest.raises(ArgumentError, match=r"sampling must be IID\(\) for exact moments; got Reshuffled\(\)"):
        fl.theory.exact(RING, fl.FedLSA(0.1, 2), 3, sampling=Reshuffled())
    with pytest.raises(ArgumentError, match="prob must be above 0 where an outcome can happen; got 0 at"):
        RING.with_prob(0 * RING.prob)


def test_a_result_names_the_sampling_and_asks_for_it():
    run = fl.simulate(RING, fl.FedLSA(0.1, 2), 3, sampling=Prioritised(0.5), keep=("theta", "state"))
    assert '"repr": "Prioritised(power=0.5)"' in run.attrs["sampling"]
    for given in (None, Prioritised(), fl.IID()):
        with pytest.raises(ArgumentError, match=r"sampling must be passed, that of the run, Prioritised\(power=0.5\)"):
            fl.results.arguments(run, problem=RING, sampling=given)
    longer = fl.resume(run, 6, problem=RING, sampling=Prioritised(0.5))
    assert longer.identical(fl.simulate(**fl.results.arguments(longer, problem=RING, sampling=Prioritised(0.5))))
    usual = fl.simulate(RING, fl.FedLSA(0.1, 2), 3)
    with pytest.raises(ArgumentError, match="sampling must be the one this result was made with"):
        fl.results.arguments(usual, problem=RING, sampling=fl.Replay())


def test_the_example_runs(capsys):
    own_samplings.main(rounds=10, seeds=2)
    assert capsys.readouterr().out.count("exactly") == 2
