"""How often 95% intervals of fl.fit cover the truth, on data sets whose truth is known.

    python benchmarks/intervals.py --jobs 16             1,000 data sets of every situation: measured/coverage.csv
    python benchmarks/intervals.py --sets 100 clusters   100 of those with "clusters" in their name, on the screen alone

Every interval is fl.fit's own, and seeds are fixed. Of an hour on one core, planned runs on rows take half.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # processes share the cores already
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from policy_logs import GAMMA, linear_system, squares, trajectories, transitions
from scipy.signal import lfilter

import fedlsa as fl

Floats = NDArray[np.float64]
KEPT = Path(__file__).resolve().parent / "measured" / "coverage.csv"
SETS = 1000
BETA = np.array([1.0, -1.0, 0.5])  # of x0, x1 and the intercept
REPLICAS = 400
CHUNK = 25  # data sets of one situation that a process takes at a time


@dataclass(frozen=True)
class Situation:
    """data : what the rows are; asked : of the fit; draw : the sites of data set k; truth : (d,) coefficients

    about : what intervals are about: "theta", the "protocol", or "bootstrap" for those of its replicas
    covers : whether they are meant to cover; else the situation is there to show what goes wrong
    """

    data: str
    asked: str
    draw: Callable[[int], Sequence[Any]]
    task: fl.Regression | fl.Value
    settings: dict[str, Any] = field(default_factory=dict)
    truth: Floats = field(default_factory=lambda: BETA)
    about: str = "theta"
    covers: bool = True

    @property
    def name(self) -> str:
        return f"{self.data}: {self.asked}"

    def outcome(self, k: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Of data set k: errors over what would cover 95% of them were it right, and whether intervals cover: (d,)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fl.errors.FedLSAWarning)  # some situations are there to be warned of
            found = fl.fit(self.draw(k), self.task, seed=k, **({"plan": False} | self.settings))
        low, high = found.confidence_interval(0.95).T
        centre, reach = found.theta, (high - low) / 2
        if self.about == "bootstrap":
            low, high = found.bootstrap.interval(0.95).T
        elif self.about == "protocol":
            centre = found.protocol
            reach = reach * np.sqrt(1 + (found.optimisation / found.standard_error) ** 2)
            low, high = centre - reach, centre + reach
        return (centre - self.truth) / reach, (low <= self.truth) & (self.truth <= high)


def regression(sizes: Sequence[int], noise: Callable[[Floats, np.random.Generator], Floats], seed: int) -> Any:
    """Sites of these sizes, with the same coefficients; noise of the features (n, 2)."""

    def draw(k: int) -> list[tuple[Floats, Floats]]:
        rng = np.random.default_rng([seed, k])
        out = []
        for n in sizes:
            x = rng.normal(size=(n, 2))
            out.append((x, x @ BETA[:2] + BETA[2] + noise(x, rng)))
        return out

    return draw


def growing(x: Floats, rng: np.random.Generator) -> Floats:
    """Noise whose size grows with the first feature."""
    return (0.5 + np.abs(x[:, 0])) * rng.normal(size=len(x))


def series(sites: int, rows: int, rho: float, seed: int) -> Any:
    """The first feature and the noise are AR(1) with variance 1, the second feature is white."""

    def ar(rng: np.random.Generator) -> Floats:
        e = rng.normal(size=rows)
        e[1:] *= np.sqrt(1 - rho**2)
        return np.asarray(lfilter([1.0], [1.0, -rho], e))

    def draw(k: int) -> list[tuple[Floats, Floats]]:
        rng, out = np.random.default_rng([seed, k]), []
        for _ in range(sites):
            x = np.column_stack([ar(rng), rng.normal(size=rows)])
            out.append((x, x @ BETA[:2] + BETA[2] + ar(rng)))
        return out

    return draw


def patients(count: int, sites: int, seed: int, rows: int = 10, moving: bool = False) -> Any:
    """Ten rows of each patient, with an effect of the patient's; x0 differs between and within patients, x1 between.

    moving : whether patients go from site to site
    """

    def draw(k: int) -> list[dict[str, Floats]]:
        rng = np.random.default_rng([seed, k])
        who = np.repeat(np.arange(count), rows)
        x0 = np.sqrt(0.5) * (rng.normal(size=count)[who] + rng.normal(size=len(who)))
        x1 = rng.normal(size=count)[who]
        y = BETA[0] * x0 + BETA[1] * x1 + BETA[2] + rng.normal(size=count)[who] + rng.normal(size=len(who))
        table = {"x0": x0, "x1": x1, "patient": who.astype(np.float64), "y": y}
        where = (np.arange(len(who)) if moving else who) % sites
        return [{name: column[where == c] for name, column in table.items()} for c in range(sites)]

    return draw


def populations(count: int, rows: int, seed: int) -> Any:
    """Sites drawn at random: each has its own coefficients and its own mean of the features."""

    def draw(k: int) -> list[tuple[Floats, Floats]]:
        rng, out = np.random.default_rng([seed, k]), []
        for _ in range(count):
            x = rng.normal(size=(rows, 2)) + 0.5 * rng.normal(size=2)
            own = BETA + 0.3 * rng.normal(size=3)
            out.append((x, x @ own[:2] + own[2] + rng.normal(size=rows)))
        return out

    return draw


def bootstrapped(
    data: str, kind: str, draw: Any, task: Any, settings: dict[str, Any], truth: Floats = BETA
) -> Situation:
    """With the intervals of a bootstrap."""
    settings = settings | {"bootstrap": REPLICAS, "resample": kind}
    return Situation(data, f"bootstrap, {kind}", draw, task, settings, truth, "bootstrap")


def situations() -> Iterator[Situation]:
    """All of them."""
    y = fl.Regression("y")
    noise = "noise that grows with a feature"
    data, draw = f"{noise}, sites of 80, 150, 300 rows", regression((80, 150, 300), growing, 1)
    yield Situation(data, "defaults", draw, y)
    yield Situation(data, "defaults, about the planned run's answer", draw, y, {"plan": True}, about="protocol")
    by_hand = {"plan": True, "method": "fedlsa", "step_size": 5e-4, "local_steps": 10, "rounds": 3000, "local": "rows"}
    yield Situation(data, "about the answer of a short run by hand on rows", draw, y, by_hand, about="protocol")
    yield Situation(data, "classical", draw, y, {"covariance": "classical"}, covers=False)
    yield bootstrapped(data, "pairs", draw, y, {})
    yield Situation(f"{noise}, four sites of 10 rows", "defaults", regression((10,) * 4, growing, 2), y)
    data, draw = "sites of 10 and 1,000 rows that count the same", regression((10, 1000), growing, 40)
    for kind in ("HC3", "HC1", "classical"):
        even = {"weight": "sites", "covariance": kind}
        yield Situation(data, f"weight='sites', {kind}", draw, y, even, covers=kind == "HC3")
    for n in (1, 2, 3, 5):
        rows = "1 row" if n == 1 else f"{n} rows"
        yield Situation(f"{noise}, 30 sites of {rows}", "defaults", regression((n,) * 30, growing, 3 + n), y)
    hac = {"covariance": "HAC"}
    for sites, rows in ((1, 200), (1, 1000), (5, 200)):
        data = f"rows in time, autocorrelation 0.5, {sites} x {rows} rows"
        draw = series(sites, rows, 0.5, 10)
        yield Situation(data, "HAC", draw, y, hac)
        if sites * rows == 1000:
            yield bootstrapped(data, "block", draw, y, hac)
        yield Situation(data, "HAC, lag=8", draw, y, {"lag": 8}, covers=False)
        yield Situation(data, "defaults", draw, y, covers=False)
    for count in (6, 12, 40):
        data, draw = f"{count} patients of 10 rows at 2 sites", patients(count, 2, 20)
        task, patient = fl.Regression("y", columns=["x0", "x1"]), {"cluster": "patient"}
        yield Situation(data, "clusters", draw, task, patient)
        if count == 40:  # few clusters leave replicas undetermined
            yield bootstrapped(data, "cluster", draw, task, patient)
        yield Situation(data, "clusters, CR1", draw, task, patient | {"covariance": "CR1"}, covers=False)
        yield Situation(data, "defaults", draw, task, covers=False)
    data, draw = "80 patients of 10 rows who go to 10 sites", patients(80, 10, 50, moving=True)
    yield Situation(data, "clusters", draw, task, patient)
    yield Situation(data, "defaults", draw, task, covers=False)
    for count in (5, 10, 20):
        data, draw = f"{count} sites of 30 rows drawn from many that differ", populations(count, 30, 30)
        yield Situation(data, "clusters are sites", draw, y, {"cluster": "sites"})
        one = {"cluster": "sites", "covariance": "CR1"}
        yield Situation(data, "clusters are sites, CR1", draw, y, one, covers=False)
    value = fl.Value(GAMMA, state="s", next_state="n")
    draw, truth = transitions((600, 900, 1500))
    yield Situation("values, independent transitions at sites of 600, 900, 1,500", "defaults", draw, value, {}, truth)
    for rows in (250, 1000, 4000):
        draw, truth = trajectories(rows, 0.95)
        data = f"values, a log of {rows:,} steps at each of 3 sites, autocorrelation times 24-30"
        yield Situation(data, "defaults", draw, value, {}, truth, covers=rows > 250)
    draw, truth = linear_system((1500,) * 3, 0.9)
    data = "values of a linear system, squares of states as features"
    endless = fl.Value(0.9, features=squares)
    yield Situation(f"{data}, 3 x 1,500 steps without an end", "defaults", draw, endless, {}, truth)
    for sizes, what in (((600, 1200, 2400), "600, 1,200, 2,400 steps"), ((150,) * 20, "20 x 150 steps")):
        draw, truth = linear_system(sizes, 0.97, 0.05, 40)
        for trace in (0.0, 0.8) if len(sizes) == 3 else (0.0,):
            asked = "defaults" if trace == 0 else f"trace={trace:g}"
            task = fl.Value(0.97, features=squares, trace=trace)
            yield Situation(f"{data}, {what} of episodes", asked, draw, task, {}, truth)


def measure(s: Situation, sets: Iterable[int]) -> tuple[Floats, Floats]:
    """The share of intervals that cover, and the mean square of errors over half widths, each (d,)."""
    ratios, covers = zip(*(s.outcome(k) for k in sets), strict=True)
    return np.mean(covers, axis=0), np.mean(np.square(ratios), axis=0)


def stay_on_one_core(counter: Any) -> None:
    """So that a fit reads its sites one after the other: the processes share the cores already."""
    if hasattr(os, "sched_setaffinity"):
        with counter.get_lock():
            number, counter.value = counter.value, counter.value + 1
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def covered(index: int, sets: range) -> Floats:
    """Of some data sets of a situation, in a process of its own."""
    return measure(list(situations())[index], sets)[0]


def read_kept() -> list[tuple[tuple[str, str], str]]:
    """The rows that were kept: (data, asked) and the figures."""
    with KEPT.open(newline="", encoding="utf-8") as file:
        return [((row[0], row[1]), row[-1]) for row in csv.reader(file)][1:]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=SETS, help="data sets of every situation")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("only", nargs="?", default="", help="what the names of situations hold")
    options = parser.parse_args(argv)
    everything = list(situations())
    known = dict(read_kept())
    context = get_context("spawn")
    with ProcessPoolExecutor(options.jobs, context, stay_on_one_core, (context.Value("i", 0),)) as pool:
        chunks = [range(k, min(k + CHUNK, options.sets)) for k in range(0, options.sets, CHUNK)]
        work = {
            s.name: [(pool.submit(covered, i, chunk), len(chunk)) for chunk in chunks]
            for i, s in enumerate(everything)
            if options.only in s.name
        }
        for s in everything:
            if s.name in work:
                share = sum(part.result() * n for part, n in work[s.name]) / options.sets
                known[s.data, s.asked] = " ".join(f"{100 * one:.1f}" for one in share)
                print(f"{s.name:105} {known[s.data, s.asked]}", flush=True)
    if options.sets == SETS:
        table = [(s.data, s.asked, known[s.data, s.asked]) for s in everything if (s.data, s.asked) in known]
        with KEPT.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([("data", "fit", "coverage"), *table])
    return 0


if __name__ == "__main__":
    sys.exit(main())
