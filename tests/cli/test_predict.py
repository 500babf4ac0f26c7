"""`fedlsa theory` and `fedlsa plan` print and draw what the library computes."""

import csv
import shlex
from pathlib import Path

import pytest
from PIL import Image
from refusals import refused

import fedlsa as fl
from fedlsa import theory
from fedlsa.cli.problem_options import as_options

PROBLEM = ["--agents", "4", "--perturbation", "0", "--states", "10", "--features", "3"]
THEORY, PLAN = ["theory", *PROBLEM], ["plan", *PROBLEM]


@pytest.fixture
def problem():
    return fl.problems.garnet(agents=4, perturbation=0.0, states=10, features=3)


def rows(out, name):
    return [line.split()[1:] for line in out.splitlines() if line.split()[:1] == [name] and "is" not in line.split()]


def row(out, name):
    return rows(out, name)[-1]


def test_theory_prints_the_exact_moments_of_each_method_and_draws_them(fedlsa, problem):
    code, out, err = fedlsa(*THEORY, "--local-steps", "20", "--rounds", "40", "--plot", "deep/parts.png")
    assert (code, err) == (0, "")
    for a in (fl.FedLSA(0.1, 20), fl.SCAFFLSA(0.1, 20)):
        end = theory.stationary(problem, a)
        last = theory.exact(problem, a, rounds=40).isel(rounds=-1)
        after, limit, stability = rows(out, type(a).__name__)
        assert after == ["40", *(f"{float(last[part]):.3g}" for part in ("mse", "start", "drift", "noise"))]
        assert limit == ["limit", *(f"{v:.3g}" for v in (end.mse, 0, end.bias @ end.bias, end.variance))]
        assert stability[0] == f"{end.radius:.6g}"
        assert float(stability[1]) == pytest.approx(theory.stability_limit(problem, a, tolerance=1e-3), rel=0.01)
    assert "saved deep/parts.png" in out
    with Image.open("deep/parts.png") as image:
        assert image.width >= 1000
        assert image.text["Source"].startswith("fedlsa theory --agents 4")


def test_theory_saves_its_curves_with_the_command_that_makes_them(fedlsa, problem):
    words = ["--method", "scafflsa", "--local-steps", "20", "--rounds", "6", "--out", "deep/curve.csv"]
    assert fedlsa(*THEORY, *words)[0] == 0
    first, head, *rows = Path("deep/curve.csv").read_text().splitlines()
    assert first.startswith("# fedlsa theory --agents 4")
    assert head == "method,rounds,mse,start,drift,noise,psi,samples,bytes"
    expected = theory.exact(problem, fl.SCAFFLSA(0.1, 20), rounds=6, record=range(7))
    for line, t in zip(csv.reader(rows), range(7), strict=True):
        assert int(line[1]) == t
        assert [float(v) for v in line[2:]] == [float(expected[n][t]) for n in head.split(",")[2:]]
    assert fedlsa(*THEORY, *words)[0] == 0  # the same again
    code, _, err = fedlsa(*THEORY, "--step-size", "0.2", *words)
    assert code != 0
    assert "--force" in err
    assert fedlsa(*THEORY, "--out", "curve.xlsx")[0] != 0
    assert fedlsa(*THEORY, *words[:-1], "deep/curve.nc")[0] == 0
    held = fl.results.load("deep/curve.nc")
    assert held.attrs["command"].startswith("fedlsa theory --agents 4")
    assert held["mse"].values.tolist() == [expected["mse"].values.tolist()]


def test_theory_says_in_words_that_a_setting_is_unstable(fedlsa):
    code, out, err = fedlsa(*THEORY, "--method", "fedlsa", "--step-size", "3", "--rounds", "30", "--plot", "f.svg")
    assert (code, err) == (0, "")
    assert "FedLSA is unstable with step size 3: its second moment grows without bound" in out
    assert rows(out, "FedLSA")[1] == ["limit", *["-"] * 4]


def test_theory_leaves_out_a_limit_that_takes_minutes_unless_asked(fedlsa, monkeypatch):
    monkeypatch.setattr("fedlsa.cli.theory_command.MAX_GROUPS", 1)
    _, out, _ = fedlsa(*THEORY, "--method", "scafflsa", "--rounds", "5")
    assert row(out, "SCAFFLSA")[-1] == "-"
    assert "--limit finds them" in out
    _, out, _ = fedlsa(*THEORY, "--method", "scafflsa", "--rounds", "5", "--limit")
    assert float(row(out, "SCAFFLSA")[-1]) > 0.1
    assert "--limit" not in out


def test_plan_prints_the_plans_and_a_command_that_runs_the_recommended_one(fedlsa, problem):
    code, out, err = fedlsa(*PLAN, "--epsilon", "0.2", "--method", "fedlsa", "--method", "scafflsa")
    assert (code, err) == (0, "")
    plans = {m: fl.plan(problem, 0.2, method=m) for m in ("fedlsa", "scafflsa")}
    for p in plans.values():
        a = p.algorithm
        cells = [f"{a.step_size:.4g}", f"{a.local_steps:,}", f"{p.rounds:,}", f"{p.samples:,.0f}", f"{p.rmse:.3g}"]
        assert row(out, type(a).__name__) == [*cells, f"{p.bytes:,}"]
    best = min(plans, key=lambda m: (plans[m].rounds, plans[m].samples))
    assert f"recommended: {best}" in out
    (line,) = [line for line in out.splitlines() if line.startswith("fedlsa simulate")]
    assert fedlsa(*shlex.split(line)[1:], "--quiet", "--seeds", "2", "--out", "r.nc")[0] == 0
    made = fl.results.arguments(fl.results.load("r.nc"))
    assert made["algorithm"] == plans[best].algorithm
    assert made["rounds"] == plans[best].rounds
    assert made["problem"].recipe == problem.recipe


def test_plan_draws_the_trade_off(fedlsa, monkeypatch):
    monkeypatch.setattr("fedlsa.theory.tuning.BUDGETS", (1.5, 4.0))
    code, out, err = fedlsa(*PLAN, "--epsilon", "0.2", "--method", "fedlsa", "--plot", "t.png")
    assert (code, err) == (0, "")
    assert "saved t.png" in out
    with Image.open("t.png") as image:
        assert image.width >= 1000


def test_plan_gives_the_best_accuracy_for_a_budget(fedlsa, problem):
    _, out, _ = fedlsa(*PLAN, "--rounds", "10", "--max-samples", "500", "--method", "fedlsa")
    assert f"{fl.plan(problem, rounds=10, max_samples=500, method='fedlsa').rmse:.3g}" in row(out, "FedLSA")
    _, out, _ = fedlsa(*PLAN, "--samples", "300", "--method", "scaffnew")
    assert f"{fl.plan(problem, samples=300, method='scaffnew').rmse:.3g}" in out
    assert "--probability 1.0 --rounds 300" in out


def test_a_method_that_cannot_is_a_warning_if_another_can(fedlsa, monkeypatch):
    usual = theory.plan

    def fussy(*arguments, method, **more):
        if method.name == "fedlsa":
            raise fl.errors.ArgumentError("max_samples must allow fedlsa to reach epsilon; got 1")
        return usual(*arguments, method=method, **more)

    monkeypatch.setattr(theory, "plan", fussy)
    code, out, err = fedlsa(*PLAN, "--epsilon", "0.5", "--method", "fedlsa", "--method", "scafflsa")
    assert (code, err) == (0, "fedlsa: warning: --max-samples must allow fedlsa to reach epsilon; got 1\n")
    assert "recommended: scafflsa" in out


@pytest.mark.parametrize("options", [[], ["--homogeneous", "--problem-seed", "7", "--preset", "authors"]])
def test_the_options_of_a_problem_can_be_read_off_it(options):
    p = fl.problems.garnet() if not options else fl.problems.garnet(heterogeneous=False, seed=7, preset="authors")
    assert sorted(as_options("garnet", **p.recipe["arguments"])) == sorted(options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*THEORY, "--step-size", "-1"], ["--step-size", "-1"]),
        ([*THEORY, "--rounds", "0"], ["--rounds", "0"]),
        ([*THEORY, "--method", "fedls"], ["--method", "did you mean 'fedlsa'"]),
        ([*THEORY, "--probability", "0.5"], ["--probability", "scaffnew"]),
        ([*THEORY, "--plot", "f.pgn"], ["did you mean '.png'"]),
        ([*THEORY, "--scale", "logg"], ["--scale", "did you mean 'log'"]),
        (["theory", "--agents", "0"], ["--agents", "0"]),
        (["theory", "--problem", "maze"], ["--problem must be one of 'ring', 'garnet',", "got 'maze'"]),
        (PLAN, ["exactly one of --epsilon, --rounds and --samples; got none"]),
        ([*PLAN, "--epsilon", "0.1", "--rounds", "3"], ["got --epsilon and --rounds"]),
        ([*PLAN, "--epsilon", "-1"], ["--epsilon", "-1"]),
        ([*PLAN, "--epsilon", "99"], ["--epsilon must be below the error at the start"]),
        ([*PLAN, "--epsilon", "0.3", "--max-samples", "2"], ["--max-samples must allow"]),
        ([*PLAN, "--rounds", "3"], ["--max-samples must be given"]),
        ([*PLAN, "--samples", "0"], ["--samples", "0"]),
        ([*PLAN, "--samples", "9", "--max-samples", "9"], ["--max-samples goes with"]),
        ([*PLAN, "--samples", "9", "--plot", "f.png"], ["--plot needs --epsilon"]),
        ([*PLAN, "--epsilon", "1", "--method", "fedlsa", "--method", "fedlsa"], ["--method", "2 times"]),
    ],
    ids=lambda v: " ".join(v),
)
def test_a_bad_option_is_one_line_and_exit_code_2(fedlsa, tmp_path, arguments, words):
    refused(fedlsa(*arguments), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("command", "inside"), [(THEORY, "exact"), ([*PLAN, "--epsilon", "0.3"], "plan")])
def test_an_interruption_is_one_line_and_exit_code_130(fedlsa, monkeypatch, command, inside):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(theory, inside, interrupted)
    assert fedlsa(*command) == (130, "", "fedlsa: interrupted\n")


def test_a_picture_that_exists_is_replaced_only_by_force(fedlsa, tmp_path):
    (tmp_path / "f.png").write_text("precious")
    arguments = [*THEORY, "--method", "fedlsa", "--rounds", "5", "--plot", "f.png"]
    assert fedlsa(*arguments) == (2, "", "fedlsa: f.png exists; --force replaces it\n")
    assert fedlsa(*arguments, "--force")[0] == 0


def test_every_family_of_the_registry_can_be_asked_for(fedlsa):
    ring = ["--problem", "ring", "--agents", "4", "--noise", "0.3", "--problem-seed", "5"]
    code, out, err = fedlsa("plan", *ring, "--epsilon", "0.2", "--method", "scafflsa")
    assert (code, err) == (0, "")
    (line,) = [line for line in out.splitlines() if line.startswith("fedlsa simulate")]
    assert fedlsa(*shlex.split(line)[1:], "--quiet", "--seeds", "2", "--out", "r.nc")[0] == 0
    made = fl.results.arguments(fl.results.load("r.nc"))["problem"]
    assert made.recipe == fl.problems.ring(4, noise=0.3, seed=5).recipe
    code, out, _ = fedlsa("theory", "--help")
    assert all(name in out for name in fl.problems.FAMILIES)


def test_a_family_of_environments_is_made_from_its_own_parameters(fedlsa):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    words = ["--problem", "lakes", "--agents", "2", "--low", "0.6", "--rounds", "3", "--out", "curve.nc"]
    assert fedlsa("theory", *words)[0] == 0
    exact = theory.exact(fl.problems.lakes(2, low=0.6), fl.SCAFFLSA(0.1, 10), rounds=3)
    assert fl.results.load("curve.nc")["mse"].values[1, -1] == float(exact["mse"][-1])
