"""Words for figures and tables: what each result is called, what they share, and how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from ..algorithms import PowerStep
from ..problems.start import name_start
from ..results import recipe
from ..results.long_values import whole
from .lines import printed

SYMBOLS = {"step_size": "η", "local_steps": "H", "probability": "p", "agents": "N"}
UNSET = {"sampling": "i.i.d. sampling", "participation": "all agents", "average_after": "last iterate"}

MADE_FROM = {
    "from_observations": "tables of observations",
    "from_mdps": "decision processes",
    "from_chains": "Markov chains",
    "from_transitions": "logs of transitions",
}


def method_name(result: xr.Dataset) -> str:
    """FedLSA, SCAFFLSA, ...: the name without its parameters."""
    return str(result.attrs["method"]).partition("(")[0]


def names(results: Sequence[xr.Dataset]) -> list[str]:
    """A short name for each result: its method and, where a method occurs more than once, what sets it apart."""
    out = []
    for r in results:
        mine, kin = settings(r), [settings(k) for k in results if method_name(k) == method_name(r)]
        apart = [k for k in mine if any(other.get(k) != mine[k] for other in kin)]
        out.append(", ".join([method_name(r), *(_shown(k, mine[k]) for k in apart)]))
    return [f"{n} ({out[:i].count(n) + 1})" if out.count(n) > 1 else n for i, n in enumerate(out)]


def common_setting(results: Sequence[xr.Dataset]) -> str:
    """What all results share, in one line: N = 100, η = 0.1, ..."""
    each = [settings(r) for r in results]
    facts = {k: v for mine in each for k, v in mine.items()}
    shared = {k: v for k, v in facts.items() if all(other.get(k, v) == v for other in each)}
    shared = dict(sorted(shared.items(), key=lambda fact: isinstance(fact[1], str)))  # symbols first, then words
    return ",  ".join(_shown(k, v) for k, v in shared.items() if v is not None)


def settings(result: xr.Dataset) -> dict[str, Any]:
    """The facts of a result, or of an exact curve, that a reader compares, by name."""
    method = recipe.value(result.attrs["algorithm"])
    facts: dict[str, Any] = {"agents": result.attrs["agents"]}
    if "repr" in method:  # from outside fedlsa
        facts["method"] = result.attrs["method"]
    facts |= {k: v for k, v in method.items() if k not in ("name", "repr", "module", "qualname")}
    share, count = facts.pop("participation", None), facts.pop("participants", None)
    facts["participation"] = f"participation {share:g}" if share else f"{count} participants" if count else None
    facts["sampling"] = _sampling(whole(result.attrs["sampling"]))
    facts["problem"] = _problem(result)
    facts["start"] = start(result)
    return facts


def describe(results: Sequence[xr.Dataset]) -> str:
    """How the results were made, as JSON text for the metadata of a file; large arrays are left out."""
    runs = []
    for r in results:
        problem = recipe.value(r.attrs["problem"])
        problem = {"constructor": problem["constructor"], **_plain(problem.get("arguments", {}))}
        run = {"method": r.attrs["method"], "problem": problem, "sampling": recipe.value(r.attrs["sampling"])}
        runs.append(
            {**run, **_plain(recipe.value(r.attrs["arguments"])), "versions": recipe.value(r.attrs["versions"])}
        )
    return recipe.text(runs)


def _sampling(text: str) -> str | None:
    """From the JSON text of a result, or from an exact curve's label such as "Markov(thin=3)"; None for i.i.d."""
    if text.startswith("{"):
        sampling = recipe.value(text)
        kind, thin = str(sampling["name"]), int(sampling.get("thin", 1))
    else:
        kind, _, rest = text.partition("(thin=")
        thin = int(rest.rstrip(")").partition(",")[0] or 1)
    return None if kind == "IID" else f"{kind} sampling" + (f", every {_ordinal(thin)}" if thin > 1 else "")


def _ordinal(n: int) -> str:
    return f"{n}{'th' if n % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def start(result: xr.Dataset) -> str | None:
    """Where it starts, such as "start: θ⋆ + 1"; None for an exact curve of an older version, which does not say."""
    named = result.attrs.get("start")
    if named is None and "arguments" in result.attrs:
        named = name_start(recipe.stored_arguments(result)["theta_0"], result.attrs["theta_star"])
    return None if named is None else start_words(named)


def start_words(named: str) -> str:
    """The attribute `start` of a result, a curve or a plan, as figures write it."""
    return f"start: {named}".replace("theta_star", "θ⋆")


def _problem(result: xr.Dataset) -> str | None:
    if "problem" not in result.attrs:  # an exact curve
        return None
    problem = recipe.value(result.attrs["problem"])
    facts = {k: v for k, v in _plain(problem.get("arguments", {})).items() if k not in ("agents", "weights")}
    if problem["constructor"] == "garnet":
        kind = "heterogeneous" if facts["heterogeneous"] else "homogeneous"
        return f"{kind} Garnet, preset {facts['preset']}"
    made = str(problem["constructor"] or "")
    return MADE_FROM.get(made, made.replace("_", " ")) or None


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    def small(entry: Any) -> bool:
        if isinstance(entry, list):
            return len(entry) <= 1000 and all(map(small, entry))
        return not isinstance(entry, (np.ndarray, dict))

    return {k: v for k, v in arguments.items() if v is not None and small(v)}


def _grouped(value: Any) -> str:
    """Thin spaces between the thousands of long numbers."""
    return f"{value:,}".replace(",", "\u2009") if isinstance(value, int) and value >= 100_000 else str(value)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, PowerStep):
        return f"η = {value.eta_0:g}/(t+1)^{value.power:g}"
    if value is None:
        return UNSET.get(name, f"no {name.replace('_', ' ')}")
    if isinstance(value, str):
        return value
    if name in SYMBOLS:
        return f"{SYMBOLS[name]} = {printed(f'{value:g}') if isinstance(value, float) else _grouped(value)}"
    return f"{name.replace('_', ' ')} {value:g}"
