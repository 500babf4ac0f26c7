"""The same bits for any number of threads, any grouping of seeds, any cut of the work."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from own_steps import OwnStepsSCAFFLSA
from server_momentum import MomentumSCAFFLSA
from tiers import longer

import fedlsa as fl
from fedlsa.engine import cpu, cpu_kernel, task_struct
from fedlsa.engine.jobs import RunOptions, make_job

SEEDS = [5, 0, 2**63 + 5, 17, 9, 2, 31]


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=40, states=12, seed=1)  # three groups of sixteen, the last with a half


METHODS = {
    "FedLSA": fl.FedLSA(0.3, 5),
    "SCAFFLSA, long rounds": fl.SCAFFLSA(0.3, 200),
    "Scaffnew": fl.Scaffnew(0.3, 0.2),
    "partial": fl.SCAFFLSA(0.3, 5, participants=19),
    "all options": fl.SCAFFLSA(fl.PowerStep(0.5, 0.2), 5, participation=0.5, projection=2.0, average_after=3),
    "momentum": MomentumSCAFFLSA(0.1, 5, projection=2.0),
    "own steps": OwnStepsSCAFFLSA(0.3, 50),
    "own steps, partial": OwnStepsSCAFFLSA(0.3, 5, participants=19),
}
every_method = pytest.mark.parametrize("algorithm", METHODS.values(), ids=METHODS)
every_sampling = pytest.mark.parametrize("sampling", [fl.IID(), fl.Markov(thin=2)], ids=["IID", "Markov"])


def run(problem, algorithm, **changes):
    arguments = {"rounds": 9, "seeds": SEEDS, "keep": ("theta", "xi"), "record": 10, "threads": 1, **changes}
    return fl.simulate(problem, algorithm, **arguments)


def same(a, b):
    for name in ("theta", "xi", "samples"):
        np.testing.assert_array_equal(a[name].values, b[name].values)


@pytest.mark.parametrize("problem_of", ["rank-one", "dense"])
def test_tasks_of_one_job_write_into_nothing_that_they_share(problem_of, monkeypatch):
    weights, finish = np.arange(1.0, 6.0), cpu.finish
    problem = fl.problems.garnet(agents=5, states=6, features=3, weights=weights)
    if problem_of == "dense":
        A, b = np.eye(2) + 0.1 * np.arange(4).reshape(2, 2), np.ones((1, 2))
        problem = fl.problems.from_observations([([1.0], A[None], b * c) for c in range(5)], weights=weights)
    looked = 0

    def watch(tasks, threads, report):
        nonlocal looked
        one, other = (task.struct.arrays for task in tasks)
        shared = {name: array.copy() for name, array in one.items() if np.shares_memory(array, other[name])}
        finish(tasks, threads, report)
        for name, before in shared.items():
            np.testing.assert_array_equal(one[name], before, err_msg=name)
        looked += "slots" in shared and "start" in shared

    monkeypatch.setattr(cpu, "finish", watch)
    options = {"projection": 9.0, "average_after": 1}
    for algorithm in (fl.Scaffnew(0.1, 0.3, **options), fl.SCAFFLSA(0.1, 3, participants=2, **options)):
        run(problem, algorithm, seeds=2, rounds=20)
    assert looked == 2


def test_rounds_write_into_copies_also_of_large_arrays_that_are_aligned(monkeypatch):
    problem = fl.problems.garnet(agents=16, states=6, features=3)
    algorithm = fl.SCAFFLSA(0.1, 3, participants=15)  # as many lanes as chains
    expected = run(problem, algorithm, seeds=1, rounds=20)
    words, made = cpu.chain_words, []
    monkeypatch.setattr(task_struct, "COPIED_BYTES", 0)
    monkeypatch.setattr(cpu, "chain_words", lambda *args: made.append(task_struct.align(words(*args))) or made[-1])
    same(run(problem, algorithm, seeds=1, rounds=20), expected)
    assert made


@every_method
@every_sampling
def test_threads_do_not_change_a_bit(problem, algorithm, sampling):
    alone = run(problem, algorithm, sampling=sampling)
    for threads in (2, 3):
        assert alone.identical(run(problem, algorithm, sampling=sampling, threads=threads))


@every_method
@every_sampling
def test_a_seed_gives_the_same_bits_alone_in_company_and_in_any_order(problem, algorithm, sampling):
    together = run(problem, algorithm, sampling=sampling)
    same(run(problem, algorithm, sampling=sampling, seeds=SEEDS[::-1]), together.sel(seed=SEEDS[::-1]))
    many = [*range(100, 130), *SEEDS]  # more seeds than step together
    same(run(problem, algorithm, sampling=sampling, seeds=many, threads=2).sel(seed=SEEDS), together)
    for s in SEEDS[:3]:
        same(run(problem, algorithm, sampling=sampling, seeds=[s]), together.sel(seed=[s]))


def test_different_seeds_and_agents_see_different_observations(problem):
    theta = run(problem, METHODS["FedLSA"])["theta"].values[:, -1]
    assert len({t.tobytes() for t in theta}) == len(SEEDS)


def test_a_grid_gives_what_each_of_its_runs_gives_alone(problem):
    other = fl.problems.garnet(agents=3, states=12, seed=2)
    algorithms = list(METHODS.values())
    rounds = [9, 3, 9, 5, 4]
    grid = fl.simulate_grid([problem, other], algorithms[:3], rounds[:3], SEEDS, keep=("theta", "xi"), threads=3)
    for r, (p, i) in zip(grid, [(p, i) for p in (problem, other) for i in range(3)], strict=True):
        assert r.identical(fl.simulate(p, algorithms[i], rounds[i], SEEDS, keep=("theta", "xi"), threads=1))


@every_method
def test_rounds_too_long_for_one_call_give_the_same_bits(problem, algorithm, monkeypatch):
    whole = run(problem, algorithm)
    monkeypatch.setattr(cpu, "SEGMENT_WORK", 1.0)
    assert whole.identical(run(problem, algorithm))


@every_method
@every_sampling
@pytest.mark.parametrize("threads", [2, 16])
def test_rounds_shared_by_threads_give_the_same_bits(problem, algorithm, sampling, threads, monkeypatch):
    whole = run(problem, algorithm, seeds=[17], sampling=sampling)
    members, begin = [], cpu.CpuTask.begin
    monkeypatch.setattr(cpu, "WAITING", 1e-9)
    monkeypatch.setattr(cpu.CpuTask, "begin", lambda task, n: (members.append(n), begin(task, n))[1])
    assert whole.identical(run(problem, algorithm, seeds=[17], sampling=sampling, threads=threads))
    assert max(members) > 1


@pytest.mark.parametrize("agents", [1, 2, 15, 16, 17, 33, 100])
@pytest.mark.parametrize("algorithm", [fl.SCAFFLSA(0.3, 5), fl.SCAFFLSA(0.3, 200)], ids=["short", "long"])
def test_any_number_of_agents_gives_the_same_bits_for_any_threads_and_seeds(agents, algorithm, monkeypatch):
    p = fl.problems.garnet(agents=agents, states=12, seed=3)
    together = run(p, algorithm)
    same(run(p, algorithm, seeds=SEEDS[2:5]), together.sel(seed=SEEDS[2:5]))
    same(run(p, algorithm, seeds=SEEDS[1:2]), together.sel(seed=SEEDS[1:2]))
    monkeypatch.setattr(cpu, "WAITING", 1e-9)
    for threads in (2, 5):
        assert together.identical(run(p, algorithm, threads=threads))


@every_method
@every_sampling
def test_runs_cut_into_segments_give_the_same_bits(problem, algorithm, sampling, monkeypatch):
    whole = run(problem, algorithm, sampling=sampling)
    calls, advance = [], cpu.CpuTask.advance

    def two_rounds(self):
        calls.append(id(self))
        monkeypatch.setattr(cpu, "SEGMENT_WORK", 2.5 * self.work)
        advance(self)

    monkeypatch.setattr(cpu.CpuTask, "advance", two_rounds)
    assert whole.identical(run(problem, algorithm, sampling=sampling))
    assert len(calls) == 5 * len(set(calls))  # nine rounds, two at a time


def test_the_number_of_chains_that_step_together_changes_nothing(problem, monkeypatch):
    algorithm = fl.SCAFFLSA(0.3, 5)
    wide = run(problem, algorithm)
    monkeypatch.setattr(cpu_kernel, "REGISTER_NUMBERS", 32)
    assert cpu.shapes(make_job(problem, algorithm, 9, RunOptions())) == (8, 2, 8)
    assert wide.identical(run(problem, algorithm))


@pytest.mark.parametrize(
    ("d", "dtype"), [(8, "float64"), longer(140, "float64"), (8, "float32"), longer(140, "float32")]
)
def test_features_alone_give_what_rows_of_differences_give(d, dtype, monkeypatch):
    """Episodes end here, so that nothing follows some states; 140 numbers are worked through in pieces."""
    g, S = np.random.default_rng(0), d + 4
    P, r, features = g.dirichlet(np.ones(S), (3, S, 1)), g.random((3, S, 1)), g.normal(size=(S, d)) / np.sqrt(d)
    ends, begins = np.arange(S) > d + 1, (np.arange(S) < 2) / 2
    p = fl.problems.from_mdps(P, r, np.ones((S, 1)), features, 0.9, terminal=ends, initial=begins)
    given = {"seeds": 2, "dtype": dtype, "sampling": fl.Markov(), "theta_0": np.ones(d)}
    monkeypatch.setattr(cpu_kernel, "CACHED_ROWS", 2**40)
    rows = run(p, METHODS["all options"], **given)
    monkeypatch.setattr(cpu_kernel, "CACHED_ROWS", 0)
    alone = run(p, METHODS["all options"], **given)
    assert not np.array_equal(rows.theta, alone.theta)  # v is rounded once, not twice
    for name in ("theta", "xi"):
        np.testing.assert_allclose(alone[name], rows[name], rtol=0, atol={"float64": 1e-12, "float32": 1e-5}[dtype])
    assert alone.identical(run(p, METHODS["all options"], **given, threads=3))


def test_methods_on_one_seed_see_the_same_observations(problem):
    """A round of FedLSA and the first round of SCAFFLSA are the same: control variates start at 0."""
    a, b = (run(problem, m(0.3, 5), rounds=1, record=2) for m in (fl.FedLSA, fl.SCAFFLSA))
    np.testing.assert_array_equal(a["theta"].values, b["theta"].values)


def test_a_member_that_does_not_come_leaves_nobody_waiting(problem, monkeypatch):
    """The second thread of a team cannot be started: the first, which waits for it, is let go."""
    run(problem, fl.FedLSA(0.3, 5))  # compiled by now
    submitted, submit = [], ThreadPoolExecutor.submit

    def fail_at_the_second(pool, *given):
        submitted.append(given)
        if len(submitted) == 2:
            raise RuntimeError("no more threads")
        return submit(pool, *given)

    monkeypatch.setattr(cpu, "WAITING", 1e-9)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", fail_at_the_second)
    with pytest.raises(RuntimeError, match="no more threads"):
        run(problem, fl.FedLSA(0.3, 5), threads=2)
    assert len(submitted) == 2


@pytest.mark.long
def test_a_run_that_diverges_and_one_whose_server_step_raises_end_alike_when_rounds_are_shared(problem, monkeypatch):
    class Raises(fl.FedLSA):
        @staticmethod
        def server_step(theta, mean, parameters):
            theta[:] = mean
            if theta[0] > 3.0:
                raise ValueError("too large")

    wild = fl.FedLSA(40.0, 5)
    with pytest.warns(fl.errors.DivergenceWarning):
        alone = run(problem, wild, rounds=200)
    with pytest.raises(fl.errors.ArgumentError) as first:
        run(problem, Raises(5.0, 5), rounds=200)
    monkeypatch.setattr(cpu, "WAITING", 1e-9)
    with pytest.warns(fl.errors.DivergenceWarning):
        assert alone.identical(run(problem, wild, rounds=200, threads=3))
    with pytest.raises(fl.errors.ArgumentError) as second:
        run(problem, Raises(5.0, 5), rounds=200, threads=3)
    assert str(first.value) == str(second.value)


def test_what_is_asked_for_ahead_of_its_use_lies_within_what_was_drawn():
    """Many agents that use the last of fifteen observations: an address beyond their end would be far away."""
    p = fl.problems.garnet(agents=20_000, states=6, features=2, perturbation=0)
    r = fl.simulate(p, fl.FedLSA(0.1, 15), 6, 1, sampling=fl.Markov(thin=15), threads=1)
    assert np.isfinite(r["theta"]).all()
