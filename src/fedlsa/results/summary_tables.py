"""Results combined and summed up: federated Richardson-Romberg; a few numbers of each result, and those as text.

Richardson-Romberg is two runs of one method, at step sizes eta and 2 eta, combined into one estimate. The bias of
FedLSA begins with a term proportional to eta (theory.first_order_bias). It is twice as large in the run at 2 eta, so
2 theta_eta - theta_2eta is without it; what is left falls like (eta H)^2 while eta H is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..algorithms import PowerStep
from ..errors import ArgumentError
from ..value_objects import same, shown
from . import recipe, sweeps

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

SAME = ("sampling", "rounds", "theta_0", "xi_0", "dtype")  # of the arguments of a run; the engine does not matter


def summary(results: xr.Dataset | Iterable[xr.Dataset]) -> pd.DataFrame:
    """A data frame with a row per result, at its last recorded round; its index is the method, of a sweep its options.

    rounds, communications, samples (per agent, mean over seeds), mse and its standard_error (over the seeds that did
    not diverge; NaN where there are too few), diverged (how many seeds did), seeds (how many there are)

    >>> p = fl.problems.garnet(agents=4, seed=1)
    >>> runs = fl.simulate_grid(p, [fl.FedLSA(0.1, 10), fl.SCAFFLSA(0.1, 10)], rounds=20, seeds=3)
    >>> fl.results.summary(runs)["samples"].tolist()
    [200.0, 200.0]
    """
    import pandas as pd
    import xarray as xr

    given = checks.instances("results", results, xr.Dataset, "a result of simulate")
    frame = pd.DataFrame([_row(r) for r in sweeps.separate(given)])
    swept = sweeps.swept_dimensions(given[0]) if len(given) == 1 else []
    if not swept:
        return frame.set_index("method")
    index = pd.MultiIndex.from_product([given[0][name].values for name in swept], names=swept)
    return frame.drop(columns="method").set_index(index if len(swept) > 1 else index.get_level_values(0))


def table(rows: pd.DataFrame | Sequence[Mapping[str, Any]]) -> str:
    """Text with a line of headings, then a line per row; numbers are aligned to the right.

    rows : a data frame, of which an index with a name is printed first, or mappings with the same keys
    """
    import pandas as pd

    if isinstance(rows, pd.DataFrame):
        rows = (rows if list(rows.index.names) == [None] else rows.reset_index()).to_dict("records")
    rows = checks.entries("rows", rows, "a data frame such as summary returns, or mappings")
    for row in rows:
        checks.instance("rows", row, Mapping, "a data frame such as summary returns, or mappings")
    if len({tuple(row) for row in rows}) > 1:
        raise ArgumentError("rows must all have the same keys; got different ones")
    if not rows:
        return ""
    names = list(rows[0])
    columns = [[str(name).replace("_", " "), *(_show(row[name]) for row in rows)] for name in names]
    widths = [max(map(len, column)) for column in columns]
    left = [all(isinstance(row[name], str) for row in rows) for name in names]
    aligned = [
        [cell.ljust(width) if is_text else cell.rjust(width) for cell in column]
        for column, width, is_text in zip(columns, widths, left, strict=True)
    ]
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def _row(result: xr.Dataset) -> dict[str, Any]:
    recipe.require_result("results", result)
    last = result.isel(rounds=-1)
    diverged = last["diverged_at"].values >= 0
    errors = last["squared_error"].values[~diverged]
    n = len(errors)
    return {
        "method": result.attrs["method"],
        "rounds": int(last["rounds"]),
        "communications": int(last["communications"].max()),
        "samples": float(last["samples"].mean()),
        "mse": float(errors.mean()) if n else float("nan"),
        "standard_error": float(errors.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan"),
        "diverged": int(diverged.sum()),
        "seeds": len(diverged),
    }


def _show(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        if np.isnan(value):
            return "-"
        number = float(value)
        return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:.3g}"
    return str(value)


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
