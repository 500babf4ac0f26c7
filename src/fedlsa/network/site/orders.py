"""A site's answers: an order comes in, an answer goes out, as far as the policy allows and with an entry in the ledger.

A site does what five orders say and nothing else: no code comes over the wire, and a run about another task than the
one the site agreed to is refused. What must not be forgotten is on the disk before an answer leaves: first the state,
then the entry in the ledger, so that nothing ever leaves without one.

Refusals tell nothing of the data but what the policy says they may: what is too long for a sum is cut, and what goes
wrong in reading the table stays in the site's log.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...checks import Floats
from ...errors import FedLSAError, MessageError, PolicyError
from ...fit.rows.observe import FeatureScale
from ..folder.certificates import private_key
from ..folder.config import SiteFolder, task_text
from ..protocol.agreed_design import AgreedDesign
from ..protocol.client import SiteRun, client_finish, client_step
from ..protocol.messages import (
    Acknowledged,
    Describe,
    Description,
    Finish,
    Measure,
    Measurement,
    Refusal,
    Standardise,
    Summed,
    Sums,
    Work,
    names_from,
    read,
    with_receipt,
)  # fmt: skip
from ..protocol.pooled import plan_sums, scale_sums
from ..protocol.privacy import discrete_gaussian, rho_for
from ..protocol.records import Message, Record, printable
from ..protocol.ring import STATISTICS, to_integers
from ..protocol.run_settings import RunTerms, plain_name
from . import limits
from .approvals import check_approved
from .facts import TableView, measure
from .ledger import Ledger, copy_place
from .peers import check_peers, mask_secrets
from .policy import Policy
from .receipts import digest_of
from .refusals import refusal
from .run_files import RunFiles
from .site_data import SiteData, scale_from_json, scale_to_json
from .spending import check_noise, check_round
from .table import SiteTable


class OrderHandler:
    """Answers one record at a time."""

    def __init__(
        self, site: SiteFolder, data: SiteData, policy: Policy | None = None, say: Callable[[str], None] = print
    ) -> None:
        """policy : by default the one in the site's folder."""
        self.site, self.say = site, say
        self.policy = policy or Policy.load(site.policy)
        place = copy_place(self.policy.ledger_copy, site.network, site.name)
        self.ledger = Ledger(site.ledger, place, site.name, private_key(site.key.read_bytes()))
        if self.policy.privacy != "none":
            self.ledger.budget = rho_for(self.policy.epsilon, self.policy.delta)
        self.files = RunFiles(site, say)
        self.table = SiteTable(site, data, self.files.draws_secret())
        self.pairs: dict[str, Mapping[str, bytes]] = {}  # secrets with the other sites, of the latest run

    def answer(self, record: Record) -> Record:
        """The answer; an order that cannot be followed is answered with a refusal that says why."""
        message: Message | None = None
        try:
            message = read(record)
            plain_name("experiment", message.experiment)  # it becomes a file's name
            if self.ledger.totals.answers >= self.policy.most_answers:
                raise limits.refused("most_answers", f"{self.policy.most_answers} have left")
            answer_to: Any = getattr(self, f"_{message.KIND}")  # of five kinds, which `read` lets through
            return answer_to(message)
        except Exception as error:  # whatever goes wrong with one order, the site goes on
            return refusal(message, error, self.ledger, self.say)

    # before the rounds

    def _describe(self, message: Describe) -> Record:
        terms = RunTerms.from_text(message.terms)
        if terms.task != task_text(self.site.task):
            raise MessageError("the run must be about the task that this site was sent when it joined; it is not")
        if self.site.name not in terms.sites or not terms.token:
            raise MessageError("the run must have a token and name this site among its sites; it does not")
        for site, receipt in terms.receipts:
            if site == self.site.name:
                self.ledger.compare_receipt(receipt)
        said = replace(terms, receipts=(), program="").text()  # which may change while a run goes on
        digest = hashlib.sha256(said.encode()).hexdigest()
        known = self.ledger.run(terms.token)
        if known is None and self.ledger.totals.runs >= self.policy.most_runs:
            raise limits.refused("most_runs", f"this site has taken part in {self.ledger.totals.runs}")
        if known is not None:
            known.check_open()
            if (known.name, known.terms) != (message.experiment, digest):
                raise MessageError("the terms of a run must stay as they were told first; they are others")
        seen = self.table.view()
        limits.check_terms(self.policy, terms, seen.facts, self.site.task)
        check_noise(self.policy, terms, self.site.task, self.ledger.totals)
        table = seen.summary.n, seen.digest
        if known is None:
            limits.check_change(self.policy, *table, self.ledger.table)
        roster = check_peers(self.policy, terms, self.site, self.ledger.roster)
        if self.policy.approve_runs and known is None:
            check_approved(self.site.folder, message.experiment, digest, terms)
        note = {"terms": said, "table": seen.digest, "stamp": self.table.data.stamp()}
        noted = self.files.note(message.experiment)
        if noted is None or noted["terms"] != said:  # a new run, another one under an old name, or a lost state
            self.files.forget(message.experiment)
            self.files.remember(message.experiment, note | {"design": None, "scale": None, "weights": None})
        answer = Description(message.experiment, seen.summary.n, AgreedDesign.of(seen.columns).text())
        more = {"numbers": 1, "terms": digest, "roster": roster, "table": table}
        left = "the number of rows, columns and levels"
        return self._enter(answer, terms.token, message, left, f"describe {digest}", more)

    def _standardise(self, message: Standardise) -> Record:
        run, terms, note = self._run(message)
        if self.policy.privacy != "none" and not self.policy.noiseless_sums:
            raise limits.refused("noiseless_sums", "sums for standardisation would leave without noise")
        label = self._only(message, run, terms)
        seen = self._designed(message, terms, note)
        sums = scale_sums(seen.summary, message.weight(self.site.name), self.table.dither(label))
        integers = to_integers(sums, STATISTICS.unit)
        answer = Sums(message.experiment, run.hidden(integers, STATISTICS.limbs, message.members, bytes.fromhex(label)))
        return self._enter(answer, terms.token, message, "sums of columns and squares", label, {"numbers": len(sums)})

    def _measure(self, message: Measure) -> Record:
        run, terms, note = self._run(message)
        label = self._only(message, run, terms)
        scale = FeatureScale(message.centre, message.spread, message.y_centre, message.y_spread, message.intercept)
        seen, design = self._designed(message, terms, note), AgreedDesign.from_text(message.design)
        own = seen.summary
        weights = dict(zip(message.members, message.weights.tolist(), strict=True))
        with self._closing(message.experiment, terms.token):
            limits.check_coordinates(self.policy, scale, own, self.site.task)
            _, sizes = self.table.prepare(terms, scale, design)  # rows are made ready now, not in the first round
        shared, sums = None, [0.0] * 4
        if self.policy.privacy == "none":
            asks = limits.step_limits(self.policy, sizes, terms.local == "rows")
        else:  # noise hides each row, and no limit may tell of one
            asks = (self.policy.least_local_steps if terms.local == "rows" else 1), 0.0
        if limits.exact_sums(self.policy):
            asked = self.policy.share_moments and message.moments and self.policy.privacy == "none"
            scalars, shared = measure(self.table.data.opened, self.site.task, scale, asked, design)
            sums = plan_sums(message.weight(self.site.name), *scalars, dither=self.table.dither(label))  # type: ignore[assignment]
        integers = to_integers(sums, STATISTICS.unit)
        share = run.hidden(integers, STATISTICS.limbs, message.members, bytes.fromhex(label))
        answer = Measurement(message.experiment, own.n, *asks, share, *(shared or (None, None, None)))
        left = "three sums for planning" + (", and moments" if shared else "")
        numbers = 3 + sum(part.size for part in shared or ())
        known = {"design": message.design, "names": seen.names, "scale": scale_to_json(scale), "weights": weights}
        self.files.remember(message.experiment, note | known)
        return self._enter(answer, terms.token, message, left, label, {"numbers": numbers})

    def _designed(self, message: Standardise | Measure, terms: RunTerms, note: dict[str, Any]) -> TableView:
        """The table as all sites agreed to read it."""
        with self._closing(message.experiment, terms.token):
            seen = self.table.designed(self.policy, message.design, note["design"], len(terms.sites))
        self.files.remember(message.experiment, note | {"design": message.design})
        return seen

    def _only(self, message: Summed, run: SiteRun, terms: RunTerms) -> str:
        """The label of an order that a run gives once: in other coordinates or sums it would tell more."""
        label = message.label(run.context).hex()
        known = self.ledger.run(terms.token)
        if known is not None and known.labels.get(message.KIND, label) != label:
            raise PolicyError(f"this site answers one order to {message.KIND} in a run; this is another one")
        return label

    # rounds

    def _work(self, message: Work) -> Record:
        run, terms, note = self._run(message)
        state = self.files.state(message.experiment)
        design, scale = AgreedDesign.from_text(note["design"]), scale_from_json(note["scale"])
        steps, sizes = self.table.prepare(terms, scale, design)
        label = message.label(run.context)
        more: dict[str, Any] = {"numbers": len(message.theta), "round": message.round}
        if label.hex() not in self.ledger.answered:
            more |= check_round(self.policy, self.ledger, message, terms, self.site, sizes, state)
        with self._closing(message.experiment, terms.token):
            new, answer = client_step(state, message, replace(run, local=self.table.drawing(steps)))
        if isinstance(answer, Refusal):
            return with_receipt(answer, self.ledger.refuse(message.experiment, message.KIND, answer.text))
        try:
            self.ledger.check_label(label.hex(), digest_of(answer))
        except PolicyError as error:  # its state was lost: all begin again, under other masks
            receipt = self.ledger.refuse(message.experiment, message.KIND, str(error))
            about = message.experiment, message.generation, message.round
            return Refusal(*about, "forgot", str(error), receipt).record()
        self.files.store(message.experiment, state, new)
        what = "how far the model moved" + (", with noise" if terms.coding.noise is not None else "")
        return self._enter(answer, terms.token, message, what, label.hex(), more)

    def _finish(self, message: Finish) -> Record:
        run, terms, note = self._run(message, last=True)
        names = [printable(name) for name in names_from(message.names, "names")]
        out: dict[str, Any] = {"names": names, "theta": message.theta.tolist()}
        T, t = scale_from_json(note["scale"]).original()
        if names != note["names"]:
            raise MessageError("'names' must be those of the coefficients that this site has; they are others")
        out["coefficients"] = (T @ message.theta + t).tolist()
        label, whole = message.label(run.context).hex(), digest_of(message)
        known = self.ledger.run(terms.token)
        if known is not None and known.labels.get(message.KIND) != whole:  # the same again, to the bit, is answered
            known.check_open()
        took = int((message.acked > 0).sum())  # with fewer the sum would be over the control variates of a few
        if terms.secure and 0 < took < self.policy.least_sites:
            raise limits.refused("least_sites", f"{self.policy.least_sites} must have taken part; {took} have")
        state = self.files.state(message.experiment)
        new, answer = client_finish(state, message, run)
        self.ledger.check_label(label, digest_of(answer))
        self.files.store(message.experiment, state, new)
        self.files.write_result(message.experiment, out)
        more = {"numbers": len(message.theta), "closed": "it is over", "order": whole}
        return self._enter(answer, terms.token, message, "the control variate", label, more)

    # what a run needs

    def _run(self, message: Summed, last: bool = False) -> tuple[SiteRun, RunTerms, dict[str, Any]]:
        """What is known of the run of an order; last : it may be over."""
        note = self.files.note(message.experiment)
        if note is None:
            raise FedLSAError(f"this site does not know the run {message.experiment}")
        terms = _terms(note["terms"])
        known = self.ledger.run(terms.token)
        if known is None:
            raise FedLSAError(f"the ledger of this site does not know the run {message.experiment}")
        if not last:
            known.check_open()
        if any(name not in terms.sites for name in message.members):
            raise MessageError("'sites' must be sites of the run; one is not")
        limits.check_sum(self.policy, self.site.name, message.members, message.weights)
        limits.check_group(self.policy, message.members, message.weights, self.ledger.groups)
        context = known.terms  # masks cancel only between sites that were told the same, from the terms on
        if isinstance(message, Acknowledged):
            context = known.labels.get(Measure.KIND, "")
            if note["scale"] is None or not context:
                raise FedLSAError("this site does not know the run's coordinates")
            dim = scale_from_json(note["scale"]).dim
            if len(message.theta) != dim:  # and acked_mean, which is as long
                raise MessageError(f"'theta' must have {dim} entries; got {len(message.theta)}")
            limits.check_same_weights(self.site.name, message.members, message.weights, note["weights"])
        if limits.exact_sums(self.policy):
            with self._closing(message.experiment, terms.token):
                self.table.check_unchanged(note["stamp"], note["table"])
        if terms.token not in self.pairs:
            self.pairs = {terms.token: mask_secrets(terms, self.site)}
        pairs = self.pairs[terms.token]
        run = SiteRun(
            self.site.name, context, _no_steps, terms.coding, pairs, terms.secure, discrete_gaussian, terms.method
        )
        return run, terms, note

    def _enter(self, answer: Any, token: str, order: Message, left: str, label: str, more: Mapping[str, Any]) -> Record:
        """The answer with the receipt of its entry in the ledger, which is on the disk then."""
        if isinstance(order, Summed):
            more = {**more, "group": limits.group_of(order.members, order.weights)}
        digest = digest_of(answer)
        with self._closing(order.experiment, token):
            self.ledger.check_label(label, digest)
        return with_receipt(answer, self.ledger.enter(order.experiment, token, order.KIND, left, label, digest, **more))

    @contextlib.contextmanager
    def _closing(self, name: str, token: str) -> Iterator[None]:
        """A refusal that depends on the data ends the run here: one bit in a run, and not one in every order."""
        try:
            yield
        except (ArithmeticError, ValueError, FedLSAError) as error:
            if not isinstance(error, MessageError):  # which is about the order alone
                why = str(error) if isinstance(error, PolicyError) else "it could not be followed on this table"
                self.ledger.close(name, token, why)
            raise


_terms = lru_cache(maxsize=4)(RunTerms.from_text)  # those of a hundred sites take a while to read


def _no_steps(theta: Floats, xi: Floats, eta: float, steps: int, label: bytes) -> Floats:
    raise MessageError("this order does not ask for local steps")
