"""From the sites' data to the problem that a fit runs on, which simulation and theory take like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SingularSystemError, SiteDataError
from ..problems import Problem, RankOne, from_observations
from ..problems.arguments import offsets
from ..theory.planner import MAX_EXACT_DIM
from .reading import PooledData, read
from .site_sums import System
from .sites.site_files import open_file
from .sites.site_readers import MEMORY, open_sites
from .solutions import solution
from .tasks import Regression, Task, Value, checked_weight


@dataclass(frozen=True, eq=False)
class Prepared:
    """A problem from site files, and what its coordinates mean.

    names : of the coefficients; rows : whether observations are the sites' rows, else their means
    original : (T, t) with coefficients on the original scale = T theta + t : (d, d) and (d,)
    """

    problem: Problem
    names: tuple[str, ...]
    rows: bool
    original: tuple[Floats, Floats]


def site_problem(
    sites: Any,
    task: Task,
    weight: str | None = None,
    local: str = "auto",
    *,
    site: str | None = None,
    memory: float = MEMORY,
) -> Problem:
    """The problem on which `fl.fit` runs, to simulate and to study; nothing is planned or run (eq:lsa_syst_fed).

    sites, task, weight, site, memory : as for `fl.fit`
    local : what an observation is: "rows" of the site drawn at random, the site's "means" (A_c and b_c, no noise), or
        "auto": rows where they fit three times into memory and exact theory knows all methods, in up to 20 dimensions;
        else means. `fl.fit`, which plans a run as well, takes means of smaller data already

    It is in the run's coordinates: standardised as the task says, and with its ridge; see `prepared` for the way back.

    >>> sites = [(np.eye(3), np.arange(3.0)), (np.eye(3), np.ones(3))]
    >>> fl.site_problem(sites, fl.Regression("y", intercept=False, standardise=False)).theta_star
    array([0.5, 1. , 1.5])
    """
    return prepared(sites, task, weight, local, site=site, memory=memory).problem


def prepared(
    sites: Any,
    task: Task,
    weight: str | None = None,
    local: str = "auto",
    *,
    site: str | None = None,
    memory: float = MEMORY,
) -> Prepared:
    """The problem of `site_problem` with the names of its coefficients and the way back to the original scale."""
    checks.instance("task", task, (Regression, Value), "fl.Regression(...) or fl.Value(...)")
    weight = checked_weight(task, weight)
    checks.choice("local", local, ("auto", "rows", "means"))
    room = checks.real("memory", memory, above=0)
    data, weights, systems = read(
        open_sites(sites, task, site, room), task, weight, room, lambda what, done, total: None
    )
    solution(systems, weights, data.names)  # its error names the columns that determine one another
    rows = uses_rows(data, local, min(MAX_EXACT_DIM.values()), memory)
    problem = make_problem(data, systems, weights, rows)
    return Prepared(problem, data.names, rows, data.scale.original())


def uses_rows(data: PooledData, local: str, largest: int, memory: float) -> bool:
    """Whether observations are rows: where they are asked for, or where they are few-dimensional and fit into memory
    with the two copies that a run makes."""
    if local in ("rows", "log") and data.kept is None:
        raise ArgumentError(f"local must be 'means' where rows take more than memory, {memory:g} bytes; got {local!r}")
    if local != "auto" or data.kept is None or data.scale.dim > largest:
        return local in ("rows", "log")
    return 3 * sum(p.nbytes for pieces in data.kept for p in pieces) <= memory


def make_problem(data: PooledData, systems: Sequence[System], weights: Floats, rows: bool) -> Problem:
    """The sites' rows, or their means, as tables of observations."""
    try:
        return _rows_problem(data, systems, weights) if rows else _means_problem(systems, weights)
    except SingularSystemError as error:  # `solution` has scaled the columns, and found a regular system
        raise SiteDataError(
            "columns must be of comparable sizes for steps on them as they are; got columns so different in size, or "
            "so far from 0, that no run can be computed: rescale them, or let them be standardised"
        ) from error


def columns_of(path: Any) -> list[str]:
    """The names of the columns of a site's file, Parquet or CSV, of which only the beginning or the footer is read.

    path : of the file
    """
    file = checks.path("path", path)
    return list(open_file(file.name, file).columns)


def text_columns_of(path: Any) -> list[str]:
    """The columns of a site's file that hold no numbers at its beginning: a formula takes them as categories, C(name).

    path : of the file
    """
    import pyarrow as pa

    file = checks.path("path", path)
    site = open_file(file.name, file)
    _, beginning = next(site.located((), site.columns), (0, None))
    kinds = {} if beginning is None else dict(zip(beginning.schema.names, beginning.schema.types, strict=True))
    kinds = {c: kind.value_type if pa.types.is_dictionary(kind) else kind for c, kind in kinds.items()}
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return [c for c, kind in kinds.items() if not any(test(kind) for test in tests)]


def _rows_problem(data: PooledData, systems: Sequence[System], weights: Floats) -> Problem:
    """The sites' rows as tables of observations, each row with probability 1 / n_c."""
    kept = data.kept or []
    counts = [sum(len(p.y) for p in pieces) for pieces in kept]
    first, K = offsets(counts), sum(counts)
    left: NDArray[np.uint32] = np.arange(K, dtype=np.uint32)
    same = all(p.u is p.v for pieces in kept for p in pieces)
    rows, y, k = np.empty((K if same else 2 * K, data.scale.dim)), np.empty(K), 0  # each row in one place, for steps
    even = np.repeat(np.sqrt(np.array(counts) / [s.mass for s in systems]), counts)  # 1 unless rows have weights
    for p in (p for c in range(len(kept)) for p in data.pieces(c)):
        n = len(p.y)
        rows[k : k + n], y[k : k + n] = p.u, p.y
        if not same:
            rows[K + k : K + k + n] = p.v
        k += n
    if data.columns.row_weights is not None:
        rows, y = rows * even[:, None], y * even
    z = RankOne(rows, left, left if same else left + np.uint32(K), y, data.ridge)
    prob = np.repeat(1 / np.diff(first), np.diff(first))
    return Problem(z, prob, first, np.arange(len(counts)), weights, ordered=True)


def _means_problem(systems: Sequence[System], weights: Floats) -> Problem:
    """The sites' means as tables of one observation each: local steps without noise."""
    tables = [(np.ones(1), s.A[None], s.b[None]) for s in systems]
    return from_observations(tables, weights=weights)
