"""The explorer's controls in a real browser: Back, typed values, what a screen reader hears, buttons that are there."""

import re
from dataclasses import replace

import numpy as np

import fedlsa as fl
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import PageSettings, split_moves

SEEN = """[...document.querySelectorAll('*')].filter(
  e => e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().width)"""
NAMELESS = f"""() => {SEEN}.filter(
  e => e.tagName === 'BUTTON' && !(e.innerText.trim() || e.ariaLabel || e.labels?.length)
).map(e => e.outerHTML.slice(0, 200))"""
COPIES = f"""() => {SEEN}.filter(e => e.tagName === 'PRE' && e.closest('.code')).map(
  e => e.parentElement.querySelectorAll('button').length)"""


def test_settled_sliders_and_steps_are_entries_and_back_shows_the_earlier_page(wide_page):
    s = PageSettings()
    wide_page.open().answers(s)
    wide_page.follows(s)
    before = wide_page.page.evaluate("history.length")
    wide_page.page.evaluate("window.same = true")  # gone if the page were loaded anew
    wide_page.press("local steps H", times=2)
    moved = replace(s, local_steps=50)
    wide_page.follows(moved)
    assert wide_page.page.evaluate("history.length") == before + 1  # once it rests, not with each of its places
    wide_page.choose("problem", "Garnet worlds")
    garnet = begun = replace(PageSettings.start("garnet"), local_steps=50)
    wide_page.answers(garnet)
    wide_page.follows(garnet)
    wide_page.press("agents N")
    garnet = replace(garnet, agents=8)
    wide_page.follows(garnet)
    assert wide_page.page.evaluate("history.length") == before + 3
    wide_page.page.go_back()
    wide_page.answers(begun)
    wide_page.page.go_back()
    wide_page.answers(moved)
    wide_page.follows(moved)
    wide_page.says("local steps H", "50 local steps")
    wide_page.page.go_forward()
    wide_page.page.go_forward()
    wide_page.answers(garnet)
    assert wide_page.page.evaluate("window.same")


def test_reset_goes_to_where_the_problem_began_and_back_undoes_it(wide_page):
    s = replace(PageSettings(), local_steps=30, agents=3)
    wide_page.go(s).answers(s)
    wide_page.press("rounds T")
    s = replace(s, rounds=20)
    wide_page.follows(s)
    wide_page.button("Reset").click()
    wide_page.answers(PageSettings())
    wide_page.follows(PageSettings())
    wide_page.page.go_back()
    wide_page.answers(s)


def test_a_slider_says_its_name_and_its_value_with_its_unit(wide_page):
    for label, said in (("step size η", "0.05"), ("local steps H", "30 local steps"), ("agents N", "3 agents")):
        wide_page.says(label, said)


def test_any_value_can_be_typed_and_one_that_cannot_be_is_one_line(wide_page):
    s = wide_page.settings()
    wide_page.page.get_by_role("textbox", name="local steps H, typed").fill("37")
    wide_page.page.keyboard.press("Enter")
    s = replace(s, local_steps=37)
    wide_page.answers(s)
    wide_page.says("local steps H", "37 local steps")
    wide_page.page.get_by_text("a rate of Scaffnew's own").click()
    rate = wide_page.page.get_by_role("textbox", name="Scaffnew's probability p")
    assert rate.input_value() == f"{1 / 37:.4g}"  # it follows local steps, until it is chosen
    for typed, probability in (("0.1", 0.1), ("", None)):
        rate.fill(typed)
        wide_page.page.keyboard.press("Enter")
        wide_page.answers(replace(s, probability=probability))
    wide_page.page.get_by_role("textbox", name="agents N, typed").fill("0")
    wide_page.page.keyboard.press("Enter")
    wide_page.page.get_by_text("agents N must be").wait_for()
    assert wide_page.shows(s)  # what was there stays
    wide_page.page.get_by_role("textbox", name="agents N, typed").fill("abc")
    wide_page.page.keyboard.press("Enter")
    wide_page.until(
        lambda: wide_page.refused() == "agents N must be an integer; got 'abc'", "the newest complaint alone"
    )
    wide_page.page.get_by_role("textbox", name="rounds T, typed").fill("2.5")
    wide_page.page.keyboard.press("Enter")
    for name in ("agents N", "rounds T"):  # of several, each
        wide_page.page.get_by_text(f"{name} must be").wait_for()
    wide_page.page.get_by_role("textbox", name="rounds T, typed").fill(str(s.rounds))
    wide_page.page.keyboard.press("Enter")
    wide_page.page.get_by_role("textbox", name="agents N, typed").fill("4")
    wide_page.page.keyboard.press("Enter")
    wide_page.answers(replace(s, agents=4))
    wide_page.until(
        lambda: not wide_page.page.get_by_text(re.compile("(agents N|rounds T) must be")).count(), "all is well"
    )


def test_every_button_has_a_name_and_each_code_block_one_button_to_copy_it(wide_page):
    wide_page.until(lambda: wide_page.page.get_by_text("error.csv").count(), "there is something to take")
    assert wide_page.page.evaluate(NAMELESS) == []
    assert wide_page.page.evaluate(COPIES) == [1] * 4


def test_a_button_that_is_held_while_answers_come_is_still_pressed(wide_page):
    s = replace(PageSettings(), agents=3)
    wide_page.go(s).answers(s)
    wide_page.until(lambda: wide_page.words().count("Stable below: FedLSA"), "all is there that would move the page")
    wide_page.until(lambda: "Scaffnew" in wide_page.words().split("Stable below")[1].split("\n")[0], "the last limit")
    wide_page.button("Find plans").click()
    button = wide_page.button("Use FedLSA's plan")
    button.hover()
    wide_page.page.mouse.down()
    wide_page.button("Use Scaffnew's plan").wait_for()  # the last of the plans
    wide_page.until(lambda: "Looking for" not in wide_page.words(), "the trade-off is there")
    wide_page.page.mouse.up()
    plan = fl.plan(Question.of(s).problem(), s.epsilon, method="fedlsa")
    a = plan.algorithm
    wide_page.follows(replace(s, step_size=a.step_size, local_steps=a.local_steps, rounds=plan.rounds))


def test_stop_is_there_while_a_simulation_runs_and_no_longer(wide_page):
    s = replace(PageSettings.start("garnet"), local_steps=10000, rounds=5000, seeds=200)  # an hour of work
    wide_page.go(s).answers(s)
    assert not wide_page.button("Stop").is_visible()
    wide_page.button("Simulate").click()
    wide_page.until(lambda: re.search(r"simulating\s+\d+%", wide_page.words()), "progress is shown")
    wide_page.button("Stop").click()
    wide_page.until(lambda: "Stopped" in wide_page.words(), "it has stopped")
    assert not wide_page.button("Stop").is_visible()


def test_a_column_of_text_blocks_no_file_and_the_fit_is_that_of_the_columns_chosen(wide_page, tmp_path):
    rng = np.random.default_rng(0)
    files = [tmp_path / "north.csv", tmp_path / "south.csv"]
    for file in files:
        rows = [(x, z, "city" if z > 0 else "land", x + z + rng.normal()) for x, z in rng.normal(size=(40, 2))]
        file.write_text("age,dose,region,response\n" + "\n".join(",".join(map(str, row)) for row in rows))
    wide_page.go(replace(PageSettings.start("files"), step_size=0.01))
    wide_page.page.locator("input[type=file]").set_input_files([str(f) for f in files])

    def fitted(task):
        said = str(fl.fit([str(f) for f in files], task, weight="sites", plan=False).summary())
        wide_page.until(lambda: said in "\n".join(wide_page.page.locator("#fit pre").all_inner_texts()), "the fit")

    fitted(fl.Regression("response", ["age", "dose"]))
    wide_page.page.get_by_text("Text, left out: region").wait_for()
    wide_page.page.get_by_label("region (categories)").check()
    fitted(fl.Regression("response ~ age + dose + C(region)"))
    wide_page.until(lambda: wide_page.settings().columns == "age,dose,C(region)", "the address has the columns")


def test_a_file_that_cannot_be_read_is_named_beside_what_is_wrong_with_it(wide_page, tmp_path):
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    wide_page.go(PageSettings.start("files"))  # where files of before are still known
    wide_page.page.locator("input[type=file]").set_input_files(str(tmp_path / "torn.parquet"))
    wide_page.page.get_by_text("torn.parquet cannot be read as a Parquet file").wait_for()
    assert wide_page.page.locator("#file-names").inner_text() == "1 site: torn.parquet"


def test_no_label_is_covered_by_a_slider(wide_page):
    for problem, its_own in (("ring", "noise"), ("garnet", "perturbation within a world")):
        wide_page.go(PageSettings.start(problem)).answers(PageSettings.start(problem))
        wide_page.slider(its_own).first.wait_for()
        assert wide_page.page.evaluate(COVERED) == []


# words and fields of sliders where something else lies on top, or which stick out of the slider
COVERED = """() => [...document.querySelectorAll('.control.slider')].flatMap(slider => {
  if (!slider.checkVisibility()) return [];
  const whole = slider.getBoundingClientRect();
  return [...slider.querySelectorAll('label, input')].filter(e => {
    const b = e.getBoundingClientRect();
    const there = document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2);
    const seen = b.width && b.y > 0 && b.bottom < innerHeight;
    const cut = e.type !== 'range' && e.scrollWidth > e.clientWidth + 1;
    return b.right > whole.right + 1 || (seen && !slider.contains(there)) || cut;
  }).map(e => slider.innerText + ' ' + e.tagName);
})"""


def test_another_problem_keeps_what_the_reader_has_set_and_begins_the_rest_at_its_own_start(wide_page):
    s = PageSettings()
    wide_page.go(s).answers(s)
    wide_page.press("rounds T")
    wide_page.follows(replace(s, rounds=20))
    wide_page.choose("problem", "Garnet worlds")
    wide_page.follows(replace(PageSettings.start("garnet"), rounds=20))


def test_an_agents_own_solution_is_moved_by_keys_exactly_and_the_link_and_the_script_hold_it(wide_page):
    s = PageSettings()
    wide_page.go(s).answers(s)
    wide_page.agents()
    own = wide_page.scene()["data"]["plane"]["agents"][1]["own"]
    wide_page.page.get_by_role("button", name=re.compile("^agent 2: its own solution")).first.focus()
    wide_page.page.keyboard.press("ArrowRight")
    wide_page.until(lambda: wide_page.settings().moves, "the address holds the move")
    moved = wide_page.settings()
    ((agent, delta),) = split_moves(moved.moves)
    assert agent == 1
    wide_page.answers(moved)  # the curves are those of theory on the moved problem
    p, q = Question.of(s).problem(), Question.of(moved).problem()
    np.testing.assert_allclose(q.theta_star_local[1] - p.theta_star_local[1], delta, atol=1e-12)
    now = wide_page.scene()["data"]["plane"]["agents"][1]["own"]
    assert now[0] > own[0]
    assert abs(now[1] - own[1]) < 1e-3 * abs(now[0] - own[0])
    wide_page.until(lambda: f".moved({{1: {list(delta)}}})" in wide_page.words(), "the lines under the picture too")


def test_when_the_program_is_gone_the_page_says_so_keeps_the_move_and_sends_it_when_it_is_back(wide_page):
    s = PageSettings()
    wide_page.go(s).answers(s)
    wide_page.page.context.set_offline(True)
    wide_page.press("local steps H")
    wide_page.page.get_by_text("The program behind this page does not answer").wait_for()
    assert wide_page.page.locator("#scene").evaluate("e => getComputedStyle(e).filter") == "grayscale(1)"
    wide_page.press("local steps H")
    wide_page.page.context.set_offline(False)
    wide_page.answers(replace(s, local_steps=50))
    wide_page.until(lambda: "does not answer" not in wide_page.words(), "all is well")


def test_one_more_method_is_shown_beside_the_three_and_goes_again(wide_page):
    s = replace(PageSettings(), rounds=20)
    wide_page.go(s).answers(s)
    for name, label in (
        ("Delayed", "late by up to two rounds"),
        ("FedProx", "FedProx: local steps pulled back, by 0.1"),
    ):
        wide_page.page.get_by_label("beside them").select_option(label=label)
        wide_page.until(lambda name=name: name in wide_page.drawn(), f"{name} is drawn")
        tint = "name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`)"
        assert wide_page.page.evaluate(tint, name) == wide_page.page.evaluate(tint, "other")
        wide_page.page.get_by_text(f"{name} (").first.wait_for()
        assert len(wide_page.drawn()) == 4
    assert "beside=fedprox" in wide_page.page.url
    wide_page.page.get_by_label("beside them").select_option(label="no other")
    wide_page.until(lambda: len(wide_page.drawn()) == 3, "three methods")
    wide_page.answers(s)
    assert "beside" not in wide_page.page.url
