"""What is settled with all sites before the first round: names, weights, the run's coordinates, and a plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from typing import Any, TypeVar

import numpy as np

from ...checks import Floats
from ...errors import ArgumentError, MessageError, NetworkError, SiteDataError
from ...fitting import run_plan
from ...fitting.covariance import chosen_coefficients, rows_count_equally
from ...fitting.design import design_of
from ...fitting.rows import Columns, FeatureScale
from ...fitting.sums import original_scale, scale_of
from ...fitting.tasks import Task, checked_weight, shared_intercept
from ...theory.private_plans import noise_sentence
from ..carriers import SignedTransport
from ..disk import read_json, write_json
from ..folder.certificates import check_site
from ..folder.config import Network, task_text
from ..protocol.agreed_design import AgreedDesign, common_design, look_alikes, plan_numbers, pooled_summary
from ..protocol.codec import printable
from ..protocol.messages import Answer, Describe, Description, Measure, Measurement, Order, Refusal, Standardise, Sums
from ..protocol.ring import STATISTICS, Limbs, add, from_share, to_floats
from ..protocol.run_settings import RunSettings, RunTerms, StartOptions
from ..protocol.server import ServerState
from ..site.facts import coefficient_names
from ..site.site_data import scale_from_json, scale_to_json
from .runs import RunFolder

PRESENCE_POLL = 0.2  # seconds between looks for sites that are not there
MEMBERS = "certificates.json"  # of a run: its sites, with their certificates
MAX_PAUSE = 10.0  # seconds between questions to a site that answers in vain: they double
ASK_AGAIN = 5.0  # seconds between questions to a site where a person has to allow the run first
MAX_RECEIPT = 2000  # characters
M = TypeVar("M", bound=Answer)


class StoppedError(NetworkError):
    """A person has stopped the run."""


@dataclass
class Inquiry:
    """A run and those who take part in it. receipts : the last of each site's ledger, given back with the terms."""

    network: Network
    run: RunFolder
    transport: SignedTransport  # or what asks sites as it does
    options: StartOptions = field(init=False)
    receipts: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.options = self.run.options()
        path = self.network.folder / "receipts.json"
        self.receipts = read_json(path) or {}
        if not all(isinstance(receipt, str) for receipt in self.receipts.values()):
            raise NetworkError(f"{path} must hold a text for each site, its last receipt; it is damaged")
        if (began := self.run.read(MEMBERS)) is not None:  # sites that were added or removed since do not change a run
            self.network = replace(self.network, sites=tuple(began))

    @property
    def secure(self) -> bool:
        """Whether sums are all that this process learns."""
        return self.options.secure(len(self.network.sites))

    def keep_receipts(self) -> None:
        """Store the receipts, for the terms of later runs."""
        write_json(self.network.folder / "receipts.json", self.receipts, "the sites' receipts")

    def wait_for(self, whom: str, seconds: float = PRESENCE_POLL) -> None:
        """Wait a little for sites, and say so once."""
        here = self.transport.present()
        text = f"waiting for {whom}; present: {', '.join(here) or 'none'}"
        if self.run.last_text() != text:
            self.run.note("waiting", text=text, present=len(here))
        time.sleep(seconds)

    def ask(self, orders: Mapping[str, Order], deadline: float) -> Iterator[tuple[str, Answer | MessageError]]:
        """The transport's answers; receipts are kept."""
        for site, answer in self.transport.ask(orders, deadline):
            if isinstance(answer, Answer) and 0 < len(answer.receipt) <= MAX_RECEIPT:
                self.receipts[site] = answer.receipt
            yield site, answer

    def ask_all(self, order: Callable[[str], Order], kind: type[M]) -> list[M]:
        """One answer of this kind of every site, however long it takes; a no ends the run."""
        out: dict[str, M] = {}
        errors: dict[str, str] = {}
        vain = 0  # times in a row that an answer could not be taken: a site shall not fill the disk with them
        while not self.run.stopping:
            left = [site for site in self.network.sites if site not in out]
            if not left:
                return [out[site] for site in self.network.sites]
            pause = PRESENCE_POLL
            asked_again, vain = vain, 0
            for site, answer in self.ask({site: order(site) for site in left}, self.options.deadline):
                try:
                    if isinstance(answer, MessageError):
                        raise answer
                    if isinstance(answer, kind):
                        out[site] = answer
                        continue
                    if not isinstance(answer, Refusal):
                        raise MessageError(f"the answer must be a {kind.kind}; got a {answer.kind}")
                    if answer.reason != "approval":
                        raise NetworkError(f"{site} refused: {printable(answer.text)}")
                    pause = ASK_AGAIN
                except MessageError as error:  # it is asked again; who looks sees which site holds the run up
                    if errors.get(site) != (text := printable(error)):  # said once, for a site could fill the disk
                        self.run.note("refused", site=site, text=text)
                    errors[site] = text
                    vain = asked_again + 1
                    pause = max(pause, min(PRESENCE_POLL * 2.0 ** min(vain, 10), MAX_PAUSE))
            if left := [site for site in left if site not in out]:
                person = ", where a person has to allow the run" if pause == ASK_AGAIN else ""
                self.wait_for(", ".join(left) + person, pause)
        raise StoppedError("the run was stopped")

    def describe(self, site: str) -> Describe:
        """The order that tells a site what the run is: all the same, but for the receipt of its own ledger."""
        o, n = self.options, self.network
        terms = RunTerms(
            task=task_text(n.task),
            token=self.run.token,
            aggregation="secure" if self.secure else "plain",
            sites=n.sites,
            certificates=self._certificates(),
            rounds=(o.rounds or 0) * (1 + len(o.errors_of)),
            **{name: getattr(o, name) for name in ("method", "local", "coding", "errors_of")},
            receipts=((site, self.receipts[site]),) if site in self.receipts else (),
            program=metadata.version("fedlsa"),
        )
        return Describe(self.run.name, terms)

    def _certificates(self) -> tuple[str, ...]:
        """The certificates of all sites as they were when the run began: its terms stay when one is renewed or revoked.

        A run with secure aggregation waits for sites whose certificate nobody has approved; without it none are needed.
        """
        n, known = self.network, self.run.read(MEMBERS)
        while known is None:
            missing = [site for site in n.sites if self.secure and not n.site_certificate(site).is_file()]
            if not missing:
                known = {site: self._certificate(site) if self.secure else "" for site in n.sites}
                self.run.write(MEMBERS, known)
            elif self.run.stopping:
                raise NetworkError(f"it was stopped before {', '.join(missing)} had a certificate")
            else:
                self.wait_for(f"{', '.join(missing)}, whose certificate nobody has approved (fedlsa network approve)")
        return tuple(known.values()) if self.secure else ()

    def _certificate(self, site: str) -> str:
        pem = self.network.site_certificate(site).read_bytes()
        check_site(pem, self.network.id, site)
        return pem.decode("ascii")


Agreement = dict[str, Any]  # terms.json
CAPPED = "not all rows count the same, and this is not pooled least squares (--max-weight)"


def agree(with_: Inquiry) -> tuple[ServerState, Agreement]:
    """Hear all sites, choose coordinates and settings, and store them."""
    sites, run, task, options = with_.network.sites, with_.run, with_.network.task, with_.options
    while (missing := sorted({*sites} - {*with_.transport.present()}, key=sites.index)) and not run.stopping:
        with_.wait_for(", ".join(missing))
    described = with_.ask_all(with_.describe, Description)
    design = common_design([description.design for description in described], sites)
    names = list(coefficient_names(task, Columns(design.columns, (), "", levels=design.levels)))
    formula = design_of(task, design.levels)
    for text in (*look_alikes(design)[:10], *map(printable, formula.cautions if formula is not None else ())):
        run.note("levels", text=text)
    rows, weight = [description.rows for description in described], checked_weight(task, options.weight)
    weights = run_plan.weights_of(rows, weight, options.max_weight)
    try:
        chosen = chosen_coefficients(task, names, options.errors_of, rows_count_equally(np.array(rows), weights))
    except ArgumentError as error:
        raise NetworkError(str(error)) from None
    sums = None
    if task.scaled:
        order = Standardise(run.name, sites, weights, design)
        sums = total([answer.share for answer in with_.ask_all(lambda site: order, Sums)])
    scale = scale_from(sums, task, names, sites)
    terms: Agreement = {
        "names": names,
        "design": design.text(),
        "scale": scale_to_json(scale),
        "rows": dict(zip(sites, rows, strict=True)),
        "weights": weights.tolist(),
    }
    coordinates = measure(with_, terms)
    measured = with_.ask_all(lambda site: coordinates, Measurement)
    if wrong := [site for site, m in zip(sites, measured, strict=True) if m.b is not None and len(m.b) != scale.dim]:
        raise NetworkError(f"{wrong[0]} must share moments of {scale.dim} coefficients; it shares others")
    numbers = plan_numbers(to_floats(total([answer.share for answer in measured]), STATISTICS.unit))
    try:
        settings, plan = _settings(with_, measured, numbers, weights, scale.dim)
    except (ValueError, ArithmeticError) as error:
        raise NetworkError(f"no plan follows from what the sites say: {printable(error, 500)}") from error
    terms["no_scores"] = [site for site, m in zip(sites, measured, strict=True) if not m.scores]
    terms["chosen"] = chosen if terms["no_scores"] else []
    terms |= plan
    if all(m.A is not None for m in measured):
        terms["one_shot"] = run_plan.solve_shared_moments(
            run_plan.stack_moments(measured, weights), [m.rows for m in measured], names
        ).tolist()
        T, t = scale.original()
        shot = ", ".join(f"{n} {v:.6g}" for n, v in zip(names, T @ terms["one_shot"] + t, strict=True))
        shot = f"from the moments that all sites share, without a round: {shot}"
        run.note("one shot", text=printable(shot, 2000))
    run.write("terms.json", terms)
    state = ServerState.start(settings, scale.dim)
    run.save(state)
    run.note("planned", text=plan["plan"], rounds=settings.rounds, dim=scale.dim, sites=list(sites))
    if weight == "samples" and (weights < np.array(rows) / sum(rows) * (1 - 1e-9)).any():
        run.note("weights", text=f"no site counts for more than {weights.max():.3g}: {CAPPED}")
    return state, terms


def scale_from(sums: Sequence[int] | None, task: Task, names: Sequence[str], sites: Sequence[str]) -> FeatureScale:
    """The coordinates of the run, as fl.fit has them; sums : of all sites, None where none are needed."""
    k = len(names) - shared_intercept(task)
    if sums is None:
        return original_scale(k, shared_intercept(task))
    pooled = pooled_summary(sums)
    if len(pooled.mean) != k + 1:
        raise SiteDataError(f"the sites sent sums of {len(pooled.mean)} columns for {len(names)} coefficients")
    where = f"all {len(sites)} sites ({sites[0]}, ...)"
    return scale_of(task, pooled.mean, pooled.scatter, pooled.largest, names[:k], where)


def measure(with_: Inquiry, terms: Agreement) -> Measure:
    """The order that tells a site the run's coordinates."""
    weights, design = np.array(terms["weights"]), AgreedDesign.from_text(terms["design"])
    return Measure(with_.run.name, with_.network.sites, weights, design, **vars(scale_from_json(terms["scale"])))


def total(shares: Sequence[Limbs]) -> list[int]:
    """The integers that the shares of all sites hold together."""
    if len({share.shape for share in shares}) > 1 or shares[0].shape[1] != STATISTICS.limbs:
        raise NetworkError("the sites' sums must have one length; they have different ones")
    return from_share(add(shares))


def _settings(
    with_: Inquiry, measured: list[Measurement], numbers: run_plan.PlanNumbers, weights: Floats, dim: int
) -> tuple[RunSettings, Agreement]:
    """The settings, by hand or from a plan; and what is kept of the plan."""
    options = with_.options
    values: dict[str, Any] = asdict(options) | {"name": with_.run.name, "epsilon": None}
    values["weight"] = checked_weight(with_.network.task, options.weight)
    kept: Agreement = {"plan": "as asked for", "rate": None, "epsilon": options.epsilon}
    if options.epsilon is not None:
        limits = [run_plan.StepLimits(m.least_steps, m.largest_eta) for m in measured]
        asked = numbers, limits, options.epsilon, options.method
        if all(m.A is not None for m in measured):
            plan = run_plan.plan_from_moments(run_plan.stack_moments(measured, weights), *asked, options.local)
        else:
            plan = run_plan.plan_from_scalars(*asked, dim, local=options.local)
        values |= {"step_size": plan.step_size, "local_steps": plan.local_steps, "rounds": plan.rounds}
        kept |= {"plan": plan.sentence, "rate": plan.rate, "curve": plan.curve}
    if with_.network.task.standardise and numbers.a > 0:
        values["reach"] = max(1.0, 1 / numbers.a)  # as plans have it (run_plan.py)
    settings = RunSettings(**values, sites=with_.network.sites, weights=tuple(weights.tolist()))
    if noise := noise_sentence(settings, min(m.rows for m in measured), dim, options.epsilon):
        kept["plan"] = f"{kept['plan'].rstrip('.')}. {noise}"
    return settings, kept
