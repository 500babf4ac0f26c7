"""The README is short, its example is twelve lines; its figures and those of the performance page were measured."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf8")
MEASURED = (ROOT / "benchmarks" / "measured" / "README.md").read_text(encoding="utf8")
HEADLINE = MEASURED.partition("<!-- bench:headline -->")[2].partition("<!-- /bench -->")[0]


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len(TEXT.splitlines()) <= 75


def test_the_example_has_at_most_twelve_lines_and_shows_the_bias() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.S | re.M)
    assert len([line for line in block.splitlines() if line.strip()]) <= 12
    assert "fl.theory.bias" in block


def test_its_times_are_those_that_the_benchmark_wrote() -> None:
    ours, loop = (
        float(re.search(rf"^\| {who}[^|]*\| ([\d.]+) ns", HEADLINE, re.M)[1]) for who in ("fedlsa", "NumPy loop")
    )
    said = re.search(r"takes ([\d.]+) ns on one\s+core,\s+where\s+a\s+NumPy\s+loop\s+takes ([\d.]+) ns", TEXT)
    assert [float(x) for x in said.groups()] == [round(ours, 1), round(loop)]


def test_the_performance_page_shows_the_headline_of_what_was_measured() -> None:
    shown = (ROOT / "docs" / "performance.md").read_text(encoding="utf8")
    rows = re.findall(r"^\| (\w[^|]*) \| (\S+ ns|\u2013) \| (\S+ ns|\u2013) \|$", shown, re.M)
    assert len(rows) == 5
    for who, *times in rows:
        (cells,) = re.findall(rf"^\| {re.escape(who)} \|(.*)$", HEADLINE, re.M)
        columns = [cell.partition(" (")[0].strip() for cell in cells.split("|")]
        assert times == [columns[0], columns[2]]  # one core of each processor
