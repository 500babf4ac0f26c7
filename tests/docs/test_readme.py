"""The README is short, its example is twelve lines, and its figures are those of the performance page."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf8")


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len(TEXT.splitlines()) <= 75


def test_the_example_has_at_most_twelve_lines_and_shows_the_bias() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.S | re.M)
    assert len([line for line in block.splitlines() if line.strip()]) <= 12
    assert "fl.theory.bias" in block


def test_its_times_are_those_that_the_benchmark_wrote() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf8")
    table = page.partition("<!-- bench:headline -->")[2].partition("<!-- /bench -->")[0]
    ours, loop = (
        float(re.search(rf"^\| {who}[^|]*\| ([\d.]+) ns", table, re.M)[1]) for who in ("fedlsa", "NumPy loop")
    )
    said = re.search(r"takes ([\d.]+) ns on one\s+core, where a NumPy loop takes ([\d.]+) ns", TEXT)
    assert [float(x) for x in said.groups()] == [round(ours, 1), round(loop)]
