"""`fedlsa fit` and `fedlsa evaluate` print, save and draw what the library computes; wrong input gets one line."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import refused

import fedlsa as fl
from fedlsa.cli.task_options import feature_map, prefix_or_names, size
from fedlsa.errors import FedLSAError

D = 3  # features; with the intercept 4 coefficients


def write(path, columns):
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*(map(repr, map(float, v)) for v in columns.values()), strict=True))


@pytest.fixture
def firms(tmp_path):
    """Three sites of a regression: firm-0.csv, ..."""
    rng = np.random.default_rng(7)
    for c in range(3):
        x = rng.normal(size=(20 + 10 * c, D))
        y = x @ [1.0, -2, 0.5] + c + 0.3 * rng.normal(size=len(x))
        write(tmp_path / f"firm-{c}.csv", {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "invest": y})
    return [f"firm-{c}.csv" for c in range(3)]


@pytest.fixture
def walks(tmp_path):
    """Two logs of a random walk on four states."""
    for c in range(2):
        rng, s, out = np.random.default_rng(c), 1, []
        for _ in range(150):
            after = s + int(rng.choice([-1, 1]))
            ended = not 0 <= after < 4
            out.append((s, 0 if ended else after, float(after == 4), float(ended)))
            s = int(rng.integers(4)) if ended else after
        columns = ("state", "next_state", "reward", "terminated")
        write(tmp_path / f"walk-{c}.csv", dict(zip(columns, np.array(out).T, strict=True)))
    return ["walk-0.csv", "walk-1.csv"]


def row(out, name):
    lines = [line.split() for line in out.splitlines() if "stands out" not in line]  # which may begin with a name
    return next(words[1:] for words in lines if words[:1] == [name])


def test_a_regression_is_fitted_printed_saved_and_drawn(fedlsa, firms):
    words = ["--target", "invest", "--local", "means", "--epsilon", "0.01", "--level", "0.9", "--baselines"]
    code, out, err = fedlsa("fit", "regression", *firms, *words, "--out", "deep/model.json", "--plot", "deep/fit.png")
    assert (code, err) == (0, "")
    expected = fl.fit(firms, fl.Regression("invest"), 0.01, local="means", baselines=True)
    assert out.startswith(f"{expected.summary(0.9)}\n")
    for site in expected.per_site:
        assert row(out, site.name) == [f"{site.rows}", *(f"{v:.3g}" for v in (
            site.weight, site.distance, site.influence, site.noise, site.finite_data))]  # fmt: skip
    assert "second moments of its features" in out
    held = fl.Fit.load("deep/model.json")
    assert np.array_equal(held.theta, expected.theta)
    assert held.made_by["command"].startswith("fedlsa fit regression firm-0.csv")
    with Image.open("deep/fit.png") as image:
        assert image.width >= 1000
        assert image.text["Source"].startswith("fedlsa fit regression")


def test_a_formula_with_categories_is_fitted_and_tried_on_other_files(fedlsa, firms):
    for c, name in enumerate(firms):
        header, *lines = Path(name).read_text().splitlines()
        Path(name).write_text("\n".join([f"{header},kind", *(f"{line},{'xyz'[c]}" for line in lines[:10]),
                                        *(f"{line},w" for line in lines[10:])]) + "\n")  # fmt: skip
    words = ["--target", "invest ~ a * b + C(kind)", "--local", "means", "--epsilon", "0.01", "--out", "m.json"]
    code, out, err = fedlsa("fit", "regression", *firms, *words)
    assert (code, err) == (0, "")
    names = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert {"a", "b", "a:b", "C(kind)[T.x]", "C(kind)[T.y]", "C(kind)[T.z]", "intercept"} <= names
    code, out, err = fedlsa("evaluate", "m.json", "firm-1.csv")
    assert (code, err) == (0, "")
    assert "firm-1.csv" in out


def test_a_value_function_with_a_feature_map_and_its_hold_out(fedlsa, walks):
    words = ["--discount", "0.9", "--features", "OneHot(4)", "--trace", "0.5", "--local", "means", "--lag", "2"]
    code, out, err = fedlsa("fit", "value", walks[0], *words, "--epsilon", "0.01", "--out", "v.json")
    assert (code, err) == (0, "")
    assert "fedlsa predict or fedlsa evaluate, v.json FILE" in out
    task = fl.Value(0.9, 0.5, features=fl.problems.features.OneHot(4))
    model = fl.fit(walks[:1], task, 0.01, local="means", lag=2)
    code, out, err = fedlsa("evaluate", "v.json", *walks, "--out", "table.csv")
    assert (code, err) == (0, "")
    assert "not the error of the values" in out
    first, head, *rows = Path("table.csv").read_text().splitlines()
    assert first == "# fedlsa evaluate v.json walk-0.csv walk-1.csv --out table.csv"
    assert head.split(",") == list(vars(fl.evaluate(model, walks)[0]))
    for line, r in zip(csv.reader(rows), fl.evaluate(model, walks), strict=True):
        assert line[0] == r.name
        assert [float(v) for v in line[1:]] == [float(v) for v in list(vars(r).values())[1:]]
        assert row(out, r.name)[1] == f"{r.td_error:.3g}"


def test_a_hold_out_of_a_regression(fedlsa, firms):
    assert fedlsa("fit", "regression", *firms[:2], "--target", "invest", "--local", "means", "--out", "m.json")[0] == 0
    code, out, _ = fedlsa("evaluate", "m.json", firms[2])
    (r,) = fl.evaluate(fl.Fit.load("m.json"), firms[2:])
    assert code == 0
    assert row(out, "firm-2.csv") == ["40", *(f"{v:.3g}" for v in (r.r_squared, r.rmse, r.spread, r.mean))]


def test_sites_own_intercepts_are_saved_only_where_asked(fedlsa, firms):
    fit = "fit", "regression", *firms[:2], "--target", "invest", "--own", "intercept", "--no-plan"
    code, out, _ = fedlsa(*fit, "--out", "m.json", "--own-effects")
    assert code == 0
    assert "Each site's own:" in out
    assert "stays there" in out
    found = fl.Fit.load("m.json")
    assert row(out, "firm-0.csv")[-1] == f"{found.own_effects['firm-0.csv']:.3g}"
    at = found.predict(firms[0], site="firm-0.csv")
    assert row(fedlsa("predict", "m.json", firms[0], "--site", "firm-0.csv")[1], "1")[0] == f"{at[0]:.5g}"
    assert "Traceback" not in (err := fedlsa("predict", "m.json", firms[0])[2])
    assert "site must be one of the fit's" in err
    assert fedlsa(*fit, "--out", "m.json", "--force")[0] == 0
    assert "own_effects must be in the fit" in fedlsa("evaluate", "m.json", firms[0])[2]
    for without in ([*fit[:-3], "--no-plan", "--out", "n.json"], fit):
        assert "--own-effects must go with --own and --out" in fedlsa(*without, "--own-effects")[2]


def test_predictions_of_a_file_are_printed_and_saved(fedlsa, firms):
    assert fedlsa("fit", "regression", *firms[:2], "--target", "invest", "--local", "means", "--out", "m.json")[0] == 0
    code, out, err = fedlsa("predict", "m.json", firms[2], "--level", "0.9", "--out", "table.csv")
    assert (code, err) == (0, "")
    found = fl.Fit.load("m.json").predict_interval(firms[2], 0.9).to_frame()
    assert row(out, "3") == ["-" if v != v else f"{v:.5g}" for v in found.loc[2]]
    assert "and 20 more\n" in out  # --out keeps them, as the command says where it is not given
    assert "and 20 more; --out keeps all" in fedlsa("predict", "m.json", firms[2])[1]
    first, head, *rows = Path("table.csv").read_text().splitlines()
    assert first == "# fedlsa predict m.json firm-2.csv --level 0.9 --out table.csv"
    assert head.split(",") == list(found)
    assert [[float(v or "nan") for v in line] for line in csv.reader(rows)] == pytest.approx(
        found.to_numpy(), nan_ok=True
    )


def test_one_file_or_a_folder_of_all_sites_is_split_by_a_column(fedlsa, firms):
    lines = [Path(name).read_text().splitlines() for name in firms]
    rows = [f"{row},{c}" for c, (_, *own) in enumerate(lines) for row in own]
    Path("all").mkdir()
    Path("all/rows.csv").write_text("\n".join([f"{lines[0][0]},firm", *rows, "1,,2,3,1"]))
    words = ["--target", "invest", "--site", "firm", "--no-plan", "--quiet"]
    code, _, err = fedlsa("fit", "regression", "all", *words)
    assert code == 2
    assert "1 of 3 sites has missing values: 1 in 1 of 31 rows ('b' 1, first in row 91); missing='drop'" in err
    code, _, err = fedlsa("fit", "regression", "all/rows.csv", *words, "--missing", "drop", "--out", "m.json")
    assert (code, err) == (0, "")
    held = fl.Fit.load("m.json")
    np.testing.assert_allclose(held.theta, fl.fit(firms, fl.Regression("invest"), plan=False).theta, rtol=1e-9)
    assert [(s.name, s.rows, s.dropped) for s in held.per_site] == [("0", 20, 0), ("1", 30, 1), ("2", 40, 0)]
    code, out, _ = fedlsa("evaluate", "m.json", "all", "--site", "firm")
    assert code == 0
    assert row(out, "1")[0] == "30"


def test_every_option_reaches_the_library(fedlsa, firms, monkeypatch):
    seen = {}

    def fit(sites, task, **given):
        seen.update(given, sites=sites, task=task)
        raise FedLSAError("seen enough")

    monkeypatch.setattr("fedlsa.cli.fit_command.fit_sites", fit)
    options = "--step-size 0.1 --local-steps 5 --rounds 7 --max-samples 99 --weight samples --local rows --lag 3 "
    options += "--seed 4 --bootstrap 50 --resample block --method fedlsa --memory 2MB --baselines --site firm "
    options += "--share-moments --no-intercept --no-standardise --ridge 0.5 --columns a,b --columns c "
    options += "--row-weights w --offset o --cluster g --covariance HC1 --missing drop --decimal ,"
    code, _, err = fedlsa("fit", "regression", "firm-[01].csv", "--target", "invest", *options.split())
    assert (code, err) == (2, "fedlsa: seen enough\n")
    assert seen.pop("sites") == [Path("firm-0.csv"), Path("firm-1.csv")]  # a pattern that the shell left alone
    assert seen.pop("task") == fl.Regression("invest", ("a", "b", "c"), False, False, 0.5, "w", "o", "drop")
    assert seen == {
        "epsilon": None, "method": "fedlsa", "step_size": 0.1, "local_steps": 5, "rounds": 7, "max_samples": 99.0,
        "share_moments": True,
        "weight": "samples", "local": "rows", "lag": 3, "seed": 4, "bootstrap": 50, "plan": True, "baselines": True,
        "resample": "block", "memory": 2e6, "progress": None, "site": "firm",
        "decimal": ",", "cluster": "g", "covariance": "HC1",
    }  # fmt: skip
    names = "--state x,y --next-state x2,y2 --reward r --terminated end --truncated cut --importance w --intercept"
    more = ["--trace", "0.3", "--standardise", "--numbers"]
    fedlsa("fit", "value", "firm-0.csv", "--discount", "0.5", *more, *names.split())
    assert seen["task"] == fl.Value(
        0.5, 0.3, ("x", "y"), ("x2", "y2"), "r", "end", "cut", "w", None, intercept=True, standardise=True, numbers=True
    )


def test_json_says_whether_the_sites_agree(fedlsa, firms):
    words = ["--target", "invest", "--columns", "a,b,c", "--no-plan", "--json", "--out", "m.json"]
    code, out, _ = fedlsa("fit", "regression", *firms, *words)
    found, between = json.loads(out), fl.Fit.load("m.json").heterogeneity()
    assert (code, found["stand_out"]) == (0, list(between.stands_out))
    assert found["heterogeneity"]["b"]["i_squared"] == between.coefficients["b"].i_squared
    assert found["heterogeneity"]["all together"]["q"] == between.together.q


def test_bootstrap_errors_stand_beside_the_others(fedlsa, firms):
    words = ["--target", "invest", "--columns", "a,b,c", "--epsilon", "0.05", "--bootstrap", "16"]
    code, out, err = fedlsa("fit", "regression", *firms, *words, "--out", "m.json")
    assert (code, err) == (0, "")
    replicas = fl.Fit.load("m.json").bootstrap
    low, high = replicas.interval(0.95)[1]
    beside = row(out.partition("Bootstrap, 16 replicas")[2], "b")
    np.testing.assert_allclose([float(v) for v in beside], (replicas.standard_error[1], low, high), rtol=5e-4)
    assert fedlsa("fit", "regression", *firms, *words, "--local", "means", "--out", "n.json")[0] == 0
    assert np.array_equal(fl.Fit.load("n.json").bootstrap.replicas, replicas.replicas)  # of the data, not of a run


def test_claims_are_tested_on_request(fedlsa, firms):
    words = ["--target", "invest", "--local", "means", "--test", "a = c", "--test", "a = 0, b = -2", "--out", "m.json"]
    code, out, err = fedlsa("fit", "regression", *firms, *words)
    assert (code, err) == (0, "")
    model = fl.Fit.load("m.json")
    assert f"{model.test('a = c')}\n\n{model.test('a = 0, b = -2')}\n" in out
    words = ["--target", "invest", "--local", "means", "--test", "aa = 0", "--out", "kept.json"]
    code, out, err = fedlsa("fit", "regression", *firms, *words)
    assert (code, out) == (2, "")
    assert fl.Fit.load("kept.json").names == model.names  # a claim that cannot be read does not lose the fit
    assert err == ("fedlsa: --test must name coefficients of the fit, and none is called 'aa'; did you mean 'a'?\n")


def test_the_same_command_writes_the_same_bytes(fedlsa, firms):
    words = ["fit", "regression", *firms, "--target", "invest", "--epsilon", "0.05", "--out", "m.json"]
    assert fedlsa(*words)[0] == 0
    first = Path("m.json").read_bytes()
    Path("m.json").unlink()
    assert fedlsa(*words)[0] == 0
    assert Path("m.json").read_bytes() == first


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("fit regression x-*.csv --target invest", "no file is called 'x-*.csv', and none matches it"),
        ("fit regression nothing.csv --target invest", "there is no nothing.csv"),
        ("fit regression none --target invest", "there is no none"),
        ("fit regression firm-0.csv firm-0.csv --target invest", "must be named once"),
        ("fit regression firm-0.csv --target inves", "did you mean 'invest'?"),
        ("fit regression firm-0.csv --target invest~a+bb", "has no column 'bb'; did you mean 'b'?"),
        ("fit regression firm-0.csv --target invest~log(a)", "log(a) must be a finite number; got nan of a = "),
        ("fit regression firm-0.csv --target invest~center(a)", "would differ from site to site"),
        ("fit regression firm-0.csv --target invest~open('a')", "the functions of a formula are log, "),
        ("fit regression firm-0.csv --target invest~a --columns b", "--columns must not be given beside a formula"),
        ("fit regression firm-0.csv --target invest~a --no-intercept", "must not be given beside a formula"),
        ("fit regression firm-0.csv", "Missing option '--target'"),
        ("fit regression firm-0.csv --target invest --method adam", "--method must be one of"),
        ("fit regression firm-0.csv --target invest --epsilon 0", "--epsilon must be"),
        ("fit regression firm-0.csv --target invest --step-size 1", "--step-size, --local-steps and --rounds must be"),
        ("fit regression firm-0.csv --target invest --weight rows", "--weight must be"),
        ("fit regression firm-0.csv --target invest --out there.json", "there.json exists; --force replaces it"),
        ("fit regression firm-0.csv --target invest --out m.pkl", "must be '.json'"),
        ("fit regression firm-0.csv --target invest --plot m.gif", "must be one of '.png'"),
        ("fit regression firm-0.csv --target invest --memory much", "--memory must be a size"),
        ("fit regression firm-0.csv --target invest --bootstrap 1", "--bootstrap must be"),
        ("fit value walk-0.csv", "Missing option '--discount'"),
        ("fit value walk-0.csv --discount 1.1", "--discount must be"),
        ("fit value walk-0.csv --discount 0.9", "numbers must be given (--numbers)"),
        ("fit value walk-0.csv --discount 0.9 --features OneHat(4)", "did you mean 'OneHot'?"),
        ("fit value walk-0.csv --discount 0.9 --features OneHot(2)", "states must be integers from 0 to 1"),
        ("evaluate there.json firm-0.csv", "there.json is not a model file"),
        ("evaluate nothing.json firm-0.csv", "there is no model file nothing.json"),
        ("evaluate firm-0.csv there.json", "the model must come first"),
        ("predict firm-0.csv there.json", "the model must come first"),
        ("predict there.json firm-*.csv", "needs one file of points; 'firm-*.csv' are 3"),
        ("predict there.json nothing.csv", "there is no nothing.csv"),
        ("predict there.json firm-0.csv --level 95", "--level must be"),
    ],
)  # fmt: skip
def test_what_a_user_can_get_wrong_is_one_line_and_exit_code_2(fedlsa, firms, walks, words, why):
    Path("there.json").write_text("{}")
    refused(fedlsa(*words.split()), why)


def test_files_are_refused_before_any_work(fedlsa, firms, monkeypatch):
    monkeypatch.setattr("fedlsa.cli.fit_command.fit_sites", lambda *a, **k: pytest.fail("it began to work"))
    Path("fit.png").touch()
    assert fedlsa("fit", "regression", *firms, "--target", "invest", "--plot", "fit.png")[0] == 2


def test_feature_maps_are_written_as_in_python():
    maps = fl.problems.features
    read = lambda text: feature_map("--features", [text])  # noqa: E731
    assert read("OneHot(64)") == maps.OneHot(64)
    assert read("Fourier([0, -1], high=[1, 1], order=2, total=True)") == maps.Fourier((0, -1), (1, 1), 2, True)
    assert read("TileCoding(low=0, high=1, tiles=8, tilings=4)") == maps.TileCoding(0, 1, 8, 4)
    for text in (
        "OneHot",
        "OneHot(",
        "64",
        "OneHot(open('x'))",
        "os.system('x')",
        "OneHot(1, 2, 3)",
        "OneHot(*[4])",
        "OneHot({[]: 4})",
    ):
        with pytest.raises(FedLSAError, match="--features"):
            read(text)


def test_sizes_and_lists_are_understood():
    assert [size("--memory", t) for t in ("100", "2MB", "1.5 GiB", "3e6")] == [100, 2e6, 1.5 * 2**30, 3e6]
    for text in ("0", "GB", "1 parsec", "1.2.3MB"):
        with pytest.raises(FedLSAError, match="--memory must be a size above 0"):
            size("--memory", text)
    assert prefix_or_names("--state", ["s"]) == "s"
    assert prefix_or_names("--state", ["s,"]) == ["s"]
    assert prefix_or_names("--state", ["x,y", "z"]) == ["x", "y", "z"]
