"""Without faults the rounds are fl.simulate's; with options they do what they say."""

import dataclasses
import json

import numpy as np
import pytest
from faulty_world import pair_secrets
from msgspec.structs import replace

import fedlsa as fl
from fedlsa.engine.outcome_tables import outcome_tables
from fedlsa.engine.random import participants
from fedlsa.engine.reference import Observer
from fedlsa.errors import ArgumentError, FedLSAError, MessageError, PolicyError
from fedlsa.network.protocol.client import SiteRun, client_finish, client_step
from fedlsa.network.protocol.codec import decode, encode
from fedlsa.network.protocol.messages import Finish, Refusal, Reply, Work, digest_of_mean, from_row, to_row
from fedlsa.network.protocol.ring import VECTORS, add, from_share, masked, read_sum, to_share
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import (
    ServerState,
    accept,
    close_round,
    estimated_error,
    finish,
    finished,
    open_round,
    trimmed_mean,
)

METHODS = {"fedlsa": fl.FedLSA(0.2, 5), "scafflsa": fl.SCAFFLSA(0.2, 5), "scaffnew": fl.Scaffnew(0.2, 0.2)}


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(7)
    sites = [(rng.standard_normal((20 + 5 * c, 3)), rng.standard_normal(20 + 5 * c)) for c in range(4)]
    return fl.problems.regression(sites, ridge=0.1, weights=[0.1, 0.2, 0.3, 0.4])


def settings(method="scafflsa", N=4, **options):
    base = {
        "rounds": 12,
        "step_size": 0.2,
        "local_steps": 5,
        "name": "e",
        "sites": tuple(f"site {c}" for c in range(N)),
    }
    return RunSettings(method=method, **({"patience": 10} | base | options))


def observing(problem, seed=11):
    """Of each agent: local steps on the observations that fl.simulate draws, by the readable engine."""
    sampling, used = fl.IID(), [0] * problem.n_agents
    where = outcome_tables(problem, sampling)

    def of(agent):
        def local(theta, xi, eta, steps, label):
            observer = Observer(problem, sampling, where, seed, agent, None, used[agent])
            used[agent] += steps
            for _ in range(steps):
                A, b = observer.receive()
                theta = theta - eta * (A @ theta - b - xi)
            return theta

        return local

    return of


def means(problem):
    """Of each agent: local steps without noise."""

    def of(agent):
        def local(theta, xi, eta, steps, label):
            for _ in range(steps):
                theta = theta - eta * (problem.A_bar[agent] @ theta - problem.b_bar[agent] - xi)
            return theta

        return local

    return of


def site_runs(s, of):
    """What each site knows of a run with these settings."""
    secrets = pair_secrets(s.sites)
    secure = s.secure(len(s.sites))
    return {
        site: SiteRun(site, s.sites, "token", of(c), s.coding, secrets[site], secure, None, s.method)
        for c, site in enumerate(s.sites)
    }


def play(state, of, clients, present=None):
    """One round without faults."""
    runs = site_runs(state.settings, of)
    state, orders = open_round(state, present or state.settings.sites)
    for site, work in orders.items():
        clients[site], answer = client_step(clients.get(site), decode(encode(work), Work), runs[site])
        state, reason = accept(state, site, decode(encode(answer), Reply))
        assert reason is None
    assert not (state.pending.invited & ~state.pending.accepted).any()
    state, closed = close_round(state)
    assert closed.averaged, closed.why
    return state


def controls(state, of, clients):
    """The control variates (N, d) of all sites at the end, and the norm of their sum as the server reads it."""
    shares, xi = [], []
    for site, last in finish(state, ["x"]).items():
        run = site_runs(state.settings, of)[site]
        held, answer = client_finish(clients[site], decode(encode(last), Finish), run)
        again, same = client_finish(held, last, run)  # a second end changes nothing
        np.testing.assert_array_equal(answer.share, same.share)
        np.testing.assert_array_equal(held.xi, again.xi)
        shares.append(answer.share)
        xi.append(held.xi)
    return np.stack(xi), float(np.linalg.norm(read_sum(shares, VECTORS.unit)))


@pytest.mark.parametrize("aggregation", ["secure", "plain"])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_without_faults_is_the_simulation_to_the_last_digits(problem, method, aggregation):
    want = fl.simulate(
        problem, METHODS[method], rounds=12, seeds=[11], theta_0=np.zeros(3), engine="reference", record=range(13),
        keep=("theta", "xi"),
    )  # fmt: skip
    state = ServerState.start(settings(method, seed=11, weights=(1, 2, 3, 4), aggregation=aggregation), 3)
    of, clients, path = observing(problem), {}, [state.theta]
    while not finished(state):
        state = play(state, of, clients)
        path.append(state.theta)
    np.testing.assert_allclose(path, want.theta.values[0], rtol=0, atol=1e-12)
    xi, total = controls(state, of, clients)
    np.testing.assert_allclose(xi, want.xi.values[0], rtol=0, atol=1e-12)
    assert total < 1e-13


def test_a_single_share_says_nothing_and_any_incomplete_sum_neither(problem):
    """Masked limbs of the same answer under many labels are uniform: chi-square over all 16-bit halves' top bits."""
    s = settings(weights=(1, 2, 3, 4))
    runs, state = site_runs(s, means(problem)), ServerState.start(s, 3)
    counts = np.zeros(16, int)
    for _ in range(150):
        state, orders = open_round(state, s.sites)
        shares = [client_step(None, orders[site], runs[site])[1].share for site in s.sites[:3]]
        partial = add(shares)  # one is missing
        for share in (shares[0], partial):
            counts += np.bincount((share.view(np.uint16) >> 12).ravel(), minlength=16)
    expected = counts.sum() / 16
    assert ((counts - expected) ** 2 / expected).sum() < 44.3  # the 0.9999 quantile with 15 degrees of freedom


def test_a_run_that_asks_some_sites_draws_those_of_the_simulation_and_scales_their_weights_to_one(problem):
    s = settings(seed=11, weights=(1, 2, 3, 4), participants=3)
    state, of, twin, clients = ServerState.start(s, 3), observing(problem), observing(problem), {}
    theta, xi = np.zeros(3), np.zeros((4, 3))
    drawn = np.empty((s.rounds, 3), np.int64)
    participants(np.uint64(11), 0, 4, drawn)
    for some in drawn:
        hat = np.array([twin(int(c))(theta, xi[c], 0.2, 5, b"") for c in some])
        theta = s.shares[some] / s.shares[some].sum() @ hat
        xi[some] += (theta - hat) / (0.2 * 5)
        state = play(state, of, clients)
        np.testing.assert_allclose(state.theta, theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(controls(state, of, clients)[0], xi, rtol=0, atol=1e-12)


def test_participants_are_drawn_among_those_present_and_all_are_asked_after_a_round_in_vain(problem):
    state = ServerState.start(settings(participants=2, min_sites=2, aggregation="plain"), 3)
    present = state.settings.sites[1:]
    state, orders = open_round(state, present)
    assert len(orders) == 2
    assert set(orders) < set(present)
    state, closed = close_round(state)
    assert (closed.averaged, closed.round) == (False, 1)
    state, orders = open_round(state, present)
    assert set(orders) == set(present)
    assert {work.round for work in orders.values()} == {2}
    assert state.averages == 0


def test_all_sites_of_a_round_get_the_same_order(problem):
    state, clients = ServerState.start(settings("scaffnew", min_sites=3), 3), {}
    for _ in range(3):
        state = play(state, means(problem), clients)
    _, orders = open_round(state, state.settings.sites)
    assert len({work.label("token") for work in orders.values()}) == 1
    _, fewer = open_round(state, state.settings.sites[1:])
    assert fewer["site 1"].label("token") != orders["site 1"].label("token")
    assert fewer["site 1"].label("another") != fewer["site 1"].label("token")


def test_the_same_order_twice_gets_the_same_answer_and_another_with_its_number_is_refused(problem):
    state = ServerState.start(settings(), 3)
    state, orders = open_round(state, state.settings.sites)
    work, run = orders["site 0"], site_runs(state.settings, means(problem))["site 0"]
    held, one = client_step(None, work, run)
    again, other = client_step(held, work, run)
    assert again is held
    assert one.share is other.share
    _, forged = client_step(held, replace(work, theta=work.theta + 1), run)
    assert (type(forged), forged.reason) == (Refusal, "forgot")


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("secure", [True, False])
def test_steps_that_leave_the_range_of_numbers_end_a_masked_run_and_are_cut_in_a_plain_one(problem, wrong, secure):
    s = settings(aggregation="secure" if secure else "plain")
    state, run = ServerState.start(s, 3), site_runs(s, means(problem))["site 1"]
    state, orders = open_round(state, s.sites)
    run = dataclasses.replace(run, local=lambda theta, *_: theta + wrong)
    if secure:  # cut, it would be a vector that all know
        with pytest.raises(PolicyError, match="beyond all numbers"):
            client_step(None, orders["site 1"], run)
        return
    _, answer = client_step(None, orders["site 1"], run)
    assert np.isfinite(np.array(from_share(answer.share), float)).all()


def test_a_masked_change_longer_than_the_clip_is_not_cut_to_a_vector_that_all_know(problem):
    s = settings(clip=1e-6)
    state, run = ServerState.start(s, 3), site_runs(s, means(problem))["site 1"]
    _, orders = open_round(state, s.sites)
    with pytest.raises(PolicyError, match="longer than 1e-06"):
        client_step(None, orders["site 1"], run)


def test_orders_that_no_honest_server_gives_are_refused(problem):
    s = settings()
    state, run = ServerState.start(s, 3), site_runs(s, means(problem))["site 0"]
    state, orders = open_round(state, s.sites)
    work = orders["site 0"]
    held, _ = client_step(None, work, run)
    for change, words in (
        ({"clip": 1e-9}, "'clip' must be that of the run's terms"),
        ({"theta": work.theta + 2.0**31}, "'theta' and 'means' must have entries of at most"),
        ({"gain": 2 * work.gain}, "'gain' must be that of scafflsa"),
        ({"eta": work.eta / 2}, "'gain' must be that of scafflsa"),
        ({"eta": work.eta / 2, "gain": 2 * work.gain}, "must stay as they were"),
    ):
        with pytest.raises(MessageError, match=words):
            client_step(held, replace(work, round=2, **change), run)


def test_an_answer_that_a_steered_control_variate_would_drown_is_refused(problem):
    s = settings(step_size=1e-9)
    state, runs, held = ServerState.start(s, 3), site_runs(s, means(problem)), {}
    state, orders = open_round(state, s.sites)
    for site, work in orders.items():
        held[site], answer = client_step(None, work, runs[site])
        state, _ = accept(state, site, answer)
    state, closed = close_round(state)
    assert closed.averaged
    _, orders = open_round(state, s.sites)
    order = orders["site 0"]
    mean = order.means + 1e8  # to all sites the same, and in the transcript: a server that lies to all alike
    entry = from_row(order.entries[0], s.sites)._replace(mean=digest_of_mean(mean[0]))
    lie = replace(order, means=mean, entries=to_row(entry, s.sites)[None])
    with pytest.raises(PolicyError):
        client_step(held["site 0"], lie, runs["site 0"])


def test_who_was_in_a_sum_was_averaged_with_it_or_not_at_all(problem):
    s = settings()
    state, runs, held = ServerState.start(s, 3), site_runs(s, means(problem)), {}
    for _ in range(2):
        state, orders = open_round(state, s.sites)
        for site, work in orders.items():
            held[site], answer = client_step(held.get(site), work, runs[site])
            state, _ = accept(state, site, answer)
        state, _ = close_round(state)
    _, orders = open_round(state, s.sites)
    order = orders["site 0"]
    entry = from_row(order.entries[0], s.sites)  # the others were averaged in round 2, it is said, and this site not
    lie = replace(order, entries=to_row(entry._replace(sites=s.sites[1:]), s.sites)[None])
    _, answer = client_step(held["site 0"], lie, runs["site 0"])
    assert (type(answer), answer.reason) == (Refusal, "forgot")


def test_scafflsa_without_noise_stops_at_the_solution_by_its_own_estimate(problem):
    state, clients = ServerState.start(settings(rounds=5000, weights=(1, 2, 3, 4)), 3), {}
    assert estimated_error(state) == np.inf
    while estimated_error(state) > 1e-8:
        state = play(state, means(problem), clients)
    assert state.averages < 5000
    error = np.linalg.norm(state.theta - problem.theta_star)
    assert 0.1 * error < estimated_error(state) <= 1e-8
    xi, _ = controls(state, means(problem), clients)
    np.testing.assert_allclose(xi, problem.xi_star, rtol=0, atol=1e-6)  # control variates have found xi_star


def test_a_run_that_has_converged_goes_on_at_the_level_of_rounding_errors(problem):
    """A bound of ten times the last movements, each of them a rounding error, ended honest runs as failed."""
    state, clients = ServerState.start(settings(rounds=8, reach=1.0), 3), {}
    for size in (*[1e-18] * 6, 1e-15, 1e-12):  # movements that grow and shrink by more than tenfold
        state = play(state, lambda agent, size=size: lambda theta, *_: theta + size, clients)  # asserts an average
    assert finished(state)
    assert 1e-9 <= state.bound(5) < 1.1e-9


def test_estimated_error_is_exact_for_a_geometric_approach():
    state = ServerState.start(settings(), 1)
    moves = 3.0 * 0.5 ** np.arange(8)
    state = replace(state, movement=moves, averages=8)
    assert estimated_error(state) == pytest.approx(moves[-1] / (1 - 0.5))
    grows = replace(state, movement=moves[::-1].copy())
    assert estimated_error(grows) == np.inf


def test_a_long_change_is_shortened_and_the_sum_of_control_variates_stays_zero(problem):
    state, clients = ServerState.start(settings(clip=0.05, aggregation="plain"), 3), {}
    for _ in range(6):
        before = state.theta
        state = play(state, means(problem), clients)
        assert np.linalg.norm(state.theta - before) <= 0.05 + 1e-15
        assert controls(state, means(problem), clients)[1] < 1e-14


def forged_reply(order, change, weight):
    """What a hostile site may send: a change of its choice, in a share without masks."""
    share = to_share([round(weight * x / VECTORS.unit) for x in change], VECTORS.limbs)
    return Reply(order.experiment, order.generation, order.round, order.label().hex(), share)


def test_one_hostile_site_cannot_move_a_plain_average_further_than_ten_times_the_median(problem):
    s = settings(aggregation="plain", strikes=3)
    state, clients, runs = ServerState.start(s, 3), {}, site_runs(s, means(problem))
    asides = []
    for _ in range(8):
        state, orders = open_round(state, s.sites)
        for site, work in orders.items():
            clients[site], answer = client_step(clients.get(site), work, runs[site])
            record = answer
            if site == "site 3":
                record = forged_reply(work, np.full(3, 1e17), 0.25)
            state, _ = accept(state, site, record)
        before = state.theta
        state, closed = close_round(state)
        assert closed.averaged
        assert "site 3" not in closed.sites
        assert np.linalg.norm(state.theta - before) < 10
        asides += closed.aside
    assert asides == ["site 3"]
    assert state.strikes[3] == 3  # its first change had no bound to break


@pytest.mark.parametrize("lie", [1e17, -1e3])
def test_with_sums_a_hostile_site_makes_rounds_in_vain_but_owns_no_average(problem, lie):
    s = settings(reach=1.0)
    state, runs, secrets = ServerState.start(s, 3), site_runs(s, means(problem)), pair_secrets(s.sites)
    for _ in range(3):
        state, orders = open_round(state, s.sites)
        for site, work in orders.items():
            answer = client_step(None, work, runs[site])[1]
            if site == "site 3":
                share = to_share([round(0.25 * lie / VECTORS.unit)] * 3, VECTORS.limbs)
                answer = replace(answer, share=masked(share, site, secrets[site], work.label("token", bytes(32))))
            state, reason = accept(state, site, answer)
            assert reason is None
        before = state.theta
        state, closed = close_round(state)
        assert not closed.averaged
        assert "does not keep to the orders" in closed.why
        assert state.theta is before
    assert state.attempts == 3


def test_the_trimmed_mean_moves_the_sum_of_control_variates_by_gain_times_its_distance_to_the_mean(problem):
    s = settings(trim=1, min_sites=3, weights=(1, 2, 3, 4))
    state, clients, of = ServerState.start(s, 3), {}, means(problem)
    gain, w, total = 1 / (0.2 * 5), np.array([0.1, 0.2, 0.3, 0.4]), np.zeros(3)
    for _ in range(4):
        theta = state.theta
        state = play(state, of, clients)
        sent = np.stack([theta + clients[site].delta for site in s.sites])
        moved = gain * (trimmed_mean(w, sent, 1) - w @ sent)
        total = total + moved
        np.testing.assert_allclose(w @ controls(state, of, clients)[0], total, rtol=0, atol=1e-13)
        assert np.abs(moved).max() > 1e-6


def test_the_trimmed_mean_leaves_out_the_ends_of_each_coordinate():
    values = np.array([[0.0, 5.0], [1.0, -99.0], [2.0, 6.0], [1e9, 7.0]])
    np.testing.assert_allclose(trimmed_mean(np.ones(4), values, 1), [1.5, 5.5])
    np.testing.assert_allclose(trimmed_mean(np.array([1.0, 1.0, 3.0, 1.0]), values, 1), [1.75, (5 + 18) / 4])
    np.testing.assert_allclose(trimmed_mean(np.array([1.0, 2.0, 1.0]), values[:3], 0), [1.0, (5 - 198 + 6) / 4])


def test_one_bad_site_cannot_move_a_trimmed_mean_out_of_the_range_of_the_others():
    rng = np.random.default_rng(1)
    honest = rng.standard_normal((5, 3))
    for lie in (1e50, -1e50, 0.0):
        out = trimmed_mean(np.ones(6), np.vstack([honest, np.full(3, lie)]), 1)
        assert (out >= honest.min(axis=0)).all()
        assert (out <= honest.max(axis=0)).all()


def test_traffic_counts_every_message_and_its_bytes(problem):
    state, clients = ServerState.start(settings(min_sites=3), 3), {}
    for _ in range(3):
        state = play(state, means(problem), clients, present=state.settings.sites[:3])
    messages_down, bytes_down, messages_up, bytes_up = state.traffic.T
    assert messages_down.tolist() == messages_up.tolist() == [3, 3, 3, 0]
    assert (bytes_down[:3] > 3 * 3 * 2 * 8).all()  # theta and mean
    assert (bytes_up[:3] > 3 * 3 * 16).all()
    assert (bytes_up < bytes_down)[:3].all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "fedavg"}, "method must be one of"),
        ({"step_size": 0}, "step_size must be a finite number above 0"),
        ({"local_steps": None}, "step_size, local_steps and rounds together, must be given"),
        ({"epsilon": 0.5}, "got epsilon and step_size"),
        ({"local_steps": 0}, "local_steps must be a positive integer"),
        ({"rounds": 0}, "rounds must be a positive integer"),
        ({"sites": ()}, "sites must be different names"),
        ({"sites": ("a", "a")}, "sites must be different names"),
        ({"sites": "abcd"}, "sites must be names"),
        ({"weights": (1, 2)}, "weights must be an array"),
        ({"weights": (1, 2, 3, 0)}, "weights must be above 0"),
        ({"participants": 5}, "participants must be"),
        ({"min_sites": 5}, "min_sites must be"),
        ({"min_sites": 2}, "min_sites must be at least three, for secure aggregation"),
        ({"trim": 1, "min_sites": 2}, "min_sites must be above twice trim"),
        ({"trim": 1, "aggregation": "secure"}, "trim must come with the aggregation 'plain'"),
        ({"absence": "restrt"}, "did you mean 'restart'"),
        ({"aggregation": "secur"}, "did you mean 'secure'"),
        ({"outlier": -1}, "outlier must be"),
        ({"strikes": 0}, "strikes must be"),
        ({"max_weight": 2}, "max_weight must be"),
        ({"noise": 1.0}, "noise must come with clip"),
        ({"noise": 1.0, "clip": 1.0, "unit": "record"}, "row_clip must come"),
        ({"quantise": 4}, "quantise must be 8 or 16"),
        ({"clip": -1}, "clip must be"),
        ({"patience": 0}, "patience must be"),
        ({"seed": -1}, "seed must be"),
        ({"name": ""}, "name must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(change, words):
    with pytest.raises(FedLSAError, match=words):
        settings(**change)


def test_settings_survive_being_written():
    one = settings("scaffnew", weights=(1, 2, 3, 4), participants=3, clip=1.0)
    assert RunSettings.from_entries(json.loads(json.dumps(dataclasses.asdict(one)))) == one
    for entries in ({}, {"method": "scafflsa", "nonsense": 1}):
        with pytest.raises(FedLSAError, match="not the options of a run"):
            RunSettings.from_entries(entries)


def test_closing_what_is_not_open_is_an_error():
    with pytest.raises(ArgumentError, match="close_round must follow open_round"):
        close_round(ServerState.start(settings(), 3))
