"""FedSARSA on Garnet worlds: local steps drift where worlds differ, control variates do not; more agents, less noise.

The worlds, step size, temperature and start are those of the published code (arXiv 2512.17688), with its first 200,000
steps. Two more kinds of worlds stand here to be copied: slippery lakes, and CartPoles read through a grid. Run it with
`python examples/fedsarsa.py`; it leaves out/fedsarsa.png. docs/environments.md explains it.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

import fedlsa as fl
from fedlsa.figures import theme

STEPS, SEEDS, STEP_SIZE, TEMPERATURE = 200_000, 5, 0.01, 2.0
LOCAL_STEPS, AGENTS, DIFFERENCES = (10, 100, 10_000), (2, 10, 50), (0.0, 0.25, 0.5, 0.75, 1.0)
METHODS = (fl.FedLSA, fl.SCAFFLSA)
BOX = np.array(
    [2.4, 3.0, 0.2095, 3.0]
)  # of a CartPole's position, speed, angle and spin; at 2.4 m or 12 degrees it ends
POINTS = 256  # of a cell of its grid, from which the transitions are counted


def lakes(rates, discount=0.95):
    """FrozenLake's 4 x 4 lakes, on which a step goes where it was meant to with these probabilities, one per agent."""
    import gymnasium

    shape = len(rates), 16, 4, 16
    P, r, terminal = np.zeros(shape), np.zeros(shape), np.zeros(16, bool)
    for c, rate in enumerate(rates):
        table = gymnasium.make("FrozenLake-v1", success_rate=rate).unwrapped.P
        for s, a in np.ndindex(16, 4):
            for chance, after, pays, over in table[s][a]:
                P[c, s, a, after] += chance
                r[c, s, a, after], terminal[after] = pays, terminal[after] or over
    return fl.control.Worlds(P, r, discount, terminal, initial=np.eye(16)[0])


def push(x, speed, angle, spin, action, half):
    """One step of CartPole-v1, explicit Euler, with a pole of twice this length; arrays give arrays."""
    force = (20.0 * action - 10.0 + 0.1 * half * spin**2 * np.sin(angle)) / 1.1
    bend = (9.8 * np.sin(angle) - np.cos(angle) * force) / (half * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
    gain = force - 0.1 * half * bend * np.cos(angle) / 1.1
    return np.stack([x + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * spin, spin + 0.02 * bend], axis=-1)


def cell(states, bins):
    """The number of the cell of a CartPole's state, (n, 4) to (n,); what lies outside is in the outermost."""
    place = np.clip((states + BOX) / (2 * BOX / bins), 0, np.array(bins) - 1).astype(int)
    return np.ravel_multi_index(tuple(place.T), bins)


def cartpoles(halves, bins=(3, 3, 6, 6), discount=0.95):
    """CartPoles, one per agent, as chains on the cells of a grid: where points drawn in a cell get to. Steps pay 1."""
    S, rng = int(np.prod(bins)), np.random.default_rng(0)
    corners = np.stack(np.unravel_index(np.arange(S), bins), axis=1) * (2 * BOX / bins) - BOX
    points = (corners[:, None] + rng.random((S, POINTS, 4)) * (2 * BOX / bins)).reshape(-1, 4)
    P = np.zeros((len(halves), S + 1, 2, S + 1))
    P[:, S, :, S] = 1  # the end
    for c, half in enumerate(halves):
        for action in range(2):
            moved = push(*points.T, action, half)
            fell = (np.abs(moved[:, ::2]) > BOX[::2]).any(axis=1)
            after = np.where(fell, S, cell(moved, bins))
            np.add.at(P[c, :, action], (np.repeat(np.arange(S), POINTS), after), 1 / POINTS)
    starts = np.bincount(cell(rng.uniform(-0.05, 0.05, (4096, 4)), bins), minlength=S + 1) / 4096
    return fl.control.Worlds(P, np.ones((len(halves), S + 1, 2)), discount, np.arange(S + 1) == S, starts)


def run(method, agents, local_steps, heterogeneity=1.0, steps=STEPS, seeds=SEEDS):
    """Error against steps of each agent, mean over seeds; as published, it begins uniformly around theta_star."""
    worlds = fl.control.garnet(agents, heterogeneity=heterogeneity)
    star = fl.control.solve(worlds, TEMPERATURE)[0].theta_star
    start = star + np.random.default_rng(42).uniform(-10, 10, len(star)) / np.sqrt(len(star))
    rounds = max(1, steps // local_steps)
    r = fl.sarsa(
        worlds, method(STEP_SIZE, local_steps), rounds, seeds, TEMPERATURE, theta_0=start, theta_star=star, record=201
    )
    return r["samples"][0].values, r["squared_error"].mean("seed").values


def main(out: Path = Path("out/fedsarsa.png"), steps: int = STEPS, seeds: int = SEEDS) -> None:
    curves = {
        (method, N, H): run(method, N, H, steps=steps, seeds=seeds)
        for method in METHODS
        for N in AGENTS
        for H in LOCAL_STEPS
    }
    ends = {
        (method, h): run(method, AGENTS[1], LOCAL_STEPS[-1], h, steps, seeds) for method in METHODS for h in DIFFERENCES
    }
    print(f"two Garnet worlds, {steps:,} steps, {seeds} seeds: squared error, mean of the last quarter")
    print(f"{'':<12}{'N':>4}" + "".join(f"{f'H = {H:,}':>14}" for H in LOCAL_STEPS))
    for method in METHODS:
        for N in AGENTS:
            row = "".join(f"{last(curves[method, N, H]):>14.2e}" for H in LOCAL_STEPS)
            print(f"{method.__name__:<12}{N:>4}{row}")
    out.parent.mkdir(parents=True, exist_ok=True)
    fl.figures.save(draw(curves, ends), out, command="python examples/fedsarsa.py")
    print(f"picture: {out}")


def last(curve):
    """The mean of the last quarter of a curve."""
    return float(curve[1][-len(curve[1]) // 4 :].mean())


def draw(curves, ends):
    """Above: error against steps for three numbers of agents; below: what is left, by agents and by difference."""
    with fl.figures.style("notebook"):
        figure = theme.matplotlib().figure.Figure(figsize=(7.0, 5.6), layout="constrained")
        figure.get_layout_engine().set(rect=(0.01, 0.1, 0.98, 0.85), hspace=0.07, wspace=0.04)
        panels = figure.subplot_mosaic([["a"] * 2 + ["b"] * 2 + ["c"] * 2, ["agents"] * 3 + ["worlds"] * 3])
        for name, N in zip("abc", AGENTS, strict=True):
            _draw_curves(panels[name], {key: c for key, c in curves.items() if key[1] == N}, name == "c")
            panels[name].set_title(f"{N} agents", loc="left")
        top = max(panels[name].get_ylim()[1] for name in "abc")
        low = min(panels[name].get_ylim()[0] for name in "abc")
        for name in "abc":
            panels[name].set_ylim(low, top)
        _draw_ends(
            panels["agents"], [(m, N, last(curves[m, N, H])) for H in LOCAL_STEPS[::2] for m in METHODS for N in AGENTS]
        )
        panels["agents"].set(xscale="log", xlabel="agents", xticks=AGENTS, xticklabels=AGENTS)
        panels["agents"].minorticks_off()
        panels["agents"].set_title("what is left: 10 and 10,000 local steps", loc="left")
        _draw_ends(panels["worlds"], [(m, h, last(curve)) for (m, h), curve in ends.items()])
        panels["worlds"].set(xlabel="how much the worlds differ", xticks=DIFFERENCES)
        panels["worlds"].set_title(f"what is left: {AGENTS[1]} agents, 10,000 local steps", loc="left")
        figure.text(0.015, 0.985, "Two worlds, one policy", fontsize="large", fontweight="bold", va="top")
        note = (
            "Squared distance to the fixed point of fl.control.solve, mean over seeds. Lines: FedLSA; dashed:\n"
            "SCAFFLSA. Darker: more local steps (10, 100, 10,000). Below, the mean of the last quarter."
        )
        figure.text(0.015, 0.01, note, fontsize="small", color=theme.SOFT, va="bottom", linespacing=1.4)
    return figure


def _draw_curves(axes, curves, named):
    shades = dict(zip(LOCAL_STEPS, (0.35, 0.6, 1.0), strict=True))
    for (method, _, H), (samples, error) in curves.items():
        hue, line = theme.METHODS[method.__name__], theme.DASHED if method is fl.SCAFFLSA else "-"
        axes.plot(samples / 1000, error, color=hue, alpha=shades[H], linestyle=line, linewidth=1.2)
        if named and LOCAL_STEPS[-1] == H:
            height = 0.93 - 0.1 * METHODS.index(method)
            axes.text(0.97, height, method.__name__, transform=axes.transAxes, ha="right", va="top", color=hue)
    axes.set(yscale="log", xlabel="thousand steps of an agent")


def _draw_ends(axes, points):
    """points : (method, x, error), in the order in which lines go; a smaller x begins another one."""
    for method in METHODS:
        xs, errors = zip(*((x, error) for m, x, error in points if m is method), strict=True)
        cuts = [0, *(i for i in range(1, len(xs)) if xs[i] < xs[i - 1]), len(xs)]
        for a, b in pairwise(cuts):
            line = theme.DASHED if method is fl.SCAFFLSA else "-"
            axes.plot(xs[a:b], errors[a:b], "o", linestyle=line, color=theme.METHODS[method.__name__], markersize=3.6)
    axes.set_yscale("log")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/fedsarsa.png"), help="the picture (.png, .pdf or .svg)")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each agent; the published code takes 1,000,000")
    given = parser.parse_args()
    main(given.out, given.steps)
