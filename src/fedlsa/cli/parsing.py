"""From the text of options to the arguments of the library, and the files that a command will write."""

from __future__ import annotations

import ast
import glob
import html
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import checks, figures
from ..errors import ArgumentError, ArgumentTypeError, ResultFileError, SiteDataError
from ..figures.matplotlib_figures import SUFFIXES as PICTURES
from ..files import LINE_BREAKS, as_bytes
from ..problems import features as maps
from ..results.result_files import MAX_COMMAND
from ..sampling import IID, Markov, Sampling

SAMPLINGS = ("iid", "markov")  # no problem of the command line is a log that could be replayed
UNITS = {"": 1, "b": 1} | {f"{k}b": 1000**i for i, k in enumerate("kmgt", 1)}
UNITS |= {f"{k}ib": 1024**i for i, k in enumerate("kmgt", 1)}


def count_or_list(option: str, text: str) -> int | list[int]:
    """A count such as 10, or a list such as 3,5,8 (a list of one ends in a comma)."""
    rule = f"{option} must be a count such as 10 or a list such as 3,5,8; got {text!r}"
    try:
        if "," in text:
            return [int(part) for part in text.split(",") if part.strip()]
        return int(text)
    except ValueError:
        raise ArgumentTypeError(rule) from None


def several(option: str, given: list[str], kind: Callable[[str], Any], rule: str) -> list[Any]:
    """Numbers, one option each or several with commas, each once."""
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    try:
        out = [kind(word) for word in words]
    except ValueError:
        out = []
    if not out:
        raise ArgumentTypeError(f"{option} must be {rule}; got {','.join(given)!r}")
    twice = next((word for word, value in zip(words, out, strict=True) if out.count(value) > 1), None)
    if twice is not None:
        raise ArgumentError(f"{option} must name each value once; got {twice} again")
    return out


def reals(option: str, given: list[str]) -> list[float]:
    """Several numbers, one option each or with commas."""
    return several(option, given, float, "a number such as 0.1, or several such as 0.1,0.2")


def integers(option: str, given: list[str]) -> list[int]:
    """Several integers, one option each or with commas."""
    return several(option, given, int, "an integer such as 10, or several such as 10,100")


def share(option: str, text: str) -> float:
    """A share, written with a point or an exponent (0.3, 1.0): a plain integer might be meant as a count."""
    try:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
            return float(text)
    except ValueError:
        pass
    rule = f"{option} must be a share such as 0.3 or 1.0 (--participants is for a count)"
    raise ArgumentTypeError(f"{rule}; got {text!r}")


def make_sampling(name: str, thin: int | None) -> Sampling:
    """The sampling of that name; only trajectories can be thinned."""
    kind = checks.choice("--sampling", name, SAMPLINGS)
    if kind == "iid":
        if thin is not None:
            raise ArgumentError(f"--thin needs --sampling markov; got --thin {thin} with iid")
        return IID()
    return Markov(thin=1 if thin is None else thin)


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


def feature_map(option: str, given: list[str]) -> maps.FeatureMap:
    """The map that a call such as OneHot(64) or Fourier(low=[0, -1], high=[1, 1], order=3) makes."""
    text = ",".join(given)  # commas within a map are its own
    such = "'OneHot(64)' or 'Fourier(low=0, high=1, order=3)'"
    rule = f"{option} must be a map with its settings, such as {such}; got {text!r}"
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            checks.choice(option, call.id, maps.MAPS)
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ArgumentTypeError(rule)
        values = [ast.literal_eval(a) for a in call.args]
        settings = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentTypeError(rule) from None
    kind = maps.MAPS[checks.choice(option, call.func.id, maps.MAPS)]
    known = list(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    if len(values) > len(known):
        raise ArgumentError(f"{option} {kind.__name__} must have at most {len(known)} settings; got {len(values)}")
    return maps.from_settings({"name": kind.__name__} | dict(zip(known, values, strict=False)) | settings)


def site_files(given: list[Path]) -> list[Path]:
    """The files and folders that are meant; patterns that the shell has left alone are looked up here."""
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
        if not path.exists():
            raise SiteDataError(f"there is no {path}")
        if out.count(path) > 1:
            raise SiteDataError(f"{path} must be named once, for it is one site; got it {out.count(path)} times")
    return out


def result_paths(out: Path, names: list[str]) -> list[Path]:
    """A file per method: in the folder `out`, or `out` itself, with the method's name added if there are several."""
    if out.suffix == ".nc" and not out.is_dir():
        if len(names) == 1:
            return [out]
        return [out.with_name(f"{out.stem}-{name}.nc") for name in names]
    if out.suffix and not out.is_dir():
        raise ArgumentError(f"--out must be a file that ends in .nc or a folder; got {str(out)!r}")
    return [out / f"{name}.nc" for name in names]


def check_target(option: str, path: Path, force: bool = True, command: str = "") -> None:
    """Complain now, not after the work, about a file that exists or a folder that cannot be made or written to.

    A file that says that this very command made it may stand there: the command was killed before its end.
    """
    if not force and (path.is_file() or path.is_dir()) and not _made_by(path, command):
        raise ArgumentError(f"{path} exists; --force replaces it")
    home = next(p for p in path.absolute().parents if p.exists())
    if not home.is_dir() or not os.access(home, os.W_OK):
        raise ResultFileError(f"{option} cannot write {path}: {home} is not a folder that can be written to")


def _made_by(path: Path, command: str) -> bool:
    """Whether a file holds a command, as any of our formats writes it."""
    if not command or not path.is_file():
        return False
    content, known = path.read_bytes(), command[:MAX_COMMAND]
    texts = (known, LINE_BREAKS.sub(" ", known), html.escape(known, quote=False), json.dumps(known)[1:-1])
    codes = (("utf-8", "surrogateescape"), ("utf-16-be", "surrogatepass"))
    forms = {text.encode(*code) for text in texts for code in codes}
    forms |= {re.sub(rb"([\\()])", rb"\\\1", form) for form in forms}  # PDF
    return any(form in content for form in (*forms, known.encode("latin-1", "replace")))  # PNG


def target(
    option: str, path: Path | None, force: bool, command: str, suffixes: Sequence[str] = PICTURES
) -> Path | None:
    """The file that a command will write, checked now and not after the work."""
    if path is not None:
        check_target(option, checks.path(option, path, suffixes), force, command)
    return path


def write_picture(path: Path | None, draw: Callable[[], Any], command: str, *, force: bool) -> None:
    """Draw a figure only where it was asked for; it remembers the command that drew it."""
    write(path, lambda target: figures.save(draw(), target, command=command), force=force)


def write(path: Path | None, save: Callable[[Path], Any], *, force: bool) -> None:
    """Save something where it was asked for; without `force` no other content is ever replaced.

    Commands save before they print: where nobody reads, or a log's disk is full, nothing is lost.
    """
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if force or not path.is_file():
        save(path)
    elif as_bytes(path.name, save) != path.read_bytes():
        raise ResultFileError(f"{path} exists, and holds something else than this command gives; --force replaces it")


def tell_saved(*paths: Path | None) -> None:
    """Say what was saved."""
    for path in paths:
        if path is not None:
            print(f"saved {path}")
