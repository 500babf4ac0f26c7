"""Standard errors of a run between sites, from two more sums over all of them, and a run's result as a model.

All sites must take part (share_scores in their policies): the sums are masked as those of rounds are, and hold d x d
numbers. fitting/covariance.py has the mathematics.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import FedLSAError, NetworkError
from ...fitting.covariance import ScorePoint, convergence_notes, fields_of_fit, solution_point
from ...fitting.fitted import Fit, SiteReport
from ...fitting.model_files import to_plain, typed_fields
from ...fitting.tasks import Regression, Task
from ...results.recipe import versions
from ..protocol.agreed_design import AgreedDesign
from ..protocol.codec import printable
from ..protocol.messages import Score, Solve, Sums
from ..protocol.ring import STATISTICS, to_floats
from ..protocol.server import ServerState, summed
from ..site.site_data import scale_from_json
from .agreement import Agreement, Inquiry, total

MOST_COEFFICIENTS = 300  # of which sums of products are a message of less than 16 MiB


def standard_errors(with_: Inquiry, state: ServerState, terms: Agreement, slack: float) -> dict[str, Any]:
    """What result.json holds of them: fields of a Fit under "errors", or under "no_errors" why there are none.

    slack : the relative error of the last direction, about
    """
    task, scale = with_.network.task, scale_from_json(terms["scale"])
    T, t = scale.original()
    try:
        if not isinstance(task, Regression):
            raise NetworkError("sums of sites give those of a regression, not of a value function")
        if terms["chosen"]:
            at, chosen = _of_chosen_coefficients(state, terms, task.ridge)
        else:
            at, chosen = _of_all_coefficients(with_, state, terms)
        order = Score(**_common(state) | {"theta": at.theta}, directions=at.directions, A=at.A, spread=at.spread)
        found = fields_of_fit(task, scale, sum(terms["rows"].values()), at, _sum(with_, order), chosen)
        notes = convergence_notes(found["theta"], T @ state.estimate + t, found["covariance"], max(state.slack, slack))
        return {"errors": to_plain(found | {"notes": notes})}
    except (FedLSAError, ArithmeticError, np.linalg.LinAlgError) as error:
        return {"no_errors": printable(error, 500)}


def _of_all_coefficients(with_: Inquiry, state: ServerState, terms: Agreement) -> tuple[ScorePoint, list[int]]:
    """Where all sites share scores: at the solution, from the sum of their systems."""
    if unwilling := terms["no_scores"]:
        raise NetworkError(f"share_scores is not true in the policy of {', '.join(unwilling)}")
    if state.dim > MOST_COEFFICIENTS:
        rule = f"sums of more than {MOST_COEFFICIENTS} coefficients are too long for a message"
        raise NetworkError(f"{rule}, and there are {state.dim}; errors_of names some")
    system = _sum(with_, Solve(**_common(state)))
    counts = np.array([*terms["rows"].values()]), np.array(terms["weights"])
    return solution_point(system, state.estimate, terms["names"], *counts), list(range(state.dim))


def _of_chosen_coefficients(state: ServerState, terms: Agreement, ridge: float) -> tuple[ScorePoint, list[int]]:
    """Where rounds have found directions: at the run's end."""
    chosen, scale = terms["chosen"], scale_from_json(terms["scale"])
    if len(state.found) < len(chosen):
        raise NetworkError("the run was stopped")
    c = scale.original()[0][chosen]
    directions = np.linalg.norm(c, axis=1, keepdims=True) * np.vstack([state.found[1:], state.theta])
    if scale.intercept:  # sites have a ridge of the intercept too, which is apart from centred columns, and 0
        directions[:, -1] *= 1 + ridge
    return ScorePoint(state.estimate, directions), chosen


def _common(state: ServerState) -> dict[str, Any]:
    """What all orders for sums over all sites say."""
    sites = state.settings.sites
    if (away := state.gone | state.aside).any():
        raise NetworkError(f"{sites[int(np.argmax(away))]} is gone, and sums are over all sites")
    return summed(state, np.arange(len(sites)), int(state.known.min())) | {"theta": state.estimate}


def _sum(with_: Inquiry, order: Solve | Score) -> np.ndarray[Any, Any]:
    """The sum over all sites that an order asks for."""
    answers = with_.ask_all(lambda site: order, Sums)
    if answers is None:
        raise NetworkError("the run was stopped")
    return np.array(to_floats(total([answer.share for answer in answers]), STATISTICS.unit))


def model_of(result: dict[str, Any], task: Task) -> Fit:
    """The fit of a run's result.json; what sites say of themselves alone is NaN, and errors where it has none."""
    protocol = np.array(result["coefficients"], np.float64)
    d, design, settings = len(protocol), AgreedDesign.from_text(result["design"]), result["settings"]
    unknown, square = np.full(d, np.nan), np.full((d, d), np.nan)
    none: dict[str, Any] = {"theta": protocol, "covariance": square, "root": square, "degrees_of_freedom": math.nan}
    known = none | {"covariance_kind": f"none: {result.get('no_errors', 'the run ended early')}"}
    known |= typed_fields(Fit, result.get("errors", {}))
    unknown_site: dict[str, Any] = dict.fromkeys(("distance", "influence", "noise", "finite_data"), math.nan)
    unknown_site |= {"window": 0, "covariance": square, "degrees_of_freedom": math.nan, "without": unknown}
    weights = zip(result["rows"].items(), result["weights"], strict=True)
    return Fit(
        task=task,
        names=tuple(result["names"]),
        columns=design.columns,
        protocol=protocol,
        optimisation=np.abs(protocol - known["theta"]) if "errors" in result else unknown,
        plan=None,
        epsilon=result["epsilon"],
        error={},
        per_site=tuple(SiteReport(name, rows, weight, unknown, **unknown_site) for (name, rows), weight in weights),
        weight=settings["weight"],
        local=settings["local"],
        made_by={"versions": versions(), "network run": result["experiment"]},
        levels=dict(design.levels),
        **known,
    )
