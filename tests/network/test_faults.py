"""Whatever goes wrong on the wire and at either end, control variates balance and theta is that of an honest run."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from faulty_world import CODINGS, World

from fedlsa.network.protocol.client import client_step
from fedlsa.network.protocol.messages import Refusal, Reply
from fedlsa.network.protocol.records import Record
from fedlsa.network.protocol.server import ServerState, accept, close_round, open_round

SCHEDULES = 40  # ten thousand are in long/test_schedules.py


def test_after_any_faults_theta_is_that_of_the_run_in_which_the_same_sites_were_averaged():
    happened = Counter()
    for seed in range(SCHEDULES):
        world = World(seed).run()  # checks the balance of control variates after every event
        np.testing.assert_allclose(world.server.theta, world.twin(), rtol=0, atol=1e-12, err_msg=f"schedule {seed}")
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


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_control_variates_balance_under_faults_when_uploads_are_rounded_and_noised(coding):
    for seed in range(8):
        World(seed, **coding).run()


def test_a_world_without_faults_averages_everyone_in_every_round():
    for seed in range(8):
        world = World(seed, rough=0.0, participants=None, outlier=0.0).run()  # which rare draws would meet
        assert set(world.happened) <= {"answered", "gone", "returned"}
        assert world.server.opened == world.server.averages == world.settings.rounds
        everyone = tuple(range(world.N))
        assert all(tuple(event[1]) == everyone for event in world.log if event[0] == "average")


def quiet(**fixed):
    """A world that has made two rounds without faults."""
    world = World(3, rough=0.0, method="scafflsa", participants=None, **fixed)
    world.round()
    world.round()
    return world


def answers(world, orders, sites=None):
    """Let sites answer, on disk and to the server."""
    for site in sites or orders:
        world.sites[site], answer = client_step(world.sites[site], orders[site], world.runs[site])
        world.server, reason = accept(world.server, site, answer.record())
        yield site, answer, reason


@pytest.fixture(params=["secure", "plain"])
def aggregation(request):
    return request.param


def test_a_server_restored_from_an_old_backup_finds_out_and_balance_returns(aggregation):
    world = quiet(clip=None, patience=9, absence="restart", aggregation=aggregation)
    backup = world.server
    for _ in range(2):
        world.round()
    world.server = ServerState.from_arrays(backup.arrays())  # two averages that sites know of are forgotten
    said = []
    for _ in range(6):
        world.server, orders = open_round(world.server, world.settings.sites)
        said += [answer.reason for _, answer, _ in answers(world, orders) if isinstance(answer, Refusal)]
        world.server, _ = close_round(world.server)
    assert "forgot" in said
    assert world.server.generation == backup.generation + 1
    world.check()
    assert world.server.averages > backup.averages


def test_an_incomplete_sum_is_not_averaged():
    """Before anybody looks at its length, which masks make absurd."""
    world = quiet(clip=None, patience=9, absence="restart", aggregation="secure")
    world.server, orders = open_round(world.server, world.settings.sites)
    list(answers(world, orders, world.settings.sites[1:]))
    theta = world.server.theta
    world.server, closed = close_round(world.server)
    assert closed.why.startswith("only the sum over all who were asked can be read")
    assert world.server.theta is theta


def test_when_a_site_dies_for_good_the_others_begin_again_with_control_variates_that_balance(aggregation):
    world = quiet(clip=None, patience=2, absence="restart", aggregation=aggregation)
    first, *others = world.settings.sites
    assert np.abs(world.sites[first].xi).max() > 1e-3
    for _ in range(4):
        world.server, orders = open_round(world.server, others)
        list(answers(world, orders))
        world.server, closed = close_round(world.server)
        world.check()
        if closed.gone:
            break
    assert closed.gone == (first,)
    world.server, orders = open_round(world.server, others)
    list(answers(world, orders))
    assert all(np.array_equal(world.sites[site].xi, np.zeros(world.d)) for site in others)
    world.server, closed = close_round(world.server)
    assert closed.averaged
    world.server, orders = open_round(world.server, others)
    list(answers(world, orders))
    total = sum(w * world.sites[site].xi for site, w in zip(others, world.shares[1:], strict=True))
    assert np.abs(total).max() < 1e-12


def test_a_frozen_site_comes_back_with_the_control_variate_it_had(aggregation):
    world = quiet(clip=None, patience=1, absence="freeze", aggregation=aggregation)
    first, *others = world.settings.sites
    world.server, orders = open_round(world.server, others)
    list(answers(world, orders))
    world.server, closed = close_round(world.server)
    assert closed.gone == (first,)
    world.server, orders = open_round(world.server, world.settings.sites)
    assert not world.server.gone.any()
    assert [reason for _, _, reason in answers(world, orders)] == [None] * world.N
    assert world.sites[first].acked == 2
    assert np.abs(world.sites[first].xi).max() > 1e-3
    world.check()


def test_a_site_that_answers_a_round_anew_with_other_noise_after_losing_its_disk_finds_out(aggregation):
    world = World(3, rough=0.0, participants=None, clip=1.0, noise=1.0, absence="restart", aggregation=aggregation)
    first, *_ = world.settings.sites
    world.server, orders = open_round(world.server, world.settings.sites)
    assert [reason for _, _, reason in answers(world, orders)] == [None] * world.N
    world.sites[first], other = client_step(None, orders[first], world.runs[first])  # the disk was lost
    world.server, reason = accept(world.server, first, other.record())
    assert "counted already" in reason
    world.server, closed = close_round(world.server)
    assert closed.averaged
    world.wiped[first] = 0
    world.check()
    world.server, orders = open_round(world.server, world.settings.sites)
    _, answer = client_step(world.sites[first], orders[first], world.runs[first])
    assert (type(answer), answer.reason) == (Refusal, "forgot")
    world.server, _ = accept(world.server, first, answer.record())
    world.check()
    assert world.server.generation == 1


def test_an_outage_of_the_whole_network_sends_nobody_away():
    world = quiet(clip=None, patience=1, absence="restart")
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

    def with_share(value):
        return Record(good.kind, meta, {"share": value})

    one = arrays["share"]
    limbs = one.shape[1]
    yield with_share(np.ones((d + 1, limbs), np.int16)), "shape"
    yield with_share(np.ones((d, limbs + 1), np.int16)), "shape"
    yield with_share(np.ones(d, np.int16)), "shape"
    yield with_share(np.ones((1, d, limbs), np.int16)), "shape"
    yield with_share(np.zeros((0, limbs), np.int16)), "shape"
    yield with_share(one.astype(np.float64)), "int16"
    yield with_share(one.astype(np.int64)), "int16"
    yield with_share(one.astype(">i2")), "plain array"
    yield with_share(one.astype(np.uint16)), "plain array"
    yield with_share(one.astype(complex)), "plain array"
    yield with_share(np.array([{}] * d, object)), "plain array"
    yield with_share(np.array(["x"] * d)), "plain array"
    yield with_share(np.ma.masked_array(one)), "plain array"
    yield with_share([1.0] * d), "plain array"
    yield with_share(None), "plain array"
    yield with_share(np.zeros(2**24 + 1, np.int16)), "at most"
    yield Record(good.kind, meta, {}), "'share'"
    yield Record(good.kind, meta, {**arrays, "extra": one}), "no field"
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
    yield with_meta(version=1), "'version'"
    yield with_meta(version=None), "'version'"
    yield with_meta(version=True), "'version'"
    yield with_meta(experiment="another"), "'experiment'"
    yield with_meta(experiment="x" * 2_000_000), "characters"
    yield with_meta(order="0" * 64), "'order'"
    yield with_meta(order=3), "'order'"
    yield with_meta(size=1.0), "no field"
    yield with_meta(order=float("nan")), "'order'"
    yield with_meta(receipt=None), "'receipt'"
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
    world = quiet(clip=None, patience=9, absence="restart")
    site = world.settings.sites[0]
    opened, orders = open_round(world.server, world.settings.sites)
    _, answer = client_step(world.sites[site], orders[site], world.runs[site])
    good = answer.record()
    state, cases = opened, list(hostile(good, world.d))
    for record, word in cases:
        state, reason = accept(state, site, record)
        assert reason is not None
        assert word in reason
        assert "\n" not in reason
    assert state.refused[0] == len(cases) > 50
    assert len(cases) > state.strikes[0] > 40  # what is late or to another order is nobody's fault
    for name, value in opened.arrays().items():
        if name not in ("traffic", "refused", "strikes"):
            np.testing.assert_array_equal(state.arrays()[name], value, err_msg=name)
    state, reason = accept(state, site, good)  # and the honest answer still counts
    assert reason is None
    state, reason = accept(state, site, good)
    assert "counted already" in reason


@pytest.mark.parametrize("sender", ["stranger", "", None, 3, ["a"], b"a"])
def test_strangers_are_not_heard(sender):
    world = quiet(clip=None, patience=9, absence="restart")
    state, _ = open_round(world.server, world.settings.sites)
    same, reason = accept(state, sender, Reply("world", 0, 3, "", np.zeros((2, 8), np.int16)).record())
    assert same is state
    assert reason == "this sender is not one of the sites"


def test_an_answer_replayed_in_a_later_round_or_with_no_round_open_is_refused():
    world = quiet(clip=None, patience=9, absence="restart")
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
