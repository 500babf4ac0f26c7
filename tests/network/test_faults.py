"""Whatever goes wrong on the wire and at either end, control variates balance and theta is that of an honest run."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from faulty_world import World

from fedlsa.network.protocol.client import client_step
from fedlsa.network.protocol.coding import Coding
from fedlsa.network.protocol.messages import Refusal, Reply
from fedlsa.network.protocol.records import Record
from fedlsa.network.protocol.server import accept, close_round, open_round
from fedlsa.network.protocol.server_state import ServerState

CHUNK = 200  # schedules in a test


@pytest.mark.parametrize("chunk", range(8))
def test_after_any_faults_theta_is_that_of_the_run_in_which_the_same_sites_were_averaged(chunk):
    happened = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        world = World(seed).run()  # checks the balance of control variates after every event
        theta, xi, step = world.twin()
        np.testing.assert_allclose(world.server.theta, theta, rtol=0, atol=1e-12, err_msg=f"schedule {seed}")
        np.testing.assert_allclose(world.server.xi, xi, rtol=0, atol=1e-12, err_msg=f"schedule {seed}")
        np.testing.assert_array_equal(world.server.step, step, err_msg=f"schedule {seed}")
        rounds = [event[2] for event in world.log if event[0] == "average"]
        assert len(set(rounds)) == len(rounds) == world.server.averages  # no round, so no reply, is averaged twice
        happened += world.happened
    for name in (
        "lost", "doubled", "late", "gone", "returned", "in vain", "stale", "forgot", "disk lost", "left",
        "site died before storing", "site died before answering", "site died after answering",
        "server died after opening", "server died after a reply", "server died before storing",
        "server died after storing", "refused: 'round' must be that of the open round",
        "refused: this site's reply to the open round has been counted already", "refused: the site refused (forgot)",
    ):  # fmt: skip
        assert happened[name] > 0, name


@pytest.mark.parametrize("coding", [Coding(bits=8), Coding(clip=1.0, noise=0.5), Coding(bits=16, clip=1.0, noise=0.5)])
def test_control_variates_balance_under_faults_when_uploads_are_rounded_and_noised(coding):
    for seed in range(100):
        World(seed, coding=coding).run()


def test_a_world_without_faults_averages_everyone_in_every_round():
    for seed in range(20):
        world = World(seed, rough=0.0, participants=None).run()
        assert set(world.happened) <= {"answered", "gone", "returned"}
        assert world.server.opened == world.server.averages == world.settings.rounds
        everyone = tuple(range(world.N))
        assert all(event[1] == everyone for event in world.log if event[0] == "average")


def quiet(**fixed):
    """A world that has made two rounds without faults."""
    world = World(3, rough=0.0, method="scafflsa", participants=None, **fixed)
    world.round()
    world.round()
    return world


def answers(world, orders, sites=None):
    """Let sites answer, on disk and to the server."""
    for site in sites or orders:
        world.sites[site], answer = client_step(world.sites[site], orders[site], world.local)
        world.server, reason = accept(world.server, site, answer.record())
        yield site, answer, reason


def test_a_server_restored_from_an_old_backup_finds_out_and_balance_returns():
    world = quiet(clip=None, min_sites=1, patience=9, policy="spread")
    backup = world.server
    for _ in range(2):
        world.round()
    world.server = ServerState.from_arrays(backup.arrays())  # two averages that the sites know of are forgotten
    said = []
    for _ in range(6):
        world.server, orders = open_round(world.server, world.settings.sites)
        said += [answer.reason for _, answer, _ in answers(world, orders) if isinstance(answer, Refusal)]
        world.server, _ = close_round(world.server)
    assert said.count("forgot") == world.N
    assert (world.server.generation == backup.generation + 1).all()
    world.check()
    assert world.server.averages > backup.averages


def test_a_site_that_dies_for_good_leaves_its_control_variate_to_the_others():
    world = quiet(clip=None, min_sites=1, patience=2, policy="spread")
    first, *others = world.settings.sites
    before = world.server.xi.copy()
    for _ in range(2):
        world.server, orders = open_round(world.server, others)
        list(answers(world, orders))
        world.server, closed = close_round(world.server)
        world.check()
    assert closed.gone == (first,)
    assert np.abs(before[0]).max() > 1e-3
    w = world.shares
    np.testing.assert_allclose(world.server.shift[1:], [w[0] * before[0] / w[1:].sum()] * len(others), atol=1e-15)
    assert np.abs(w[1:] @ world.server.xi[1:]).max() < 1e-12


def test_a_frozen_site_comes_back_with_the_control_variate_it_had():
    world = quiet(clip=None, min_sites=1, patience=1, policy="freeze")
    first, *others = world.settings.sites
    before = world.server.xi[0].copy()
    world.server, orders = open_round(world.server, others)
    list(answers(world, orders))
    world.server, closed = close_round(world.server)
    assert closed.gone == (first,)
    world.server, orders = open_round(world.server, world.settings.sites)
    assert not world.server.gone.any()
    assert [reason for _, _, reason in answers(world, orders)] == [None] * world.N
    np.testing.assert_allclose(world.sites[first].xi, before, rtol=0, atol=1e-14)
    world.check()


def test_a_site_that_answers_a_round_anew_with_other_noise_after_losing_its_disk_finds_out():
    world = World(3, rough=0.0, method="scafflsa", participants=None, clip=None, min_sites=1, policy="spread")
    first, *_ = world.settings.sites
    world.server, orders = open_round(world.server, world.settings.sites)
    noisy, secret = Coding(clip=1.0, noise=1.0), np.random.default_rng(8)
    for site, work in orders.items():
        world.sites[site], answer = client_step(None, work, world.local, noisy, secret)
        world.server, reason = accept(world.server, site, answer.record())
        assert reason is None
    world.sites[first], other = client_step(None, orders[first], world.local, noisy, secret)  # the disk was lost
    world.server, reason = accept(world.server, first, other.record())
    assert "counted already" in reason
    world.server, _ = close_round(world.server)
    world.wiped[first] = 0
    world.check()
    world.server, orders = open_round(world.server, world.settings.sites)
    _, answer = client_step(world.sites[first], orders[first], world.local, noisy, secret)
    assert (type(answer), answer.reason) == (Refusal, "forgot")
    world.server, _ = accept(world.server, first, answer.record())
    world.check()
    assert world.server.generation.tolist() == [1] + [0] * (world.N - 1)


def test_an_outage_of_the_whole_network_sends_nobody_away():
    world = quiet(clip=None, min_sites=1, patience=1, policy="spread")
    for _ in range(5):
        world.server, _ = open_round(world.server, [])
        world.server, closed = close_round(world.server)
        assert not closed.averaged
    assert not world.server.gone.any()
    assert closed.missing == world.settings.sites
    world.check()


def hostile(good, d):
    """Answers that must not count, each with a word of the reason."""
    meta, arrays = good.meta, good.arrays

    def with_meta(**changes):
        return Record(good.kind, {k: v for k, v in (meta | changes).items() if v is not None}, arrays)

    def with_delta(value):
        return Record(good.kind, meta, {"delta": value})

    one = np.ones(d)
    yield with_delta(one * np.nan), "finite"
    yield with_delta(np.array([np.inf] + [0.0] * (d - 1))), "finite"
    yield with_delta(one * 1e300), "at most"
    yield with_delta(np.ones(d + 1)), "shape"
    yield with_delta(np.ones((1, d))), "shape"
    yield with_delta(np.ones(1)), "shape"
    yield with_delta(np.array(1.0)), "shape"
    yield with_delta(np.zeros(0)), "shape"
    yield with_delta(one.astype(np.float32)), "float64"
    yield with_delta(one.astype(np.int64)), "float64"
    yield with_delta(one.astype(">f8")), "plain array"
    yield with_delta(one.astype(complex)), "plain array"
    yield with_delta(np.array([{}] * d, object)), "plain array"
    yield with_delta(np.array(["x"] * d)), "plain array"
    yield with_delta(np.ma.masked_array(one)), "plain array"
    yield with_delta([1.0] * d), "plain array"
    yield with_delta(None), "plain array"
    yield with_delta(np.zeros(2**24 + 1, np.int8)), "at most"
    yield Record(good.kind, meta, {}), "must be 'delta'"
    yield Record(good.kind, meta, {**arrays, "extra": one}), "must be 'delta'"
    yield Record(good.kind, meta, {"codes": one.astype(np.int32), "scale": np.ones(1)}), "int8 or int16"
    yield Record(good.kind, meta, {"codes": one.astype(np.int8), "scale": np.array([np.nan])}), "scale"
    yield Record(good.kind, meta, {"codes": one.astype(np.int8), "scale": np.array([-1.0])}), "scale"
    yield Record(good.kind, meta, {"codes": one.astype(np.int8), "scale": np.ones(2)}), "shape"
    yield Record(good.kind, meta, {f"a{i}": one for i in range(99)}), "fields"
    yield with_meta(round=meta["round"] + 1), "'round'"
    yield with_meta(round=meta["round"] - 1), "'round'"
    yield with_meta(round=-1), "'round'"
    yield with_meta(round=10**400), "64 bits"
    yield with_meta(round=float(meta["round"])), "'round'"
    yield with_meta(round=True), "'round'"
    yield with_meta(round="1"), "'round'"
    yield with_meta(round=None), "'round'"
    yield with_meta(round=[1]), "'round'"
    yield with_meta(generation=7), "'generation'"
    yield with_meta(version=2), "'version'"
    yield with_meta(version=None), "'version'"
    yield with_meta(version=True), "'version'"
    yield with_meta(experiment="another"), "'experiment'"
    yield with_meta(experiment="x" * 2_000_000), "characters"
    yield with_meta(norm_of_xi=float("nan")), "finite"
    yield with_meta(norm_of_xi=-1.0), "'norm_of_xi'"
    yield with_meta(unknown=1), "no field"
    yield with_meta(kind="work"), "'kind'"
    yield replace(good, kind="work"), "'kind'"
    yield replace(good, kind=3), "'kind'"
    yield replace(good, meta=[]), "record"
    yield replace(good, arrays=None), "record"
    yield replace(good, meta={1: 2}), "names"
    yield None, "record"
    yield "reply", "record"
    yield {"kind": "reply"}, "record"
    yield Refusal("world", 0, 3, "because", "").record(), "'reason'"
    yield Refusal("world", 0, 3, "data", "no\nrows \x1b[31m").record(), "refused (data): no rows  [31m"


def test_hostile_answers_get_a_reason_and_change_nothing_that_counts():
    world = quiet(clip=None, min_sites=1, patience=9, policy="spread")
    site = world.settings.sites[0]
    opened, orders = open_round(world.server, world.settings.sites)
    _, answer = client_step(world.sites[site], orders[site], world.local)
    good = answer.record()
    state, cases = opened, list(hostile(good, world.d))
    for record, word in cases:
        state, reason = accept(state, site, record)
        assert reason is not None
        assert word in reason
        assert "\n" not in reason
    assert state.refused[0] == len(cases) > 50
    for name, value in opened.arrays().items():
        if name not in ("traffic", "refused"):
            np.testing.assert_array_equal(state.arrays()[name], value, err_msg=name)
    state, reason = accept(state, site, good)  # and the honest answer still counts
    assert reason is None
    state, reason = accept(state, site, good)
    assert "counted already" in reason


@pytest.mark.parametrize("sender", ["stranger", "", None, 3, ["a"], b"a"])
def test_strangers_are_not_heard(sender):
    world = quiet(clip=None, min_sites=1, patience=9, policy="spread")
    state, _ = open_round(world.server, world.settings.sites)
    same, reason = accept(state, sender, Reply("world", 0, 3, 0.0, {"delta": np.zeros(2)}).record())
    assert same is state
    assert reason == "this sender is not one of the sites"


def test_an_answer_replayed_in_a_later_round_or_with_no_round_open_is_refused():
    world = quiet(clip=None, min_sites=1, patience=9, policy="spread")
    site = world.settings.sites[0]
    world.server, orders = open_round(world.server, world.settings.sites)
    old = {site: answer.record() for site, answer, _ in answers(world, orders)}
    world.server, _ = close_round(world.server)
    theta = world.server.theta
    _, reason = accept(world.server, site, old[site])
    assert "no round is open" in reason
    later, _ = open_round(world.server, world.settings.sites)
    later, reason = accept(later, site, old[site])
    assert "round 4 is open; got 3" in reason
    later, closed = close_round(later)
    assert not closed.averaged
    assert later.theta is theta
