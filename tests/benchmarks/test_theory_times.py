"""Times of exact theory beside another version's: the table is well formed; no test reads anything into a time."""

import pytest
import theory_times


@pytest.mark.long
def test_rows_of_two_versions_stand_side_by_side():
    name = "FedLSA curve, N = 100, H = 1000, 500 rounds"
    text, measured = theory_times.table([name], theory_times.ROOT, 300)
    assert text.splitlines()[0].split("|")[2:-1] == [" before ", " now "]
    assert all(min(found["times"]) > 0 for found in measured[name].values())
    assert text.splitlines()[-1].startswith(f"| {name} | ")
    assert "error" in theory_times.text(name, theory_times.run("no such row", theory_times.ROOT, 60))


def test_what_is_refused_or_takes_too_long_is_said_in_its_place(monkeypatch):
    def refuse(fl):
        return fl.theory.exact(fl.problems.garnet(agents=2), fl.FedLSA(0.1, 10), rounds=0)

    monkeypatch.setitem(theory_times.ROWS, "refused", refuse)
    found = theory_times.measure("refused")
    assert theory_times.text("refused", found) == "ArgumentError: rounds must be a positive integer; got 0"
    late = theory_times.run(theory_times.GROWTH, theory_times.ROOT, 0.01)
    assert theory_times.text("late", late) == "over 0 s on the clock"
