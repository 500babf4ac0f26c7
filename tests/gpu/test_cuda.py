"""engine="cuda" against the others, run by run: on Numba's CUDA simulator (NUMBA_ENABLE_CUDASIM=1), or on a real GPU.

`make test-simulator` runs this file on the simulator, `make test-gpu` on a GPU, where the same cases are larger.
"""

import warnings

import numpy as np
import pytest
from numba import NumbaPerformanceWarning, config
from own_steps import OwnStepsFedLSA, OwnStepsSCAFFLSA
from server_momentum import MomentumFedLSA, MomentumSCAFFLSA

import fedlsa as fl
from fedlsa.engine import cuda
from fedlsa.results.recipe import full_text

SIMULATED = bool(config.ENABLE_CUDASIM)
REAL = not SIMULATED and cuda.available()
pytestmark = pytest.mark.skipif(
    not (SIMULATED or REAL), reason="needs NUMBA_ENABLE_CUDASIM=1 or an NVIDIA GPU: make test-simulator runs it"
)
AGENTS, SEEDS, LONGER = (5, 1, 1) if SIMULATED else (100, 5, 20)  # the simulator takes milliseconds per step and agent
OTHER = "reference" if SIMULATED else "cpu"  # of few steps the readable engine knows sooner what the compiled one says


def garnet(agents=AGENTS, features=8, **keywords):
    return fl.problems.garnet(agents=agents, states=12, features=features, discount=0.8, seed=1, **keywords)


def regression(dim, agents=AGENTS, **keywords):
    rng = np.random.default_rng(0)
    sites = [(rng.standard_normal((12, dim)), rng.standard_normal(12)) for _ in range(agents)]
    return fl.problems.regression(sites, **keywords)


def dense(dim):
    rng = np.random.default_rng(1)
    A = np.eye(dim) + 0.3 * rng.standard_normal((AGENTS, 4, dim, dim))
    return fl.problems.from_observations([(np.ones(4) / 4, a, rng.standard_normal((4, dim))) for a in A])


def episodes():
    """Chains that end and start again."""
    rng = np.random.default_rng(2)
    P, r, ends = rng.dirichlet(np.ones(10), (AGENTS, 10, 2)), rng.random((AGENTS, 10, 2)), np.arange(10) == 9
    return fl.problems.from_mdps(
        P, r, np.full((10, 2), 0.5), rng.random((10, 8)), 0.9, terminal=ends, initial=np.append(np.ones(9) / 9, 0)
    )


WEIGHTS = np.arange(1.0, AGENTS + 1)
CASES = {
    "scafflsa": (garnet, fl.SCAFFLSA(0.1, 7), {}),
    "fedlsa, averaged and projected": (garnet, fl.FedLSA(0.5, 2, projection=0.5, average_after=2), {}),
    "scaffnew, decreasing steps, weights": (
        lambda: garnet(weights=WEIGHTS), fl.Scaffnew(fl.PowerStep(0.2, 0.5), 0.4), {"xi_0": True},
    ),
    "trajectories, thinned": (episodes, fl.SCAFFLSA(0.1, 5), {"sampling": fl.Markov(thin=2)}),
    "some take part": (lambda: garnet(weights=WEIGHTS), fl.SCAFFLSA(0.1, 3, participants=2), {}),
    "some take part on trajectories": (garnet, fl.FedLSA(0.1, 2, participants=2), {"sampling": fl.Markov()}),
    "ridge, two threads per agent": (lambda: regression(10, ridge=0.1), fl.SCAFFLSA(0.05, 5), {}),
    "replay": (lambda: regression(10), fl.FedLSA(0.02, 5), {"sampling": fl.Replay(thin=2)}),
    "dense": (lambda: dense(3), fl.SCAFFLSA(0.05, 5), {}),
    "dense, two threads per agent": (lambda: dense(9), fl.FedLSA(0.02, 3), {}),
    "single precision": (garnet, fl.SCAFFLSA(0.1, 5), {"dtype": "float32"}),
    "momentum": (garnet, MomentumSCAFFLSA(0.1, 4), {}),
    "momentum, some take part, projected": (garnet, MomentumFedLSA(0.1, 2, participants=2, projection=0.5), {}),
    "own steps": (lambda: garnet(weights=WEIGHTS), OwnStepsSCAFFLSA(0.1, 4), {"xi_0": True}),
    "own steps, trajectories": (garnet, OwnStepsSCAFFLSA(0.1, 4, participants=3), {"sampling": fl.Markov(thin=2)}),
    "own steps, two threads per agent": (lambda: regression(10), OwnStepsFedLSA(0.02, 3), {"dtype": "float32"}),
    "own steps, rounds that grow": (garnet, OwnStepsSCAFFLSA(0.1, fl.PowerLength(2, 0.7), participants=3), {}),
    "own steps, dense": (lambda: dense(9), OwnStepsSCAFFLSA(0.02, 2), {}),
}  # fmt: skip


def both(problem, algorithm, rounds, **keywords):
    """The same run on the GPU and on the processor."""
    keywords = {"seeds": SEEDS, "record": 4, "keep": ("theta", "xi"), **keywords}
    if keywords.get("xi_0") is True:
        xi = np.random.default_rng(3).standard_normal((problem.n_agents, problem.dim))
        keywords["xi_0"] = xi - problem.weights @ xi
    return [fl.simulate(problem, algorithm, rounds, engine=engine, **keywords) for engine in ("cuda", OTHER)]


def check_agreement(runs, keywords):
    """Of a run on the GPU with the same run on the processor."""
    on_gpu, on_cpu = runs
    tolerance = 1e-3 if keywords.get("dtype") == "float32" else 1e-9
    for part in ("theta", "xi"):
        size = max(1.0, float(np.abs(on_cpu[part]).max()))
        np.testing.assert_allclose(on_gpu[part], on_cpu[part], rtol=0, atol=tolerance * size)
    for part in ("samples", "communications", "uploads", "diverged_at"):
        np.testing.assert_array_equal(on_gpu[part], on_cpu[part])


@pytest.mark.parametrize("name", CASES)
def test_whole_runs_agree_with_the_cpu(name):
    make, algorithm, keywords = CASES[name]
    on_gpu, on_cpu = both(make(), algorithm, 2 * LONGER, **keywords)
    check_agreement((on_gpu, on_cpu), keywords)
    assert on_gpu.attrs["arguments"] == full_text(on_cpu.attrs["arguments"]).replace(f'"{OTHER}"', '"cuda"')


SPREAD = {
    "four steps at once": (lambda: garnet(features=12), fl.SCAFFLSA(0.1, 6), {"xi_0": True}),
    "trajectories, thinned": (episodes, fl.SCAFFLSA(0.1, 5), {"sampling": fl.Markov(thin=2)}),
    "a ridge": (lambda: regression(10, ridge=0.1), fl.SCAFFLSA(0.05, 5), {}),
    "some take part": (lambda: garnet(weights=WEIGHTS), fl.Scaffnew(0.1, 0.3, participants=4 * AGENTS // 5), {}),
    "averaged and projected": (lambda: garnet(features=9), fl.FedLSA(0.5, 2, projection=0.5, average_after=2), {}),
    "dense": (lambda: dense(9), fl.SCAFFLSA(0.02, 3), {}),
}


@pytest.mark.parametrize("name", SPREAD)
def test_agents_spread_over_blocks_give_the_same(name, monkeypatch):
    """Each seed has two or three blocks, however short its rounds, over two launches or more."""
    from fedlsa.engine.cuda import blocks, gpu_launch
    from fedlsa.engine.cuda.gpu_kernel import build

    monkeypatch.setattr(gpu_launch, "processors", lambda: 3 * SEEDS)
    monkeypatch.setattr(blocks, "SPREAD_STEPS", 0)
    monkeypatch.setattr(gpu_launch.Group, "segment", lambda self: 2)
    make, algorithm, keywords = SPREAD[name]
    problem, kinds = make(), []
    monkeypatch.setattr(gpu_launch, "build", lambda kind, hook: kinds.append(kind) or build(kind, hook))
    check_agreement(both(problem, algorithm, 3 * LONGER, **keywords), keywords)
    assert all(kind.parts >= 2 for kind in kinds)
    assert all(kind.ahead for kind in kinds) or name != "four steps at once"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("agents", [60, 600])
def test_agents_change_threads_from_round_to_round_without_a_race(agents, dtype):
    """Two thirds take part, over more than one warp: who follows whom must not depend on which warp is quicker."""
    if SIMULATED and (agents > 60 or dtype == "float32"):
        pytest.skip("the simulator takes too long")
    problem = fl.problems.garnet(agents=agents, states=12, seed=1, weights=np.arange(1.0, agents + 1))
    on_gpu, on_cpu = both(
        problem, fl.SCAFFLSA(0.3, 1, participants=2 * agents // 3), 4 * LONGER, seeds=SEEDS, dtype=dtype
    )
    tolerance = 1e-3 if dtype == "float32" else 1e-12
    for part in ("theta", "xi"):
        size = max(1.0, float(np.abs(on_cpu[part]).max()))
        np.testing.assert_allclose(on_gpu[part], on_cpu[part], rtol=0, atol=tolerance * size)
    assert np.abs(problem.weights @ on_gpu["xi"].values).max() <= 1e-12


@pytest.mark.skipif(SIMULATED, reason="many rounds")
@pytest.mark.parametrize("options", [{}, {"participants": 2}, {"average_after": 0}], ids=str)
def test_single_precision_does_not_drift_over_1e5_rounds(options):
    problem = fl.problems.garnet(agents=5, states=12, seed=1)
    method = fl.SCAFFLSA(0.1, 1, **options)
    on_gpu, on_cpu = both(problem, method, 100_000, seeds=1, dtype="float32")
    assert np.abs(problem.weights @ on_gpu["xi"].values).max() <= 1e-12
    np.testing.assert_allclose(on_gpu["theta"], on_cpu["theta"], rtol=0, atol=1e-4)


@pytest.mark.skipif(SIMULATED, reason="the simulator has no limit of shared memory")
@pytest.mark.parametrize(("dim", "rows"), [(40, 0), (64, 0), (128, 0), (128, 12), (64, 30), (100, 2)])
def test_blocks_stay_within_their_shared_memory(dim, rows):
    """Dense steps of many threads (rows = 0), and few rows that are long."""
    rng = np.random.default_rng(dim)
    if rows:
        sites = [(rng.standard_normal((rows, dim)) / dim, rng.standard_normal(rows)) for _ in range(3)]
        problem = fl.problems.regression(sites, ridge=0.5)
    else:
        A = np.eye(dim) + 0.1 / np.sqrt(dim) * rng.standard_normal((70, 2, dim, dim))
        problem = fl.problems.from_observations([(np.ones(2) / 2, a, rng.standard_normal((2, dim))) for a in A])
    on_gpu, on_cpu = both(problem, fl.SCAFFLSA(0.05, 3), 5, seeds=1)
    np.testing.assert_allclose(on_gpu["theta"], on_cpu["theta"], rtol=0, atol=1e-9)


def test_launches_that_are_cut_short_go_on_where_they_were(monkeypatch):
    from fedlsa.engine.cuda import gpu_launch

    monkeypatch.setattr(gpu_launch, "EXPECTED_SPEED", 1.0)  # one round per launch
    told = []
    problem = garnet()
    for a, keywords in (
        (fl.SCAFFLSA(0.1, 3), {"sampling": fl.Markov()}),
        (fl.Scaffnew(fl.PowerStep(0.2, 0.5), 0.5), {}),
    ):
        run = {"rounds": 3, "seeds": 1, "record": 4, **keywords}
        cut = fl.simulate(problem, a, engine="cuda", progress=lambda *now: told.append(now), **run)
        np.testing.assert_allclose(
            cut["theta"], fl.simulate(problem, a, engine=OTHER, **run)["theta"], rtol=0, atol=1e-12
        )
    assert len(told) >= 6
    assert told[-1][0] == pytest.approx(told[-1][1])


def test_rounds_of_one_step_go_on_in_the_middle_of_four_outcomes(monkeypatch):
    """Three rounds per launch: what was drawn ahead is drawn again by the next launch."""
    from fedlsa.engine.cuda import gpu_launch

    monkeypatch.setattr(gpu_launch, "EXPECTED_SPEED", 3.0 * AGENTS * SEEDS)
    check_agreement(both(garnet(weights=WEIGHTS), fl.SCAFFLSA(0.1, 1), 11), {})


def test_a_grid_gives_what_each_run_gives_alone_also_where_memory_is_short(monkeypatch):
    from fedlsa.engine.cuda import gpu_launch

    problems = [garnet(), garnet(preset="authors")]
    methods = [fl.FedLSA(0.1, 1), fl.SCAFFLSA(0.1, 2)]
    arguments = {"rounds": [1, 2], "seeds": 1, "record": 2}
    together = fl.simulate_grid(problems, methods, engine="cuda", **arguments)
    alone = fl.simulate_grid(problems, methods, engine=OTHER, **arguments)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one["theta"], other["theta"], rtol=0, atol=1e-12)
    parts = []
    monkeypatch.setattr(gpu_launch, "_run_at_once", lambda jobs, report: parts.append(len(jobs)) or [None] * len(jobs))
    jobs = [_job(p, a) for p in problems for a in methods]
    one = sum(gpu_launch._bytes(jobs[0]))
    monkeypatch.setattr(gpu_launch, "_free", lambda: int(1.2 * one))
    gpu_launch.run_all(jobs, None)
    assert sum(parts) == 4
    assert len(parts) >= 2
    monkeypatch.setattr(gpu_launch, "_free", lambda: one // 2)
    with pytest.raises(fl.errors.ArgumentError, match=r"memory.*fewer seeds"):
        gpu_launch.run_all(jobs, None)


def _job(problem, algorithm):
    from fedlsa.engine import jobs

    return jobs.make_job(problem, algorithm, 2, jobs.RunOptions(1, record=2, engine="cuda"))


class Halfway(fl.SCAFFLSA):
    """A server step of its own: half of the way to the average."""

    def server_parameters(self):
        return (0.5,)

    @staticmethod
    def server_step(theta, mean, parameters):
        for i in range(len(theta)):
            theta[i] += parameters[0] * (mean[i] - theta[i])


def test_a_method_of_ones_own_runs_with_its_server_step():
    on_gpu, on_cpu = both(garnet(), Halfway(0.1, 3), 2, seeds=1)
    np.testing.assert_allclose(on_gpu["theta"], on_cpu["theta"], rtol=0, atol=1e-12)


def test_runs_that_diverge_say_when():
    on_gpu, on_cpu = both(garnet(), fl.FedLSA(1e140, 1), 4, seeds=1)
    assert on_gpu["diverged_at"].values.tolist() == on_cpu["diverged_at"].values.tolist() != [-1]


def test_more_dimensions_than_threads_can_share_are_refused():
    with pytest.raises(fl.errors.ArgumentError, match=r"dim must be at most 128 .*got 200"):
        fl.simulate(regression(200, ridge=1.0), fl.FedLSA(0.01, 2), rounds=1, seeds=1, engine="cuda")


def test_streams_are_refused_and_left_to_the_processor():
    p = fl.problems.stream([[[1.0]]], [[0.5]], lambda agent, uniforms, u, v: uniforms[0], 1)
    for method in (fl.FedLSA(0.1, 2), fl.SVRG(0.1, 2)):
        with pytest.raises(fl.errors.ArgumentError, match="engine must be 'cpu' or 'reference' for a stream"):
            fl.simulate(p, method, rounds=1, seeds=1, engine="cuda")
    assert fl.simulate(p, fl.FedLSA(0.1, 2), rounds=1, seeds=1, engine="auto").sizes["seed"] == 1


class WarningKernel:
    """A kernel whose launches warn as Numba's do on small grids, when they are shaped and when they are made."""

    def __getitem__(self, shape):
        warnings.warn("Grid size 1 will likely result in GPU under-utilization", NumbaPerformanceWarning, stacklevel=2)
        return lambda *arguments: self[shape] and None


def test_no_warning_of_a_small_grid_reaches_a_user(monkeypatch):
    """Nor from the launch that only compiles."""
    from fedlsa.engine.cuda import gpu_launch

    monkeypatch.setattr(gpu_launch, "build", lambda kind, hook: WarningKernel())
    monkeypatch.setattr(gpu_launch, "SIMULATED", False)  # so that `advance(0)` is called
    monkeypatch.setattr(gpu_launch, "processors", lambda: 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpu_launch.run_all([_job(garnet(), fl.FedLSA(0.1, 1))], None)


@pytest.mark.skipif(SIMULATED, reason="the simulator never warns")
@pytest.mark.parametrize("steps", [1, 100])
def test_a_small_run_on_a_real_gpu_is_silent(steps):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fl.simulate(garnet(), fl.FedLSA(0.01, steps), rounds=2, seeds=1, engine="cuda")
    assert not [w for w in said if issubclass(w.category, NumbaPerformanceWarning)]


def test_auto_takes_the_gpu_only_for_what_is_worth_it(monkeypatch):
    from fedlsa.engine import cpu, reference

    monkeypatch.setattr(cpu, "run_all", lambda jobs, threads, report: reference.run_all(jobs, report))
    short = fl.simulate(garnet(), fl.FedLSA(0.1, 1), rounds=1, seeds=1, engine="auto")
    assert '"engine": "cpu"' in short.attrs["arguments"]


@pytest.mark.skipif(SIMULATED, reason="sizes for a real GPU")
@pytest.mark.parametrize(
    ("agents", "features"), [(1, 8), (33, 8), (512, 8), (513, 8), (3000, 8), (20, 32), (20, 128), (100_000, 8)]
)
def test_sizes_from_one_agent_to_many_and_from_few_dimensions_to_128(agents, features):
    problem = fl.problems.garnet(agents=agents, states=max(30, 2 * features), features=features, perturbation=0)
    on_gpu, on_cpu = both(problem, fl.SCAFFLSA(0.1, 6), 20, seeds=3)
    size = max(1.0, float(np.abs(on_cpu["theta"]).max()))
    np.testing.assert_allclose(on_gpu["theta"], on_cpu["theta"], rtol=0, atol=1e-9 * size)
