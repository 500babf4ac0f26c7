"""Whatever a public function is given, it returns, or refuses with an error of fedlsa's own, soon and within memory.

`make test-fuzz` makes more calls than the suite does (COUNT=40000), of another SEED.
"""

import os

import calls
import pytest
import worker

import fedlsa as fl

COUNT, SEED = int(os.environ.get("FEDLSA_FUZZ", "400")), int(os.environ.get("FEDLSA_SEED", "0"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", calls.calls())
def test_the_calls_that_odd_ones_are_made_from_are_valid(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls.prepare()
    function, arguments, named = calls.calls()[name]()
    if name == "from_minari":
        pytest.skip("needs a data set on disk")
    function(*arguments, **named)


@pytest.mark.filterwarnings("ignore")
def test_no_public_name_is_forgotten():
    rooms = (fl, fl.problems, fl.problems.features, fl.theory, fl.control, fl.results, fl.figures, fl.experiments)
    public = {name for room in rooms for name in room.__all__ if callable(getattr(room, name))}
    called = {getattr(function, "__name__", "") for function, _, _ in calls.bases().values()}
    assert public - called == calls.RECORDS | calls.ABSTRACT | calls.EXPERIMENTS


def test_odd_calls_return_or_are_refused():
    wrong, tally = worker.wrong("calls", COUNT, SEED)
    assert not wrong, "\n".join(wrong)
    assert tally["refused"] > 0.5 * COUNT
    assert tally["returned"] > 0.01 * COUNT  # about 3.5%, of which 400 calls are a small sample
