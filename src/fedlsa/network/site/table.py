"""The site's table as runs read it: looked at once, made ready for local steps, and drawn from in secret.

Rows are drawn from the site's secret and the label of the order. So the same order has the same answer, also after a
crash, and no two orders draw the same rows: a coordinator cannot look at one sample of rows twice.
"""

from __future__ import annotations

import hmac
import json
import math
from dataclasses import dataclass, field, replace

import numpy as np

from ...checks import Floats
from ...fit.observe import FeatureScale
from ..folder.config import SiteFolder
from ..protocol.client import LocalSteps
from ..protocol.coding import shortening
from ..protocol.messages import Work
from ..protocol.ring import LIMB_BITS
from ..protocol.run_settings import RunTerms
from .facts import TableView, view
from .limits import RowSizes
from .site_data import SiteData, Steps, prepare_steps, scale_to_json


@dataclass
class SiteTable:
    """What has been read of the table, until its file changes; secret : of the site, from which rows are drawn."""

    site: SiteFolder
    data: SiteData
    secret: bytes
    stamp: list[str | int] = field(default_factory=list)  # of the data, as they were read last
    viewed: TableView | None = None
    prepared: dict[str, tuple[Steps, RowSizes]] = field(default_factory=dict)  # of the latest run, by its key

    def view(self) -> TableView:
        """The table as the task reads it."""
        self._look()
        if self.viewed is None:
            self.viewed = view(self.data.opened, self.site.task)
        return self.viewed

    def prepare(self, terms: RunTerms, scale: FeatureScale) -> tuple[Steps, RowSizes]:
        """Local steps in the run's coordinates, and what the policy asks of the rows."""
        self._look()
        key = json.dumps([terms.local, terms.coding.row_clip, scale_to_json(scale)])
        if key not in self.prepared:
            how = self.site.folder, terms.local, terms.coding.row_clip
            self.prepared = {key: prepare_steps(self.data, self.site.task, scale, *how)}
        return self.prepared[key]

    def _look(self) -> None:
        """Forget what was read of a file that has changed since."""
        if self.data.stamp() != self.stamp:
            self.data, self.stamp = replace(self.data), self.data.stamp()
            self.viewed, self.prepared = None, {}

    def drawing(self, steps: Steps, work: Work, secure: bool) -> LocalSteps:
        """Local steps on rows that the site's secret and the order's label choose.

        Behind masks a change beyond the range of sums is cut, not refused: who chooses the range, or a step size that
        leaves it, would learn from refusals how long the change of this one site is.
        """
        longest = work.unit * 2.0 ** (LIMB_BITS * work.limbs - 3)  # so long a mean is in range, for weights sum to 1

        def local(theta: Floats, xi: Floats, eta: float, count: int, label: bytes) -> Floats:
            seed = int.from_bytes(hmac.digest(self.secret, label, "sha256")[:8], "big")
            found = steps(theta, xi, eta, count, 0, seed, 0)
            if not secure:
                return found
            with np.errstate(over="ignore", invalid="ignore"):
                change = found - theta
                known = bool(np.isfinite(change @ change))
            return theta + (change * shortening(change, longest) if known else 0.0)

        return local

    def told_size(self, delta: Floats, label: bytes) -> float:
        """The length of a change, a power of two from half of it to twice: up or down by the site's secret.

        If it were always up, whoever varies the step size would see where the length passes a power of two, and so
        learn the length. On average over orders the logarithm is that of the length.
        """
        upward = int.from_bytes(hmac.digest(self.secret, b"size" + label, "sha256")[:6], "big") / 2**48
        norm = float(np.linalg.norm(delta))
        return 2.0 ** math.floor(math.log2(norm) + upward) if norm > 0 else 0.0
