"""The benchmark of exact moments runs and its table is well formed; no test reads anything into a timing."""

from dataclasses import replace

import theory


def test_every_row_is_timed_beside_a_simulation(monkeypatch):
    monkeypatch.setattr(theory, "SEEDS", 4)
    rows = [replace(row, agents=3, simulated=5, rounds=row.rounds and 20) for row in theory.QUICK]
    lines = theory.table(rows, 1).splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == 2 + len(rows)
    assert all(line.count("|") == lines[0].count("|") for line in lines[: 2 + len(rows)])
    assert "scaled up" in lines[-3]
