"""Twenty slippery lakes: one value function for all, how local steps bias it, and how control variates cure that.

Every agent walks on a lake of its own, which lets a step succeed with its own probability. The transition tables are
known, so everything here can be compared with dynamic programming and with exact curves. Run it with
`python examples/lakes.py`; it leaves out/lakes.png. docs/environments.md explains it.
"""

import argparse
from pathlib import Path

import numpy as np

import fedlsa as fl
from fedlsa.figures import theme
from fedlsa.problems.families import LAKE_CELLS, LAKE_MAP

LAKES, ROUNDS, SEEDS = 20, 50, 20
RATES = np.linspace(0.34, 0.95, LAKES)
METHODS = [fl.FedLSA(step_size=0.02, local_steps=5000), fl.SCAFFLSA(step_size=0.02, local_steps=5000)]


def main(out: Path = Path("out/lakes.png"), rounds: int = ROUNDS, seeds: int = SEEDS) -> None:
    problem = fl.problems.lakes(LAKES, RATES[0], RATES[-1])
    start, record = np.zeros(problem.dim), np.unique(np.geomspace(1, rounds, 40).round()).astype(int)
    record = [0, *record.tolist()]
    runs = fl.simulate_grid(problem, METHODS, rounds=rounds, seeds=seeds, theta_0=start, record=record)
    curves = [fl.theory.exact(problem, m, rounds=rounds, theta_0=start, record=record) for m in METHODS]
    biases = [float(np.linalg.norm(fl.theory.stationary(problem, m).bias)) for m in METHODS]
    found = [run["theta"].isel(rounds=-1).mean("seed").values for run in runs]

    print(
        f"{LAKES} lakes, success rates {RATES[0]:.2f} to {RATES[-1]:.2f}; {rounds} rounds of 5000 steps, {seeds} seeds"
    )
    print(f"{'':<12}{'V(start)':>9}{'error':>9}{'exact':>9}{'bias':>9}{'value error':>13}")
    shared = problem.theta_star
    print(f"{'shared':<12}{shared[0]:>9.3f}{'':>27}{_value_error(problem, shared):>13.4f}")
    for method, run, curve, bias, theta in zip(METHODS, runs, curves, biases, found, strict=True):
        error, exact = np.sqrt(run["squared_error"].values[:, -1].mean()), np.sqrt(float(curve["mse"][-1]))
        row = f"{theta[0]:>9.3f}{error:>9.4f}{exact:>9.4f}{bias:>9.4f}{_value_error(problem, theta):>13.4f}"
        print(f"{type(method).__name__:<12}{row}")
    V = fl.theory.value_functions(problem)
    print(f"by dynamic programming, V(start) goes from {V[:, 0].min():.3f} to {V[:, 0].max():.3f} over the lakes")
    out.parent.mkdir(parents=True, exist_ok=True)
    fl.figures.save(draw(problem, runs, curves, biases, found), out, command="python examples/lakes.py")
    print(f"picture: {out}")


def _value_error(problem: fl.Problem, theta: np.ndarray) -> float:
    """Root mean square over the lakes of the error against dynamic programming."""
    return float(np.sqrt(np.mean(fl.theory.value_error(problem, theta) ** 2)))


def draw(problem, runs, curves, biases, found):
    """The shared values on the map; the lakes' own values of the start; error against communications."""
    with fl.figures.style("notebook"):
        figure = theme.matplotlib().figure.Figure(figsize=(7.0, 6.3), layout="constrained")
        figure.get_layout_engine().set(rect=(0.01, 0.105, 0.98, 0.84), hspace=0.07, wspace=0.06)
        panels = figure.subplot_mosaic([["map", "start"], ["errors", "errors"]], height_ratios=(1.15, 1))
        _draw_map(panels["map"], problem, found[0])
        _draw_start(panels["start"], problem, found)
        _draw_errors(panels["errors"], runs, curves, biases)
        figure.text(
            0.015, 0.985, "Twenty slippery lakes, one value function", fontsize="large", fontweight="bold", va="top"
        )
        note = (
            "Map: below a shared value, what FedLSA's local steps add to it, mean over seeds; the four cells in the\n"
            "upper right share one value; dark cells are holes. Errors: lines are simulated (root mean square over\n"
            "seeds), dots are exact (fl.theory.exact), dashed is the predicted bias."
        )
        figure.text(0.015, 0.01, note, fontsize="small", color=theme.SOFT, va="bottom", linespacing=1.4)
    return figure


def _draw_map(axes, problem, theta):
    cells = LAKE_CELLS(np.arange(16))
    values, drift = cells @ problem.theta_star, cells @ (theta - problem.theta_star)
    matplotlib = theme.matplotlib()
    blues, middle = matplotlib.colormaps["Blues"], {"ha": "center", "va": "center"}
    for s, letter in enumerate(LAKE_MAP):
        x, y = s % 4, s // 4
        shade = theme.SOFT if letter == "H" else "#fff3d6" if letter == "G" else blues(0.1 + 0.4 * values[s])
        axes.add_patch(matplotlib.patches.Rectangle((x, y), 1, 1, facecolor=shade, edgecolor="white", linewidth=2))
        if letter == "G":
            axes.text(x + 0.5, y + 0.5, "goal", **middle)
        elif letter != "H":
            axes.text(x + 0.5, y + 0.45, f"{values[s]:.2f}", **middle)
            words = f"{drift[s]:+.3f}".replace("-", "\u2212")
            axes.text(x + 0.5, y + 0.77, words, fontsize="small", color="#a34700", **middle)  # orange, read on blue
        if letter == "S":
            axes.text(x + 0.5, y + 0.16, "start", fontsize="small", **middle)
    axes.set(xlim=(0, 4), ylim=(4, 0), aspect="equal", anchor="W")
    axes.axis("off")
    axes.set_title("shared values θ⋆, and FedLSA's drift", loc="left")


def _draw_start(axes, problem, found):
    V = fl.theory.value_functions(problem)[:, 0]
    axes.plot(RATES, V, "o", color=theme.INK, markersize=3.6)
    axes.text(0.34, V.max(), "each lake's own,\nby dynamic programming", fontsize="small", va="top")
    shared, (fedlsa, scafflsa) = problem.theta_star[0], (theta[0] for theta in found)
    axes.axhline(shared, color=theme.INK, linewidth=1.3, linestyle=theme.DASHED, zorder=2)
    for value, name, words in ((fedlsa, "FedLSA", "FedLSA"), (scafflsa, "SCAFFLSA", "θ⋆ and SCAFFLSA")):
        above = (name == "FedLSA") == (fedlsa > shared)
        hue = theme.METHODS[name]
        axes.axhline(value, color=hue, linewidth=1.3, zorder=1)
        axes.annotate(words, (0.34, value), (0, 3 if above else -3), textcoords="offset points", fontsize="small",
                      color=hue, va="bottom" if above else "top")  # fmt: skip
    axes.set(xlabel="probability that a step succeeds", ylim=(0, None))
    axes.set_title("value of the start", loc="left")


def _draw_errors(axes, runs, curves, biases):
    for method, run, curve, bias in zip(METHODS, runs, curves, biases, strict=True):
        name = type(method).__name__
        hue, t = theme.METHODS[name], run["rounds"].values
        error = np.sqrt(run["squared_error"].mean("seed").values)
        axes.plot(t, error, color=hue, linewidth=1.5, zorder=3)
        axes.plot(t, np.sqrt(curve["mse"].values), ".", color=hue, markersize=4.5, zorder=4)
        if bias > 0:
            axes.axhline(bias, color=hue, linestyle=theme.DASHED, linewidth=1.1)
        axes.annotate(name, (t[-1], max(bias, *error[t > t[-1] / 5])), (0, 5), textcoords="offset points", color=hue,
                      ha="right", fontweight="bold")  # fmt: skip
    axes.set_xscale("symlog", linthresh=1, linscale=0.3)
    axes.set_yscale("log")
    last = int(runs[0]["rounds"][-1])
    axes.set_xticks(ticks := [t for t in (0, 1, 10, 50, 1000) if t <= last], [str(t) for t in ticks])
    axes.set(xlabel="communications", xlim=(0, last))
    axes.set_title("‖θ \u2212 θ⋆‖, 5000 local steps in a round", loc="left")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/lakes.png"), help="the picture (.png, .pdf or .svg)")
    main(parser.parse_args().out)
