"""A run from its first question to its last message, over any post that carries records to sites and back.

Who is there is asked, then what the columns are (Describe), then three scalars in the common coordinates (Measure); a
plan follows; then rounds, each stored before the next; then the estimate goes to all (Finish). A coordinator that was
killed begins again where the stored files say. Clocks are in the post alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

import numpy as np

from ..checks import Floats
from ..errors import FedLSAError, MessageError, NetworkError
from ..fit.observe import Scale
from ..fit.summaries import Summary, scale_of, unscaled
from .coding import Coding
from .config import Network, StartOptions
from .messages import Describe, Description, Measure, Measurement, Refusal
from .records import Message, Record
from .runs import Run
from .server import accept, close_round, drift_norm, estimated_error, finish, finished, open_round
from .server_state import DOWN_BYTES, UP_BYTES, ServerState
from .settings import Settings
from .station import terms

WAIT = 1.0  # seconds between looks for sites that are not there
FAREWELL = 20.0  # seconds in which sites may take the last message

M = TypeVar("M", bound=Message)


class Post(Protocol):
    """What carries records (flower/server_app.py)."""

    def present(self) -> tuple[str, ...]:
        """The sites that can be reached."""
        ...

    def ask(self, orders: Mapping[str, Record], deadline: float) -> Iterator[tuple[str, Record | MessageError]]:
        """Send orders; what comes back within `deadline` seconds, once per site."""
        ...


def conduct(network: Network, run: Run, post: Post) -> None:
    """Carry a run on from where its folder says it is, to its end."""
    options = run.options()
    state, held = run.load(), run.read("terms.json")
    if state is None or held is None:
        agreed = _agree(network, run, post, options)
        if agreed is None:
            run.end(_outcome(run, None, None, "it was stopped before its first round"))
            run.note("finished", text="it was stopped before its first round")
            return
        state, held = agreed
    else:
        run.note("resumed", round=state.opened, averages=state.averages)
    scale = scale_from(held["scale"])
    strangers: set[str] = set()  # sites that do not know the run (a new disk): they are told before the next round
    while (over := _over(run, state)) is None:
        if strangers:
            _introduce(network, run, post, options, scale, sorted(strangers))
            strangers.clear()
        state = _round(run, post, options, state, strangers)
        run.save(state)
    names = json.dumps(held["names"])
    last = {site: message.record() for site, message in finish(state, names).items()}
    told = [site for site, answer in post.ask(last, FAREWELL) if isinstance(answer, Record)]
    run.end(_outcome(run, state, held, over) | {"told": sorted(told)})
    run.note("finished", text=over)


def _over(run: Run, state: ServerState) -> str | None:
    return "it was stopped" if run.stopping else finished(state)


def _round(run: Run, post: Post, options: StartOptions, state: ServerState, strangers: set[str]) -> ServerState:
    """One round: open it, collect, close it."""
    began, need = time.monotonic(), state.settings.min_sites
    while len(here := post.present()) < need and not run.stopping:
        _wait_for(run, f"{need} sites", here)
    if run.stopping:
        return state
    state, orders = open_round(state, here)
    for site, answer in post.ask({site: order.record() for site, order in orders.items()}, options.deadline):
        if isinstance(answer, MessageError):
            run.note("refused", round=state.opened, site=site, text=str(answer))
            continue
        state, reason = accept(state, site, answer)
        if reason is not None:
            run.note("refused", round=state.opened, site=site, text=reason)
            if answer.kind == Refusal.KIND and answer.meta.get("reason") == "data":
                strangers.add(site)
    state, closed = close_round(state)
    error = estimated_error(state)
    run.note(
        "round",
        round=closed.round,
        averages=state.averages,
        averaged=closed.averaged,
        sites=list(closed.sites),
        missing=list(closed.missing),
        gone=list(closed.gone),
        present=len(here),
        drift=drift_norm(state),
        error=error if np.isfinite(error) else None,
        up=int(state.traffic[:, UP_BYTES].sum()),
        down=int(state.traffic[:, DOWN_BYTES].sum()),
        seconds=round(time.monotonic() - began, 3),
    )
    return state


def _wait_for(run: Run, whom: str, here: Sequence[str]) -> None:
    last = [event for _, event in run.events()][-1:]
    text = f"waiting for {whom}; present: {', '.join(here) or 'none'}"
    if not last or last[0].get("text") != text:
        run.note("waiting", text=text, present=len(here))
    time.sleep(WAIT)


def _agree(network: Network, run: Run, post: Post, options: StartOptions) -> tuple[ServerState, dict[str, Any]] | None:
    """Hear all sites, choose coordinates and settings, and store them; None if the run was stopped meanwhile."""
    sites = network.sites
    while set(here := post.present()) < set(sites) and not run.stopping:
        _wait_for(run, ", ".join(s for s in sites if s not in here), here)
    coding = Coding(options.quantise, options.clip, options.noise)
    describe = Describe(run.name, terms(network.task, coding, options.local)).record()
    found = _all(run, post, options, dict.fromkeys(sites, describe), Description.from_record)
    if found is None:
        return None
    names = _same_names(found)
    rows = np.array([found[s].rows for s in sites], np.float64)
    weights = np.full(len(sites), 1 / len(sites)) if options.weight == "sites" else rows / rows.sum()
    scale = _coordinates(network, found, weights, names)
    measured = _all(run, post, options, {s: _measure(run, scale) for s in sites}, Measurement.from_record)
    if measured is None:
        return None
    settings, plan = _settings(run, options, network, [measured[s] for s in sites], weights, scale.dim)
    held = {
        "names": names,
        "scale": scale_text(scale),
        "rows": {s: found[s].rows for s in sites},
        "weights": weights.tolist(),
        **plan,
    }
    run.keep_terms(held)
    state = ServerState.start(settings, scale.dim)
    run.save(state)
    run.note("planned", text=plan["plan"], rounds=settings.rounds, dim=scale.dim, sites=list(sites))
    return state, held


def _all(
    run: Run, post: Post, options: StartOptions, orders: dict[str, Record], read: Callable[[Record], M]
) -> dict[str, M] | None:
    """One good answer of every site, however long it takes; a site that refuses ends the run. None: stopped."""
    out: dict[str, M] = {}
    while len(out) < len(orders):
        if run.stopping:
            return None
        left = {site: order for site, order in orders.items() if site not in out}
        for site, answer in post.ask(left, options.deadline):
            try:
                if isinstance(answer, MessageError):
                    raise answer
                if answer.kind == Refusal.KIND:
                    raise NetworkError(f"{site} refused: {Refusal.from_record(answer).text}")
                out[site] = read(answer)
            except MessageError as error:
                raise NetworkError(f"{site} sent an answer that cannot be used: {error}") from error
        if len(out) < len(orders):
            _wait_for(run, ", ".join(s for s in orders if s not in out), post.present())
    return out


def _introduce(
    network: Network, run: Run, post: Post, options: StartOptions, scale: Scale, sites: Sequence[str]
) -> None:
    """Tell sites that have lost it what the run is."""
    describe = Describe(
        run.name, terms(network.task, Coding(options.quantise, options.clip, options.noise), options.local)
    )
    for order in (describe.record(), _measure(run, scale)):
        for site, answer in post.ask(dict.fromkeys(sites, order), options.deadline):
            if isinstance(answer, Record) and answer.kind == Refusal.KIND:
                run.note("refused", site=site, text=str(answer.meta.get("text"))[:200])


def _measure(run: Run, scale: Scale) -> Record:
    return Measure(
        run.name, scale.centre, scale.spread, float(scale.y_centre), float(scale.y_spread), scale.intercept, True
    ).record()


def _same_names(found: Mapping[str, Description]) -> list[str]:
    every = {site: json.loads(d.names) for site, d in found.items()}
    first, names = next(iter(every.items()))
    for site, theirs in every.items():
        if theirs != names:
            raise NetworkError(f"sites must have the same coefficients; {first} has {names}, {site} has {theirs}")
    return [str(n) for n in names]


def _coordinates(network: Network, found: Mapping[str, Description], weights: Floats, names: list[str]) -> Scale:
    task = network.task
    features = names[: len(names) - task.intercept]
    if not task.standardise:
        return unscaled(len(features), task.intercept)
    parts = [Summary(d.rows, d.mean, d.scatter, d.largest) for d in (found[s] for s in network.sites)]
    return scale_of(task, parts, weights, features, list(network.sites))


def _settings(
    run: Run, options: StartOptions, network: Network, measured: list[Measurement], weights: Floats, dim: int
) -> tuple[Settings, dict[str, Any]]:
    """The settings, by hand or from a plan; and what the plan says."""
    N, more = len(network.sites), {}
    eta, H, rounds, stop = options.step_size, options.local_steps, options.rounds, None
    says = "as asked for"
    if options.epsilon is not None:
        from .planning import plan_from_moments, plan_from_scalars

        shared = all(m.A is not None for m in measured)
        plan = plan_from_moments if shared else plan_from_scalars
        planned = plan(measured, weights, options.epsilon, options.method, dim)
        eta, H, rounds, says = planned.step_size, planned.local_steps, planned.rounds, planned.sentence
        stop = planned.stop
    if eta is None or H is None or rounds is None:
        raise NetworkError("a run needs a step size, local steps and rounds")
    if all(m.A is not None and m.b is not None for m in measured):
        A = sum(w * m.A for w, m in zip(weights, measured, strict=True) if m.A is not None)
        b = sum(w * m.b for w, m in zip(weights, measured, strict=True) if m.b is not None)
        more["one_shot"] = np.linalg.solve(np.asarray(A), np.asarray(b)).tolist()
    length: dict[str, Any] = {"probability": 1 / H} if options.method == "scaffnew" else {"local_steps": H}
    settings = Settings(
        experiment=run.name,
        method=options.method,
        step_size=eta,
        **length,
        rounds=rounds,
        seed=options.seed,
        sites=network.sites,
        weights=tuple(weights.tolist()),
        participation=options.participants(N),
        min_sites=options.least(N),
        clip=options.clip,
        trim=options.trim,
        patience=options.patience,
        policy=options.policy,
        stop=stop,
    )
    return settings, {"plan": says, **more}


def _outcome(run: Run, state: ServerState | None, held: dict[str, Any] | None, over: str) -> dict[str, Any]:
    """What result.json holds: theta, coefficients on the original scale, what was moved."""
    out: dict[str, Any] = {"experiment": run.name, "over": over}
    if state is None or held is None:
        return out
    T, t = scale_from(held["scale"]).original()
    traffic = {site: row for site, row in zip(state.settings.sites, state.traffic.tolist(), strict=True)}
    out |= {
        "names": held["names"],
        "coefficients": (T @ state.theta + t).tolist(),
        "theta": state.theta.tolist(),
        "scale": held["scale"],
        "averages": state.averages,
        "rounds_opened": state.opened,
        "sum_of_xi": float(np.linalg.norm(state.present_weights @ state.xi)),
        "drift": drift_norm(state),
        "traffic": traffic,
        "traffic_columns": ["messages down", "bytes down", "messages up", "bytes up"],
        "settings": json.loads(state.settings.text()),
    }
    if "one_shot" in held:
        out["one_shot"] = (T @ np.array(held["one_shot"]) + t).tolist()
    return out


def scale_text(scale: Scale) -> dict[str, Any]:
    """A scale as JSON holds it, to the last bit."""
    return {k: np.asarray(v).tolist() for k, v in asdict(scale).items()}


def scale_from(held: Mapping[str, Any]) -> Scale:
    """The scale that `scale_text` wrote."""
    centre, spread = (np.array(held[k], np.float64) for k in ("centre", "spread"))
    return Scale(centre, spread, float(held["y_centre"]), float(held["y_spread"]), bool(held["intercept"]))


def expected(error: BaseException) -> bool:
    """Whether an error is about the run itself, so that trying again would not help."""
    return isinstance(error, FedLSAError)
