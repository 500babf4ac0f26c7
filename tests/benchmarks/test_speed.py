"""The benchmark runs and its numbers are well formed; no test reads anything into a timing."""

import json
import math
from dataclasses import replace

import cells
import documents
import goals
import machine
import measure
import pytest
import report
import speed

TINY = cells.Cell(N=4, H=2, seeds=2)
PLAN = replace(
    cells.QUICK,
    headline=TINY,
    grid=(TINY, cells.Cell(N=4, H=3, seeds=2)),
    with_baselines=(TINY,),
    growth={"seeds": (TINY, replace(TINY, seeds=1))},
    kinds=(replace(TINY, sampling="markov"),),
    threads=(replace(TINY, seeds=3),),
    seconds=0.002,
    cores=("one",),
    baselines=(cells.NUMPY,),
    memory_agents=1000,
)
PLACES = documents.PLACES
DOCUMENT = "Before.\n\n" + "Between.\n".join(f"<!-- bench:{name} -->\nold\n<!-- /bench -->\n" for name in PLACES)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A quick run of the whole script at the smallest sizes: its raw numbers and where they are."""
    path = tmp_path_factory.mktemp("out") / "bench.json"
    patch = pytest.MonkeyPatch()
    patch.setitem(cells.PLANS, "quick", PLAN)
    speed.main(["--quick", "--out", str(path)])
    yield path
    patch.undo()


def test_quick_run_measures_every_entry_of_its_plan(quick):
    measured = speed.load(quick)
    assert {r.entry for r in measured.records} == {e for group in PLAN.groups() for e in group}
    for r in measured.records:
        assert len(r.ns) == 2
        assert all(math.isfinite(x) and x > 0 for x in r.ns)
        assert r.updates > 0
        assert r.updates % r.entry.cell.N == 0
        assert r.compile >= 0
        assert r.spread >= 0
    assert math.isfinite(measured.memory["MB"])
    assert measured.starts is None


def test_raw_numbers_say_where_they_come_from(quick):
    raw = json.loads(quick.read_text())
    assert set(raw["machine"]) == {"commit", "processor", "vectors", "cores", "load", "versions", "date"}
    assert set(raw["machine"]["versions"]) == {"python", "numpy", "numba", "jax"}
    assert raw["machine"]["processor"]
    assert machine.sentence(raw["machine"]).count(raw["machine"]["commit"]) == 1


def test_tables_are_rectangular_and_mark_what_is_missing(quick):
    measured = speed.load(quick)
    blocks = report.screen_blocks(measured)
    assert set(blocks) == {*report.PAGE_BLOCKS, *report.SCREEN_BLOCKS}
    assert "fedlsa" in blocks.pop("spread")
    for name, text in (*blocks.items(), *report.page_blocks([measured, measured]).items()):
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len(rows) > 2, name
        assert len({line.count("|") for line in rows}) == 1, name
    assert report.MISSING in blocks["headline"]  # this plan has no JAX
    rows = [line for line in blocks["goals"].splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(goals.GOALS)
    assert all(line.endswith((", met |", ", **missed** |", f" {report.MISSING} |")) for line in rows)


def test_tables_of_an_earlier_run_are_the_same(quick, capsys):
    speed.main(["--from", str(quick)])
    printed = capsys.readouterr().out
    for text in report.screen_blocks(speed.load(quick)).values():
        assert text in printed


def test_worker_that_fails_says_why():
    request = {"do": "prepare", "id": 0, "who": cells.NUMPY, "seconds": 0.01}
    with measure.Worker(measure.core_sets()["one"]) as worker:
        with pytest.raises(RuntimeError, match="does not run"):
            worker.ask(**request, cell=vars(replace(TINY, dtype="float32")))
        assert worker.ask(do="drop") == {}


def test_full_plan_covers_what_was_promised():
    grid = {(c.d, c.N, c.H) for c in cells.FULL.grid}
    assert grid == {(d, N, H) for d in (8, 32, 128) for N in (10, 100, 1000) for H in (1, 10, 1000)}
    assert all(c.seeds == 10 for c in cells.FULL.grid)
    entries = [e for group in cells.FULL.groups() for e in group]
    assert len(entries) == len(set(entries))
    for who in (cells.FEDLSA, *cells.BASELINES):
        for cores in ("one", "all"):
            assert cells.Entry(cells.HEADLINE, who, cores) in entries
    assert set(cells.FULL.growth) == {"N", "H", "d", "seeds"}


def test_every_goal_is_measured_by_the_plan_of_the_page_and_can_be_missed():
    """With made-up numbers in every place a goal has a value; a tenth of it or ten times as much decides otherwise."""

    def measured(ns, seconds):
        records = [measure.Record(e, (ns(e),), 1, 0.0) for group in cells.PAGE.groups() for e in group]
        starts = {
            process: {"import": seconds, "first call": seconds, "another": seconds} for process in ("first", "fit")
        }
        about = {"cores": 2, "commit": "", "processor": "", "vectors": ""}
        return measure.Measured(cells.PAGE, about, records, {"agents": 1, "MB": seconds}, starts)

    short = measured(lambda e: 1e-3 * e.cell.H if e.who == cells.FEDLSA else 1e9, 1e-3)
    long = measured(lambda e: 1e6 * e.cell.d**2 / e.cell.H if e.who == cells.FEDLSA else 1e-3, 1e9)
    markov = measured(lambda e: 1e9 if e.cell.sampling == "markov" else 1e-3, 0.0)
    two = measured(lambda e: 1.0 if e.cores == "one" else 1e-3, 0.0)
    for goal in goals.GOALS:
        assert {goal.met(m) for m in (short, long, markov, two)} == {True, False}, goal.what
    assert "**missed**" in report.goals([long])
    assert "the bottleneck" in report.goals([long])


def test_rewriting_fills_places_and_twice_is_once():
    once = documents.rewrite(DOCUMENT, {PLACES[0]: "| a |", PLACES[-1]: "| b |"})
    assert once.count("old") == len(PLACES) - 2
    assert once.startswith(f"Before.\n\n<!-- bench:{PLACES[0]} -->\n| a |\n<!-- /bench -->\nBetween.\n")
    assert once.endswith(f"<!-- bench:{PLACES[-1]} -->\n| b |\n<!-- /bench -->\n")
    assert documents.rewrite(once, {PLACES[0]: "| a |", PLACES[-1]: "| b |"}) == once


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no marker\n", "one marker for each of headline"),
        (DOCUMENT.removesuffix("<!-- /bench -->\n"), rf"must close <!-- bench:{PLACES[-1]} -->"),
        (DOCUMENT.replace("old\n<!-- /bench -->\n", "", 1), rf"must close <!-- bench:{PLACES[0]} -->"),
        (DOCUMENT + DOCUMENT, "got .*headline, headline"),
        (DOCUMENT + "<!-- bench:gird -->\n<!-- /bench -->\n", "got gird|got .*gird"),
    ],
)
def test_rewriting_refuses_places_that_are_missing_doubled_open_or_unknown(text, message):
    with pytest.raises(documents.MarkerError, match=message):
        documents.rewrite(text, {PLACES[0]: "a"})


def test_a_run_is_kept_as_its_processors_and_the_page_has_a_column_for_each(quick, tmp_path):
    measured, page = speed.load(quick), tmp_path / "performance.md"
    page.write_text("<!-- bench:headline -->\n<!-- /bench -->\n")
    with pytest.raises(documents.MarkerError, match=r"README\.md"):
        speed.update_page(measured, "one", tmp_path / "measured", page)
    assert not (tmp_path / "measured").exists()
    page.write_text(DOCUMENT)
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "network.json").write_text('{"rounds": []}')  # another benchmark's, in the same folder
    for name in ("one", "two"):
        speed.update_page(measured, name, tmp_path / "measured", page)
    headline = page.read_text().partition("<!-- /bench -->")[0]
    assert headline.count(f"{measured.name}: one core") == 2
    assert page.read_text().count("old") == len(PLACES) - len(report.PAGE_BLOCKS)


def test_quick_numbers_never_reach_the_documents(quick, capsys):
    for arguments in (["--quick", "--write", "x"], ["--from", str(quick), "--write", "x"]):
        with pytest.raises(SystemExit):
            speed.main(arguments)
    assert "--write" in capsys.readouterr().err


def test_the_page_shows_what_was_kept():
    text = documents.PAGE.read_text(encoding="utf-8")
    kept = speed.kept()
    assert len(kept) == 2
    assert documents.rewrite(text, report.page_blocks(kept)) == text
