"""The sliders and choices of the page, and settings from their values.

They come in groups, each a dictionary that marimo watches: a cell that shows a group and makes it is not run again when
one of its sliders moves, so that nothing is drawn anew under the reader's finger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import marimo as mo
import numpy as np

from .page_settings import AXES, PROBLEMS, TASKS, PageSettings

ETAS = [float(f"{v:.2g}") for v in np.geomspace(1e-3, 3, 61)]
STEPS = [1, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000, 2000, 3000, 5000, 7000, 10000]
CHANCES = [float(f"{v:.2g}") for v in np.geomspace(1e-4, 1, 41)]
ROUNDS = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]
AGENTS = [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 70, 100]
PERTURBATIONS = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
DISCOUNTS = [0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99]
NOISES = [0.0, 0.05, 0.1, 0.2, 0.5, 1.0]
THINS = [1, 2, 3, 5, 10, 20, 50, 100]
SEEDS = [1, 5, 10, 20, 50, 100, 200]
EPSILONS = [float(f"{v:.2g}") for v in np.geomspace(0.01, 1, 21)]
SPREADS = [round(0.1 * k, 1) for k in range(11)]
GRIDS: dict[str, tuple[str, Sequence[float]]] = {
    "agents": ("agents N", AGENTS),
    "noise": ("noise", NOISES),
    "perturbation": ("perturbation within a world", PERTURBATIONS),
    "discount": ("discount \u03b3", DISCOUNTS),
    "features": ("features d", range(2, 17)),
    "spread": ("how much they differ", SPREADS),
    "step_size": ("step size η", ETAS),
    "local_steps": ("local steps H", STEPS),
    "rounds": ("rounds T", ROUNDS),
    "thin": ("use every q-th observation, q", THINS),
    "seeds": ("seeds", SEEDS),
    "round": ("opens with round, here and where it is saved", range(1, 21)),
    "epsilon": ("accuracy ε (root mean squared error)", EPSILONS),
}
CHOICES: dict[str, tuple[str, Mapping[str, str]]] = {
    "problem": ("problem", PROBLEMS),
    "preset": ("instance", {"authors": "of the authors' code", "paper": "of the paper's text"}),
    "task": ("estimate", TASKS),
    "weight": ("sites count", {"sites": "all alike", "samples": "by their rows"}),
    "sampling": ("observations", {"iid": "independent", "markov": "along a trajectory"}),
    "x": ("horizontal axis", AXES),
    "scale": ("its scale", {"linear": "linear", "log": "logarithmic"}),
}
WORDS = {"state": "state columns begin with", "next_state": "next-state columns begin with"}
OF_METHOD = ("step_size", "local_steps", "rounds", "sampling", "thin", "own", "probability")
OF_VIEW = ("x", "scale", "seeds")


def problem_choice(s: PageSettings, put: Callable[[PageSettings], None]) -> Any:
    """The choice of the problem; another one begins at settings of its own."""
    return _choice("problem", s.problem, on_change=lambda kind: put(PageSettings.start(kind)))


def group(s: PageSettings, names: Sequence[str]) -> Any:
    """Controls of those names at the values of s, as one dictionary that marimo watches."""
    return mo.ui.dictionary({name: _control(s, name) for name in names})


def settings(problem: str, target: str | None, *groups: Mapping[str, Any]) -> PageSettings:
    """The settings that the controls show; target : the column chosen among those of the files."""
    named = {name: value for values in groups for name, value in values.items()}
    if not named.pop("own"):
        named["probability"] = None
    return PageSettings(problem=problem, target=target or "", **named)


def _control(s: PageSettings, name: str) -> Any:
    if name == "heterogeneous":
        return mo.ui.switch(s.heterogeneous, label="two different worlds")
    if name == "seed":
        return mo.ui.number(0, 2**31 - 1, value=s.seed, step=1, label="seed of the worlds")
    if name == "own":
        return mo.ui.switch(s.probability is not None, label="Scaffnew at a rate of its own")
    if name == "probability":
        return _slider("its communication probability p", CHANCES, s.chance)
    if name in WORDS:
        return mo.ui.text(getattr(s, name), label=WORDS[name], full_width=True)
    if name in CHOICES:
        return _choice(name, getattr(s, name))
    return _slider(*GRIDS[name], getattr(s, name))


def _slider(label: str, grid: Sequence[float], value: float) -> Any:
    """A slider over the grid; a value from elsewhere (a link, a plan) gets a place of its own on it."""
    steps = sorted({*grid, value})
    return mo.ui.slider(steps=steps, value=value, label=label, show_value=True, full_width=True)


def _choice(name: str, value: str, **more: Any) -> Any:
    label, words = CHOICES[name]
    options = {text: key for key, text in words.items()}
    element: Callable[..., Any] = mo.ui.dropdown if name in ("problem", "preset", "x", "scale") else mo.ui.radio
    more |= {"full_width": True} if element is mo.ui.dropdown else {"inline": True}
    return element(options, value=words[value], label=label, **more)
