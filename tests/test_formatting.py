"""What objects say of themselves fits on a screen, holds what a reader wants to know, and is escaped in notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.formatting import ROWS, WIDTH, Displayed, call, shown

PROBLEM = fl.problems.garnet(agents=10, seed=1)
METHOD = fl.FedLSA(0.1, 10)
SITES = [(np.random.default_rng(c).normal(size=(40, 3)), np.arange(40.0)) for c in range(4)]

OBJECTS = {
    "problem": (lambda: PROBLEM, ["10 agents", "dimension 8", "garnet(", "seed=1", "theta_star", "Markov()"]),
    "observations": (lambda: PROBLEM.observations, ["RankOne", "array of shape (245, 8)", "1,200 numbers"]),
    "chain": (lambda: PROBLEM.chain, ["Chain", "stationary"]),
    "constants": (lambda: fl.theory.constants(PROBLEM), ["Constants", "C_A", "v_heter", "sigma_eps"]),
    "markov constants": (lambda: fl.theory.markov_constants(PROBLEM), ["MarkovConstants", "tau_mix", "kappa_Q"]),
    "moments": (lambda: fl.theory.moments(PROBLEM), ["Moments", "array of shape (10, 8, 8)"]),
    "stationary": (lambda: fl.theory.stationary(PROBLEM, METHOD), ["Stationary", "bias", "mse", "route"]),
    "bound": (lambda: fl.theory.bound(PROBLEM, METHOD, 100), ["Bound", "conditions", "transient: ", "mse"]),
    "bound at many rounds": (lambda: fl.theory.bound(PROBLEM, METHOD, range(200)), ["Bound", "(200 numbers)"]),
    "complexity": (lambda: fl.theory.complexity(PROBLEM, "scafflsa", 0.5), ["Complexity", "epsilon", "rounds"]),
    "plan": (lambda: fl.plan(PROBLEM, 0.3), ["Plan", "SCAFFLSA(step_size=0.0772", "rounds", "0.2996"]),
    "fit": (lambda: fl.fit(SITES, fl.Regression("y")), ["Regression(target='y')", "160 rows of 4 sites", "intercept"]),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_repr_fits_on_a_screen_and_says_what_matters(name) -> None:
    make, words = OBJECTS[name]
    thing = make()
    lines = repr(thing).splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= WIDTH
    for word in words:
        assert word in repr(thing), f"{word!r} is not in\n{thing!r}"


@pytest.mark.parametrize("name", OBJECTS)
def test_a_notebook_shows_the_same_rows_as_a_table(name) -> None:
    thing = OBJECTS[name][0]()
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_data = found.append  # type: ignore[method-assign]
    parser.feed(thing._repr_html_())
    title, rows = thing._display()
    assert found[0] == title
    assert found[1::2] == [label for label, _ in rows]
    assert thing._repr_html_().count("<tr>") == thing._repr_html_().count("</tr>") == len(rows)
    assert " ".join(found[-1].split()) in " ".join(repr(thing).split())


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
