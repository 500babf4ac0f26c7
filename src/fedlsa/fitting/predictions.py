"""A fitted model at new points: from tables, files or arrays to values with their intervals."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentTypeError
from ..formatting import Displayed
from ..frozen import ReadOnly
from ..problems import features as maps
from .rows.columns import require
from .rows.design import design_of
from .site_sums import no_rows
from .sites.arrays import ROWS, by_name, has_names
from .sites.site_files import open_file
from .tasks import Regression, Value

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Displayed, ReadOnly):
    """A model at n points with error bars, each (n,).

    value : of the model
    standard_error : of the value, because data are finite
    low, high : ends of an interval that covers the true model's value with the probability that was asked for
    observation_low, observation_high : the same for one new observation, which has noise of its own; NaN for a value
        function
    """

    value: Floats
    standard_error: Floats
    low: Floats
    high: Floats
    observation_low: Floats
    observation_high: Floats

    def to_frame(self) -> pd.DataFrame:
        """A pandas table with a row for each point."""
        import pandas as pd

        return pd.DataFrame({f.name: getattr(self, f.name) for f in fields(self)})


def design_and_offset(fit: Any, new: Any) -> tuple[Floats, Floats | float]:
    """The rows with which coefficients are multiplied, (n, d), and what is added, (n,), at points as in Fit.predict."""
    task, offset = fit.task, fit.task.offset if isinstance(fit.task, Regression) else None
    given = "new"
    if isinstance(new, str | os.PathLike):
        given, new = _from_file(fit, new, offset)
    added: Floats | float = 0.0
    if offset is not None:
        if not has_names(new):
            raise ArgumentTypeError(f"{given} must be a table with the offset {offset!r}; got {checks.show(new)}")
        added = by_name(given, new, (offset,))[:, 0]
    formula = design_of(task, tuple(fit.levels.items()))
    if formula is not None:
        return formula.of_table(given, new), added
    mapped = not isinstance(task, Regression) and task.features is not None
    if has_names(new):
        new = by_name(given, new, fit.columns)
        new = new[:, 0] if mapped and len(fit.columns) == 1 else new
    if mapped:
        x = maps.apply(task.features, np.asarray(new), given)
    else:
        d = len(fit.theta) - task.intercept
        one = isinstance(task, Value) and d == 1 and np.ndim(new) == 1  # states that are numbers
        x = checks.array(given, np.asarray(new)[:, None] if one else new, ("n", d))
    return np.column_stack([x, np.ones(len(x))]) if task.intercept else x, added


def _from_file(fit: Any, path: str | os.PathLike[str], offset: str | None) -> tuple[str, dict[str, Any]]:
    """The name of a file, and the columns that the model needs, by name."""
    file = checks.path("new", path)
    site = open_file(file.name or str(file), file)
    wanted = [*fit.columns, *([] if offset is None else [offset])]
    for column in wanted:
        require(site, column)
    numbers, labels = [c for c in wanted if c not in fit.levels], [c for c in wanted if c in fit.levels]
    blocks = list(site.pieces(numbers, ROWS, labels))
    if not blocks:
        raise no_rows(site.name)
    categories = {c: np.concatenate([b.labels[c] for b in blocks]) for c in labels}
    return site.name, {c: np.concatenate([b[c] for b in blocks]) for c in numbers} | categories


def predict_rows(fit: Any, x: Floats, offset: Floats | float, reach: float) -> Prediction:
    """The model at rows x : (n, d), with intervals that reach so many standard errors to either side."""
    variance = np.sum((x @ fit.root) ** 2, axis=1)
    value, error = x @ fit.theta + offset, reach * np.sqrt(variance)
    wide = reach * np.sqrt(variance + fit.residual_variance)
    return Prediction(value, np.sqrt(variance), value - error, value + error, value - wide, value + wide)
