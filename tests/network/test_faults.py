"""Whatever goes wrong on the wire and at either end, control variates balance and theta is that of an honest run."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from faulty_world import CODINGS, World
from tiers import mostly_long

from fedlsa.errors import MessageError
from fedlsa.network.protocol.client import client_step
from fedlsa.network.protocol.codec import VERSION, decode, encode
from fedlsa.network.protocol.messages import Answers, Refusal, Reply
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


@pytest.mark.parametrize("coding", mostly_long(CODINGS, CODINGS[-1:]), ids=str)
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
        world.server, reason = accept(world.server, site, answer)
        yield site, answer, reason


@pytest.fixture(params=["secure", "plain"])
def aggregation(request):
    return request.param


def test_a_server_restored_from_an_old_backup_finds_out_and_balance_returns(aggregation):
    world = quiet(clip=None, patience=9, absence="restart", aggregation=aggregation)
    backup = world.server
    for _ in range(2):
        world.round()
    world.server = decode(encode(backup), ServerState)  # two averages that sites know of are forgotten
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
    assert world.sites[first].folded == 3
    assert np.abs(world.sites[first].xi).max() > 1e-3
    world.check()


def test_a_site_that_answers_a_round_anew_with_other_noise_after_losing_its_disk_finds_out(aggregation):
    world = World(3, rough=0.0, participants=None, clip=1.0, noise=1.0, absence="restart", aggregation=aggregation)
    first, *_ = world.settings.sites
    world.server, orders = open_round(world.server, world.settings.sites)
    assert [reason for _, _, reason in answers(world, orders)] == [None] * world.N
    world.sites[first], other = client_step(None, orders[first], world.runs[first])  # the disk was lost
    world.server, reason = accept(world.server, first, other)
    assert "counted already" in reason
    world.server, closed = close_round(world.server)
    assert closed.averaged
    world.wiped[first] = 0
    world.check()
    world.server, orders = open_round(world.server, world.settings.sites)
    _, answer = client_step(world.sites[first], orders[first], world.runs[first])
    assert (type(answer), answer.reason) == (Refusal, "forgot")
    world.server, _ = accept(world.server, first, answer)
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
    """Bytes of answers that must not count, each with a word of the reason."""
    fields = msgspec.msgpack.decode(encode(good)[1:])
    share = good.share

    def changed(**changes):
        content = {k: v for k, v in (fields | changes).items() if v is not None}
        return bytes([VERSION]) + msgspec.msgpack.encode(content)

    def array(dtype, shape, numbers, code=1):
        return changed(share=msgspec.msgpack.Ext(code, msgspec.msgpack.encode((dtype, shape, numbers))))

    limbs = share.shape[1]
    for shape in ((d + 1, limbs), (d, limbs + 1), (d,), (1, d, limbs), (0, limbs)):
        yield array("i2", shape, bytes(2 * int(np.prod(shape)))), "shape"
    yield array("f8", share.shape, bytes(8 * share.size)), "int16"
    yield array("i8", share.shape, bytes(8 * share.size)), "int16"
    for dtype in ("O", "u2", "U1", ">i2", "c16", 3):
        yield array(dtype, share.shape, bytes(2 * share.size)), "form"
    yield array("i2", share.shape, bytes(2 * share.size), code=2), "no extension 2"
    yield array("i2", (-1, limbs), bytes(2 * share.size)), "form"
    yield array("i2", (2**62, 2**62), b""), "fit its shape"
    yield array("i2", (d, limbs), bytes(2 * share.size + 1)), "fit its shape"
    yield array("i2", (1, 1, 1, 1), bytes(2)), "fit its shape"
    for value in ([1.0] * d, "share", 3, {}):
        yield changed(share=value), "array"
    yield changed(share=None), "share"
    yield changed(round=good.round + 1), "'round'"
    yield changed(round=good.round - 1), "'round'"
    for value in (-1, float(good.round) + 0.5, True, "1", [1]):
        yield changed(round=value), "round"
    yield changed(round=2**64 - 1), "'round'"
    yield changed(round=None), "round"
    yield changed(generation=7), "'generation'"
    yield changed(experiment="another"), "'experiment'"
    yield changed(order="0" * 64), "'order'"
    for value in (3, float("nan")):
        yield changed(order=value), "order"
    yield changed(receipt=3), "receipt"
    for name in ("size", "unknown", "version"):
        yield changed(**{name: 1}), f"unknown field `{name}`"
    for kind in ("work", "nonsense", 3, None):
        yield changed(type=kind), "form"
    yield encode(good) + b"x", "form"
    yield encode(good)[:-1], "form"
    yield bytes([VERSION - 1]) + encode(good)[1:], "version"
    for body in (b"", bytes([VERSION]), bytes([VERSION]) + b"\x93" * 5000, b"{}"):
        yield body, "message must"
    yield encode(Refusal("world", 0, 3, "data", "no\nrows \x1b[31m")), "refused (data): no rows  [31m"


def test_hostile_answers_get_a_reason_and_change_nothing_that_counts():
    world = quiet(clip=None, patience=9, absence="restart")
    site = world.settings.sites[0]
    opened, orders = open_round(world.server, world.settings.sites)
    _, good = client_step(world.sites[site], orders[site], world.runs[site])
    state, cases = opened, list(hostile(good, world.d))
    for body, word in cases:
        try:
            answer = decode(body, Answers)
        except MessageError as error:
            answer = error
        state, reason = accept(state, site, answer)
        assert reason is not None
        assert word in reason
        assert "\n" not in reason
    assert state.refused[0] == len(cases) > 45
    assert len(cases) > state.strikes[0] > 35  # what is late or to another order is nobody's fault
    untouched = [name for name in opened.__struct_fields__ if name not in ("traffic", "refused", "strikes")]
    assert [encode(getattr(state, name)) for name in untouched] == [encode(getattr(opened, name)) for name in untouched]
    state, reason = accept(state, site, good)  # and the honest answer still counts
    assert reason is None
    state, reason = accept(state, site, good)
    assert "counted already" in reason


@pytest.mark.parametrize("sender", ["stranger", "", None, 3, ["a"], b"a"])
def test_strangers_are_not_heard(sender):
    world = quiet(clip=None, patience=9, absence="restart")
    state, _ = open_round(world.server, world.settings.sites)
    same, reason = accept(state, sender, Reply("world", 0, 3, "", np.zeros((2, 8), np.int16)))
    assert same is state
    assert reason == "this sender is not one of the sites"


def test_an_answer_replayed_in_a_later_round_or_with_no_round_open_is_refused():
    world = quiet(clip=None, patience=9, absence="restart")
    site = world.settings.sites[0]
    world.server, orders = open_round(world.server, world.settings.sites)
    old = {site: answer for site, answer, _ in answers(world, orders)}
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
