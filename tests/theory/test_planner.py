"""Plans reach their target exactly, within their cap, and no coarser search does better."""

import functools
from dataclasses import dataclass

import gallery
import numpy as np
import pytest
from own_steps import OwnStepsFedLSA, OwnStepsSCAFFLSA
from server_momentum import MomentumFedLSA, MomentumSCAFFLSA
from tiers import longer, mostly_long

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.theory import many_rounds, search, tuning
from fedlsa.theory.privacy import epsilon_of, rho_of_answer
from fedlsa.theory.problem_moments import merged
from fedlsa.theory.rounds import groups_of

METHODS = ("fedlsa", "scafflsa", "scaffnew")


@pytest.fixture(scope="module")
def two_worlds() -> fl.Problem:
    return fl.problems.garnet(agents=10, perturbation=0, preset="authors")


@pytest.fixture(scope="module")
def planned(two_worlds):
    """Plans of the two worlds, each made once."""
    return functools.cache(lambda epsilon, method="scafflsa": fl.plan(two_worlds, epsilon=epsilon, method=method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", [0.5, longer(0.1)])
def test_a_plan_reaches_its_accuracy_and_one_round_fewer_does_not(two_worlds, planned, method, epsilon):
    plan = planned(epsilon, method)
    curve = fl.theory.exact(two_worlds, plan.algorithm, rounds=plan.rounds, record=[plan.rounds - 1, plan.rounds])
    before, after = curve["mse"].values
    assert after <= epsilon**2 < before
    assert plan.rmse == pytest.approx(np.sqrt(after), rel=1e-9)
    assert plan.uploads == 10 * plan.rounds
    assert plan.bytes == 2 * 8 * two_worlds.dim * plan.uploads


@pytest.mark.parametrize("method", mostly_long(METHODS, METHODS[:2]))
def test_no_choice_on_a_grid_needs_fewer_communications(two_worlds, method):
    epsilon = 0.2
    plan = fl.plan(two_worlds, epsilon=epsilon, method=method, max_samples=20_000)
    assert plan.samples <= 20_000
    for H in (20_000 // (plan.rounds - 1) // k for k in (1, 2, 4, 8)):
        for eta in np.geomspace(0.005, 1.0, 13):
            a = fl.Scaffnew(eta, 1 / H) if method == "scaffnew" else getattr(fl, _name(method))(eta, H)
            rounds = list(range(1, plan.rounds))
            with np.errstate(all="ignore"):
                mse = fl.theory.exact(two_worlds, a, rounds=plan.rounds, record=rounds)["mse"].values
            assert not (mse <= epsilon**2 * (1 - 0.05)).any(), (H, eta)


def _name(method: str) -> str:
    return {"fedlsa": "FedLSA", "scafflsa": "SCAFFLSA"}[method]


def test_rounds_grow_like_one_over_epsilon_for_fedlsa_and_like_its_logarithm_for_scafflsa(planned):
    fed, scaff = ([planned(e, m).rounds for e in (0.5, 0.1)] for m in METHODS[:2])
    assert fed[1] > 4 * fed[0]  # five times the accuracy
    assert scaff[1] <= scaff[0] + 4


def test_small_accuracies_do_not_lose_the_best_step_size():
    """Towards small epsilon the error falls steeply in the step size; a search that gives up early jumps over it."""
    problem = fl.problems.garnet(agents=8, states=10, features=3, preset="authors", perturbation=0)
    rounds = [fl.plan(problem, epsilon=e, method="fedlsa").rounds for e in (0.004, 0.002, 0.001)]
    assert 1.8 < rounds[1] / rounds[0] < 2.6
    assert 1.8 < rounds[2] / rounds[1] < 2.6


def test_a_simulated_run_of_the_plan_has_the_predicted_error(two_worlds, planned):
    plan = planned(0.5)
    run = fl.simulate(two_worlds, plan.algorithm, rounds=plan.rounds, seeds=400, record=[plan.rounds])
    error = run["squared_error"].values[:, 0]
    assert abs(error.mean() - plan.rmse**2) <= 4.5 * error.std(ddof=1) / np.sqrt(len(error))


def test_budgets_are_spent_and_more_of_them_is_better(two_worlds):
    small = fl.plan(two_worlds, rounds=5, max_samples=2_000)
    large = fl.plan(two_worlds, rounds=10, max_samples=8_000)
    assert small.rounds == 5
    assert large.rounds == 10
    assert small.samples <= 2_000
    assert large.rmse < small.rmse
    data = [fl.plan(two_worlds, samples=S).rmse for S in (500, 4_000)]
    assert data[1] < data[0]


@pytest.fixture(scope="module")
def many_dimensions() -> fl.Problem:
    rng = np.random.default_rng(5)
    sites = [(rng.standard_normal((200, 40)), rng.standard_normal(200)) for _ in range(3)]
    return fl.problems.regression(sites, ridge=1.0)


@pytest.mark.parametrize("method", mostly_long(METHODS, METHODS[2:]))
def test_a_plan_in_many_dimensions_comes_from_a_theorem_and_says_so(many_dimensions, method):
    problem = many_dimensions
    epsilon = 0.3 * float(np.linalg.norm(problem.theta_star))
    plan = fl.plan(problem, epsilon=epsilon, method=method)
    assert plan.basis.startswith("theorem ")
    assert plan.basis.split()[1] in str(plan)
    bound = fl.theory.bound(problem, plan.algorithm, plan.rounds)
    assert bound.holds
    assert bound.mse == pytest.approx(plan.rmse**2, rel=1e-9)
    assert plan.rmse <= epsilon
    with pytest.raises(fl.errors.ArgumentError, match="max_samples"):
        fl.plan(problem, epsilon=epsilon, method=method, max_samples=plan.samples / 2)
    back = fl.plan(problem, samples=plan.samples, method=method)
    assert back.samples <= plan.samples
    assert back.rmse <= plan.rmse * 1.001
    assert back.on_means is None
    again = fl.plan(problem, rounds=plan.rounds, max_samples=plan.samples, method=method)
    assert again.rounds <= plan.rounds
    assert again.rmse <= plan.rmse * 1.001


@pytest.mark.parametrize(("method", "limit"), [("fedlsa", 32), ("scafflsa", 20), ("scaffnew", 20)])
def test_a_plan_by_a_theorem_says_so_first_and_offers_the_plan_on_means(many_dimensions, method, limit):
    problem = many_dimensions
    epsilon = 0.02 * float(np.linalg.norm(problem.theta_star))
    plan = fl.plan(problem, epsilon=epsilon, method=method)
    first = str(plan).splitlines()[0]
    assert "by a theorem, not found by exact search" in first
    assert f"d = 40 is above {limit}, the limit of {type(plan.algorithm).__name__}" in first
    means = plan.on_means
    assert means.basis == "exact moments"
    assert means.rounds <= 5 < plan.rounds / 10
    assert f"{means.rounds} rounds on each agent's means: plan.on_means, for problem.on_means()" in str(plan)
    run = fl.simulate(problem.on_means(), means.algorithm, means.rounds, seeds=1, theta_0=problem.start, record=2)
    assert float(run["squared_error"][0, -1]) ** 0.5 == pytest.approx(means.rmse, rel=1e-6)
    assert means.rmse <= epsilon
    np.testing.assert_allclose(problem.on_means().theta_star, problem.theta_star, rtol=1e-12)


def test_a_plan_by_exact_search_has_nothing_to_warn_of(two_worlds, planned):
    plan = planned(0.5)
    assert str(plan).splitlines()[0] == "Plan"
    assert plan.on_means is None
    assert (plan.start, fl.plan(two_worlds, 0.5, theta_0=np.zeros(8)).start) == ("theta_star + 1", "0")


def test_many_different_agents_are_planned_as_well_as_few(planned):
    apart = fl.problems.garnet(agents=10, perturbation=1e-9, preset="authors")
    assert apart.n_tables == 10
    many, few = fl.plan(apart, epsilon=0.5), planned(0.5)
    assert many.rounds == few.rounds
    assert many.samples == pytest.approx(few.samples, rel=0.03)
    assert many.basis == "exact moments"


def test_moments_serve_as_well_as_the_problem(two_worlds, planned):
    one, other = planned(0.5), fl.plan(fl.theory.moments(two_worlds), epsilon=0.5)
    assert one.algorithm == other.algorithm
    assert one.rounds == other.rounds


def test_a_trade_off_is_made_of_plans_that_no_other_beats_in_both_costs(two_worlds, planned, monkeypatch):
    monkeypatch.setattr("fedlsa.theory.tuning.BUDGETS", (1.5, 4.0, 8.0))
    steps = []
    plans = fl.trade_off(two_worlds, 0.5, ["scafflsa", "fedlsa"], progress=lambda done, total: steps.append(done))
    assert steps == [1, 2, 3, 4, 5, 6]
    for kind in (fl.SCAFFLSA, fl.FedLSA):
        own = [p for p in plans if isinstance(p.algorithm, kind)]
        assert len(own) > 1
        assert [p.samples for p in own] == sorted({p.samples for p in own})
        assert [p.rounds for p in own] == sorted({p.rounds for p in own}, reverse=True)
        assert all(p.later <= 0.5 for p in own)
        usual = planned(0.5, kind.__name__.lower())  # with the cap of 4 times the fewest
        assert any(p.rounds <= usual.rounds and p.samples <= usual.samples for p in own)


def test_a_trade_off_of_an_accuracy_that_no_budget_reaches_is_refused(two_worlds):
    with pytest.raises(ArgumentError, match="epsilon must be below the error at the start"):
        fl.trade_off(two_worlds, 100.0)
    with pytest.raises(ArgumentError, match="did you mean 'scafflsa'"):
        fl.trade_off(two_worlds, 0.1, ["fedlsa", "scaflsa"])


def test_theorems_promise_one_point_of_a_trade_off(many_dimensions):
    (only,) = fl.trade_off(many_dimensions, 0.1, "fedlsa")
    assert str(only) == str(fl.plan(many_dimensions, 0.1, method="fedlsa"))


def test_a_plan_prints_as_a_table(planned):
    text = str(planned(0.5))
    for word in ("SCAFFLSA(step_size=", "rounds", "samples per agent", "predicted RMSE", "bytes"):
        assert word in text


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({}, "exactly one of epsilon, rounds and samples"),
        ({"epsilon": 0.1, "rounds": 3}, "exactly one of epsilon, rounds and samples"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": 1e9}, "epsilon"),
        ({"epsilon": 0.1, "method": "scaflsa"}, "did you mean 'scafflsa'"),
        ({"epsilon": 0.1, "max_samples": 3}, "max_samples"),
        ({"rounds": 3}, "max_samples"),
        ({"rounds": 10, "max_samples": 5}, "max_samples"),
        ({"epsilon": 0.1, "theta_0": [1.0]}, "theta_0"),
    ],
)
def test_bad_targets_are_refused_by_name(two_worlds, keywords, named):
    with pytest.raises(fl.errors.ArgumentError, match=named):
        fl.plan(two_worlds, **keywords)


LASTING = ["turning modes", "no noise", "tiny noise", "unstable site", "one dimension", "single steps"]
LASTING += ["jordan block", "corridor"]


@pytest.mark.parametrize("method", mostly_long(METHODS, METHODS[:2]))
@pytest.mark.parametrize("name", LASTING)
def test_the_accuracy_of_a_plan_lasts_on_problems_that_break_things(name, method):
    """Held to the exact curve beyond the plan, every round of it, and to the limit; one method in three coarsely."""
    problem = gallery.CASES[name]().problem
    start, far = problem.theta_star + 1, problem.dim**0.5
    epsilon = far * (0.6 if METHODS.index(method) == LASTING.index(name) % 3 else 0.1)
    plan = fl.plan(problem, epsilon, method=method, theta_0=start)
    rounds = list(range(plan.rounds, plan.rounds + 40))
    mse = fl.theory.exact(problem, plan.algorithm, rounds[-1], start, record=rounds)["mse"].values
    assert plan.rmse == pytest.approx(np.sqrt(mse[0]), rel=1e-9)
    assert np.sqrt(mse.max()) <= plan.later * (1 + 1e-9)
    assert plan.later <= epsilon
    assert fl.theory.stationary(problem, plan.algorithm).mse <= epsilon**2


def test_a_crossing_of_start_and_drift_is_no_plan():
    """Two agents that pull apart: on its way from the start to its drift FedLSA passes theta_star, once."""
    tables = [gallery.shaken([[1.0]], [4.0], 0.0, 0.05), gallery.shaken([[0.1]], [0.2], 0.0, 0.05)]
    problem = fl.problems.from_observations(tables)
    epsilon, theta_0 = 0.1, np.array([10.0])
    lucky = fl.FedLSA(0.3, 20)
    mse = fl.theory.exact(problem, lucky, 30, theta_0, record=31)["mse"].values
    stays = fl.theory.stationary(problem, lucky).mse
    assert stays > epsilon**2
    plan = fl.plan(problem, epsilon, method="fedlsa", theta_0=theta_0)
    assert plan.later <= epsilon
    assert fl.theory.stationary(problem, plan.algorithm).mse <= epsilon**2
    assert mse.min() < mse[-1]  # while the crossing is there


def test_follow_says_since_when_a_target_holds():
    problem = gallery.CASES["turning modes"]().problem
    m, a, start = fl.theory.moments(problem), fl.SCAFFLSA(0.01, 3), np.ones(2)
    mse = fl.theory.exact(problem, a, 400, m.theta_star + start, record=401)["mse"].values
    target = 1.01 * float(mse[200])
    last = int(np.flatnonzero(mse > target)[-1])
    assert fl.theory.stationary(m, a).mse < target
    errors = search.MethodErrors(groups_of(m, a), fl.SCAFFLSA, start)
    for T in (last - 50, last - 3):
        assert errors.follow(0.01, 3, T, target).since == last + 1
    assert errors.follow(0.01, 3, 3, 0.0).since is None


def test_merging_agents_keeps_the_averaged_system_and_the_noise_of_single_steps():
    rng = np.random.default_rng(2)
    tables = [gallery.shaken(np.eye(2) + 0.3 * rng.standard_normal((2, 2)), rng.standard_normal(2)) for _ in range(12)]
    problem = fl.problems.from_observations(tables, weights=rng.uniform(1, 3, 12))
    m = fl.theory.moments(problem)
    few = merged(m, 3)
    assert len(few.table) <= 3
    np.testing.assert_allclose(few.theta_star, m.theta_star, rtol=1e-12)
    one, other = (fl.theory.stationary(x, fl.FedLSA(0.2, 1)).covariance for x in (m, few))
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_many_different_agents_are_looked_at_a_few_times_only(monkeypatch):
    """The search goes over a problem with few groups; the problem itself is followed once or twice."""
    rng = np.random.default_rng(4)
    sites = []
    for _ in range(40):
        X = rng.standard_normal((30, 2))
        sites.append((X, X @ (np.ones(2) + 0.2 * rng.standard_normal(2)) + rng.standard_normal(30)))
    problem, looked = fl.problems.regression(sites), []
    real = many_rounds.agent_round
    monkeypatch.setattr(many_rounds, "agent_round", lambda m, *how: looked.append(len(m.table)) or real(m, *how))
    plan = fl.plan(problem, 0.02, theta_0=np.zeros(2))
    assert plan.later <= 0.02
    assert looked.count(40) <= 2
    assert max(n for n in looked if n < 40) <= tuning.SEARCHED_GROUPS


@dataclass(frozen=True, repr=False)
class OwnSettings(fl.SCAFFLSA):
    """SCAFFLSA with one more setting, of which its rounds make nothing."""

    remark: float
    supports = frozenset({"theory", "plan"})


def test_an_instance_keeps_its_own_settings_in_plans_and_trade_offs(monkeypatch):
    monkeypatch.setattr("fedlsa.theory.tuning.BUDGETS", (4.0,))
    problem = fl.problems.ring(agents=3, noise=0.3)
    given = [OwnSettings(0.1, 10, remark=remark) for remark in (7.0, 8.0)]
    usual, found = fl.plan(problem, 0.3), fl.trade_off(problem, 0.3, given)
    assert [type(p.algorithm) for p in found] == [OwnSettings, OwnSettings]
    assert [p.algorithm.remark for p in found] == [7.0, 8.0]
    assert {(p.rounds, p.samples) for p in found} == {(usual.rounds, usual.samples)}


def test_who_takes_part_is_given_and_counted():
    problem, m = fl.problems.ring(agents=4, noise=0.3), 2
    for given in (fl.SCAFFLSA(0.1, 10, participants=m), fl.Buffered(0.1, 10, participants=m)):
        plan = fl.plan(problem, 0.4, method=given)
        curve = fl.theory.exact(problem, plan.algorithm, plan.rounds, record=[plan.rounds])
        assert plan.algorithm.participants == m
        assert (plan.rmse, plan.samples) == pytest.approx((curve.mse.item() ** 0.5, round(curve.samples.item())))
        assert (plan.uploads, plan.bytes) == (plan.rounds * m, plan.rounds * m * 2 * 8 * problem.dim)
    everybody, usual = fl.plan(problem, 0.4, method=fl.SCAFFLSA(0.1, 10, participants=4)), fl.plan(problem, 0.4)
    assert (everybody.rounds, everybody.samples) == (usual.rounds, usual.samples)
    with pytest.raises(ArgumentError, match="numbers for a plan of SCAFFLSA; got 808"):
        fl.plan(fl.problems.garnet(agents=100), 0.4, method=fl.SCAFFLSA(0.1, 10, participants=50))


@pytest.mark.parametrize("given", [fl.SCAFFLSA(fl.PowerStep(0.1, 0.5), 9), fl.FedLSA(0.1, fl.PowerLength(2, 0.4))])
def test_steps_that_differ_from_round_to_round_are_not_dropped_in_silence(given):
    with pytest.raises(ArgumentError, match="method must have one step size and one length for all rounds"):
        fl.plan(fl.problems.ring(agents=3, noise=0.3), 0.3, method=given)


def test_passes_over_tables_are_observations_of_plans_curves_and_runs():
    problem = fl.problems.ring(agents=4, noise=0.3)
    (rows,) = set(np.diff(problem.first))
    read = {"svrg": 1.0, "fedlin": 1.0, "gradienttracking": 1.0, "scaffold": 0.0, "saga": 0.0}
    for name, share in read.items():
        method = fl.algorithms.FAMILY[name](0.05, 5)
        run, curve = fl.simulate(problem, method, 4, 2), fl.theory.exact(problem, method, 4)
        assert run["samples"].values.tolist() == [curve["samples"].values.tolist()] * 2
        np.testing.assert_allclose(curve["samples"], np.arange(5) * (5 + share * rows), rtol=1e-13)
    half = fl.Scaffold(0.05, 5, option=1, participants=2)  # of which half pass over theirs
    assert fl.theory.exact(problem, half, 4).samples.values[-1] == 4 * (5 + rows) / 2
    plan = fl.plan(problem, rounds=3, max_samples=3 * (rows + 9), method="svrg")
    assert plan.samples == plan.rounds * (plan.algorithm.local_steps + rows) <= 3 * (rows + 9)
    for budget in ({"samples": rows}, {"rounds": 3, "max_samples": 3 * rows}):
        with pytest.raises(ArgumentError, match=f"samples must be at least .*, {rows} of a round for exact residuals"):
            fl.plan(problem, method="svrg", **budget)


def test_a_trade_off_holds_the_plan_of_a_method_that_needs_more_than_all_its_budgets(monkeypatch):
    monkeypatch.setattr("fedlsa.theory.tuning.BUDGETS", (1.2,))
    problem, slow = fl.problems.ring(agents=4, noise=0.3), fl.Momentum(0.02, 10)
    (found,), plan = fl.trade_off(problem, 0.3, [slow]), fl.plan(problem, 0.3, method=slow)
    assert (found.rounds, found.samples) == (plan.rounds, plan.samples)


OWN_METHODS = [MomentumSCAFFLSA(0.1, 1), MomentumFedLSA(0.1, 1), OwnStepsSCAFFLSA(0.1, 1), OwnStepsFedLSA(0.1, 1)]


@pytest.mark.parametrize("given", mostly_long(OWN_METHODS, OWN_METHODS[1:3]), ids=lambda a: type(a).__name__)
def test_servers_that_remember_and_agents_with_steps_of_their_own_are_planned(given):
    problem = fl.problems.ring(agents=3, noise=0.3)
    plan = fl.plan(problem, 0.5, method=given)
    curve = fl.theory.exact(problem, plan.algorithm, plan.rounds + 20, record=[plan.rounds, plan.rounds + 20])
    assert type(plan.algorithm) is type(given)
    assert plan.rmse == pytest.approx(np.sqrt(curve["mse"].values[0]), rel=1e-9)
    assert np.sqrt(curve["mse"].values[1]) <= plan.later * (1 + 1e-9) <= 0.5 * (1 + 1e-9)
    assert plan.samples == round(float(curve["samples"].values[0]))


def test_a_step_size_whose_error_is_not_known_is_left_out(monkeypatch):
    problem = fl.problems.ring(agents=3, noise=0.3)
    real, refused = many_rounds.agent_round, []

    def sometimes(m, stages, steady):
        if not refused or stages.eta[0] > 1.5 * refused[0]:
            refused.append(stages.eta[0])
            raise fl.errors.PrecisionError("not known")
        return real(m, stages, steady)

    monkeypatch.setattr(many_rounds, "agent_round", sometimes)
    plan = fl.plan(problem, 0.1)
    assert refused
    assert plan.later <= 0.1


def test_a_badly_conditioned_system_is_named_as_the_cause():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 1))
    sites = [(np.hstack([x, x + 1e-6 * rng.standard_normal((50, 1))]), rng.standard_normal(50)) for _ in range(2)]
    problem = fl.problems.regression(sites)
    with pytest.raises(fl.errors.ArgumentError, match="condition number of"):
        fl.plan(problem, 0.01 * float(np.linalg.norm(problem.theta_star)), theta_0=np.zeros(2))


@pytest.mark.parametrize("far", [2e150, -1e308])
def test_a_start_so_far_away_that_its_square_is_no_number_is_refused(far):
    p, a, theory = fl.problems.garnet(agents=3, states=5, features=2, seed=1), fl.SCAFFLSA(0.1, 3), fl.theory
    start = np.array([0.0, far])
    for call in (
        lambda: fl.plan(p, 0.3, theta_0=start),
        lambda: theory.synchronous_plan(p, 0.3, start),
        lambda: theory.exact(p, a, 3, start),
        lambda: theory.exact_iterations(p, fl.Scaffnew(0.1, 0.5), 3, start),
        lambda: theory.bound(p, a, 3, start),
        lambda: theory.markov_block(p, a, 3, 0.1, start),
        lambda: theory.complexity(p, "scafflsa", 0.1, start),
    ):
        with pytest.raises(ArgumentError, match=r"theta_0 must be within 1e\+150 of theta_star"):
            call()


def test_accuracy_that_lasts_from_a_later_round_on_is_not_taken_for_the_fewest_rounds():
    """Three rounds reach it, are above it up to the sixth, and last where the goal is a little stricter."""
    p = fl.problems.garnet(agents=4, states=6, features=3, seed=0)
    plans = [fl.plan(p, 0.1, max_samples=cap) for cap in (None, 42_000)]
    assert [plan.rounds for plan in plans] == [3, 3]
    assert all(plan.later <= 0.1 for plan in plans)


@pytest.mark.parametrize("m", [
    fl.Dropouts(0.1, 1, (0.5, 0, 0, 0.2), length_factors=(1 / 3, 1, 1, 1)),
    fl.FedNova(0.1, 1, length_factors=(1 / 4, 1, 1, 1 / 4)),
    longer(fl.UnequalWork(0.1, 1, length_factors=(1 / 4, 1, 1, 1 / 4))),
], ids=repr)  # fmt: skip
def test_budgets_hold_where_agents_have_lengths_of_their_own_and_drop_out(m):
    p = fl.problems.garnet(agents=4, states=6, features=2, seed=2)
    for target in ({"rounds": 3, "max_samples": 300}, {"rounds": 30, "max_samples": 41}, {"samples": 40}):
        plan = fl.plan(p, method=m, **target)
        most = max(target.values())
        assert (0.9 * most if plan.algorithm.local_steps > 1 or "samples" in target else 0) <= plan.samples <= most
        curve = fl.theory.exact(p, plan.algorithm, plan.rounds, record=[plan.rounds])
        assert abs(float(curve["samples"][0]) - plan.samples) <= 0.5  # whole ones are planned
        assert int(curve["bytes"][0]) == plan.bytes
    assert fl.plan(p, 0.3, method=m, max_samples=60.0).samples <= 60


def test_a_server_with_a_memory_is_planned_on_the_joint_law():
    p = fl.problems.garnet(agents=4, states=6, features=2, seed=2)
    plan = fl.plan(p, 0.3, method=fl.Momentum(0.1, 1, 0.5))
    curve = fl.theory.exact(p, plan.algorithm, 2 * plan.rounds)
    assert float(curve["mse"][plan.rounds]) == pytest.approx(plan.rmse**2, rel=1e-9)
    assert float(curve["mse"][plan.rounds :].max()) <= 0.09
    before = fl.theory.exact(p, plan.algorithm, plan.rounds, record=[plan.rounds - 1])
    assert float(before["mse"][0]) > 0.09


@pytest.mark.parametrize("name", ["fedlsa", "scafflsa"])
def test_a_plan_within_a_privacy_budget_runs_with_its_noise_and_says_what_it_costs(name):
    problem = fl.problems.ring(agents=50, noise=0.3)
    loose, tight = (fl.plan(problem, rounds=6, max_samples=60, privacy=x, method=name) for x in (500.0, 100.0))
    for plan, epsilon in ((loose, 500.0), (tight, 100.0)):
        curve = fl.theory.exact(problem, plan.algorithm, plan.rounds, theta_0=np.zeros(2), record=[plan.rounds])
        assert plan.rmse == pytest.approx(float(curve["mse"][0]) ** 0.5, rel=1e-9)
        assert (plan.samples, plan.bytes) == (curve["samples"].item(), curve["bytes"].item())
        clip = float(plan.basis.split()[-1])
        spent = plan.rounds * rho_of_answer("site", clip, plan.algorithm.send.deviation / clip)
        assert epsilon_of(spent, 1e-5) == pytest.approx(epsilon, rel=0.02)
    assert loose.rmse < tight.rmse
    with pytest.raises(ArgumentError, match="privacy must go with rounds, max_samples and a method by its name"):
        fl.plan(problem, 0.1, privacy=2.0)
    with pytest.raises(ArgumentError, match="buys"):
        fl.plan(problem, rounds=6, max_samples=60, privacy=0.01, method=name)
