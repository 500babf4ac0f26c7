"""Take it with you: the Python lines, the command, the picture and the data of what the page shows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks, engine, figures, results
from ..figures.lines import method_name
from ..files import write as write_file
from ..results.recipe import versions
from . import answers
from .answers import SHOWN, WALKED, Curve, Question
from .page_settings import METHODS, SETTINGS, PageSettings, call
from .scene_data import BAND, Curves

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")
DATA = (".csv", ".nc")
FILES = (*(f"error{kind}" for kind in (*PICTURES, *DATA)), *(f"agents{kind}" for kind in PICTURES))
COLUMNS = ("communications", "samples", "bytes", "mse", "start", "drift", "noise")


def script(q: Question, simulated: bool = False, predicted: bool = True) -> str:
    """The Python lines that draw the picture of the error; predicted : whether there is a bias to be predicted."""
    s = q.page
    lines, more = [f"methods = [{_methods(q)}]"], ""
    if s.scale != "linear":
        lines.append(f"record = {s.record()}")
        more += ", record=record"
    sampling = "" if s.sampling == "iid" else f", sampling=fl.Markov(thin={s.thin})"
    seeds = f"runs = fl.simulate_grid(p, methods, rounds={s.rounds}, seeds={s.seeds}{sampling}{more})"
    look = "".join(f", {k}={getattr(s, k)!r}" for k in ("x", "scale") if getattr(s, k) != SETTINGS[k].default)
    if s.sampling == "markov":  # seeds alone
        return _drawn(q, [*lines, seeds], f"error_curves(runs{look})", "error.png")
    lines.append(f"curves = [fl.theory.exact(p, m, rounds={s.rounds}{more}) for m in methods]")
    drawn = "curves"
    if predicted:
        lines.append(f"bias = fl.theory.bias(p, {s.step_size!r}, {s.local_steps})")
        drawn += f", bias=[bias @ bias{', 0' * (len(s.shown()) - 1)}]"
    if simulated:
        lines.append(seeds)
        drawn += ", runs=runs"
    return _drawn(q, lines, f"exact_curves({drawn}{look}, parts=True)", "error.png")


def lines(q: Question, known: Curves) -> dict[str, str]:
    """The Python lines and the commands of both pictures, without simulated seeds and with them."""
    predicted = any(curve.bias > 0 for curve in known.by_method.values())
    return {
        "error": script(q, False, predicted), "error_command": command(q),
        "seeds": script(q, True, predicted), "seeds_command": command(q, True),
        "agents": agents_script(q), "agents_command": command(q, save="agents.png", agents=True),
    }  # fmt: skip


def copy(q: Question) -> str:
    """A script of one's own that makes both pictures."""
    predicted = q.page.sampling == "iid" and answers.curve(q, "FedLSA").bias > 0
    error, agents = script(q, predicted=predicted).split("\n"), agents_script(q).split("\n")
    return "\n".join(
        [
            f'"""The pictures of the explorer, made by `{command(q)}`: change what you like."""', "",
            agents[1], "", *error, "", *agents[4:], "",
        ]
    )  # fmt: skip


def agents_script(q: Question) -> str:
    rounds, shown = _saved(q.page)
    paths = f"paths = [round_paths(p, m, rounds={rounds}) for m in ({_methods(q, 2)})]"
    drawn = f"agent_paths(*paths, round={shown})"
    return _drawn(q, [paths], drawn, "agents.png", "from fedlsa.engine.paths import round_paths")


def _saved(s: PageSettings) -> tuple[int, int]:
    """How many rounds are saved, and the one whose inside is shown: that of the cursor, as far as agents are seen."""
    rounds = min(s.rounds, max(SHOWN, min(s.round, WALKED)))
    return rounds, min(max(s.round, 1), rounds)


def _drawn(q: Question, lines: Sequence[str], figure: str, name: str, *imports: str) -> str:
    """Lines about the problem p, with those that make it before them and those that draw and save after them."""
    problem = f"p = {call(q.page, q.files)}"
    save = [f"figure = fl.figures.{figure}", f'fl.figures.save(figure, "{name}")']
    return "\n".join(["import fedlsa as fl", *imports, "", problem, *lines, *save])


def _methods(q: Question, count: int = len(METHODS) + 1) -> str:
    chosen: list[Any] = q.page.methods(len(q.files))[:count]
    rates = [getattr(a, "probability", None) or a.local_steps for a in chosen[: len(METHODS)]]
    short = [f"fl.{type(a).__name__}({a.step_size!r}, {r!r})" for a, r in zip(chosen, rates, strict=False)]
    return ", ".join([*short, *(re.sub(r"\b(?=[A-Z]\w*\()", "fl.", repr(a)) for a in chosen[len(METHODS) :])])


def command(q: Question, simulated: bool = False, save: str = "error.png", agents: bool = False) -> str:
    """The command that writes the same picture; save : the file, whose ending decides what is written."""
    address = q.page.address()
    named = [word for file in q.files for word in ("--file", Path(file).name)]
    more = ["--simulated"] * simulated + ["--agents"] * agents
    return shlex.join(["fedlsa", "explore", *([address] if address else []), *named, "--save", save, *more])


def _parts(
    curves: Mapping[str, Curve], runs: Sequence[xr.Dataset]
) -> tuple[list[Curve], list[xr.Dataset], list[xr.Dataset]]:
    """Curves that are there, those of them that are exact, and their seeds: others may be on their way, or failed."""
    shown = [curves[n] for n in dict.fromkeys((*METHODS, *curves)) if n in curves]
    seeds = {method_name(r): r for r in runs} | {c.method: c.runs for c in shown if c.runs is not None}
    exact = [c.exact for c in shown]
    return shown, [e for e in exact if e is not None], [seeds[c.method] for c in shown if c.method in seeds]


def picture(s: PageSettings, curves: Mapping[str, Curve], runs: Sequence[xr.Dataset] = ()) -> Figure:
    """The picture of the error as matplotlib draws it, with the methods whose curves are there."""
    shown, exact, seeds = _parts(curves, runs)
    if not exact:
        return figures.error_curves(seeds, x=s.x, scale=s.scale)
    levels = [c.bias for c in shown]
    return figures.exact_curves(exact, bias=levels, runs=seeds or None, x=s.x, scale=s.scale, parts=True)


def data(curves: Mapping[str, Curve], runs: Sequence[xr.Dataset], made_by: str) -> xr.Dataset:
    """What the picture shows, over (method, round); attributes say how to make it again."""
    shown, exact, seeds = _parts(curves, runs)
    over = ("method", "rounds")
    values: dict[str, Any] = {}
    if exact:
        values = {k: (over, np.stack([e[k].values for e in exact])) for k in COLUMNS}
        values["predicted_drift"] = ("method", np.array([c.bias for c in shown]))
    if seeds:
        errors = [r["squared_error"].values for r in seeds]
        values["simulated_mean"] = over, np.stack([e.mean(axis=0) for e in errors])
        for name, share in zip(("simulated_low", "simulated_high"), BAND, strict=True):
            values[name] = over, np.stack([np.quantile(e, share, axis=0) for e in errors])
    labels = {"method": [c.method for c in shown], "rounds": (exact or seeds)[0]["rounds"].values}
    import xarray as xr

    return xr.Dataset(values, labels, {"command": made_by, "versions": json.dumps(versions())})


def write(path: Path, q: Question, curves: Mapping[str, Curve], runs: Sequence[xr.Dataset]) -> None:
    """The picture or its data, by the ending of the path."""
    made_by = command(q, bool(runs), path.name)
    if path.suffix.lower() in PICTURES:
        figures.save(picture(q.page, curves, runs), path, command=made_by)
        return
    table = data(curves, runs, made_by)
    if path.suffix.lower() == ".nc":
        results.result_files.write(table, path)
    else:
        rows = table.astype(float).to_dataframe(["method", "rounds"]).to_csv(na_rep="nan", lineterminator="\n")
        write_file(path, f"# {made_by}\n{rows}".encode("utf-8", "surrogateescape"), "the data")


def write_agents(path: Path, q: Question) -> None:
    """The picture of where the agents go, in the round of the settings."""
    rounds, shown = _saved(q.page)
    paths = [engine.paths.round_paths(q.problem(), m, rounds=rounds) for m in q.page.methods()[:2]]
    figure = figures.agent_paths(*paths, round=shown)
    figures.save(figure, path, command=command(q, save=path.name, agents=True))


def writers(
    q: Question, paths: Sequence[Path], simulated: bool = False, agents: bool = False
) -> dict[Path, Callable[[Path], None]]:
    """Compute here what the picture shows; what writes each file. agents : where they go, instead of the error."""
    for path in paths:
        checks.path("save", path, PICTURES if agents else (*PICTURES, *DATA))
    if agents:
        return dict.fromkeys(paths, partial(write_agents, q=q))
    curves = {name: answers.curve(q, name) for name in q.page.shown()}
    runs = answers.simulations(q) if simulated and q.page.sampling == "iid" else []
    return dict.fromkeys(paths, partial(write, q=q, curves=curves, runs=runs))
