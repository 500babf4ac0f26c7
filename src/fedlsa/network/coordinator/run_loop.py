"""A run from its first question to its last message, over any transport that carries records to sites and back.

What is to be settled first, agreement.py settles; then rounds, each stored before the next; then all get the estimate.
A coordinator that was killed begins again where the stored files say: it gives out the round that was open again, and
sites that had answered answer the same.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from ...errors import MessageError
from ..folder.config import Network
from ..protocol.messages import Refusal
from ..protocol.privacy import promise
from ..protocol.records import Record
from ..protocol.run_settings import StartOptions
from ..protocol.server import accept, close_round, drift_norm, estimated_error, finish, finished, open_round
from ..protocol.server_state import DOWN_BYTES, UP_BYTES, ServerState
from ..site.orders import scale_from_json
from .agreement import Transport, agree, introduce, wait_for
from .run_plan import error_left
from .runs import Run

FINISH_DEADLINE = 20.0  # seconds in which sites may take the last message


def complete_run(network: Network, run: Run, transport: Transport) -> None:
    """Carry a run on from where its folder says it is, to its end."""
    options = run.options()
    state, terms = run.load(), run.read("terms.json")
    if state is None or terms is None:
        agreed = agree(network, run, transport, options)
        if agreed is None:
            _end(run, {"experiment": run.name, "over": "it was stopped before its first round"})
            return
        state, terms = agreed
    else:
        run.note("resumed", round=state.opened, averages=state.averages)
    uninformed: set[str] = set()  # sites that do not know the run (a new disk): they are told before the next round
    while (over := _over(run, state, terms)) is None:
        if uninformed:
            introduce(network, run, transport, options, scale_from_json(terms["scale"]), sorted(uninformed))
            uninformed.clear()
        state = _round(run, transport, options, state, terms, uninformed)
        run.save(state)
    last = {site: message.record() for site, message in finish(state, json.dumps(terms["names"])).items()}
    told = [site for site, answer in transport.ask(last, FINISH_DEADLINE) if isinstance(answer, Record)]
    _end(run, _outcome(run, state, terms, over) | {"told": sorted(told)})


def _end(run: Run, result: dict[str, Any]) -> None:
    run.note("finished", text=result["over"])
    run.write("result.json", result)


def _error(state: ServerState, terms: dict[str, Any]) -> float:
    """How far theta is from where it goes, about: by the plan's rate, or by how movements shrink."""
    return estimated_error(state) if terms["rate"] is None else error_left(state.movement.tolist(), terms["rate"])


def _over(run: Run, state: ServerState, terms: dict[str, Any]) -> str | None:
    """Why the run is over, or None."""
    if run.stopping:
        return "it was stopped"
    if terms["rate"] is not None and _error(state, terms) <= terms["epsilon"]:
        return f"movements say that the error is at most {terms['epsilon']:g}"
    return finished(state)


def _round(
    run: Run,
    transport: Transport,
    options: StartOptions,
    state: ServerState,
    terms: dict[str, Any],
    uninformed: set[str],
) -> ServerState:
    """One round: open it, collect, close it. Sites that say that they do not know the run are added to uninformed."""
    need = state.settings.least(len(state.settings.sites))
    while len(here := transport.present()) < need and not run.stopping:
        wait_for(run, f"{need} sites", here)
    if run.stopping:
        return state
    began = time.monotonic()
    if state.opened % state.settings.patience:  # who is gone and connected is asked again, but not in every round
        here = tuple(s for s in here if not state.gone[state.settings.sites.index(s)]) or here
    state, orders = open_round(state, here)
    for site, answer in transport.ask({site: order.record() for site, order in orders.items()}, options.deadline):
        if isinstance(answer, MessageError):
            run.note("refused", round=state.opened, site=site, text=str(answer))
            continue
        state, reason = accept(state, site, answer)
        if reason is not None:
            run.note("refused", round=state.opened, site=site, text=reason)
            if answer.kind == Refusal.KIND and answer.meta.get("reason") == "data":
                uninformed.add(site)
    state, closed = close_round(state)
    error = _error(state, terms)
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
        moved={site: state.traffic[c, [UP_BYTES, DOWN_BYTES]].tolist() for c, site in enumerate(state.settings.sites)},
        seconds=round(time.monotonic() - began, 3),
    )
    return state


def _outcome(run: Run, state: ServerState, terms: dict[str, Any], over: str) -> dict[str, Any]:
    """What result.json holds: theta, coefficients on the original scale, what was moved."""
    T, t = scale_from_json(terms["scale"]).original()
    out: dict[str, Any] = {
        "experiment": run.name,
        "over": over,
        "names": terms["names"],
        "coefficients": (T @ state.theta + t).tolist(),
        "theta": state.theta.tolist(),
        "scale": terms["scale"],
        "rows": terms["rows"],
        "averages": state.averages,
        "rounds_opened": state.opened,
        "sum_of_xi": float(np.linalg.norm(state.present_weights @ state.xi)),
        "drift": drift_norm(state),
        "traffic": dict(zip(state.settings.sites, state.traffic.tolist(), strict=True)),
        "traffic_columns": ["messages down", "bytes down", "messages up", "bytes up"],
        "refused": dict(zip(state.settings.sites, state.refused.tolist(), strict=True)),
        "settings": json.loads(state.settings.text()),
    }
    noise = run.options().noise
    if noise is not None:
        out["privacy"] = promise(noise, state.opened)
    if "one_shot" in terms:
        out["one_shot"] = (T @ np.array(terms["one_shot"]) + t).tolist()
    return out
