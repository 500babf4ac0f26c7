"""One site against the run, and a site's own misfortunes, over the run loop in memory."""

import json
import re
import shutil

import numpy as np
import pytest
from memory_world import MemoryWorld, by_hand
from msgspec.structs import replace
from stores import put_aside

from fedlsa.errors import NetworkError, SiteDataError
from fedlsa.network.coordinator.run_loop import complete_run


class Living(MemoryWorld):
    """Sites whose processes live as long as the run."""

    def __init__(self, root, **policy):
        super().__init__(root, **policy)
        self.alive = {}

    def handler(self, site):
        if site not in self.alive:
            self.alive[site] = super().handler(site)
        return self.alive[site]


def rounds_of(run, site):
    return [e["round"] for _, e in run.events() if e["event"] == "round" and e.get("averaged") and site in e["sites"]]


def test_a_living_site_that_loses_its_state_folder_comes_back_into_the_run(tmp_path):
    world = Living(tmp_path)
    world.meddle = world.losing
    run = world.start(**by_hand(12, patience=100, local="means"))
    complete_run(world.network, run, world)
    assert world.lost
    found = run.read("result.json")
    assert len([r for r in rounds_of(run, "site-2") if r > 3]) >= 5
    assert found["averages"] == 12
    assert abs(found["sum_of_xi"]) <= 1e-9
    np.testing.assert_allclose(world.xi().sum(axis=0), 0, atol=1e-9)


def test_a_lie_about_rows_buys_no_more_than_the_cap(tmp_path):
    world = MemoryWorld(tmp_path, largest_weight=0.9)

    def lie(site, answer):
        if site == "site-4" and answer.kind == "description":
            return replace(answer, rows=2**62)
        return answer

    world.meddle = lie
    run = world.start(**by_hand(2, weight="samples", local="means"))
    complete_run(world.network, run, world)
    weights = run.read("result.json")["settings"]["weights"]
    assert max(weights) <= 0.5
    assert any(e["event"] == "weights" for _, e in run.events())  # and it is said


@pytest.mark.parametrize("curse", ["\x1b]0;owned\x07\x1b[2J", "line\nfeed", "\u202eright to left"])
@pytest.mark.parametrize("liars", [1, 4])
def test_names_of_columns_from_a_hostile_site_reach_no_screen(tmp_path, curse, liars):
    world = MemoryWorld(tmp_path)

    def cursed(site, answer):
        if answer.kind == "description" and site in world.network.sites[:liars]:
            said = replace(answer.design, columns=(f"{curse}all sites agree", *answer.design.columns[1:]))
            return replace(answer, design=said)
        return answer

    world.meddle = cursed
    run = world.start(**by_hand(1, local="means"))
    who = "site-2 lacks the column .*agree' that site-1 has" if liars == 1 else "site-1 refused: 'design' must have"
    with pytest.raises((NetworkError, SiteDataError), match=who) as told:
        complete_run(world.network, run, world)
    assert all(text.isprintable() for text in (str(told.value), *(str(e.get("text", "")) for _, e in run.events())))


def test_a_site_whose_policy_forbids_the_run_ends_it_with_the_name_of_the_entry(tmp_path):
    world = MemoryWorld(tmp_path, most_rounds=5)
    run = world.start(**by_hand(6))
    with pytest.raises(Exception, match=r"site-1 refused: .*\(most_rounds\)"):
        complete_run(world.network, run, world)


@pytest.mark.parametrize("junk", ["{", "[]", "\xff", '{"site-1": 7}', "[" * 10**5])
def test_receipts_that_are_damaged_are_named_and_kept(tmp_path, junk):
    """They may be all that tells what a site has spent: nobody goes on without them, or writes over them."""
    world = MemoryWorld(tmp_path)
    path = world.network.folder / "receipts.json"
    path.write_text(junk, encoding="latin1")
    with pytest.raises(NetworkError, match=re.escape(str(path))):
        complete_run(world.network, world.start(**by_hand(2, local="means")), world)
    assert path.read_text(encoding="latin1") == junk


def test_receipts_are_kept_by_the_coordinator_and_given_back(tmp_path):
    world = MemoryWorld(tmp_path)
    complete_run(world.network, world.start(**by_hand(2, local="means")), world)
    kept = json.loads((world.network.folder / "receipts.json").read_text())
    said = json.loads(json.loads(kept["site-1"])["said"])
    ledger = world.handler("site-1").ledger
    assert (said["number"], said["answers"]) == (ledger.head.number, ledger.totals.answers)
    shutil.rmtree(tmp_path / "copies")
    put_aside(world.folder("site-1"))  # ledger and copy are lost, the coordinator's receipt is not
    complete_run(world.network, world.start(**by_hand(2, local="means", name="second")), world)
    again = world.handler("site-1").ledger
    assert again.totals.runs == 2
    assert again.totals.answers > said["answers"]
