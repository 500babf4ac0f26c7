"""What is settled with all sites before the first round: names, weights, the run's coordinates, and a plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from ...checks import Floats
from ...errors import NetworkError
from ...fit.rows.columns import Columns
from ...fit.tasks import checked_weight
from ..protocol.agreed_design import AgreedDesign, common_design, look_alikes
from ..protocol.messages import Description, Measure, Measurement, Standardise, Sums
from ..protocol.pooled import PlanNumbers, plan_numbers
from ..protocol.records import printable
from ..protocol.ring import STATISTICS, Limbs, add, from_share, to_floats
from ..protocol.run_settings import RunSettings
from ..protocol.server_state import ServerState
from ..site.facts import coefficient_names
from ..site.site_data import scale_from_json, scale_to_json
from .budget import noise_sentence
from .inquiry import Inquiry
from .run_plan import allowed, one_shot, plan_from_moments, plan_from_scalars, scale_from, weights_of

Agreement = dict[str, Any]  # terms.json
CAPPED = (
    "no site counts for more than {:.3g}: not all rows count the same, and this is not pooled least squares "
    "(--max-weight)"
)


def agree(with_: Inquiry) -> tuple[ServerState, Agreement] | None:
    """Hear all sites, choose coordinates and settings, and store them; None if the run was stopped meanwhile."""
    sites, run, task, options = with_.network.sites, with_.run, with_.network.task, with_.options
    while (missing := sorted({*sites} - {*with_.transport.present()}, key=sites.index)) and not run.stopping:
        with_.wait_for(", ".join(missing))
    if run.stopping:
        return None
    described = with_.ask_all(with_.describe, Description.from_record)
    if described is None:
        return None
    design = common_design([AgreedDesign.from_text(said.design) for said in described], sites)
    names = list(coefficient_names(task, Columns(design.columns, (), "", levels=design.levels)))
    for text in look_alikes(design)[:10]:
        run.note("levels", text=text)
    rows, weight = [said.rows for said in described], checked_weight(task, options.weight)
    weights = weights_of(rows, weight, options.max_weight)
    sums = None
    if task.scaled:
        order = Standardise(run.name, **_everybody(sites, weights), design=design.text()).record()
        answers = with_.ask_all(lambda site: order, Sums.from_record)
        if answers is None:
            return None
        sums = _total([answer.share for answer in answers])
    scale = scale_from(sums, task, names, sites)
    terms: Agreement = {
        "names": names,
        "design": design.text(),
        "scale": scale_to_json(scale),
        "rows": dict(zip(sites, rows, strict=True)),
        "weights": weights.tolist(),
    }
    coordinates = measure(with_, terms).record()
    measured = with_.ask_all(lambda site: coordinates, partial(Measurement.from_record, dim=scale.dim))
    if measured is None:
        return None
    numbers = plan_numbers(to_floats(_total([answer.share for answer in measured]), STATISTICS.unit))
    try:
        settings, plan = _settings(with_, measured, numbers, weights, scale.dim)
    except (ValueError, ArithmeticError) as error:
        raise NetworkError(f"no plan follows from what the sites say: {printable(error, 500)}") from error
    terms |= plan
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
    if weight == "samples" and (weights < np.array(rows) / sum(rows) * (1 - 1e-9)).any():
        run.note("weights", text=CAPPED.format(weights.max()))
    return state, terms


def measure(with_: Inquiry, terms: Agreement) -> Measure:
    """The order that tells a site the run's coordinates."""
    everybody = _everybody(with_.network.sites, np.array(terms["weights"]))
    coordinates = vars(scale_from_json(terms["scale"]))
    return Measure(with_.run.name, **everybody, design=terms["design"], **coordinates, moments=True)


def _everybody(sites: Sequence[str], weights: Floats) -> dict[str, Any]:
    """What an order says of a sum over all sites."""
    return {"sites": json.dumps(list(sites)), "weights": weights}


def _total(shares: Sequence[Limbs]) -> list[int]:
    """The integers that the shares of all sites hold together."""
    if len({share.shape for share in shares}) > 1 or shares[0].shape[1] != STATISTICS.limbs:
        raise NetworkError("the sites' sums must have one length; they have different ones")
    return from_share(add(shares))


def _settings(
    with_: Inquiry, measured: list[Measurement], numbers: PlanNumbers, weights: Floats, dim: int
) -> tuple[RunSettings, Agreement]:
    """The settings, by hand or from a plan; and what is kept of the plan."""
    options = with_.options
    values: dict[str, Any] = asdict(options) | {"name": with_.run.name, "epsilon": None}
    values["weight"] = checked_weight(with_.network.task, options.weight)
    kept: Agreement = {"plan": "as asked for", "rate": None, "epsilon": options.epsilon}
    if options.epsilon is not None:
        if all(m.A is not None for m in measured):
            plan = plan_from_moments(measured, numbers, weights, options.epsilon, options.method, options.local)
        else:
            plan = plan_from_scalars(numbers, options.epsilon, options.method, dim, local=options.local)
            eta, H = allowed(plan.step_size, plan.local_steps, measured)
            if (eta, H) != (plan.step_size, plan.local_steps):
                said = f"{plan.sentence} Sites allow no larger steps than {eta:.3g}, {H:,} a round."
                plan = replace(plan, step_size=eta, local_steps=H, sentence=said)
        values |= {"step_size": plan.step_size, "local_steps": plan.local_steps, "rounds": plan.rounds}
        kept |= {"plan": plan.sentence, "rate": plan.rate, "curve": plan.curve}
    if with_.network.task.standardise and numbers.a > 0:
        values["reach"] = max(1.0, 1 / numbers.a)  # as plans have it (run_plan.py)
    settings = RunSettings(**values, sites=with_.network.sites, weights=tuple(weights.tolist()))
    if noise := noise_sentence(settings, min(m.rows for m in measured), dim, options.epsilon):
        kept["plan"] = f"{kept['plan'].rstrip('.')}. {noise}"
    return settings, kept
