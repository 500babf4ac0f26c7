"""Every experiment, by the name that `fedlsa reproduce` is given; a new one is one more entry."""

from __future__ import annotations

from . import curves, markovian, values
from .base import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e for e in (*curves.EXPERIMENTS, *markovian.EXPERIMENTS, *values.EXPERIMENTS)
}
