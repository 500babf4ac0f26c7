"""Take it with you: the Python lines, the command, the picture and the data of what the page shows."""

from __future__ import annotations

import csv
import json
import math
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .. import checks, figures
from ..engine.paths import round_paths
from ..figures.labels import method_name
from ..files import replacing
from ..results.recipe import versions
from . import answers
from .answers import SHOWN, Curve, Question
from .error_figure import BAND
from .page_problem import call
from .page_settings import METHODS, PageSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")
DATA = (".csv", ".nc")
COLUMNS = ("communications", "samples", "bytes", "mse", "squared_bias", "variance")
SEEDS = ("simulated_mean", "simulated_low", "simulated_high")


def script(s: PageSettings, files: Sequence[str] = (), simulated: bool = False, predicted: bool = True) -> str:
    """The Python lines that draw the picture of the error; predicted : whether there is a bias to be predicted."""
    m = s.methods()
    made = ", ".join(f"fl.{_method(a)}" for a in m)
    more = _start(s) + ("" if s.scale == "linear" else ", record=record")
    lines = ["import fedlsa as fl", "", f"p = {call(s, tuple(files))}", f"methods = [{made}]"]
    if s.scale != "linear":
        lines.append(f"record = {s.record()}")
    seeds = f"runs = fl.simulate_grid(p, methods, rounds={s.rounds}, seeds={s.seeds}{_sampling(s)}{more})"
    look = "".join(f", {k}={v!r}" for k, v in (("x", s.x), ("scale", s.scale)) if v != getattr(PageSettings(), k))
    if s.sampling == "markov":  # seeds alone
        return "\n".join([*lines, seeds, f"figure = fl.figures.error_curves(runs{look})", *_save("error.png")])
    lines.append(f"curves = [fl.theory.exact(p, m, rounds={s.rounds}{more}) for m in methods]")
    drawn = "curves"
    if predicted:
        lines.append(f"bias = fl.theory.bias(p, {s.step_size!r}, {s.local_steps})")
        drawn += ", bias=[bias @ bias, 0, 0]"
    if simulated:
        lines.append(seeds)
        drawn += ", runs=runs"
    return "\n".join([*lines, f"figure = fl.figures.exact_curves({drawn}{look})", *_save("error.png")])


def agents_script(s: PageSettings, files: Sequence[str] = ()) -> str:
    """The Python lines that draw where the agents go."""
    made = ", ".join(f"fl.{_method(a)}" for a in s.methods()[:2])
    return "\n".join(
        [
            "import fedlsa as fl",
            "from fedlsa.engine.paths import round_paths",
            "",
            f"p = {call(s, tuple(files))}",
            f"paths = [round_paths(p, m, rounds={min(s.rounds, SHOWN)}{_start(s)}) for m in ({made})]",
            f"figure = fl.figures.agent_paths(*paths, round={min(s.round, s.rounds)})",
            *_save("agents.png"),
        ]
    )


def command(
    s: PageSettings, files: Sequence[str] = (), simulated: bool = False, save: str = "error.png", agents: bool = False
) -> str:
    """The command that writes the same picture; save : the file, whose ending decides what is written."""
    named = [word for f in files if s.problem == "files" for word in ("--file", Path(f).name)]
    more = (["--simulated"] if simulated else []) + (["--agents"] if agents else [])
    return shlex.join(["fedlsa", "explore", *([s.address()] if s.address() else []), *named, "--save", save, *more])


def _method(a: Any) -> str:
    own = getattr(a, "probability", None) or a.local_steps
    return f"{type(a).__name__}({a.step_size!r}, {own!r})"


def _sampling(s: PageSettings) -> str:
    return "" if s.sampling == "iid" else f", sampling=fl.Markov(thin={s.thin})"


def _start(s: PageSettings) -> str:
    """Fits start at 0; elsewhere it is the default."""
    return ", theta_0=[0.0] * p.dim" if s.problem == "files" else ""


def _save(name: str) -> list[str]:
    return [f'fl.figures.save(figure, "{name}")']


def picture(s: PageSettings, curves: Mapping[str, Curve], runs: Sequence[xr.Dataset] = ()) -> Figure:
    """The picture of the error as matplotlib draws it, with the methods whose curves are there."""
    held = [curves[n] for n in METHODS if n in curves]
    only = [c.runs for c in held if c.runs is not None]
    if only:
        return figures.error_curves(only, x=s.x, scale=s.scale)
    bias = [c.bias for c in held]
    exact, seeds = [c.exact for c in held if c.exact is not None], _of(held, runs)
    return figures.exact_curves(exact, bias=bias, runs=seeds or None, x=s.x, scale=s.scale)


def _of(held: Sequence[Curve], runs: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """The runs of the methods whose curves are there: others may still be on their way, or have failed."""
    named = {method_name(r): r for r in runs}
    return [named[c.method] for c in held if c.method in named]


def agents_picture(q: Question, round: int) -> Figure:
    """Where the agents go in one round, as matplotlib draws it."""
    p, rounds = q.problem(), min(q.settings.rounds, SHOWN)
    paths = [round_paths(p, m, rounds=rounds, theta_0=q.start()) for m in q.settings.methods()[:2]]
    return figures.agent_paths(*paths, round=min(round, rounds))


def data(curves: Mapping[str, Curve], runs: Sequence[xr.Dataset], made_by: str) -> xr.Dataset:
    """What the picture shows, over (method, round); attributes say how to make it again."""
    held = [curves[n] for n in METHODS if n in curves]
    simulated = _of(held, runs) or [c.runs for c in held if c.runs is not None]
    first = held[0].exact if held[0].exact is not None else held[0].runs
    assert first is not None
    made: dict[str, Any] = {}
    if held[0].exact is not None:
        exact = [c.exact for c in held if c.exact is not None]
        made = {k: (("method", "round"), np.stack([e[k].values for e in exact])) for k in COLUMNS}
        made["predicted_squared_bias"] = ("method", np.array([c.bias for c in held]))
    if simulated:
        errors = [r["squared_error"].values for r in simulated]
        made["simulated_mean"] = ("method", "round"), np.stack([e.mean(axis=0) for e in errors])
        for name, share in zip(SEEDS[1:], BAND, strict=True):
            made[name] = ("method", "round"), np.stack([np.quantile(e, share, axis=0) for e in errors])
    attrs = {"command": made_by, "versions": json.dumps(versions())}
    return xr.Dataset(made, {"method": [c.method for c in held], "round": first["round"].values}, attrs)


def write(path: Path, s: PageSettings, files: Sequence[str], curves: Mapping[str, Curve], runs: Sequence[Any]) -> None:
    """The picture or its data, by the ending of the path."""
    made_by = command(s, files, bool(runs), path.name)
    kind = checks.choice(f"the suffix of {str(path)!r}", path.suffix.lower(), (*PICTURES, *DATA))
    if kind in PICTURES:
        figures.save(picture(s, curves, runs), path, command=made_by)
        return
    found = data(curves, runs, made_by)
    with replacing(path, "the data") as part:
        if kind == ".nc":
            found.to_netcdf(part, engine="h5netcdf")
        else:
            _write_csv(found, part)


def write_agents(path: Path, q: Question, s: PageSettings) -> None:
    """The picture of where the agents go, in the round of the settings."""
    figures.save(agents_picture(q, s.round), path, command=command(s, q.files, save=path.name, agents=True))


def as_bytes(name: str, make: Callable[[Path], None]) -> bytes:
    """What `make` writes to a file of that name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        make(path)
        return path.read_bytes()


def _write_csv(found: xr.Dataset, path: Path) -> None:
    over = [str(k) for k, v in found.data_vars.items() if v.dims == ("method", "round")]
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(f"# {found.attrs['command']}\n")
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["method", "round", *over, "predicted_squared_bias"])
        bias = found["predicted_squared_bias"].values if "predicted_squared_bias" in found else None
        for i, method in enumerate(found["method"].values):
            known = "" if bias is None or math.isnan(bias[i]) else repr(float(bias[i]))
            for j, t in enumerate(found["round"].values):
                rows.writerow([method, int(t), *(repr(float(found[k].values[i, j])) for k in over), known])


def save_all(
    s: PageSettings, files: tuple[str, ...], paths: Sequence[Path], simulated: bool = False, agents: bool = False
) -> None:
    """Compute here what the picture shows and write each file; agents : where they go, instead of the error."""
    for path in paths:
        kinds = PICTURES if agents else (*PICTURES, *DATA)
        checks.choice(f"the suffix of {str(path)!r}", path.suffix.lower(), kinds)
    q = Question.of(s, files)
    if agents:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_agents(path, q, s)
        return
    curves = {name: answers.curve(q, name) for name in METHODS}
    runs = answers.simulations(q) if simulated and s.sampling == "iid" else []
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, s, files, curves, runs)
