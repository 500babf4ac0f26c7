"""A site's answers: an order comes in, an answer goes out, as far as the policy allows and with an entry in the ledger.

A site does what seven orders say and nothing else: no code comes over the wire, and a run about another task than the
one the site agreed to is refused. What must not be forgotten is on the disk before an answer leaves: the state and the
entry in the ledger, in one transaction, so that nothing ever leaves without one.

Refusals tell nothing of the data but what the policy says they may: what is too long for a sum is cut, and what goes
wrong in reading the table stays in the site's log.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace as changed

from ...checks import Floats
from ...engine.local import Means
from ...errors import FedLSAError, MessageError, PolicyError, SiteDataError
from ...fitting.covariance import ScorePoint, score_sums, system_sums
from ...fitting.reading import read_scaled
from ...fitting.rows import FeatureScale
from ...fitting.run_plan import StepLimits
from ...fitting.sums import penalty_of
from ...theory.privacy import discrete_gaussian, rho_for
from .. import disk
from ..disk import Database
from ..folder.certificates import private_key
from ..folder.config import SiteFolder, task_text
from ..protocol import client, messages
from ..protocol.agreed_design import AgreedDesign, plan_sums, scale_sums
from ..protocol.codec import decode, encode, printable
from ..protocol.ring import STATISTICS, to_integers
from ..protocol.run_settings import RunTerms, plain_name
from . import limits
from .facts import SiteTable, TableView, changed_rows, draws_secret, measure
from .ledger import Ledger, copy_place, digest_of
from .limits import check_noise, check_peers, check_round, mask_secrets
from .policy import ApprovalMissing, Policy, check_approved
from .site_data import SiteData, Steps, scale_from_json, scale_to_json


def refusal(
    message: messages.Order | None, error: Exception, ledger: Ledger, say: Callable[[str], None]
) -> messages.Refusal:
    """What is answered, with an entry in the ledger; what may quote the table stays in the site's log (say)."""
    reasons = ((ApprovalMissing, "approval"), (PolicyError, "policy"), (MessageError, "other"))
    reason = next((word for kind, word in reasons if isinstance(error, kind)), "data")
    round_ = message.round if isinstance(message, messages.Work) else 0
    generation = message.generation if isinstance(message, messages.Work | messages.Finish) else 0
    name, asked = (printable(message.experiment, 64), message.kind) if message else ("", "?")
    text = printable(error, 500)
    if isinstance(error, SiteDataError | OSError) or not isinstance(error, FedLSAError):
        say(f"{name}: {type(error).__name__}: {text}")  # it may quote what is in the table
        text = "this site cannot read its data or its files; its own log says why"
    try:
        receipt = ledger.refuse(name, asked, text)
    except FedLSAError as unwritten:  # a full disk: a refusal holds nothing that must be counted
        say(str(unwritten))
        receipt = ""
    return messages.Refusal(name, generation, round_, reason, text, receipt=receipt)


DIGEST_BYTES = 32
MOST_HASHED = 2**29  # bytes: SQLite holds values of up to 1 GB


def _columns_digest(table_view: TableView) -> bytes:
    return hashlib.sha256(json.dumps(table_view.names).encode()).digest()


@dataclass(frozen=True)
class RunFiles:
    """What a site keeps of its runs in its store: what it was told (terms, coordinates, weights), its state (client.py)
    and hashes of the rows that the last run used."""

    site: SiteFolder
    store: Database
    say: Callable[[str], None]

    def note(self, experiment: str) -> dict[str, Any] | None:
        """What the site has been told of a run; a damaged note is none."""
        try:
            return self.store.get_json(experiment, "note")
        except ValueError:
            return None

    def remember(self, experiment: str, note: dict[str, Any]) -> None:
        self.store.put_json(experiment, "note", note)

    def state(self, experiment: str) -> client.ClientState | None:
        """The stored state; with a damaged one the site begins again, as one that forgot."""
        content = self.store.get(experiment, "state")
        try:
            return None if content is None else decode(content, client.ClientState)
        except MessageError as error:
            self.say(f"the state of the run {experiment} is damaged: {error}")
            return None

    def keep(self, experiment: str, old: client.ClientState | None, new: client.ClientState | None) -> None:
        """Keep a state that has changed: it is on the disk with the next entry of the ledger."""
        if new is not None and new is not old:
            self.store.stage(experiment, "state", encode(new))

    def changed_rows(self, table_view: TableView) -> tuple[int, int] | None:
        """Rows that are gone and rows that are new since the last run; None where the columns were others."""
        kept = self.store.get("", "rows") or b""
        if kept[:DIGEST_BYTES] != _columns_digest(table_view):
            return None
        return changed_rows(np.frombuffer(kept[DIGEST_BYTES:], np.uint64), table_view.rows)

    def keep_rows(self, table_view: TableView) -> None:
        """Keep hashes of all rows, to be compared with those of the next run."""
        content = _columns_digest(table_view) + table_view.rows.tobytes()
        if table_view.rows.nbytes < MOST_HASHED and content != self.store.get("", "rows"):
            self.store.stage("", "rows", content)


@dataclass(frozen=True)
class OpenRun:
    """What a site knows of the run of an order. note : as RunFiles keeps it; groups : of sites whose sums it tells of.

    head : of the run's transcript with what the order brings, None where the site remembers another past
    """

    run: client.SiteRun
    terms: RunTerms
    note: dict[str, Any]
    groups: tuple[str, ...] = ()
    state: client.ClientState | None = None
    head: bytes | None = b""

    def label(self, order: messages.Summed) -> bytes:
        """The label of the masks of an answer."""
        return order.label(self.run.context, self.head or b"")


class OrderHandler:
    """Answers one order at a time."""

    def __init__(
        self, site: SiteFolder, data: SiteData, policy: Policy | None = None, say: Callable[[str], None] = print
    ) -> None:
        """policy : by default the one in the site's folder."""
        self.site, self.say = site, say
        self.policy = policy or Policy.load(site.policy)
        place = copy_place(self.policy.ledger_copy, site.network, site.name)
        store = Database(site.folder)
        self.ledger = Ledger(store, place, site.name, private_key(site.key.read_bytes()))
        if self.policy.privacy != "none":
            self.ledger.budget = rho_for(self.policy.epsilon, self.policy.delta)
        self.files = RunFiles(site, store, say)
        self.table = SiteTable(site, data, draws_secret(site.folder))
        self.pairs: dict[str, Mapping[str, bytes]] = {}  # secrets with the other sites, of the latest run

    def respond(self, body: bytes) -> bytes:
        try:
            order: messages.Order = decode(body, messages.Orders)
        except MessageError as error:
            return encode(refusal(None, error, self.ledger, self.say))
        return encode(self.answer(order))

    def answer(self, message: messages.Order) -> messages.Answer:
        """The answer; an order that cannot be followed is answered with a refusal that says why."""
        try:
            plain_name("experiment", message.experiment)  # it becomes a file's name
            if self.ledger.totals.answers >= self.policy.most_answers:
                raise limits.refused("most_answers", f"{self.policy.most_answers} have left")
            answer_to: Callable[[messages.Order], messages.Answer] = getattr(self, f"_{message.kind}")
            return answer_to(message)
        except Exception as error:  # whatever goes wrong with one order, the site goes on
            return refusal(message, error, self.ledger, self.say)

    # before the rounds

    def _describe(self, message: messages.Describe) -> messages.Answer:
        terms = message.terms
        if terms.task != task_text(self.site.task):
            raise MessageError("the run must be about the task that this site was sent when it joined; it is not")
        if self.site.name not in terms.sites or not terms.token:
            raise MessageError("the run must have a token and name this site among its sites; it does not")
        for site, receipt in terms.receipts:
            if site == self.site.name:
                self.ledger.compare_receipt(receipt)
        terms_text = msgspec.json.encode(changed(terms, receipts=(), program="")).decode()  # what stays during a run
        digest = hashlib.sha256(terms_text.encode()).hexdigest()
        known = self.ledger.runs.get(terms.token)
        if known is None and self.ledger.totals.runs >= self.policy.most_runs:
            raise limits.refused("most_runs", f"this site has taken part in {self.ledger.totals.runs}")
        if known is not None:
            known.check_open()
            if (known.name, known.terms) != (message.experiment, digest):
                raise MessageError("the terms of a run must stay as they were told first; they are others")
        table_view = self.table.view()
        limits.check_terms(self.policy, terms, table_view.facts, self.site.task)
        check_noise(self.policy, terms, self.site.task, self.ledger.totals)
        table = table_view.summary.n, table_view.digest
        if known is None:
            limits.check_change(self.policy, *table, self.ledger.table, self.files.changed_rows(table_view))
        roster = check_peers(self.policy, terms, self.site, self.ledger.roster)
        if self.policy.approve_runs and known is None:
            check_approved(self.site.folder, message.experiment, digest, terms)
        note = {"terms": terms_text, "table": table_view.digest, "stamp": self.table.data.stamp()}
        noted = self.files.note(message.experiment)
        if noted is None or noted["terms"] != terms_text:  # a new run, another one under an old name, or a lost state
            self.files.store.forget(message.experiment)
            self.files.remember(message.experiment, note | {"design": None, "scale": None, "weights": None})
        answer = messages.Description(message.experiment, table_view.summary.n, AgreedDesign.of(table_view.columns))
        self.files.keep_rows(table_view)
        more = {"numbers": 1, "terms": digest, "roster": roster, "table": table}
        left = "the number of rows, columns and levels"
        return self._enter(answer, terms.token, message, left, f"describe {digest}", more)

    def _standardise(self, message: messages.Standardise) -> messages.Answer:
        opened = self._run(message)
        if self.policy.privacy != "none" and not self.policy.noiseless_sums:
            raise limits.refused("noiseless_sums", "sums for standardisation would leave without noise")
        label = self._only(message, opened)
        table_view = self._designed(message, opened)
        sums = scale_sums(table_view.summary, message.weight(self.site.name), self.table.dither(label.hex()))
        integers = to_integers(sums, STATISTICS.unit)
        answer = messages.Sums(message.experiment, opened.run.hidden(integers, STATISTICS.limbs, message.sites, label))
        more = {"numbers": len(sums), "groups": opened.groups}
        return self._enter(answer, opened.terms.token, message, "sums of columns and squares", label.hex(), more)

    def _measure(self, message: messages.Measure) -> messages.Answer:
        opened = self._run(message)
        terms, label = opened.terms, self._only(message, opened)
        scale = FeatureScale(message.centre, message.spread, message.y_centre, message.y_spread, message.intercept)
        table_view = self._designed(message, opened)
        own = table_view.summary
        weights = dict(zip(message.sites, message.weights.tolist(), strict=True))
        with self._closing(message.experiment, terms.token):
            limits.check_coordinates(self.policy, scale, own, self.site.task)
            _, sizes = self.table.prepare(terms, scale, message.design)  # rows are made ready now, not in a round
        shared, sums = None, [0.0] * 4
        if self.policy.privacy == "none":
            asks = sizes.step_limits(terms.local == "rows", self.policy.least_local_steps, self.policy.largest_step)
        else:  # noise hides each row, and no limit may tell of one
            asks = StepLimits(self.policy.least_local_steps if terms.local == "rows" else 1, 0.0)
        if limits.exact_sums(self.policy):
            asked = self.policy.share_moments and self.policy.privacy == "none"
            scalars, shared = measure(self.table.data.opened, self.site.task, scale, asked, message.design, terms.local)
            dither = self.table.dither(label.hex())
            sums = plan_sums(message.weight(self.site.name), *scalars, dither=dither)  # type: ignore[assignment]
        share = opened.run.hidden(to_integers(sums, STATISTICS.unit), STATISTICS.limbs, message.sites, label)
        if terms.errors_of:
            limits.check_scores(self.policy, len(terms.errors_of), scale.dim)
        scores = self.policy.share_scores and limits.exact_sums(self.policy)
        answer = messages.Measurement(
            message.experiment, own.n, *asks, share, **shared._asdict() if shared else {}, scores=scores
        )
        left = "three sums for planning" + (", and moments" if shared else "")
        numbers = 3 + sum(part.size for part in shared or ())
        known = {"names": table_view.names, "scale": scale_to_json(scale), "weights": weights}
        self.files.remember(message.experiment, opened.note | {"design": message.design.text()} | known)
        more = {"numbers": numbers, "groups": opened.groups}
        return self._enter(answer, terms.token, message, left, label.hex(), more)

    def _designed(self, message: messages.Standardise | messages.Measure, opened: OpenRun) -> TableView:
        """The table as all sites agreed to read it."""
        terms, note = opened.terms, opened.note
        with self._closing(message.experiment, terms.token):
            table_view = self.table.designed(self.policy, message.design, note["design"], len(terms.sites))
        self.files.remember(message.experiment, note | {"design": message.design.text()})
        return table_view

    def _only(self, message: messages.Summed, opened: OpenRun) -> bytes:
        """The label of an order that a run gives once: in other coordinates or sums it would tell more."""
        label, known = opened.label(message), self.ledger.runs.get(opened.terms.token)
        if known is not None and known.labels.get(message.kind, label.hex()) != label.hex():
            raise PolicyError(f"this site answers one order to {message.kind} in a run; this is another one")
        return label

    # rounds

    def _work(self, message: messages.Work) -> messages.Answer:
        opened = self._run(message)
        run, terms, note, state = opened.run, opened.terms, opened.note, opened.state
        steps, sizes = self.table.prepare(terms, scale_from_json(note["scale"]), AgreedDesign.from_text(note["design"]))
        label = opened.label(message).hex()
        more: dict[str, Any] = {"numbers": len(message.theta), "round": message.round, "groups": opened.groups}
        if label not in self.ledger.answered:
            more |= check_round(self.policy, self.ledger, message, terms, self.site, sizes, state)
        local = self._direction(message, opened, steps) if message.target else self.table.drawing(steps)
        with self._closing(message.experiment, terms.token):
            new, answer = client.client_step(state, message, replace(run, local=local))
        if isinstance(answer, messages.Refusal):
            return changed(answer, receipt=self.ledger.refuse(message.experiment, message.kind, answer.text))
        try:
            self.ledger.check_label(label, digest_of(answer))
        except PolicyError as error:  # its state was lost: all begin again, under other masks
            receipt = self.ledger.refuse(message.experiment, message.kind, str(error))
            about = message.experiment, message.generation, message.round
            return messages.Refusal(*about, "forgot", str(error), receipt=receipt)
        self.files.keep(message.experiment, state, new)
        what = "how far the model moved" + (", with noise" if terms.coding.noise is not None else "")
        return self._enter(answer, terms.token, message, what, label, more)

    # standard errors

    def _direction(self, message: messages.Work, opened: OpenRun, steps: Steps) -> client.LocalSteps:
        """Local steps to the direction of a coefficient whose error the terms ask for: A_c v = c, c of length 1.

        A regression's A_c are symmetric.
        """
        chosen, T = opened.terms.errors_of, scale_from_json(opened.note["scale"]).original()[0]
        if message.target > len(chosen):
            raise MessageError("'target' must be one of the coefficients that the terms ask for; it is not")
        limits.check_scores(self.policy, len(chosen), len(T))
        c = T[opened.note["names"].index(chosen[message.target - 1])]
        target: dict[str, Any] = {"b": np.zeros(len(c))} if isinstance(steps, Means) else {"y": np.zeros(len(steps.y))}
        return self.table.drawing(replace(steps, **target), c / np.linalg.norm(c))

    def _solve(self, message: messages.Solve | messages.Score) -> messages.Answer:
        """The share of a sum for standard errors, one of each kind in a run."""
        opened, task = self._run(message), self.site.task
        terms, note, label = opened.terms, opened.note, self._only(message, opened)
        scale, design = scale_from_json(note["scale"]), AgreedDesign.from_text(note["design"])
        chosen = len(message.directions) if isinstance(message, messages.Score) and message.A is None else None
        if chosen not in (None, len(terms.errors_of)):
            raise MessageError("'directions' must be of the coefficients that the terms ask for; they are not")
        limits.check_scores(self.policy, chosen, scale.dim)
        client.brought_up_to_date(opened.state, message, opened.run)  # or another past, with which there is no sum
        with self._closing(message.experiment, terms.token):
            limits.check_row_share(self.policy, self.table.prepare(terms, scale, design)[1])
            pieces = partial(read_scaled, self.table.data.opened, task, self.table.view(design).columns, scale)
            part = penalty_of(task, scale), message.weight(self.site.name)
            if isinstance(message, messages.Solve):
                sums, left = system_sums(pieces(), message.theta, *part), "sums of products of all columns"
            else:
                at = ScorePoint(message.theta, message.directions, message.A, message.spread, task.own is not None)
                sums, left = score_sums(pieces, at, *part), "sums of scores"
        share = opened.run.hidden(to_integers(sums.tolist(), STATISTICS.unit), STATISTICS.limbs, message.sites, label)
        more = {"numbers": len(sums), "groups": opened.groups}
        return self._enter(messages.Sums(message.experiment, share), terms.token, message, left, label.hex(), more)

    _score = _solve

    def _finish(self, message: messages.Finish) -> messages.Answer:
        opened = self._run(message, last=True)
        terms, note = opened.terms, opened.note
        names = [printable(name) for name in message.names]
        out: dict[str, Any] = {"names": names, "theta": message.theta.tolist()}
        T, t = scale_from_json(note["scale"]).original()
        if names != note["names"]:
            raise MessageError("'names' must be those of the coefficients that this site has; they are others")
        out["coefficients"] = (T @ message.theta + t).tolist()
        if self.site.task.own is not None:  # it is nobody else's: it is written here, and is in no answer
            means = self.table.view(AgreedDesign.from_text(note["design"])).means
            out["own_intercept"] = float(means[-1] - means[:-1] @ out["coefficients"])
        label, order_digest = opened.label(message).hex(), digest_of(message)
        known = self.ledger.runs.get(terms.token)
        if known is not None and known.labels.get(message.kind) != order_digest:  # the same is answered again
            known.check_open()
        new, answer = client.client_finish(opened.state, message, opened.run)
        self.ledger.check_label(label, digest_of(answer))
        self.files.keep(message.experiment, opened.state, new)
        self.site.results.mkdir(exist_ok=True)
        disk.write_json(self.site.results / f"{message.experiment}.json", out, "a result")
        more = {"numbers": len(message.theta), "closed": "it is over", "order": order_digest, "groups": opened.groups}
        answered = self._enter(answer, terms.token, message, "the control variate", label, more)
        self.table.forget_prepared()
        return answered

    # what a run needs

    def _run(self, message: messages.Summed, last: bool = False) -> OpenRun:
        """What is known of the run of an order; last : it may be over."""
        note = self.files.note(message.experiment)
        if note is None:
            raise FedLSAError(f"this site does not know the run {message.experiment}")
        terms = _terms(note["terms"])
        known = self.ledger.runs.get(terms.token)
        if known is None:
            raise FedLSAError(f"the ledger of this site does not know the run {message.experiment}")
        if not last:
            known.check_open()
        if any(name not in terms.sites for name in message.sites):
            raise MessageError("'sites' must be sites of the run; one is not")
        limits.check_sum(self.policy, self.site.name, message.sites, message.weights)
        context = known.terms  # masks cancel only between sites that were told the same, from the terms on
        if isinstance(message, messages.Measure):
            context += known.labels.get(messages.Standardise.kind, "")
        state, groups = None, [limits.group_of(message.sites, message.weights)]
        head: bytes | None = b""
        if isinstance(message, messages.Continued):
            context = known.labels.get(messages.Measure.kind, "")
            if note["scale"] is None or not context:
                raise FedLSAError("this site does not know the run's coordinates")
            dim = scale_from_json(note["scale"]).dim
            if len(message.theta) != dim:  # and means, which are as long
                raise MessageError(f"'theta' must have {dim} entries; got {len(message.theta)}")
            limits.check_same_weights(self.site.name, message.sites, message.weights, note["weights"])
            state = self.files.state(message.experiment)
            head = self._learn_averages(message, state, terms, note["weights"], groups)
        if self.policy.privacy != "none" and isinstance(message, messages.Work | messages.Finish):
            groups = []  # noise that the policy asked for covers what groups that differ would tell
        limits.check_groups(self.policy, groups, self.ledger.groups)
        if limits.exact_sums(self.policy):
            with self._closing(message.experiment, terms.token):
                self.table.check_unchanged(note["stamp"], note["table"])
        if terms.token not in self.pairs:
            self.pairs = {terms.token: mask_secrets(terms, self.site)}
        run = client.SiteRun(
            self.site.name, terms.sites, context, _no_steps, terms.coding, self.pairs[terms.token], terms.secure,
            discrete_gaussian, terms.method,
        )  # fmt: skip
        return OpenRun(run, terms, note, tuple(groups), state, head)

    def _learn_averages(
        self,
        message: messages.Continued,
        state: client.ClientState | None,
        terms: RunTerms,
        weights: Mapping[str, float],
        groups: list[str],
    ) -> bytes | None:
        """The head of the transcript; averages that the site learns of are held against the policy, its own or not."""
        try:
            current = state if state is not None and state.generation == message.generation else None
            entries, head = client.new_entries(current, message, terms.sites)
        except client.ForgotError:  # as the answer will say
            return None
        for entry in entries:
            if len(entry.sites) < self.policy.least_sites:
                few = f"{self.policy.least_sites} must be in a sum; round {entry.round} was averaged over"
                raise limits.refused("least_sites", f"{few} {len(entry.sites)}")
            groups.append(limits.group_of(entry.sites, np.array([weights[site] for site in entry.sites])))
        return head

    def _enter(
        self, answer: messages.Answer, token: str, order: messages.Order, left: str, label: str, more: Mapping[str, Any]
    ) -> messages.Answer:
        """The answer with the receipt of its entry in the ledger, which is on the disk then."""
        digest = digest_of(answer)
        with self._closing(order.experiment, token):
            self.ledger.check_label(label, digest)
        receipt = self.ledger.enter(order.experiment, token, order.kind, left, label, digest, **more)
        return changed(answer, receipt=receipt)

    @contextlib.contextmanager
    def _closing(self, name: str, token: str) -> Iterator[None]:
        """A refusal that depends on the data ends the run here: one bit in a run, and not one in every order."""
        try:
            yield
        except (ArithmeticError, ValueError, FedLSAError) as error:
            if not isinstance(error, MessageError):  # which is about the order alone
                why = str(error) if isinstance(error, PolicyError) else "it could not be followed on this table"
                self.ledger.close(name, token, why)
                self.table.forget_prepared()
            raise


@lru_cache(maxsize=4)
def _terms(text: str) -> RunTerms:  # those of a hundred sites take a while to read
    return msgspec.json.decode(text, type=RunTerms)


def _no_steps(theta: Floats, xi: Floats, eta: float, steps: int, label: bytes) -> Floats:
    raise MessageError("this order does not ask for local steps")
