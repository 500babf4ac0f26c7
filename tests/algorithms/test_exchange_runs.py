"""Runs of the methods of the field: what they keep, where they are trivial, and what no exact theory covers."""

from dataclasses import replace

import numpy as np
import pytest
from test_exchange_methods import CORRECTED, ETA, SOME, UNCORRECTED, H, P, limit, make_problem
from tiers import mostly_long

import fedlsa as fl
from fedlsa.algorithms.sending import Exactly
from fedlsa.errors import ArgumentError

TRIVIAL = {
    "compressed": (lambda corrected: fl.Compressed(ETA, H, Exactly(), corrected=corrected), SOME),
    "all coordinates": (lambda corrected: fl.Compressed(ETA, H, fl.RandK(3), corrected=corrected), SOME),
    "memory of nothing": (lambda corrected: fl.Compressed(ETA, H, Exactly(), True, corrected=corrected), SOME),
    "delayed": (lambda corrected: fl.Delayed(ETA, H, (1,), corrected=corrected), SOME),
    "personal": (lambda corrected: fl.Personal(ETA, H, (), corrected=corrected), SOME),
    "fedprox": (lambda corrected: fl.FedProx(ETA, H, 0, corrected=corrected), SOME),
    "fednova": (lambda corrected: fl.FedNova(ETA, H, corrected=corrected), SOME),
    "dropouts": (lambda corrected: fl.Dropouts(ETA, H, 0, corrected=corrected), {}),
    "unequal work": (lambda corrected: fl.UnequalWork(ETA, H, corrected=corrected), SOME),
    "momentum": (lambda corrected: fl.Momentum(ETA, H, 0, corrected=corrected), SOME),
    "scaffold 2": (lambda corrected: fl.Scaffold(ETA, H), {}),
}


@pytest.mark.parametrize(
    ("name", "corrected"), [(n, c) for n in TRIVIAL for c in (True, False) if c or n != "scaffold 2"]
)
def test_in_a_trivial_setting_a_method_is_scafflsa_or_fedlsa(name, corrected):
    make, options = TRIVIAL[name]
    method = replace(make(corrected), **options)
    plain = (fl.SCAFFLSA if corrected else fl.FedLSA)(ETA, H, **options)
    runs = [fl.simulate(P, m, rounds=30, seeds=3, record=31, keep=("theta", "xi")) for m in (method, plain)]
    np.testing.assert_allclose(runs[0]["theta"].values, runs[1]["theta"].values, rtol=0, atol=1e-11)
    if name != "scaffold 2":  # its xi_c is c_c, that of SCAFFLSA c_c - c
        np.testing.assert_allclose(runs[0]["xi"].values, runs[1]["xi"].values, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "corrected"), [(n, c) for n in TRIVIAL for c in (True, False) if c or n != "scaffold 2"]
)
def test_so_it_is_in_theory_where_rounds_grow(name, corrected):
    make, options = TRIVIAL[name]
    growing = {"local_steps": fl.PowerLength(2, 0.7), "step_size": fl.PowerStep(ETA, 0.3), **options}
    methods = replace(make(corrected), **growing), (fl.SCAFFLSA if corrected else fl.FedLSA)(ETA, H)
    found, known = (fl.theory.exact(P, replace(m, **growing), 6) for m in methods)
    for part in ("mean", "covariance", "samples"):
        np.testing.assert_allclose(found[part], known[part], rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", mostly_long([fl.SVRG, fl.SAGA, fl.GradientTracking, fl.FedLin, fl.Delayed], [fl.SAGA]))
def test_exact_curves_of_rounds_that_grow_are_those_of_two_thousand_seeds(kind):
    method = kind(ETA, fl.PowerLength(2, 0.7))
    run, exact = fl.simulate(P, method, 10, 2000, record=[5, 10]), fl.theory.exact(P, method, 10, record=[5, 10])
    for seen, known in ((run["squared_error"], exact["mse"]), (run["theta"], exact["mean"])):
        error = seen.std("seed", ddof=1) / 2000**0.5
        assert (np.abs(seen.mean("seed").values - known.values) <= 4.5 * error.values).all()


def test_slow_and_late_agents_who_send_less_end_in_theta_star_still():
    for name in ("some agents late, others slow", "few bits of slow agents", "buffer of slow agents"):
        assert np.abs(fl.theory.stationary(P, LINEAR[name]).bias).max() < 1e-10
    late, all_late = fl.Delayed(ETA, 3, ((0.5, 0.5),) * 4), fl.Delayed(ETA, 3, (0.5, 0.5))
    runs = [fl.simulate(P, m, rounds=9, seeds=2)["theta"].values for m in (late, all_late)]
    np.testing.assert_array_equal(*runs)
    with pytest.raises(ArgumentError, match=r"probability of start 0 must be a number or \(N,\), with N = 4"):
        fl.simulate(P, fl.Delayed(ETA, 3, ((0.5, 0.5),) * 3), rounds=9, seeds=2)


def test_a_buffer_for_all_is_a_delay_of_one_round():
    runs = [fl.simulate(P, m, rounds=30, seeds=3)["theta"] for m in (fl.Buffered(ETA, 3), fl.Delayed(ETA, 3, (0, 1)))]
    np.testing.assert_allclose(runs[0], runs[1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize(
    "name", [n for n in CORRECTED if n not in ("fedlin", "scaffold 1", "scaffold 2", "gradient tracking")]
)
def test_the_weighted_sum_of_control_variates_stays_zero_under_noise(name, engine):
    xi = fl.simulate(P, CORRECTED[name], rounds=20, seeds=2, engine=engine, keep=("xi",))["xi"].values
    assert np.abs(xi).max() > 1e-2
    assert np.abs(P.weights @ xi).max() < 1e-12


QUIET = make_problem(noise=0.0)
SMALL_GARNET = fl.problems.garnet(agents=4, states=6, features=3, seed=1)


@pytest.mark.long  # rules are compiled in each process
@pytest.mark.parametrize("method", [
    fl.Anderson(ETA, H), fl.Anderson(ETA, H, 2), fl.Anderson(ETA, H, corrected=False),
    fl.Compressed(ETA, H, fl.TopK(1)), fl.Compressed(ETA, H, fl.TopK(1), memory=True),
    fl.Compressed(ETA, 3, fl.Sign(), memory=True), fl.Scaffold(ETA, H, 1), fl.SVRG(ETA, H), fl.SAGA(ETA, H),
    fl.Buffered(ETA, 3, participants=1), fl.Delayed(ETA, 3),
], ids=repr)  # fmt: skip
def test_without_noise_runs_end_in_the_fixed_point(method):
    end = fl.simulate(QUIET, method, rounds=1500, seeds=1, record=2)["theta"].values[0, -1]
    bias = 0 if getattr(method, "corrected", True) else fl.theory.bias(QUIET, ETA, H)
    np.testing.assert_allclose(end, QUIET.theta_star + bias, rtol=0, atol=1e-8)


@pytest.mark.long
def test_adam_hovers_at_the_size_of_its_step():
    far, near = (
        fl.simulate(QUIET, fl.Adam(ETA, H, size), rounds=2000, seeds=1, record=2)["squared_error"].values[0, -1]
        for size in (0.1, 0.01)
    )
    assert far < 0.1**2
    assert near < 0.01**2


@pytest.mark.parametrize("method", [fl.SVRG, fl.SAGA])
def test_reduced_variances_have_no_floor(method):
    """Noise in A(z) and b(z), and yet the error vanishes, with control variates alone."""
    runs = [fl.simulate(P, method(ETA, H, corrected=c), rounds=400, seeds=2, record=2) for c in (True, False)]
    assert runs[0]["squared_error"].values[:, -1].max() < 1e-20
    assert runs[1]["squared_error"].values[:, -1].min() > 1e-4


def test_a_pull_shortens_the_drift():
    ends = [limit(P, fl.FedProx(ETA, H, mu))["theta"][0] - P.theta_star for mu in (0, 1, 10)]
    assert np.all(np.diff([np.linalg.norm(e) for e in ends]) < 0)


@pytest.mark.long
def test_anderson_needs_fewer_rounds():
    errors = [
        fl.simulate(QUIET, m, rounds=12, seeds=1, record=2)["squared_error"].values[0, -1]
        for m in (fl.Anderson(0.02, 5, 2), fl.SCAFFLSA(0.02, 5))
    ]
    assert errors[0] < 0.1 * errors[1]


@pytest.mark.parametrize("send", [fl.TopK(1), fl.Sign(), fl.Rounding(4, 1.0, dither=False)], ids=repr)
def test_messages_without_a_linear_law_run_and_theory_refuses_them_by_name(send):
    method = fl.Compressed(ETA, H, send)
    assert np.isfinite(fl.simulate(P, method, rounds=3, seeds=1)["theta"].values).all()
    with pytest.raises(ArgumentError, match=rf"send must have a linear law for theory; got {type(send).__name__}"):
        fl.theory.exact(P, method, rounds=3)


@pytest.mark.parametrize(
    "method", [*CORRECTED.values(), *UNCORRECTED.values(), fl.Compressed(ETA, H, fl.Sign())], ids=repr
)
def test_a_result_holds_its_method(method):
    run = fl.simulate(SMALL_GARNET, method, rounds=2, seeds=1)
    again = fl.results.arguments(run)
    assert again["algorithm"] == method
    assert fl.simulate(**again).identical(run)


LINEAR = CORRECTED | {f"{name}, plain": method for name, method in UNCORRECTED.items()}
LINEAR["fedprox, plain"] = fl.FedProx(ETA, H, 0.7, **SOME)
LINEAR["personal"] = fl.Personal(ETA, H, (1,), **SOME)
SLOW = {"step_factors": (1, 0.5, 1.5, 0.8), "length_factors": (1, 3 / 7, 2 / 7, 9 / 7)}
SOME_LATE = ((1, 0, 0), (1, 0, 0), (0.2, 0.3, 0.5), (0, 0, 1))
LINEAR["unequal work"] = fl.UnequalWork(ETA, H, **SLOW)
LINEAR["some agents late, others slow"] = fl.Delayed(ETA, H, SOME_LATE, **SLOW)
LINEAR["few bits of slow agents"] = fl.Compressed(ETA, H, fl.Rounding(5, 6.0), **SLOW, **SOME)
LINEAR["buffer of slow agents"] = fl.Buffered(ETA, H, **SLOW, **SOME)
LINEAR["momentum"] = fl.Momentum(0.03, 3, 0.5, **SOME)


@pytest.mark.long
@pytest.mark.parametrize("name", LINEAR)
def test_exact_curves_are_those_of_two_thousand_seeds(name):
    """Error, mean and covariance at four rounds, within five standard errors each; there are some 2,000 comparisons."""
    recorded = [1, 3, 10, 40]
    exact = fl.theory.exact(P, LINEAR[name], rounds=40, record=recorded)
    run = fl.simulate(P, LINEAR[name], rounds=40, seeds=2000, record=recorded)
    off = run["theta"].values - exact["mean"].values
    pairs = {"mse": run["squared_error"].values, "mean": run["theta"].values}
    pairs["covariance"] = off[..., None] * off[:, :, None]
    for part, found in pairs.items():
        error = found.std(0, ddof=1) / np.sqrt(2000) + 1e-12
        assert (np.abs(found.mean(0) - exact[part].values) <= 5 * error).all(), part
