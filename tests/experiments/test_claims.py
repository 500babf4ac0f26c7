"""Every claim of the catalogue: it comes out as expected, and every one of its numbers could have made it fail."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from tiers import mostly_long

from fedlsa.errors import ArgumentError
from fedlsa.experiments import EXPERIMENTS, Experiment, Scale, Verdict, compute, linear_speedup, paper_curves, skipping
from fedlsa.experiments.claim_statistics import LEVEL, PLACE, p_values
from fedlsa.experiments.executor import measured

QUICK = Scale("paper", 3, quick=True)
CLAIMS = {claim.name: claim for experiment in EXPERIMENTS.values() for claim in experiment.claims}
CHECKS = {name: claim for name, claim in CLAIMS.items() if claim.kind == "check"}


def verdict(claim, look):
    value, *others = measured(claim, look, QUICK)
    return Verdict(claim, QUICK, value, tuple(others))


def cells_of(claim):
    return list(dict.fromkeys(claim.cells(QUICK)))


def changed(look, cells, change):
    """What is looked up, with a change of some cells."""
    some = set(cells)
    return lambda cell: change(look(cell)) if cell in some else look(cell)


def times(factor, *names, plus=0.0):
    return lambda held: held.assign({k: v * factor + plus for k, v in held.items() if k in names})


def numbers(held):
    return [k for k, v in held.items() if v.dtype.kind == "f"]


# plans of Scaffnew at the smallest accuracies take ten seconds, all of these more than half a second
LENGTHY = "table.-scaffnew|table1-.*-power|simulation-agrees-[^m]|markov-|speed-up-scaffnew|lower-bound-psi|printed-"
EACH = mostly_long(CLAIMS, [name for name in CLAIMS if not re.match(LENGTHY, name)])


def test_names_are_used_once():
    assert len(CLAIMS) == sum(len(e.claims) for e in EXPERIMENTS.values())


@pytest.mark.parametrize("scale", [QUICK, Scale("authors")], ids=["quick", "full"])
def test_every_claim_names_a_chart_that_its_experiment_draws_and_says_what_its_number_is(scale):
    for e in EXPERIMENTS.values():
        drawn = {(p.name, title) for p in e.pictures for title in p.panels(scale)}
        for claim in e.claims:
            assert claim.panel_at(scale) in drawn or claim.panel == ""
            assert 10 < len(claim.number_name) < 90, claim.number_name
    of_one_agent = {"markov-mixing-time", "markov-theorem", "markov-whole", "markov-price"}  # no picture is about it
    assert {c.name for c in CLAIMS.values() if not c.panel and c.kind != "printed"} == of_one_agent


def test_a_claim_with_a_chart_that_is_not_there_is_refused_when_the_experiment_is_made():
    fig1, claim = EXPERIMENTS["fig1"], CLAIMS["fedlsa-stalls"]
    for panel in ("fig1: heterogeneous, N = {N}, H = 100", "fig2: heterogeneous, N = {N}, H = 1,000", "fig1"):
        with pytest.raises(ArgumentError, match="panel must name a chart of fig1"):
            Experiment("fig1", "It", (), fig1.pictures, claims=(replace(claim, panel=panel),))


@pytest.mark.parametrize("name", EACH)
def test_a_claim_comes_out_as_expected_and_depends_on_its_cells(name, look):
    claim, cells = CLAIMS[name], cells_of(CLAIMS[name])
    found = verdict(claim, look)
    assert found.ok, found.value
    some = cells[:: max(1, len(cells) // 6)]  # all, where they are few
    for cell, wrong in zip(some, itertools.cycle((np.nan, np.inf))):
        assert not verdict(claim, changed(look, [cell], lambda held, w=wrong: times(w, *numbers(held))(held))).ok


def changes(variable, first):
    """Other numbers that a variable may hold: multiples, something added, and what the first cell holds."""
    yield from (times(factor, variable) for factor in (1e3, 1e-3, 2.0, 0.0))
    yield times(1.0, variable, plus=1.0)
    same = variable in first
    yield lambda held: held.assign({variable: first[variable]}) if same and first.sizes == held.sizes else held


@pytest.mark.parametrize("name", EACH)
def test_other_numbers_in_its_cells_turn_a_claim_round(name, look):
    claim, cells = CLAIMS[name], cells_of(CLAIMS[name])
    found, variables = verdict(claim, look), sorted(numbers(look(cells[-1])), key=lambda k: look(cells[-1])[k].ndim)
    for variable in variables:
        having = [cell for cell in cells if variable in look(cell)]
        for some in (having[-1:], having[1::2], having):
            for change in changes(variable, look(cells[0])):
                other = verdict(claim, changed(look, some, change))
                if np.isfinite(other.value) and other.holds != found.holds:
                    assert not other.ok
                    return
    pytest.fail("nothing that its cells may hold changes the verdict")


@pytest.mark.parametrize("name", mostly_long(CHECKS, ["simulation-agrees-main"]))
@pytest.mark.parametrize("ratio", [2.0, 0.5])
def test_twice_or_half_the_variance_in_any_one_setting_is_found(name, ratio, look):
    claim, laws = CHECKS[name], {}
    for cell in CHECKS[name].cells(QUICK):
        if cell.kind != "simulate":
            laws[tuple(cell[k] for k in PLACE)] = look(cell)
    for cell in CHECKS[name].cells(QUICK):
        if cell.kind != "simulate":
            continue

        def wider(run, mean=laws[tuple(cell[k] for k in PLACE)]["mean"].values):
            return run.assign(theta=run["theta"].copy(data=mean + ratio**0.5 * (run["theta"].values - mean)))

        assert not verdict(claim, changed(look, [cell], wider)).ok, cell.text


def test_a_bias_of_another_size_is_found(look):
    claim = CLAIMS["bias-as-predicted"]
    for factor in (1.5, 0.67, -1.0):
        assert not verdict(claim, changed(look, cells_of(claim), times(factor, "bias"))).ok


def power(runs, dim, comparisons, ratio):
    """How probable it is that a variance off by a ratio is found."""
    tail, law = LEVEL / comparisons / 2, scipy.stats.chi2(runs * dim)
    return law.sf(law.isf(tail) / ratio) + law.cdf(law.ppf(tail) / ratio)


def test_the_power_of_the_checks_is_what_they_say():
    most = 2 * 2 * 2 * 2 * 5  # mean and spread, methods, settings, N, H
    assert power(paper_curves.RUNS, 8, most, 2.0) > 0.999
    assert power(paper_curves.RUNS, 8, most, 0.5) > 0.999
    points = 2 * 4 * 4 * (2 * 2 * 2 + 2)  # mean and spread, step sizes, N, panels and methods
    assert power(linear_speedup.RUNS, 8, points, 2.0) > 0.99
    assert power(linear_speedup.RUNS, 8, points, 0.5) > 0.99


def test_equal_errors_of_trajectories_are_found_equal():
    comparisons, spread = 2 * 2 * 2, 0.36  # methods, N and q; relative, of one run, where it is largest
    error, student = spread / skipping.RUNS**0.5, scipy.stats.t(skipping.RUNS - 1)
    missed = 2 * student.sf(math.log1p(skipping.MARGIN) / error - student.ppf(0.95))
    assert comparisons * missed < 0.05


def test_p_values_of_a_normal_law_are_uniform():
    rng, covariance = np.random.default_rng(0), np.array([[4.0, 1.0], [1.0, 0.5]])
    draws = rng.multivariate_normal([1.0, -1.0], covariance, (500, 10))
    p = np.array([p_values(theta, np.array([1.0, -1.0]), covariance) for theta in draws])
    for column in p.T:
        assert scipy.stats.kstest(column, "uniform").pvalue > 0.001


def test_the_law_of_a_run_has_the_exact_mean_and_error(look):
    for cell in cells_of(CLAIMS["simulation-agrees-main"]):
        if cell.kind == "law":
            law, T = look(cell), cell.settings["rounds"]
            exact = compute(type(cell)("exact", {**cell.settings, "record": [0, T]})).isel(rounds=-1)
            np.testing.assert_allclose(law["mean"], exact["mean"], rtol=1e-8)
            np.testing.assert_allclose(np.trace(law["covariance"]), exact["noise"], rtol=1e-6)


def test_claims_without_simulations_are_decided_on_other_instances_too(look):
    scale = replace(QUICK, instances=2)
    exact = CLAIMS["fedlsa-stalls"]
    assert [s.garnet(1, True)["seed"] for s in exact.other_scales(scale)] == [1, 2]
    values = measured(exact, look, scale)
    assert len(set(values)) == 3
    for name in ("bias-as-predicted", "one-shot-rate", "markov-iid", "lower-bound-psi"):
        assert CLAIMS[name].other_scales(scale) == []
    groups = EXPERIMENTS["fig1"].groups(scale)["fig1, paper: 2 other instances"]
    assert {cell.settings["problem"]["seed"] for cell in groups} == {1, 2}
