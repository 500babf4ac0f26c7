"""data.md, report.md, statistics.md and values.md are a session each: blocks run in their order, in one folder."""

import re
from pathlib import Path

import numpy as np
import panel
import pytest

import fedlsa as fl

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?")
PAGES = {
    name: (ROOT / "docs" / name).read_text(encoding="utf8")
    for name in ("data.md", "report.md", "statistics.md", "values.md")
}


@pytest.mark.parametrize("name", PAGES)
def test_blocks_and_commands_of_a_page_run_in_their_order(name, shell, capsys):
    session: dict[str, object] = {}
    printed = ""
    for kind, text in re.findall(r"^```(python|text|)\n(.*?)^```", PAGES[name], re.S | re.M):
        if kind == "python":
            exec(compile(text, name, "exec"), session)
            printed = capsys.readouterr().out
        elif kind == "text":
            assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", text).split()
            expected = [float(x) for x in NUMBER.findall(text)]
            assert [float(x) for x in NUMBER.findall(printed)] == pytest.approx(expected, rel=0.02)
        for line in text.splitlines() if not kind else ():
            code, said = shell(line)
            assert (code, said.err) == (0, ""), line
    if name == "data.md":
        assert Path("fit.png").stat().st_size > 20_000
    if name in ("data.md", "values.md"):
        kind = "model" if name == "data.md" else "values"
        first, again = (fl.Fit.load(path) for path in (f"{kind}.json", f"{kind}-again.json"))
        assert np.array_equal(first.theta, again.theta)


def test_numbers_of_the_panel_are_those_of_the_fit(tmp_path):
    fit = fl.fit(panel.write_sites(tmp_path), panel.TASK, weight="samples", local="rows", baselines=True)
    p, page = fit.plan, PAGES["statistics.md"]
    assert f"| SCAFFLSA | {p.rounds} | {p.samples:,.0f} | {p.bytes:,} |" in page
    assert f"SCAFFLSA {p.algorithm.local_steps:,}" in page
    _, system, average = fit.baselines
    assert f"costs {system.bytes:,} bytes" in page
    assert f"off by {average.distance:.1f} standard errors" in page
    assert fit.epsilon == pytest.approx(0.0018, abs=5e-5)
