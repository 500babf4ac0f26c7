"""Every experiment, by the name that `fedlsa reproduce` is given; a new one is one more entry."""

from __future__ import annotations

from . import corrections, cost_tables, linear_speedup, one_shot, paper_curves, skipping, value_functions
from .experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        paper_curves.MAIN,
        linear_speedup.EXPERIMENT,
        *paper_curves.APPENDIX,
        *cost_tables.EXPERIMENTS,
        one_shot.EXPERIMENT,
        skipping.EXPERIMENT,
        value_functions.EXPERIMENT,
        corrections.EXPERIMENT,
    )
}
