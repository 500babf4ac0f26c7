"""From the text of options to the arguments of the library: what typer cannot parse by itself."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .. import checks
from ..algorithms import METHODS, Algorithm, PowerStep
from ..errors import ArgumentError, ArgumentTypeError, ResultFileError
from ..sampling import IID, Markov, Sampling

SAMPLINGS = ("iid", "markov")  # no problem of the command line is a log that could be replayed
SAME = (
    "agents", "states", "actions", "branching", "features", "discount", "perturbation", "preset", "step_size",
    "power", "local_steps", "probability", "participation", "participants", "projection", "average_after", "rounds",
    "seeds", "thin", "engine", "dtype", "threads", "record", "sampling", "epsilon", "samples",
    "max_samples", "trace", "target", "ridge", "state", "next_state", "reward", "terminated", "truncated", "importance",
    "weight", "local", "lag", "memory", "bootstrap", "level",
)  # fmt: skip
OPTIONS = {name: "--" + name.replace("_", "-") for name in SAME} | {"eta_0": "--step-size", "seed": "--problem-seed"}


def in_words_of_the_command(message: str) -> str:
    """An error of the library with its argument named as the option that set it: step_size -> --step-size."""
    named, must, rest = message.partition(" must ")
    words = re.split(r"(, | and )", named)
    if all(w in OPTIONS for w in words[::2]):
        named = "".join(OPTIONS.get(w, w) for w in words)
    return named + must + rest


def count_or_list(option: str, text: str) -> int | list[int]:
    """A count such as 10, or a list such as 3,5,8 (a list of one ends in a comma)."""
    rule = f"{option} must be a count such as 10 or a list such as 3,5,8; got {text!r}"
    try:
        if "," in text:
            return [int(part) for part in text.split(",") if part.strip()]
        return int(text)
    except ValueError:
        raise ArgumentTypeError(rule) from None


def share(text: str | None) -> float | None:
    """A share, written with a point or an exponent (0.3, 1.0): a plain integer might be meant as a count."""
    if text is None:
        return None
    try:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
            return float(text)
    except ValueError:
        pass
    rule = "--participation must be a share such as 0.3 or 1.0 (--participants is for a count)"
    raise ArgumentTypeError(f"{rule}; got {text!r}")


def check_methods(names: list[str]) -> None:
    """Known names, each once."""
    for name in names:
        checks.choice("--method", name, METHODS)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ArgumentError(f"--method must name each method once; got {twice[0]!r} {names.count(twice[0])} times")


def algorithms(
    names: list[str],
    step_size: float,
    power: float | None,
    local_steps: int,
    probability: float | None,
    participation: str | None,
    participants: int | None,
    projection: float | None,
    average_after: int | None,
) -> list[Algorithm]:
    """One method for each name, all with the same parameters; Scaffnew communicates as often as the others."""
    check_methods(names)
    if probability is not None and "scaffnew" not in names:
        raise ArgumentError(f"--probability is a parameter of scaffnew; got the methods {', '.join(names)}")
    checks.integer("--local-steps", local_steps, at_least=1)
    eta: float | PowerStep = step_size if power is None else PowerStep(step_size, power)
    options = {
        "participation": share(participation),
        "participants": participants,
        "projection": projection,
        "average_after": average_after,
    }
    own = {
        "fedlsa": {"local_steps": local_steps},
        "scafflsa": {"local_steps": local_steps},
        "scaffnew": {"probability": 1 / local_steps if probability is None else probability},
    }
    return [METHODS[name](step_size=eta, **own[name], **options) for name in names]  # type: ignore[arg-type]


def sampling(name: str, thin: int | None) -> Sampling:
    """The sampling of that name; only trajectories can be thinned."""
    kind = checks.choice("--sampling", name, SAMPLINGS)
    if kind == "iid":
        if thin is not None:
            raise ArgumentError(f"--thin needs --sampling markov; got --thin {thin} with iid")
        return IID()
    return Markov(thin=1 if thin is None else thin)


def result_paths(out: Path, names: list[str]) -> list[Path]:
    """A file per method: in the folder `out`, or `out` itself, with the method's name added if there are several."""
    if out.suffix == ".nc" and not out.is_dir():
        if len(names) == 1:
            return [out]
        return [out.with_name(f"{out.stem}-{name}.nc") for name in names]
    if out.suffix and not out.is_dir():
        raise ArgumentError(f"--out must be a file that ends in .nc or a folder; got {str(out)!r}")
    return [out / f"{name}.nc" for name in names]


def refuse_to_overwrite(paths: list[Path], force: bool) -> None:
    """Complain now, not after the run, about files that exist."""
    for path in paths:
        if path.exists() and not force:
            raise ArgumentError(f"{path} exists; --force replaces it")


def check_folder(option: str, path: Path) -> None:
    """Complain now, not after the work, about a folder that cannot be made or written to."""
    home = next(p for p in path.absolute().parents if p.exists())
    if not home.is_dir() or not os.access(home, os.W_OK):
        raise ResultFileError(f"{option} cannot write {path}: {home} is not a folder that can be written to")
