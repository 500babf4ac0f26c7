"""What a site allows, in a file that belongs to the site (policy.toml); limits.py holds orders against it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from ... import checks
from ...errors import ArgumentError, ArgumentTypeError, FedLSAError, NetworkError, PolicyError
from ...files import reason
from ...fitting.formulas import parse_formula
from ...fitting.run_plan import LARGEST_STEP, LEAST_LOCAL_STEPS, MOST_ROUNDS
from ...fitting.tasks import Regression, Task
from ...value_objects import Checked
from ..disk import CHECKED, Database
from ..folder.config import VERSION, parse, read_file
from ..protocol.codec import printable
from ..protocol.run_settings import RunTerms, plain_name

ANY_COLUMN = "*"
TASKS, UNITS = ("regression", "value"), ("none", "record", "site")
HEAD = """\
# What may leave this site. The file belongs to the site: it is read where the data are, nobody outside can change it,
# and an order that asks for more is refused and noted in the ledger. Change a value, then start the site again.
# An entry that is left out has the value that stands here at first."""


def entry(default: Any, why: str, **bounds: Any) -> Any:
    """An entry with its default and the sentence that stands above it in the file; bounds : of a number above 0."""
    kinds = {int: partial(checks.integer, at_least=1), float: partial(checks.real, above=0, **bounds), tuple: _texts}
    return dataclasses.field(default=default, metadata={"why": why, "check": kinds.get(type(default))})


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or any(not isinstance(v, str) or not v for v in value):
        raise ArgumentTypeError(f"{name} must be a list of texts; got {checks.show(value)}")
    return tuple(value)


@dataclass(frozen=True)
class Policy(Checked):
    """The entries of policy.toml; the sentences that explain them are in the file itself (`text`)."""

    tasks: tuple[str, ...] = entry(TASKS, "Kinds of tasks that may be computed: regression, value (of a policy).")
    columns: tuple[str, ...] = entry(
        (ANY_COLUMN,), "Columns of the table that may be used; * stands for all that the agreed task names."
    )
    named_levels: tuple[str, ...] = entry(
        (),
        "Columns of which the coordinator and the other sites may be told the levels, the different values that a "
        "category has; * for all that the agreed task names. Never list a column that names people.",
    )
    least_rows_per_level: int = entry(5, "Every level of a category must have at least so many rows.")
    most_levels: int = entry(50, "Most levels of a category here: more look like names of people, places or days.")
    least_rows: int = entry(50, "The table must have at least so many rows.")
    least_rows_off_common_value: int = entry(
        5, "In every column that varies, at least so many rows must differ from the most common value (small cells)."
    )
    least_changed_rows: int = entry(
        5,
        "Of a table that has changed since the last run, no row or at least so many must be new, and the same of rows "
        "that are gone: else the difference of two runs would tell of the few. A row that was changed is one of each.",
    )
    draw_rows: bool = entry(
        True, "true: an answer may rest on rows drawn at random; false: always on the averages of all rows."
    )
    least_local_steps: int = entry(
        LEAST_LOCAL_STEPS,
        "At least so many rows, drawn by this site in secret, are behind every answer, in every direction: outliers "
        "and rare values ask for more local steps.",
    )
    most_local_steps: int = entry(100_000_000, "Most local steps in one answer, which are work for this machine.")
    largest_step: float = entry(
        LARGEST_STEP,
        "Largest step size times the largest row times least_local_steps, so that not the last rows drawn decide an "
        "answer (at most 1).",
        at_most=1.0,
    )
    largest_row_share: float = entry(
        0.5, "Largest share of one row in the sums over the table, in any direction (outliers)."
    )
    largest_deviation: float = entry(
        10.0, "In the coordinates that the coordinator chooses, this site's columns must lie within so many units."
    )
    least_sites: int = entry(
        3, "A sum that leaves must be over at least so many sites; 1: the coordinator may read this site's own answers."
    )
    largest_weight: float = entry(0.5, "This site may count for at most this part of a sum.", at_most=1.0)
    most_groups: int = entry(
        1,
        "Most different groups of sites, or proportions of their weights, over which exact sums may leave, in all "
        "runs: two sums tell how their groups differ, down to one site's own part. With 1 a run waits for a site that "
        "is away, and weights stay as they are from run to run. Noise (privacy) needs no such limit.",
    )
    peers: tuple[str, ...] = entry(
        (),
        "Fingerprints of the other sites that a person has compared with theirs. Where there are none, the sites of "
        "the first run are remembered, and other keys are refused from then on.",
    )
    most_rounds: int = entry(MOST_ROUNDS, "Most rounds that one run may ask for.")
    most_runs: int = entry(100, "Most runs in all.")
    most_answers: int = entry(50_000, "Most answers in all, of every kind.")
    privacy: str = entry(
        "none", "Differential privacy by noise that this site adds: none, record (of a row) or site (of the table)."
    )
    epsilon: float = entry(1.0, "With privacy: the most that all answers of all runs together may spend.")
    delta: float = entry(1e-5, "With privacy: the probability that goes with epsilon.", below=1)
    noiseless_sums: bool = entry(
        False, "With privacy: whether sums for standardisation, planning and standard errors may leave without noise."
    )
    share_moments: bool = entry(
        False, "Whether this site's own averages of products (A_c, b_c and their noise) may leave, for exact plans."
    )
    share_scores: bool = entry(
        False,
        "Whether this site takes part in masked sums of products of all columns, and of scores, at the end of a run: "
        "with them its coefficients have standard errors. The coordinator reads the sums over all sites alone.",
    )
    approve_runs: bool = entry(
        False, "Whether a person must allow each run (fedlsa network allow FOLDER RUN) before it is answered."
    )
    ledger_copy: str = entry(
        "", "A folder outside this one for a copy of the ledger's totals; empty: the state directory of the user."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.tasks:
            checks.choice("each of tasks", name, TASKS)
        for name in self.peers:
            if not re.fullmatch(r"[0-9a-f]{32}", plain_fingerprint(name)):
                rule = "each of peers must be a fingerprint of 32 hexadecimal digits"
                raise ArgumentError(f"{rule}; got {checks.show(name)}")
        checks.choice("privacy", self.privacy, UNITS)
        if not isinstance(self.ledger_copy, str) or "\0" in self.ledger_copy:
            raise ArgumentTypeError(f"ledger_copy must be a path as text; got {checks.show(self.ledger_copy)}")

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read policy.toml: all of it or nothing; an entry that is unknown or wrong is a NetworkError that names it."""
        path = checks.path("path", path)
        try:
            if CHECKED and (mode := path.stat().st_mode) & 0o022:
                rule = f"the policy {path} must be writable by its owner alone; got mode {mode & 0o777:o}"
                do = "Read it, for somebody else may have changed it, and close it (chmod go-w)"
                raise NetworkError(f"{rule}. {do}")
        except FileNotFoundError:
            raise NetworkError(f"there is no policy {path}: without one nothing may leave this site") from None
        except OSError as error:
            raise NetworkError(f"cannot read the policy {path}: {reason(error)}") from error
        content = parse(read_file(path), f"the policy {path}")
        del content["version"]
        known = [field.name for field in dataclasses.fields(cls)]
        for name in content:
            if name not in known:
                hint = checks.did_you_mean(name, known)
                raise NetworkError(f"the policy {path} must have entries of its own only; got {name!r}{hint}")
        try:
            return cls(**content)
        except (FedLSAError, TypeError) as error:
            raise NetworkError(f"the policy {path}: {error}") from None

    def text(self) -> str:
        """The content of policy.toml: a sentence above every entry."""
        lines = [HEAD, f"version = {VERSION}"]
        for field in dataclasses.fields(self):
            value = json.dumps(getattr(self, field.name), ensure_ascii=False).replace("\x7f", "\\u007f")
            why = textwrap.fill(field.metadata["why"], 120, initial_indent="# ", subsequent_indent="# ")
            lines += ["", why, f"{field.name} = {value}"]
        return "\n".join(lines) + "\n"


def plain_fingerprint(text: object) -> str:
    """A fingerprint as it is compared, without what people put between its digits."""
    return re.sub(r"[\s:-]", "", str(text)).lower()


def template(task: Task) -> str:
    """The policy.toml with which a site begins."""
    columns: tuple[str, ...] = (ANY_COLUMN,)
    levels: tuple[str, ...] = ()
    if isinstance(task, Regression):
        if task.formula is not None:
            parsed = parse_formula(task.formula)
            columns, levels = (*parsed.target.columns, *parsed.columns), parsed.candidates
        elif task.columns is not None:
            columns = (*task.columns, task.target)
        if task.offset is not None and columns != (ANY_COLUMN,):
            columns = (*columns, task.offset)
    return Policy(tasks=(TASKS[not isinstance(task, Regression)],), columns=columns, named_levels=levels).text()


def explain(policy: Policy) -> list[str]:
    """What may leave the site under this policy, and what is not promised: a sentence each, for who joins."""
    rows = "Every answer rests on the averages of all rows"
    if policy.draw_rows:
        rows = f"Behind every answer are at least {policy.least_local_steps} rows, which this site draws in secret"
    noisy = policy.privacy != "none"
    before = "the number of rows and the names of columns"
    if policy.named_levels:
        which = "all categories" if ANY_COLUMN in policy.named_levels else ", ".join(policy.named_levels)
        before += f", the levels of {which}, where at least {policy.least_rows_per_level} rows have each,"
    if not noisy or policy.noiseless_sums:
        before += ", sums of columns and of their squares, and three numbers to plan by"
    share = f"; one row is at most {policy.largest_row_share:.0%} of a sum over the table in any direction"
    out = [
        "Rows are never sent. In every round one vector leaves, how far the model moved on this site's rows; before a "
        f"run {before}; at its end this site's part of a sum that must be 0.",
        rows + ("." if noisy else f"{share}."),
    ]
    if policy.least_sites > 1:
        groups = "one group of them"
        if policy.most_groups > 1:
            groups = f"{policy.most_groups} groups of them, which tell how they differ"
        compare = ": compare fingerprints with them and enter them under peers."
        out.append(
            f"Vectors leave masked: the coordinator can read sums over at least {policy.least_sites} sites only, over "
            f"{groups}, as long as the others of the sum are who they say they are"
            + (" (their fingerprints have been compared)." if policy.peers else compare)
        )
    else:
        out.append("The coordinator may read this site's own answers (least_sites = 1).")
    if policy.share_moments and not noisy:
        out.append("The averages of products of this site's columns leave: the coordinator knows its own solution.")
    if policy.share_scores and (not noisy or policy.noiseless_sums):
        out.append("For standard errors, sums over all sites of products of columns and of scores leave after a run.")
    out.append(
        f"At most {policy.most_runs} runs, {policy.most_rounds} rounds each, {policy.most_answers} answers in all"
        + (", and a person allows each run." if policy.approve_runs else ".")
    )
    if policy.privacy == "none":
        out.append(
            "Not promised: without noise, averages over many rows leave exactly, and who asks often and knows much "
            "can narrow down single rows. Only privacy = record or site bounds that by a number."
        )
    else:
        unit = "a row" if policy.privacy == "record" else "the whole table"
        out.append(
            f"All noised answers of all runs are ({policy.epsilon:g}, {policy.delta:g})-differentially private "
            f"about {unit}. Not in this: the number of rows, what left before this policy asked for noise"
            + (", and the sums that leave before a run without noise." if policy.noiseless_sums else ".")
        )
    return out


# Runs that a person must allow: what waits is shown, and what is allowed is these terms and no others.

MOST_WAITING = 20  # the oldest is forgotten: who asks under many names shall not fill the disk


class ApprovalMissing(PolicyError):
    """A person at the site has to allow the run first."""


def check_approved(folder: Path, run: str, digest: str, terms: RunTerms) -> None:
    """Refuse a run that nobody has allowed, and note that it waits; digest : of its terms."""
    with _approvals(folder) as known:
        if known["allowed"].get(run) == digest:
            return
        if known["waiting"].get(run, {}).get("terms") != digest:
            waiting = {name: entry for name, entry in known["waiting"].items() if name != run}
            waiting[run] = {"terms": digest, "words": in_words(terms)}
            known["waiting"] = dict(list(waiting.items())[-MOST_WAITING:])
    raise ApprovalMissing(f"a person at this site must allow the run {run} first (fedlsa network allow)")


def waiting(folder: Path) -> dict[str, list[str]]:
    """The runs that wait for a person, each with what it asks for."""
    return {name: list(entry["words"]) for name, entry in _read(Database(folder))["waiting"].items()}


def allow(folder: Path, run: str) -> list[str]:
    """Allow a run that waits, on the terms it came with, and return these in words."""
    plain_name("run", run)
    with _approvals(folder) as known:
        entry = known["waiting"].pop(run, None)
        if entry is None:
            names = ", ".join(known["waiting"]) or "none"
            raise NetworkError(f"the run {run} does not wait for anybody; those that do: {names}")
        known["allowed"][run] = entry["terms"]
    return list(entry["words"])


def in_words(terms: RunTerms) -> list[str]:
    """What a run asks for, a sentence each."""
    coding = terms.coding
    local = "rows drawn at random" if terms.local == "rows" else "the averages of all rows"
    rounds = f"at most {terms.rounds} rounds" if terms.rounds else "as many rounds as a plan will say"
    sums = "the coordinator reads sums over sites only" if terms.secure else "the coordinator reads every answer"
    out = [f"Method {terms.method} on {local}; {rounds}.", f"With {', '.join(terms.sites)}; {sums}."]
    if coding.noise is not None:
        hidden = "any single row" if coding.unit == "record" else "all rows of a site"
        out.append(f"Noise of {coding.noise:g} times the longest answer, {coding.clip:g}, hides {hidden}.")
    else:
        out.append("No noise.")
    return [printable(line, 2000) for line in out]


@contextlib.contextmanager
def _approvals(folder: Path) -> Iterator[dict[str, Any]]:
    """What waits and what is allowed, to be changed: no other process can in the meantime."""
    store = Database(folder)
    with store.transaction():
        known = _read(store)
        yield known
        store.put_json("", "approvals", known)


def _read(store: Database) -> dict[str, Any]:
    return store.get_json("", "approvals") or {"waiting": {}, "allowed": {}}
