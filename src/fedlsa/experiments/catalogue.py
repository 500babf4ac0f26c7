"""Every experiment, by the name that `fedlsa reproduce` is given; a new one is one more entry."""

from __future__ import annotations

from . import curves, growth, markovian, one_shot, values
from .base import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        *curves.EXPERIMENTS,
        *growth.EXPERIMENTS,
        *one_shot.EXPERIMENTS,
        *markovian.EXPERIMENTS,
        *values.EXPERIMENTS,
    )
}
