"""Without faults the rounds are fl.simulate's; with options they do what they say."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.outcome_tables import outcome_tables
from fedlsa.engine.random import participants
from fedlsa.engine.reference import Observer
from fedlsa.errors import ArgumentError, FedLSAError
from fedlsa.network.protocol.client import client_finish, client_step
from fedlsa.network.protocol.messages import Finish, Refusal, Work
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import (
    accept,
    close_round,
    drift_norm,
    estimated_error,
    finish,
    finished,
    open_round,
    trimmed_mean,
)
from fedlsa.network.protocol.server_state import ServerState

METHODS = {
    "fedlsa": fl.FedLSA(0.2, 5),
    "scafflsa": fl.SCAFFLSA(0.2, 5),
    "scaffnew": fl.Scaffnew(0.2, 0.2),
}


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
    return RunSettings(method=method, **({"min_sites": 1, "patience": 10} | base | options))


def observing(problem):
    """Local steps on the observations that fl.simulate draws, by the readable engine."""
    sampling = fl.IID()
    where = outcome_tables(problem, sampling)

    def local(theta, xi, eta, steps, first, seed, agent):
        observer = Observer(problem, sampling, where, seed, agent, None, first)
        for _ in range(steps):
            A, b = observer.receive()
            theta = theta - eta * (A @ theta - b - xi)
        return theta

    return local


def means(problem):
    """Local steps without noise."""

    def local(theta, xi, eta, steps, first, seed, agent):
        for _ in range(steps):
            theta = theta - eta * (problem.A_bar[agent] @ theta - problem.b_bar[agent] - xi)
        return theta

    return local


def play(state, local, clients, present=None, coding=None):
    """One round without faults."""
    state, orders = open_round(state, present or state.settings.sites)
    for site, work in orders.items():
        clients[site], answer = client_step(clients.get(site), Work.from_record(work.record()), local, coding)
        state, reason = accept(state, site, answer.record())
        assert reason is None
    assert not (state.pending.invited & ~state.pending.accepted).any()
    return close_round(state)[0]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_without_faults_is_the_simulation_to_the_last_digits(problem, method):
    want = fl.simulate(
        problem, METHODS[method], rounds=12, seeds=[11], theta_0=np.zeros(3), engine="reference", record=range(13),
        keep=("theta", "xi"),
    )  # fmt: skip
    state = ServerState.start(settings(method, seed=11, weights=(1, 2, 3, 4)), 3)
    local, clients, path = observing(problem), {}, [state.theta]
    while not finished(state):
        state = play(state, local, clients)
        path.append(state.theta)
    np.testing.assert_allclose(path, want.theta.values[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(state.xi, want.xi.values[0], rtol=0, atol=1e-12)
    for c, (site, last) in enumerate(finish(state, '["x"]').items()):
        clients[site] = client_finish(clients[site], Finish.from_record(last.record()))
        clients[site] = client_finish(clients[site], last)  # a second end changes nothing
        np.testing.assert_allclose(clients[site].xi, want.xi.values[0, c], rtol=0, atol=1e-12)


def test_a_run_that_asks_some_sites_draws_those_of_the_simulation_and_scales_their_weights_to_one(problem):
    s = settings(seed=11, weights=(1, 2, 3, 4), participants=2)
    state, local, clients = ServerState.start(s, 3), observing(problem), {}
    theta, xi, step = np.zeros(3), np.zeros((4, 3)), np.zeros(4, int)
    drawn = np.empty((s.rounds, 2), np.int64)
    participants(np.uint64(11), 0, 4, drawn)
    for some in drawn:
        hat = np.array([local(theta, xi[c], 0.2, 5, int(step[c]), 11, int(c)) for c in some])
        theta = s.shares[some] / s.shares[some].sum() @ hat
        xi[some] += (theta - hat) / (0.2 * 5)
        step[some] += 5
        state = play(state, local, clients)
        np.testing.assert_allclose(state.theta, theta, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.xi, xi, rtol=0, atol=1e-12)


def test_participants_are_drawn_among_those_present_and_all_are_asked_after_a_round_in_vain(problem):
    state = ServerState.start(settings(participants=2, min_sites=2), 3)
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


def test_a_round_given_out_again_after_a_crash_is_the_same_order_to_the_bit(problem):
    state, clients = ServerState.start(settings("scaffnew"), 3), {}
    for _ in range(3):
        state = play(state, means(problem), clients)
    _, one = open_round(state, state.settings.sites)
    _, other = open_round(ServerState.from_arrays(state.arrays()), state.settings.sites[:2])
    for site, work in other.items():
        assert work.record().meta == one[site].record().meta
        for name, value in work.record().arrays.items():
            np.testing.assert_array_equal(value, one[site].record().arrays[name])


def test_the_same_order_twice_gets_the_same_answer_and_another_with_its_number_is_refused(problem):
    state = ServerState.start(settings(), 3)
    state, orders = open_round(state, state.settings.sites)
    work = orders["site 0"]
    held, one = client_step(None, work, means(problem))
    again, other = client_step(held, work, means(problem))
    assert again is held
    assert one.payload["delta"] is other.payload["delta"]
    _, forged = client_step(held, Work(**(vars(work) | {"theta": work.theta + 1})), means(problem))
    assert (type(forged), forged.reason) == (Refusal, "forgot")


def test_local_steps_that_leave_the_range_of_numbers_are_refused_and_nothing_is_stored(problem):
    state = ServerState.start(settings(), 3)
    state, orders = open_round(state, state.settings.sites)
    held, answer = client_step(None, orders["site 1"], lambda theta, *_: theta * np.nan)
    assert held is None
    assert (answer.reason, "floating-point" in answer.text) == ("other", True)
    _, reason = accept(state, "site 1", answer.record())
    assert "refused (other)" in reason


def test_scafflsa_without_noise_stops_at_the_solution_by_its_own_estimate(problem):
    state, clients = ServerState.start(settings(rounds=5000, weights=(1, 2, 3, 4)), 3), {}
    assert estimated_error(state) == np.inf
    while estimated_error(state) > 1e-8:
        state = play(state, means(problem), clients)
    assert state.averages < 5000
    error = np.linalg.norm(state.theta - problem.theta_star)
    assert 0.1 * error < estimated_error(state) <= 1e-8
    assert drift_norm(state) == pytest.approx(
        np.sqrt(problem.weights @ (problem.xi_star**2).sum(axis=1)), rel=1e-6
    )  # control variates have found xi_star


def test_estimated_error_is_exact_for_a_geometric_approach():
    state = ServerState.start(settings(), 1)
    moves = 3.0 * 0.5 ** np.arange(8)
    state = ServerState(**(vars(state) | {"movement": moves, "averages": 8}))
    assert estimated_error(state) == pytest.approx(moves[-1] / (1 - 0.5))
    grows = ServerState(**(vars(state) | {"movement": moves[::-1]}))
    assert estimated_error(grows) == np.inf


def test_a_long_reply_is_shortened_and_the_sum_of_control_variates_stays_zero(problem):
    state, clients = ServerState.start(settings(clip=0.05), 3), {}
    for _ in range(6):
        before = state.theta
        state = play(state, means(problem), clients)
        assert np.linalg.norm(state.theta - before) <= 0.05 + 1e-15
        assert np.abs(state.settings.shares @ state.xi).max() < 1e-14
    last = finish(state)
    real = np.stack([client_finish(clients[s], last[s]).xi for s in state.settings.sites])
    np.testing.assert_allclose(real, state.xi, rtol=0, atol=1e-13)


def test_the_trimmed_mean_moves_the_sum_of_control_variates_by_gain_times_its_distance_to_the_mean(problem):
    state, clients = ServerState.start(settings(trim=1, min_sites=3, weights=(1, 2, 3, 4)), 3), {}
    gain, w = 1 / (0.2 * 5), np.array([0.1, 0.2, 0.3, 0.4])
    for _ in range(4):
        total, theta = w @ state.xi, state.theta
        state = play(state, means(problem), clients)
        sent = np.stack([theta + clients[s].delta for s in state.settings.sites])
        want = gain * (trimmed_mean(w, sent, 1) - w @ sent)
        np.testing.assert_allclose(w @ state.xi - total, want, rtol=0, atol=1e-13)
        assert np.abs(want).max() > 1e-6


def test_the_trimmed_mean_leaves_out_the_ends_of_each_coordinate():
    values = np.array([[0.0, 5.0], [1.0, -99.0], [2.0, 6.0], [1e9, 7.0]])
    np.testing.assert_allclose(trimmed_mean(np.ones(4), values, 1), [1.5, 5.5])
    np.testing.assert_allclose(trimmed_mean(np.array([1.0, 1.0, 3.0, 1.0]), values, 1), [1.75, (5 + 18) / 4])
    np.testing.assert_allclose(trimmed_mean(np.array([1.0, 2.0, 1.0, 0.0]), values, 0), [1.0, (5 - 198 + 6) / 4])


def test_one_bad_site_cannot_move_a_trimmed_mean_out_of_the_range_of_the_others():
    rng = np.random.default_rng(1)
    honest = rng.standard_normal((5, 3))
    for lie in (1e50, -1e50, 0.0):
        out = trimmed_mean(np.ones(6), np.vstack([honest, np.full(3, lie)]), 1)
        assert (out >= honest.min(axis=0)).all()
        assert (out <= honest.max(axis=0)).all()


def test_traffic_counts_every_message_and_its_bytes(problem):
    state, clients = ServerState.start(settings(), 3), {}
    for _ in range(3):
        state = play(state, means(problem), clients, present=state.settings.sites[:2])
    messages_down, bytes_down, messages_up, bytes_up = state.traffic.T
    assert messages_down.tolist() == messages_up.tolist() == [3, 3, 0, 0]
    assert (bytes_down[:2] > 3 * 3 * 3 * 8).all()  # theta, mean and shift
    assert (bytes_up[:2] > 3 * 3 * 8).all()
    assert (bytes_up < bytes_down)[:2].all()


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
        ({"trim": 1, "min_sites": 2}, "min_sites must be above twice trim"),
        ({"policy": "spred"}, "did you mean 'spread'"),
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
    one = settings("scaffnew", weights=(1, 2, 3, 4), participants=2, clip=1.0)
    assert RunSettings.from_text(one.text()) == one
    for text in ("", "[]", "{}", '{"method": "scafflsa", "nonsense": 1}'):
        with pytest.raises(FedLSAError, match="not the options of a run"):
            RunSettings.from_text(text)


def test_closing_what_is_not_open_is_an_error():
    with pytest.raises(ArgumentError, match="close_round must follow open_round"):
        close_round(ServerState.start(settings(), 3))
