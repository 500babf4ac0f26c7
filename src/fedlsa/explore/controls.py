"""The sliders and choices of the page, and settings from their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import marimo as mo
import numpy as np

from .settings import AXES, PROBLEMS, TASKS, Settings

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
    "round": ("opens with round", range(1, 21)),
    "epsilon": ("accuracy ε (root mean squared error)", EPSILONS),
}
CHOICES: dict[str, tuple[str, Mapping[str, str]]] = {
    "problem": ("problem", PROBLEMS),
    "preset": ("instance", {"authors": "of the authors' code", "paper": "of the paper's text"}),
    "task": ("estimate", TASKS),
    "weight": ("sites count", {"sites": "all alike", "samples": "by their rows"}),
    "sampling": ("observations", {"iid": "independent", "markov": "along a trajectory"}),
    "x": ("horizontal axis", AXES),
    "scale": ("", {"linear": "linear", "log": "logarithmic"}),
}
WORDS = {"target": "column to be explained", "state": "state columns begin with", "next_state": "next-state columns"}


def controls(s: Settings) -> Any:
    """One control per setting, at the values of s, as a dictionary that marimo watches."""
    made: dict[str, Any] = {name: _slider(label, grid, getattr(s, name)) for name, (label, grid) in GRIDS.items()}
    made |= {name: _choice(name, getattr(s, name)) for name in CHOICES if name != "problem"}
    made |= {name: mo.ui.text(getattr(s, name), label=label, full_width=True) for name, label in WORDS.items()}
    made["heterogeneous"] = mo.ui.switch(s.heterogeneous, label="two different worlds")
    made["seed"] = mo.ui.number(0, 2**31 - 1, value=s.seed, step=1, label="seed of the worlds")
    made["own"] = mo.ui.switch(s.probability is not None, label="Scaffnew communicates at its own rate")
    made["probability"] = _slider("communication probability p", CHANCES, s.chance)
    return mo.ui.dictionary(made)


def problem_choice(s: Settings, put: Callable[[Settings], None]) -> Any:
    """The choice of the problem; another one begins at settings of its own."""
    return _choice("problem", s.problem, on_change=lambda kind: put(Settings.start(kind)))


def settings(problem: str, values: Mapping[str, Any], target: str | None = None) -> Settings:
    """The settings that the controls show; target : chosen elsewhere, among the columns of uploaded files."""
    named = {f.name: values[f.name] for f in fields(Settings) if f.name in values}
    named["probability"] = named["probability"] if values["own"] else None
    if target is not None:
        named["target"] = target
    return Settings(problem=problem, **named)


def _slider(label: str, grid: Sequence[float], value: float) -> Any:
    """A slider over the grid; a value from elsewhere (a link, a plan) gets a place of its own on it."""
    steps = sorted({*grid, value})
    return mo.ui.slider(steps=steps, value=value, label=label, show_value=True, full_width=True)


def _choice(name: str, value: str, **more: Any) -> Any:
    label, words = CHOICES[name]
    options = {text: key for key, text in words.items()}
    element: Callable[..., Any] = mo.ui.dropdown if name in ("problem", "preset", "x") else mo.ui.radio
    more |= {"full_width": True} if element is mo.ui.dropdown else {"inline": True}
    return element(options, value=words[value], label=label, **more)
