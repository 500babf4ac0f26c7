"""The explorer in a real browser at the width of a desktop: what a reader does, and what the page then shows."""

import contextlib
import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import LOCAL_STEPS, PageSettings

GARNET = PageSettings.start("garnet")  # ten different agents, d = 8


def test_it_opens_with_the_exact_curves_and_says_what_they_mean(wide_page):
    s = PageSettings()
    wide_page.open().answers(s)
    assert wide_page.page.title() == "fedlsa: see client drift"
    bias = fl.theory.bias(Question.of(s).problem(), s.step_size, s.local_steps)
    assert wide_page.drawn()["FedLSA"]["floor"] == pytest.approx(bias @ bias, rel=1e-9)
    end = float(fl.theory.exact(Question.of(s).problem(), s.method("SCAFFLSA"), s.rounds)["mse"][-1])
    wide_page.until(lambda: f"SCAFFLSA ends at {end:.3g} after 50 rounds" in wide_page.words(), "words say it too")


def test_sliders_move_the_curves_to_the_numbers_of_theory(wide_page):
    s = wide_page.settings()
    wide_page.press("local steps H")
    s = replace(s, local_steps=LOCAL_STEPS[LOCAL_STEPS.index(s.local_steps) - 1])
    wide_page.answers(s)
    wide_page.follows(s)
    wide_page.press("agents N", "ArrowRight")
    wide_page.answers(replace(s, agents=6))
    wide_page.press("rounds T", "ArrowRight")
    wide_page.answers(replace(s, agents=6, rounds=100))


def test_the_newest_setting_wins(wide_page):
    wide_page.go(GARNET).answers(GARNET)
    wide_page.press("local steps H", times=8)
    s = replace(GARNET, local_steps=LOCAL_STEPS[LOCAL_STEPS.index(GARNET.local_steps) - 8])
    wide_page.answers(s)
    wide_page.follows(s)


def test_an_answer_that_comes_late_does_not_undo_a_newer_one(wide_page):
    s = PageSettings()
    wide_page.go(s).answers(s)
    held = []
    wide_page.page.route("**/curves?*", lambda r: r.continue_() if held else held.append(r))
    wide_page.press("local steps H")
    wide_page.until(lambda: held, "the first question is held up")
    wide_page.press("local steps H")
    newest = replace(s, local_steps=LOCAL_STEPS[LOCAL_STEPS.index(s.local_steps) - 2])
    wide_page.answers(newest)
    with contextlib.suppress(Exception):  # the page has given it up
        held[0].continue_()
    wide_page.page.unroute("**/curves?*")
    wide_page.choose("its scale", "logarithmic")
    wide_page.answers(replace(newest, scale="log"))


def test_the_axis_can_be_observations_or_bytes(wide_page):
    s = replace(wide_page.settings(), x="bytes")
    wide_page.choose("horizontal axis", "bytes sent, all agents")
    wide_page.answers(s)
    wide_page.choose("its scale", "logarithmic")
    wide_page.answers(replace(s, scale="log"))
    wide_page.follows(replace(s, scale="log"))


def test_simulated_seeds_are_laid_on_top(wide_page):
    s = replace(PageSettings(), rounds=20)
    wide_page.go(s).answers(s)
    wide_page.button("Simulate").click()
    wide_page.until(lambda: "mean" in wide_page.drawn()["SCAFFLSA"], "the seeds are there")
    run = fl.simulate(Question.of(s).problem(), s.method("SCAFFLSA"), s.rounds, s.seeds)
    error = run["squared_error"].values
    assert wide_page.drawn()["SCAFFLSA"]["mean"] == pytest.approx(error.mean(axis=0), rel=1e-9)
    assert wide_page.drawn()["SCAFFLSA"]["high"] == pytest.approx(np.quantile(error, 0.9, axis=0), rel=1e-9)


def test_a_long_simulation_shows_progress_and_can_be_stopped(wide_page):
    s = replace(GARNET, local_steps=10000, rounds=5000, seeds=200)  # an hour of work
    wide_page.go(s).answers(s)
    wide_page.button("Simulate").click()
    wide_page.until(lambda: re.search(r"simulating\s+\d+%", wide_page.words()), "progress is shown")
    wide_page.choose("horizontal axis", "bytes sent, all agents")  # only the look: it goes on
    wide_page.answers(replace(s, x="bytes"))
    s = replace(s, x="bytes")
    assert "simulating" in wide_page.words()
    wide_page.button("Stop").click()
    wide_page.until(lambda: "Stopped" in wide_page.words(), "it has stopped")
    wide_page.press("local steps H")
    wide_page.answers(replace(s, local_steps=7000))  # and the page lives on


def test_an_unstable_step_size_is_said_in_words_with_the_stable_one(wide_page):
    s = replace(PageSettings(), step_size=1.0)
    wide_page.go(s)
    for method in ("FedLSA", "SCAFFLSA"):
        sentence = rf"{method} is unstable.*becomes stable below ([\d.]+\d)"
        wide_page.until(lambda: re.search(sentence, wide_page.words()), "it says so")  # noqa: B023
    said = float(re.search(sentence, wide_page.words()).group(1))
    limit = fl.theory.stability_limit(Question.of(s).problem(), s.method("SCAFFLSA"))
    assert said < limit < 1.1 * said


def test_a_link_restores_every_setting(wide_page):
    s = replace(PageSettings(), agents=8, spread=0.7, step_size=0.0321, local_steps=17, rounds=33, x="samples", round=5)
    wide_page.open(s).answers(s)
    wide_page.follows(s)
    wide_page.says("agents N", "8 agents")
    wide_page.until(lambda: wide_page.scene()["round"] == 5, "the cursor is at the link's round")


def test_bad_parts_of_a_link_are_one_line_each_and_the_rest_counts(wide_page):
    wide_page.open("agents=7&step_size=-1&colour=red")
    wide_page.answers(replace(PageSettings(), agents=7))
    lines = [
        wide_page.page.get_by_text(line) for line in ("step size η must be a finite number above 0", "got 'colour'")
    ]
    for line in lines:
        wide_page.until(lambda: line.count() == 1, "it is complained of")  # noqa: B023
    wide_page.press("rounds T")  # whoever goes on has read them
    wide_page.answers(replace(PageSettings(), agents=7, rounds=20))
    wide_page.until(lambda: not any(line.count() for line in lines), "they are gone")


def test_a_plan_goes_into_the_sliders_with_one_click_also_while_more_is_searched(wide_page):
    s = replace(PageSettings(), agents=3)
    wide_page.go(s).answers(s)
    wide_page.button("Find plans").click()
    wide_page.button("Use SCAFFLSA's plan").click()  # as soon as it is there
    plan = fl.plan(Question.of(s).problem(), s.epsilon, method="scafflsa")
    a = plan.algorithm
    planned = replace(s, step_size=a.step_size, local_steps=a.local_steps, rounds=plan.rounds)
    wide_page.answers(planned)
    wide_page.follows(planned)
    assert wide_page.drawn()["SCAFFLSA"]["total"][-1] <= s.epsilon**2
    typed, shown = wide_page.page.get_by_role("textbox", name="step size η, typed"), f"{a.step_size:.4g}"
    wide_page.until(lambda: typed.input_value() == shown, "four digits, for which there is room")
    wide_page.choose("horizontal axis", "observations per agent")
    wide_page.press("agents N", "ArrowLeft")
    wide_page.press("agents N", "ArrowRight")
    wide_page.press("rounds T", "ArrowRight")
    wide_page.until(lambda: wide_page.settings().rounds != plan.rounds, "the rounds have moved")
    wide_page.button("Find plans").click()
    wide_page.button("Use SCAFFLSA's plan").click()  # a second time
    planned = replace(planned, x="samples")
    wide_page.answers(planned)
    wide_page.follows(planned)


def test_pictures_and_data_can_be_taken_along(wide_page):
    s = replace(PageSettings(), rounds=20)
    wide_page.go(s).answers(s)
    wide_page.until(lambda: wide_page.page.get_by_text("error.csv").count(), "there is something to take")

    def taken(name):
        with wide_page.page.expect_download() as download:
            wide_page.page.get_by_role("link", name=name).or_(
                wide_page.page.get_by_role("button", name=name)
            ).first.click()
        assert download.value.suggested_filename == name
        return Path(download.value.path())

    assert taken("error.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert taken("error.pdf").read_bytes().startswith(b"%PDF-")
    assert ElementTree.fromstring(taken("error.svg").read_bytes()).tag.endswith("svg")
    text = taken("error.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text.split("\n", 1)[1])))
    exact = fl.theory.exact(Question.of(s).problem(), s.method("SCAFFLSA"), s.rounds)
    mine = [float(r["mse"]) for r in rows if r["method"] == "SCAFFLSA"]
    assert mine == pytest.approx(exact["mse"].values, rel=1e-12)
    with xr.open_dataset(taken("error.nc"), engine="h5netcdf") as data:
        kept = data["mse"].values[list(data["method"].values).index("SCAFFLSA")]
        assert kept == pytest.approx(exact["mse"].values, rel=1e-12)


def test_the_readers_own_files_are_read_and_bad_ones_are_one_line(wide_page, tmp_path):
    rng = np.random.default_rng(0)
    names = []
    for site, slope in (("north", 1.0), ("south", -1.0)):
        names.append(tmp_path / f"{site}.csv")
        rows = [(x, slope * x + rng.normal()) for x in rng.normal(size=40)]
        names[-1].write_text("x,y\n" + "\n".join(f"{a},{b}" for a, b in rows))
    bad = tmp_path / "bad.csv"
    bad.write_bytes(b"\x00\x01\x02")
    s = replace(PageSettings.start("files"), target="y")
    wide_page.open(s)
    choose = wide_page.page.locator("input[type=file]")
    choose.set_input_files(bad)
    wide_page.until(lambda: wide_page.page.get_by_text("bad.csv").count(), "the bad file is named")
    choose.set_input_files([str(n) for n in names])
    problem = fl.site_problem([str(n) for n in names], fl.Regression(target="y"))
    e = fl.theory.exact(problem, s.method("SCAFFLSA"), s.rounds, np.zeros(problem.dim))

    def there():
        line = wide_page.drawn().get("SCAFFLSA", {"total": []})["total"]
        return len(line) == len(e["mse"]) and np.allclose(line, e["mse"], rtol=1e-9)

    wide_page.until(there, "the curves are those of the files")
    wide_page.agents()
    assert [a["name"] for a in wide_page.scene()["data"]["plane"]["agents"]] == ["north", "south"]


def test_files_without_curves_leave_no_picture_and_no_code_of_those_before_them(wide_page, tmp_path):
    wide_page.go().answers(PageSettings())
    gaps = tmp_path / "gaps.csv"
    gaps.write_text("x,y\n1,2\n2,3\n,5\n")
    wide_page.page.get_by_text("fedlsa explore --save error.png").wait_for()
    choose = wide_page.page.locator("input[type=file]")
    choose.set_input_files(gaps)
    wide_page.until(lambda: "gaps.csv in 1 of 3 rows" in wide_page.page.inner_text("#words"), "the gap is named")
    assert not wide_page.page.locator("#scene").is_visible()
    assert wide_page.page.inner_text("#take") == ""
    wide_page.page.get_by_label("are left out").check()
    wide_page.page.locator(".fs-error").wait_for()
    wide_page.page.get_by_text("gaps.csv --save error.png").wait_for()


def test_plans_go_with_their_problem(wide_page):
    wide_page.go().answers(PageSettings())
    wide_page.button("Find plans").click()
    wide_page.button("Use FedLSA's plan").wait_for()
    wide_page.choose("problem", "Garnet worlds")
    wide_page.answers(PageSettings.start("garnet"))
    wide_page.until(lambda: not wide_page.button("Use FedLSA's plan").count(), "the old plans are gone")
    wide_page.follows(PageSettings.start("garnet"))


def test_a_page_that_is_closed_frees_the_processes(wide_page, browser):
    other = browser.new_page()
    other.goto(f"{wide_page.home}?problem=garnet&agents=100&features=16&perturbation=0.5&rounds=40")  # a minute of work
    other.get_by_text("omputing").first.wait_for()  # both processes are at it
    other.close()
    s = replace(PageSettings(), agents=4, noise=0.5)
    wide_page.go(s).answers(s)
