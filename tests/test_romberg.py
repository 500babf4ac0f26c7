"""Richardson-Romberg: two runs at eta and 2 eta make one estimate without the first-order bias."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError
from fedlsa.results import recipe, richardson_romberg

OPTIONS = {"rounds": 12, "seeds": 3, "record": 4, "engine": "reference"}  # nothing to compile


def noiseless() -> fl.Problem:
    """Three agents with one observation each: every run is its own mean."""
    rng = np.random.default_rng(0)
    return fl.problems.from_observations(
        [([1.0], [np.eye(2) + 0.3 * rng.standard_normal((2, 2))], rng.standard_normal((1, 2))) for _ in range(3)]
    )


def panel() -> fl.Problem:
    rng = np.random.default_rng(1)
    return fl.problems.regression([(rng.standard_normal((20, 2)), rng.standard_normal(20)) for _ in range(3)])


def pair(problem: fl.Problem, eta: float, H: int, **options):
    return [fl.simulate(problem, fl.FedLSA(k * eta, H), **{**OPTIONS, **options}) for k in (1, 2)]


def test_what_a_noiseless_run_tends_to_is_twice_the_bias_at_eta_minus_that_at_two_eta() -> None:
    problem, H = noiseless(), 10
    for eta in (0.02, 0.05):
        made = richardson_romberg(*pair(problem, eta, H, rounds=int(40 / (eta * H)), seeds=1))
        left = made["theta"].values[0, -1] - problem.theta_star
        exact = 2 * fl.theory.bias(problem, eta, H) - fl.theory.bias(problem, 2 * eta, H)
        assert np.abs(left - exact).max() < 1e-12


def test_the_bias_that_is_left_falls_with_the_square_of_the_step_size() -> None:
    problem, H = fl.problems.garnet(agents=10, preset="authors", seed=42), 10

    def norms(eta: float) -> tuple[float, float]:
        plain, double = (fl.theory.bias(problem, k * eta, H) for k in (1, 2))
        return float(np.linalg.norm(plain)), float(np.linalg.norm(2 * plain - double))

    (plain, combined), (half, halved) = norms(2e-3), norms(1e-3)
    assert plain / half == pytest.approx(2, rel=0.02)
    assert combined / halved == pytest.approx(4, rel=0.04)


def test_theta_and_its_error_are_combined_and_what_was_sent_and_seen_adds_up() -> None:
    problem = panel()
    fine, coarse = pair(problem, 0.02, 5)
    made = richardson_romberg(fine, coarse)
    theta = 2 * fine["theta"].values - coarse["theta"].values
    assert (made["theta"].values == theta).all()
    assert np.allclose(made["squared_error"].values, ((theta - problem.theta_star) ** 2).sum(axis=-1), rtol=1e-12)
    for name in ("uploads", "samples"):
        assert (made[name].values == fine[name].values + coarse[name].values).all()
    assert (made["communications"].values == fine["communications"].values).all()  # rounds are shared
    assert (fine["theta"].values == pair(problem, 0.02, 5)[0]["theta"].values).all()  # and nothing was overwritten


def test_the_result_says_how_it_was_made_and_goes_where_results_go(tmp_path: Path) -> None:
    fine, coarse = pair(panel(), 0.02, 5, keep=("theta", "xi"))
    made = richardson_romberg(fine, coarse)
    assert made.attrs["method"] == "Richardson-Romberg(FedLSA(step_size=0.02, local_steps=5))"
    runs = json.loads(made.attrs["runs"])
    assert (runs["fine"]["step_size"], runs["coarse"]["step_size"]) == (0.02, 0.04)
    assert "xi" not in made
    fl.results.save(made, tmp_path / "made.nc")
    assert made.identical(fl.results.load(tmp_path / "made.nc"))
    assert fl.results.summary(made)["samples"].item() == 120
    assert fl.figures.error_curves([fine, made]).axes
    with pytest.raises(ArgumentError, match=r"made with fedlsa\.results\.richardson_romberg"):
        fl.results.arguments(made, problem=panel())


def test_a_seed_diverges_where_the_first_of_its_two_runs_does() -> None:
    fine, coarse = pair(panel(), 0.02, 5)
    fine["diverged_at"].values[:] = [-1, -1, 7]
    coarse["diverged_at"].values[:] = [-1, 4, 9]
    assert richardson_romberg(fine, coarse)["diverged_at"].values.tolist() == [-1, 4, 7]


def test_rounds_of_random_length_and_decreasing_steps_combine_as_well() -> None:
    problem = panel()
    fine, coarse = (fl.simulate(problem, fl.Scaffnew(fl.PowerStep(k, 0.5), 0.3), **OPTIONS) for k in (0.02, 0.04))
    made = richardson_romberg(fine, coarse)
    assert (made["samples"].values == 2 * fine["samples"].values).all()  # one coin for both runs
    other = fl.simulate(problem, fl.Scaffnew(fl.PowerStep(0.04, 0.6), 0.3), **OPTIONS)
    with pytest.raises(ArgumentError, match=r"twice the step_size of fine; got PowerStep"):
        richardson_romberg(fine, other)


@dataclass(frozen=True)
class Homemade(fl.FedLSA):
    """A method that fedlsa does not know."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": fl.FedLSA(0.03, 5)}, r"coarse must have twice the step_size of fine; got 0\.03 and 0\.02"),
        ({"algorithm": fl.SCAFFLSA(0.04, 5)}, "must agree in the method; got 'FedLSA' and 'SCAFFLSA'"),
        ({"algorithm": fl.FedLSA(0.04, 6)}, "must agree in local_steps; got 5 and 6"),
        ({"algorithm": fl.FedLSA(0.04, 5, projection=2)}, "must agree in projection; got None and 2"),
        ({"algorithm": Homemade(0.04, 5)}, "methods of fedlsa.*Homemade"),
        ({"problem": noiseless()}, "must agree in the problem; got "),
        ({"sampling": fl.Replay()}, r"must agree in sampling; got IID\(\) and Replay\(\)"),
        ({"rounds": 13}, "must agree in rounds; got 12 and 13"),
        ({"theta_0": [0.0, 0.1]}, "must agree in theta_0"),
        ({"dtype": "float32"}, "must agree in dtype"),
        ({"seeds": [0, 1, 5]}, r"must agree in the seeds; got \[0, 1, 2\] and \[0, 1, 5\]"),
        ({"record": 5}, r"must agree in the recorded rounds; got \[0, 4, 8, 12\] and \[0, 3, 6, 9, 12\]"),
        ({"keep": ()}, "coarse must hold theta"),
    ],
    ids=lambda v: None if isinstance(v, str) else "-".join(v),
)
def test_two_results_that_differ_in_more_than_the_step_are_refused(changes, message) -> None:
    problem = panel()
    fine = fl.simulate(problem, fl.FedLSA(0.02, 5), **OPTIONS)
    coarse = fl.simulate(**{"problem": problem, "algorithm": fl.FedLSA(0.04, 5), **OPTIONS, **changes})
    with pytest.raises(ArgumentError, match=message):
        richardson_romberg(fine, coarse)


def test_what_is_no_result_is_refused() -> None:
    fine, coarse = pair(panel(), 0.02, 5)
    with pytest.raises(ArgumentTypeError, match="fine must be a result"):
        richardson_romberg(0.1, coarse)
    with pytest.raises(ArgumentError, match="coarse must be a result of simulate; got a dataset without"):
        richardson_romberg(fine, coarse.drop_vars("samples"))
    again = richardson_romberg(fine, coarse)
    assert recipe.value(again.attrs["algorithm"])["qualname"] == "richardson_romberg"
    with pytest.raises(ArgumentError, match=r"methods of fedlsa.*richardson_romberg"):
        richardson_romberg(again, coarse)
