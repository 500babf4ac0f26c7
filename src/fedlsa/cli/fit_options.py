"""From the text of the options of `fedlsa fit` to the arguments of the library, and the options that all fits share."""

from __future__ import annotations

import ast
import glob
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, SiteDataError
from ..figures.matplotlib_figures import checked_path
from ..fit.problem import MEMORY
from ..problems import features as maps
from . import options

RUN, ERRORS, OUTPUT = "Run", "Error bars", "Output"
UNITS = {"": 1, "b": 1} | {f"{k}b": 1000**i for i, k in enumerate("kmgt", 1)}
UNITS |= {f"{k}ib": 1024**i for i, k in enumerate("kmgt", 1)}


# of every run on sites' data, here and on a network
Method = Annotated[str, typer.Option(help="fedlsa, scafflsa or scaffnew.", rich_help_panel=RUN)]
ByHand = Annotated[
    float | None,
    typer.Option(
        help="Instead of --epsilon, with --local-steps and --rounds: the run by hand.",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Communications.", show_default=False, rich_help_panel=RUN)]
Weight = Annotated[
    str, typer.Option(help="sites: each counts the same; samples: each row counts the same.", rich_help_panel=RUN)
]
Seed = Annotated[int, typer.Option(help="Of the rows that steps draw.", rich_help_panel=RUN)]


@dataclass(frozen=True)
class Request:
    """What all fits are asked: arguments of fl.fit by name, and what to show and to keep."""

    arguments: dict[str, Any]
    level: float
    out: Path | None
    plot: Path | None
    quiet: bool


def request(
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Distance (RMSE, in the run's coordinates) from the data's own solution that the run may keep; a plan "
            "follows from it. By default no combination of coefficients is off by a tenth of its standard error.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    method: Method = "scafflsa",
    step_size: ByHand = None,
    local_steps: Annotated[
        int | None,
        typer.Option(help="Steps of a site between communications.", show_default=False, rich_help_panel=RUN),
    ] = None,
    rounds: Rounds = None,
    max_samples: Annotated[
        float | None,
        typer.Option(
            help="Most steps of a site. By default 4 times the fewest that reach epsilon.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    weight: Weight = "sites",
    local: Annotated[
        str,
        typer.Option(
            help="What a step uses: rows at random, the log in its order, the site's means, or auto.",
            rich_help_panel=RUN,
        ),
    ] = "auto",
    seed: Seed = 0,
    memory: Annotated[
        str | None,
        typer.Option(
            help="For rows; files that need more are read again, and steps use means. Such as 500MB or 8GB; by "
            f"default {MEMORY / 2**30:g} GiB.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Of confidence intervals.", rich_help_panel=ERRORS)] = 0.95,
    lag: Annotated[
        int | None,
        typer.Option(
            help="How many rows apart scores may be correlated. By default 0 for a regression; chosen for values.",
            show_default=False,
            rich_help_panel=ERRORS,
        ),
    ] = None,
    uncentred: Annotated[
        bool,
        typer.Option(
            "--uncentred", help="Score covariances about 0 (HC0), not about each site's mean.", rich_help_panel=ERRORS
        ),
    ] = False,
    bootstrap: Annotated[
        int | None,
        typer.Option(
            help="Error bars from so many replicas of the run too.", show_default=False, rich_help_panel=ERRORS
        ),
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option("--baselines", help="Compare with protocols of one message per site.", rich_help_panel=OUTPUT),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Save the model: FILE.json, for fedlsa evaluate.", show_default=False, rich_help_panel=OUTPUT
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw coefficients and errors: .png, .pdf or .svg.", show_default=False, rich_help_panel=OUTPUT
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.", rich_help_panel=OUTPUT)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No bar and no tables.", rich_help_panel=OUTPUT)] = False,
) -> Request:
    """The options that all fits share, checked as far as possible before any work."""
    targets = []
    if out is not None:
        checks.choice(f"the suffix of {str(out)!r}", out.suffix.lower(), (".json",))
        targets.append(("--out", out))
    if plot is not None:
        targets.append(("--plot", checked_path(plot)))
    options.refuse_to_overwrite([path for _, path in targets], force)
    for option, path in targets:
        options.check_folder(option, path)
    arguments: dict[str, Any] = {
        "epsilon": epsilon,
        "method": checks.choice("--method", method, ("fedlsa", "scafflsa", "scaffnew")),
        "step_size": step_size,
        "local_steps": local_steps,
        "rounds": rounds,
        "max_samples": None if max_samples is None else checks.real("--max-samples", max_samples, at_least=1),
        "weight": weight,
        "local": local,
        "lag": lag,
        "centred": not uncentred,
        "seed": checks.integer("--seed", seed),
        "bootstrap": bootstrap,
        "baselines": baselines,
    }
    if memory is not None:
        arguments["memory"] = size("--memory", memory)
    return Request(arguments, checks.real("--level", level, above=0, below=1), out, plot, quiet)


def site_files(given: list[Path]) -> list[Path]:
    """The files that are meant; patterns that the shell has left alone are looked up here."""
    out: list[Path] = []
    for path in given:
        if path.exists() or not glob.has_magic(str(path)):
            out.append(path)
            continue
        found = sorted(glob.glob(str(path)))
        if not found:
            raise SiteDataError(f"no file is called {str(path)!r}, and none matches it as a pattern")
        out += map(Path, found)
    for path in out:
        if not path.is_file():
            raise SiteDataError(f"{path} is a folder; name the files in it" if path.is_dir() else f"there is no {path}")
        if out.count(path) > 1:
            raise SiteDataError(f"{path} must be named once, for it is one site; got it {out.count(path)} times")
    return out


def names(option: str, given: list[str]) -> list[str]:
    """Columns, one option each or several with commas."""
    out = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not out:
        raise ArgumentError(f"{option} must name columns; got {', '.join(given)!r}")
    return out


def prefix_or_names(option: str, given: list[str]) -> str | list[str]:
    """A prefix if it is one word, a list if there are commas or several (a list of one ends in a comma)."""
    return given[0] if len(given) == 1 and "," not in given[0] else names(option, given)


def size(option: str, text: str) -> float:
    """Bytes, from a number with an optional unit."""
    found = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([a-z]*)\s*", text.lower())
    try:
        if found and float(found[1]) > 0:
            return float(found[1]) * UNITS[found[2]]
    except (KeyError, ValueError):
        pass
    raise ArgumentTypeError(f"{option} must be a size above 0 such as 500MB or 8GB; got {text!r}")


def feature_map(text: str) -> maps.FeatureMap:
    """The map that a call such as OneHot(64) or Fourier(low=[0, -1], high=[1, 1], order=3) makes."""
    such = "'OneHot(64)' or 'Fourier(low=0, high=1, order=3)'"
    rule = f"--features must be a map with its settings, such as {such}; got {text!r}"
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            checks.choice("--features", call.id, maps.MAPS)
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ArgumentTypeError(rule)
        values = [ast.literal_eval(a) for a in call.args]
        settings = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentTypeError(rule) from None
    kind = maps.MAPS[checks.choice("--features", call.func.id, maps.MAPS)]
    known = list(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    if len(values) > len(known):
        raise ArgumentError(f"--features {kind.__name__} must have at most {len(known)} settings; got {len(values)}")
    return maps.from_settings({"name": kind.__name__} | dict(zip(known, values, strict=False)) | settings)
