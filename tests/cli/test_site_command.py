"""`fedlsa network ledger` and `allow`: what a site reads of itself, and whom it lets in."""

import json
import sys
from pathlib import Path

import pytest
from refusals import refused

sys.path.insert(0, str(Path(__file__).parents[1] / "network"))

from hostile import Hostile, gaussian_table
from stores import change, rows


@pytest.fixture
def site(tmp_path, fedlsa, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Hostile(tmp_path / "room", gaussian_table(60))


def test_the_ledger_is_verified_and_shown(fedlsa, site):
    site.begin()
    site.work()
    site.work(steps=1)
    code, out, err = fedlsa("network", "ledger", site.site.folder)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "describe; the number of rows, columns and levels (1 numbers)" in lines[0]
    assert "trial; work 1; how far the model moved (6 numbers)" in lines[3]
    assert "refusal; the policy of this site forbids it (least_local_steps)" in lines[4]
    assert "5 entries, each holds the one before it" in out
    assert "in all: 4 answers of 50000, 1 runs of 100, 1 rounds, 1 refusals" in out
    code, out, err = fedlsa("network", "ledger", site.site.folder, "--json")
    said = json.loads(out)
    assert said["totals"]["rounds"] == 1
    assert [entry["asked"] for entry in said["entries"]] == ["describe", "standardise", "measure", "work", "work"]
    assert said["epsilon_spent"] is None


def test_a_head_that_was_kept_shows_that_the_end_of_a_ledger_was_cut_off(fedlsa, site):
    site.begin()
    head = str(site.handler.ledger.store.verify())
    assert fedlsa("network", "ledger", site.site.folder, "--head", head)[0] == 0
    change(site.site.folder, "delete from chain where number = 3")
    code, _, err = fedlsa("network", "ledger", site.site.folder, "--head", head)
    assert code != 0
    assert "its end was cut off" in err


def test_a_ledger_that_was_changed_or_restored_gets_one_line(fedlsa, site):
    site.begin()
    site.work()
    change(site.site.folder, "delete from chain where number = 4")
    refused(fedlsa("network", "ledger", site.site.folder), "lost or restored from a backup")
    change(site.site.folder, "update chain set entry = replace(entry, 'the number', 'the digits')")
    refused(fedlsa("network", "ledger", site.site.folder), "changed by hand")


def test_reading_the_ledger_writes_nothing(fedlsa, site):
    site.begin()
    ledger = site.handler.ledger
    ledger.copy.unlink()
    before = rows(site.site.folder, "select * from chain")
    assert fedlsa("network", "ledger", site.site.folder)[0] == 0
    assert rows(site.site.folder, "select * from chain") == before
    assert not ledger.copy.exists()


def test_a_run_waits_until_it_is_allowed(fedlsa, site):
    site.handler = site.opened(approve_runs=True)
    assert fedlsa("network", "allow", site.site.folder) == (0, "no run waits\n", "")
    assert site.describe(rounds=7).reason == "approval"
    code, out, _ = fedlsa("network", "allow", site.site.folder)
    assert "trial waits: Method scafflsa on rows drawn at random; at most 7 rounds." in out
    refused(fedlsa("network", "allow", site.site.folder, "other", "--yes"), "those that do: trial")
    code, out, _ = fedlsa("network", "allow", site.site.folder, "trial", "--yes")
    assert code == 0
    assert "trial is allowed on these terms" in out
    assert site.describe(rounds=7).kind == "description"
