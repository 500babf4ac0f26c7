"""A run from its first question to its last message, over any transport that carries messages to sites and back.

First names, coordinates and a plan are settled with all sites (agreement.py); then rounds, each stored before the next;
then all get the estimate. A coordinator that was killed begins again where the stored files say.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...errors import FedLSAError, MessageError, NetworkError
from ...fitting.covariance import ScorePoint, convergence_notes, fields_of_fit, solution_point
from ...fitting.fitted import Fit
from ...fitting.heterogeneity import SiteReport
from ...fitting.model_files import to_plain, typed_fields
from ...fitting.run_plan import has_settled, remaining_error
from ...fitting.tasks import Regression, Task
from ...results.recipe import versions
from ...theory.privacy import promise
from ..carriers import SignedTransport
from ..folder.config import Network
from ..protocol import server
from ..protocol.agreed_design import AgreedDesign
from ..protocol.codec import MalformedError, printable
from ..protocol.messages import Finished, Refusal, Score, Solve, Sums
from ..protocol.ring import STATISTICS, VECTORS, read_sum, to_floats
from ..protocol.server import ServerState
from ..site.site_data import scale_from_json
from .agreement import PRESENCE_POLL, Agreement, Inquiry, StoppedError, agree, measure, total
from .runs import RunFolder

FIRST_PAUSE = 0.1  # seconds, doubled for every round in vain up to the options' grace
RETURN_POLL = 30.0  # seconds between invitations of sites that are connected and did not answer
FINISH_DEADLINE = 20.0  # seconds in which sites may take the last message
TRUSTED = 1e-6  # of theta: what the sum of control variates may move it by in a round
UNBALANCED = "the control variates do not sum to 0, so a site did not keep to the protocol: do not use this estimate"
RECEIPTS_EVERY = 50  # rounds after which sites' receipts are stored


@dataclass
class RunLoop(Inquiry):
    """One run. uninformed : sites that do not know it (a new disk); they are told before the next round."""

    uninformed: set[str] = field(default_factory=set)
    invited_gone: float = 0.0  # when sites that are gone and connected were last invited

    def complete(self) -> None:
        """Carry the run on from where its folder says it is, to its end."""
        run, state, terms = self.run, self.run.load(), self.run.read("terms.json")
        if state is None or terms is None:
            try:
                state, terms = agree(self)
            except StoppedError:
                self._end({"experiment": run.name, "over": "it was stopped before its first round"})
                return
        else:
            run.note("resumed", round=state.opened, averages=state.averages)
        try:
            state, over = self._rounds(state, terms)
            while not run.stopping and len(state.found) < len(terms["chosen"]):
                state = server.next_target(state, _slack(state, terms))
                name = terms["names"][terms["chosen"][len(state.found) - 1]]
                run.note("direction", text=f"rounds for the standard error of {name}, up to {state.settings.rounds}")
                state, over = self._rounds(state, terms)
        except NetworkError as error:
            if not len(state.found):
                raise
            over, terms["errors"] = "the estimate has all its rounds", {"no_errors": printable(error, 500)}
        run.save(state)  # sites that are told the end answer no more rounds
        if "errors" not in terms:  # nor are sums for errors
            terms["errors"] = standard_errors(self, state, terms, _slack(state, terms))
            run.write("terms.json", terms)
        result = self._outcome(state, terms, over) | terms["errors"] | self._finish(state, terms)
        if not _balanced(result["sum_of_xi"], state):
            run.note("alarm", text=UNBALANCED)
            result["over"] = f"{over}; {UNBALANCED}"
        self._end(result)

    def _rounds(self, state: ServerState, terms: Agreement) -> tuple[ServerState, str]:
        """Rounds until they are over, and why they are."""
        over = None if state.pending is not None else self._over(state, terms)
        while over is None:
            self._inform(terms)
            state = self._round(state, terms)
            over = self._over(state, terms)
            if state.opened % RECEIPTS_EVERY == 0:
                self.keep_receipts()
        return state, over

    def _end(self, result: dict[str, Any]) -> None:
        self.keep_receipts()
        self.run.note("finished", text=result["over"])
        self.run.write("result.json", result)

    def _over(self, state: ServerState, terms: Agreement) -> str | None:
        """Why the run is over, or None."""
        if self.run.stopping:
            return "it was stopped"
        if has_settled(state.movement.tolist(), terms["rate"], terms["epsilon"]):
            return f"movements say that the error is at most {terms['epsilon']:g}"
        return server.finished(state)

    def _inform(self, terms: Agreement) -> None:
        """Tell sites that have lost it what the run is."""
        coordinates = measure(self, terms)
        for order in (self.describe, lambda site: coordinates) if self.uninformed else ():
            orders = {site: order(site) for site in sorted(self.uninformed)}
            for site, answer in self.ask(orders, self.options.deadline):
                if isinstance(answer, Refusal):
                    self.run.note("refused", site=site, text=printable(answer.text))
        self.uninformed.clear()

    def _present(self, state: ServerState) -> tuple[str, ...]:
        """Who is asked now: sites that belong are waited for a little, enough of them for as long as it takes."""
        s, end = state.settings, time.monotonic() + self.options.grace
        need, gone = s.least(len(s.sites)), dict(zip(s.sites, state.gone.tolist(), strict=True))
        aside = {site for site, away in zip(s.sites, state.aside.tolist(), strict=True) if away}
        if len(s.sites) - len(aside) < need:
            left = f"{need} sites are needed, and {', '.join(sorted(aside))} broke the protocol and are asked no more"
            raise NetworkError(f"the run cannot go on: {left}")
        pause = min(self.options.grace, FIRST_PAUSE * 2.0 ** min(state.attempts, 30)) * (state.attempts > 0)
        until = time.monotonic() + pause  # a full disk or a site that refuses gets time, as one that is away does
        while time.monotonic() < until and not self.run.stopping:
            time.sleep(min(PRESENCE_POLL, max(until - time.monotonic(), 0.0)))
        while not self.run.stopping:
            here = [site for site in self.transport.present() if site in gone and site not in aside]
            missing = [site for site in s.sites if site not in here and site not in aside and not gone[site]]
            back = [site for site in here if gone[site]]
            if back and time.monotonic() < self.invited_gone + RETURN_POLL:
                here = [site for site in here if not gone[site]]
            if len(here) >= need and (not missing or time.monotonic() >= end):
                if any(gone[site] for site in here):
                    self.invited_gone = time.monotonic()
                return tuple(here)
            self.wait_for(", ".join(missing) if missing else f"{need} sites")
        return ()

    def _round(self, state: ServerState, terms: Agreement) -> ServerState:
        """One round: open it, collect, close it."""
        run, s = self.run, state.settings
        if state.pending is not None:  # a coordinator that died had opened it
            here = self.transport.present()
            state, orders = server.reissued(state)
        else:
            here = self._present(state)
            if run.stopping:
                return state
            state, orders = server.open_round(state, here)
            run.save(state)  # what was averaged before, and what is asked for now
        began = time.monotonic()
        for site, answer in self.ask(orders, self.options.deadline):
            if isinstance(answer, MessageError) and not isinstance(answer, MalformedError):
                run.note("refused", round=state.opened, site=site, text=printable(answer))
                continue
            state, reason = server.accept(state, site, answer)
            if reason is None:
                continue
            run.note("refused", round=state.opened, site=site, text=printable(reason))
            why = answer.reason if isinstance(answer, Refusal) else None
            if why == "data":
                self.uninformed.add(site)
            if why == "policy" and state.averages == 0:  # it would refuse every round
                raise NetworkError(f"{site}: {printable(reason, 500)}")
        state, closed = server.close_round(state)
        error, traffic = _error(state, terms), state.traffic[:, [server.UP_BYTES, server.DOWN_BYTES]]
        up, down = traffic.sum(axis=0).tolist()
        run.note(
            "round",
            **asdict(closed),
            averages=state.averages,
            present=len(here),
            size=float(state.typical[-1] * closed.steps) if len(state.typical) else None,
            error=error if np.isfinite(error) else None,
            up=up,
            down=down,
            moved=dict(zip(s.sites, traffic.tolist(), strict=True)),
            seconds=round(time.monotonic() - began, 3),
        )
        if state.attempts >= s.most_in_vain:
            missing = f"; without a good answer: {', '.join(closed.missing)}" if closed.missing else ""
            raise NetworkError(f"{state.attempts} rounds in a row were in vain: {closed.why}{missing}")
        return state

    def _finish(self, state: ServerState, terms: Agreement) -> dict[str, Any]:
        """Tell all sites the estimate; who was told, and whether their control variates really sum to 0."""
        last, shares = server.finish(state, terms["names"]), {}
        for site, answer in self.ask(last, FINISH_DEADLINE):  # whatever comes, the estimate is not lost
            if isinstance(answer, Finished) and answer.share.shape == (state.dim, VECTORS.limbs):
                shares[site] = answer.share
        frozen = state.settings.absence == "freeze" and bool(state.gone.any())
        complete_sum = shares.keys() == last.keys() and last and not frozen
        total = float(np.linalg.norm(read_sum(list(shares.values()), VECTORS.unit))) if complete_sum else None
        why = "a site that is gone keeps its own (absence: freeze)" if frozen else "not all sites took the last message"
        return {"told": sorted(shares), "sum_of_xi": total} | ({"no_sum_of_xi": why} if total is None else {})

    def _outcome(self, state: ServerState, terms: Agreement, over: str) -> dict[str, Any]:
        """What result.json holds: theta, coefficients on the original scale, what was moved."""
        T, t = scale_from_json(terms["scale"]).original()
        sites = state.settings.sites
        out: dict[str, Any] = {
            "experiment": self.run.name,
            "over": over,
            **{name: terms[name] for name in ("names", "design", "scale", "rows", "weights", "epsilon")},
            "coefficients": (T @ state.estimate + t).tolist(),
            "theta": state.estimate.tolist(),
            "averages": state.earlier + state.averages,
            "rounds_opened": state.opened,
            "generations": state.generation + 1,
            "traffic": dict(zip(sites, state.traffic.tolist(), strict=True)),
            "traffic_columns": ["messages down", "bytes down", "messages up", "bytes up"],
            "refused": dict(zip(sites, state.refused.tolist(), strict=True)),
            "aside": [site for site, away in zip(sites, state.aside.tolist(), strict=True) if away],
            "aggregation": "secure" if self.secure else "plain",
            "settings": asdict(state.settings),
        }
        if self.options.noise is not None:
            coding, least = self.options.coding, float(state.settings.shares.min())
            rounding = coding.grid.unit * np.sqrt(state.dim) / ((coding.clip or 1.0) * least)
            out["privacy"] = promise(self.options.noise, state.opened, rounding=rounding, unit=self.options.unit)
            if "errors" in terms["errors"]:
                out["privacy"] += "; the sums for standard errors left without noise, and are not in it"
        if "one_shot" in terms:
            out["one_shot"] = (T @ np.array(terms["one_shot"]) + t).tolist()
        return out


def complete_run(network: Network, run: RunFolder, transport: SignedTransport) -> None:
    """Carry a run on from where its folder says it is, to its end."""
    RunLoop(network, run, transport).complete()


def _balanced(total: float | None, state: ServerState) -> bool:
    """Whether the control variates' sum, where it is known and means something, is 0 beside what theta is."""
    s = state.settings
    reach = TRUSTED * (1.0 + float(np.linalg.norm(state.theta)))
    return total is None or s.trim > 0 or total * s.step_size * s.local_steps <= reach


def _slack(state: ServerState, terms: Agreement) -> float:
    """The relative error of the direction that rounds went to, about, at most 1; 0 for the coefficients."""
    length = float(np.linalg.norm(state.theta))
    return min(_error(state, terms) / length, 1.0) if len(state.found) and length else 0.0


def _error(state: ServerState, terms: Agreement) -> float:
    """How far theta is from where it goes, about: by the plan's rate, or by how movements shrink."""
    rate, movement = terms["rate"], state.movement.tolist()
    return server.estimated_error(state) if rate is None else remaining_error(movement, rate)


# Standard errors of a run between sites, from two more sums over all of them, and a run's result as a model.
#
# All sites must take part (share_scores in their policies): the sums are masked as those of rounds are, and hold d x d
# numbers. fitting/covariance.py has the mathematics.

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
            at, chosen = _of_chosen_coefficients(state, terms, task)
        else:
            at, chosen = _of_all_coefficients(with_, state, terms)
        order = Score(**_common(state) | {"theta": at.theta}, directions=at.directions, A=at.A, spread=at.spread)
        found = fields_of_fit(task, scale, [*terms["rows"].values()], at, _sum(with_, order), chosen)
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
    own = with_.network.task.own is not None
    return solution_point(system, state.estimate, terms["names"], *counts, own), list(range(state.dim))


def _of_chosen_coefficients(state: ServerState, terms: Agreement, task: Regression) -> tuple[ScorePoint, list[int]]:
    """Where rounds have found directions: at the run's end."""
    chosen, scale = terms["chosen"], scale_from_json(terms["scale"])
    if len(state.found) < len(chosen):
        raise NetworkError("the run was stopped")
    c = scale.original()[0][chosen]
    directions = np.linalg.norm(c, axis=1, keepdims=True) * np.vstack([state.found[1:], state.theta])
    if scale.intercept:  # sites have a ridge of the intercept too, which is apart from centred columns, and 0
        directions[:, -1] *= 1 + task.ridge
    return ScorePoint(state.estimate, directions, own=task.own is not None), chosen


def _common(state: ServerState) -> dict[str, Any]:
    """What all orders for sums over all sites say."""
    sites = state.settings.sites
    if (away := state.gone | state.aside).any():
        raise NetworkError(f"{sites[int(np.argmax(away))]} is gone, and sums are over all sites")
    return server.summed(state, np.arange(len(sites)), int(state.known.min())) | {"theta": state.estimate}


def _sum(with_: Inquiry, order: Solve | Score) -> np.ndarray[Any, Any]:
    """The sum over all sites that an order asks for."""
    answers = with_.ask_all(lambda site: order, Sums)
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
