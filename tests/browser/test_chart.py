"""Charts of pages/static/chart.js in a browser, on a page that allows no inline styles."""

import json
import re

import numpy as np
import pytest

from fedlsa.figures.chart_data import chart_data
from fedlsa.figures.lines import Chart, ChartRows, Line, level, mean_line, method_line
from fedlsa.pages import COLOURS, scripts, static_text

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:"
X = np.arange(0, 101.0)
NOISY = 10 ** np.random.default_rng(1).normal(np.linspace(1, -3, 101), 0.1, (5, 101))
FEDLSA = mean_line(X, NOISY, "FedLSA", "#d55e00")
AGENTS = np.array([1.0, 10.0, 100.0])
CHARTS = [
    Chart([FEDLSA, level(0.002, [FEDLSA], "floor", "#d55e00")], title="N = 10", corner="floor = 6 · 10⁻¹⁴"),
    Chart(
        [method_line("Scaffnew", AGENTS, 5 / AGENTS), Line(AGENTS, 4 / AGENTS, "simulated", deviation=1 / AGENTS)],
        x="agents N", x_scale="log",
    ),
]  # fmt: skip


@pytest.fixture
def page(browser):
    """A page of two charts with a legend; faults: what it complains of."""
    page = browser.new_page(viewport={"width": 800, "height": 800})
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    files = {f"/{name}": text for name, text in scripts("chart").items()}
    tags = "".join(f'<script src="{name}"></script>' for name in files)
    files[f"/{COLOURS}"] = static_text(COLOURS)
    head = f"<!doctype html><link rel=icon href=data:,><link rel=stylesheet href={COLOURS}>"
    home = f"{head}<div id=a></div><div id=b></div><p id=legend></p>{tags}"

    def answer(route):
        name = route.request.url.removeprefix("http://chart.test")
        kind = {"/": "text/html", f"/{COLOURS}": "text/css"}.get(name, "text/javascript")
        body = home if name == "/" else files[name]
        route.fulfill(body=body, content_type=f"{kind}; charset=utf-8", headers={"Content-Security-Policy": POLICY})

    page.route("**", answer)
    page.goto("http://chart.test/")
    page.evaluate(
        "charts => { charts.forEach((c, i) => FedLSAChart.draw([a, b][i], c)); FedLSAChart.legend(legend, charts); }",
        chart_data(ChartRows([CHARTS]))["charts"],
    )
    page.locator("#b svg").first.wait_for()
    yield page
    assert page.faults == []
    page.close()


def said(page):
    """The head of the values under the pointer, and each line's."""
    return page.evaluate("""() => {
      const tip = document.querySelector(".fc-tip"), rows = [...tip.querySelectorAll("span")];
      const values = Object.fromEntries(rows.map(row => [...row.children].map(e => e.textContent)));
      return tip.hidden ? null : [tip.querySelector("b").textContent, values];
    }""")


def test_keys_read_the_values_from_the_first_to_the_last(page):
    page.locator("#a > svg").focus()
    page.keyboard.press("ArrowRight")
    mean = NOISY.mean(axis=0)
    assert said(page) == ["communications: 0", {"FedLSA": f"{mean[0]:.3g}", "floor": "0.002"}]
    page.keyboard.press("End")
    head, values = said(page)
    assert (head, float(values["FedLSA"])) == ("communications: 100", pytest.approx(mean[-1], rel=5.1e-3))
    page.keyboard.press("ArrowLeft")
    assert said(page)[0] == "communications: 99"
    page.keyboard.press("Home")
    assert said(page)[0] == "communications: 0"
    page.keyboard.press("Escape")
    assert said(page) is None
    page.locator("#b > svg").focus()
    page.keyboard.press("End")
    assert said(page) == ["agents N: 100", {"Scaffnew": "0.05", "simulated": "0.04 ± 0.01"}]
    page.locator("#a > svg").focus()
    assert said(page) is None


def test_the_pointer_reads_the_values_nearest_to_it(page):
    box = page.locator("#b > svg").bounding_box()
    grid = page.evaluate("document.querySelector('#b .fc-grid').getBBox().x")
    page.mouse.move(box["x"] + (grid + box["width"]) / 2, box["y"] + 60)
    assert said(page) == ["agents N: 10", {"Scaffnew": "0.5", "simulated": "0.4 ± 0.1"}]
    page.mouse.move(5, 790)
    assert said(page) is None


def test_a_line_is_drawn_where_its_values_are(page):
    """The marks of 5 / N lie on a straight line between two logarithmic axes, as far apart as ticks say."""
    path = page.locator("#b .fc-full").get_attribute("d")
    places = np.array(re.findall(r"M([^,]+),([^m]+)m", path), float)
    ticks = page.evaluate("""() => [...document.querySelectorAll("#b text[text-anchor=end]")].map(t =>
      [t.textContent, +t.getAttribute("y") - 4])""")
    heights = {float(text): y for text, y in ticks if text.replace(".", "").isdigit()}
    (low, at_low), (high, at_high) = sorted(heights.items())[0], sorted(heights.items())[-1]
    steps = np.diff(places, axis=0)
    np.testing.assert_allclose(steps[0], steps[1], atol=0.3)
    assert steps[0][1] == pytest.approx((at_low - at_high) / np.log10(high / low), abs=0.3)


def test_the_legend_has_every_label_once_and_type_is_never_small(page):
    assert page.locator("#legend span").all_inner_texts() == ["FedLSA", "floor", "Scaffnew", "simulated"]
    sizes = page.evaluate("""() => [...document.querySelectorAll("text, .fc-legend span, .fc-tip")].map(e =>
      parseFloat(getComputedStyle(e).fontSize))""")
    assert min(sizes) >= 12


@pytest.mark.parametrize("width", [260, 320, 700])
def test_numbers_on_the_axes_have_room_at_every_width(page, width):
    page.set_viewport_size({"width": width, "height": 700})
    page.wait_for_function("width => document.querySelector('#b > svg').viewBox.baseVal.width <= width", arg=width)
    boxes = page.evaluate("""() => [...document.querySelectorAll("#a text, #b text")].map(e => {
      const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom, e.textContent]; })""")
    assert all(left >= 0 and right <= width for left, _, right, _, words in boxes if words)
    for i, (left, top, right, bottom, words) in enumerate(boxes):
        beside = [(box[2] <= left or box[0] >= right or box[3] - 4 <= top or box[1] >= bottom - 4) for box in boxes[:i]]
        struck = [box[4] for box, free in zip(boxes, beside, strict=False) if not free]
        assert not struck, f"{words} over {struck}"
    assert len(boxes) > 10


def test_new_data_replace_the_old_and_the_same_leave_it(page):
    count = page.evaluate("""() => {
      const before = document.querySelector("#a > svg"), lines = [{x: [0, 4], y: [1, null], name: "n"}];
      const chart = {x: {}, y: {scale: "log"}, lines};
      FedLSAChart.draw(a, chart);
      const drawn = document.querySelector("#a > svg");
      FedLSAChart.draw(a, JSON.parse(JSON.stringify(chart)));
      return [before === drawn, drawn === document.querySelector("#a > svg")];
    }""")
    assert count == [False, True]


@pytest.mark.parametrize(
    ("log", "low", "high"),
    [(True, 1e-9, 1e4), (True, 30, 2000), (True, 0.4, 0.7), (False, 0, 50_000), (False, -3, 7), (True, 3, 3.3)],
)
def test_ticks_are_few_round_and_inside(page, log, low, high):
    ticks = page.evaluate(
        "([scale, low, high]) => FedLSAAxes.scale({scale, low, high}, 0, 1).ticks(6)",
        ["log" if log else "linear", low, high],
    )
    assert 2 <= len(ticks) <= 7
    assert all(low * 0.999 - 1e-9 <= v <= high * 1.001 for v in ticks)
    assert all(len(f"{v:.6g}".strip("0").replace(".", "").replace("e-0", "")) <= 4 for v in ticks)


def test_numbers_in_print(page):
    values = [0, 0.0123456, 12345.6, 250, 1e-5, 3.14159e-7, 2e6, -0.5, 999.7, None]
    printed = json.loads(page.evaluate("v => JSON.stringify(v.map(x => FedLSAAxes.number(x ?? NaN)))", values))
    wanted = ["0", "0.0123", "12 300", "250", "10⁻⁵", "3.14 · 10⁻⁷", "2 · 10⁶", "-0.5", "1 000", "\u2013"]
    assert [text.replace("\u2009", " ") for text in printed] == wanted
