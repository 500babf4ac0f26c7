"""A run from its first question to its end, over a transport in memory: the sites, their disks, and the files."""

import json
import shutil

import numpy as np
import pytest
from deployment import D, site_data, write_csv

import fedlsa as fl
from fedlsa.errors import MessageError, NetworkError
from fedlsa.network.coordinator.commands import result, status, stop
from fedlsa.network.coordinator.run_loop import complete_run
from fedlsa.network.coordinator.runs import RunFolder, amount, line, standing, summary, table, unfinished
from fedlsa.network.disk import load_state
from fedlsa.network.folder import setup
from fedlsa.network.protocol.coding import Coding
from fedlsa.network.protocol.messages import Describe, Refusal
from fedlsa.network.protocol.records import Record
from fedlsa.network.protocol.run_settings import StartOptions
from fedlsa.network.site.facts import describe
from fedlsa.network.site.orders import OrderHandler
from fedlsa.network.site.site_data import open_data

ETA, H = 0.01, 20


class Crash(Exception):
    """The coordinator's process dies."""


class World:
    """A network's folder, sites with disks of their own, and a transport in memory; `meddle` may spoil it."""

    def __init__(self, root, task=None, share_moments=False):
        self.root, self.data = root, site_data(4)
        self.task = fl.Regression("y", intercept=False, standardise=False) if task is None else task
        self.share_moments = share_moments
        self.network = setup.init(root / "net", 4, "127.0.0.1", task=self.task)
        for name, (X, y) in zip(self.network.sites, self.data, strict=True):
            write_csv(root / f"{name}.csv", X, y)
        self.absent, self.meddle = set(), lambda site, answer: answer
        self.least_noise = None

    def folder(self, site):
        out = self.root / "places" / site
        out.mkdir(parents=True, exist_ok=True)
        return out

    def present(self):
        return tuple(s for s in self.network.sites if s not in self.absent)

    def ask(self, orders, deadline):
        for site, record in orders.items():
            if site in self.absent:
                continue
            data = open_data(self.root / f"{site}.csv", None, self.task)
            handler = OrderHandler(
                site, self.folder(site), data, self.task, self.share_moments, self.least_noise
            )  # a new process
            answer = self.meddle(site, handler.answer(record))
            if answer is not None:
                yield site, answer

    def start(self, **options):
        return RunFolder.create(self.network, StartOptions(**{"deadline": 5, "name": "trial", **options}))

    def xi(self, name="trial"):
        return np.stack([load_state(self.folder(s) / "state" / f"{name}.npz")["xi"] for s in self.network.sites])

    def simulated(self, rounds, seed=0, method=None):
        problem = fl.problems.regression(self.data)
        method = fl.SCAFFLSA(ETA, H) if method is None else method
        return fl.simulate(problem, method, rounds=rounds, seeds=[seed], theta_0=np.zeros(D)).theta.values[0, -1]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def by_hand(rounds, **more):
    return {"step_size": ETA, "local_steps": H, "rounds": rounds, **more}


def test_a_run_gives_the_simulations_theta_and_tells_it_to_every_site(world):
    run = world.start(**by_hand(3, seed=2))
    complete_run(world.network, run, world)
    found = run.read("result.json")
    assert np.abs(np.array(found["theta"]) - world.simulated(3, seed=2)).max() <= 1e-12
    assert np.abs(world.xi().sum(axis=0)).max() <= 1e-12
    for site in world.network.sites:
        told = json.loads((world.folder(site) / "results" / "trial.json").read_text())
        assert told["theta"] == found["theta"]


def test_scaffnew_draws_the_simulations_lengths(world):
    run = world.start(**by_hand(4, seed=3, method="scaffnew"))
    complete_run(world.network, run, world)
    wanted = world.simulated(4, seed=3, method=fl.Scaffnew(ETA, 1 / H))
    assert np.abs(np.array(run.read("result.json")["theta"]) - wanted).max() <= 1e-12


@pytest.mark.parametrize("answers", [1, 6, 9, 13, 17, 22, 27])
def test_a_coordinator_that_dies_after_any_answer_goes_on_to_the_same_theta(world, answers):
    run, count = world.start(**by_hand(4)), 0

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
    complete_run(world.network, run, world)
    assert np.abs(np.array(run.read("result.json")["theta"]) - world.simulated(4)).max() <= 1e-12
    assert np.abs(world.xi().sum(axis=0)).max() <= 1e-12
    assert unfinished(world.network) is None


def test_a_site_that_lost_its_disk_is_told_the_run_again_and_the_sum_stays_zero(world):
    run, lost = world.start(**by_hand(6)), []

    def lose(site, answer):
        if site == "site-2" and answer.kind == "reply" and answer.meta["round"] == 3 and not lost:
            lost.append(site)
            shutil.rmtree(world.folder(site))
            return None
        return answer

    world.meddle = lose
    complete_run(world.network, run, world)
    events = [event for _, event in run.events()]
    assert any(e["event"] == "refused" and e["site"] == "site-2" for e in events)
    rounds = [e for e in events if e["event"] == "round"]
    assert "site-2" in rounds[2]["missing"]
    assert "site-2" in rounds[-1]["sites"]
    assert np.abs(world.xi().sum(axis=0)).max() <= 1e-12


def test_a_site_that_sends_nonsense_is_named_and_the_run_goes_on_without_it(world):
    run = world.start(**by_hand(3))

    def spoil(site, answer):
        if site != "site-4" or answer.kind != "reply":
            return answer
        kind = answer.meta["round"] % 3
        if kind == 0:
            return MessageError("unreadable")
        wrong = np.full(D, np.nan) if kind == 1 else np.zeros(D + 1)
        return Record(answer.kind, answer.meta, {"delta": wrong})

    world.meddle = spoil
    complete_run(world.network, run, world)
    events = [event for _, event in run.events()]
    assert [e["site"] for e in events if e["event"] == "refused"] == ["site-4"] * 3
    assert all(e["sites"] == ["site-1", "site-2", "site-3"] for e in events if e["event"] == "round")
    assert np.isfinite(run.read("result.json")["theta"]).all()


def test_a_run_about_another_task_is_refused_by_the_site(world):
    run = world.start(**by_hand(1))
    world.task = fl.Regression("y", intercept=False, standardise=False, ridge=0.5)
    with pytest.raises(NetworkError, match="site-1 refused: the run must be about the task"):
        complete_run(world.network, run, world)


@pytest.mark.parametrize("name", ["../escape", "a/b", "", ".hidden"])
def test_a_site_writes_no_file_under_a_name_that_climbs(world, name):
    from fedlsa.network.protocol.coding import Coding
    from fedlsa.network.protocol.messages import Describe
    from fedlsa.network.site.orders import run_terms

    data = open_data(world.root / "site-1.csv", None, world.task)
    handler = OrderHandler("site-1", world.folder("site-1"), data, world.task)
    answer = handler.answer(Describe(name, run_terms(world.task, Coding(), "rows")).record())
    assert answer.kind == "refusal"
    assert not list(world.folder("site-1").rglob("*.json"))


def test_coefficients_are_on_the_original_scale_and_moments_give_the_one_shot_solution(tmp_path):
    world = World(tmp_path, fl.Regression("y"), share_moments=True)
    run = world.start(epsilon=0.3)
    complete_run(world.network, run, world)
    found = run.read("result.json")
    X = np.concatenate([np.column_stack([x, np.ones(len(x))]) for x, _ in world.data])
    pooled = np.linalg.lstsq(X, np.concatenate([y for _, y in world.data]))[0]
    assert found["one_shot"] == pytest.approx(pooled, abs=1e-9)
    assert np.linalg.norm(np.array(found["theta"]) - _in_run(found, pooled)) <= 0.6  # twice what is expected at most
    assert "one shot" in result(world.network.folder)


def _in_run(found, theta):
    from fedlsa.network.site.orders import scale_from_json

    T, t = scale_from_json(found["scale"]).original()
    return np.linalg.solve(T, theta - t)


def test_a_stopped_run_keeps_what_it_has(world):
    run = world.start(**by_hand(50))
    world.meddle = lambda site, answer: (run.ask_to_stop() if answer.meta.get("round") == 2 else None) or answer
    complete_run(world.network, run, world)
    assert run.read("result.json")["averages"] == 2
    assert "it was stopped" in result(world.network.folder)
    with pytest.raises(NetworkError, match="over already"):
        stop(world.network.folder)


def test_one_run_at_a_time_and_no_name_twice(world):
    first = world.start(**by_hand(1))
    with pytest.raises(NetworkError, match="one run at a time: trial"):
        world.start(**by_hand(1, name="second"))
    with pytest.raises(NetworkError, match="trial is not over yet"):
        result(world.network.folder)
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
    assert lines[1].startswith("round 1: 4 of 4 sites, drift ")
    assert lines[-1] == "finished: all 3 rounds are done"
    shown = standing(run)
    assert [shown[0], *shown[1:3], shown[-1]] == ["trial: over", lines[0], lines[-2], lines[-1]]
    assert [words.split(",")[0].strip() for words in shown[3:-1]] == [f"site-{c}: answered" for c in (1, 2, 3, 4)]


def test_another_run_under_an_old_name_begins_afresh_at_the_sites(world):
    first = world.start(**by_hand(2, seed=1))
    complete_run(world.network, first, world)
    shutil.rmtree(first.folder)
    again = world.start(**by_hand(2, seed=5))
    complete_run(world.network, again, world)
    assert np.abs(np.array(again.read("result.json")["theta"]) - world.simulated(2, seed=5)).max() <= 1e-12


def test_a_damaged_state_is_put_aside_and_the_site_begins_again(world):
    run, spoilt = world.start(**by_hand(5)), []

    def spoil(site, answer):
        if site == "site-3" and answer.kind == "reply" and answer.meta["round"] == 2 and not spoilt:
            spoilt.append(world.folder(site) / "state" / "trial.npz")
            spoilt[0].write_bytes(b"nonsense")
        return answer

    world.meddle = spoil
    complete_run(world.network, run, world)
    assert spoilt[0].with_suffix(".damaged").read_bytes() == b"nonsense"
    rounds = [event for _, event in run.events() if event["event"] == "round"]
    assert "site-3" in rounds[-1]["sites"]
    assert np.abs(world.xi().sum(axis=0)).max() <= 1e-12


def test_noised_replies_are_not_shortened_and_their_promise_is_told(world):
    run = world.start(**by_hand(2, clip=1e-6, noise=2.0))
    complete_run(world.network, run, world)
    found = run.read("result.json")
    assert np.linalg.norm(found["theta"]) > 2e-6  # two averages of shortened replies could not have come so far
    assert "differentially private" in found["privacy"]
    told = json.loads((world.folder("site-1") / "results" / "trial.json").read_text())
    assert told["privacy"] == found["privacy"]
    assert any("privacy of each site" in words for words in summary(found))


def test_a_site_that_wants_noise_refuses_runs_without_it(world):
    world.least_noise = 1.0
    with pytest.raises(NetworkError, match=r"site-1 refused: .*noise of at least 1 times the clip"):
        complete_run(world.network, world.start(**by_hand(2)), world)


def test_answers_before_the_first_round_take_one_pass_over_the_data(world, monkeypatch):
    from fedlsa.network.site import orders

    passes = []
    monkeypatch.setattr(orders, "describe", lambda *given: passes.append(given) or describe(*given))
    data = open_data(world.root / "site-1.csv", None, world.task)
    handler = OrderHandler("site-1", world.folder("site-1"), data, world.task)
    order = Describe("trial", orders.run_terms(world.task, Coding(), "rows", "token")).record()
    assert [handler.answer(order).kind for _ in range(3)] == ["description"] * 3
    assert len(passes) == 1


def test_a_measurement_that_cannot_be_is_named_and_asked_for_again(world):
    seen = []

    def lie(site, answer):
        if site == "site-4" and answer.kind == "measurement" and len(seen) < 2:
            seen.append(site)
            return Record(answer.kind, answer.meta | {"noise": -1.0}, answer.arrays)
        return answer

    world.meddle = lie
    run = world.start(**by_hand(1))
    complete_run(world.network, run, world)
    refused = [event for _, event in run.events() if event["event"] == "refused"]
    assert [event["site"] for event in refused] == ["site-4"] * 2
    assert run.read("result.json")["averages"] == 1


def test_what_somebody_else_writes_cannot_reach_a_terminal(world):
    def curse(site, answer):
        return Refusal("trial", 0, 0, "data", "\x1b[2J[/foo]" + "x" * 5000).record()

    world.meddle = curse
    with pytest.raises(NetworkError) as error:
        complete_run(world.network, world.start(**by_hand(1)), world)
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 300
    drawn = table("trial", [{"event": "refused", "site": "site-1", "text": "[/foo]"}])
    assert "[/foo]" in str(drawn.caption)


def test_a_half_written_event_is_left_for_later(world):
    run = world.start(**by_hand(1))
    run.note("waiting", text="first")
    with (run.folder / "events.jsonl").open("a") as file:
        file.write('{"event": "wai')
    assert [event["text"] for _, event in run.events()] == ["first"]


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_500_000, "2.5 MB")])
def test_amounts_are_for_people(count, text):
    assert amount(count) == text
