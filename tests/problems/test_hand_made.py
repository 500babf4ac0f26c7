"""What a problem means stands in its fields: problems that no constructor made go wherever others go."""

import inspect
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from tiers import mostly_long

import fedlsa as fl
from fedlsa.errors import FedLSAError
from fedlsa.problems import Chain, Dense, RankOne
from fedlsa.value_objects import same

GARNET = fl.problems.garnet(agents=2, states=3, features=2, seed=1)
LOG = ([[1.0, 0.0], [0.4, 1.0], [0.2, 0.3]], [1.0, 0.0, 2.0], [[0.4, 1.0], [0.2, 0.3], [1.0, 0.0]], [0, 0, 1])


def by_hand(observations, **options):
    """Two agents from the tables up, with chains of two states and of one."""
    conditional = np.array([0.6, 0.4, 0.2, 0.8, 1.0])
    origin, successor = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 0, 1, 0])
    chain = Chain(origin, successor, conditional, np.array([1 / 3, 2 / 3, 1.0]), np.array([0, 2, 3]))
    prob = conditional * np.array([1, 1, 2, 2, 3]) / 3
    return fl.Problem(observations, prob, np.array([0, 4, 5]), np.arange(2), np.full(2, 0.5), chain, **options)


ROWS = np.array([[1.0, 0.2], [0.1, 0.8], [1.0, 0.5], [0.5, 1.0]])
RANK_ONE = RankOne(ROWS, np.array([0, 0, 1, 1, 1]), np.array([0, 2, 3, 1, 1]), np.array([1.0, 0.5, 0.0, -0.5, 0.2]))
DENSE = Dense(*RANK_ONE.matrices(slice(0, 5)))
PARTS = {**vars(fl.theory.fedlsa_parts(GARNET)), **vars(fl.theory.scafflsa_parts(GARNET))}
PROBLEMS = {
    **{name: part for name, part in PARTS.items() if isinstance(part, fl.Problem)},
    "a chain, rank one": by_hand(RANK_ONE),
    "a chain, rank one, with a discount": by_hand(RANK_ONE, discount=0.9, laboratory=True),
    "a chain, dense": by_hand(DENSE, discount=0.9),
    "tables alone": fl.Problem(DENSE, np.full(5, 0.2), np.array([0, 5]), np.zeros(3, np.int64), np.full(3, 1 / 3)),
    "means": GARNET.on_means(),
    "other weights": replace(GARNET, weights=np.array([0.3, 0.7])),
    "other tables": replace(GARNET, assignment=np.array([1, 1])),
    "without a chain": replace(GARNET, chain=None),
    "observations": fl.problems.from_observations([([0.5, 0.5], np.eye(2) * [[[1]], [[2]]], np.ones((2, 2)))]),
    "transitions": fl.problems.from_transitions([LOG, LOG], 0.9),
    "traces": fl.problems.from_transitions([LOG, LOG], 0.9, trace=0.5),
    "importance": fl.problems.from_transitions([(*LOG, None, [0.5, 2.0, 1.0])] * 2, 0.9),
}
METHOD = fl.FedLSA(0.01, 4)
GIVEN = {
    "step_size": 0.01, "local_steps": 4, "rounds": 3, "algorithm": METHOD, "epsilon": 0.8, "method": "scafflsa",
    "theta": np.zeros(2), "thin": 2, "iterations": 5, "seeds": 2, "algorithms": [METHOD], "engine": "reference",
}  # fmt: skip
FUNCTIONS = {}  # of a problem, by name; trade_off makes many plans, and takes seconds
for name in sorted({*dir(fl), *dir(fl.theory)} - {"trade_off"}):
    function = getattr(fl if name in dir(fl) else fl.theory, name)
    if inspect.isfunction(function) and next(iter(inspect.signature(function).parameters)) in ("problem", "problems"):
        FUNCTIONS[name] = function

SLOW, LENGTHY = ("bootstrap", "check_problem"), pytest.mark.long


def arguments_of(function):
    """What a public function is given beside a problem."""
    known = inspect.signature(function).parameters
    given = {name: value for name, value in GIVEN.items() if name in known}
    if function.__name__ == "exact_iterations":
        given["algorithm"] = fl.Scaffnew(0.01, 0.25)
    if function.__name__ == "plan":
        del given["rounds"]  # one target is enough
    return given


@pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")
@pytest.mark.parametrize("function", [pytest.param(f, marks=LENGTHY if f in SLOW else ()) for f in FUNCTIONS])
def test_public_functions_take_every_problem_or_refuse_it_by_name(function):
    taken, slow = 0, ("transient", "a chain, dense", "means", "tables alone", "observations", "traces")
    for problem in (PROBLEMS[name] for name in (slow if function == "plan" else PROBLEMS)):
        with suppress(FedLSAError):
            FUNCTIONS[function](problem, **arguments_of(FUNCTIONS[function]))
            taken += 1
    assert taken >= 4


@pytest.mark.parametrize("name", mostly_long(PROBLEMS, list(PROBLEMS)[::3]))
def test_runs_of_every_problem_are_drawn_saved_and_made_again(name, tmp_path):
    problem = PROBLEMS[name]
    how = {"rounds": 3, "seeds": 2, "engine": "reference"}
    samplings = [fl.IID()] + [fl.Markov()] * (problem.chain is not None) + [fl.Replay()] * problem.ordered
    for sampling in samplings:
        run = fl.simulate(problem, METHOD, sampling=sampling, keep=("theta", "state"), **how)
        fl.results.save(run, tmp_path / "run.nc")
        again = fl.results.load(tmp_path / "run.nc")
        assert fl.simulate(**fl.results.arguments(again, problem=problem)).identical(run)
        assert fl.resume(again, 5, problem).sizes["rounds"] == 6
        assert np.isfinite(fl.figures.predicted_bias(again, problem)) == (sampling == fl.IID())
        assert fl.figures.error_curves(again)
    for sampling in samplings[:2] if not problem.ordered else samplings[:1]:
        exact = fl.theory.exact(problem, METHOD, rounds=3, sampling=sampling)
        assert fl.figures.exact_curves(exact, runs=run)
    assert fl.figures.bound_and_curve(fl.theory.bound(problem, METHOD, 3, record=3), exact, run)
    with pytest.raises(fl.errors.ArgumentError, match="problem"):  # no recipe, or rows of sites
        fl.results.arguments(again)


def test_a_problem_made_by_hand_is_worth_the_one_that_a_constructor_made():
    garnet = fl.problems.garnet(agents=3, states=4, features=2, seed=1)
    hand = fl.Problem(
        *(getattr(garnet, name) for name in ("observations", "prob", "first", "assignment", "weights", "chain"))
    )
    assert (hand.discount, hand.recipe, hand.made_by) == (0.95, {}, "hand")
    assert (garnet.laboratory, hand.laboratory) == (True, False)
    for function in ("constants", "td_claim", "virtual_mdp", "value_functions", "stationary_law", "markov_constants"):
        found = [FUNCTIONS[function](problem) for problem in (hand, garnet)]
        assert same(*(x if isinstance(x, np.ndarray) else {**vars(x), "problem": None} for x in found))
    assert fl.theory.td_bound(hand, METHOD, 9, garnet.start).value == fl.theory.td_bound(garnet, METHOD, 9).value


def test_parts_and_changed_copies_keep_what_a_problem_means():
    known = fl.theory.constants(GARNET)
    for name in ("transient", "noise", "heterogeneity"):
        of = fl.theory.constants(PROBLEMS[name])
        assert (of.nu, of.discount, of.L, of.L_td) == (known.nu, known.discount, known.L, known.L_td)
    for name in ("virtual", "fluctuation", "means", "other weights", "other tables", "without a chain"):
        kept = PROBLEMS[name]
        assert (kept.discount, kept.trace, kept.off_policy, kept.laboratory) == (0.95, 0.0, False, True)


def test_a_changed_copy_does_not_keep_the_recipe_of_another_problem():
    for name in ("transient", "means", "other weights", "other tables"):
        assert PROBLEMS[name].recipe == {}
    run = fl.simulate(PROBLEMS["other weights"], METHOD, 3, 1, engine="reference")
    with pytest.raises(fl.errors.ArgumentError, match="problem"):
        fl.results.arguments(run)


def test_the_feature_eigenvalue_is_of_td_0_on_the_policys_own_transitions():
    known = {name: fl.theory.constants(PROBLEMS[name]) for name in ("transitions", "traces", "importance")}
    phi = np.array(LOG[0])
    np.testing.assert_allclose(known["transitions"].nu, np.linalg.eigvalsh(phi.T @ phi / 3)[0], rtol=1e-12)
    assert np.isnan([known["traces"].nu, known["importance"].nu]).all()


def test_a_discount_that_observations_contradict_is_refused():
    with pytest.raises(fl.errors.ArgumentError, match=r"^discount must be that of the observations, 0.95; got 0.9$"):
        replace(GARNET, discount=0.9)
