"""What a round asks and what its answer costs in privacy (theory/privacy.py), against policy and ledger."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...fitting.run_plan import RowSizes
from ...fitting.tasks import Regression, Task
from ...theory.privacy import check_unit, rho_of_answer
from ..folder.config import SiteFolder
from ..protocol.client import ClientState
from ..protocol.messages import Work
from ..protocol.run_settings import RunTerms
from .ledger import NO_PROMISE, Ledger, LedgerTotals, epsilon_spent
from .limits import check_steps, refused, ridge_of
from .policy import Policy


def check_noise(policy: Policy, terms: RunTerms, task: Task, totals: LedgerTotals) -> None:
    """Refuse a run whose noise does not hide what the policy wants hidden, or whose rounds cost more than is left."""
    coding = terms.coding
    if coding.noise is not None:
        try:
            check_unit(coding.unit, isinstance(task, Regression))
        except ArgumentError as error:
            raise refused("privacy", str(error)) from None
    if policy.privacy == "none":
        return
    if coding.noise is None or coding.clip is None:
        raise refused("privacy", "every answer must have noise; the run asks for none")
    if policy.privacy == "site" and coding.unit != "site":
        raise refused("privacy", "the whole table must be hidden; the noise of the run hides single rows")
    if coding.unit == "site":  # the cost of a row depends on the plan, and is counted as rounds come
        check_budget(policy, totals, rho_of_answer("site", coding.clip, coding.noise), max(terms.rounds, 1))


def check_round(
    policy: Policy,
    ledger: Ledger,
    work: Work,
    terms: RunTerms,
    site: SiteFolder,
    sizes: RowSizes,
    state: ClientState | None,
) -> dict[str, Any]:
    """Refuse a round that asks for more than the policy allows; what its answer spends, for the ledger."""
    known = ledger.run(terms.token)
    if known is not None and known.rounds >= policy.most_rounds:
        raise refused("most_rounds", f"this run has had {known.rounds}")
    if work.steps > policy.most_local_steps:
        raise refused("most_local_steps", f"at most {policy.most_local_steps} are allowed; got {work.steps}")
    if policy.privacy == "none":  # noise hides each row, and then no refusal may tell of one
        check_steps(policy, work.eta, work.steps, sizes, terms.local == "rows")
    elif terms.local == "rows" and work.steps < policy.least_local_steps:
        raise refused("least_local_steps", f"{policy.least_local_steps} must be behind an answer; got {work.steps}")
    spent = cost(work, terms, site, sizes.rows, state)
    check_budget(policy, ledger.totals, spent)
    return {"rho": spent, "unit": terms.coding.unit} if spent else {}


def cost(work: Work, terms: RunTerms, site: SiteFolder, rows: int, state: ClientState | None) -> float:
    """The rho of the answer to an order; 0 without noise."""
    coding = terms.coding
    if coding.noise is None or coding.clip is None:
        return 0.0
    longest = 0.0
    if coding.row_clip is not None:
        xi = 0.0
        if state is not None:  # the correction that this order may bring is in the bound
            mean = np.abs(work.means).max(axis=0, initial=0.0)  # at least as long as the one that this site is told
            sizes = [float(np.linalg.norm(v)) for v in (mean, state.start, state.delta)]
            xi = float(np.linalg.norm(state.xi)) + state.gain * sum(sizes)
        longest = float(np.linalg.norm(work.theta)) + work.eta * (work.steps + 1) * (coding.row_clip + xi)
    return rho_of_answer(
        coding.unit, coding.clip, coding.noise, dim=len(work.theta), grid=coding.grid.unit / work.weight(site.name),
        local=terms.local, step_size=work.eta, row_clip=coding.row_clip, local_steps=work.steps, rows=rows,
        ridge=ridge_of(site.task), longest=longest,
    )  # fmt: skip


def check_budget(policy: Policy, totals: LedgerTotals, rho: float, answers: int = 1) -> None:
    """Refuse what would spend more than the policy allows over all runs."""
    if policy.privacy == "none":
        return
    would = epsilon_spent(policy, totals, answers, rho)
    if would is None:
        raise refused("privacy", NO_PROMISE)
    if would > policy.epsilon:
        raise refused(
            "epsilon",
            f"{policy.epsilon:g} may be spent in all; {epsilon_spent(policy, totals, answers):.3g} is, and {answers} "
            f"more answer{'s' * (answers > 1)} would make it {would:.3g}",
        )
