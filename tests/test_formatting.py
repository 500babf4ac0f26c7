"""What objects say of themselves fits on a screen, holds what a reader wants to know, and is escaped in notebooks."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from html.parser import HTMLParser

import numpy as np
import pytest
from objects import ALL, SETTINGS

import fedlsa as fl
from fedlsa.value_objects import ROWS, WIDTH, Displayed, call, meanings, shown, spread_table

METHOD = fl.FedLSA(0.1, 10)
LARGEST = 50_000  # letters of the HTML of an object
pytestmark = pytest.mark.filterwarnings("ignore::fedlsa.errors.FedLSAWarning")
WORDS = {
    "garnet": ["2 agents", "dimension 2", "garnet(", "seed=3", "theta_star", "Markov()"],
    "log": ["7 transitions", "3 terminated", "reward"],
    "rank-one observations": ["RankOne", "array of shape (26, 2)", "40 numbers"],
    "constants": ["Constants: ", "C_A", "largest mean matrix", "how much agents differ", "sigma_eps"],
    "markov constants": ["tau_mix", "the longest mixing time", "kappa_Q"],
    "moments": ["Moments: ", "array of shape (2, 2, 2)", "agents of each group"],
    "stationary": ["The law that theta tends to", "bias", "mean squared error", "route"],
    "bound": ["conditions", "transient: ", "the bound on E||theta_t - theta_star||^2"],
    "bound at many rounds": ["(200 numbers)"],
    "complexity": ["root mean squared error to be reached", "communications T"],
    "plan": ["Plan", "SCAFFLSA(step_size=0.20", "local_steps=16", "samples per agent", "predicted RMSE", "start"],
    "fit": ["Regression(target='y')", "24 rows of 2 sites", "intercept", "standard error"],
    "value fit": ["7 rows of 1 site", "features=array of shape (3, 3)"],
    "prediction": ["standard_error", "because data are finite"],
    "residuals": ["in units of the target"],
    "FedLSA": ["FedLSA(step_size=0.1, local_steps=10)"],
    "Markov": ["Markov(thin=2, start=(0, 1))"],
}
SPREADS = ("garnet", "regression", "dense", "transitions", "stream", "a pickled problem", "fit", "value fit",
            "bootstrap", "heterogeneity")  # fmt: skip
made = functools.cache(lambda name: ALL[name]())


@pytest.mark.parametrize("name", ALL)
def test_a_repr_fits_on_a_screen_and_says_what_matters(name) -> None:
    thing = made(name)
    lines = repr(thing).splitlines()
    assert str(thing) == repr(thing)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= WIDTH
    for word in WORDS.get(name, ()):
        assert word in repr(thing), f"{word!r} is not in\n{thing!r}"
    if name in SETTINGS and name != "Value":
        assert eval(repr(thing), {**vars(fl.problems.features), **{n: getattr(fl, n) for n in fl.__all__}}) == thing


@pytest.mark.parametrize("name", [name for name in ALL if name != "fit summary"])  # which is a page of its own
def test_a_notebook_shows_the_same_rows_as_a_table(name) -> None:
    thing, found = made(name), []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.append([tag, ""])

        def handle_data(self, data):
            found[-1][1] += data

    html, _, further = thing._repr_html_().partition("<p>")
    Reader().feed(html)
    title, rows = thing._display()
    assert [text for tag, text in found if tag == "strong"] == [title]
    assert [text for tag, text in found if tag == "th"] == [label for label, *_ in rows]
    assert len([tag for tag, _ in found if tag == "td"]) == sum(len(row) - 1 for row in rows)
    assert ("<table" in further) == (name in SPREADS)
    assert len(html + further) < LARGEST
    if name in SETTINGS:
        assert all(meaning for _, _, meaning in rows), "an option without a word"


def test_large_objects_make_small_pages() -> None:
    p = fl.problems.regression([(np.random.default_rng(c).normal(size=(60, 50)), np.ones(60)) for c in range(300)])
    assert "median" in p._repr_html_()
    assert len(p._repr_html_()) < LARGEST
    assert "median" not in fl.problems.regression([(np.eye(500), np.ones(500))])._repr_html_()  # they take long
    assert len(repr(p)) < 2_000


def test_a_spread_leaves_out_what_is_no_number_and_escapes_names() -> None:
    others = [[np.nan, np.nan], [-1.0, np.nan], [2.0, np.nan], [5.0, np.nan]]
    html = spread_table("a & b", ["<b>", "none"], [0.5, 0.25], others)
    assert html.startswith("<p>a &amp; b</p><table")
    assert "&lt;b&gt;" in html
    assert "nan" not in html.lower()
    assert re.findall(r"<td>(.*?)</td>", html) == ["0.5", "-1", "2", "5", "0.25", "", "", ""]
    assert re.findall(r"<td>(.*?)</td>", spread_table("", ["x"], [0.5], [[np.nan]])) == ["0.5"]


def test_meanings_are_read_from_docstrings() -> None:
    assert meanings(fl.FedLSA)["local_steps"].startswith("observations that each agent receives")
    assert meanings(fl.FedLSA)["average_after"].endswith("By default never")
    assert meanings(fl.Regression)["columns"] == "that explain it, by default all others"
    assert meanings(type("Bare", (), {})) == {}


@dataclass(frozen=True, repr=False)
class Record(Displayed):
    """A record for these tests."""

    text: str
    numbers: dict[str, float]
    many: tuple[int, ...] = ()


def test_text_is_escaped_cut_and_counted() -> None:
    record = Record("<script>alert('&')</script>", {"a": 1 / 3}, tuple(range(12)))
    html = record._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)" in html
    assert repr(record).splitlines()[2:] == [
        "  numbers  a: 0.33333",
        "  many     0, 1, 2, 3, 4, 5, 6, 7, ... (12 in all)",
    ]
    long = repr(Record("word " * 500, {})).splitlines()[1:4]
    assert all(WIDTH - 5 <= len(line) <= WIDTH for line in long)
    assert long[-1].endswith(" ...")
    assert call(record).startswith("Record(text=")
    assert shown(record) == "Record"
    assert shown(np.array([[1.0, np.nan], [3.0, 2.0]])) == "array of shape (2, 2), from 1 to 3"
    assert shown(np.full((1, 1), np.nan)) == "array of shape (1, 1)"
    assert (shown(None), shown(12345), shown(np.float64(0.1)), shown(True)) == ("none", "12,345", "0.1", "True")


def test_rows_beyond_a_screen_are_counted() -> None:
    class Long(Displayed):
        def _display(self):
            return "Long", [(str(i), i) for i in range(100)]

    lines = repr(Long()).splitlines()
    assert len(lines) == ROWS + 1
    assert lines[-1].split() == ["...", "61", "more"]


def test_a_method_is_written_with_the_options_that_were_set() -> None:
    assert call(fl.SCAFFLSA(0.1, 10, participants=3)) == "SCAFFLSA(step_size=0.1, local_steps=10, participants=3)"
    assert fl.results.method_label(METHOD) == "FedLSA(step_size=0.1, local_steps=10)"
