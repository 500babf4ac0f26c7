"""Fifty CartPoles with poles of different length: one value function from their logs, with a Fourier basis.

Every site records 1000 steps of the same clumsy controller on a pole of its own length. FedLSA and SCAFFLSA then learn
one value function from the logs, without moving them. Run it with `python examples/cartpoles.py`; it leaves
out/cartpoles.png. docs/environments.md explains it.
"""

import argparse
from pathlib import Path

import numpy as np

import fedlsa as fl
from fedlsa.figures import theme
from fedlsa.problems.families import POLE_BASIS, cartpole_logs, pole_features

SITES, STEPS, ROUNDS, SEEDS, DISCOUNT = 50, 1000, 40, 5, 0.95
LENGTHS = np.geomspace(0.2, 1.5, SITES)  # half the pole, in metres; CartPole's own is 0.5
METHODS = [fl.FedLSA(step_size=0.05, local_steps=4000), fl.SCAFFLSA(step_size=0.05, local_steps=4000)]


def main(out: Path = Path("out/cartpoles.png"), steps: int = STEPS, rounds: int = ROUNDS, seeds: int = SEEDS) -> None:
    logs = cartpole_logs(SITES, LENGTHS[0], LENGTHS[-1], steps)  # fl.problems.cartpoles makes the problem alone
    problem = fl.problems.from_logs(logs, pole_features, DISCOUNT)
    runs = fl.simulate_grid(
        problem, METHODS, rounds=rounds, seeds=seeds, theta_0=np.zeros(problem.dim), record=rounds + 1
    )
    biases = [float(np.linalg.norm(fl.theory.bias(problem, 0.05, 4000))), 0.0]
    found = [run["theta"].isel(rounds=-1).mean("seed").values for run in runs]

    falls, cuts = (sum(int(getattr(log, end).sum()) for log in logs) for end in ("terminated", "truncated"))
    print(f"{SITES} sites, {steps} steps each: {falls} episodes ended, {cuts} were cut short; d = {problem.dim}")
    size = float(np.linalg.norm(problem.theta_star))
    print(f"{'':<12}{'V(upright)':>11}{'error':>9}{'of ‖θ⋆‖':>10}{'bias':>9}{'rounds to 5%':>14}")
    print(f"{'shared':<12}{_upright(problem.theta_star):>11.2f}")
    for method, run, bias, theta in zip(METHODS, runs, biases, found, strict=True):
        error = np.sqrt(run["squared_error"].mean("seed").values)
        below = np.flatnonzero(error < 0.05 * size)
        when = str(int(run["rounds"][below[0]])) if len(below) else "never"
        row = f"{_upright(theta):>11.2f}{error[-1]:>9.3f}{error[-1] / size:>10.1%}{bias:>9.3f}{when:>14}"
        print(f"{type(method).__name__:<12}{row}")
    out.parent.mkdir(parents=True, exist_ok=True)
    fl.figures.save(draw(problem, logs, runs, biases, found), out, command="python examples/cartpoles.py")
    print(f"picture: {out}")


def _upright(theta: np.ndarray) -> np.ndarray:
    """The value of a pole that stands still; theta : (..., d)."""
    return theta @ POLE_BASIS([[0.0, 0.0]])[0]


def draw(problem, logs, runs, biases, found):
    """The learnt values; what each site alone would say of the upright pole; error against communications."""
    with fl.figures.style("notebook"):
        figure = theme.matplotlib().figure.Figure(figsize=(7.0, 6.4), layout="constrained")
        figure.get_layout_engine().set(rect=(0.01, 0.13, 0.98, 0.82), hspace=0.07, wspace=0.06)
        panels = figure.subplot_mosaic([["values", "sites"], ["errors", "errors"]], height_ratios=(1.2, 1))
        _draw_values(panels["values"], found[1], logs)
        _draw_sites(panels["sites"], problem, found)
        _draw_errors(panels["errors"], problem, runs, biases)
        figure.text(0.015, 0.985, "Fifty poles, one value function", fontsize="large", fontweight="bold", va="top")
        note = (
            "Value: discounted number of steps until an episode ends, at most 20. Left: 98% of visited angles and\n"
            "of velocities lie within the dashed frame; dots are last states (at the sides the pole fell, in the\n"
            "middle the cart left its track). Right: long poles seldom fall, so a site alone knows little of it.\n"
            "Below: dashed is FedLSA's predicted bias."
        )
        figure.text(0.015, 0.01, note, fontsize="small", color=theme.SOFT, va="bottom", linespacing=1.4)
    return figure


def _draw_values(axes, theta, logs):
    angle, speed = (np.linspace(POLE_BASIS.low[k], POLE_BASIS.high[k], 121) for k in (0, 1))
    grid = np.stack(np.meshgrid(angle, speed), axis=-1)
    value = (POLE_BASIS(grid.reshape(-1, 2)) @ theta).reshape(121, 121)
    levels = np.arange(0, 22, 2)
    shades = axes.contourf(np.degrees(angle), speed, value, levels=levels, cmap="Blues", extend="both")
    axes.figure.colorbar(shades, ax=axes, ticks=levels[::2], shrink=0.9, pad=0.02)
    seen = np.concatenate([log.state[:, 2:] for log in logs])
    fell = np.concatenate([log.state[log.terminated][:, 2:] for log in logs])
    (a, c), (b, d) = np.quantile(seen, [0.01, 0.99], axis=0) * [180 / np.pi, 1]
    axes.plot([a, b, b, a, a], [c, c, d, d, c], color=theme.INK, linestyle=theme.DASHED, linewidth=0.9)
    inside = (np.abs(fell) < POLE_BASIS.high).all(axis=1)
    axes.plot(
        np.degrees(fell[inside, 0]), fell[inside, 1], ".", color=theme.METHODS["FedLSA"], markersize=2.2, alpha=0.7
    )
    axes.set(xlabel="angle of the pole (degrees)", ylabel="angular velocity (rad/s)")
    axes.grid(visible=False)
    axes.set_title("learnt by SCAFFLSA: value of a state", loc="left")


def _draw_sites(axes, problem, found):
    own = _upright(problem.theta_star_local)
    axes.plot(2 * LENGTHS, own, "o", color=theme.INK, markersize=3.4)
    axes.text(
        2 * LENGTHS[-1], np.nanmin(own), "dots: each site's\nown solution", fontsize="small", ha="right", va="bottom"
    )
    shared, fedlsa, scafflsa = (float(_upright(theta)) for theta in (problem.theta_star, *found))
    axes.axhline(shared, color=theme.INK, linestyle=theme.DASHED, linewidth=1.3, zorder=2)
    for value, name, words in ((fedlsa, "FedLSA", "FedLSA"), (scafflsa, "SCAFFLSA", "SCAFFLSA\nand θ⋆")):
        hue = theme.METHODS[name]
        axes.axhline(value, color=hue, linewidth=1.3, zorder=1)
        above = (name == "FedLSA") == (fedlsa > shared)
        axes.annotate(words, (1, value), (3, 1 if above else -1), xycoords=("axes fraction", "data"), color=hue,
                      textcoords="offset points", fontsize="small", va="bottom" if above else "top")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(ticks := [0.5, 1, 2, 3], [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set(xlabel="length of the pole (metres)")
    axes.set_title("value of the upright pole", loc="left")


def _draw_errors(axes, problem, runs, biases):
    size = float(np.linalg.norm(problem.theta_star))
    for method, run, bias in zip(METHODS, runs, biases, strict=True):
        name = type(method).__name__
        hue, t = theme.METHODS[name], run["rounds"].values
        error = np.sqrt(run["squared_error"].mean("seed").values) / size
        axes.plot(t, error, color=hue, linewidth=1.5, zorder=3)
        top = max(bias / size, *error[t > 0.8 * t[-1]])
        axes.annotate(name, (t[-1], top), (0, 5), textcoords="offset points", color=hue, ha="right", fontweight="bold")
        if bias > 0:
            axes.axhline(bias / size, color=hue, linestyle=theme.DASHED, linewidth=1.1)
    axes.set_yscale("log")
    axes.set(xlabel="communications", xlim=(0, int(t[-1])))
    axes.set_title("‖θ \u2212 θ⋆‖ / ‖θ⋆‖, 4000 local steps in a round", loc="left")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/cartpoles.png"), help="the picture (.png, .pdf or .svg)")
    main(parser.parse_args().out)
