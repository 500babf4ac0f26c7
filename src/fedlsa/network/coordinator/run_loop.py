"""A run from its first question to its last message, over any transport that carries records to sites and back.

First the columns, the run's coordinates, three scalars and a plan are settled with all sites; then rounds, each stored
before the next; then all get the estimate. A coordinator that was killed begins again where the stored files say: it
gives out the round that was open again, and sites that had answered answer the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from ...checks import Floats
from ...errors import MessageError, NetworkError
from ...fit.observe import FeatureScale
from ..folder.config import Network
from ..protocol.messages import Describe, Description, Measure, Measurement, Refusal
from ..protocol.privacy import promise
from ..protocol.records import Message, Record, printable
from ..protocol.run_settings import RunSettings, StartOptions
from ..protocol.server import accept, close_round, drift_norm, estimated_error, finish, finished, open_round
from ..protocol.server_state import DOWN_BYTES, UP_BYTES, ServerState
from ..site.orders import run_terms, scale_from_json, scale_to_json
from .run_plan import error_left, one_shot, plan_from_moments, plan_from_scalars, scale_from, settled, weights_of
from .runs import RunFolder

PRESENCE_POLL = 1.0  # seconds between looks for sites that are not there
FINISH_DEADLINE = 20.0  # seconds in which sites may take the last message
M = TypeVar("M", bound=Message)
Terms = dict[str, Any]  # terms.json: what was settled with the sites before the first round


class Transport(Protocol):
    """What carries records between coordinator and sites (over Flower: flower/transport.py)."""

    def present(self) -> tuple[str, ...]:
        """The sites that can be reached."""
        ...

    def ask(self, orders: Mapping[str, Record], deadline: float) -> Iterator[tuple[str, Record | MessageError]]:
        """Send orders; what comes back within `deadline` seconds, once per site."""
        ...


@dataclass
class RunLoop:
    """One run. uninformed : sites that do not know it (a new disk); they are told before the next round."""

    network: Network
    run: RunFolder
    transport: Transport
    options: StartOptions = field(init=False)
    uninformed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.options = self.run.options()

    def complete(self) -> None:
        """Carry the run on from where its folder says it is, to its end."""
        run, state, terms = self.run, self.run.load(), self.run.read("terms.json")
        if state is None or terms is None:
            agreed = self._agree()
            if agreed is None:
                self._end({"experiment": run.name, "over": "it was stopped before its first round"})
                return
            state, terms = agreed
        else:
            run.note("resumed", round=state.opened, averages=state.averages)
        while (over := self._over(state, terms)) is None:
            self._inform(scale_from_json(terms["scale"]))
            state = self._round(state, terms)
            run.save(state)
        last = {site: message.record() for site, message in finish(state, json.dumps(terms["names"])).items()}
        told = [site for site, answer in self.transport.ask(last, FINISH_DEADLINE) if isinstance(answer, Record)]
        self._end(self._outcome(state, terms, over) | {"told": sorted(told)})

    def _end(self, result: dict[str, Any]) -> None:
        self.run.note("finished", text=result["over"])
        self.run.write("result.json", result)

    def _over(self, state: ServerState, terms: Terms) -> str | None:
        """Why the run is over, or None."""
        if self.run.stopping:
            return "it was stopped"
        if settled(state.movement.tolist(), terms["rate"], terms["epsilon"]):
            return f"movements say that the error is at most {terms['epsilon']:g}"
        return finished(state)

    def _wait_for(self, whom: str) -> None:
        """Wait a little for sites, and say so once."""
        here = self.transport.present()
        last = [event for _, event in self.run.events()][-1:]
        text = f"waiting for {whom}; present: {', '.join(here) or 'none'}"
        if not last or last[0].get("text") != text:
            self.run.note("waiting", text=text, present=len(here))
        time.sleep(PRESENCE_POLL)

    # before the first round

    def _agree(self) -> tuple[ServerState, Terms] | None:
        """Hear all sites, choose coordinates and settings, and store them; None if the run was stopped meanwhile."""
        sites, run = self.network.sites, self.run
        while (missing := sorted({*sites} - {*self.transport.present()}, key=sites.index)) and not run.stopping:
            self._wait_for(", ".join(missing))
        described = self._ask_all(self._describe(), Description.from_record)
        if described is None:
            return None
        weights = weights_of(described, self.options.weight)
        scale = scale_from(described, self.network.task, weights, sites)
        names = [str(n) for n in json.loads(described[0].names)]
        measured = self._ask_all(self._measure(scale), partial(Measurement.from_record, dim=scale.dim))
        if measured is None:
            return None
        rows = {site: said.rows for site, said in zip(sites, described, strict=True)}
        try:
            settings, plan = self._settings(measured, weights, scale.dim)
        except (ValueError, ArithmeticError) as error:
            raise NetworkError(f"no plan follows from what the sites say: {printable(error)}") from error
        terms: Terms = {"names": names, "scale": scale_to_json(scale), "rows": rows, **plan}
        if all(m.A is not None for m in measured):
            terms["one_shot"] = one_shot(measured, weights, names).tolist()
            T, t = scale.original()
            shot = ", ".join(f"{n} {v:.6g}" for n, v in zip(names, T @ terms["one_shot"] + t, strict=True))
            shot = f"from the moments that all sites share, without a round: {shot}"
            run.note("one shot", text=printable(shot, 2000))
        run.write("terms.json", terms)
        state = ServerState.start(settings, scale.dim)
        run.save(state)
        run.note("planned", text=plan["plan"], rounds=settings.rounds, dim=scale.dim, sites=list(sites))
        return state, terms

    def _describe(self) -> Record:
        terms = run_terms(self.network.task, self.options.coding, self.options.local, self.run.token)
        return Describe(self.run.name, terms).record()

    def _measure(self, scale: FeatureScale) -> Record:
        return Measure(self.run.name, **vars(scale), moments=True).record()

    def _ask_all(self, order: Record, read: Callable[[Record], M]) -> list[M] | None:
        """One good answer of every site, however long it takes; a site that says no ends the run. None: stopped."""
        out: dict[str, M] = {}
        while not self.run.stopping:
            left = [site for site in self.network.sites if site not in out]
            if not left:
                return [out[site] for site in self.network.sites]
            for site, answer in self.transport.ask(dict.fromkeys(left, order), self.options.deadline):
                try:
                    if isinstance(answer, MessageError):
                        raise answer
                    if answer.kind == Refusal.KIND:
                        raise NetworkError(f"{site} refused: {printable(Refusal.from_record(answer).text)}")
                    out[site] = read(answer)
                except MessageError as error:  # it is asked again; who looks sees which site holds the run up
                    self.run.note("refused", site=site, text=printable(error))
            if left := [site for site in left if site not in out]:
                self._wait_for(", ".join(left))
        return None

    def _settings(self, measured: list[Measurement], weights: Floats, dim: int) -> tuple[RunSettings, Terms]:
        """The settings, by hand or from a plan; and what is kept of the plan."""
        options = self.options
        values: dict[str, Any] = asdict(options) | {"name": self.run.name, "epsilon": None}
        kept: Terms = {"plan": "as asked for", "rate": None, "epsilon": options.epsilon}
        if options.epsilon is not None:
            if all(m.A is not None for m in measured):
                plan = plan_from_moments(measured, weights, options.epsilon, options.method, options.local)
            else:
                plan = plan_from_scalars(measured, weights, options.epsilon, options.method, dim, local=options.local)
            values |= {"step_size": plan.step_size, "local_steps": plan.local_steps, "rounds": plan.rounds}
            kept |= {"plan": plan.sentence, "rate": plan.rate}
        return RunSettings(**values, sites=self.network.sites, weights=tuple(weights.tolist())), kept

    # rounds

    def _inform(self, scale: FeatureScale) -> None:
        """Tell sites that have lost it what the run is."""
        for order in (self._describe(), self._measure(scale)) if self.uninformed else ():
            orders = dict.fromkeys(sorted(self.uninformed), order)
            for site, answer in self.transport.ask(orders, self.options.deadline):
                if isinstance(answer, Record) and answer.kind == Refusal.KIND:
                    self.run.note("refused", site=site, text=printable(answer.meta.get("text")))
        self.uninformed.clear()

    def _round(self, state: ServerState, terms: Terms) -> ServerState:
        """One round: open it, collect, close it."""
        run, s = self.run, state.settings
        need = s.least(len(s.sites))
        while len(here := self.transport.present()) < need and not run.stopping:
            self._wait_for(f"{need} sites")
        if run.stopping:
            return state
        began = time.monotonic()
        if state.opened % s.patience:  # who is gone and connected is asked again, but not in every round
            here = tuple(site for site in here if not state.gone[s.sites.index(site)]) or here
        state, orders = open_round(state, here)
        records = {site: order.record() for site, order in orders.items()}
        for site, answer in self.transport.ask(records, self.options.deadline):
            if isinstance(answer, MessageError):
                run.note("refused", round=state.opened, site=site, text=str(answer))
                continue
            state, reason = accept(state, site, answer)
            if reason is not None:
                run.note("refused", round=state.opened, site=site, text=reason)
                if answer.kind == Refusal.KIND and answer.meta.get("reason") == "data":
                    self.uninformed.add(site)
        state, closed = close_round(state)
        error, traffic = _error(state, terms), state.traffic[:, [UP_BYTES, DOWN_BYTES]]
        up, down = traffic.sum(axis=0).tolist()
        run.note(
            "round",
            **asdict(closed),
            averages=state.averages,
            present=len(here),
            drift=drift_norm(state),
            error=error if np.isfinite(error) else None,
            up=up,
            down=down,
            moved=dict(zip(s.sites, traffic.tolist(), strict=True)),
            seconds=round(time.monotonic() - began, 3),
        )
        return state

    def _outcome(self, state: ServerState, terms: Terms, over: str) -> dict[str, Any]:
        """What result.json holds: theta, coefficients on the original scale, what was moved."""
        T, t = scale_from_json(terms["scale"]).original()
        sites = state.settings.sites
        out: dict[str, Any] = {
            "experiment": self.run.name,
            "over": over,
            **{name: terms[name] for name in ("names", "scale", "rows")},
            "coefficients": (T @ state.theta + t).tolist(),
            "theta": state.theta.tolist(),
            "averages": state.averages,
            "rounds_opened": state.opened,
            "sum_of_xi": float(np.linalg.norm(state.present_weights @ state.xi)),
            "drift": drift_norm(state),
            "traffic": dict(zip(sites, state.traffic.tolist(), strict=True)),
            "traffic_columns": ["messages down", "bytes down", "messages up", "bytes up"],
            "refused": dict(zip(sites, state.refused.tolist(), strict=True)),
            "settings": asdict(state.settings),
        }
        if self.options.noise is not None:
            out["privacy"] = promise(self.options.noise, state.opened)
        if "one_shot" in terms:
            out["one_shot"] = (T @ np.array(terms["one_shot"]) + t).tolist()
        return out


def complete_run(network: Network, run: RunFolder, transport: Transport) -> None:
    """Carry a run on from where its folder says it is, to its end."""
    RunLoop(network, run, transport).complete()


def _error(state: ServerState, terms: Terms) -> float:
    """How far theta is from where it goes, about: by the plan's rate, or by how movements shrink."""
    return estimated_error(state) if terms["rate"] is None else error_left(state.movement.tolist(), terms["rate"])
