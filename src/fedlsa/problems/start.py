"""Where runs begin unless they are told: the one rule, for simulation, exact theory and plans alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..checks import Floats

LABORATORY_START = "theta_star + 1"  # the authors' start: at the same distance from the answer on every problem


class DefaultStart:
    """Base of problems and of their moments: runs begin at theta_star + 1 in a laboratory, and elsewhere at 0.

    A laboratory is a problem whose model is given whole (a family, decision processes, chains): theta_star is known.
    Data (rows, transitions, observations, files) are there to find theta_star out, so nothing begins near it.
    """

    theta_star: Floats
    laboratory: bool

    @property
    def start(self) -> Floats:
        """(d,): theta_star + 1 in a laboratory, 0 elsewhere; the default of every theta_0."""
        return self.theta_star + 1 if self.laboratory else np.zeros_like(self.theta_star)

    def start_label(self, theta_0: ArrayLike | None = None) -> str:
        """How results, curves and figures name a start: "theta_star + 1", "0" or "given"."""
        return name_start(self.start if theta_0 is None else theta_0, self.theta_star)


def name_start(theta_0: ArrayLike, theta_star: ArrayLike) -> str:
    """The name of a start : (d,), or one per seed, by its numbers."""
    theta_0 = np.asarray(theta_0)
    if not theta_0.any():
        return "0"
    return LABORATORY_START if (theta_0 == np.asarray(theta_star) + 1).all() else "given"
