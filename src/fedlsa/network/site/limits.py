"""Orders held against the site's policy, before anything is computed; a refusal is a sentence that names the entry.

Limits that depend on single rows are rounded to powers of two first, so that refusals do not tell what they are.

Why these bounds. An answer is a sum over rows, sum_k u_k (v_k . theta - y_k), that the coordinator steers with theta,
the step size and the coordinates. With few rows behind it, a step size so large that the last row drawn decides the
direction, or a row that is alone in some direction, one row could be read from it. So eta |u| |v| is small for every
row, and how much a row stands out is measured by its leverage w^T (sum_k w_k w_k^T)^-1 w, w = (v, y): the largest
share that it can have in a sum over the table, for any theta, in any coordinates. It is at most `largest_row_share`;
and so many rows are drawn that `least_local_steps` of them lie in the direction of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...checks import Floats
from ...errors import ArgumentError, MessageError, PolicyError
from ...fitting.rows import FeatureScale
from ...fitting.run_plan import RowSizes, power_of_two
from ...fitting.sums import Summary
from ...fitting.tasks import Regression, Task, shared_intercept
from ...theory.privacy import check_unit, rho_of_answer
from ..folder.certificates import SiteIdentity, check_site, mask_key
from ..folder.config import SiteFolder
from ..protocol.client import ClientState
from ..protocol.messages import Work
from ..protocol.ring import pair_secret
from ..protocol.run_settings import RunTerms
from .ledger import NO_PROMISE, Ledger, LedgerTotals, epsilon_spent
from .policy import ANY_COLUMN, TASKS, Policy, plain_fingerprint

COUNTED = 0.1  # of this site's weight: a site of smaller weight hides nothing in a sum


@dataclass(frozen=True)
class TableFacts:
    """What the policy asks of the table. columns : those that are used; rarest : column with the fewest rows of
    another value than its most common one, and their number (columns that never vary do not count); levels : of each
    category how many it has, and the rows of the one that has the fewest; leverage : of the rows, where a formula
    calculates columns and could set some apart, else 0."""

    rows: int
    columns: tuple[str, ...]
    rarest: tuple[str, int]
    levels: tuple[tuple[str, int, int], ...] = ()
    leverage: float = 0.0


def check_terms(policy: Policy, terms: RunTerms, facts: TableFacts, task: Task) -> None:
    """Refuse a run (its terms, as Describe brings them) that asks for more than the policy allows."""
    kind = TASKS[not isinstance(task, Regression)]
    if kind not in policy.tasks:
        raise refused("tasks", f"a {kind} task is not among them")
    for column in facts.columns if ANY_COLUMN not in policy.columns else ():
        if column not in policy.columns:
            raise refused("columns", f"the task uses {column!r}, which is not among them")
    check_levels(policy, facts)  # first: names of coefficients hold levels
    check_table(policy, facts)
    if terms.local != "means" and not policy.draw_rows:
        raise refused("draw_rows", "the run draws single rows; its local steps must use means")
    if terms.local != "means" and terms.method == "scaffnew" and policy.least_local_steps > 1:
        raise refused("least_local_steps", "rounds of scaffnew may have one step; its local steps must use means")
    if terms.coding.row_clip is not None and terms.coding.noise is None:  # its kinks would betray where rows are
        raise refused("privacy", "single rows may be clipped only where noise hides it")
    if not terms.secure and policy.least_sites > 1:
        raise refused("least_sites", f"{policy.least_sites} sites must be in a sum; the run asks for single answers")
    if len(terms.sites) < policy.least_sites:
        raise refused("least_sites", f"{policy.least_sites} must be in a sum; the run has {len(terms.sites)}")
    if terms.rounds > policy.most_rounds:  # 0: a plan decides later, and rounds are counted as they come
        raise refused("most_rounds", f"at most {policy.most_rounds} are allowed; the run asks for {terms.rounds}")


def check_table(policy: Policy, facts: TableFacts) -> None:
    """Refuse a table with too few rows, or too few behind a column."""
    if facts.rows < policy.least_rows:
        raise refused("least_rows", f"the table must have {policy.least_rows} rows")
    (column, count), least = facts.rarest, policy.least_rows_off_common_value
    if policy.privacy == "none" and count < least:
        raise refused("least_rows_off_common_value", f"{column!r} has fewer than {least} rows off its common value")
    if exact_sums(policy) and facts.leverage * least > 1:  # as many rows as that, at least, are behind every direction
        raise refused("least_rows_off_common_value", f"the formula sets fewer than {least} rows apart")


def check_levels(policy: Policy, facts: TableFacts) -> None:
    """Refuse a category whose levels may not be told, or might tell of a few people; its levels are never quoted."""
    for column, count, fewest in facts.levels:
        if ANY_COLUMN not in policy.named_levels and column not in policy.named_levels:
            raise refused("named_levels", f"the levels of {column!r} would leave, which is not among them")
        if not exact_sums(policy):
            raise refused("noiseless_sums", f"the levels of {column!r} would leave as they are")
        if fewest < policy.least_rows_per_level:
            few = f"{column!r} has a level of fewer than {policy.least_rows_per_level} rows"
            raise refused("least_rows_per_level", few)
        if count > policy.most_levels:
            raise refused("most_levels", f"{column!r} has more than {policy.most_levels} levels")


def exact_sums(policy: Policy) -> bool:
    """Whether sums leave without noise, whose differences would tell what has changed in the table."""
    return policy.privacy == "none" or policy.noiseless_sums


def check_change(
    policy: Policy, rows: int, table: str, last: tuple[int, str] | None, changed: tuple[int, int] | None
) -> None:
    """Refuse a table that has changed a little since the last run; table : its digest; last : rows and digest then.

    changed : rows that are gone and rows that are new; where that is not known, by their numbers alone
    """
    if last is None or last[1] == table or not exact_sums(policy):
        return
    gone, new = changed or (max(last[0] - rows, 0), max(rows - last[0], 0))
    if any(0 < count < policy.least_changed_rows for count in (gone, new)) or gone == new == 0:
        few = f"the table has changed since the last run, by fewer than {policy.least_changed_rows} rows"
        raise refused("least_changed_rows", f"{few}; the difference would tell of them")


def check_sum(policy: Policy, own: str, members: Sequence[str], weights: Floats) -> None:
    """Refuse a sum over too few sites, or one in which the others count too little to hide this site."""
    weight = float(weights[list(members).index(own)])
    count = int((weights >= COUNTED * weight).sum())
    if count < policy.least_sites:
        raise refused("least_sites", f"{policy.least_sites} must be in a sum with a weight; this one has {count}")
    if policy.least_sites > 1 and weight > policy.largest_weight * float(weights.sum()):
        raise refused("largest_weight", f"this site may be {policy.largest_weight:g} of a sum; more is asked")


def group_of(members: Sequence[str], weights: Floats) -> str:
    """A short name for a group of sites with their weights, to the last bit: nearly equal ones are other equations."""
    parts = sorted(zip(members, weights.tolist(), strict=True))
    return hashlib.sha256(" ".join(f"{name} {part.hex()}" for name, part in parts).encode()).hexdigest()[:16]


def check_groups(policy: Policy, groups: Iterable[str], before: Collection[str]) -> None:
    """Refuse more groups of sites, or proportions of them, than exact sums may be over; before : of all runs so far."""
    if policy.least_sites > 1 and len({*groups} - {*before}) and len({*groups, *before}) > policy.most_groups:
        most = f"{policy.most_groups} group{'s' * (policy.most_groups > 1)} of sites with their weights"
        text = f"exact sums may be over {most}, in all runs, for two tell how they differ; this is another"
        raise refused("most_groups", text)


def check_same_weights(own: str, members: Sequence[str], weights: Floats, first: Mapping[str, float]) -> None:
    """Refuse other weights than the run began with: from sums in many proportions parts would follow."""
    if any(name not in first for name in (own, *members)):
        raise MessageError("'sites' must be sites that the run began with; one is not")
    if weights.tolist() != [first[name] for name in members]:
        raise MessageError("'weights' must be those that the run began with; they are not")


def check_coordinates(policy: Policy, scale: FeatureScale, own: Summary, task: Task) -> None:
    """Refuse coordinates in which this site's own columns (summary : with the target last) lie far out.

    Spreads that a coordinator pools over N sites of equal weight are at least 1 / sqrt(N) of each site's deviation,
    and centres at most sqrt(N) spreads away: 10 holds for a hundred sites.
    """
    k = len(scale.centre)
    if not task.scaled:
        if not scale.trivial:
            raise refused("largest_deviation", "the task has no coordinates but its own; the run brings others")
        return
    shifted = shared_intercept(task) and isinstance(task, Regression)
    if (scale.centre.any() or scale.y_centre) and not shifted:
        raise refused("largest_deviation", "columns of a task without an intercept cannot be shifted")
    if not task.standardise:  # columns are shifted and not stretched: that is a change of theta and no more
        if (scale.spread != 1).any() or scale.y_spread != 1:
            raise refused("largest_deviation", "the task keeps its units; the run brings others")
        return
    if policy.privacy != "none":  # noise hides each row, and then no refusal may depend on one
        return
    centre, spread = np.append(scale.centre, scale.y_centre), np.append(scale.spread, scale.y_spread)
    deviation = np.sqrt(own.scatter / own.n)
    step = np.array([power_of_two(x) for x in np.where(deviation > 0, deviation, np.abs(own.mean)).tolist()])
    middle = np.where(step > 0, np.round(own.mean / np.where(step > 0, step, 1.0)) * step, 0.0)  # told no finer
    with np.errstate(over="ignore"):
        far = (deviation > 0) & (step > 2 * policy.largest_deviation * spread)
        far |= np.abs(middle - centre) > 2 * policy.largest_deviation * spread + 2 * step
    if not isinstance(task, Regression):
        far = far[:k]  # rewards have no coordinates of their own
    if far.any():
        which = "the target" if np.argmax(far) == k else f"column {int(np.argmax(far)) + 1}"
        raise refused("largest_deviation", f"{which} lies beyond {policy.largest_deviation:g} units of the run")


def check_scores(policy: Policy, chosen: int | None, dim: int) -> None:
    """Refuse sums for standard errors, which are exact; chosen : of so many coefficients, None where A leaves as well.

    Without share_scores no more numbers leave than in a round: those of q coefficients have q (q + 1) / 2 covariances.
    """
    if not policy.share_scores and (chosen is None or chosen * (chosen + 1) > 2 * dim):
        raise refused("share_scores", "more numbers than those of a round would leave, for standard errors")
    if not exact_sums(policy):
        raise refused("noiseless_sums", "sums for standard errors would leave without noise")


def check_row_share(policy: Policy, sizes: RowSizes) -> None:
    """Refuse a table with one row above all."""
    if power_of_two(sizes.leverage) > policy.largest_row_share:
        raise refused("largest_row_share", "the table has a row with a larger share than that in its averages")


def check_steps(policy: Policy, eta: float, steps: int, sizes: RowSizes, drawn: bool) -> None:
    """Refuse local steps behind which there are too few rows, or one row above all.

    drawn : whether steps draw rows; the averages of all rows are behind every other answer, whatever its step size.
    Of `steps` draws about steps / (rows * leverage) are in the direction of the row that stands out most: a column that
    is 0 in all but m of n rows has leverage 1 / m there, and steps m / n of its draws.
    """
    check_row_share(policy, sizes)
    least, largest = sizes.step_limits(drawn, policy.least_local_steps, policy.largest_step)
    if steps < least:
        asks = f"{policy.least_local_steps} rows must be behind an answer, in every direction"
        raise refused("least_local_steps", f"{asks}: {least} local steps here; got {steps}")
    if largest and eta > largest:
        raise refused("largest_step", f"the step size must be at most {largest:.3g}")


def refused(name: str, text: str) -> PolicyError:
    """The error that says which entry of the policy forbids something, and why."""
    return PolicyError(f"the policy of this site forbids it ({name}): {text}")


# The other sites of a run: whether they are who they were, and the secrets that this site shares with each for masks.
#
# Masks hide this site's answers from who does not know these secrets. A coordinator that could put keys of its own in
# the place of other sites' would know them: so keys are those whose fingerprints a person has compared (`peers` of the
# policy), or where there are none those of the first run, and others are refused.


def check_peers(policy: Policy, terms: RunTerms, site: SiteFolder, pinned: Mapping[str, str]) -> dict[str, str]:
    """The fingerprints of the other sites by name; keys that are not known here are refused.

    pinned : fingerprints of the first run, by name; empty before it
    """
    if not terms.secure:
        return {}
    compared = {plain_fingerprint(text) for text in policy.peers}
    out: dict[str, str] = {}
    for name, found in _others(terms, site).items():
        own = plain_fingerprint(found.fingerprint)
        out[name] = own
        known = own in compared if compared else pinned.get(name, "" if pinned else own) == own
        if not known:
            changed = pinned.get(name, own) != own
            what = "another key than before" if changed else "a key that nobody here has compared"
            who = f"{name} comes with {what}, fingerprint {found.fingerprint}"
            raise refused("peers", f"{who}; ask that site, then enter it")
    return out


def mask_secrets(terms: RunTerms, site: SiteFolder) -> dict[str, bytes]:
    """What this site shares with each other site of a run; nothing with plain aggregation."""
    if not terms.secure:
        return {}
    private = mask_key(site.mask_key.read_bytes())
    return {name: pair_secret(private, found.mask) for name, found in _others(terms, site).items()}


def _others(terms: RunTerms, site: SiteFolder) -> dict[str, SiteIdentity]:
    """The other sites by name, all of this network, each with a key of its own; the run must know this site's own."""
    mask = mask_key(site.mask_key.read_bytes()).public_key().public_bytes_raw()
    pems = zip(terms.sites, terms.certificates, strict=True)
    out = {name: check_site(pem.encode(), site.network, name) for name, pem in pems}
    if len({found.mask for found in out.values()}) < len(out):
        raise MessageError("'certificates' must have a key for masks for each site; two are the same")
    if out.pop(site.name).mask != mask:  # nobody could take away what this site adds
        raise MessageError("the run began with other keys of this site; with new ones it takes part in later runs")
    return out


def check_noise(policy: Policy, terms: RunTerms, task: Task, totals: LedgerTotals) -> None:
    """Refuse a run whose noise does not hide what the policy wants hidden, or whose rounds cost more than is left."""
    coding = terms.coding
    if coding.noise is not None:
        try:
            check_unit(coding.unit, isinstance(task, Regression), task.own is not None)
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
    known = ledger.runs.get(terms.token)
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
        ridge=site.task.ridge, longest=longest,
    )  # fmt: skip


def check_budget(policy: Policy, totals: LedgerTotals, rho: float, answers: int = 1) -> None:
    """Refuse what would spend more than the policy allows over all runs."""
    if policy.privacy == "none":
        return
    would = epsilon_spent(policy, totals, answers, rho)
    if would is None:
        raise refused("privacy", NO_PROMISE)
    if would > policy.epsilon:
        spent = f"{policy.epsilon:g} may be spent in all; {epsilon_spent(policy, totals, answers):.3g} is"
        more = f"{answers} more answer{'s' * (answers > 1)} would make it {would:.3g}"
        raise refused("epsilon", f"{spent}, and {more}")
