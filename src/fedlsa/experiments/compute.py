"""What each kind of cell computes: from its settings to a dataset. Plain functions of plain values.

A setting "problem" holds the arguments of `fl.problems.garnet`; "method" and its parameters make the algorithm.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from .. import engine, problems, theory
from ..algorithms import METHODS, Algorithm, FedLSA
from ..checks import Floats
from ..errors import TheoryWarning
from ..problems import Problem
from ..sampling import IID, Markov, Sampling
from ..theory import fedlsa
from ..theory.exact import controlled_round
from ..theory.local_steps import repeated
from ..theory.moments import moments
from ..theory.pairs import pair_map
from ..theory.symmetric import smat
from . import baselines, markov_cells, planning, value_cells
from .cells import Cell

Settings = Mapping[str, Any]
Report = Callable[[float, float], None]


@functools.lru_cache(maxsize=8)
def _garnet(arguments: tuple[tuple[str, Any], ...]) -> Problem:
    return problems.garnet(**dict(arguments))


def problem(settings: Settings) -> Problem:
    """The Garnet problem of a cell; cells of one problem share it while it is in use."""
    return _garnet(tuple(sorted(settings["problem"].items())))


def algorithm(settings: Settings) -> Algorithm:
    """The method of a cell."""
    own = {k: settings[k] for k in ("step_size", "local_steps", "probability") if k in settings}
    return METHODS[settings["method"]](**own)


def sampling(settings: Settings) -> Sampling:
    """i.i.d., or trajectories of which every `thin`-th observation is used."""
    return Markov(thin=settings["thin"]) if "thin" in settings else IID()


def _bias(p: Problem, a: FedLSA) -> Floats:
    assert isinstance(a.step_size, float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)  # the paper's own step sizes pass its limits
        return theory.bias(p, a.step_size, a.local_steps)


def simulated(settings: Settings, how: Mapping[str, Any], report: Report | None) -> xr.Dataset:
    """A simulation; "start": "limit" begins at theta_star plus the limit bias, with the ideal control variates."""
    p, a = problem(settings), algorithm(settings)
    start: dict[str, Any] = {}
    if settings.get("start") == "limit":
        start = (
            {"theta_0": p.theta_star + _bias(p, a)}
            if isinstance(a, FedLSA)
            else {"theta_0": p.theta_star, "xi_0": p.xi_star}
        )
    return engine.simulate(
        p,
        a,
        rounds=settings["rounds"],
        seeds=settings["seeds"],
        sampling=sampling(settings),
        record=settings["record"],
        progress=report,
        **start,
        **how,
    )


def exact(settings: Settings, how: Mapping[str, Any], report: Report | None) -> xr.Dataset:
    """The exact error curve, with theta_star and, for FedLSA, the limit bias."""
    p, a = problem(settings), algorithm(settings)
    curve = theory.exact(p, a, rounds=settings["rounds"], record=settings["record"], sampling=sampling(settings))
    curve = curve.assign(theta_star=("dim", p.theta_star))
    if isinstance(a, FedLSA):
        curve = curve.assign(bias=("dim", _bias(p, a)))
    return curve


def limit(settings: Settings, how: Mapping[str, Any], report: Report | None) -> xr.Dataset:
    """The stationary law without its radius: mse, squared bias, variance, mean and covariance."""
    end = theory.stationary(problem(settings), algorithm(settings))
    values = {"mse": end.mse, "squared_bias": float(end.bias @ end.bias), "variance": end.variance}
    return _law(end.mean, end.covariance).assign({k: ((), v) for k, v in values.items()})


def _law(mean: Floats, covariance: Floats) -> xr.Dataset:
    return xr.Dataset({"mean": ("dim", mean), "covariance": (("dim", "other"), covariance)})


def law(settings: Settings, how: Mapping[str, Any], report: Report | None) -> xr.Dataset:
    """Exact mean (d,) and covariance (d, d) of theta after the last round; round by round, without any short cut."""
    p, a, T = problem(settings), algorithm(settings), settings["rounds"]
    m, eta = moments(p), settings["step_size"]
    u = np.ones(m.dim)  # where `simulate` begins
    if isinstance(a, FedLSA):
        whole, v = repeated(fedlsa.round_map(m, eta, a.local_steps, -m.xi_star).steps, T), np.append(u, 1.0)
        u, U = (whole.M[0] @ v)[:-1], smat(whole.D[0] @ v @ v, m.dim)
    else:
        pairs = pair_map(controlled_round(m, a, eta))
        state = pairs.start(u, -m.xi_star[m.table])
        for _ in range(T):
            state = pairs.advance(state)
        u, U, _ = pairs.common(state)
    found = _law(m.theta_star + u, U).assign(theta_star=("dim", m.theta_star))
    return found.assign(bias=("dim", _bias(p, a))) if isinstance(a, FedLSA) else found


KINDS: dict[str, Callable[[Settings, Mapping[str, Any], Report | None], xr.Dataset]] = {
    "simulate": simulated,
    "exact": exact,
    "limit": limit,
    "law": law,
    "plan": planning.planned,
    "promise": planning.promised,
    "lower-bound": planning.lower_bound,
    "one-shot": baselines.one_shot,
    "markov": markov_cells.simulated,
    "markov-exact": markov_cells.exact,
    "values": value_cells.value_errors,
}


def updates(cell: Cell) -> float:
    """How many agent updates a cell makes: what its share of the progress is measured in."""
    s = cell.settings
    if cell.kind not in ("simulate", "markov"):
        return 0.0
    length = 1 / s["probability"] if "probability" in s else s.get("updates") or s["local_steps"] // s.get("thin", 1)
    return float(s["problem"]["agents"]) * s["rounds"] * length * s["seeds"]


def compute(cell: Cell, how: Mapping[str, Any] | None = None, report: Report | None = None) -> xr.Dataset:
    """The result of a cell; how : engine and threads of a simulation, on which no result depends."""
    return KINDS[cell.kind](cell.settings, how or {}, report)
