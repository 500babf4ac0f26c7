"""Formulas and categories: the pooled answer of formulaic's design, whatever levels a site lacks; never any code."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, FedLSAWarning, MissingExtraError, SiteDataError
from fedlsa.fitting import rows, tables
from fedlsa.fitting.design import MAX_LEVELS, agree_levels, level_counts
from fedlsa.fitting.formulas import typed_labels
from fedlsa.fitting.sites import open_tables

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
    errors = {name: options.pop(name) for name in ("covariance", "cluster") if name in options}
    return fl.fit(sites, fl.Regression(formula, **options), plan=False, **errors)


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
    "wage ~ C(region) - 1",
    "wage ~ 0 + region",
    "wage ~ region:C(grade) - 1",
    "wage ~ C(region, contr.sum) - 1",
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
    task = fl.Regression(formula, row_weights="mass")
    fit = fl.fit(table, task, site="site", plan=False, **options)
    names = [name.replace("intercept", "Intercept") for name in fit.names]
    np.testing.assert_allclose(fit.theta, expected.params[names], rtol=1e-9)
    np.testing.assert_allclose(fit.standard_error, expected.bse[names], rtol=1e-9)
    assert fit.r_squared == pytest.approx(expected.rsquared, rel=1e-10)


def test_true_and_false_are_a_category_and_the_reference_is_the_first_agreed_level(sites):
    fit = fitted(sites, "wage ~ union + region")
    assert fit.names == ("union[T.True]", "region[T.b]", "region[T.c]", "region[T.d]", "intercept")


def test_levels_are_agreed_from_what_each_site_has(sites):
    task = fl.Regression("wage ~ region + C(grade) + union + educ")
    own = {site.name: level_counts(site, task) for site in open_tables(sites, task)}
    assert [tuple(levels["region"]) for levels in own.values()] == [tuple("abcd"), tuple("abc"), ("a",)]
    expected = (("region", tuple("abcd")), ("grade", (1, 2, 3)), ("union", (False, True)))
    assert agree_levels(own) == expected


def test_pieces_of_several_blocks_give_the_same_as_one(sites, monkeypatch):
    formula = "log(wage) ~ educ * region + C(grade)"
    whole = fitted(sites, formula)
    monkeypatch.setattr(tables, "block_rows", lambda width, cached=0: 7)
    monkeypatch.setattr(rows, "block_rows", lambda width: 5)
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
        ({"region": None}, "'region' 154, first in row 1"),
        ({"educ": np.nan}, "'educ' 154, first in row 1"),
        ({"educ": 0.0}, r"log\(educ\) must be a finite number; got -inf of educ = 0 in row 1"),
    ],
)
def test_new_rows_that_a_model_cannot_read_are_an_error(sites, change, what):
    fit = fitted(sites, "wage ~ region + log(educ)")
    with pytest.raises(FedLSAError, match=what):
        fit.predict(sites[0].assign(**change))


def test_a_new_table_without_a_column_of_the_formula_is_an_error(sites):
    fit = fitted(sites, "wage ~ region + log(educ)")
    with pytest.raises(ArgumentError, match="got none called 'educ'"):
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
    "y ~ C(x, levels=[open('{0}', 'w')])",
    "y ~ C(x, levels=x)",
    "y ~ C(x, levels=[])",
    "y ~ C(x, levels=[1, 1.0])",
    "y ~ C(x, levels=[1, True])",
    "y ~ C(x, levels=[1, 'a'])",
    "y ~ C(x, levels=[[1]])",
    "y ~ C(x, levels=['a'] * 3)",
    "y ~ C(x, ['a', 'b'])",
    "y ~ C(x, contr.sum, contr.sum)",
    "y ~ C(x, contr.sum, depth=3)",
    "y ~ C(x, **{'levels': [1]})",
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


def test_backticks_around_a_plain_name_change_nothing(doses):
    for formula in (
        "y ~ exp({0}x{0})",
        "y ~ C({0}dose{0}, levels=['mid', 'low', 'high'])",
        "y ~ {0}x{0}:dose + {0}x{0}",
    ):
        plain, quoted = (fitted([doses], formula.format(mark)) for mark in ("", "`"))
        assert quoted.names == plain.names
        np.testing.assert_array_equal(quoted.theta, plain.theta)
    named = doses.rename(columns={"x": "class", "dose": "o"})
    assert fitted([named], "y ~ `class` + C(`o`, Treatment('low'))").names[0] == "class"


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
    with pytest.raises(SiteDataError, match="'day', a category: levels must be text, numbers, or true and false"):
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


@pytest.mark.parametrize(
    "formula",
    [
        "wage ~ C(region) - 1",
        "wage ~ 0 + region",
        "wage ~ region:team - 1",
        "wage ~ region + team - 1",
        "wage ~ educ:region - 1",
        "wage ~ region + region:team",
        "wage ~ C(region, Treatment('c')) * team",
        "wage ~ C(region, Sum, levels=['d', 'b', 'a', 'c']) + educ",
        "wage ~ C(region, Treatment('b'), levels=['d', 'b', 'a', 'c'])",
        "wage ~ C(region, levels=['d', 'b', 'a', 'c']):educ",
    ],
)
def test_categories_with_and_without_an_intercept_have_the_coefficients_of_statsmodels(wages, formula):
    api = pytest.importorskip("statsmodels.formula.api")
    table = wages.assign(team=np.where(np.arange(len(wages)) % 3, "red", "blue"))
    expected = api.ols(formula, table).fit().params.rename({"Intercept": "intercept"})
    fit = fl.fit(table, fl.Regression(formula), site="site", plan=False)
    assert {*fit.names} == {*expected.index}
    np.testing.assert_allclose(fit.theta, expected[list(fit.names)], rtol=1e-9)


def test_sum_contrasts_without_an_intercept_fit_the_same_values_as_those_of_statsmodels(wages):
    """With one coefficient for each level, as in R; statsmodels has their mean, and what levels add to it."""
    api = pytest.importorskip("statsmodels.formula.api")
    fit = fl.fit(wages, fl.Regression("wage ~ C(region, contr.sum) - 1"), site="site", plan=False)
    expected = api.ols("wage ~ C(region, Sum) - 1", wages).fit().fittedvalues
    np.testing.assert_allclose(fit.predict(wages), expected, rtol=1e-10)


DOSES = ["low", "mid", "high"]


@pytest.fixture(scope="module")
def doses():
    """Doses of text at three sites, of which one has a single level and one lacks the middle."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"y": rng.normal(size=90), "x": rng.normal(size=90), "firm": np.repeat(["p", "q", "r"], 30)})
    table["dose"] = [*np.resize(DOSES, 30), *["high"] * 30, *np.resize(["high", "low"], 30)]
    return table


def declared(doses, kind, tmp_path):
    """The same table where the type of the doses declares their order."""
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    frame = doses.assign(dose=pd.Categorical(doses.dose, categories=[*DOSES, "never"], ordered=kind != "unordered"))
    if kind == "enum":
        return polars.from_pandas(doses).with_columns(polars.col("dose").cast(polars.Enum([*DOSES, "never"])))
    if kind == "arrow":
        codes = pyarrow.array(doses.dose.map(DOSES.index))
        values = pyarrow.DictionaryArray.from_arrays(codes, DOSES, ordered=True)
        return pyarrow.table({c: values if c == "dose" else pyarrow.array(doses[c]) for c in doses})
    if kind == "arrow of pandas":
        return pyarrow.Table.from_pandas(frame.assign(dose=frame.dose.cat.as_unordered()))
    if kind in ("parquet", "parquet of an enum"):
        path = tmp_path / "doses.parquet"
        if kind == "parquet":
            frame.to_parquet(path, row_group_size=20)
        else:
            declared(doses, "enum", tmp_path).write_parquet(path)
        return path
    return frame


@pytest.mark.parametrize(
    "kind", ["ordered", "unordered", "enum", "arrow", "arrow of pandas", "parquet", "parquet of an enum"]
)
def test_levels_have_the_order_that_their_type_declares(doses, kind, tmp_path):
    api = pytest.importorskip("statsmodels.formula.api")
    table = declared(doses, kind, tmp_path)
    ordered = doses.assign(dose=pd.Categorical(doses.dose, categories=DOSES))
    expected = api.ols("y ~ x + dose", ordered).fit().params
    fit = fl.fit(table, fl.Regression("y ~ x + dose"), site="firm", plan=False)
    assert fit.names == ("x", "dose[T.mid]", "dose[T.high]", "intercept")
    assert fit.levels == {"dose": tuple(DOSES)}
    names = [name.replace("intercept", "Intercept") for name in fit.names]
    np.testing.assert_allclose(fit.theta, expected[names], rtol=1e-9)


def test_an_order_is_that_of_its_type_even_where_no_site_has_two_levels(doses):
    ordered = doses.assign(dose=pd.Categorical(doses.dose, categories=DOSES), firm=doses.dose)
    assert fl.fit(ordered, fl.Regression("y ~ x + dose"), site="firm", plan=False).levels["dose"] == tuple(DOSES)


def test_text_and_categories_of_polars_are_sorted(doses):
    polars = pytest.importorskip("polars")
    typed = polars.from_pandas(doses).with_columns(polars.col("dose").cast(polars.Categorical))
    for table in (doses, typed):
        assert fl.fit(table, fl.Regression("y ~ dose"), site="firm", plan=False).levels["dose"] == tuple(sorted(DOSES))


def test_numbers_of_a_category_have_its_order(doses):
    rank = pd.Categorical(doses.dose.map({"low": 3, "mid": 1, "high": 2}), categories=[3.0, 1.0, 2.0])
    for formula, name in (("y ~ rank + x", "rank"), ("y ~ C(rank)", "C(rank)")):
        fit = fl.fit(doses.assign(rank=rank), fl.Regression(formula), site="firm", plan=False)
        assert f"{name}[T.1]" in fit.names
        assert f"{name}[T.2]" in fit.names
        assert fit.levels == {"rank": (3, 1, 2)}


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (["ac", "b"], "abc"),
        (["ca", "cb"], "cab"),
        (["cb", "ca"], "cab"),
        (["ba", "cd"], "bacd"),
        (["zm", "ma", "ba"], "bzma"),
        (["acb", "c", "ad"], "acbd"),
    ],
)
def test_levels_of_all_sites_keep_the_order_of_each_whatever_the_order_of_the_sites(lists, expected):
    for given in (lists, lists[::-1]):
        agreed = agree_levels({f"site {c}": {"dose": tuple(levels)} for c, levels in enumerate(given)})
        assert agreed == (("dose", tuple(expected)),)


@pytest.mark.parametrize(
    ("lists", "what"),
    [
        (["acb", "bca"], "'a' before 'c' at site 0 and 'c' before 'a' at site 1"),
        (["xba", "abx"], "'x' before 'b' at site 0 and 'b' before 'x' at site 1"),
        (["ab", "bc", "ca"], "'a' before 'b' at site 0 and 'b' before 'c' at site 1 and 'c' before 'a' at site 2"),
    ],
)
def test_orders_that_contradict_each_other_are_an_error_that_names_sites_and_levels(lists, what):
    found = {f"site {c}": {"dose": tuple(levels)} for c, levels in enumerate(lists)}
    with pytest.raises(SiteDataError, match=f"'dose' must have its levels in one order.*{what}.*levels="):
        agree_levels(found)


def test_a_thousand_levels_in_the_orders_of_many_sites_are_merged():
    levels = [f"{j:04}" for j in range(MAX_LEVELS)][::-1]
    found = {f"site {c}": {"who": tuple(levels[c:] if c % 2 else levels[: -c or None])} for c in range(40)}
    assert agree_levels(found) == (("who", tuple(levels)),)


def test_a_formula_settles_the_order_where_sites_differ(doses):
    tables = [doses.assign(dose=pd.Categorical(doses.dose, categories=c)) for c in (DOSES, DOSES[::-1])]
    with pytest.raises(SiteDataError, match="'low' before 'mid' at site 0 and 'mid' before 'low' at site 1"):
        fitted(tables, "y ~ dose")
    fit = fitted(tables, "y ~ C(dose, levels=['mid', 'low', 'high'])")
    assert fit.levels == {"dose": ("mid", "low", "high")}
    assert [name.rpartition("[")[2] for name in fit.names] == ["T.low]", "T.high]", "intercept"]


def test_a_level_that_a_formula_does_not_list_is_an_error_and_one_that_no_row_has_a_warning(doses):
    with pytest.raises(SiteDataError, match=r"column 'dose' must have a level.*got 'mid' in row 2 .*'low', 'high'"):
        fitted([doses], "y ~ C(dose, levels=['low', 'high'])")
    with pytest.warns(FedLSAWarning, match="no row has the level 'none' of 'dose'") as given:
        fit = fitted([doses], "y ~ C(dose, levels=['none', 'mid', 'low', 'high'])")
    assert len(given) == 1
    assert [name.rpartition("[")[2] for name in fit.names] == ["T.low]", "T.high]", "intercept"]
    with pytest.raises(SiteDataError, match="got 'none' in row 1"):
        fit.predict(doses.assign(dose="none"))
    with pytest.raises(SiteDataError, match="'none' is no level of 'dose'; its levels are 'mid', 'low', 'high'"):
        fitted([doses], "y ~ C(dose, Treatment('none'), levels=['none', 'mid', 'low', 'high'])")


@pytest.mark.parametrize(
    ("formula", "names"),
    [
        ("y ~ same", ("intercept",)),
        ("y ~ dose * same", ("dose[T.low]", "dose[T.mid]", "intercept")),
        ("y ~ x + x:C(same)", ("x", "intercept")),
    ],
)
def test_a_category_of_one_level_that_has_no_coefficient_is_a_warning(doses, formula, names):
    with pytest.warns(FedLSAWarning, match="column 'same' has one level in all rows, 'only': .*no coefficient"):
        fit = fitted([doses.assign(same="only")], formula)
    assert fit.names == names


@pytest.mark.filterwarnings("error")
def test_a_category_of_one_level_that_has_a_coefficient_is_none(doses):
    table = doses.assign(same="only")
    assert fitted([table], "y ~ same - 1").names == ("same[only]",)
    assert fitted([table], "y ~ x:same").names == ("x:same[only]", "intercept")
    one_at_each = [part for _, part in doses.groupby("dose")]
    assert len(fitted(one_at_each, "y ~ dose").names) == 3


@pytest.mark.parametrize(
    ("texts", "levels"),
    [
        (["7", "10", "8.0"], [7, 10, 8]),
        (["01067", "1067"], ["01067", "1067"]),
        (["+7", "7"], ["+7", "7"]),
        ([str(2**60), str(2**60 + 1)], [2**60, 2**60 + 1]),
        ([str(2**64), "1"], [str(2**64), "1"]),
        (["-3", "0", "0.5", "1e+30"], [-3, 0, 0.5, 1e30]),
        (["0.50", "2"], ["0.50", "2"]),
        (["1_000", "2"], ["1_000", "2"]),
        (["inf", "2"], ["inf", "2"]),
        (["-0", "2"], ["-0", "2"]),
        (["\u0667", "2"], ["\u0667", "2"]),
        (["TRUE", "False", "true"], [True, False, True]),
        (["true", "1"], ["true", "1"]),
        (["a", "1"], ["a", "1"]),
    ],
)
def test_what_files_without_types_hold_is_a_number_only_where_all_of_it_is_written_as_one(texts, levels):
    found = [*typed_labels(texts).values()]
    assert found == levels
    assert [*map(type, found)] == [*map(type, levels)]


def written(tmp_path, **columns):
    """CSV files, one for each entry of the columns."""
    out = []
    for c, cells in enumerate(zip(*columns.values(), strict=True)):
        rows = zip(*cells, strict=True)
        text = "\n".join([",".join(("y", *columns)), *(f"{k % 7},{','.join(row)}" for k, row in enumerate(rows))])
        out.append(tmp_path / f"{c}.csv")
        out[-1].write_text(text + "\n", encoding="utf-8")
    return out


def test_codes_of_csv_files_stay_apart_and_exact(tmp_path):
    ids = [str(2**60 + j) for j in range(3)]
    files = written(tmp_path, zip=[["01067", "1067"] * 6, ["1067", "99"] * 6], id=[ids * 4, ids * 4])
    fit = fitted(files, "y ~ C(zip) + C(id)")
    assert fit.levels == {"zip": ("01067", "1067", "99"), "id": tuple(map(int, ids))}
    assert fit.predict(files[0]).shape == (12,)
    numbers = written(tmp_path, zip=[["1067", "99"] * 6, ["1067.0", "99"] * 6])
    assert fitted(numbers, "y ~ C(zip)").levels == {"zip": (99, 1067)}


def test_a_column_of_a_csv_file_may_be_numbers_and_a_category_in_one_formula(sites, tmp_path):
    files = [tmp_path / f"{c}.csv" for c in range(len(sites))]
    for part, path in zip(sites, files, strict=True):
        part.to_csv(path, index=False)
    fit, expected = (fitted(given, "wage ~ C(grade) + grade:educ") for given in (files, sites))
    np.testing.assert_allclose(fit.theta, expected.theta, rtol=1e-9)
    np.testing.assert_allclose(fit.predict(files[0]), expected.predict(sites[0]), rtol=1e-9)


def test_types_of_one_site_decide_what_texts_of_another_are(tmp_path):
    [file] = written(tmp_path, grade=[["1", "2", "3.0"] * 4], union=[["TRUE", "false", "true"] * 4])
    table = pd.DataFrame({"y": np.arange(9.0), "grade": [2, 3, 4] * 3, "union": [True, False, True] * 3})
    fit = fitted([file, table], "y ~ C(grade) + union")
    assert fit.levels == {"grade": (1, 2, 3, 4), "union": (False, True)}
    text = fitted([file, table.assign(grade=["2", "03", "4"] * 3)], "y ~ C(grade)")
    assert text.levels == {"grade": ("03", "1", "2", "3.0", "4")}
    ordered = table.assign(grade=pd.Categorical(["2", "3.0", "1"] * 3, categories=["2", "3.0", "1"]))
    with pytest.raises(SiteDataError, match=r"'1' before '2' at 0.csv and '2' before '1' at site 1"):
        fitted([file, ordered], "y ~ C(grade)")
    listed = fitted([file], "y ~ C(grade, levels=['3.0', '2', '1'])")
    assert listed.levels == {"grade": ("3.0", "2", "1")}
    [other] = written(tmp_path, grade=[["1", "two", "3"] * 4])
    with pytest.raises(
        SiteDataError, match="'grade' must have levels of one kind; got numbers at site 1 and text at 0"
    ):
        fitted([other, table], "y ~ C(grade)")


def test_a_level_that_a_model_of_numbers_does_not_know_is_named_as_it_is_written(tmp_path):
    [file] = written(tmp_path, grade=[["1", "2", "3"] * 4])
    fit = fitted([file], "y ~ C(grade)")
    [new] = written(tmp_path, grade=[["1", "2", "two"]])
    with pytest.raises(SiteDataError, match=r"'grade' must have a level that the model knows; got 'two' in row 3"):
        fit.predict(new)


@pytest.mark.parametrize("first", ["31", "unknown"])
def test_a_column_of_numbers_with_a_word_in_it_is_refused_with_its_place(tmp_path, first):
    cells = [first, *map(str, range(20, 320)), "unknown", "n.k."]
    files = written(tmp_path, age=[cells])
    row = cells.index("unknown") + 1
    with pytest.raises(SiteDataError, match=rf"column 'age' .*'unknown' in row {row}\b"):
        fitted(files, "y ~ age")
    fit = fitted(files, "y ~ C(age, Treatment('unknown')) - 1")
    assert len(fit.levels["age"]) == len({*cells})


def test_a_word_before_more_numbers_than_a_category_has_levels_is_named(tmp_path):
    files = written(tmp_path, age=[["unknown", *map(str, range(MAX_LEVELS + 1))]])
    what = r"holds numbers but for 'unknown' in row 1 .*; C\(age\) makes it a category; missing='drop'.* NA,"
    with pytest.raises(SiteDataError, match=what):
        fitted(files, "y ~ age")


def test_few_numbers_among_words_make_no_column_of_numbers(tmp_path):
    files = written(tmp_path, grade=[["a", "1", "b", "c", "a", "b"] * 3])
    assert fitted(files, "y ~ grade").levels == {"grade": ("1", "a", "b", "c")}


def test_a_column_may_be_called_as_the_reader_calls_those_in_backticks():
    rng = np.random.default_rng(5)
    table = pd.DataFrame(rng.uniform(1, 2, (40, 3)), columns=["y", "_quoted_0_", "a b"])
    found = fl.fit([table], fl.Regression("y ~ exp(`a b` + _quoted_0_)"), plan=False)
    plain = table.rename(columns={"_quoted_0_": "u", "a b": "v"})
    np.testing.assert_allclose(found.theta, fl.fit([plain], fl.Regression("y ~ exp(v + u)"), plan=False).theta)
