"""Every command that prints a table prints one JSON object on request, in full precision, and nothing beside it."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa import experiments
from fedlsa.cli import reproduce_command
from fedlsa.network.coordinator import commands as coordinator
from fedlsa.network.coordinator import runs
from fedlsa.network.folder import setup

sys.path.insert(0, str(Path(__file__).parents[1] / "network"))

from hostile import Hostile, gaussian_table

RING = ["--problem", "ring", "--local-steps", "4"]
WORDS_ALONE = {  # what these print are sentences, or a page: no table
    "plot", "explore", "network init", "network enrol", "network approve", "network revoke",
    "network renew", "network add-site", "network remove-site", "network serve", "network stop", "network join",
    "network demo", "network allow",
}  # fmt: skip
RESULT = {"experiment": "trial", "over": "finished", "names": ["a"], "coefficients": [0.1 + 0.2]}


@pytest.fixture
def printed(fedlsa):
    """The object that a command prints."""

    def run(words, *arguments):
        code, out, err = fedlsa(*words.split(), *arguments, "--json")
        assert (code, err) == (0, "")
        content = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert isinstance(content, dict)
        return content

    return run


@pytest.fixture
def firms(tmp_path):
    rng = np.random.default_rng(0)
    for c in range(3):
        x = rng.normal(size=(40, 2))
        table = np.column_stack([x, x @ [1.0, -2.0] + 0.1 * rng.normal(size=40)])
        np.savetxt(tmp_path / f"firm-{c}.csv", table, delimiter=",", header="a,b,y", comments="")
    return ["firm-0.csv", "firm-1.csv", "firm-2.csv"]


@pytest.fixture
def net(tmp_path, fedlsa):
    return setup.init(tmp_path / "net", 3, "127.0.0.1", task=fl.Regression("y")).folder


def test_a_command_that_prints_a_table_takes_json(commands):
    assert set(commands) >= WORDS_ALONE
    assert {words for words, options in commands.items() if "--json" not in options} == WORDS_ALONE
    checked = {name.removeprefix("test_json_of_").replace("_", " ") for name in globals() if "json_of" in name}
    assert {words for words in commands if words not in WORDS_ALONE} == checked


def test_json_of_simulate(printed):
    arguments = [*RING, "--rounds", "5", "--seeds", "2", "--engine", "reference", "--step-size", "0.05,0.1"]
    said = printed("simulate", *arguments, "--plot", "r.svg")
    assert said["saved"] == ["r.svg"]
    assert [(row["algorithm"], row["step_size"]) for row in said["runs"]] == [
        ("fedlsa", 0.05), ("fedlsa", 0.1), ("scafflsa", 0.05), ("scafflsa", 0.1)
    ]  # fmt: skip
    alone = fl.simulate(fl.problems.ring(), fl.SCAFFLSA(0.1, 4), rounds=5, seeds=2, engine="reference")
    assert said["runs"][-1]["mse"] == float(alone["squared_error"][:, -1].mean())
    assert said["runs"][-1]["predicted_drift"] is None


def test_json_of_theory(printed):
    said = printed("theory", *RING, "--rounds", "5", "--step-size", "0.1,9", "--out", "c.csv")
    assert said["saved"] == ["c.csv"]
    stable, unstable = said["methods"][:2]
    exact = fl.theory.exact(fl.problems.ring(), fl.FedLSA(0.1, 4), rounds=5)
    for part in ("mse", "start", "drift", "noise"):
        assert stable[part] == pytest.approx(float(exact[part][-1]), rel=1e-12)
    assert list(stable["stationary"]) == ["mse", "drift", "noise", "bias"]
    assert stable["stationary"]["mse"] == stable["stationary"]["drift"] + stable["stationary"]["noise"] > 0
    assert (unstable["stable"], unstable["stationary"]) == (False, None)


def test_json_of_plan(printed):
    said = printed("plan", "--problem", "ring", "--epsilon", "0.3", "--method", "scafflsa")
    assert said["recommended"] == "scafflsa"
    assert said["command"].startswith("fedlsa simulate --problem ring --method scafflsa --step-size ")
    plan = fl.plan(fl.problems.ring(), 0.3, method="scafflsa")
    assert (said["plans"][0]["rmse"], said["plans"][0]["rounds"]) == (plan.rmse, plan.rounds)


def test_json_of_fit_regression(printed, firms):
    said = printed("fit regression", *firms, "--target", "y", "--test", "intercept = 0", "--out", "m.json")
    model = fl.Fit.load("m.json")
    assert said["p_values"] == model.p_values.tolist()
    assert said["tests"][0]["p_value"] == pytest.approx(model.p_values[-1])
    assert said["theta"] == model.theta.tolist()
    assert said["standard_error"] == model.standard_error.tolist()
    assert (said["level"], said["saved"]) == (0.95, ["m.json"])


def test_json_of_fit_value(printed, tmp_path):
    rng = np.random.default_rng(1)
    for c in range(2):
        states = rng.integers(0, 3, 61)
        rows = np.column_stack([states[:-1], states[1:], rng.normal(size=60), np.zeros(60)])
        header = "state,next_state,reward,terminated"
        np.savetxt(tmp_path / f"w-{c}.csv", rows, delimiter=",", header=header, comments="", fmt="%.6g")
    said = printed("fit value", "w-0.csv", "w-1.csv", "--discount", "0.5", "--features", "OneHot(3)")
    assert len(said["theta"]) == len(said["interval"]) == 3


def test_json_of_evaluate(printed, fedlsa, firms):
    assert fedlsa("fit", "regression", *firms, "--target", "y", "--no-plan", "--out", "m.json", "--quiet")[0] == 0
    said = printed("evaluate", "m.json", *firms, "--out", "t.csv")
    found = fl.evaluate(fl.Fit.load("m.json"), firms)
    assert [row["rmse"] for row in said["files"]] == [row.rmse for row in found]
    assert (said["model"], said["saved"]) == ("m.json", ["t.csv"])


def test_json_of_predict(printed, fedlsa, firms):
    assert fedlsa("fit", "regression", *firms, "--target", "y", "--no-plan", "--out", "m.json", "--quiet")[0] == 0
    said = printed("predict", "m.json", firms[0], "--level", "0.9")
    found = fl.Fit.load("m.json").predict_interval(firms[0], 0.9)
    assert said["value"] == found.value.tolist()
    assert said["observation_low"] == [None if v != v else v for v in found.observation_low.tolist()]
    assert (said["model"], said["level"], said["saved"]) == ("m.json", 0.9, [])


def test_json_of_reproduce(printed, monkeypatch):
    fig1 = experiments.EXPERIMENTS["fig1"]
    outcome = experiments.Outcome(
        fig1, experiments.Scale("paper", 3, True, 0), {}, {}, {}, [[0.1 + 0.2] for _ in fig1.claims]
    )
    progress = SimpleNamespace(groups={}, computed=7, seconds=1.5)
    monkeypatch.setattr(experiments, "reproduce", lambda *_, **__: ([outcome], progress))
    monkeypatch.setattr(reproduce_command, "processes", lambda _: nullcontext())
    monkeypatch.setattr(type(outcome.verdicts[0]), "ok", True)
    said = printed("reproduce", "fig1", "--quick", "--preset", "paper")
    assert (said["cells_computed"], said["report"]) == (7, "out/report/index.html")
    assert [(c["experiment"], c["name"], c["value"]) for c in said["claims"]] == [
        ("fig1", claim.name, 0.1 + 0.2) for claim in fig1.claims
    ]


def test_json_of_network_status(printed, net):
    said = printed("network status", net)
    assert (said["running"], said["run"]) == (False, None)
    assert said["not_approved"] == said["sites"] == ["site-1", "site-2", "site-3"]


def test_json_of_network_audit(printed, net):
    said = printed("network audit", net)
    assert said["file"].endswith("store.db")
    assert said["head"].startswith(f"{len(said['entries'])}:")


def test_json_of_network_result(printed, net, monkeypatch):
    monkeypatch.setattr(coordinator, "outcome", lambda *_: RESULT)
    monkeypatch.setattr(runs, "summary", lambda _: [])
    assert printed("network result", net, "--out", "r.json") == RESULT
    assert json.loads(Path("r.json").read_text())["coefficients"] == RESULT["coefficients"]


def test_json_of_network_run(fedlsa, net, monkeypatch):
    run = SimpleNamespace(name="trial")
    monkeypatch.setattr(coordinator, "run", lambda *_, say, **__: say("started trial") or run)
    monkeypatch.setattr(coordinator, "outcome", lambda folder, name: RESULT | {"experiment": name})
    for more, content in (([], RESULT), (["--detach"], {"experiment": "trial"})):
        code, out, err = fedlsa("network", "run", net, "--epsilon", "0.1", "--json", *more)
        assert (code, json.loads(out), err) == (0, content, "started trial\n")


def test_json_of_network_budget(printed, firms):
    said = printed("network budget", "--privacy", "1", "--sites", "10", "--coefficients", "8", "--clip", "1")
    assert (said["budget"]["epsilon"], said["rounds"]) == (1.0, 60)
    assert said["least_rmse"] == pytest.approx(56.1, abs=0.05)
    words = ["--no-standardise", "--no-intercept", "--privacy", "1000", "--max-rounds", "5"]
    said = printed("network budget", *firms, "--target", "y", *words)
    assert said["covers_standardisation"]
    assert said["plan"]["rmse"] < said["plan"]["start"]


def test_json_of_network_ledger(printed, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    site = Hostile(tmp_path / "room", gaussian_table(60))
    site.begin()
    said = printed("network ledger", site.site.folder)
    assert [entry["asked"] for entry in said["entries"]] == ["describe", "standardise", "measure"]
