"""A run between sites has the standard errors that fl.fit has, which sees all rows: from masked sums alone."""

import contextlib

import numpy as np
import pytest
from memory_world import MemoryWorld
from msgspec.structs import replace
from tables_of_sites import write_table
from tiers import longer, mostly_long

import fedlsa as fl
from fedlsa.errors import ArgumentError, NetworkError
from fedlsa.fitting.tasks import shared_intercept
from fedlsa.network.coordinator.commands import model, outcome
from fedlsa.network.coordinator.run_loop import complete_run
from fedlsa.network.coordinator.runs import summary
from fedlsa.network.protocol.messages import Continued, Score, Solve
from fedlsa.network.protocol.run_settings import StartOptions

SIZES = (60, 95, 130, 75)
TASKS = {
    "pooled least squares": fl.Regression("y"),
    "no intercept, own units": fl.Regression("y", intercept=False, standardise=False),
    "ridge": fl.Regression("y", ridge=0.2),
    "own intercepts": fl.Regression("y", own="intercept"),
}


STEPS = ((1.0, 1), (0.24, 2), (0.83, 1), (1.0, 1))  # step size and local steps that are quick, on means, for each task


class UnevenWorld(MemoryWorld):
    """Sites of different sizes, and rows of different variances."""

    def __init__(self, root, task=None, **policy):
        super().__init__(root, TASKS["pooled least squares"] if task is None else task, **policy)
        rng = np.random.default_rng(8)
        self.tables = {}
        for c, (site, n) in enumerate(zip(self.network.sites, SIZES, strict=True)):
            X = rng.normal(size=(n, 3)) * (1 + 0.2 * c) + 0.3 * c
            y = X @ [1.0, 0.5, -0.2] + 2 + rng.normal(size=n) * (0.5 + np.abs(X[:, 0]))
            write_table(self.root / f"{site}.csv", np.column_stack([X, y]))
            self.tables[site] = {"x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2], "y": y}

    def handler(self, site):
        """One for each site, which is quicker than a new one for each order."""
        self.handlers = vars(self).get("handlers", {})
        if site not in self.handlers:
            self.handlers[site] = super().handler(site)
        return self.handlers[site]

    def model(self, rounds=3, **options):
        run = self.start(**{"step_size": 0.05, "local_steps": 20, "rounds": rounds, "local": "means", **options})
        complete_run(self.network, run, self)
        self.result = run.read("result.json")
        model(self.network.folder).save(self.root / "model.json")
        return fl.Fit.load(self.root / "model.json")


def assert_same_fit(found, fit):
    for name in ("theta", "standard_error", "covariance", "p_values", "residual_variance", "r_squared"):
        right = np.asarray(getattr(fit, name))
        assert np.abs(np.asarray(getattr(found, name)) - right).max() <= 1e-9 * np.abs(right).max(), name
    assert found.degrees_of_freedom == pytest.approx(fit.degrees_of_freedom, rel=1e-9)
    assert found.covariance_kind == fit.covariance_kind


@pytest.mark.parametrize("weight", ["samples", longer("sites")])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_a_run_between_sites_has_the_standard_errors_of_all_rows(tmp_path, task, weight):
    world = UnevenWorld(tmp_path, task, share_scores=True)
    found, fit = world.model(weight=weight), fl.fit(world.tables, task, weight=weight, plan=False)
    assert_same_fit(found, fit)
    claim = "x0 = 1, x1 = x2"
    assert found.test(claim).p_value == pytest.approx(fit.test(claim).p_value, rel=1e-7)
    new = world.tables["site-1"]
    for name in ("low", "high", "observation_low", "observation_high") if task.own is None else ():
        right = getattr(fit.predict_interval(new), name)
        assert np.abs(getattr(found.predict_interval(new), name) - right).max() <= 1e-8 * np.abs(right).max()
    assert fit.summary().tables == found.summary().tables


@pytest.mark.parametrize(("task", "steps"), list(zip(TASKS.values(), STEPS, strict=True)), ids=TASKS.keys())
@pytest.mark.long
def test_chosen_coefficients_have_their_errors_from_rounds_of_their_own(tmp_path, task, steps):
    world = UnevenWorld(tmp_path, task)
    last = "intercept" if shared_intercept(task) else "x2"
    found = world.model(rounds=24, step_size=steps[0], local_steps=steps[1], errors_of=("x1", last))
    fit = fl.fit(world.tables, task, covariance="HC1", plan=False)
    chosen = [fit.names.index(name) for name in ("x1", last)]
    for name in ("theta", "standard_error", "t_values"):
        right = getattr(fit, name)[chosen]
        assert np.abs(getattr(found, name)[chosen] - right).max() <= 1e-9 * np.abs(right).max(), name
    claim = f"x1 = {last}"
    assert found.test(claim).p_value == pytest.approx(fit.test(claim).p_value, rel=1e-7)
    assert np.isnan(found.standard_error[0])
    assert found.notes == ()


def test_a_run_on_rows_has_the_same_errors_and_says_how_far_it_ended(tmp_path):
    world = UnevenWorld(tmp_path, share_scores=True)
    found = world.model(local="rows", rounds=2, step_size=0.005, local_steps=100)
    assert_same_fit(found, fl.fit(world.tables, world.task, plan=False))
    off = np.max(np.abs(found.protocol - found.theta) / found.standard_error)
    assert off > 0.1
    assert f"ended {off:.2g} standard errors from the solution" in str(found.summary()).replace("\n  ", " ")
    assert np.array_equal(found.optimisation, np.abs(found.protocol - found.theta))


def test_a_site_that_shares_no_scores_is_named_and_the_estimate_stands(tmp_path):
    world = UnevenWorld(tmp_path)
    found = world.model()
    sentence = "share_scores is not true in the policy of site-1, site-2, site-3, site-4"
    assert found.covariance_kind == f"none: {sentence}"
    assert np.isfinite(found.theta).all()
    assert np.isnan(found.covariance).all()
    assert f"no standard errors: {sentence}" in summary(outcome(world.network.folder))
    assert not any(world.handler(site).ledger.refusals for site in world.network.sites)  # nobody is asked in vain


def test_chosen_coefficients_ask_for_no_more_numbers_than_a_round_has(tmp_path):
    world = UnevenWorld(tmp_path)  # 4 coefficients: the errors of 3 are 6 numbers
    with pytest.raises(NetworkError, match=r"share_scores.*more numbers than those of a round"):
        world.model(errors_of=("x0", "x1", "x2"))


def test_wrong_coefficients_are_named_before_the_first_round(tmp_path):
    world = UnevenWorld(tmp_path)
    with pytest.raises(NetworkError, match=r"each of errors_of must be .*'x9'"):
        world.model(errors_of=("x9",))


@pytest.mark.parametrize("options", [{"noise": 1.0, "clip": 1.0}, {"method": "fedlsa"}, {"trim": 1}])
def test_rounds_for_errors_come_without_noise_and_bias(options):
    with pytest.raises(ArgumentError, match="errors_of must come without"):
        StartOptions(step_size=0.1, local_steps=2, rounds=2, errors_of=["x0"], **options)


def test_noise_on_uploads_has_no_part_in_errors_where_sites_share_exact_sums(tmp_path):
    """The coefficients are the solution; how far noise has moved the run is known to the last digit."""
    world = UnevenWorld(tmp_path, share_scores=True)
    found = world.model(noise=0.05, clip=1.0)
    assert "left without noise" in world.result["privacy"]
    fit = fl.fit(world.tables, world.task, plan=False)
    assert_same_fit(found, fit)
    assert found.optimisation == pytest.approx(np.abs(found.protocol - fit.theta), rel=1e-6)


def test_sites_with_a_privacy_budget_share_no_exact_scores(tmp_path):
    world = UnevenWorld(tmp_path, TASKS["no intercept, own units"], share_scores=True, privacy="site", epsilon=1e6)
    assert np.isnan(world.model(noise=0.5, clip=1.0).standard_error).all()


@pytest.mark.parametrize("answers", mostly_long(range(16, 34, 4), [20, 28]))
def test_a_coordinator_that_dies_among_the_last_sums_goes_on_to_the_same_bits(tmp_path, answers):
    world, count = UnevenWorld(tmp_path, share_scores=True), 0
    run = world.start(step_size=0.05, local_steps=20, rounds=2, local="means")

    def die(site, answer):
        nonlocal count
        count += 1
        if count == answers:
            raise ConnectionError
        return answer

    world.meddle = die
    with contextlib.suppress(ConnectionError):
        complete_run(world.network, run, world)
    complete_run(world.network, run, world)
    assert_same_fit(model(world.network.folder), fl.fit(world.tables, world.task, plan=False))


class Liar(UnevenWorld):
    """A coordinator that changes its orders; `forge` maps an order to another one, the same for all sites."""

    def ask(self, orders, deadline):
        for site, answer in super().ask({site: self.forge(order) for site, order in orders.items()}, deadline):
            if answer.kind == "refusal":
                self.refusals.append(answer.text)
            yield site, answer


@pytest.fixture
def liar(tmp_path):
    world = Liar(tmp_path, share_scores=True)
    world.refusals = []
    return world


def test_a_false_system_that_would_give_one_row_the_leverage_of_all_is_refused(liar):
    """1 / (1 - h)^2 of a row grows without bound as A falls to what the row alone puts into it."""
    liar.forge = lambda order: replace(order, A=0.2 * order.A) if order.kind == "score" else order
    liar.model()
    first, *others = liar.refusals
    assert "cannot read its data" in first
    assert others == ["this site answers no more orders of the run trial: it could not be followed on this table"]
    assert np.isnan(model(liar.network.folder).covariance).all()


def test_scores_are_told_once_in_a_run(liar):
    liar.forge = lambda order: order
    run = liar.start(step_size=0.05, local_steps=20, rounds=2, local="means")
    orders = []
    liar.forge = lambda order: orders.append(order) or order
    complete_run(liar.network, run, liar)
    scores = next(order for order in orders if order.kind == "score")
    for other in (replace(scores, theta=scores.theta + 1), replace(scores, directions=-scores.directions)):
        answer = liar.handler("site-1").answer(other)
        assert answer.kind == "refusal"
    again = liar.handler("site-1").answer(scores)
    assert again.kind == "refusal"  # the run is over


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        (Solve, {}, "the policy of this site forbids it (share_scores): more numbers than those of a round"),
        (Score, {"directions": np.eye(4), "A": np.eye(4)}, "the policy of this site forbids it (share_scores)"),
        (Score, {"directions": np.eye(4)}, "'directions' must be of the coefficients that the terms ask for"),
    ],
)
def test_sums_that_neither_policy_nor_terms_allow_are_refused(tmp_path, kind, more, why):
    world = Liar(tmp_path)
    world.refusals = []

    def forge(order):
        same = {field: getattr(order, field) for field in Continued.__struct_fields__ if order.kind == "finish"}
        return kind(**same, **more) if same else order

    world.forge = forge
    world.model(rounds=1)
    assert len(world.refusals) == 4
    assert all(text.startswith(why) for text in world.refusals)


def test_errors_of_one_coefficient_come_from_few_rounds(tmp_path):
    world = UnevenWorld(tmp_path)
    found = world.model(rounds=10, step_size=1.0, local_steps=1, errors_of=("x1",))
    fit = fl.fit(world.tables, world.task, covariance="HC1", plan=False)
    assert found.theta[1] == pytest.approx(fit.theta[1], rel=1e-6)
    assert found.standard_error[1] == pytest.approx(fit.standard_error[1], rel=1e-6)
    assert found.test("x1 = 0").p_value == pytest.approx(fit.test("x1 = 0").p_value, rel=1e-4)


def test_directions_that_have_not_settled_are_said_to(tmp_path):
    world = UnevenWorld(tmp_path)
    found = world.model(rounds=4, errors_of=("x1",))
    fit = fl.fit(world.tables, world.task, covariance="HC1", plan=False)
    off = abs(found.standard_error[1] / fit.standard_error[1] - 1)
    assert off > 1e-3
    (said,) = [note for note in found.notes if "had not settled" in note]
    assert said in summary(outcome(world.network.folder))


@pytest.mark.long
def test_errors_of_a_coefficient_from_rounds_on_rows_are_within_their_noise(tmp_path):
    world = UnevenWorld(tmp_path, most_rounds=5000)
    found = world.model(rounds=100, local="rows", step_size=0.001, local_steps=1000, errors_of=("x1",))
    fit = fl.fit(world.tables, world.task, covariance="HC1", plan=False)
    assert found.theta[1] == pytest.approx(fit.theta[1], abs=0.1 * fit.standard_error[1])
    assert found.standard_error[1] == pytest.approx(fit.standard_error[1], rel=0.1)


def test_rounds_for_errors_that_fail_do_not_lose_the_estimate(tmp_path):
    world = UnevenWorld(tmp_path)
    world.meddle = lambda site, answer: None if answer.kind == "reply" and answer.generation else answer
    found = world.model(errors_of=("x1",), most_in_vain=2)
    assert "2 rounds in a row were in vain" in found.covariance_kind
    assert np.isfinite(found.theta).all()
