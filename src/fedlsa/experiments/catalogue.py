"""Every experiment, by the name that `fedlsa reproduce` is given; a new one is one more entry."""

from __future__ import annotations

from . import appendix_curves, corrections, growth, linear_speedup, one_shot, paper_curves, skipping, value_functions
from .experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        paper_curves.MAIN,
        linear_speedup.EXPERIMENT,
        *appendix_curves.EXPERIMENTS,
        *growth.EXPERIMENTS,
        one_shot.EXPERIMENT,
        skipping.EXPERIMENT,
        value_functions.EXPERIMENT,
        corrections.EXPERIMENT,
    )
}
