"""The command `fedlsa network budget`: what error a privacy budget buys, before anybody is asked for anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer

from .. import checks
from ..errors import ArgumentError
from ..fitting import Regression
from ..network.coordinator.budget import PrivacyBudget, affordable, example_moments, least_error
from ..network.protocol.privacy import LOCAL, UNITS, check_unit
from .options import AS_JSON, Given, Option, Options, Words, option, takes
from .outputs import print_json
from .task_options import REGRESSION_TASK, VALUE_TASK, chosen_task, site_files

EXAMPLES = (
    "fedlsa network budget like-*.csv --target charges --privacy 1 --unit record --row-clip 10",
    "fedlsa network budget --sites 10 --coefficients 8 --clip 1 --max-rounds 60 --privacy 1",
)
PRIVACY: Words = {
    "epsilon": Option("Epsilon that all rounds together may spend.", "--privacy"),
    "delta": "The probability that goes with it.",
    "unit": Option("What noise hides: site (all its rows) or record (any one row).", names=UNITS),
    "row_clip": "For records: the longest gradient of a row, in the run's coordinates.",
    "rows": Option("For records: rows of the smallest site.", shown="those of the files"),
}
BUDGET = Options(PrivacyBudget, {"Privacy": PRIVACY})
RUN: Words = {
    "error": Option("That is wanted (RMSE, on the standardised scale).", shown="the smallest"),
    "local": Option("What a step uses: rows at random, or the site's means.", names=LOCAL),
    "local_steps": "Of a site in a round.",
    "max_rounds": "Most rounds.",
}
PLAN = Options(affordable, {"Run": RUN})
FILES = typer.Argument(
    default=None, help="Data that resemble the sites', one file per site.", metavar="[FILE...]", show_default=False
)


@takes(budget=BUDGET, plan=PLAN, regression=REGRESSION_TASK, value=VALUE_TASK)
def budget(
    budget: Given,
    plan: Given,
    regression: Given,
    value: Given,
    files: list[Path] | None = FILES,
    sites: int | None = option("Instead of files: how many sites.", panel="Without files"),
    coefficients: int | None = option("How many.", panel="Without files"),
    clip: float | None = option("Longest change that a site sends.", panel="Without files"),
    step_size: float | None = option("For records: the step size.", panel="Without files"),
    json: bool = AS_JSON,
) -> None:
    """What error a privacy budget buys, or that it cannot be afforded: exact on files, a lower bound from numbers."""
    given, run = budget.arguments, plan.arguments
    if not files:
        numbers = {"sites": sites, "coefficients": coefficients, "clip": clip}
        for name, number in numbers.items():
            if number is None:
                raise ArgumentError(f"{name} must be given where there are no files; got None")
        asked, R = PrivacyBudget(**given), run["max_rounds"]
        weights = np.full(checks.integer("sites", sites, at_least=1), 1 / (sites or 1))
        more = {"local": run["local"], "step_size": step_size, "local_steps": run["local_steps"]}
        least, noise = least_error(asked, weights, coefficients, R, clip, **more)  # type: ignore[arg-type]
        if json:
            print_json(budget=asked, rounds=R, noise=noise, least_rmse=least)
            return
        print(
            f"({asked.epsilon:g}, {asked.delta:g})-differential privacy of a {asked.unit} in {R} rounds asks for noise "
            f"of {noise:.3g} times the clip; no method then ends nearer than {least:.3g} (root mean square) to the "
            "solution. How far it really ends needs data: give files that resemble the sites'."
        )
        return
    task = chosen_task(regression, value) or Regression("y")
    check_unit(given["unit"], isinstance(task, Regression))
    moments, rows = example_moments(site_files(files), task)
    if given["rows"] is None:
        given["rows"] = rows
    asked = PrivacyBudget(**given)
    bought = affordable(moments, asked, **run)
    if json:
        print_json(budget=asked, plan=bought, covers_standardisation=not task.scaled)
        return
    print(bought.sentence)
    if task.scaled:
        print("Not covered: the sums with which columns are standardised leave without noise; --no-standardise")
