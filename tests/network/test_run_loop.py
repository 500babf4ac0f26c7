"""A run from its first question to its end, over a transport in memory: the sites, their disks, and the files."""

import dataclasses
import hashlib
import itertools
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from memory_world import ETA, D, H, MemoryWorld, by_hand
from msgspec.structs import replace
from tiers import longer, mostly_long

import fedlsa as fl
from fedlsa.errors import MessageError, NetworkError
from fedlsa.network.coordinator import run_loop
from fedlsa.network.coordinator.commands import outcome, status, stop
from fedlsa.network.coordinator.run_loop import complete_run
from fedlsa.network.coordinator.runs import RunSummary, amount, line, summary, unfinished
from fedlsa.network.disk import Database
from fedlsa.network.protocol.codec import MalformedError
from fedlsa.network.protocol.messages import Refusal
from fedlsa.network.site import facts as table_module
from fedlsa.network.site.site_data import scale_from_json


class Crash(Exception):
    """The coordinator's process dies."""


@pytest.fixture
def world(tmp_path):
    return MemoryWorld(tmp_path)


@pytest.fixture
def loose(tmp_path):
    """A world whose sites let sums be over several groups, so that a run goes on without one of them."""
    return MemoryWorld(tmp_path, most_groups=9)


def events(run, kind):
    return [event for _, event in run.events() if event["event"] == kind]


@pytest.mark.parametrize("aggregation", ["secure", longer("plain")])
@pytest.mark.parametrize("method", [longer(fl.FedLSA(ETA, H)), fl.SCAFFLSA(ETA, H), fl.Scaffnew(ETA, 1 / H)], ids=repr)
def test_a_run_on_means_is_the_simulation_and_every_site_is_told(tmp_path, method, aggregation):
    world = MemoryWorld(tmp_path, least_sites=3 if aggregation == "secure" else 1)
    name = type(method).__name__.lower()
    run = world.start(**by_hand(3, seed=3, method=name, local="means", aggregation=aggregation))
    complete_run(world.network, run, world)
    found = run.read("result.json")
    assert np.abs(np.array(found["theta"]) - world.on_means(3, method, seed=3)).max() <= 1e-12
    assert found["sum_of_xi"] <= 1e-12
    assert np.abs(world.xi().sum(axis=0)).max() <= 1e-12
    assert found["told"] == list(world.network.sites)
    for site in world.network.sites:
        told = json.loads((world.folder(site) / "results" / "trial.json").read_text())
        assert told["theta"] == found["theta"]


@pytest.mark.long
def test_a_run_on_rows_has_the_error_that_exact_theory_gives_it(tmp_path, monkeypatch):
    """Rows are drawn by the sites' secrets, which stand still here: the errors of many runs are held to their law."""
    drawn = itertools.count(1)
    fixed = SimpleNamespace(digest=lambda *_: hashlib.sha256(str(next(drawn)).encode()).digest())
    monkeypatch.setattr(table_module, "hmac", fixed)
    world = MemoryWorld(tmp_path, most_runs=100)
    problem = fl.problems.regression(world.data)
    exact = fl.theory.exact(problem, fl.SCAFFLSA(ETA, H), 3, np.zeros(D))
    errors = []
    for k in range(16):
        run = world.start(**by_hand(3, name=f"trial-{k}"))
        complete_run(world.network, run, world)
        errors.append(np.sum((np.array(run.read("result.json")["theta"]) - problem.theta_star) ** 2))
    assert len(set(errors)) == 16
    error = np.std(errors, ddof=1) / 4
    assert abs(np.mean(errors) - float(exact["mse"].values[-1])) <= 4.5 * error


@pytest.mark.parametrize("answers", mostly_long([1, 6, 9, 13, 16, 19], [9, 16]))
def test_a_coordinator_that_dies_after_any_answer_goes_on_to_the_same_bits(world, answers):
    run, count = world.start(**by_hand(2)), 0

    def die(site, answer):
        nonlocal count
        count += 1
        if count == answers:
            raise Crash
        return answer

    world.meddle = die
    with pytest.raises(Crash):
        complete_run(world.network, run, world)
    assert unfinished(world.network) == run
    asked = {}

    def watch(site, answer):
        if answer.kind == "reply":
            asked.setdefault((site, answer.round), set()).add(answer.share.tobytes())
        return answer

    world.meddle = watch
    complete_run(world.network, run, world)
    found = run.read("result.json")
    assert found["rounds_opened"] == found["averages"] == 2
    assert all(len(shares) == 1 for shares in asked.values())
    assert found["sum_of_xi"] <= 1e-12
    assert np.abs(world.xi().sum(axis=0)).max() <= 1e-12
    assert unfinished(world.network) is None


def test_after_a_site_lost_its_state_all_begin_again_and_the_sum_stays_zero(world):
    run, world.meddle = world.start(**by_hand(6)), world.losing
    complete_run(world.network, run, world)
    assert any(e["site"] == "site-2" for e in events(run, "refused"))
    rounds = events(run, "round")
    assert "site-2" in rounds[2]["missing"]
    assert "site-2" in rounds[-1]["sites"]
    found = run.read("result.json")
    assert found["generations"] == 2
    assert found["sum_of_xi"] <= 1e-12
    assert np.abs(world.xi().sum(axis=0)).max() <= 1e-12


def test_a_site_that_sends_nonsense_is_named_put_aside_and_the_run_goes_on_without_it(loose):
    run = loose.start(**by_hand(8, strikes=3, min_sites=3))

    def spoil(site, answer):
        if site != "site-4" or answer.kind != "reply":
            return answer
        return replace(answer, share=np.zeros((D + answer.round, 8), np.int16))

    loose.meddle = spoil
    complete_run(loose.network, run, loose)
    assert {e["site"] for e in events(run, "refused")} == {"site-4"}
    assert [site for e in events(run, "round") for site in e["aside"]] == ["site-4"]
    found = run.read("result.json")
    assert found["aside"] == ["site-4"]
    assert any("put aside" in words and "site-4" in words for words in summary(found))
    assert found["sum_of_xi"] <= 1e-12
    assert np.isfinite(found["theta"]).all()


def test_it_is_said_why_the_sum_of_control_variates_is_not_known(loose):
    run = loose.start(**by_hand(4, absence="freeze", patience=1, min_sites=3))

    def leave(site, answer):
        if answer.kind == "reply" and answer.round == 2:
            loose.absent.add("site-4")
        return answer

    loose.meddle = leave
    complete_run(loose.network, run, loose)
    found = run.read("result.json")
    assert (found["sum_of_xi"], found["told"]) == (None, ["site-1", "site-2", "site-3"])
    assert any("|sum of xi| not known: a site that is gone keeps its own" in words for words in summary(found))

    loose.absent.clear()
    run = loose.start(**by_hand(2, name="deaf"))
    loose.meddle = lambda site, answer: None if (site, answer.kind) == ("site-1", "finished") else answer
    complete_run(loose.network, run, loose)
    found = run.read("result.json")
    assert found["sum_of_xi"] is None
    assert any("|sum of xi| not known: not all sites took the last message" in words for words in summary(found))


def test_what_cannot_be_unpacked_costs_a_round_and_is_named(world):
    run, spoilt = world.start(**by_hand(3)), []

    def spoil(site, answer):
        if site == "site-4" and answer.kind == "reply" and not spoilt:
            spoilt.append(site)
            return MessageError("unreadable")
        return answer

    world.meddle = spoil
    complete_run(world.network, run, world)
    assert [e["text"] for e in events(run, "refused")] == ["unreadable"]
    assert run.read("result.json")["averages"] == 3


def test_rounds_in_vain_come_to_an_end(world):
    run = world.start(**by_hand(3, most_in_vain=4))
    world.meddle = lambda site, answer: None if answer.kind == "reply" else answer
    with pytest.raises(
        NetworkError, match=r"4 rounds in a row were in vain: .*; without a good answer: site-1, site-2"
    ):
        complete_run(world.network, run, world)


@pytest.mark.parametrize(
    ("options", "word", "more"),
    [
        ({"rounds": 3, "most_in_vain": 3}, 6, 1000),  # adds about 2e16 to every coordinate of the sum
        ({"rounds": 2, "most_in_vain": 2, "clip": 1e-3, "noise": 2.0}, 4, 1),  # 1, more than noise explains
    ],
)
def test_one_hostile_site_in_a_sum_stops_the_run_but_never_owns_its_result(world, options, word, more):
    run = world.start(**by_hand(**options))

    def poison(site, answer):
        if site == "site-4" and answer.kind == "reply":
            share = answer.share.copy()
            share[:, word] += more
            return replace(answer, share=share)
        return answer

    world.meddle = poison
    with pytest.raises(NetworkError, match="one of the sites does not keep to the orders"):
        complete_run(world.network, run, world)
    assert np.array_equal(run.load().theta, np.zeros(D))


def test_a_run_about_another_task_is_refused_by_the_site(world):
    run = world.start(**by_hand(1))
    other = fl.Regression("y", intercept=False, standardise=False, ridge=0.5)
    world.sites["site-1"] = dataclasses.replace(world.sites["site-1"], task=other)
    with pytest.raises(NetworkError, match="site-1 refused: the run must be about the task"):
        complete_run(world.network, run, world)


def test_coefficients_are_on_the_original_scale_and_moments_give_the_one_shot_solution(tmp_path):
    world = MemoryWorld(tmp_path, fl.Regression("y"), share_moments=True)
    run = world.start(epsilon=0.3)
    complete_run(world.network, run, world)
    found = run.read("result.json")
    X = np.concatenate([np.column_stack([x, np.ones(len(x))]) for x, _ in world.data])
    pooled = np.linalg.lstsq(X, np.concatenate([y for _, y in world.data]))[0]
    assert found["one_shot"] == pytest.approx(pooled, abs=1e-9)
    assert np.linalg.norm(np.array(found["theta"]) - _in_run(found, pooled)) <= 0.6  # twice what is expected at most
    assert "one shot" in "\n".join(summary(outcome(world.network.folder)))


def _in_run(found, theta):
    T, t = scale_from_json(found["scale"]).original()
    return np.linalg.solve(T, theta - t)


def test_a_stopped_run_keeps_what_it_has(world):
    run = world.start(**by_hand(50))
    world.meddle = lambda site, answer: (run.ask_to_stop() if getattr(answer, "round", 0) == 2 else None) or answer
    complete_run(world.network, run, world)
    assert run.read("result.json")["averages"] == 2
    assert "it was stopped" in "\n".join(summary(outcome(world.network.folder)))
    with pytest.raises(NetworkError, match="over already"):
        stop(world.network.folder)


def test_one_run_at_a_time_and_no_name_twice(world):
    first = world.start(**by_hand(1))
    with pytest.raises(NetworkError, match="one run at a time: trial"):
        world.start(**by_hand(1, name="second"))
    with pytest.raises(NetworkError, match="trial is not over yet"):
        outcome(world.network.folder)
    complete_run(world.network, first, world)
    with pytest.raises(NetworkError, match="must be that of a new run; trial"):
        world.start(**by_hand(1))
    with pytest.raises(NetworkError, match="must be that of a run"):
        status(world.network.folder, "unknown")
    assert "trial: over" in status(world.network.folder)


def test_every_event_reads_as_a_line(world):
    run = world.start(**by_hand(3))
    complete_run(world.network, run, world)
    lines = [line(event) for _, event in run.events()]
    assert lines[0] == "planned: as asked for"
    assert lines[1].startswith("round 1: 4 of 4 sites, size ")
    assert lines[-1] == "finished: all 3 rounds are done"
    shown = RunSummary(run).read().lines(world.network.sites)
    assert [shown[0], *shown[1:3], shown[-1]] == ["trial: over: all 3 rounds are done", lines[0], lines[-2], lines[-1]]
    assert [words.split(",")[0].strip() for words in shown[3:-1]] == [f"site-{c}: answered" for c in (1, 2, 3, 4)]


def test_another_run_under_an_old_name_begins_afresh_at_the_sites(world):
    first = world.start(**by_hand(2, local="means"))
    complete_run(world.network, first, world)
    shutil.rmtree(first.folder)
    again = world.start(**by_hand(3, local="means"))
    complete_run(world.network, again, world)
    assert np.abs(np.array(again.read("result.json")["theta"]) - world.on_means(3)).max() <= 1e-12


def test_a_site_with_a_damaged_state_begins_again(world):
    run, spoilt = world.start(**by_hand(5)), []

    def spoil(site, answer):
        if site == "site-3" and answer.kind == "reply" and answer.round == 2 and not spoilt:
            spoilt.append(site)
            Database(world.folder(site)).put("trial", "state", b"nonsense")
        return answer

    world.meddle = spoil
    complete_run(world.network, run, world)
    assert spoilt == ["site-3"]
    assert "site-3" in events(run, "round")[-1]["sites"]
    assert np.abs(world.xi().sum(axis=0)).max() <= 1e-12


def test_privacy_noise_is_bounded_too_and_its_promise_is_told(world):
    run = world.start(**by_hand(2, clip=1e-3, noise=2.0))
    complete_run(world.network, run, world)
    found = run.read("result.json")
    norm = np.linalg.norm(found["theta"])
    assert 1e-4 < norm < 2 * 1e-3 * (1 + 2 * (np.sqrt(D) + 6))
    assert "differentially private" in found["privacy"]
    assert any("privacy of each site" in words for words in summary(found))


def test_a_measurement_that_cannot_be_is_named_and_asked_for_again(world):
    seen = []

    def lie(site, answer):
        if site == "site-4" and answer.kind == "measurement" and len(seen) < 2:
            seen.append(site)
            return MalformedError("'rows' must be positive; got 0")
        return answer

    world.meddle = lie
    run = world.start(**by_hand(1))
    complete_run(world.network, run, world)
    assert seen == ["site-4"] * 2
    assert [event["site"] for event in events(run, "refused")] == ["site-4"]  # said once: it could fill the disk
    assert run.read("result.json")["averages"] == 1


def test_a_site_that_is_away_for_good_is_left_behind_and_one_that_returns_belongs_again(loose):
    run, seen = loose.start(**by_hand(12, patience=2, min_sites=3)), []

    def leave(site, answer):
        if answer.kind == "reply":
            seen.append((site, answer.round))
            loose.absent = {"site-2"} if 3 <= answer.round <= 8 else set()
        return answer

    loose.meddle = leave
    complete_run(loose.network, run, loose)
    rounds = events(run, "round")
    assert [site for e in rounds for site in e["gone"]] == ["site-2"]
    found = run.read("result.json")
    assert found["averages"] == 12
    assert found["sum_of_xi"] <= 1e-12


def test_what_somebody_else_writes_cannot_reach_a_terminal(world):
    def curse(site, answer):
        return Refusal("trial", 0, 0, "data", "\x1b[2J[/foo]" + "x" * 5000)

    world.meddle = curse
    with pytest.raises(NetworkError) as error:
        complete_run(world.network, run := world.start(**by_hand(1)), world)
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 300
    seen = RunSummary(run)
    seen.take({"event": "refused", "site": "site-1", "text": "[/foo]"})
    drawn = seen.table()
    assert "[/foo]" in str(drawn.caption)


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_500_000, "2.5 MB")])
def test_amounts_are_for_people(count, text):
    assert amount(count) == text


def test_a_malformed_last_message_loses_no_result(world):
    def spoil(site, answer):
        if answer.kind == "finished" and site == "site-2":
            return MalformedError("a message must be of this version's form")
        if answer.kind == "finished" and site == "site-3":
            return replace(answer, share=answer.share[:, :1])
        return answer

    world.meddle = spoil
    run = world.start(**by_hand(3, local="means"))
    complete_run(world.network, run, world)
    found = run.read("result.json")
    assert found["told"] == ["site-1", "site-4"]
    assert found["sum_of_xi"] is None
    assert np.abs(np.array(found["theta"]) - world.on_means(3)).max() <= 1e-12


def test_a_run_whose_sites_cannot_be_enough_any_more_ends_with_a_sentence(tmp_path):
    """Three masked sites of which one was put aside were waited for without end."""
    world = MemoryWorld(tmp_path, sites=3)
    world.meddle = lambda site, answer: (
        replace(answer, share=answer.share[:1]) if answer.kind == "reply" and site == "site-2" else answer
    )
    run = world.start(**by_hand(3, local="means", strikes=2))
    with pytest.raises(NetworkError, match="3 sites are needed, and site-2 broke the protocol"):
        complete_run(world.network, run, world)


def test_rounds_in_vain_are_given_time(world, monkeypatch):
    """A full disk, or a person who is asked, ended a run of twenty rounds in five seconds."""
    waited = []
    monkeypatch.setattr(run_loop, "time", SimpleNamespace(monotonic=lambda: sum(waited), sleep=waited.append))
    world.meddle = lambda site, answer: (
        Refusal("trial", 0, answer.round, "other", "no space left")
        if answer.kind == "reply" and site == "site-2"
        else answer
    )
    run = world.start(**by_hand(3, grace=20))
    with pytest.raises(NetworkError, match="20 rounds in a row were in vain"):
        complete_run(world.network, run, world)
    assert 240 < sum(waited) < 300  # doubled from a fifth of a second, at most the grace of a site that is away
