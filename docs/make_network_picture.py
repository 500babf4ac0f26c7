"""The picture and the table of docs/network.md: what quantised and noised uploads do to the answer, by measured runs.

Run `python docs/make_network_picture.py`; it prints the table and writes docs/images/network-uploads.png in seconds.

The protocol itself runs here (server, sites and messages as on a wire, in one process), on a regression whose ten sites
have different laws and different coefficients. Local steps use the sites' means, so that all that is left of an error
is the uploads'. The error is the distance from the data's own solution.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from fedlsa import figures
from fedlsa.checks import Floats
from fedlsa.engine.local import Means
from fedlsa.figures import style
from fedlsa.figures.lines import Chart, Line
from fedlsa.figures.matplotlib_figures import draw_charts
from fedlsa.network.protocol.client import ClientState, client_step
from fedlsa.network.protocol.coding import Coding
from fedlsa.network.protocol.messages import Reply
from fedlsa.network.protocol.privacy import privacy_spent
from fedlsa.network.protocol.run_settings import RunSettings
from fedlsa.network.protocol.server import accept, close_round, open_round
from fedlsa.network.protocol.server_state import ServerState

PICTURE = Path(__file__).parent / "images" / "network-uploads.png"
N, ROWS, D, SEEDS = 10, 2_000, 8, 8
ETA, H, ROUNDS = 1.0, 20, 60
CLIP, DELTA = 1.0, 1e-5
CODINGS = {
    "float64": Coding(),
    "16 bits": Coding(bits=16),
    "8 bits": Coding(bits=8),
    "noise 0.01": Coding(clip=CLIP, noise=0.01),
    "noise 0.1": Coding(clip=CLIP, noise=0.1),
    "noise 1": Coding(clip=CLIP, noise=1.0),
}


def sites() -> tuple[list[Means], Floats]:
    """The means of each site, and the solution of their averaged system : (d,)."""
    rng = np.random.default_rng(7)
    means = []
    for _ in range(N):
        mix = np.eye(D) + 0.1 * rng.normal(size=(D, D))
        x = rng.normal(size=(ROWS, D)) @ mix / np.sqrt(D)
        y = x @ rng.normal(size=D) + 0.3 * rng.normal(size=ROWS)
        means.append(Means(x.T @ x / ROWS, x.T @ y / ROWS))
    A, b = np.mean([m.A for m in means], axis=0), np.mean([m.b for m in means], axis=0)
    return means, np.linalg.solve(A, b)


def run(means: list[Means], theta: Floats, coding: Coding, seed: int) -> tuple[Floats, float]:
    """Distance from theta after every average : (rounds + 1,); and bytes of the vector that a site sends in a round."""
    names = tuple(f"site-{c}" for c in range(N))
    settings = RunSettings(name="picture", step_size=ETA, local_steps=H, rounds=ROUNDS, seed=seed, sites=names)
    server = ServerState.start(settings, D)
    held: dict[str, ClientState | None] = dict.fromkeys(names)
    secrets = {name: np.random.default_rng([seed, c]) for c, name in enumerate(names)}
    out, payload = [float(np.linalg.norm(server.theta - theta))], 0
    for _ in range(ROUNDS):
        server, orders = open_round(server, names)
        for c, name in enumerate(names):
            held[name], answer = client_step(held[name], orders[name], means[c], coding, secrets[name])
            assert isinstance(answer, Reply)
            payload = sum(a.nbytes for a in answer.payload.values())
            server, reason = accept(server, name, answer.record())
            assert reason is None
        server, _ = close_round(server)
        out.append(float(np.linalg.norm(server.theta - theta)))
    assert np.abs(server.settings.shares @ server.xi).max() < 1e-12  # noise and rounding leave the sum alone
    return np.array(out), payload


def draw(curves: dict[str, Floats]) -> Figure:
    """Root mean squared distance against communications, a line for each way to write uploads."""
    colours = (style.METHODS["SCAFFLSA"], style.INK, style.OTHERS[1], style.METHODS["FedLSA"], style.OTHERS[0])
    shown = [name for name in curves if name != "16 bits"]  # it lies under the line of 8 bits
    t = np.arange(ROUNDS + 1.0)
    lines = [
        Line(t, curves[name], name, colour, dash="dotted" if name == "8 bits" else "solid")
        for name, colour in zip(shown, colours, strict=True)
    ]
    return draw_charts([[Chart(lines, y="distance from the data's solution")]], legend="right")


def table(found: dict[str, tuple[Floats, float]]) -> list[str]:
    """The lines of the table in docs/network.md."""
    out = ["| uploads | bytes of a vector | final distance | privacy of a site |", "|---|---|---|---|"]
    for name, (curve, size) in found.items():
        noise = CODINGS[name].noise
        spent = "-" if noise is None else f"({privacy_spent(noise, ROUNDS, DELTA):.3g}, {DELTA:g})"
        out.append(f"| {name} | {size:.0f} | {curve[-10:].mean():.3g} | {spent} |")
    return out


def measured(codings: dict[str, Coding]) -> dict[str, tuple[Floats, float]]:
    """For each way to write uploads: the root mean squared distance over seeds per round, and bytes of a vector."""
    means, theta = sites()
    found = {}
    for name, coding in codings.items():
        runs = [run(means, theta, coding, seed) for seed in range(SEEDS)]
        found[name] = (np.sqrt(np.mean([curve**2 for curve, _ in runs], axis=0)), runs[0][1])
    return found


def main() -> None:
    found = measured(CODINGS)
    print("\n".join(table(found)))
    picture = draw({name: curve for name, (curve, _) in found.items()})
    figures.save(picture, PICTURE, command="python docs/make_network_picture.py")


if __name__ == "__main__":
    main()
