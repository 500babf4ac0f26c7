"""The network's live pages in Chromium: at a desk and on a telephone, light and dark, while a run goes on."""

import json
import math
import re
import sys
import time
from pathlib import Path

import pytest
from legible import illegible

from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.disk import Database
from fedlsa.network.folder import setup
from fedlsa.network.folder.certificates import private_key
from fedlsa.network.pages import CoordinatorState, SiteState
from fedlsa.network.site.ledger import Ledger
from fedlsa.network.site.policy import Policy

sys.path.insert(0, str(Path(__file__).parents[1] / "network"))
from shown_runs import SITES, add_events, fill_ledger, round_event, write_run
from stores import put_aside

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from make_explorer_pictures import PHONE

HOSTILE = '<img src="/x" onerror="document.title=1"><script>document.title=1</script>\u202e&amp;'
SHOWN_HOSTILE = HOSTILE.replace("\u202e", " ")
SEVERED = "ERR_CONNECTION_REFUSED"  # what is wanted where a test ends the program behind the page
DESK = {"viewport": {"width": 1280, "height": 900}}
WIDTHS = {
    "desk": DESK,
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, **PHONE},
    "small": {"viewport": {"width": 320, "height": 700}},
    "dark": {**DESK, "color_scheme": "dark"},
}
every_width = pytest.mark.parametrize("kind", list(WIDTHS))
PATIENCE = 60  # seconds, far more than it ever takes


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return setup.init(tmp_path_factory.mktemp("network") / "net", SITES, "127.0.0.1", 9092)


@pytest.fixture(scope="module")
def site(network, tmp_path_factory):
    return setup.enrol(network, network.bundle("lisbon"), tmp_path_factory.mktemp("site") / "lisbon")


@pytest.fixture
def shown(network):
    """The coordinator's page; present and alive can be changed."""
    told = {"present": SITES[:3], "alive": True}
    page = CoordinatorState(network, lambda: told["present"], lambda: told["alive"]).show(0)
    yield page, told
    page.close()


@pytest.fixture
def ledger(site, tmp_path):
    put_aside(site.folder)
    return Ledger(Database(site.folder), tmp_path / "copy.json", site.name, private_key(site.key.read_bytes()))


@pytest.fixture
def look(browser):
    """Opens a page that must have no error, fetch nothing from elsewhere and not be wider than its window."""
    opened, faults = [], []

    def open_page(url, kind="desk"):
        page = browser.new_page(**WIDTHS[kind])
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" and SEVERED not in m.text else None)
        page.on("request", lambda r: faults.append(r.url) if not r.url.startswith(url) else None)
        page.goto(url)
        until(page, "#updated", "Updated")
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than its window"
        page.close()
    assert not faults


def curve(k):
    return 1.5 * 0.9**k


def written(network, rounds, **more):
    events = [{"time": time.time(), "event": "planned", "text": "a plan", "rounds": 140}]
    events += [round_event(k, missing=["oslo"] if k > 20 else [], error=curve(k)) for k in range(1, rounds + 1)]
    return write_run(network, events=events, **more)


def text(page, selector):
    return " ".join(page.inner_text(selector).split())


def until(page, selector, said):
    """Wait until a part of the page says something; the page itself runs no code of ours (its policy forbids it)."""
    end = time.monotonic() + PATIENCE
    while said not in text(page, selector):
        assert time.monotonic() < end, f"{selector} does not say {said!r} but {text(page, selector)!r}"
        page.wait_for_timeout(100)


@every_width
def test_the_coordinators_page_says_where_a_run_stands(network, shown, look, kind):
    written(network, 30)
    page = look(shown[0].url, kind)
    assert text(page, "#run-head") == "trial"
    assert text(page, "#run-state") == "running"
    cards = text(page, "#cards")
    for said in ("rounds averaged 30 of at most 140", "sites connected 3 of 4 late: oslo", "asked for: 0.02"):
        assert said in cards
    rows = [text(page, f"#sites tbody tr:nth-child({k})") for k in range(1, 5)]
    assert rows[0].startswith("amsterdam yes answered 0 0 27 kB 36 kB")
    assert rows[3].startswith("oslo no late 10 0")
    assert "not connected: oslo" in text(page, "#warnings")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 26)"
    assert dark == (kind == "dark")


def test_paper_shows_what_scrolls_on_a_screen(network, shown, look):
    written(network, 30)
    page = look(shown[0].url)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 900})
    for box in page.locator(".scroll").all():
        assert box.evaluate("e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight")


def test_the_curve_is_drawn_where_its_numbers_are(network, shown, look):
    written(network, 30)
    page = look(shown[0].url)
    names = page.evaluate("[...document.querySelectorAll('#chart g')].map(g => g.dataset.name)")
    assert [name.partition(",")[0] for name in sorted(names)] == ["asked for: 0.02", "at most", "estimated"]
    drawn = page.locator("#chart g[data-name^=estimated] path").get_attribute("d")
    points = [tuple(map(float, p.split(","))) for p in re.split("[ML]", drawn)[1:]]
    assert len(points) == 30
    ticks = "[...document.querySelectorAll('#chart text[text-anchor=end]')]"
    (low, bottom), *_, (high, top) = page.evaluate(f"{ticks}.map(t => [+t.textContent, +t.getAttribute('y')])")
    for (x, y), k in zip(points, range(1, 31), strict=True):
        share = (math.log10(curve(k)) - math.log10(low)) / (math.log10(high) - math.log10(low))
        assert y == pytest.approx(bottom - 4 - share * (bottom - top), abs=0.6)
        assert x == pytest.approx(points[0][0] + (k - 1) * (points[-1][0] - points[0][0]) / 29, abs=0.2)
    assert "by the plan's rate" in text(page, "#chart-note")
    label = page.get_by_role("img", name="Estimated error on a logarithmic scale")
    assert "after round 30" in label.get_attribute("aria-label")


def test_the_page_follows_a_run_and_says_when_the_program_is_gone(network, shown, look):
    folder = written(network, 10)
    page = look(shown[0].url)
    assert "rounds averaged 10" in text(page, "#cards")
    alarm = {"time": time.time(), "event": "alarm", "site": "oslo", "text": "two places"}
    add_events(RunFolder(folder), *(round_event(k, error=curve(k)) for k in (11, 12)), alarm)
    until(page, "#cards", "rounds averaged 12")
    assert "alarm: oslo: two places" in text(page, "#warnings")
    (folder / "result.json").write_text(json.dumps({"over": "all rounds are done"}))
    until(page, "#run-state", "over")
    assert "all rounds are done" in text(page, "#run-end")
    shown[1]["alive"] = False
    until(page, "#status", "run loop dead")
    shown[0].close()
    page.get_by_role("alert").filter(has_text="No answer from the program").wait_for()
    assert text(page, "#status") == "no answer"
    assert "rounds averaged 12" in text(page, "#cards")  # what was known stays


def test_hostile_words_are_text(network, shown, look):
    folder = written(network, 3, terms={"plan": HOSTILE, "rate": 0.1, "epsilon": 0.1})
    hostile = {"time": 1.0, "site": HOSTILE, "text": HOSTILE}
    add_events(RunFolder(folder), *({"event": kind, **hostile} for kind in ("refused", "alarm", HOSTILE)))
    page = look(shown[0].url)
    assert page.title() == "Coordinator · fedlsa"
    assert SHOWN_HOSTILE in page.inner_text("#plan")
    assert SHOWN_HOSTILE in page.inner_text("#events")
    assert SHOWN_HOSTILE in page.inner_text("#warnings")
    assert page.locator("main img, main script").count() == 0


@every_width
def test_a_sites_page_says_what_was_asked_and_what_left(site, ledger, look, kind):
    policy = Policy(privacy="site", epsilon=2.0)
    fill_ledger(ledger)
    ledger.refuse(HOSTILE, "work", HOSTILE)
    page_server = SiteState(site, policy, ledger).show(0)
    page = look(page_server.url, kind)
    assert page.title() == "lisbon · fedlsa"
    cards = text(page, "#cards")
    for said in ("coordinator connected", "answers 4 of at most 50000", "numbers in them 28 3 rounds", "refused 2"):
        assert said in cards
    assert "of 2 ε of the whole table" in cards
    assert "whole: 6 entries" in text(page, "#whole")
    assert text(page, "#head") == str(ledger.head)
    assert page.locator("#policy li").count() >= 5
    rows = page.locator("#entries tbody tr")
    assert rows.count() == 6
    assert "nothing: refused" in rows.first.inner_text()
    assert SHOWN_HOSTILE in page.inner_text("#entries")
    assert "a change of the model, masked" in rows.nth(2).inner_text()
    assert page.locator("main img, main script").count() == 0
    ledger.enter("trial", "token", "work", "one more", "w9", "99", numbers=9, round=9)
    until(page, "#entries", "one more")
    page_server.close()


def test_pages_work_by_keyboard_and_have_names_for_those_who_listen(network, shown, site, ledger, look):
    written(network, 30)
    fill_ledger(ledger)
    page_server = SiteState(site, Policy(), ledger).show(0)
    for url in (shown[0].url, page_server.url):
        page = look(url)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        seen = set()
        for _ in range(8):
            page.keyboard.press("Tab")
            seen.add(
                page.evaluate("document.activeElement.getAttribute('aria-labelledby') || document.activeElement.href")
            )
        assert {f"{url}health", f"{url}metrics"} <= seen
        assert any(name and name.endswith("-head") for name in seen)  # what scrolls can be reached
        assert page.locator("h1").count() == 1
        for region in page.locator("section").all():
            assert page.locator(f"#{region.get_attribute('aria-labelledby')}").count() == 1
        assert page.locator("th:not([scope])").count() == 0
        assert page.evaluate("document.documentElement.lang") == "en"
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert illegible(page) == []
    page_server.close()
