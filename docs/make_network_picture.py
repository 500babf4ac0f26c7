"""The picture and the table of docs/network.md: what coded and private uploads do to the answer, planned and measured.

Run `python docs/make_network_picture.py`; it prints the table and writes docs/images/network-uploads.png in a minute.

The protocol itself runs here (server, sites and messages as on a wire, in one process), on a regression whose ten sites
have different laws and different coefficients. Local steps use the sites' means, so that all that is left of an error
is the uploads'. The error is the distance from the data's own solution. Private runs are those that
`fedlsa network budget` plans; their noise comes from seeds here, so that the table can be made again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fedlsa as fl
from fedlsa import figures
from fedlsa.checks import Floats
from fedlsa.engine.local import Means, Rows, alias_slots
from fedlsa.figures import theme
from fedlsa.figures.lines import Chart, ChartRows, Line
from fedlsa.figures.matplotlib_figures import draw_charts
from fedlsa.network.protocol.client import ClientState, SiteRun, client_step
from fedlsa.network.protocol.messages import Reply
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import ServerState, accept, close_round, open_round
from fedlsa.theory.privacy import discrete_gaussian
from fedlsa.theory.private_plans import AffordablePlan, PrivacyBudget, affordable
from fedlsa.theory.problem_moments import moments

PICTURE = Path(__file__).parent / "images" / "network-uploads.png"
N, ROWS, D, SEEDS = 10, 2_000, 8, 8
ROUNDS, ROW_CLIP = 60, 8.0
CLIP = 4.0  # of runs without privacy: no change is as long


@dataclass(frozen=True)
class Uploads:
    """How uploads are written: in so many bits, or within a privacy budget."""

    bits: int | None = None
    unit: str = "site"
    epsilon: float | None = None


UPLOADS = {
    "128 bits": Uploads(),
    "16 bits": Uploads(16),
    "8 bits": Uploads(8),
    "a row, ε = 10": Uploads(unit="record", epsilon=10.0),
    "a row, ε = 1": Uploads(unit="record", epsilon=1.0),
    "a row, ε = 0.1": Uploads(unit="record", epsilon=0.1),
    "a site, ε = 100": Uploads(epsilon=100.0),
    "a site, ε = 10": Uploads(epsilon=10.0),
    "a site, ε = 1": Uploads(epsilon=1.0),
}


@cache
def tables() -> list[tuple[Floats, Floats]]:
    """The rows of each site."""
    rng, out = np.random.default_rng(7), []
    for _ in range(N):
        mix = np.eye(D) + 0.1 * rng.normal(size=(D, D))
        x = rng.normal(size=(ROWS, D)) @ mix / np.sqrt(D)
        out.append((x, x @ rng.normal(size=D) + 0.3 * rng.normal(size=ROWS)))
    return out


@cache
def plan(uploads: Uploads) -> AffordablePlan | str:
    """The run within a budget that ends nearest to the solution, or why there is none."""
    assert uploads.epsilon is not None
    record = uploads.unit == "record"
    budget = PrivacyBudget(
        uploads.epsilon,
        unit=uploads.unit,
        row_clip=ROW_CLIP if record else None,
        rows=ROWS if record else None,
    )
    try:
        return affordable(moments(fl.problems.regression(tables())), budget, local_steps=20, max_rounds=ROUNDS)
    except fl.errors.ArgumentError as error:
        return str(error)


def settings(uploads: Uploads, seed: int) -> RunSettings | None:
    """The run; None where a budget buys nothing."""
    shared = {"name": "picture", "seed": seed, "sites": tuple(f"site-{c}" for c in range(N)), "aggregation": "plain"}
    if uploads.epsilon is None:
        return RunSettings(step_size=1.0, local_steps=20, rounds=ROUNDS, quantise=uploads.bits, clip=CLIP, **shared)
    found = plan(uploads)
    if isinstance(found, str):
        return None
    return RunSettings(
        method=found.method, step_size=found.step_size, local_steps=found.local_steps, rounds=found.rounds,
        clip=found.clip, noise=found.noise, unit=uploads.unit,
        row_clip=ROW_CLIP if uploads.unit == "record" else None, **shared,
    )  # fmt: skip


def run(uploads: Uploads, seed: int) -> tuple[Floats, float]:
    """Distance from the solution after every average : (rounds + 1,); and bytes of the vector that a site sends."""
    asked, source = settings(uploads, seed), random.Random(seed)
    assert asked is not None
    theta = fl.problems.regression(tables()).theta_star
    server, held = ServerState.start(asked, D), dict[str, ClientState | None]()
    out, size = [float(np.linalg.norm(server.theta - theta))], 0
    for _ in range(asked.rounds):
        server, orders = open_round(server, asked.sites)
        for (x, y), name in zip(tables(), asked.sites, strict=True):
            if asked.row_clip is None:
                local = Means(x.T @ x / ROWS, x.T @ y / ROWS)
            else:
                local = Rows(x, x, y, 0.0, alias_slots(len(y)), asked.row_clip, averaged=True)
            site = SiteRun(
                name,
                asked.sites,
                "picture",
                lambda start, xi, eta, steps, label, local=local: local(start, xi, eta, steps, 0, 0, 0),
                asked.coding,
                method=asked.method,
                noise=lambda variance, n: discrete_gaussian(variance, n, source.randrange),
            )
            held[name], answer = client_step(held.get(name), orders[name], site)
            assert isinstance(answer, Reply)
            size = answer.share.nbytes
            server, reason = accept(server, name, answer)
            assert reason is None
        server, _ = close_round(server)
        out.append(float(np.linalg.norm(server.theta - theta)))
    return np.array(out), size


def measured(uploads: dict[str, Uploads]) -> dict[str, tuple[Floats, float]]:
    """For each way to write uploads: the root mean squared distance over seeds per round, and bytes of a vector."""
    found = {}
    for name, how in uploads.items():
        seeds = range(SEEDS if how.epsilon else 1)
        runs = [run(how, seed) for seed in seeds] if settings(how, 0) else [(np.array([np.nan]), 0.0)]
        found[name] = (np.sqrt(np.mean([curve**2 for curve, _ in runs], axis=0)), runs[0][1])
    return found


def table(found: dict[str, tuple[Floats, float]]) -> list[str]:
    """The lines of the table in docs/network-security.md."""
    out = ["| uploads | run | bytes of a vector | expected distance | measured |", "|---|---|---|---|---|"]
    for name, (curve, size) in found.items():
        how = UPLOADS[name]
        planned = plan(how) if how.epsilon is not None else None
        if isinstance(planned, str):
            enough = planned.split("about ")[1].split(" would")[0]
            out.append(f"| {name} | cannot be afforded: ε of about {enough} would do | - | - | - |")
            continue
        method, rounds = (planned.method, planned.rounds) if planned else ("scafflsa", ROUNDS)
        expected = f"{planned.rmse:.3g}" if planned else "-"
        label = f"{'SCAFFLSA' if method == 'scafflsa' else 'FedLSA'}, {rounds} round{'s' * (rounds > 1)}"
        out.append(f"| {name} | {label} | {size:.0f} | {expected} | {curve[-1]:.3g} |")
    return out


def draw(curves: dict[str, Floats]) -> Figure:
    """Root mean squared distance against communications, a line for each way to write uploads."""
    colours = (theme.INK, theme.SOFT, *theme.OTHERS[:3], theme.SEQUENCE[2])  # none of a method: all run the same ones
    shown = [name for name in curves if name != "16 bits" and len(curves[name]) > 1]  # 16 bits lie under 128
    lines = []
    for name, colour in zip(shown, colours, strict=False):
        t = np.arange(float(len(curves[name])))
        dash, marker = "dotted" if name == "8 bits" else "solid", "square" * (len(t) < 3)  # a short line is seen too
        lines.append(Line(t, curves[name], name, colour, dash=dash, marker=marker, size=4.5))
    return draw_charts(ChartRows([[Chart(lines, y="distance from the data's solution")]]), legend="right")


def main() -> None:
    found = measured(UPLOADS)
    print("\n".join(table(found)))
    picture = draw({name: curve for name, (curve, _) in found.items()})
    figures.save(picture, PICTURE, command="python docs/make_network_picture.py")


if __name__ == "__main__":
    main()
