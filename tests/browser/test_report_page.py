"""The report of `fedlsa reproduce` in a real browser, from the disk: filters, values under the pointer, every width."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from legible import illegible

from fedlsa.experiments import EXPERIMENTS, Outcome, Scale
from fedlsa.experiments.report import write
from fedlsa.figures.chart_data import chart_data
from fedlsa.figures.lines import Chart, ChartRows, Line, mean_line

ROUNDS = np.arange(0, 201.0)
NOISY = 10 ** np.random.default_rng(1).normal(np.linspace(1, -3, 201), 0.1, (5, 201))
CONTRADICTION = "#claim-debiased-as-printed"
SHOWN = "[...document.querySelectorAll('.entry')].filter(c => c.checkVisibility()).map(c => c.id.slice(6))"


def chart(title):
    exact = Line(ROUNDS, NOISY.mean(axis=0), "exact expectation", role="expectation", name="FedLSA, exact")
    return Chart([mean_line(ROUNDS, NOISY, "FedLSA", "#d55e00"), exact], title=title)


def outcome(name, preset, *values):
    e, scale = EXPERIMENTS[name], Scale(preset, 3, True)
    titled = {p.name: [[chart(title) for title in p.panels(scale)]] for p in e.pictures}
    charts = {name: chart_data(ChartRows(rows, ["what lines mean"])) for name, rows in titled.items()}
    row = {"setting": "FedLSA", **{f"a number, the {i}th": 1.25 for i in range(7)}, "squared bias": math.nan}
    numbers = [{"statement": c.row, "what": "it", "printed": 0.25, "exact": 0.75} for c in e.claims if c.row]
    tables = {t.name: pd.DataFrame(numbers or [row, row]) for t in e.tables}
    return Outcome(e, scale, {}, charts, tables, [(v,) for v in values])


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of three experiments with made-up numbers: one contradiction, one number that is none."""
    values = {"fig1": (0.6, 0.1, 1e-20, 1.1, 1.1, 0.5), "debiased": (1.1, 6.4), "markov": (0.01, 0.01, 0, math.nan, 1)}
    outcomes = [outcome(name, preset, *values[name]) for name in values for preset in ("paper", "authors")]
    return write(outcomes, tmp_path_factory.mktemp("report"))


@pytest.fixture
def page(browser, report):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda asked: page.complaints.append(asked.url) if asked.url.startswith("http") else None)
    page.goto(report.as_uri())
    yield page
    assert page.complaints == []
    page.close()


def test_filters_show_what_they_ask_for_and_a_contradiction_is_seen_without_them(page):
    every = page.evaluate(SHOWN)
    assert len(every) == 13
    chips = page.locator("#paper > .total .chip").all_inner_texts()
    assert chips == ["1 does not hold as stated", "10 hold"]  # each sentence once, however many instances it has
    assert every[0] == CONTRADICTION.removeprefix("#claim-")
    assert page.locator(f"{CONTRADICTION} .why").is_visible()
    assert page.locator(f"{CONTRADICTION} .chip").first.inner_text() == "does not hold as stated"
    page.select_option("[name=kind]", "check")
    assert page.evaluate(SHOWN) == ["simulation-agrees-main"]
    assert page.locator("#filters output").inner_text() == "1 of 13 entries"
    assert page.locator("#fold").inner_text() == "Open all 1 entry"
    page.select_option("[name=kind]", "")
    page.select_option("[name=verdict]", "bad")
    assert page.evaluate(SHOWN) == ["markov-whole"]
    page.select_option("[name=verdict]", "")
    page.select_option("[name=experiment]", "debiased")
    assert page.evaluate(SHOWN) == ["debiased-as-printed", "debiased-matches"]
    assert not page.locator(".kind .total").first.is_visible()  # it counts all claims, and not those that are shown
    assert [page.locator(f"#{name}").is_visible() for name in ("debiased", "fig1")] == [True, False]
    page.select_option("[name=verdict]", "bad")
    assert page.locator("#everything").is_hidden()
    assert "choose" in page.locator("#filters output").inner_text()
    page.select_option("[name=verdict]", "")
    page.select_option("[name=experiment]", "")
    assert page.evaluate(SHOWN) == every


def test_filters_stand_in_the_address_and_back_takes_them_off(page, report):
    every = page.evaluate(SHOWN)
    page.select_option("[name=kind]", "check")
    assert page.url.endswith("#kind=check")
    page.select_option("[name=kind]", "paper")
    page.go_back()
    page.wait_for_function("document.querySelector('[name=kind]').value === 'check'")
    assert page.evaluate(SHOWN) == ["simulation-agrees-main"]
    page.go_back()
    page.wait_for_function("document.querySelector('[name=kind]').value === ''")
    assert page.evaluate(SHOWN) == every
    page.goto(f"{report.as_uri()}#experiment=debiased")  # a link holds them
    assert page.evaluate(SHOWN) == ["debiased-as-printed", "debiased-matches"]
    page.evaluate("location.hash = '#claim-fedlsa-stalls'")  # a link to what they hide shows it
    page.locator("#claim-fedlsa-stalls .body").wait_for()


def test_the_button_says_what_it_will_do_and_does_it(page):
    fold, unfolded = page.locator("#fold"), "document.querySelectorAll('.entry:not([hidden]) > details[open]').length"
    page.select_option("[name=experiment]", "fig1")
    assert fold.inner_text() == "Open all 6 entries"
    fold.click()
    assert page.evaluate(unfolded) == 6
    page.wait_for_function("document.querySelector('#fold').textContent === 'Close all 6 entries'")
    fold.click()
    assert page.evaluate(unfolded) == 0
    page.wait_for_function("document.querySelector('#fold').textContent === 'Open all 6 entries'")


def test_a_closed_entry_says_what_its_number_is(page):
    closed = page.locator("#claim-fedlsa-stalls > details:not([open]) > summary")
    words = " ".join(closed.inner_text().split())
    assert re.search(r"share of the drift .* holds if 0\.5 … 1 .*0\.6 the paper's text", words), words


def test_a_chart_tells_its_values_to_the_pointer_and_to_the_keyboard(page):
    svg = page.locator(f"{CONTRADICTION} .panel svg").first
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    assert box["width"] > 200
    svg.hover(position={"x": box["width"] * 0.6, "y": box["height"] * 0.5})
    at, *said = page.locator(".fc-tip").inner_text().split("\n")
    place = int(np.argmin(abs(ROUNDS - float(at.removeprefix("communications: ")))))
    assert 50 < place < 150
    assert said[::2] == ["FedLSA", "FedLSA, exact"]
    assert [float(v) for v in said[1::2]] == pytest.approx([NOISY[:, place].mean()] * 2, rel=0.006)
    svg.focus()
    page.keyboard.press("End")
    at, *said = page.locator(".fc-tip").inner_text().split("\n")
    assert (at, float(said[1])) == ("communications: 200", pytest.approx(NOISY[:, -1].mean(), rel=0.006))
    page.keyboard.press("Escape")
    assert page.locator(".fc-tip").is_hidden()


def test_a_finger_reads_values_too(browser, report):
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True)
    page.goto(report.as_uri())
    page.locator(f"{CONTRADICTION} .panel svg").first.tap()
    assert page.locator(".fc-tip").inner_text().split("\n")[1::2] == ["FedLSA", "FedLSA, exact"]
    page.locator("h1").tap()
    assert page.locator(".fc-tip").is_hidden()
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_telephone_and_what_is_no_number_says_why(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 320, "height": 844})
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 320
    page.locator("#markov .hint").first.wait_for()  # the table scrolls inside, and says so
    assert illegible(page) == []
    words = page.inner_text("body")
    assert not {"nan", "NaN", "inf", "None"} & set(words.split())
    assert "squared bias: a simulation does not know the mean of its law" in words


def test_nothing_is_wider_than_paper_and_paper_is_light(page):
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 720, "height": 1000})  # of A4, between its margins
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 720
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert illegible(page) == []
    assert not page.locator("#filters").is_visible()


def test_the_formulas_of_every_claim_fit_a_telephone_and_a_finger_finds_what_opens(browser, tmp_path):
    outcomes = [outcome(e.name, "paper", *[0.5] * len(e.claims)) for e in EXPERIMENTS.values()]
    page = browser.new_page(viewport={"width": 320, "height": 844})
    page.goto(write(outcomes, tmp_path).as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.locator("math").count() > 300
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 320
    heights = "[...document.querySelectorAll('summary, select, button, a')].map(e => e.getBoundingClientRect().height)"
    assert min(height for height in page.evaluate(heights) if height) >= 24  # pixels: WCAG 2.2, target size
    page.close()


def test_without_a_script_every_claim_is_there(browser, report):
    page = browser.new_page(java_script_enabled=False)
    page.goto(report.as_uri())
    assert page.locator("#filters").is_hidden()
    assert page.locator(".entry").count() == 13
    assert page.locator(".entry").last.is_visible()
    assert "10 of 11 sentences of the paper hold on both instances" in page.locator("header").inner_text()
    page.close()
    assert report.stat().st_size < 240_000  # of which 30,000 are the scripts that draw
