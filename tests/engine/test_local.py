"""Rounds done one agent and one round at a time are the runs of fl.simulate."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine.local import Means, Rows, alias_slots
from fedlsa.engine.outcome_tables import outcome_tables
from fedlsa.engine.random import OBSERVATION, choose, words
from fedlsa.engine.reference import Observer
from fedlsa.engine.schedule import schedule

D, AGENTS = 8, 3


def regression(ridge=0.0, seed=0):
    rng = np.random.default_rng(seed)
    sites = []
    for c in range(AGENTS):
        X = rng.normal(size=(37 + 30 * c, D))
        sites.append((X, X @ rng.normal(size=D) + rng.normal(size=len(X))))
    return fl.problems.regression(sites, ridge, weights=[1.0, 2.0, 3.0])


def transitions(trace=0.6, seed=1):
    rng = np.random.default_rng(seed)
    sites = []
    for c in range(AGENTS):
        n = 50 + 11 * c
        phi = rng.normal(size=(n + 1, D)) / np.sqrt(D)
        sites.append((phi[:-1], rng.normal(size=n), phi[1:], rng.random(n) < 0.1))
    return fl.problems.from_transitions(sites, discount=0.9, trace=trace)


def rows_of(problem, c):
    z, span = problem.observations, list(problem.spans())[problem.assignment[c]]
    u = z.rows[z.left[span]]
    v = u if z.left is z.right else z.rows[z.right[span]]
    return Rows(u, v, z.y[span], z.ridge, alias_slots(len(u)))


def network(problem, local, algorithm, rounds, seed):
    """The run as sites and a server do it: every round of every agent is one call."""
    N, d, w = problem.n_agents, problem.dim, problem.weights
    theta, xi, step = np.zeros(d), np.zeros((N, d)), np.zeros(N, np.int64)
    plan = schedule(algorithm, fl.IID(), seed, rounds, N)
    for t in range(rounds):
        active, H = plan.active(t), int(plan.observations[t])
        hat = np.stack([local[c](theta, xi[c], plan.step_sizes[t], H, int(step[c]), seed, c) for c in active])
        step[active] += H
        change = np.zeros((N, d))
        change[active] = hat - theta
        theta = theta + N / len(active) * (w @ change)
        xi += plan.gains[t] * (w @ change - change)
    return theta, xi


@pytest.mark.parametrize("problem", [regression(), regression(ridge=0.3), transitions()], ids=["ls", "ridge", "td"])
@pytest.mark.parametrize(
    "algorithm",
    [fl.FedLSA(0.02, 7), fl.SCAFFLSA(0.02, 7), fl.SCAFFLSA(0.02, 10, participants=2), fl.Scaffnew(0.02, 0.15)],
    ids=["fedlsa", "scafflsa", "partial", "scaffnew"],
)
def test_rounds_one_by_one_make_the_run_of_simulate(problem, algorithm):
    local = [rows_of(problem, c) for c in range(AGENTS)]
    theta, xi = network(problem, local, algorithm, 25, seed=2**40 + 11)
    r = fl.simulate(problem, algorithm, 25, [2**40 + 11], np.zeros(D), keep=("theta", "xi"))
    np.testing.assert_allclose(theta, r["theta"].values[0, -1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(xi, r["xi"].values[0], rtol=0, atol=1e-12)


def test_steps_are_those_of_the_readable_observer_from_any_step_on():
    problem, seed, agent, eta = transitions(), 5, 2, 0.03
    rng = np.random.default_rng(3)
    theta, xi = rng.normal(size=(2, D))
    local = rows_of(problem, agent)
    for first, steps in ((0, 1), (3, 6), (4, 9), (4098, 5)):
        observer = Observer(problem, fl.IID(), outcome_tables(problem, fl.IID()), seed, agent, None, first)
        hat = theta
        for _ in range(steps):
            A, b = observer.receive()
            hat = hat - eta * (A @ hat - b - xi)
        np.testing.assert_allclose(local(theta, xi, eta, steps, first, seed, agent), hat, rtol=0, atol=1e-13)


def test_a_round_cut_in_two_is_the_same_round_to_the_last_bit():
    local = rows_of(regression(), 1)
    theta, xi = np.random.default_rng(4).normal(size=(2, D))
    whole = local(theta, xi, 0.01, 50, 6, 9, 1)
    half = local(local(theta, xi, 0.01, 21, 6, 9, 1), xi, 0.01, 29, 27, 9, 1)
    np.testing.assert_array_equal(whole, half)


def test_steps_on_means_are_those_of_simulate_and_of_the_closed_form():
    problem = transitions(trace=0.0)
    pairs = list(zip(problem.A_bar, problem.b_bar, strict=True))
    means = fl.problems.from_observations([([1.0], A[None], b[None]) for A, b in pairs])
    local = [Means(A, b) for A, b in pairs]
    algorithm = fl.SCAFFLSA(0.1, 9)
    theta, xi = network(means, local, algorithm, 20, seed=1)
    r = fl.simulate(means, algorithm, 20, [1], np.zeros(D), keep=("theta", "xi"))
    np.testing.assert_allclose(theta, r["theta"].values[0, -1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(xi, r["xi"].values[0], rtol=0, atol=1e-12)
    A, b = problem.A_bar[0], problem.b_bar[0]
    fixed = np.linalg.solve(A, b + xi[0])
    power = np.linalg.matrix_power(np.eye(D) - 0.1 * A, 33)
    np.testing.assert_allclose(
        local[0](theta, xi[0], 0.1, 33, 0, 0, 0), fixed + power @ (theta - fixed), rtol=0, atol=1e-12
    )


def test_arguments_are_left_as_they_were_and_mapped_files_will_do(tmp_path):
    problem = transitions()
    local = rows_of(problem, 0)
    for name in ("u", "v", "y", "slots"):
        np.save(tmp_path / f"{name}.npy", getattr(local, name))
    mapped = Rows(
        *(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("u", "v", "y")),
        local.ridge,
        np.load(tmp_path / "slots.npy", mmap_mode="r"),
    )
    theta, xi = np.ones(D), np.full(D, 0.5)
    np.testing.assert_array_equal(mapped(theta, xi, 0.1, 20, 0, 1, 0), local(theta, xi, 0.1, 20, 0, 1, 0))
    assert (theta == 1).all()
    assert (xi == 0.5).all()
    assert local.u.flags.writeable


def clipped_twin(rows, theta, xi, eta, steps, first, seed, agent):
    """Rows with row_clip, to be read: Huber's residual, and a weight for rows that are too long for the step."""
    hat, n = np.array(theta), len(rows.y)
    shift = 32 - (len(rows.slots).bit_length() - 1)
    for step in range(first, first + steps):
        word = int(words(np.uint64(seed), agent, OBSERVATION, step, 1)[0])
        k = choose(word, int(rows.slots[word >> shift]), shift)
        assert k < n
        hat = hat - eta * (clipped_gradient(rows, k, hat, eta) + rows.ridge * hat - xi)
    return hat


def clipped_gradient(rows, k, hat, eta):
    u, length = rows.u[k], np.linalg.norm(rows.u[k])
    residual = np.clip(u @ hat - rows.y[k], -rows.row_clip / length, rows.row_clip / length)
    return u * residual * min(1.0, 1 / (eta * length**2))


@pytest.mark.parametrize("eta", [0.01, 0.3])
@pytest.mark.parametrize("clip", [1e-3, 1.0, 1e6])
def test_clipped_rows_are_those_of_the_readable_twin(clip, eta):
    rows = replace(rows_of(regression(ridge=0.2), 1), row_clip=clip)
    theta, xi = np.random.default_rng(6).normal(size=(2, D))
    for first, steps in ((0, 3), (5, 40)):
        expected = clipped_twin(rows, theta, xi, eta, steps, first, 11, 1)
        np.testing.assert_allclose(rows(theta, xi, eta, steps, first, 11, 1), expected, rtol=0, atol=1e-12)


def test_a_clip_that_no_row_reaches_changes_no_bit():
    rows = rows_of(regression(ridge=0.2), 1)
    theta, xi = np.random.default_rng(6).normal(size=(2, D))
    free, clipped = (r(theta, xi, 0.01, 60, 0, 3, 1) for r in (rows, replace(rows, row_clip=1e9)))
    np.testing.assert_array_equal(free, clipped)


@pytest.mark.parametrize("clip", [0.1, 2.0])
def test_steps_on_every_row_are_the_mean_of_clipped_gradients_and_without_clipping_those_of_means(clip):
    rows = rows_of(regression(ridge=0.2), 1)
    theta, xi = np.random.default_rng(6).normal(size=(2, D))
    local = replace(rows, row_clip=clip, averaged=True)
    hat = theta
    for _ in range(12):
        mean = np.mean([clipped_gradient(local, k, hat, 0.3) for k in range(len(rows.y))], axis=0)
        hat = hat - 0.3 * (mean + 0.2 * hat - xi)
    np.testing.assert_allclose(local(theta, xi, 0.3, 12, 0, 0, 0), hat, rtol=0, atol=1e-12)
    n = len(rows.y)
    means = Means(rows.u.T @ rows.u / n + 0.2 * np.eye(D), rows.u.T @ rows.y / n)
    free = replace(rows, row_clip=1e9, averaged=True)(theta, xi, 0.01, 30, 0, 0, 0)
    np.testing.assert_allclose(free, means(theta, xi, 0.01, 30, 0, 0, 0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("wrong", [(D - 1,), (D + 1,), (37 * D,), (0,), (), (D, 1)], ids=str)
@pytest.mark.parametrize("kind", ["rows", "clipped rows", "means", "clipped means"])
def test_vectors_of_another_length_than_a_row_are_refused_before_anything_is_read(kind, wrong):
    rows = rows_of(regression(), 0)
    local = {
        "rows": rows,
        "clipped rows": replace(rows, row_clip=1.0),
        "means": Means(np.eye(D), np.ones(D)),
        "clipped means": replace(rows, row_clip=1.0, averaged=True),
    }[kind]
    good, bad = np.zeros(D), np.zeros(wrong)
    for name, vectors in (("theta", (bad, good)), ("xi", (good, bad)), ("theta", (bad, bad))):
        with pytest.raises(fl.errors.ArgumentError, match=f"{name} must have shape"):
            local(*vectors, 0.1, 3, 0, 7, 0)


def test_rows_of_a_value_function_cannot_be_clipped():
    with pytest.raises(fl.errors.ArgumentError, match="row_clip must be None"):
        replace(rows_of(transitions(), 0), row_clip=1.0)


def test_one_row_is_always_drawn_and_every_row_can_be():
    one = Rows(np.eye(D)[:1], np.eye(D)[:1], np.ones(1), 0.0, alias_slots(1))
    hat = one(np.zeros(D), np.zeros(D), 0.5, 3, 0, 7, 0)
    np.testing.assert_array_equal(hat, 0.875 * np.eye(D)[0])
    all_rows = Rows(np.eye(D), np.eye(D), np.ones(D), 0.0, alias_slots(D))
    assert (all_rows(np.zeros(D), np.zeros(D), 0.5, 200, 0, 7, 0) > 0.99).all()


@pytest.mark.parametrize("n", [0, 2**32])
def test_a_number_of_rows_that_cannot_be_drawn_from_is_refused(n):
    with pytest.raises(fl.errors.ArgumentError, match=f"rows; got {n}"):
        alias_slots(n)


def test_a_new_process_loads_the_steps_and_compiles_none_for_another_dimension():
    script = """
import numpy as np
from fedlsa.engine import local
for d in (3, 5):
    x = np.ones((4, d)); x.flags.writeable = d > 3
    rows = local.Rows(x, x, np.ones(4), 0.0, local.alias_slots(4))
    rows(np.zeros(d), np.zeros(d), 0.1, 5, 0, 0, 0)
    local.Means(np.eye(d), np.ones(d))(np.zeros(d), np.zeros(d), 0.1, 5, 0, 0, 0)
for kernel in (local._on_rows, local._on_means):
    assert len(kernel.signatures) == 1, kernel.signatures
print(sum(local._on_rows.stats.cache_misses.values()), sum(local._on_rows.stats.cache_hits.values()))
"""
    local = rows_of(regression(), 0)
    local(np.zeros(D), np.zeros(D), 0.1, 5, 0, 0, 0)  # from now on the cache holds it
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]
