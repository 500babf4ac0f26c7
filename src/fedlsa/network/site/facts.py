"""What a site says of its data before a run: that they can be used, sums for standardisation, three scalars to plan by.

With B = (A(z), -b(z)) = u w^T, w = (v, -y), one pass over the rows gives the means A_c, b_c and W = E[|u|^2 w w^T], and
these the trace of the noise anywhere:  Tr Cov(A(z) theta - b(z)) = h^T W h - |A_c theta - b_c|^2  with h = (theta, 1)
and A_c, b_c without the ridge, which is no noise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np

from ...checks import Floats
from ...fit.columns import Columns, choose_columns, integers_error, listed
from ...fit.observe import FeatureScale, Piece, observations, recorded
from ...fit.reading import PooledData, first_pass
from ...fit.site_readers import Site
from ...fit.site_sums import Summary, SystemSums, add_up, null_space, unscaled
from ...fit.tasks import Regression, Task
from ...theory import tuning
from ...theory.symmetric import symkron, triangle
from ..protocol.coding import Coding
from ..protocol.messages import Description, Measurement
from .site_data import check_scale, ridge_of

MOMENTS = 32  # dimensions up to which noise moments are shared: the exact planner reads no larger ones
READABLE = (
    "The rows themselves are not sent, but the coordinator can compute them: it chooses where local steps start and "
    "how many there are, and the reply to a single step holds one row."
)
TAILS = 4  # times (d + 2) L^2, as Gaussian rows have it, that E[A(z)^T A(z)] may reach before L is called larger


def check(site: Site, task: Task) -> list[str]:
    """Read every row once, as a run would; what was found, in plain words. Data that cannot be used: SiteDataError."""
    columns = choose_columns(task, [site])
    summary, sums = _read(site, task, columns)
    d = len(sums.b)
    lines = [
        f"{site.name}: {summary.n:,} rows, all of them read; every number that the task needs is there and finite."
    ]
    if isinstance(task, Regression):
        lines.append(f"Target {columns.reward!r}; features {listed(columns.state)}.")
    else:
        lines.append(
            f"State {listed(columns.state)}; next state {listed(columns.next_state)}; reward {columns.reward!r}; "
            f"ends of episodes in {listed([c for c in (columns.terminated, columns.truncated) if c])}."
        )
        if columns.importance is not None:
            lines.append(f"Importance weights in {columns.importance!r}.")
    lines.append(f"{d} coefficients: {listed(_names(site, task, columns, summary))}.")
    constant = summary.scatter[:-1] <= (1e-12 * np.maximum(summary.largest[:-1], 1e-300)) ** 2 * summary.n
    if constant.any():
        same = [n for n, c in zip(_names(site, task, columns, summary), constant, strict=False) if c]
        lines.append(f"Note: {listed(same)} never varies here; other sites must vary it.")
    elif len(null_space(sums.system(ridge_of(task)).A)):
        lines.append("Note: these rows alone do not determine all coefficients; those of the other sites must help.")
    return lines


def describe(site: Site, task: Task, experiment: str) -> Description:
    """Rows, names of coefficients, and for a task with a scale the sums of its columns (fit/site_sums.py)."""
    columns = choose_columns(task, [site])
    summary, _ = _read(site, task, columns)
    names = json.dumps(_names(site, task, columns, summary))
    sums = (summary.mean, summary.scatter, summary.largest) if task.scaled else (np.empty(0),) * 3
    return Description(experiment, summary.n, names, *sums)


def measure(site: Site, task: Task, scale: FeatureScale, experiment: str, share_moments: bool = False) -> Measurement:
    """The three scalars, in the run's coordinates, and the moments where the site shares them and d <= MOMENTS.

    lowest, highest : extreme eigenvalues of the symmetric part of A_c. Where rows are so uneven that the eigenvalue
        would promise too much, (E[A(z)^T A(z)] beyond TAILS (d + 2) highest^2), highest is the number that does not
    noise : the larger trace of the noise at the site's own solution and at 0, where runs start
    """
    columns, ridge, d = choose_columns(task, [site]), ridge_of(task), scale.dim
    check_scale(task, columns, scale)
    sums, W = _moments(observations(site, task, columns, scale), site.name, d)
    own = sums.system(ridge)
    free = len(null_space(own.A)) > 0
    theta = np.asarray(
        np.linalg.lstsq(own.A, own.b, rcond=1e-12)[0] if free else np.linalg.solve(own.A, own.b), np.float64
    )
    values = np.linalg.eigvalsh((own.A + own.A.T) / 2)
    bare = own.A - ridge * np.eye(d)
    squares = W[:d, :d] + ridge * (bare + bare.T) + ridge**2 * np.eye(d)
    uneven = np.sqrt(max(float(np.linalg.eigvalsh(squares)[-1]), 0.0) / (TAILS * (d + 2)))
    noise = max(_noise_at(theta, sums, W), _noise_at(np.zeros(d), sums, W))
    scalars = sums.n, float(values[0]), float(max(values[-1], uneven)), noise
    if not share_moments or d > MOMENTS:
        return Measurement(experiment, *scalars)
    return Measurement(experiment, *scalars, own.A, own.b, _noise_map(observations(site, task, columns, scale), sums))


def leaves(
    task: Task, d: int, share_moments: bool = False, coding: Coding | None = None, names: Sequence[str] = ()
) -> list[str]:
    """What leaves the site and what can be computed from it, a sentence each.

    names : of the coefficients, where they are known
    """
    code = coding or Coding()
    size = 8 * d if code.bits is None else d * code.bits // 8 + 8
    how = ""
    if code.clip is not None:
        how = f", shortened to at most {code.clip:g}"
    if code.noise is not None:
        how += f", with Gaussian noise of standard deviation {code.noise * (code.clip or 0.0):g} on each"
    if code.bits is not None:
        how += f", rounded to {code.bits} bits each"
    k = d - task.intercept
    once = ["the number of rows", "the names of the coefficients"]
    if task.scaled:
        target = "target" if isinstance(task, Regression) else "reward"
        of = f" of {listed(names[:k])} and the {target}" if names else ""
        once.append(
            f"{k + 1} means, {k + 1} sums of squares and {k + 1} largest absolute values for standardisation{of}"
        )
    once.append(
        "3 numbers for planning (the smallest and the largest eigenvalue of the symmetric part of A_c, "
        "the variance of a row's noise)"
    )
    out = [
        f"In every round: {d} numbers (how far the site's parameter moved{how}), {size} bytes, "
        "and the length of its control variate.",
        f"Once, when a run begins: {'; '.join(once)}.",
    ]
    if share_moments and d <= MOMENTS:
        count = d * (d + 1) // 2 * ((d + 1) * (d + 2) // 2)
        out.append(
            f"Once, because moments are shared: A_c ({d * d} numbers), b_c ({d} numbers) and the second moments of the "
            f"noise ({count:,} numbers). From them the coordinator knows the site's own solution."
        )
    elif share_moments:
        out.append(f"Moments are not shared: {d} coefficients are more than the {MOMENTS} that planning can use.")
    return [*out, READABLE if code.noise is None else f"{READABLE} The noise blurs what it computes."]


def _moments(pieces: Iterable[Piece], name: str, d: int) -> tuple[SystemSums, Floats]:
    """Sums of u v^T and y u, and W : (d + 1, d + 1)."""
    W = np.zeros((d + 1, d + 1))

    def weigh(p: Piece) -> SystemSums:
        w = np.column_stack([p.v, -p.y])
        W[:] += (w * np.einsum("nd,nd->n", p.u, p.u)[:, None]).T @ w
        return SystemSums.of(p)

    sums = add_up(map(weigh, pieces), name)
    return sums, W / sums.n


def _noise_at(theta: Floats, sums: SystemSums, W: Floats) -> float:
    """Tr Cov(A(z) theta - b(z)); rounding may leave less than nothing."""
    h = np.append(theta, 1.0)
    mean = (sums.A @ theta - sums.b) / sums.n
    return max(float(h @ W @ h - mean @ mean), 0.0)


def _noise_map(pieces: Iterable[Piece], sums: SystemSums) -> Floats:
    """The map svec(h h^T) -> svec(Cov(A(z) theta - b(z))) of theory/moments.py, from the rows piece by piece."""
    d = len(sums.b)
    (i, j), (k, q) = triangle(d), triangle(d + 1)
    total = np.zeros((len(i), len(k)))
    step = max(1, tuning.CACHED_OUTCOMES // (len(i) + len(k)))
    for p in pieces:
        for start in range(0, len(p.y), step):
            part = slice(start, start + step)
            u, w = p.u[part].T, np.vstack([p.v[part].T, -p.y[part]])
            total += (u[i] * u[j]) @ (w[k] * w[q]).T
    mean = np.column_stack([sums.A, -sums.b]) / sums.n
    return np.where(k == q, 1.0, 2.0) * (total / sums.n) - symkron(mean)


def _read(site: Site, task: Task, columns: Columns) -> tuple[Summary, SystemSums]:
    """One pass over the rows as they are recorded."""
    summary, sums, integers = first_pass(recorded(site, task, columns), task, columns, site.name, True)
    if integers:
        raise integers_error(site.name, columns.state[0])
    assert sums is not None
    return summary, sums


def _names(site: Site, task: Task, columns: Columns, summary: Summary) -> list[str]:
    scale = unscaled(len(summary.mean) - 1, task.intercept)
    return list(PooledData([site], task, columns, scale, None).names)
