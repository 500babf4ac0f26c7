"""Formulas and categories: the pooled answer of formulaic's design, whatever levels a site lacks; never any code."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, MissingExtraError, SiteDataError
from fedlsa.fitting.rows import observe
from fedlsa.fitting.rows.levels import MAX_LEVELS, agree_levels, levels_of
from fedlsa.fitting.sites import arrays
from fedlsa.fitting.sites.site_readers import open_sites

formulaic = pytest.importorskip("formulaic")


@pytest.fixture(scope="module")
def wages():
    """Rows of four regions; only the first site has anybody of region d, and the last has one region alone."""
    rng = np.random.default_rng(7)
    n = 240
    out = pd.DataFrame(
        {
            "educ": rng.normal(12, 2, n).round(2),
            "exper": rng.gamma(2, 5, n).round(2),
            "region": rng.choice(list("abcd"), n),
            "grade": rng.integers(1, 4, n),
            "union": rng.random(n) < 0.3,
            "my age": rng.integers(20, 60, n),
        }
    )
    out["wage"] = np.exp(1 + 0.1 * out.educ + 0.3 * (out.region == "c") + 0.1 * out.grade + rng.normal(0, 0.2, n))
    out["site"] = np.where(
        out.region == "d", 0, np.where(out.region == "a", rng.integers(0, 3, n), rng.integers(0, 2, n))
    )
    return out


@pytest.fixture(scope="module")
def sites(wages):
    return [part.drop(columns="site") for _, part in wages.groupby("site")]


def fitted(sites, formula, **options):
    return fl.fit(sites, fl.Regression(formula, **options), plan=False)


FORMULAS = [
    "log(wage) ~ educ * exper + C(region)",
    "wage ~ region + educ:region + C(grade)",
    "wage ~ C(grade):educ + region * C(grade) - 1",
    "wage ~ C(region, contr.sum) + I(educ**2) + {exper / 10}",
    "wage ~ C(region, contr.helmert) + C(grade, contr.poly) + np.log(exper + 1)",
    "wage ~ C(region, contr.treatment('b')) * educ + 0",
    "wage ~ C(region, Treatment(reference='c')) + log(`my age`) + `my age`",
    "np.log(wage) ~ (educ + exper + region)**2 + I(exper > 10)",
    "wage ~ 2:educ + exper - 1",
    "wage ~ C(grade) + grade:educ",
    "wage ~ 1",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_gives_the_least_squares_of_the_pooled_rows(wages, sites, formula):
    pooled = formulaic.model_matrix(formula, wages)
    x, y = np.asarray(pooled.rhs, np.float64), np.asarray(pooled.lhs, np.float64)[:, 0]
    names = ["intercept" if name == "Intercept" else name for name in pooled.rhs.columns]
    expected = dict(zip(names, np.linalg.lstsq(x, y, rcond=None)[0], strict=True))
    fit = fitted(sites, formula)
    assert fit.names == tuple(sorted(names, key="intercept".__eq__))
    np.testing.assert_allclose(fit.theta, [expected[name] for name in fit.names], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("options", [{"covariance": "HC3"}, {"covariance": "HC1", "cluster": "team"}])
@pytest.mark.parametrize("formula", ["np.log(wage) ~ educ * C(region) + union", "wage ~ region + educ - 1"])
def test_weights_errors_and_r_squared_are_those_of_statsmodels(wages, formula, options):
    api = pytest.importorskip("statsmodels.formula.api")
    table = wages.assign(mass=1 + wages.grade / 3, team=100 * wages.site + np.arange(len(wages)) % 12)
    clusters = (
        {"cov_type": "cluster", "cov_kwds": {"groups": table.team}} if "cluster" in options else {"cov_type": "HC3"}
    )
    expected = api.wls(formula, table, weights=table.mass).fit(**clusters)
    task = fl.Regression(formula, row_weights="mass", **options)
    fit = fl.fit(table, task, site="site", plan=False)
    names = [name.replace("intercept", "Intercept") for name in fit.names]
    np.testing.assert_allclose(fit.theta, expected.params[names], rtol=1e-9)
    np.testing.assert_allclose(fit.standard_error, expected.bse[names], rtol=1e-9)
    assert fit.r_squared == pytest.approx(expected.rsquared, rel=1e-10)


def test_true_and_false_are_a_category_and_the_reference_is_the_first_agreed_level(sites):
    fit = fitted(sites, "wage ~ union + region")
    assert fit.names == ("union[T.True]", "region[T.b]", "region[T.c]", "region[T.d]", "intercept")


def test_levels_are_agreed_from_what_each_site_has(sites):
    task = fl.Regression("wage ~ region + C(grade) + union + educ")
    own = {site.name: levels_of(site, task) for site in open_sites(sites, task)}
    assert [levels["region"] for levels in own.values()] == [tuple("abcd"), tuple("abc"), ("a",)]
    expected = (("region", tuple("abcd")), ("grade", (1, 2, 3)), ("union", (False, True)))
    assert agree_levels(own) == expected


def test_pieces_of_several_blocks_give_the_same_as_one(sites, monkeypatch):
    formula = "log(wage) ~ educ * region + C(grade)"
    whole = fitted(sites, formula)
    monkeypatch.setattr(arrays, "ROWS", 7)
    monkeypatch.setattr(arrays, "piece_rows", lambda width, cached=0: 7)
    monkeypatch.setattr(observe, "piece_rows", lambda width: 5)
    np.testing.assert_allclose(fitted(sites, formula).theta, whole.theta, rtol=1e-11)


def test_whole_numbers_are_one_level_however_a_site_writes_them(sites):
    first, *others = sites
    as_floats = [first.assign(grade=first.grade.astype(float)), *others]
    fit, same = (fitted(given, "wage ~ C(grade)") for given in (as_floats, sites))
    assert fit.names == same.names == ("C(grade)[T.2]", "C(grade)[T.3]", "intercept")
    np.testing.assert_array_equal(fit.theta, same.theta)


def test_a_level_that_no_row_has_makes_no_column(wages):
    named = wages.assign(region=pd.Categorical(wages.region, categories=[*"zabcd"]))
    assert fitted([named], "wage ~ region").names == ("region[T.b]", "region[T.c]", "region[T.d]", "intercept")


def test_numbers_of_a_categorical_type_are_a_category_in_any_table_and_file(sites, tmp_path):
    polars = pytest.importorskip("polars")
    typed = [part.assign(grade=part.grade.astype("category")) for part in sites]
    files = [tmp_path / f"{c}.parquet" for c in range(len(typed))]
    for part, path in zip(typed, files, strict=True):
        part.to_parquet(path)
    expected = fitted(sites, "wage ~ educ + C(grade)")
    pooled = pd.concat(typed).assign(firm=np.repeat(["x", "y", "z"], [len(part) for part in typed]))
    for given in (typed, files, [part.to_dict("series") for part in typed]):
        fit = fitted(given, "wage ~ educ + grade")
        assert fit.names == ("educ", "grade[T.2]", "grade[T.3]", "intercept")
        np.testing.assert_allclose(fit.theta, expected.theta, rtol=1e-12)
    assert fl.fit(pooled, fl.Regression("wage ~ grade"), site="firm", plan=False).names[0] == "grade[T.2]"
    named = [polars.from_pandas(part).with_columns(polars.col("region").cast(polars.Categorical)) for part in sites]
    assert fitted(named, "wage ~ region").names[0] == "region[T.b]"
    with pytest.raises(SiteDataError, match=r"'grade'.* categories at site 0 and numbers at site 1"):
        fitted([typed[0], sites[1]], "wage ~ grade")


def test_pairs_of_arrays_have_the_names_of_the_formula(wages):
    pair = wages[["educ", "region"]], wages["wage"]
    fit, expected = fitted([pair], "log(wage) ~ educ + region"), fitted([wages], "log(wage) ~ educ + region")
    np.testing.assert_array_equal(fit.theta, expected.theta)
    numbers = wages[["educ", "exper"]].to_numpy(), wages["wage"]
    assert fitted([numbers], "wage ~ x0 * x1").names == ("x0", "x1", "x0:x1", "intercept")


def test_text_of_csv_files_is_a_category(sites, tmp_path):
    files = [tmp_path / f"{c}.csv" for c in range(len(sites))]
    for part, path in zip(sites, files, strict=True):
        part.to_csv(path, index=False)
    formula = "log(wage) ~ region * union + C(grade)"
    fit, expected = fitted(files, formula), fitted(sites, formula)
    assert fit.names == expected.names
    np.testing.assert_allclose(fit.theta, expected.theta, rtol=1e-9)


def test_a_formula_of_plain_columns_is_the_fit_of_these_columns(sites):
    plain = fl.fit(sites, fl.Regression("wage", columns=["educ", "exper"]), plan=False)
    fit = fitted(sites, "wage ~ educ + exper")
    np.testing.assert_allclose(fit.theta, plain.theta, rtol=1e-12)
    np.testing.assert_allclose(fit.covariance, plain.covariance, rtol=1e-9)


def test_new_tables_of_any_kind_are_predicted_by_name(wages, sites):
    fit = fitted(sites, "log(wage) ~ educ * region + C(grade) + union")
    new = wages.iloc[[0, 5, 9, 200]].assign(unused="text")
    pooled = formulaic.model_matrix("educ * region + C(grade) + union", wages)
    place = {"intercept": "Intercept", "union[T.True]": "union"}
    expected = pooled.loc[new.index, [place.get(name, name) for name in fit.names]].to_numpy(np.float64) @ fit.theta
    polars = pytest.importorskip("polars")
    one_by_one = [fit.predict(new.iloc[[j]])[0] for j in range(len(new))]
    mapping = {c: list(new[c]) for c in ("union", "region", "grade", "educ")}
    for given in (fit.predict(new), fit.predict(polars.from_pandas(new)), fit.predict(mapping), one_by_one):
        np.testing.assert_allclose(given, expected, rtol=1e-12)


def test_a_saved_formula_predicts_the_same(sites, tmp_path):
    fit = fitted(sites, "wage ~ region + C(grade) + union")
    fit.save(tmp_path / "model.json")
    again = fl.Fit.load(tmp_path / "model.json")
    assert again.levels == fit.levels == {"region": tuple("abcd"), "grade": (1, 2, 3), "union": (False, True)}
    np.testing.assert_array_equal(again.predict(sites[0]), fit.predict(sites[0]))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            {"region": "z"},
            "column 'region' must have a level that the model knows; got 'z' in row 1.*are 'a', 'b', 'c', 'd'",
        ),
        ({"region": None}, "column 'region'.*row 1"),
        ({"educ": np.nan}, "column 'educ'.*row 1"),
        ({"educ": 0.0}, r"log\(educ\) must be a finite number; got -inf of educ = 0 in row 1"),
    ],
)
def test_new_rows_that_a_model_cannot_read_are_an_error(sites, change, what):
    fit = fitted(sites, "wage ~ region + log(educ)")
    with pytest.raises(FedLSAError, match=what):
        fit.predict(sites[0].assign(**change))


def test_a_new_table_without_a_column_of_the_formula_is_an_error(sites):
    fit = fitted(sites, "wage ~ region + log(educ)")
    with pytest.raises(ArgumentError, match="'educ' that the formula names"):
        fit.predict(sites[0].drop(columns="educ"))
    with pytest.raises(TypeError, match="table"):
        fit.predict(np.ones((3, 2)))


def test_hold_outs_are_judged_with_weights_and_offsets(wages, sites):
    rng = np.random.default_rng(1)
    given = [s.assign(mass=rng.uniform(0.5, 2, len(s)), base=rng.normal(size=len(s))) for s in sites]
    fit = fitted(given, "wage ~ region + educ", row_weights="mass", offset="base")
    rows = fl.evaluate(fit, given[1:])
    pooled = pd.concat(given[1:])
    residuals = pooled.wage - fit.predict(pooled)
    centred = pooled.wage - np.average(pooled.wage, weights=pooled.mass)
    explained = 1 - np.average(residuals**2, weights=pooled.mass) / np.average(centred**2, weights=pooled.mass)
    assert [row.rows for row in rows] == [len(given[1]), len(given[2]), len(pooled)]
    assert rows[-1].r_squared == pytest.approx(explained, rel=1e-9)
    assert rows[-1].rmse == pytest.approx(np.sqrt(np.average(residuals**2, weights=pooled.mass)), rel=1e-9)
    with pytest.raises(SiteDataError, match="got 'z' in row 1"):
        fl.evaluate(fit, [given[0].assign(region="z")])


ATTACKS = [
    "y ~ __import__('os').system('touch {0}')",
    "y ~ I(open('{0}', 'w'))",
    "__import__('os').system('touch {0}') ~ x",
    "y ~ {open('{0}', 'w')}",
    "y ~ {().__class__.__base__.__subclasses__()}",
    "y ~ I(().__class__)",
    "y ~ x.__class__(3)",
    "y ~ I((lambda: 0)())",
    "y ~ I([c for c in (1, 2)])",
    "y ~ I(x[0])",
    "y ~ x[0]",
    "y ~ np.load('{0}')",
    "y ~ np.ctypeslib.os.system('touch {0}')",
    "y ~ log(x, out=x)",
    "y ~ x.log(z)",
    "y ~ I(np.abs.log(x))",
    "y ~ log(exec('1'))",
    "y ~ log(x)(3)",
    "y ~ eval('x')",
    "y ~ getattr(x, 'y')",
    "y ~ C(x, contr.treatment(open('{0}', 'w')))",
    "y ~ C(x, contr.__init__)",
    "y ~ C(x, levels=[1, 2])",
    "y ~ C(open('{0}', 'w'))",
    "y ~ I(`x`.__class__)",
    "y ~ {`x` if `x` else print(1)}",
    "y ~ {x := 3}",
    "y ~ {f'{x}'}",
    "y ~ {x.sum()}",
    "y ~ {x and exec('1')}",
    "y ~ {'a' * 10**9}",
    "y ~ {1 << 10**9}",
    "y ~ {3}",
    "y ~ {True + x}",
    "y ~ {await x}",
    "y ~ {*x}",
    "y ~ .",
    "y ~ x | z",
    "y ~ [x ~ z]",
    "y ~ x ~ z",
    "y ~ x**1000000000",
    "y ~ (a + b + c)**16",
    "y ~ " + "*".join(f"x{j}" for j in range(100)),
    "y ~ I(" + "-" * 5000 + "x)",
    "y ~ " + "x" * 20_000,
    "y ~ I(" + "9" * 400 + " * x)",
    "y ~ I(x",
    "y ~ x +",
    "y ~ 'x'",
    "y ~ center(x)",
    "y ~ poly(x, 2)",
    "y ~ bs(x, df=4)",
    "y ~ C(log(x))",
    "C(y) ~ x",
    "y + z ~ x",
    "y:z ~ x",
    "1 ~ x",
    "~ x",
    "y ~ ",
    "y ~ 0",
    "y ~ x + 2:3",
    "log(y) ~ x +\n y",
]


@pytest.mark.parametrize("formula", ATTACKS)
def test_what_is_no_formula_or_would_be_code_is_refused_before_any_row_is_read(tmp_path, formula):
    mark = tmp_path / "ran"
    with pytest.raises(ArgumentError) as refused:
        fl.Regression(formula.replace("{0}", str(mark)))
    assert not mark.exists()
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


def test_names_of_python_are_columns_like_any_other():
    rng = np.random.default_rng(0)
    table = {
        "y": rng.normal(size=30),
        "__class__": rng.normal(size=30),
        "log": rng.normal(size=30),
        "np": rng.normal(size=30),
    }
    assert fitted([table], "y ~ __class__ + log + np").names == ("__class__", "log", "np", "intercept")
    with pytest.raises(SiteDataError, match="no column '__builtins__'"):
        fitted([table], "y ~ __builtins__")


def test_functions_that_learn_from_rows_are_refused_in_words():
    with pytest.raises(ArgumentError, match=r"center.* site's own rows.* from site to site"):
        fl.Regression("y ~ center(x)")
    with pytest.raises(ArgumentError, match=r"^bs.* site's own rows.* from site to site"):
        fl.Regression("y ~ bs(x, df=4)")


def test_what_a_formula_would_silently_read_otherwise_is_refused(sites):
    for power in ("exper**2", "exper^2", "log(exper)**2"):
        with pytest.raises(ArgumentError, match=r"a square is I\(x\*\*2\); got "):
            fl.Regression(f"wage ~ educ + {power}")
    with pytest.raises(SiteDataError, match=r"no column 'wage = educ'; a formula has a ~ between"):
        fitted(sites, "wage = educ")


def test_a_number_that_a_transformation_cannot_make_is_an_error_with_its_place(sites):
    bad = sites[1].reset_index(drop=True)
    bad.loc[4, "exper"] = 0.0
    with pytest.raises(
        SiteDataError, match=r"site 1: log\(exper\) must be a finite number; got -inf of exper = 0 in row 5"
    ):
        fitted([sites[0], bad], "wage ~ log(exper)")
    with pytest.raises(SiteDataError, match=r"site 1: log\(exper\)"):
        fitted([sites[0], bad], "log(exper) ~ educ")


@pytest.mark.parametrize(
    ("formula", "what"),
    [
        ("wage ~ edc", "no column 'edc'; did you mean 'educ'"),
        ("wage ~ log(edc)", "no column 'edc'"),
        ("wag ~ educ", "no column 'wag'"),
        ("wage ~ log(region)", "column 'region' must hold numbers"),
        ("region ~ educ", "column 'region' must hold numbers"),
        ("wage ~ C(region, contr.treatment('z'))", "'z' is no level of 'region'; its levels are 'a', 'b', 'c', 'd'"),
        ("wage ~ C(grade) + grade", r"'C\(grade\)\[T.2\]', 'C\(grade\)\[T.3\]'.*'grade' determine one another"),
    ],
)
def test_data_that_do_not_fit_a_formula_are_an_error_of_one_line(sites, formula, what):
    with pytest.raises(FedLSAError, match=what) as refused:
        fitted(sites, formula)
    assert "\n" not in str(refused.value)


def test_levels_that_no_row_has_together_are_an_error_that_says_so(wages):
    apart = wages[~((wages.region == "d") & wages.union)]
    with pytest.raises(SiteDataError, match=r"'region\[T.d\]:union\[T.True\]'.* no row has these levels together"):
        fitted([apart], "wage ~ region * union")


def test_levels_of_two_kinds_are_an_error_that_names_both_sites(sites):
    other = sites[1].assign(grade=sites[1].grade.astype(str))
    with pytest.raises(
        SiteDataError, match="'grade' must have levels of one kind; got numbers at site 0 and text at site 1"
    ):
        fitted([sites[0], other], "wage ~ C(grade)")
    with pytest.raises(SiteDataError, match=r"'grade'.* text at site 1 and numbers at site 0"):
        fitted([sites[0], other], "wage ~ grade")


def test_a_category_has_so_many_levels_at_most(sites):
    n = MAX_LEVELS + 1
    table = {"y": np.arange(float(n)), "who": np.arange(n)}
    with pytest.raises(SiteDataError, match="'who', a category, must have at most 1,000 levels; site 0 has more"):
        fitted([table], "y ~ C(who)")


def test_files_that_are_read_again_give_the_same(sites, tmp_path):
    files = [tmp_path / f"{c}.csv" for c in range(len(sites))]
    for part, path in zip(sites, files, strict=True):
        part.to_csv(path, index=False)
    task = fl.Regression("log(wage) ~ educ * union + C(region)")
    kept, again = (fl.fit(files, task, plan=False, memory=memory) for memory in (1e9, 1.0))
    np.testing.assert_array_equal(kept.theta, again.theta)
    np.testing.assert_array_equal(kept.covariance, again.covariance)


def test_dates_are_no_levels(sites):
    dated = sites[0].assign(day=pd.Timestamp("2026-01-01"))
    with pytest.raises(SiteDataError, match="'day', a category, must hold text, numbers, or true and false"):
        fitted([dated], "wage ~ C(day)")


@pytest.mark.parametrize("levels", [{}, {"region": ()}, {"region": (["a"], None)}])
def test_levels_of_a_model_file_that_was_edited_are_an_error(sites, levels):
    fit = replace(fitted(sites, "wage ~ C(region)"), levels=levels)
    with pytest.raises(SiteDataError, match="level"):
        fit.predict(sites[0])


def test_numbers_that_are_not_finite_are_no_levels(sites):
    with pytest.raises(SiteDataError, match=r"'grade', a category.* got inf"):
        fitted([sites[0].assign(grade=np.inf)], "wage ~ C(grade)")


def test_formulas_say_which_extra_they_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "formulaic", None)
    with pytest.raises(MissingExtraError, match=r"formulas need formulaic: pip install 'fedlsa\[data\]'"):
        fl.Regression("never ~ seen_before")


def test_a_missing_label_is_an_error_with_its_place(sites):
    bad = sites[1].reset_index(drop=True)
    bad.loc[2, "region"] = None
    with pytest.raises(SiteDataError, match=r"missing values: site 1 in 1 of .*'region' 1, first in row 3"):
        fitted([sites[0], bad], "wage ~ region")


def test_a_site_that_has_no_value_of_a_column_is_told_so(sites):
    with pytest.raises(SiteDataError, match=r"^site 1: column 'region' must have a value in some row; all are missing"):
        fitted([sites[0], sites[1].assign(region=None)], "wage ~ region")


def test_a_level_of_dropped_rows_alone_is_no_level(sites):
    odd = sites[1].assign(region=["elsewhere", *sites[1]["region"][1:]], educ=[None, *sites[1]["educ"][1:]])
    task = fl.Regression("wage ~ region + educ", missing="drop")
    found = fl.fit([sites[0], odd], task, plan=False)
    assert "elsewhere" not in found.levels["region"]
    assert [s.dropped for s in found.per_site] == [0, 1]


def test_a_formula_says_itself_whether_it_has_an_intercept():
    assert fl.Regression("y ~ x").intercept
    assert not fl.Regression("y ~ x - 1").intercept
    with pytest.raises(ArgumentError, match="intercept"):
        fl.Regression("y ~ x", intercept=False)
    with pytest.raises(ArgumentError, match="columns"):
        fl.Regression("y ~ x", columns="x")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ x + `1`", "must not name a column '1', a constant's name"),
        ("y ~ x + Intercept", "must not name a column 'Intercept'"),
    ],
)
def test_columns_that_formulaic_takes_for_a_constant_are_refused(formula, message):
    with pytest.raises(ArgumentError, match=message):
        fl.Regression(formula)


def test_two_coefficients_of_one_name_are_refused():
    rng = np.random.default_rng(0)
    table = {c: rng.normal(size=20) for c in ("y", "x", "z", "x:z", "intercept")}
    for task in (fl.Regression("y"), fl.Regression("y ~ x + intercept")):
        with pytest.raises(SiteDataError, match="a name each; 'intercept' would be of two"):
            fl.fit([table], task, plan=False)
    with pytest.raises(SiteDataError, match="a name each; 'x:z' would be of two"):
        fl.fit([table], fl.Regression("y ~ x * z + `x:z`"), plan=False)
    assert fl.fit([table], fl.Regression("y", columns="intercept", intercept=False), plan=False).names == ("intercept",)
