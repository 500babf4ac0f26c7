"""What a machine without a GPU says."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import config

import fedlsa as fl
from fedlsa.engine import cuda
from fedlsa.engine.jobs import JobOutcome

PROBLEM = fl.problems.garnet(agents=2, states=12, features=8)


@pytest.mark.skipif(bool(config.ENABLE_CUDASIM) or cuda.available(), reason="there is a GPU here, or a simulated one")
def test_without_a_gpu_one_line_says_what_to_install():
    with pytest.raises(
        fl.errors.MissingExtraError, match=r"engine='cuda' needs a GPU: .*pip install 'fedlsa\[cuda\]'"
    ) as told:
        fl.simulate(PROBLEM, fl.FedLSA(0.1, 2), rounds=2, seeds=1, engine="cuda")
    assert "\n" not in str(told.value)


def test_auto_stays_on_the_cpu_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(cuda, "available", lambda: False)
    monkeypatch.setattr(cuda, "LEAST_UPDATES", 0.0)
    run = fl.simulate(PROBLEM, fl.FedLSA(0.1, 2), rounds=3, seeds=1, engine="auto")
    same = fl.simulate(PROBLEM, fl.FedLSA(0.1, 2), rounds=3, seeds=1, engine="cpu")
    assert run.identical(same)


def test_auto_takes_a_gpu_that_is_there_for_what_is_worth_it(monkeypatch):
    taken = []

    def run_all(jobs, report):
        taken.append(len(jobs))
        outcome = np.zeros((1, 2, PROBLEM.dim)), np.zeros((1, 2), np.int64)
        return [JobOutcome(*outcome, job.start) for job in jobs]

    monkeypatch.setattr(cuda, "takes", lambda jobs: True)
    monkeypatch.setattr(cuda, "LEAST_UPDATES", 10.0)
    monkeypatch.setattr(cuda, "run_all", run_all)
    run = fl.simulate(PROBLEM, fl.FedLSA(0.1, 2), rounds=3, seeds=1, engine="auto", record=2)
    assert taken == [1]
    assert '"engine": "cuda"' in run.attrs["arguments"]
    short = fl.simulate(PROBLEM, fl.FedLSA(0.1, 2), rounds=2, seeds=1, engine="auto", record=2)
    assert '"engine": "cpu"' in short.attrs["arguments"]


AUTO = """
import numpy as np
import fedlsa as fl
from fedlsa.engine import cuda
from fedlsa.engine.cuda import gpu_launch
from fedlsa.engine.jobs import RunOptions
from fedlsa.engine.simulation import prepare

class Raising(fl.FedLSA):
    @staticmethod
    def server_step(theta, mean, parameters):
        if mean[0] > 1e300:
            raise ValueError("never")
        theta[:] = mean

def engine(problem, algorithm):
    return prepare(problem, [algorithm], 1, RunOptions(1, engine="auto"))[1].engine

def wide(d):
    return fl.problems.from_observations([([1.0], np.eye(d)[None], np.ones((1, d)))])

cuda.LEAST_UPDATES = 0.0
small, method = fl.problems.ring(agents=2), fl.FedLSA(0.1, 1)
print(engine(small, method), engine(wide(140), method), engine(small, Raising(0.1, 1)))
gpu_launch._free = lambda: 100
print(engine(small, method))
"""


def test_auto_runs_on_the_cpu_what_a_gpu_would_refuse():
    """A dimension of 140, a server step that can raise, more memory than is free: on a simulated device."""
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    ran = subprocess.run([sys.executable, "-c", AUTO], env=env, capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["cuda", "cpu", "cpu", "cpu"], ran.stderr
