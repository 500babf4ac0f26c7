"""Federated Richardson-Romberg: two runs of one method, at step sizes eta and 2 eta, combined into one estimate.

The bias of FedLSA begins with a term proportional to eta (theory.first_order_bias). It is twice as large in the run at
2 eta, so 2 theta_eta - theta_2eta is without it; what is left falls like (eta H)^2 while eta H is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..algorithms import PowerStep
from ..errors import ArgumentError
from ..value_objects import same, shown
from . import recipe

if TYPE_CHECKING:
    import xarray as xr

SAME = ("sampling", "rounds", "theta_0", "xi_0", "dtype")  # of the arguments of a run; the engine does not matter


def richardson_romberg(fine: xr.Dataset, coarse: xr.Dataset) -> xr.Dataset:
    """2 theta_eta - theta_2eta, in the form of a result.

    fine, coarse : results of simulate on one problem with one method, sampling, start, seeds and recorded rounds, where
        coarse has twice the step size of fine. Equal seeds see equal observations, which keeps the variance down.

    Uploads and samples are those of both runs together. Communications are those of one: the runs are independent of
    each other, so they can share their rounds. A seed has diverged where either run has. Control variates are dropped.
    """
    for name, result in (("fine", fine), ("coarse", coarse)):
        recipe.require_result(name, result)
        if "theta" not in result:
            raise ArgumentError(f'{name} must hold theta, so run simulate with keep=("theta",); got none')
    _check_pair(fine, coarse)
    theta = 2 * fine["theta"].values - coarse["theta"].values
    error = theta.astype(np.float64) - np.asarray(fine.attrs["theta_star"])
    first, second = fine["diverged_at"].values, coarse["diverged_at"].values
    earliest = np.where((first < 0) | (second < 0), np.maximum(first, second), np.minimum(first, second))
    both = fine.drop_vars("xi", errors="ignore").copy()
    for name, values in (
        ("theta", theta),
        ("squared_error", np.einsum("srd,srd->sr", error, error)),
        ("uploads", fine["uploads"].values + coarse["uploads"].values),
        ("samples", fine["samples"].values + coarse["samples"].values),
        ("diverged_at", earliest),
    ):
        both[name] = both[name].copy(data=values)
    both.attrs = dict(fine.attrs)
    label = f"Richardson-Romberg({fine.attrs['method']})"
    runs = {name: recipe.value(r.attrs["algorithm"]) for name, r in (("fine", fine), ("coarse", coarse))}
    settings = {k: v for k, v in runs["fine"].items() if k != "name"}
    made_by = {"module": "fedlsa.results", "qualname": "richardson_romberg", "repr": label}
    both.attrs["method"] = label
    both.attrs["algorithm"] = recipe.text({**settings, **made_by})  # named, so that nobody takes it for one run
    both.attrs["runs"] = recipe.text({"theta": "2 fine - coarse", **runs})
    return both


def _check_pair(fine: xr.Dataset, coarse: xr.Dataset) -> None:
    """Refuse two results that differ in anything but a step size twice as large."""
    one, two = _settings(fine), _settings(coarse)
    eta, twice = one.pop("step_size"), two.pop("step_size")
    for what, value in one.items():
        if not same(value, two.get(what)):
            values = [shown(v) if isinstance(v, np.ndarray) else checks.show(v) for v in (value, two.get(what))]
            raise ArgumentError(f"fine and coarse must agree in {what}; got {' and '.join(values)}")
    small, large = (s if isinstance(s, PowerStep) else PowerStep(s, 0.0) for s in (eta, twice))
    if small.power != large.power or not np.isclose(large.eta_0, 2 * small.eta_0, rtol=1e-12, atol=0):
        raise ArgumentError(f"coarse must have twice the step_size of fine; got {twice} and {eta}")


def _settings(result: xr.Dataset) -> dict[str, Any]:
    """What a run was made with, by the names of errors."""
    method, run = dict(recipe.value(result.attrs["algorithm"])), recipe.stored_arguments(result)
    if "name" not in method:
        rule = "fine and coarse must be runs of methods of fedlsa, whose step size is known"
        raise ArgumentError(f"{rule}; got {method['module']}.{method['qualname']}")
    return {
        "the method": method.pop("name"),
        **method,
        "the problem": result.attrs["problem"],
        **{name: run.get(name) for name in SAME},
        "the seeds": result["seed"].values,
        "the recorded rounds": result["rounds"].values,
    }
