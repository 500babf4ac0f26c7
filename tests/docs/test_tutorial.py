"""docs/tutorial.md is one session: its blocks run in their order and print what the page shows."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf8")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?")


def test_blocks_run_in_their_order_and_print_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", PAGE, re.S | re.M)
    assert len(blocks) == 8
    assert sum(bool(shown) for _, shown in blocks) == 7
    session: dict[str, object] = {}
    for code, shown in blocks:
        exec(compile(code, "docs/tutorial.md", "exec"), session)
        printed = capsys.readouterr().out
        assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split()
        expected = [float(x) for x in NUMBER.findall(shown)]
        assert [float(x) for x in NUMBER.findall(printed)] == pytest.approx(expected, rel=0.02, abs=1e-9)
