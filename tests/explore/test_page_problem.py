"""One description makes the problem and prints the call: the printed one, evaluated, makes the same problem."""

import csv
import os
import re
from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, FedLSAError, SiteDataError
from fedlsa.explore import answers, page, scene_data
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import PageSettings, call, column_name, fit_call, join_names, split_names
from fedlsa.explore.uploads import Sites


def same(call):
    """The problem of a call, which is that of its text."""
    made, printed = call.problem(), eval(str(call), {"fl": fl})
    np.testing.assert_array_equal(printed.theta_star, made.theta_star)
    np.testing.assert_array_equal(printed.A_bar, made.A_bar)
    np.testing.assert_array_equal(printed.b_bar, made.b_bar)
    np.testing.assert_array_equal(printed.weights, made.weights)
    return made


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Two small files, of a regression and of a chain."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    for name, shift, rows in (("north.csv", 0.0, 12), ("south.csv", 1.0, 8)):
        table = np.c_[rng.normal(shift, 1.0, (rows, 6)).round(3), np.arange(rows) % 4 == 3]
        np.savetxt(name, table, delimiter=",", header="s1,s2,n1,n2,reward,dose,terminated", comments="", fmt="%g")
    return tuple(str(tmp_path / name) for name in ("north.csv", "south.csv"))


def test_the_sites_in_a_plane():
    p = same(call(PageSettings(agents=4, spread=0.7, noise=0.3)))
    assert (p.n_agents, p.dim) == (4, 2)


def test_garnet_worlds_of_both_presets():
    own = {"heterogeneous": False, "perturbation": 0.1, "discount": 0.8, "features": 5, "seed": 3}
    for preset in ("paper", "authors"):
        p = same(call(PageSettings(problem="garnet", agents=3, preset=preset, **own)))
        asked = fl.problems.garnet(agents=3, preset=preset, **own)
        np.testing.assert_array_equal(p.theta_star, asked.theta_star)
    text = str(call(PageSettings(problem="garnet", agents=100, preset="paper")))
    assert text == "fl.problems.garnet()"  # the defaults of the library need not be said
    p = eval(text, {"fl": fl})
    defaults = {name: p.default for name, p in fl.problems.FAMILIES["garnet"].parameters.items()}
    assert {k: v for k, v in p.recipe["arguments"].items() if k in defaults} == defaults


@pytest.mark.parametrize("problem", ["lakes", "cartpoles"])
def test_families_of_environments(problem):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    s = PageSettings(problem=problem, agents=2, spread=0.4, discount=0.9)
    p = same(call(s))
    asked = dict(call(s).arguments)
    assert p.n_agents == 2
    assert asked["discount"] == 0.9
    full = {name: p.default for name, p in fl.problems.FAMILIES[problem].parameters.items()}
    assert dict(call(PageSettings(problem=problem, agents=2)).arguments) == {"agents": 2}  # all of the family's range
    assert asked["high"] - asked["low"] == pytest.approx(0.4 * (full["high"] - full["low"]), abs=2e-4)
    none = dict(call(PageSettings(problem=problem, agents=2, spread=0.0)).arguments)
    assert none["low"] == none["high"]


def test_files_of_sites_as_a_regression(sites):
    asked = call(PageSettings(problem="files", target="dose", weight="samples"), sites)
    assert str(asked) == (
        "fl.site_problem(sites=['north.csv', 'south.csv'], task=fl.Regression(target='dose'), weight='samples')"
    )
    p = same(asked)
    np.testing.assert_allclose(p.weights, [0.6, 0.4])


def test_chosen_columns_and_categories_and_rows_that_lack_a_value(sites, tmp_path):
    s = PageSettings(problem="files", target="dose", columns="s1,n2", missing="drop")
    same(call(s, sites))
    assert "fl.Regression(target='dose', columns=('s1', 'n2'), missing='drop')" in str(call(s, sites))
    for name in ("north.csv", "south.csv"):
        header, *rows = (tmp_path / name).read_text().splitlines()
        rows = [row + f",{'land' if k % 3 else 'city'}" for k, row in enumerate(rows)]
        (tmp_path / name).write_text("\n".join([header.replace("s1", "a b") + ",region", *rows]))
    s = PageSettings(problem="files", target="dose", columns="a b,C(region)")
    assert "target='dose ~ `a b` + C(region)'" in str(call(s, sites))
    assert same(call(s, sites)).dim == 3
    task = fl.Regression("dose ~ `a b` + C(region)")
    expected = fl.fit(list(sites), task, weight="sites", plan=False).summary()
    assert answers.fit_table(Question.of(s, sites)).startswith(str(expected))
    assert eval(str(fit_call(s, sites)), {"fl": fl}).summary() is not None


def test_no_column_is_lost_for_the_letters_of_its_name(tmp_path):
    names = ["height, cm", "the `age`", 'said "so"', "two\nlines", "C(age)", "N(2)"]
    rows = np.random.default_rng(0).normal(size=(30, len(names) + 1))
    file = tmp_path / "site.csv"
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([[*names, "y"], *rows])
    found = Sites((str(file),), (*names, "y"))
    terms = found.explaining("y")
    assert [column_name(term) for term in terms] == [(name, False) for name in names]
    settled = found.settle(PageSettings(problem="files", target="y", columns=join_names(terms[1:])))
    some = settled.columns
    assert split_names(some) == terms[1:]
    for columns, used in (("", names), (some, names[1:])):
        s = PageSettings.from_address("?" + PageSettings(problem="files", target="y", columns=columns).address())
        expected = fl.fit([str(file)], fl.Regression("y", used), weight="sites", plan=False).summary()
        assert answers.fit_table(Question.of(s, found.files)).startswith(str(expected))
    for bad in ("the `age`", "slash\\"):
        with pytest.raises(ArgumentError, match=f"beside categories; got {re.escape(repr(bad))}"):
            call(PageSettings(problem="files", target="y", columns=f"{bad},C(where)"), found.files)
    both = replace(found, columns=("x", "x (categories)", "y"), texts=("x",))
    offered = {page._shown_column(term, both): term for term in both.explaining("y")}
    assert offered == {"x, in categories": "C(x)", "x (categories)": "x (categories)"}


def test_that_local_steps_take_means_is_said_where_they_do(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 23))
    for dim, said in ((3, False), (22, True)):
        names = [f"x{k}" for k in range(dim)]
        files = tuple(str(tmp_path / f"{dim}-{half}.csv") for half in "ab")
        for file, part in zip(files, (rows[:30], rows[30:]), strict=True):
            np.savetxt(file, part[:, : dim + 1], delimiter=",", header=",".join([*names, "y"]), comments="")
        s = PageSettings(problem="files", target="y", local_steps=2, rounds=5)
        lines = scene_data.verdict(s, {"FedLSA": answers.curve(Question.of(s, files), "FedLSA")}, {})
        assert any("local steps take a site's means" in line for line in lines) == said


def test_files_of_sites_as_a_value_function(sites):
    asked = call(PageSettings(problem="files", task="value", state="s", next_state="n", discount=0.5), sites)
    assert "fl.Value(discount=0.5, state='s', next_state='n')" in str(asked)
    p = same(asked)
    expected = fl.site_problem(list(sites), fl.Value(0.5, state="s", next_state="n"))
    np.testing.assert_array_equal(p.theta_star, expected.theta_star)


def test_a_problem_is_made_once():
    s = PageSettings(agents=3, noise=0.25)
    assert call(s).problem() is call(PageSettings(agents=3, noise=0.25, rounds=7)).problem()
    assert call(s).problem() is not call(PageSettings(agents=3, noise=0.26)).problem()


def test_files_that_have_changed_are_read_again_and_are_another_question(sites):
    s = PageSettings(problem="files", target="dose")
    before, question = call(s, sites).problem(), Question.of(s, sites)
    assert call(s, sites).problem() is before
    assert Question.of(s, sites) == question
    with open(sites[0], "a") as file:
        file.write("1,2,3,4,5,60,1\n")
    after = call(s, sites).problem()
    assert abs(after.theta_star - before.theta_star).max() > 1e-3
    assert Question.of(s, sites) != question
    os.utime(sites[1], ns=(1, 1))
    assert call(s, sites).problem() is not after


def test_files_play_no_part_in_other_problems(sites):
    assert Question.of(PageSettings(), sites) == Question.of(PageSettings())


def test_what_is_still_missing_is_said_before_any_file_is_read():
    with pytest.raises(ArgumentError, match=r"^files must hold one file per site, CSV or Parquet; got none yet$"):
        call(PageSettings(problem="files"))
    with pytest.raises(ArgumentError, match=r"^target must be a column that holds numbers in every file; got none$"):
        call(PageSettings(problem="files"), ("nowhere.csv",))


def test_a_file_that_is_gone_is_named(sites):
    asked = call(PageSettings(problem="files", target="dose"), sites)
    asked.problem()
    os.remove(sites[1])
    with pytest.raises(SiteDataError, match=r"south"):
        asked.problem()


@pytest.mark.parametrize("more", [{"target": "nothing"}, {"task": "value", "state": "zz"}])
def test_columns_that_are_not_there_are_one_line(sites, more):
    with pytest.raises(FedLSAError) as caught:
        call(PageSettings(problem="files", **more), sites).problem()
    assert "\n" not in str(caught.value)
