"""Model files: what is saved comes back to the last bit, and what is no model says so in one line."""

import dataclasses
import json

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, FedLSAWarning, ResultFileError
from fedlsa.fitting import model_files
from fedlsa.problems import features


def same(a, b):
    """Whether two values agree in every field, in type and to the last bit; NaN is equal to itself."""
    if dataclasses.is_dataclass(a):
        names = [f.name for f in dataclasses.fields(a) if f.compare]  # residuals stay where the rows are
        return type(a) is type(b) and all(same(getattr(a, name), getattr(b, name)) for name in names)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def regression_sites(rows=30, sites=3, d=3):
    rng = np.random.default_rng(5)
    draws = [rng.normal(size=(rows, d)) for _ in range(sites)]
    return [(x, x @ np.arange(1.0, d + 1) + rng.normal(size=rows)) for x in draws]


def walk(states=4, rows=200, seed=0):
    """A log of a random walk on a line that ends at both sides."""
    rng, s, out = np.random.default_rng(seed), 1, []
    for _ in range(rows):
        after = s + int(rng.choice([-1, 1]))
        ended = not 0 <= after < states
        out.append((s, 0 if ended else after, float(after == states), float(ended)))
        s = int(rng.integers(states)) if ended else after
    return dict(zip(("state", "next_state", "reward", "terminated"), np.array(out).T, strict=True))


@pytest.fixture(scope="module")
def fitted():
    """A fit with everything in it: baselines, replicas, and a site whose own solution is open."""
    sites = [*regression_sites(), (np.eye(3)[:2], np.ones(2))]
    return fl.fit(sites, fl.Regression("y"), 0.2, baselines=True, bootstrap=8)


def test_a_fit_comes_back_to_the_last_bit(fitted, tmp_path):
    assert np.isnan(fitted.per_site[3].theta).all()
    assert fitted.bootstrap is not None
    fitted.save(tmp_path / "model.json")
    again = fl.Fit.load(tmp_path / "model.json")
    assert same(fitted, again)
    again.save(tmp_path / "again.json")
    assert (tmp_path / "model.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_what_only_some_fits_have_comes_back_too(fitted, tmp_path):
    levels = {"place": ("a", "b"), "year": (1, 2), "smokes": (False, True), "dose": (0.5, 1.0)}
    known = {"degrees_of_freedom": 87.0, "covariance_kind": "CR3, 4 clusters", "r_squared": 0.1, "notes": ("so", "so")}
    sites = tuple(dataclasses.replace(s, dropped=3) for s in fitted.per_site)
    changed = dataclasses.replace(fitted, plan=None, levels=levels, per_site=sites, residual_variance=2.0, **known)
    changed.save(tmp_path / "model.json")
    assert same(changed, fl.Fit.load(tmp_path / "model.json"))
    assert changed.communications == 0
    assert "planned run" in repr(changed)


@pytest.mark.parametrize(
    "phi",
    [
        None,
        features.OneHot(4),
        features.Aggregation(4, (0, 0, 1, 2)),
        features.Fourier(0.0, 3.0, order=3),
        features.TileCoding(0.0, 4.0, tiles=4),
        features.RadialBasis(0.0, 3.0, centres=4, width=0.4),
    ],
    ids=lambda phi: type(phi).__name__,
)
def test_a_task_with_its_feature_map_comes_back_and_values_the_same(phi, tmp_path):
    sites = [walk(seed=c) for c in range(2)]
    task = fl.Value(0.9, features=phi, numbers=phi is None, intercept=phi is None)
    fit = fl.fit(sites, task, 0.05, local="means", method="scaffnew" if phi is None else "scafflsa")
    fit.save(tmp_path / "model.json")
    again = fl.Fit.load(tmp_path / "model.json")
    assert same(fit, again)
    states = np.arange(4.0)[:, None]
    assert again.predict_interval(states) == fit.predict_interval(states)


def test_a_table_of_features_comes_back(tmp_path):
    table = np.random.default_rng(1).normal(size=(4, 4))
    fit = fl.fit([walk()], fl.Value(0.9, features=table), 0.05, local="means")
    fit.save(tmp_path / "model.json")
    assert np.array_equal(fl.Fit.load(tmp_path / "model.json").task.features, table)


def test_features_that_are_code_are_missed_at_both_ends(tmp_path):
    def phi(states):
        return np.eye(4)[states.astype(int)]

    fit = fl.fit([walk()], fl.Value(0.9, features=phi), 0.05, local="means")
    with pytest.warns(FedLSAWarning, match="cannot hold the features, phi"):
        fit.save(tmp_path / "model.json")
    with pytest.raises(ResultFileError, match=r"features that are code \(phi\)"):
        fl.Fit.load(tmp_path / "model.json")
    again = fl.Fit.load(tmp_path / "model.json", features=phi)
    assert np.array_equal(again.predict([1, 2]), fit.predict([1, 2]))


def test_features_are_not_taken_where_the_file_has_its_own(fitted, tmp_path):
    fitted.save(tmp_path / "model.json")
    with pytest.raises(ArgumentError, match="holds its own"):
        fl.Fit.load(tmp_path / "model.json", features=np.eye(3))


def test_the_file_is_for_people_and_other_programs(fitted, tmp_path):
    fitted.save(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    held = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert (held["format"], held["version"]) == ("fedlsa-fit", 6)
    assert held["per_site"][3]["theta"] == [None] * 4
    assert max(map(len, text.splitlines())) < 250  # a row of a table has a line


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda text: text[: len(text) // 2], "is not a model file, or is cut short"),
        (lambda text: "[1, 2]", "is not a model file of fedlsa"),
        (lambda text: text.replace('"fedlsa-fit"', '"other"'), "is not a model file of fedlsa"),
        (lambda text: text.replace('"version": 6', '"version": 5'), "has version 5; this fedlsa reads version 6: fit"),
        (lambda text: text.replace('"theta":', '"thetas":', 1), "is damaged or was edited"),
        (lambda text: text.replace('"version": 6', '"version": true'), "has version True; this fedlsa reads version 6"),
        (lambda text: text.replace("null", "NaN", 1), "is damaged"),
        (lambda text: text[: text.rindex(",")] + "\n}\n", "is damaged or was edited"),  # without the digest
        (lambda text: text + " ", "is damaged or was edited"),
    ],
)
def test_a_file_that_is_no_model_is_told_in_a_line(fitted, tmp_path, spoil, why):
    path = tmp_path / "model.json"
    fitted.save(path)
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ResultFileError, match=why) as caught:
        fl.Fit.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_changed_digit_lost_line_or_exchanged_lines_are_read(fitted, tmp_path):
    fitted.save(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    digits = [i for i, letter in enumerate(text) if letter.isdigit()]
    spoilt = [text[:i] + str((int(text[i]) + 4) % 10) + text[i + 1 :] for i in digits[:: len(digits) // 100]]
    lines = text.splitlines(keepends=True)
    spoilt += ["".join(lines[:i] + lines[i + 1 :]) for i in range(len(lines))]
    spoilt += ["".join([*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]) for i in range(1, len(lines) - 2)]
    for changed in spoilt:
        if changed != text:
            (tmp_path / "model.json").write_text(changed)
            with pytest.raises(ResultFileError, match=r"model\.json (is|has version)"):
                fl.Fit.load(tmp_path / "model.json")
    (tmp_path / "model.json").write_bytes(text.replace("\n", "\r\n").encode())  # as a mail may bring it
    assert same(fl.Fit.load(tmp_path / "model.json"), fitted)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda held: held.update(thetas=held.pop("theta")), "is damaged"),
        (lambda held: held["names"].pop(), "is damaged: 3 names"),
        (lambda held: held["task"].update(kind="Classification"), "is damaged"),
        (lambda held: held["task"].update(cluster="sites"), "there is no argument 'cluster'; it is cluster of fl.fit"),
    ],
)
def test_a_file_with_its_digest_that_holds_no_model_is_told_in_a_line(fitted, tmp_path, spoil, why):
    path = tmp_path / "model.json"
    fitted.save(path)
    held = json.loads(path.read_text())
    del held["sha256"]
    spoil(held)
    path.write_text(model_files._with_digest(held))
    with pytest.raises(FedLSAError, match=why) as caught:
        fl.Fit.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_picture_are_told_in_a_line(tmp_path):
    with pytest.raises(ResultFileError, match="there is no model file"):
        fl.Fit.load(tmp_path / "nothing.json")
    (tmp_path / "picture.json").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    with pytest.raises(ResultFileError, match="is not a model file, or is cut short: 'utf-8' codec"):
        fl.Fit.load(tmp_path / "picture.json")
    with pytest.raises(ResultFileError, match="cannot write the model"):
        fl.fit(regression_sites(), fl.Regression("y"), local="means").save(tmp_path / "no" / "folder" / "m.json")
