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
    print(f"{'':<12}{'V(upright)':>11}{'error':>9}{'of ‖θ*‖':>10}{'bias':>9}{'rounds to 5%':>14}")
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
    matplotlib = theme.matplotlib()
    with fl.figures.style("notebook"), matplotlib.rc_context({"font.size": 8.6, "lines.linewidth": 1.5}):
        figure = matplotlib.figure.Figure(figsize=(9.6, 3.7))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.15, 1, 1.15))
        figure.subplots_adjust(left=0.052, right=0.985, top=0.8, bottom=0.25, wspace=0.27)
        _draw_values(figure, left, found[1], logs)
        _draw_sites(middle, problem, found)
        _draw_errors(right, problem, runs, biases)
        figure.text(0.012, 0.955, "Fifty poles, one value function", fontsize=11.5, fontweight="bold", va="top")
        note = (
            "Value: discounted number of steps until an episode ends, at most 20. Left: 98% of visited angles and of "
            "velocities lie between the dashed lines; dots are last states\n(at the sides the pole fell, in the middle "
            "the cart left its track). Middle: long poles seldom fall, so a site alone knows little of it. Right: "
            "dashed is FedLSA's predicted bias."
        )
        figure.text(0.012, 0.02, note, fontsize=7, color=theme.SOFT, va="bottom", linespacing=1.4)
    return figure


def _draw_values(figure, axes, theta, logs):
    angle, speed = (
        np.linspace(POLE_BASIS.low[0], POLE_BASIS.high[0], 121),
        np.linspace(POLE_BASIS.low[1], POLE_BASIS.high[1], 121),
    )
    grid = np.stack(np.meshgrid(angle, speed), axis=-1)
    value = (POLE_BASIS(grid.reshape(-1, 2)) @ theta).reshape(121, 121)
    levels = np.arange(0, 22, 2)
    axes.contourf(np.degrees(angle), speed, value, levels=levels, cmap="Blues", extend="both")
    lines = axes.contour(np.degrees(angle), speed, value, levels=levels[::2], colors=theme.INK, linewidths=0.5)
    axes.clabel(lines, fontsize=6.5)
    seen = np.concatenate([log.state[:, 2:] for log in logs])
    fell = np.concatenate([log.state[log.terminated][:, 2:] for log in logs])
    (a, c), (b, d) = np.quantile(seen, [0.01, 0.99], axis=0) * [180 / np.pi, 1]
    axes.plot([a, b, b, a, a], [c, c, d, d, c], color=theme.INK, linestyle=theme.DASHED, linewidth=0.9)
    inside = (np.abs(fell) < POLE_BASIS.high).all(axis=1)
    axes.plot(
        np.degrees(fell[inside, 0]), fell[inside, 1], ".", color=theme.METHODS["FedLSA"], markersize=1.8, alpha=0.7
    )
    axes.set(xlabel="angle of the pole (degrees)", ylabel="angular velocity (rad/s)")
    axes.grid(visible=False)
    axes.set_title("learnt by SCAFFLSA: value of a state", fontsize=8.5, loc="left")


def _draw_sites(axes, problem, found):
    own = _upright(problem.theta_star_local)
    axes.plot(2 * LENGTHS, own, "o", color=theme.INK, markersize=3.4)
    axes.text(2 * LENGTHS[-1], np.nanmin(own), "dots: each site's\nown solution", fontsize=7.5, ha="right", va="bottom")
    levels = [(problem.theta_star, theme.INK, theme.DASHED), (found[0], theme.METHODS["FedLSA"], "-")]
    for theta, hue, stroke in [*levels, (found[1], theme.METHODS["SCAFFLSA"], "-")]:
        axes.axhline(_upright(theta), color=hue, linestyle=stroke, linewidth=1.3, zorder=1 if stroke == "-" else 2)
    shared, fedlsa = _upright(problem.theta_star), _upright(found[0])
    above = fedlsa > shared
    gap = 0.12
    axes.text(0.41, fedlsa + (gap if above else -gap), "FedLSA", fontsize=7.5, color=theme.METHODS["FedLSA"],
              va="bottom" if above else "top")  # fmt: skip
    axes.text(2 * LENGTHS[-1], shared + (-gap if above else gap), "θ* and SCAFFLSA", fontsize=7.5, ha="right",
              color=theme.METHODS["SCAFFLSA"], va="top" if above else "bottom")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(ticks := [0.5, 1, 2, 3], [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set(xlabel="length of the pole (metres)")
    axes.set_title("value of the upright pole", fontsize=8.5, loc="left")


def _draw_errors(axes, problem, runs, biases):
    size = float(np.linalg.norm(problem.theta_star))
    for method, run, bias in zip(METHODS, runs, biases, strict=True):
        name = type(method).__name__
        hue, t = theme.METHODS[name], run["rounds"].values
        error = np.sqrt(run["squared_error"].mean("seed").values) / size
        axes.plot(t, error, color=hue, zorder=3)
        axes.text(t[-1], error[-8:].max() * 1.1, name, color=hue, ha="right", fontsize=8.5, fontweight="bold")
        if bias > 0:
            axes.axhline(bias / size, color=hue, linestyle=theme.DASHED, linewidth=1.1)
    axes.set_yscale("log")
    axes.set(xlabel="communications", xlim=(0, int(t[-1])))
    axes.set_title("‖θ \u2212 θ*‖ / ‖θ*‖, 4000 local steps in a round", fontsize=8.5, loc="left")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/cartpoles.png"), help="the picture (.png, .pdf or .svg)")
    main(parser.parse_args().out)
