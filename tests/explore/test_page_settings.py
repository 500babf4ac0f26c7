"""Every setting lives in the address: it goes in and comes out as it was, and what is wrong is said in one line."""

from dataclasses import fields, replace
from urllib.parse import parse_qsl

import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, FedLSAError
from fedlsa.explore.page_settings import METHODS, PROBLEMS, SETTINGS, STARTS, PageSettings

OTHERS = {
    "problem": "garnet", "agents": 7, "noise": 0.123456789012345, "preset": "authors", "heterogeneous": False,
    "perturbation": 0.3, "discount": 0.9, "features": 5, "seed": 2**31 - 1, "spread": 0.1 + 0.2, "task": "value",
    "target": "température & more?=#%", "state": "s_", "next_state": "next s", "weight": "samples", "step_size": 1e-3,
    "local_steps": 333, "probability": 1 / 3, "rounds": 1234, "sampling": "markov", "thin": 4, "seeds": 3,
    "x": "bytes", "scale": "log", "epsilon": 0.037, "round": 9, "columns": "a b,C(région)", "missing": "drop",
    "moves": "2:0.5,-1;4:0.0,0.25", "beside": "late",
}  # fmt: skip
WRONG = {
    "problem": "granet", "agents": "0", "noise": "-1", "preset": "mine", "heterogeneous": "true", "perturbation": "nan",
    "discount": "1", "features": "17", "seed": "-1", "spread": "1.5", "task": "values", "weight": "rows",
    "step_size": "0", "local_steps": "1.5", "probability": "0", "rounds": "100001", "sampling": "replay", "thin": "x",
    "seeds": "", "x": "uploads", "scale": "linlog", "epsilon": "inf", "round": "-1", "missing": "keep", "moves": "0:1",
    "beside": "Delayed",
}  # fmt: skip


def test_the_tables_of_these_tests_know_every_setting():
    names = {f.name for f in fields(PageSettings)}
    assert set(OTHERS) == set(SETTINGS) == names
    assert set(WRONG) == names - {"target", "columns", "state", "next_state"}  # any text can be the name of a column
    assert all(OTHERS[name] != getattr(PageSettings(), name) for name in names)


@pytest.mark.parametrize("name", OTHERS)
def test_each_setting_goes_through_the_address_and_comes_back_as_it_was(name):
    s = PageSettings(**{name: OTHERS[name]})
    assert list(s.query()) == [name]
    assert PageSettings.from_query(s.query()) == (s, {})
    assert PageSettings.from_address(s.address()) == s
    assert type(getattr(PageSettings.from_address(s.address()), name)) is type(OTHERS[name])


def test_all_settings_go_through_the_address_together():
    s = PageSettings(**OTHERS)
    assert PageSettings.from_address(s.address()) == s
    assert PageSettings.from_query(dict(parse_qsl(s.address()))) == (s, {})
    for start in ("http://127.0.0.1:4321/?", "https://localhost/?", "http://[::1]:80/page?", "?"):
        assert PageSettings.from_address(start + s.address()) == s
    assert PageSettings.from_address(f"http://127.0.0.1:4321/?{s.address()}#top") == s


def test_defaults_need_no_address():
    assert (PageSettings().query(), PageSettings().address()) == ({}, "")
    for text in ("", "?", "http://127.0.0.1:4321", "http://127.0.0.1:4321/", "http://127.0.0.1:4321/?"):
        assert PageSettings.from_address(text) == PageSettings()


def test_a_question_mark_within_a_value_is_part_of_it():
    assert PageSettings.from_address("problem=files&target=why?") == PageSettings(problem="files", target="why?")


def test_of_a_name_given_twice_the_last_counts():
    assert PageSettings.from_address("agents=3&agents=4").agents == 4


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_one_line_and_the_rest_still_counts(name):
    good = {"agents": "9"} if name != "agents" else {"rounds": "9"}
    s, complaints = PageSettings.from_query({name: WRONG[name], **good})
    assert s == PageSettings(**{k: int(v) for k, v in good.items()})
    ((at, line),) = complaints.items()
    assert at == name
    assert line.startswith(f"{name} must be ")
    assert f"got {WRONG[name]}" in line or f"got {WRONG[name]!r}" in line
    assert "\n" not in line
    with pytest.raises(ArgumentError, match=f"^{name} must be "):
        PageSettings.from_address(f"{name}={WRONG[name]}&target=y")


def test_every_wrong_part_has_its_own_line():
    s, complaints = PageSettings.from_query({**WRONG, "colour": "red", "target": "y"})
    assert s == PageSettings(target="y")
    assert len(complaints) == len(WRONG) + 1
    assert complaints["colour"] == "names must be of the page's settings; got 'colour'"


@pytest.mark.parametrize("text", ["colour=red", "=3", "agents", "http://[oops/?agents=3", "\n\n=1", "x" * 500])
def test_what_is_no_setting_is_refused_in_one_short_line(text):
    with pytest.raises(ArgumentError) as caught:
        PageSettings.from_address(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    assert "got " in str(caught.value)


@pytest.mark.parametrize("text", ["agents=" + "9" * 5000, "agents=x" + "y" * 500, "heterogeneous=" + "z" * 500])
def test_long_values_are_refused_in_one_short_line(text):
    with pytest.raises(FedLSAError) as caught:
        PageSettings.from_address(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "value"),
    [("agents", 2.0), ("agents", True), ("step_size", "0.1"), ("heterogeneous", 1), ("problem", 3), ("rounds", None)],
)
def test_values_of_a_wrong_type_are_refused(name, value):
    with pytest.raises(ArgumentTypeError, match=f"^{name} must be .*; got "):
        PageSettings(**{name: value})


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem_has_a_start_of_its_own(problem):
    s = PageSettings.start(problem)
    assert (s.problem, {k: getattr(s, k) for k in STARTS[problem]}) == (problem, STARTS[problem])


def test_methods_are_those_of_the_library():
    s = PageSettings(step_size=0.07, local_steps=40)
    assert s.methods() == [fl.FedLSA(0.07, 40), fl.SCAFFLSA(0.07, 40), fl.Scaffnew(0.07, 1 / 40)]
    assert [s.method(name) for name in METHODS] == s.methods()
    assert replace(s, probability=0.5).method("Scaffnew") == fl.Scaffnew(0.07, 0.5)
    assert (s.order(), replace(s, sampling="markov", thin=3).order()) == (fl.IID(), fl.Markov(thin=3))


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("rounds", [1, 2, 50, 99, 100_000])
def test_recorded_rounds_are_those_that_theory_and_simulation_accept(scale, rounds):
    s = PageSettings(rounds=rounds, scale=scale)
    record = s.record()
    if scale == "log":
        assert (record[0], record[1], record[-1]) == (0, 1, rounds)
        assert record == sorted(set(record))
    problem, method = fl.problems.ring(agents=2), fl.FedLSA(0.05, 1)
    kept = fl.theory.exact(problem, method, rounds=rounds, record=record)["rounds"].values
    assert (kept[0], kept[-1]) == (0, rounds)
    if rounds <= 100:
        simulated = fl.simulate(problem, method, rounds=rounds, seeds=1, record=record)["rounds"].values
        assert (simulated == kept).all()
