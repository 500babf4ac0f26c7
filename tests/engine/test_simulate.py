"""`simulate`: what it refuses, what it says while it works, and what it does when a run diverges."""

import os
import signal
import threading
import warnings

import numpy as np
import pytest
from numba import float64, int64

import fedlsa as fl
from fedlsa.engine import cpu, cpu_kernel, outcome_tables, progress
from fedlsa.engine.jobs import ENGINES
from fedlsa.engine.task_struct import TaskStruct
from fedlsa.errors import ArgumentError, ArgumentTypeError, DivergenceWarning, FedLSAError, UnknownNameError

N, D = 5, 8
nan = float("nan")


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=N, states=12, seed=1)


@pytest.fixture(scope="module")
def log():
    g = np.random.default_rng(0)
    return fl.problems.regression([(g.normal(size=(9, D)) / 4, g.normal(size=9)) for _ in range(2)])


def uneven():
    xi = np.zeros((N, D))
    xi[0, 0] = 1
    return xi


WRONG = [  # changed arguments, class, beginning of the message, end of the message
    ({"problem": "garnet"}, ArgumentTypeError, "problems must be", "got 'garnet'"),
    ({"problem": None}, ArgumentTypeError, "problems must be", "got None"),
    ({"problem": [1]}, ArgumentTypeError, "problem must be", "got 1"),
    ({"problem": []}, ArgumentError, "problems must not be empty", "got []"),
    ({"algorithm": "FedLSA"}, ArgumentTypeError, "algorithm must have its settings", "got 'FedLSA'"),
    ({"algorithm": fl.FedLSA}, ArgumentTypeError, "algorithm must have its settings", "FedLSA'>"),
    ({"algorithm": "FedLAS"}, UnknownNameError, "algorithm must be one of", "did you mean 'fedlsa'?"),
    ({"rounds": 0}, ArgumentError, "rounds must be a positive integer", "got 0"),
    ({"rounds": -3}, ArgumentError, "rounds", "got -3"),
    ({"rounds": 10.0}, ArgumentTypeError, "rounds", "got 10.0"),
    ({"rounds": [5, 6]}, ArgumentError, "rounds must be one number per algorithm, 1", "got 2"),
    ({"rounds": 2**40}, ArgumentError, "rounds times observations", "got 1099511627776 rounds"),
    ({"seeds": 0}, ArgumentError, "seeds must be a positive integer", "got 0"),
    ({"seeds": -1}, ArgumentError, "seeds", "got -1"),
    ({"seeds": [3, -1]}, ArgumentError, "seeds must be a non-negative integer", "got -1"),
    ({"seeds": [2**64]}, ArgumentError, "seeds", "got 18446744073709551616"),
    ({"seeds": [1, 2, 1]}, ArgumentError, "seeds must be distinct", "got [1, 2, 1]"),
    ({"seeds": []}, ArgumentError, "seeds must hold at least one", "empty sequence"),
    ({"seeds": "ten"}, ArgumentTypeError, "seeds", "got 'ten'"),
    ({"seeds": [0.5]}, ArgumentTypeError, "seeds", "got 0.5"),
    ({"theta_0": np.zeros(7)}, ArgumentError, "theta_0 must be an array of finite numbers of shape (8,)", "shape (7,)"),
    ({"theta_0": 0.0}, ArgumentError, "theta_0", "shape ()"),
    ({"theta_0": [nan] * 8}, ArgumentError, "theta_0", "got nan at [0]"),
    ({"theta_0": [0.0] * 7 + [np.inf]}, ArgumentError, "theta_0", "got inf at [7]"),
    ({"theta_0": "zero"}, ArgumentTypeError, "theta_0", "got 'zero'"),
    ({"xi_0": np.zeros(8)}, ArgumentError, "xi_0 must be an array of finite numbers of shape (5, 8)", "shape (8,)"),
    ({"xi_0": np.full((N, D), nan)}, ArgumentError, "xi_0", "got nan at [0, 0]"),
    ({"xi_0": uneven()}, ArgumentError, "xi_0 must have a weighted sum of 0", "got a sum of size 0.2"),
    ({"sampling": "iid"}, ArgumentTypeError, "sampling must be", "got 'iid'"),
    ({"sampling": fl.IID}, ArgumentTypeError, "sampling must be", "IID'>"),
    ({"sampling": fl.Replay()}, ArgumentError, "sampling must be IID() or Markov()", "made by garnet"),
    ({"sampling": fl.Markov(thin=11)}, ArgumentError, "local_steps must be at least thin, 11", "got 10"),
    ({"sampling": fl.Markov(start=(0, 1))}, ArgumentError, "start must hold one state per agent, 5", "got 2"),
    ({"sampling": fl.Markov(start=(0, 0, 12, 0, 0))}, ArgumentError, "start", "for agent 2; got 12"),
    ({"engine": "cpus"}, UnknownNameError, "engine must be one of", "did you mean 'cpu'?"),
    ({"engine": "referense"}, UnknownNameError, "engine", "did you mean 'reference'?"),
    ({"engine": 1}, ArgumentTypeError, "engine", "got 1"),
    ({"record": 1}, ArgumentError, "record", "got 1"),
    ({"record": []}, ArgumentError, "record must hold at least one round", "empty sequence"),
    ({"record": [0, 21]}, ArgumentError, "record", "got 21"),
    ({"record": [3, 2]}, ArgumentError, "record must hold distinct rounds in increasing order", "got 2 after 3"),
    ({"record": [0.5]}, ArgumentTypeError, "record", "got 0.5"),
    ({"record": "all"}, ArgumentTypeError, "record", "got 'all'"),
    ({"keep": "theta"}, ArgumentTypeError, "keep must be a sequence of names", "got 'theta'"),
    ({"keep": ("thetas",)}, UnknownNameError, "keep", "did you mean 'theta'?"),
    ({"keep": 3}, ArgumentTypeError, "keep", "got 3"),
    ({"dtype": "float"}, UnknownNameError, "dtype must be one of 'float64', 'float32'", None),
    ({"dtype": np.float32}, ArgumentTypeError, "dtype", None),
    ({"threads": 0}, ArgumentError, "threads", "got 0"),
    ({"threads": 1.5}, ArgumentTypeError, "threads", "got 1.5"),
    ({"progress": "bar"}, ArgumentTypeError, "progress", "got 'bar'"),
    ({"algorithm": fl.FedLSA(0.1, 10, participants=6)}, ArgumentError, "participants must be at most", "got 6"),
]


@pytest.mark.parametrize(("change", "kind", "begins", "ends"), WRONG)
@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_wrong_arguments_are_refused_with_their_name_and_value(problem, engine, change, kind, begins, ends):
    arguments = {"problem": problem, "algorithm": fl.FedLSA(0.1, 10), "rounds": 20, "seeds": 2, "engine": engine}
    with pytest.raises(FedLSAError) as caught:
        fl.simulate(**{**arguments, **change})
    assert type(caught.value) is kind
    assert str(caught.value).startswith(begins)
    assert ends is None or str(caught.value).endswith(ends)


def test_a_trajectory_needs_a_chain_and_a_grid_needs_a_list(problem, log):
    with pytest.raises(ArgumentError, match=r"sampling must be IID\(\) or Replay\(\).*made by regression"):
        fl.simulate(log, fl.FedLSA(0.1, 10), 5, 1, sampling=fl.Markov())
    with pytest.raises(ArgumentTypeError, match="algorithms must be a sequence of methods"):
        fl.simulate_grid(problem, fl.FedLSA(0.1, 10), 5, 1)
    with pytest.raises(ArgumentError, match="algorithms must not be empty"):
        fl.simulate_grid(problem, [], 5, 1)
    with pytest.raises(ArgumentTypeError, match="problem must be a fedlsa problem; got None"):
        fl.simulate_grid([problem, None], [fl.FedLSA(0.1, 10)], 5, 1)


def test_a_grid_takes_any_iterable_of_problems_and_algorithms(problem):
    algorithms = [fl.FedLSA(0.1, 2), fl.SCAFFLSA(0.1, 2)]
    lists = fl.simulate_grid([problem], algorithms, [3, 4], 2)
    streams = fl.simulate_grid(iter([problem]), iter(algorithms), iter([3, 4]), iter(range(2)))
    assert all(a.identical(b) for a, b in zip(lists, streams, strict=True))


def test_recorded_rounds_are_a_count_with_both_ends_or_those_listed(problem):
    def recorded(record):
        return fl.simulate(problem, fl.FedLSA(0.1, 2), 20, 1, record=record)["rounds"].values.tolist()

    assert recorded(2) == [0, 20]
    assert recorded(5) == [0, 5, 10, 15, 20]
    assert recorded(200) == list(range(21))
    assert recorded([3, 7]) == [3, 7]
    all_rounds = fl.simulate(problem, fl.FedLSA(0.1, 2), 20, 3, record=21)
    some = fl.simulate(problem, fl.FedLSA(0.1, 2), 20, 3, record=[3, 7])
    np.testing.assert_array_equal(some["theta"].values, all_rounds["theta"].sel(rounds=[3, 7]).values)


def test_a_longer_run_goes_on_where_a_shorter_one_stopped(problem):
    short = fl.simulate(problem, fl.SCAFFLSA(0.1, 7), 6, 3, record=7)["theta"].values
    long = fl.simulate(problem, fl.SCAFFLSA(0.1, 7), 20, 3, record=21)["theta"].values
    np.testing.assert_array_equal(short, long[:, :7])


# ---------------------------------------------------------------- divergence


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_configuration_that_diverges_warns_once_and_leaves_the_others_alone(problem, engine):
    wild, tame = fl.FedLSA(60.0, 10), fl.FedLSA(0.1, 10)
    with pytest.warns() as caught:
        a, b, c = fl.simulate_grid(problem, [tame, wild, tame], [30, 60, 30], 2, record=61, engine=engine)
    assert [w.category for w in caught] == [DivergenceWarning]
    at = b["diverged_at"].values
    said = f"FedLSA(step_size=60.0, local_steps=10) (2 of 2 seeds, from round {at.min()} on)"
    limit = fl.theory.stability_limit(problem, wild)
    advice = f"try a smaller step_size, below the stability limit of about {limit:.3g}"
    assert str(caught[0].message) == f"1 of 3 configurations diverged: {said}: {advice}"
    assert caught[0].filename == __file__
    assert (at > 0).all()
    for s in range(2):
        lost = b["rounds"].values >= at[s]
        theta = b["theta"].values[s]
        assert np.isnan(theta[lost]).all()
        assert np.isfinite(theta[~lost]).all()
        assert (np.isnan(b["squared_error"].values[s]) == lost).all()
    assert (a["diverged_at"].values == -1).all()
    assert a.identical(c)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert a.identical(fl.simulate(problem, tame, 30, 2, record=61, engine=engine))


def test_both_engines_diverge_in_the_same_round(problem):
    found = []
    for engine in ("cpu", "reference"):
        with pytest.warns(DivergenceWarning):
            r = fl.simulate(problem, fl.SCAFFLSA(30.0, 5), 100, 3, engine=engine)
        found.append(r["diverged_at"].values.tolist())
    assert found[0] == found[1]


def test_a_seed_that_diverges_does_not_touch_its_neighbours():
    """log |theta| is a symmetric random walk with steps of two decades: only some seeds pass 1e154 in time."""
    up, down = -99.0 * np.eye(6), 0.99 * np.eye(6)
    p = fl.problems.from_observations([([0.5, 0.5], np.stack([up, down]), np.ones((2, 6)))])
    with pytest.warns(DivergenceWarning, match="runs diverged"):
        together = fl.simulate(p, fl.FedLSA(1.0, 1), 6000, 20, record=4)
    at = together["diverged_at"].values
    assert 0 < (at >= 0).sum() < 20
    assert len(set(at[at >= 0])) > 1
    for s in range(20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergenceWarning)
            alone = fl.simulate(p, fl.FedLSA(1.0, 1), 6000, [s], record=4)
        assert alone["diverged_at"].values[0] == at[s]
        np.testing.assert_array_equal(alone["theta"].values[0], together["theta"].values[s])


# ---------------------------------------------------------------- precision


def test_single_precision_follows_double_precision_to_a_thousandth(problem):
    algorithms = [
        fl.FedLSA(0.1, 10),
        fl.SCAFFLSA(0.1, 10, participants=3),
        fl.SCAFFLSA(0.1, 40, projection=1.0, average_after=5),
    ]
    arguments = {"rounds": 30, "seeds": 3, "keep": ("theta", "xi")}
    single = fl.simulate_grid(problem, algorithms, dtype="float32", **arguments)
    double = fl.simulate_grid(problem, algorithms, **arguments)
    slow = fl.simulate_grid(problem, algorithms, dtype="float32", engine="reference", **arguments)
    for a, b, c in zip(single, double, slow, strict=True):
        assert a["theta"].dtype == c["theta"].dtype == np.float64  # local steps alone are in single precision
        assert (a["theta"].values != b["theta"].values).any()
        for name in ("theta", "xi"):
            scale = np.abs(b[name].values).max()
            assert np.abs(a[name].values - b[name].values).max() <= 1e-3 * scale
            assert np.abs(a[name].values - c[name].values).max() <= 1e-3 * scale


@pytest.mark.parametrize("options", [{}, {"participants": 2}, {"average_after": 0}], ids=str)
def test_single_precision_does_not_drift_over_1e5_rounds(problem, options):
    """Rounding the server's sums would move sum_c w_c xi_c linearly, and would stop a running mean after 1e5 terms."""
    method, arguments = fl.SCAFFLSA(0.1, 1, **options), {"rounds": 100_000, "seeds": 1, "keep": ("theta", "xi")}
    single = fl.simulate(problem, method, dtype="float32", record=[100_000], **arguments)
    double = fl.simulate(problem, method, record=[100_000], **arguments)
    assert np.abs(problem.weights @ single["xi"].values[0]).max() <= 1e-12
    np.testing.assert_allclose(single["theta"].values, double["theta"].values, rtol=0, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_work_that_would_never_end_is_refused_at_the_door_of_every_engine(problem, engine):
    with pytest.raises(ArgumentError, match=r"observations of Scaffnew must be at most .* in a round.*got 9"):
        fl.simulate(problem, fl.Scaffnew(0.1, 1e-9), 3, 1, engine=engine)
    with pytest.raises(ArgumentError, match="rounds times observations per round must be below"):
        fl.simulate(problem, fl.FedLSA(0.1, 100), 10**9, 1, engine=engine)
    with pytest.raises(ArgumentError, match=r"observations must be at most .* of all agents and seeds.*got 5e\+15"):
        fl.simulate(problem, fl.FedLSA(0.1, 1000), 10**6, 10**6, engine=engine, record=2)


def test_a_round_or_a_reading_that_would_take_hours_is_refused(problem):
    with pytest.raises(ArgumentError, match="observations of FedLSA must be at most 134,217,728 in a round"):
        fl.simulate(problem, fl.FedLSA(0.1, 10**9), 3, 1, sampling=fl.Markov(thin=10**9))
    with pytest.raises(ArgumentError, match=r"which is to be read; got 5e\+09: use engine=.cpu."):
        fl.simulate(problem, fl.FedLSA(0.1, 10**6), 1000, 1, engine="reference")
    with pytest.raises(ArgumentError, match=r"start must be .* at most"):
        fl.Markov(start=range(10**12))


# ---------------------------------------------------------------- the server's own step


class Raising(fl.FedLSA):
    @staticmethod
    def server_step(theta, mean, parameters):
        for i in range(len(theta)):
            theta[i] = mean[i] + 1.0
        if theta[0] > 3.0:
            raise ValueError("too far")


class OutOfRange(fl.FedLSA):
    @staticmethod
    def server_step(theta, mean, parameters):
        theta[0] = parameters[3]


class Dividing(fl.FedLSA):
    """Divides by zero from the second round on."""

    @staticmethod
    def server_step(theta, mean, parameters):
        for i in range(len(theta)):
            theta[i] = mean[i] + 1.0
        theta[1] = 1.0 / (theta[1] - theta[1] if theta[0] > 3.0 else 1.0)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_what_a_server_step_raises_ends_the_run_with_its_round(problem, engine):
    start = np.full(problem.dim, 0.5)  # 3.5 after three rounds, up to steps of 1e-9
    with pytest.raises(ArgumentError, match=r"^server_step of Raising must .* in round 3 ValueError: too far$"):
        fl.simulate(problem, Raising(1e-9, 1), 9, 3, start, engine=engine)
    with pytest.raises(ArgumentError, match="server_step of OutOfRange must not raise; got in round 1 IndexError"):
        fl.simulate(problem, OutOfRange(0.1, 1), 2, 1, engine=engine)
    with pytest.warns(fl.errors.DivergenceWarning):
        r = fl.simulate(problem, Dividing(1e-9, 1), 5, 1, start, engine=engine)
    assert r["diverged_at"].values.tolist() == [3]


def test_a_server_step_that_can_raise_is_refused_where_nothing_can_be_raised():
    from fedlsa.engine.hooks import refuse_raising

    refuse_raising("server_step", Dividing, Dividing.server_step)
    with pytest.raises(ArgumentError, match="server_step of Raising must not raise with engine='cuda'"):
        refuse_raising("server_step", Raising, Raising.server_step)


# ---------------------------------------------------------------- progress, interruption, notices


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("threads", [1, 2])
def test_progress_grows_to_its_total(problem, engine, threads):
    seen = []
    algorithms = [fl.FedLSA(0.1, 7), fl.Scaffnew(0.1, 0.3)]
    fl.simulate_grid(
        problem, algorithms, 10, 3, engine=engine, threads=threads, progress=lambda *given: seen.append(given)
    )
    done, total = zip(*seen, strict=True)
    assert len(set(total)) == 1
    assert sorted(done) == list(done)
    assert done[-1] == total[0]
    assert len(done) > 1


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interruption_stops_the_run_promptly(threads):
    problem = fl.problems.garnet(agents=100, states=12, seed=1)
    fl.simulate(problem, fl.FedLSA(0.1, 1), 1, 1)  # compiled by now
    calls = []

    def interrupt(done, total):
        calls.append(done / total)
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fl.simulate(problem, fl.FedLSA(0.1, 1000), 10**5, 10, threads=threads, progress=interrupt)  # 1e11 updates
    assert 0 < calls[-1] < 0.1  # and none after it


def test_ctrl_c_is_raised_between_the_calls_of_a_pool_not_amid_its_locks():
    went_on = []

    def progress(done, total):
        if done:
            os.kill(os.getpid(), signal.SIGINT)
            went_on.append(sum(range(1000)))  # where it would be raised otherwise

    with pytest.raises(KeyboardInterrupt):
        fl.simulate(fl.problems.garnet(agents=20), fl.FedLSA(0.1, 1000), 10**5, 10, threads=2, progress=progress)
    assert went_on
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_bar_ends_at_a_hundred_percent(problem, capsys):
    fl.simulate(problem, fl.FedLSA(0.1, 7), 10, 2, progress=True)
    shown = capsys.readouterr().err
    assert "100%" in shown
    assert "updates/s" in shown
    assert shown.endswith("\n")
    fl.simulate(problem, fl.FedLSA(0.1, 7), 10, 2)
    assert capsys.readouterr().err == ""


def test_a_notice_is_given_once_and_only_when_the_work_takes_long(monkeypatch):
    said, heard = [], threading.Event()
    monkeypatch.setattr(progress, "print", lambda text, **_: (said.append(text), heard.set()), raising=False)
    with progress.notice("compiling", after=0.01):
        assert heard.wait(60)
    before = set(threading.enumerate())  # a timer that has just been called off may still be among them
    with progress.notice("compiling", after=60):
        (timer,) = (t for t in set(threading.enumerate()) - before if isinstance(t, threading.Timer))
    timer.join(30)  # it has been called off
    assert not timer.is_alive()
    assert said == ["compiling"]


def test_kernels_are_looked_up_once_for_a_configuration_however_many_seeds_run_alone(problem, monkeypatch):
    looked, compile_for = [], cpu.compile_for
    monkeypatch.setattr(cpu, "compile_for", lambda job: (looked.append(job), compile_for(job))[1])
    fl.simulate_grid(problem, [fl.Scaffnew(0.1, 0.5), fl.SCAFFLSA(0.1, 2, participants=2)], 2, 7)
    assert len(looked) == 2


def test_a_kernel_is_compiled_once_for_all_methods_and_announced_once(problem, monkeypatch):
    said, notice = [], progress.notice
    monkeypatch.setattr(cpu, "notice", lambda text: (said.append(text), notice(text))[1])
    kernels = []
    monkeypatch.setattr(cpu, "kernels", lambda job: (kernels.append(cpu_kernel.kernels(job)), kernels[-1])[1])
    fl.simulate_grid(problem, [fl.FedLSA(0.1, 7), fl.Scaffnew(0.1, 0.5)], 2, 1)
    assert len(said) == 1
    fl.simulate(problem, fl.SCAFFLSA(0.2, 3, participants=2, projection=1.0), 2, 3)
    one, two, other = kernels
    assert one == two == {name: other[name] for name in one}


# ---------------------------------------------------------------- again


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        (fl.FedLSA(0.1, 7), {}),
        (
            fl.SCAFFLSA(fl.PowerStep(0.3, 0.5), 7, participation=0.6, projection=3.0),
            {"record": [0, 3, 10], "seeds": [4, 2**63]},
        ),
        (fl.Scaffnew(0.1, 0.2, average_after=3), {"sampling": fl.Markov(thin=2, start=(0, 1, 2, 3, 4))}),
        (fl.SCAFFLSA(0.1, 7), {"theta_0": np.arange(8.0) / 7, "xi_0": uneven() - uneven().mean(axis=0)}),
    ],
    ids=["plain", "options", "trajectory", "start"],
)
def test_a_result_knows_how_to_make_itself_again(problem, algorithm, changes, tmp_path):
    r = fl.simulate(problem, algorithm, **{"rounds": 10, "seeds": 3, "keep": ("theta", "xi"), **changes})
    assert r.identical(fl.simulate(**fl.results.arguments(r)))
    fl.results.save(r, tmp_path / "run.nc")
    loaded = fl.results.load(tmp_path / "run.nc")
    assert r.identical(loaded)
    assert r.identical(fl.simulate(**fl.results.arguments(loaded)))


def test_a_record_stores_numbers_by_the_kind_of_their_field():
    record = TaskStruct({"count": int64, "radius": float64, "list": (float64,)})
    record.put(count=np.int64(3), radius=2, list=np.ones(2))
    assert record.words[0] == 3
    assert record.words.view(np.float64)[1] == 2.0


@pytest.mark.parametrize("sampling", [fl.IID(), fl.Markov()], ids=str)
def test_alias_tables_are_made_once_per_problem(sampling, monkeypatch):
    made, alias_tables = [], outcome_tables.alias_tables
    monkeypatch.setattr(outcome_tables, "alias_tables", lambda *args: (made.append(args), alias_tables(*args))[1])
    p = fl.problems.garnet(agents=2, states=5, features=2, seed=11)
    runs = [fl.simulate(p, fl.FedLSA(0.1, 2), rounds=2, seeds=1, sampling=sampling) for _ in range(3)]
    fl.simulate_grid([p, p], [fl.SCAFFLSA(0.1, 2)], rounds=2, seeds=1, sampling=sampling)
    assert len(made) == (1 if sampling == fl.IID() else 2)  # outcomes, and first states
    assert all(run.identical(runs[0]) for run in runs)
    other = fl.problems.garnet(agents=2, states=5, features=2, seed=12)
    assert not fl.simulate(other, fl.FedLSA(0.1, 2), rounds=2, seeds=1, sampling=sampling).identical(runs[0])
