"""The site's table as runs read it: looked at once, made ready for local steps, and drawn from in secret.

Rows are drawn from the site's secret and the label of the order. So the same order has the same answer, also after a
crash, and no two orders draw the same rows: a coordinator cannot look at one sample of rows twice.
"""

from __future__ import annotations

import hmac
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ...checks import Floats
from ...errors import MessageError, PolicyError
from ...fit.rows.observe import FeatureScale
from ..folder.config import SiteFolder
from ..protocol.agreed_design import AgreedDesign
from ..protocol.client import LocalSteps
from ..protocol.run_settings import RunTerms
from .facts import TableView, view
from .limits import RowSizes, check_table, refused
from .policy import Policy
from .site_data import SiteData, Steps, prepare_steps, scale_to_json


@dataclass
class SiteTable:
    """What has been read of the table, until its file changes; secret : of the site, from which rows are drawn."""

    site: SiteFolder
    data: SiteData
    secret: bytes
    stamp: list[str | int] = field(default_factory=list)  # of the data, as they were read last
    viewed: dict[str, TableView] = field(default_factory=dict)  # by the design, "" for the table's own
    prepared: dict[str, tuple[Steps, RowSizes]] = field(default_factory=dict)  # of the latest run, by its key

    def view(self, design: AgreedDesign | None = None) -> TableView:
        """The table as the task reads it by itself, or with the columns and levels that all sites agreed on."""
        self._look()
        if "" not in self.viewed:
            self.viewed[""] = view(self.data.opened, self.site.task)
        if design is None or design == AgreedDesign.of(self.viewed[""].columns):
            return self.viewed[""]
        if design.text() not in self.viewed:
            found = view(self.data.opened, self.site.task, design)
            self.viewed = {"": self.viewed[""], design.text(): found}
        return self.viewed[design.text()]

    def designed(self, policy: Policy, text: str, first: str | None, sites: int) -> TableView:
        """The table by the design of an order, one in a run, held against the policy like the table's own.

        first : the design that the run began with, None where this is it; sites : how many there are
        """
        if first not in (None, text):
            raise MessageError("'design' must be the one that the run began with; it is another")
        design = AgreedDesign.from_text(text)
        most = policy.most_levels * sites  # each of which would be a column of all rows
        if any(len(levels) > most for _, levels in design.levels):
            raise refused("most_levels", f"a category has more than {most} levels of {sites} sites together")
        seen = self.view(design)
        check_table(policy, seen.facts)
        return seen

    def prepare(self, terms: RunTerms, scale: FeatureScale, design: AgreedDesign) -> tuple[Steps, RowSizes]:
        """Local steps in the run's coordinates, and what the policy asks of the rows."""
        self._look()
        key = json.dumps([terms.local, terms.coding.row_clip, scale_to_json(scale), design.text()])
        if key not in self.prepared:
            how = self.site.folder, terms.local, terms.coding.row_clip, design
            self.prepared = {key: prepare_steps(self.data, self.site.task, scale, *how)}
        return self.prepared[key]

    def check_unchanged(self, stamp: list[str | int], digest: str) -> None:
        """Refuse to go on with a run on another table than it began with: answers would differ by what changed."""
        same = self.data.path is not None and self.data.stamp() == stamp
        if not same and self.view().digest != digest:
            raise PolicyError("the table of this site has changed since the run began")

    def _look(self) -> None:
        """Forget what was read of a file that has changed since."""
        if self.data.stamp() != self.stamp:
            self.data, self.stamp = replace(self.data), self.data.stamp()
            self.viewed, self.prepared = {}, {}

    def dither(self, label: str) -> Iterator[Fraction]:
        """Numbers within 1, from the site's secret and an order's label: they blur the last bits of exact sums."""
        for k in itertools.count():
            found = hmac.digest(self.secret, f"dither {k} {label}".encode(), "sha256")
            yield Fraction(int.from_bytes(found, "big"), 2**255) - 1

    def drawing(self, steps: Steps) -> LocalSteps:
        """Local steps on rows that the site's secret and the order's label choose."""

        def local(theta: Floats, xi: Floats, eta: float, count: int, label: bytes) -> Floats:
            seed = int.from_bytes(hmac.digest(self.secret, label, "sha256")[:8], "big")
            return steps(theta, xi, eta, count, 0, seed, 0)

        return local
