"""docs/data.md is one session: its blocks run in their order, in one folder, and its numbers are the example's."""

import re
from pathlib import Path

import numpy as np
import panel
import pytest

import fedlsa as fl

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?")
PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf8")


def test_blocks_and_commands_of_the_page_run_in_their_order(shell, capsys):
    blocks = re.findall(r"^```(python|text|)\n(.*?)^```", PAGE, re.S | re.M)
    assert [kind for kind, _ in blocks].count("text") == 1
    session: dict[str, object] = {}
    printed = ""
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "docs/data.md", "exec"), session)
            printed = capsys.readouterr().out
        elif kind == "text":
            assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", text).split()
            expected = [float(x) for x in NUMBER.findall(text)]
            assert [float(x) for x in NUMBER.findall(printed)] == pytest.approx(expected, rel=0.02)
        for line in text.splitlines() if not kind else ():
            code, said = shell(line)
            assert (code, said.err) == (0, ""), line
    assert Path("fit.png").stat().st_size > 20_000
    first, again = (fl.Fit.load(name) for name in ("values.json", "values-again.json"))
    assert np.array_equal(first.theta, again.theta)


def test_the_pages_numbers_of_the_panel_are_those_of_the_fit(tmp_path):
    fit = fl.fit(panel.write_sites(tmp_path), panel.TASK, weight="samples", baselines=True)
    p = fit.plan
    assert f"| SCAFFLSA | {p.rounds} | {p.samples:,.0f} | {p.bytes:,} |" in PAGE
    assert f"SCAFFLSA {p.algorithm.local_steps:,}" in PAGE
    _, system, average = fit.baselines
    assert f"costs {system.bytes:,} bytes" in PAGE
    assert f"off by {average.distance:.1f} standard errors" in PAGE
    assert fit.epsilon == pytest.approx(0.0018, abs=5e-5)
