"""What is settled with the sites before the first round: the columns, the run's coordinates, three scalars, a plan."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol, TypeVar

from ...checks import Floats
from ...errors import MessageError, NetworkError
from ...fit.observe import FeatureScale
from ..folder.config import Network
from ..protocol.messages import Describe, Description, Measure, Measurement, Refusal
from ..protocol.records import Message, Record, printable
from ..protocol.run_settings import RunSettings, StartOptions
from ..protocol.server_state import ServerState
from ..site.orders import run_terms, scale_to_json
from .run_plan import one_shot, plan_from_moments, plan_from_scalars, scale_from, weights_of
from .runs import Run

PRESENCE_POLL = 1.0  # seconds between looks for sites that are not there
M = TypeVar("M", bound=Message)


class Transport(Protocol):
    """What carries records between coordinator and sites (over Flower: flower/transport.py)."""

    def present(self) -> tuple[str, ...]:
        """The sites that can be reached."""
        ...

    def ask(self, orders: Mapping[str, Record], deadline: float) -> Iterator[tuple[str, Record | MessageError]]:
        """Send orders; what comes back within `deadline` seconds, once per site."""
        ...


def wait_for(run: Run, whom: str, here: Sequence[str]) -> None:
    """Wait a little for sites, and say so once."""
    last = [event for _, event in run.events()][-1:]
    text = f"waiting for {whom}; present: {', '.join(here) or 'none'}"
    if not last or last[0].get("text") != text:
        run.note("waiting", text=text, present=len(here))
    time.sleep(PRESENCE_POLL)


def agree(
    network: Network, run: Run, transport: Transport, options: StartOptions
) -> tuple[ServerState, dict[str, Any]] | None:
    """Hear all sites, choose coordinates and settings, and store them; None if the run was stopped meanwhile."""
    sites = network.sites
    while (missing := [s for s in sites if s not in (here := transport.present())]) and not run.stopping:
        wait_for(run, ", ".join(missing), here)
    described = _ask_all(run, transport, options, sites, _describe(network, run, options), Description.from_record)
    if described is None:
        return None
    weights = weights_of(described, options.weight)
    scale = scale_from(described, network.task, weights, sites)
    names = [str(n) for n in json.loads(described[0].names)]
    read = partial(Measurement.from_record, dim=scale.dim)
    measured = _ask_all(run, transport, options, sites, _measure(run, scale), read)
    if measured is None:
        return None
    rows = {site: said.rows for site, said in zip(sites, described, strict=True)}
    terms: dict[str, Any] = {"names": names, "scale": scale_to_json(scale), "rows": rows}
    try:
        settings, plan = _settings(run, options, sites, measured, weights, scale.dim)
    except (ValueError, ArithmeticError) as error:
        raise NetworkError(f"no plan follows from what the sites say: {printable(error)}") from error
    terms |= plan
    if all(m.A is not None for m in measured):
        terms["one_shot"] = one_shot(measured, weights, names).tolist()
        T, t = scale.original()
        shot = ", ".join(f"{n} {v:.6g}" for n, v in zip(names, T @ terms["one_shot"] + t, strict=True))
        run.note("one shot", text=printable(f"from the moments that all sites share, without a round: {shot}", 2000))
    run.write("terms.json", terms)
    state = ServerState.start(settings, scale.dim)
    run.save(state)
    run.note("planned", text=plan["plan"], rounds=settings.rounds, dim=scale.dim, sites=list(sites))
    return state, terms


def introduce(
    network: Network, run: Run, transport: Transport, options: StartOptions, scale: FeatureScale, sites: Sequence[str]
) -> None:
    """Tell sites that have lost it what the run is."""
    for order in (_describe(network, run, options), _measure(run, scale)):
        for site, answer in transport.ask(dict.fromkeys(sites, order), options.deadline):
            if isinstance(answer, Record) and answer.kind == Refusal.KIND:
                run.note("refused", site=site, text=printable(answer.meta.get("text")))


def _describe(network: Network, run: Run, options: StartOptions) -> Record:
    return Describe(run.name, run_terms(network.task, options.coding, options.local, run.token)).record()


def _measure(run: Run, scale: FeatureScale) -> Record:
    return Measure(run.name, **vars(scale), moments=True).record()


def _ask_all(
    run: Run,
    transport: Transport,
    options: StartOptions,
    sites: Sequence[str],
    order: Record,
    read: Callable[[Record], M],
) -> list[M] | None:
    """One good answer of every site, however long it takes; a site that says no ends the run. None: stopped."""
    out: dict[str, M] = {}
    while not run.stopping:
        left = [site for site in sites if site not in out]
        for site, answer in transport.ask(dict.fromkeys(left, order), options.deadline):
            try:
                if isinstance(answer, MessageError):
                    raise answer
                if answer.kind == Refusal.KIND:
                    raise NetworkError(f"{site} refused: {printable(Refusal.from_record(answer).text)}")
                out[site] = read(answer)
            except MessageError as error:  # it is asked again; who looks sees which site holds the run up
                run.note("refused", site=site, text=printable(error))
        if len(out) == len(sites):
            return [out[site] for site in sites]
        wait_for(run, ", ".join(s for s in sites if s not in out), transport.present())
    return None


def _settings(
    run: Run, options: StartOptions, sites: Sequence[str], measured: list[Measurement], weights: Floats, dim: int
) -> tuple[RunSettings, dict[str, Any]]:
    """The settings, by hand or from a plan; and what is kept of the plan."""
    chosen: dict[str, Any] = asdict(options) | {"name": run.name, "epsilon": None}
    kept: dict[str, Any] = {"plan": "as asked for", "rate": None, "epsilon": options.epsilon}
    if options.epsilon is not None:
        if all(m.A is not None for m in measured):
            plan = plan_from_moments(measured, weights, options.epsilon, options.method, options.local)
        else:
            plan = plan_from_scalars(measured, weights, options.epsilon, options.method, dim, local=options.local)
        chosen |= {"step_size": plan.step_size, "local_steps": plan.local_steps, "rounds": plan.rounds}
        kept |= {"plan": plan.sentence, "rate": plan.rate}
    return RunSettings(**chosen, sites=tuple(sites), weights=tuple(weights.tolist())), kept
