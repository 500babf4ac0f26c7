"""The ledger: every answer has an entry, totals outlive what happens to files, and damage is told in a sentence."""

import json
import os
import shutil
import socket
import stat

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hostile import VICTIM, Hostile, gaussian_table
from stores import change, put_aside

import fedlsa as fl
from fedlsa.errors import NetworkError, PolicyError
from fedlsa.network.disk import Database
from fedlsa.network.protocol.codec import sign_bytes
from fedlsa.network.protocol.messages import Measure
from fedlsa.network.protocol.ring import STATISTICS, Coding
from fedlsa.network.site.ledger import (
    MOST_REFUSALS,
    RECEIPT,
    Ledger,
    LedgerTotals,
    copy_place,
    epsilon_spent,
    sole_folder,
)
from fedlsa.network.site.limits import check_budget
from fedlsa.network.site.policy import Policy
from fedlsa.theory.privacy import epsilon_of

KEY = ec.generate_private_key(ec.SECP256R1())


def opened(folder, key=KEY):
    return Ledger(Database(folder / "site"), folder / "elsewhere" / "copy.json", "site-1", key)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "site").mkdir()
    return tmp_path


def answers(ledger, count, token="t", rho=0.5, start=0):
    for k in range(start, start + count):
        receipt = ledger.enter("trial", token, "work", "a share", f"{token} {k}", "d", round=k, rho=rho, unit="site")
    return receipt


def restored(place, *lost):
    """The ledger after the folder has been replaced by its backup, without folders that are lost."""
    shutil.rmtree(place / "site")
    for name in lost:
        shutil.rmtree(place / name)
    shutil.copytree(place / "backup", place / "site")
    return opened(place)


@pytest.fixture
def backed_up(place):
    """A ledger of two answers, of which there is a backup."""
    ledger = opened(place)
    answers(ledger, 2)
    shutil.copytree(place / "site", place / "backup")
    return ledger


def test_totals_are_those_of_the_entries_and_survive_a_new_process(place):
    ledger = opened(place)
    ledger.enter("trial", "t", "describe", "names", "l0", "d", terms="x", roster={"site-2": "ab"})
    answers(ledger, 3)
    answers(ledger, 2, token="u", rho=0.0)
    wanted = LedgerTotals(answers=6, runs=2, rounds=5, noised=3, rho=1.5, noised_site=3, rho_site=1.5)
    for found in (ledger, opened(place)):
        assert found.totals == wanted
        assert found.roster == {"site-2": "ab"}
        assert found.runs["t"].rounds == 3
        assert found.runs["t"].terms == "x"
        assert "v" not in found.runs
    assert stat.S_IMODE(ledger.store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.copy.stat().st_mode) == 0o600


def test_the_same_answer_again_is_entered_and_counted_but_costs_no_privacy(place):
    ledger = opened(place)
    answers(ledger, 1)
    answers(ledger, 1)
    assert ledger.totals == LedgerTotals(answers=2, runs=1, rounds=1, noised=1, rho=0.5, noised_site=1, rho_site=0.5)
    assert [entry.get("again", False) for entry in ledger.store.entries()] == [False, True]
    with pytest.raises(PolicyError, match="no second answer under the same mask"):
        ledger.enter("trial", "t", "work", "a share", "t 0", "other")
    assert opened(place).totals.answers == 2


def test_a_refusal_is_entered_once_and_there_is_an_end_to_them(place, monkeypatch):
    ledger = opened(place)
    for _ in range(3):
        ledger.refuse("trial", "work", "no")
    ledger.refuse("trial", "work", "never \x1b[2J")
    assert ledger.refusals == 2
    assert ledger.totals.answers == 0
    assert all(entry["text"].isprintable() for entry in ledger.store.entries())
    monkeypatch.setattr("fedlsa.network.site.ledger.MOST_REFUSALS", 5)
    for k in range(10):
        ledger.refuse("trial", "work", f"no {k}")
    assert ledger.refusals == 5
    assert MOST_REFUSALS == 10_000


def test_a_ledger_that_is_lost_takes_its_totals_from_the_copy(place):
    ledger = opened(place)
    answers(ledger, 4)
    put_aside(place / "site")
    again = opened(place)
    assert again.totals == LedgerTotals(answers=4, runs=1, rounds=4, noised=4, rho=2.0, noised_site=4, rho_site=2.0)
    assert "lost or restored" in again.runs["t"].closed  # what was answered in it is not known any more
    assert opened(place).totals == again.totals  # once is enough
    assert [entry["asked"] for entry in again.store.entries()] == ["restored"]
    answers(again, 1, token="u")
    assert opened(place).totals.answers == 5


@pytest.mark.parametrize("lost", [2, 4])
def test_a_chain_that_is_changed_under_a_running_process_makes_nothing_forgotten(place, lost):
    """The next entry was written behind it and then the copy, and a new process counted what the chain still held."""
    ledger = opened(place)
    answers(ledger, 4)
    change(place / "site", f"delete from chain where number > {4 - lost}")
    for k in range(4 if lost == 4 else 0):  # another chain, as long as the first
        Database(place / "site").append({"run": "trial", "asked": "work", "left": "refusal", "text": f"forged {k}"})
    with pytest.raises(NetworkError, match="as it did: it was changed meanwhile"):
        answers(ledger, 1, start=4)
    assert opened(place).totals.rho == 2.0


def test_a_restored_backup_of_the_folder_is_noticed_by_the_copy(place, backed_up):
    answers(backed_up, 3, start=2)
    again = restored(place)
    assert again.totals.rho == 2.5
    assert again.totals.answers == 5
    assert again.runs["t"].closed


def test_a_restored_backup_is_noticed_by_the_receipt_where_the_copy_is_lost_too(place, backed_up):
    receipt = answers(backed_up, 3, start=2)
    again = restored(place, "elsewhere")
    assert again.totals.rho == 1.0
    again.compare_receipt(receipt)
    assert again.totals.rho == 2.5
    again.compare_receipt(receipt)
    assert again.totals.rho == 2.5
    assert opened(place).totals.rho == 2.5


def test_two_pasts_that_were_both_answered_are_added_up(place, backed_up):
    receipt = answers(backed_up, 2, start=2)
    again = restored(place, "elsewhere")
    answers(again, 4, token="u")  # before the receipt comes back
    again.compare_receipt(receipt)
    assert again.totals.rho == 3.0 + 2.0


def test_receipts_of_a_past_that_was_taken_over_do_not_count_again(place, backed_up):
    older = answers(backed_up, 2, start=2)
    answers(backed_up, 2, start=4)
    again = restored(place)
    answers(again, 6, token="u", rho=0.0)
    again.compare_receipt(older)
    assert again.totals.rho == 3.0


@pytest.mark.parametrize(
    "text", ["", "{}", "null", "[1]", '{"said": "{}", "signature": "00"}', '{"said": 1, "signature": 2}', "[" * 5000]
)
def test_receipts_that_this_site_did_not_write_say_nothing(place, text):
    ledger = opened(place)
    answers(ledger, 1)
    ledger.compare_receipt(text)
    assert ledger.totals.answers == 1


def test_a_receipt_of_another_key_or_of_another_site_says_nothing(place):
    for name in ("x", "y"):
        (place / name).mkdir()
    stranger = Ledger(Database(place / "x"), place / "x.json", "site-1", ec.generate_private_key(ec.SECP256R1()))
    other = Ledger(Database(place / "y"), place / "y.json", "site-2", KEY)
    ledger = opened(place)
    answers(ledger, 1)
    for receipt in (answers(stranger, 5), answers(other, 5)):
        ledger.compare_receipt(receipt)
    changed = json.loads(answers(ledger, 1, start=1))
    changed["said"] = changed["said"].replace('"rho": 1.0', '"rho": 9.0')
    ledger.compare_receipt(json.dumps(changed))
    assert ledger.totals == LedgerTotals(answers=2, runs=1, rounds=2, noised=2, rho=1.0, noised_site=2, rho_site=1.0)


DAMAGE = {
    "change": "update chain set entry = replace(entry, '0.5', '0.0') where number = 1",
    "cut": "delete from chain where number = 2",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_chain_is_refused_in_a_sentence_that_says_what_to_do(place, damage):
    ledger = opened(place)
    answers(ledger, 3)
    change(place / "site", DAMAGE[damage])
    with pytest.raises(NetworkError) as caught:
        opened(place)
    text = str(caught.value)
    assert "\n" not in text
    assert str(ledger.store.path) in text
    assert "put it aside" in text
    put_aside(place / "site")
    assert opened(place).totals.answers == 3


def test_a_chain_of_something_else_is_refused(place):
    Database(place / "site").append({"event": "round"})
    with pytest.raises(NetworkError, match="not of this version"):
        opened(place)


def test_an_end_that_was_cut_off_is_noticed_by_the_copy(place):
    ledger = opened(place)
    answers(ledger, 3)
    change(place / "site", "delete from chain where number > 1")
    assert opened(place).totals.rho == 1.5


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"number": "x"}', b"\xff"])
def test_a_damaged_copy_is_refused_in_a_sentence(place, content):
    ledger = opened(place)
    answers(ledger, 1)
    ledger.copy.write_bytes(content)
    with pytest.raises(NetworkError, match=r"copy of the ledger's totals .* is damaged"):
        opened(place)
    ledger.copy.unlink()
    assert opened(place).totals.answers == 1


def test_a_copy_that_cannot_be_written_lets_nothing_leave(place):
    ledger = opened(place)
    shutil.rmtree(place / "elsewhere")
    (place / "elsewhere").write_text("a file is in the way")
    with pytest.raises(NetworkError, match=r"the copy of the ledger's totals .* must be"):
        answers(ledger, 1)
    with pytest.raises(NetworkError, match=r"ledger_copy of policy\.toml"):
        opened(place)


def test_the_copy_lies_outside_the_sites_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert copy_place("", "net", "site-1") == tmp_path / "state" / "fedlsa" / "net-site-1.ledger.json"
    assert copy_place("/srv/x", "net", "site-1").as_posix() == "/srv/x/net-site-1.ledger.json"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert ".local" in copy_place("", "net", "site-1").parts


# with a site


def spend(world, token, rounds, **more):
    assert world.describe(token=token, coding=Coding(clip=1.0, noise=20.0), **more).kind == "description"
    assert world.measure().kind == "measurement"
    return [world.work().kind for _ in range(rounds)]


@pytest.fixture
def noisy(tmp_path):
    table = gaussian_table(80)
    task = fl.Regression("y", standardise=False)
    return Hostile(tmp_path, table, task=task, privacy="site", epsilon=2.0)


def test_privacy_is_spent_over_runs_restarts_and_restored_backups(noisy):
    shutil.copytree(noisy.site.folder, noisy.root / "backup")
    first = spend(noisy, "a", 10)
    noisy.handler = noisy.opened()
    second = spend(noisy, "b", 10)
    assert first == second == ["reply"] * 10
    spent = noisy.handler.ledger.totals
    assert spent.noised == 20
    assert spent.rho >= 20 * (2 / 20) ** 2 / 2
    shutil.rmtree(noisy.site.folder)
    shutil.copytree(noisy.root / "backup", noisy.site.folder)
    noisy.handler = noisy.opened()
    assert noisy.handler.ledger.totals == spent
    third = spend(noisy, "c", 60)
    assert third[0] == "reply"
    assert third[-1] == "refusal"
    assert "(epsilon)" in noisy.work().text
    total = noisy.handler.ledger.totals.rho
    assert epsilon_of(total, 1e-5) <= 2.0 < epsilon_of(total + (2 / 20) ** 2 / 2, 1e-5) * 1.01


def test_the_same_answer_with_noise_is_the_same_to_the_bit_and_costs_once(noisy):
    spend(noisy, "a", 0)
    order = noisy.order()
    first, second = noisy.answer(order), noisy.answer(order)
    assert np.array_equal(first.share, second.share)
    assert noisy.handler.ledger.totals.noised == 1


def test_with_privacy_nothing_leaves_without_noise(noisy):
    for coding in (Coding(), Coding(clip=1.0), Coding(clip=1.0, noise=1.0, unit="record", row_clip=1.0)):
        assert "(privacy)" in noisy.describe(coding=coding).text
    noisy.describe(coding=Coding(clip=1.0, noise=20.0))
    assert "(noiseless_sums)" in noisy.standardise().text
    k = noisy.rows.shape[1] - 1
    own = {"centre": np.zeros(k), "spread": np.ones(k), "y_centre": 0.0, "y_spread": 1.0}
    order = Measure("trial", **noisy.agreed(), **own, intercept=True)
    answer = noisy.answer(order)
    assert answer.A is answer.b is answer.noise_map is None
    assert not noisy.unmasked(order, answer, STATISTICS).any()  # no sums either
    assert noisy.work().kind == "reply"
    assert "(epsilon)" in noisy.describe(token="u", coding=Coding(clip=1.0, noise=20.0), rounds=1000).text
    assert "(epsilon)" in noisy.describe(token="u", coding=Coding(clip=1.0, noise=0.5)).text


def test_the_receipt_of_an_answer_is_given_back_when_a_run_begins(noisy):
    shutil.copytree(noisy.site.folder, noisy.root / "backup")
    spend(noisy, "a", 5)
    receipt = noisy.work().receipt
    shutil.rmtree(noisy.site.folder)
    shutil.copytree(noisy.root / "backup", noisy.site.folder)
    noisy.handler.ledger.copy.unlink()
    noisy.handler = noisy.opened()
    assert noisy.handler.ledger.totals.noised == 0
    spend(noisy, "b", 1, receipts=((VICTIM, receipt),))
    assert noisy.handler.ledger.totals.noised == 7


def test_records_are_protected_by_less_noise_and_counted_apart_from_sites(tmp_path):
    task = fl.Regression("y", standardise=False)
    world = Hostile(tmp_path, gaussian_table(400), task=task, privacy="record", epsilon=1.0)
    coding = Coding(clip=1.0, noise=0.5, unit="record", row_clip=1.0)
    assert world.describe(coding=coding).kind == "description"
    world.measure()
    kinds = [world.work(eta=1e-3, steps=400).kind for _ in range(40)]
    assert kinds[0] == "reply"
    assert world.handler.ledger.totals.noised == kinds.count("reply") >= 10
    assert "(epsilon)" in world.work(eta=1e-3, steps=400).text
    assert world.handler.ledger.totals.rho < 40 * (2 / 0.5) ** 2 / 2  # what hiding the whole table would have cost


# what noise is for


def test_noise_that_hides_rows_is_no_account_of_the_whole_table(place):
    ledger = opened(place)
    for k in range(50):
        ledger.enter("r", "t", "work", "x", f"l{k}", f"d{k}", rho=1e-5, unit="record")
    assert ledger.totals.noised == 50
    for found in (ledger, opened(place)):
        assert epsilon_spent(Policy(privacy="record"), found.totals) < 0.2
        assert epsilon_spent(Policy(privacy="site"), found.totals) is None  # it was 0.07, where 25,000 is true
        with pytest.raises(PolicyError, match=r"\(privacy\): answers have left whose noise hides single rows only"):
            check_budget(Policy(privacy="site", epsilon=1e6), found.totals, 1e-9)


def test_noise_that_hides_the_table_counts_for_its_rows(place):
    ledger = opened(place)
    answers(ledger, 4, rho=0.01)
    record, site = (epsilon_spent(Policy(privacy=unit), ledger.totals) for unit in ("record", "site"))
    assert record == pytest.approx(site, rel=1e-6)
    with pytest.raises(PolicyError, match=r"\(epsilon\)"):
        check_budget(Policy(privacy="record", epsilon=record * 1.01), ledger.totals, 0.01)


def test_a_site_that_promises_the_table_after_answers_for_rows_refuses_the_next_run(tmp_path):
    task = fl.Regression("y", standardise=False)
    rows = {"privacy": "record", "epsilon": 5.0}
    world = Hostile(tmp_path, gaussian_table(400), task=task, **rows)
    assert world.describe(coding=Coding(clip=1.0, noise=0.05, unit="record", row_clip=1.0)).kind == "description"
    world.measure()
    assert world.work(eta=1e-3, steps=400).kind == "reply"
    world.handler = world.opened(privacy="site", epsilon=5.0)
    coding = Coding(clip=1.0, noise=20.0)
    assert "(privacy)" in world.describe(token="u", name="second", coding=coding, rounds=1).text
    world.handler = world.opened(**rows)
    assert world.describe(token="u", name="second", coding=coding, rounds=1).kind == "description"


# two copies of a folder, and a ledger of before


def test_a_second_live_copy_of_a_folder_is_refused_by_the_lock_that_names_the_first(tmp_path):
    copy = tmp_path / "elsewhere" / "copy.json"
    with sole_folder(copy, tmp_path / "site"):
        with pytest.raises(NetworkError, match="a second copy of its folder would spend") as caught:
            sole_folder(copy, tmp_path / "twin").__enter__()
        assert f"{os.getpid()} on {socket.gethostname()}, in {tmp_path / 'site'}" in str(caught.value)
    with sole_folder(copy, tmp_path / "twin"):  # the first has ended
        pass


def test_where_locks_do_not_hold_the_copy_is_compared_before_every_entry(place):
    """Both folders answer in turn, as they did: together they spend no more than one of them may."""
    first = opened(place)
    answers(first, 2)
    shutil.copytree(place / "site", place / "twin")
    second = Ledger(Database(place / "twin"), first.copy, "site-1", KEY)
    answers(first, 1, start=2)
    for _ in range(3):
        with pytest.raises(NetworkError, match="two copies of this site's folder are at work"):
            answers(second, 1, token="u")
    assert answers(first, 1, start=3)
    assert second.store.verify().number == 2
    assert Ledger(Database(place / "twin"), first.copy, "site-1", KEY).totals.rho == 2.0


EARLIER = "of an earlier state of fedlsa, which this one does not read"


@pytest.mark.parametrize("file", ["site/ledger.jsonl", "site/ledger.000001.jsonl", "elsewhere/copy.json"])
@pytest.mark.parametrize("answered", [0, 2])
@pytest.mark.parametrize("key", [KEY, None])
def test_what_an_earlier_state_kept_of_privacy_spent_is_refused_and_never_ignored(place, file, answered, key):
    if answered:
        answers(opened(place), answered)
    (place / file).parent.mkdir(exist_ok=True)
    (place / file).write_text('{"site": "site-1", "number": 9, "hash": "%s", "totals": {"rho": 2.0}}' % ("0" * 64))
    with pytest.raises(NetworkError, match=EARLIER) as error:
        opened(place, key)
    assert str(place / file) in str(error.value)
    assert ". " not in str(error.value)  # one sentence
    assert Database(place / "site").verify().number == answered


def test_files_of_people_beside_a_ledger_do_not_matter(place):
    answers(opened(place), 2)
    for name in ("ledger-2026.jsonl", "ledger_export.jsonl", "ledger.json", "ledger.old.jsonl", "old-ledger.jsonl"):
        (place / "site" / name).write_text("{}")
    assert opened(place).totals.answers == 2


def test_an_entry_of_an_earlier_state_is_refused(place):
    opened(place).store.append({"asked": "work", "left": "x", "token": "t", "run": "r", "label": "l", "digest": "d",
                                "group": "0123456789abcdef"})  # fmt: skip
    with pytest.raises(NetworkError, match="holds an entry that is not of this version"):
        opened(place)


def test_a_receipt_of_an_earlier_state_is_refused_where_this_site_has_signed_it(place):
    ledger = opened(place)
    content = '{"site": "site-1", "number": 9, "hash": "%s", "totals": {"rho": 2.0}}' % ("0" * 64)
    for key in (KEY, ec.generate_private_key(ec.SECP256R1())):
        receipt = {"said": content, "signature": sign_bytes(key, RECEIPT + content.encode()).hex()}
        if key is KEY:
            with pytest.raises(NetworkError, match=EARLIER):
                ledger.compare_receipt(json.dumps(receipt))
        else:
            ledger.compare_receipt(json.dumps(receipt))
    assert ledger.head.number == 0
