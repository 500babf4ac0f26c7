"""What is settled with the sites before the first round: the columns, the run's coordinates, three scalars, a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ...checks import Floats
from ...errors import MessageError, NetworkError
from ...fit.observe import Scale
from ..folder.config import Network, StartOptions
from ..protocol.coding import Coding
from ..protocol.messages import Describe, Description, Measure, Measurement, Refusal
from ..protocol.records import Message, Record, printable
from ..protocol.server_state import ServerState
from ..protocol.settings import Settings
from ..site.station import scale_text, terms
from .planning import one_shot, plan_from_moments, plan_from_scalars, scale_from, weights_of
from .post import Post, wait_for
from .runs import Run

M = TypeVar("M", bound=Message)


def agree(network: Network, run: Run, post: Post, options: StartOptions) -> tuple[ServerState, dict[str, Any]] | None:
    """Hear all sites, choose coordinates and settings, and store them; None if the run was stopped meanwhile."""
    sites = network.sites
    while (missing := [s for s in sites if s not in (here := post.present())]) and not run.stopping:
        wait_for(run, ", ".join(missing), here)
    order = _describe(network, run, options)
    found = _all(run, post, options, dict.fromkeys(sites, order), Description.from_record)
    if found is None:
        return None
    described = [found[s] for s in sites]
    weights = weights_of(described, options.weight)
    scale = scale_from(described, network.task, weights, sites)
    names = [str(n) for n in json.loads(described[0].names)]
    heard = partial(Measurement.from_record, dim=scale.dim)
    answers = _all(run, post, options, dict.fromkeys(sites, _measure(run, scale)), heard)
    if answers is None:
        return None
    measured = [answers[s] for s in sites]
    try:
        settings, plan = _settings(run, options, network, measured, weights, scale.dim)
    except (ValueError, ArithmeticError) as error:
        raise NetworkError(f"no plan follows from what the sites say: {printable(error)}") from error
    held = {"names": names, "scale": scale_text(scale), "rows": {s: found[s].rows for s in sites}, **plan}
    if all(m.A is not None for m in measured):
        held["one_shot"] = one_shot(measured, weights, names).tolist()
        T, t = scale.original()
        shot = ", ".join(f"{n} {v:.6g}" for n, v in zip(names, T @ held["one_shot"] + t, strict=True))
        run.note("one shot", text=printable(f"from the moments that all sites share, without a round: {shot}", 2000))
    run.keep_terms(held)
    state = ServerState.start(settings, scale.dim)
    run.save(state)
    run.note("planned", text=plan["plan"], rounds=settings.rounds, dim=scale.dim, sites=list(sites))
    return state, held


def introduce(
    network: Network, run: Run, post: Post, options: StartOptions, scale: Scale, sites: Sequence[str]
) -> None:
    """Tell sites that have lost it what the run is."""
    for order in (_describe(network, run, options), _measure(run, scale)):
        for site, answer in post.ask(dict.fromkeys(sites, order), options.deadline):
            if isinstance(answer, Record) and answer.kind == Refusal.KIND:
                run.note("refused", site=site, text=printable(answer.meta.get("text")))


def _describe(network: Network, run: Run, options: StartOptions) -> Record:
    coding = Coding(options.quantise, options.clip, options.noise)
    return Describe(run.name, terms(network.task, coding, options.local, run.token)).record()


def _measure(run: Run, scale: Scale) -> Record:
    return Measure(
        run.name, scale.centre, scale.spread, float(scale.y_centre), float(scale.y_spread), scale.intercept, True
    ).record()


def _all(
    run: Run, post: Post, options: StartOptions, orders: Mapping[str, Record], read: Callable[[Record], M]
) -> dict[str, M] | None:
    """One good answer of every site, however long it takes; a site that says no ends the run. None: stopped."""
    out: dict[str, M] = {}
    while not run.stopping:
        left = {site: order for site, order in orders.items() if site not in out}
        for site, answer in post.ask(left, options.deadline):
            try:
                if isinstance(answer, MessageError):
                    raise answer
                if answer.kind == Refusal.KIND:
                    raise NetworkError(f"{site} refused: {printable(Refusal.from_record(answer).text)}")
                out[site] = read(answer)
            except MessageError as error:  # it is asked again; who looks sees which site holds the run up
                run.note("refused", site=site, text=printable(error))
        if len(out) == len(orders):
            return out
        wait_for(run, ", ".join(s for s in orders if s not in out), post.present())
    return None


def _settings(
    run: Run, options: StartOptions, network: Network, measured: list[Measurement], weights: Floats, dim: int
) -> tuple[Settings, dict[str, Any]]:
    """The settings, by hand or from a plan; and what is kept of the plan."""
    eta, H, rounds = options.step_size, options.local_steps, options.rounds
    plan: dict[str, Any] = {"plan": "as asked for", "rate": None, "epsilon": options.epsilon}
    if options.epsilon is not None:
        if all(m.A is not None for m in measured):
            made = plan_from_moments(measured, weights, options.epsilon, options.method, options.local)
        else:
            made = plan_from_scalars(measured, weights, options.epsilon, options.method, dim, local=options.local)
        eta, H, rounds = made.step_size, made.local_steps, made.rounds
        plan |= {"plan": made.sentence, "rate": made.rate}
    if eta is None or H is None or rounds is None:
        raise NetworkError("a run needs a step size, local steps and rounds")
    length: dict[str, Any] = {"probability": 1 / H} if options.method == "scaffnew" else {"local_steps": H}
    N = len(network.sites)
    settings = Settings(
        experiment=run.name,
        method=options.method,
        step_size=eta,
        **length,
        rounds=rounds,
        seed=options.seed,
        sites=network.sites,
        weights=tuple(weights.tolist()),
        participation=options.taking_part(N),
        min_sites=options.least(N),
        clip=None if options.noise is not None else options.clip,  # noise makes honest replies longer than the clip
        trim=options.trim,
        patience=options.patience,
        policy=options.policy,
    )
    return settings, plan
