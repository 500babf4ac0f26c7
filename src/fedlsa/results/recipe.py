"""How a result was made, as JSON text, and back: what `fl.simulate(**fl.results.arguments(r))` needs for the same bits.

Arrays are written as {"array": base64 of their compressed little-endian bytes, "dtype", "shape"}. Problems made of the
rows of sites are only identified, by a digest, and must be passed again: a result is a thing to share, rows may not be.
So are problems whose arrays exceed `EMBED_LIMIT` bytes, and methods defined outside fedlsa.

xarray prints every attribute in full. A text or a list that is longer than `SHOWN` letters is therefore held in a tuple
or list that prints its beginning: a notebook shows a screen of a result, not megabytes of its problem. Both are copied,
pickled, compared and written to netCDF like any other attribute.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from .. import checks, problems
from ..algorithms import FAMILY, Algorithm, Noise, PowerLength, PowerStep, RandK, Rounding, Sign, TopK
from ..algorithms.sending import Exactly
from ..errors import ArgumentError, ArgumentTypeError
from ..problems import Problem
from ..problems.system import LABORATORY_START
from ..sampling import BUILT_IN, Sampling

if TYPE_CHECKING:
    import xarray as xr

EMBED_LIMIT = 32 * 2**20
SWEEP = "sweep"  # the attribute that makes a dataset a sweep
NEEDS = "run_again_needs"  # the attribute that says what is not in a result
VARIABLES = ("squared_error", "communications", "uploads", "samples", "diverged_at", "seed", "rounds")  # of any result
COSTS = ("communications", "uploads", "samples", "bytes", "rounds")
SAMPLE = 2**16  # bytes of an array that are compressed to see whether it is worth the time
_version = cache(version)  # it stands in a file, which takes milliseconds
_TEXTS: WeakKeyDictionary[Problem, str] = WeakKeyDictionary()  # problems do not change, and neither do their texts
SAMPLINGS = {kind.__name__: kind for kind in BUILT_IN}
SETTINGS: dict[str, Any] = {
    kind.__name__: kind for kind in (PowerStep, PowerLength, Exactly, RandK, Rounding, Noise, TopK, Sign)
}
SHOWN = 1000  # letters of an attribute that are printed; a result has about ten attributes
BEGINNING = 150  # of these, where there are more


def text(value: Any) -> str:
    """A nest of plain values, arrays and step-size rules as JSON text."""
    return json.dumps(_encode(value))


def value(text: str | LongText) -> Any:
    """The inverse of `text`, up to tuples, which come back as lists."""
    try:
        return json.loads(full_text(text), object_hook=_decode)
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"a recipe must be JSON text as results hold it; got {checks.show(text)}") from error


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, by name."""
    return {f.name: getattr(record, f.name) for f in fields(record)}


def versions() -> dict[str, str]:
    """The versions that a run depends on."""
    installed = {package: _version(package) for package in ("fedlsa", "numpy", "numba")}
    return {**installed, "python": platform.python_version()}


def problem_text(problem: Problem, *, with_data: bool = False) -> str:
    """The problem's recipe; where it is too large, or holds rows of sites, or there is none, a digest of its tables.

    with_data : write the recipe whatever it holds
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    known = None if with_data else _TEXTS.get(problem)  # in one go: of an equal problem that is about to go
    if known is not None:
        return known
    name = problem.recipe.get("constructor")
    if problem.recipe and (with_data or (name not in problems.DATA and _size(problem.recipe) <= EMBED_LIMIT)):
        found = text({"embedded": True, **problem.recipe})
    else:
        found = text({"embedded": False, "constructor": name, "digest": problem_digest(problem)})
    return found if with_data else _TEXTS.setdefault(problem, found)


def missing(stored_text: str | LongText) -> str | None:
    """What a result whose problem has this text cannot be run again without; None where it holds the problem."""
    if full_text(stored_text).startswith('{"embedded": true'):  # known without reading its arrays
        return None
    stored = value(stored_text)
    if stored["embedded"]:
        return None
    if stored["constructor"] in problems.DATA:
        what = "the function that draws" if stored["constructor"] == "stream" else "the rows of the sites"
        return f"{what} (fl.problems.{stored['constructor']}), which results do not hold"
    why = "which is too large to be held" if stored["constructor"] else "for which there is no recipe"
    return f"its problem, {why}"


def problem_digest(problem: Problem) -> str:
    """The sha256 of the tables themselves: equal for problems on which every run is the same."""
    digest = hashlib.sha256()
    for part in (problem.observations, problem.chain):
        for name, entry in fields_of(part).items() if part is not None else ():
            if entry is not None:
                digest.update(name.encode())
                _feed(digest, np.asarray(f"{entry.__module__}.{entry.__qualname__}" if callable(entry) else entry))
    for array in (problem.prob, problem.first, problem.assignment, problem.weights):
        _feed(digest, array)
    return digest.hexdigest()


def algorithm_record(algorithm: Algorithm) -> dict[str, Any]:
    """The method's name and fields; one from outside fedlsa is identified by its module and qualified name."""
    kind = type(algorithm)
    if FAMILY.get(kind.__name__.lower()) is kind:
        return {"name": kind.__name__, **fields_of(algorithm)}
    return {"module": kind.__module__, "qualname": kind.__qualname__, "repr": repr(algorithm)}


def sampling_record(sampling: Sampling) -> dict[str, Any]:
    """The name of a sampling and its fields; one from outside fedlsa has its module, too, and its text."""
    kind = type(sampling)
    if kind in BUILT_IN:
        return {"name": kind.__name__, **fields_of(sampling)}
    return {"name": kind.__name__, "module": kind.__module__, "qualname": kind.__qualname__, "repr": repr(sampling)}


def require_result(name: str, value: Any) -> None:
    """Refuse what is not a result made by `assemble`."""
    import xarray as xr

    if not isinstance(value, xr.Dataset):
        raise ArgumentTypeError(f"{name} must be a result of simulate, an xarray.Dataset; got {checks.show(value)}")
    if SWEEP in value.attrs:
        raise ArgumentError(f"{name} must be one result of simulate; got a sweep: fl.results.runs(...) takes it apart")
    attributes = ("problem", "algorithm", "sampling", "arguments", "method", "start")
    require_numbers(name, value, "a result of simulate", VARIABLES, attributes)
    for n in VARIABLES[:5]:
        wanted = ("seed",) if n == "diverged_at" else ("seed", "rounds")
        if value[n].dims != wanted:
            raise ArgumentError(f"{name} must be a result of simulate, with {n} over {wanted}; got {value[n].dims}")
        if n in ("communications", "diverged_at") and value[n].dtype.kind not in "iu":
            raise ArgumentTypeError(f"{name} must be a result of simulate, with integers in {n}; got {value[n].dtype}")


def require_numbers(
    name: str, value: xr.Dataset, what: str, variables: Sequence[str], attributes: Sequence[str]
) -> None:
    """Refuse a dataset without these variables of real numbers, or without these attributes."""
    lacks = [n for n in variables if n not in value] + [n for n in attributes if n not in value.attrs]
    if lacks:
        raise ArgumentError(f"{name} must be {what}; got a dataset without {', '.join(lacks)}")
    for n in variables:
        if value[n].dtype.kind not in "fiu" or not value[n].size:
            raise ArgumentTypeError(f"{name} must be {what}, with numbers in {n}; got {value[n].dtype}")
        if n in COSTS and not np.isfinite(value[n].values).all():
            raise ArgumentError(f"{name} must be {what}, with finite numbers in {n}; got some that are not")


def stored_arguments(dataset: xr.Dataset, problem: Any = None, sampling: Sampling | None = None) -> dict[str, Any]:
    """What `simulate`, or `sweep`, was called with, but for the problem and the method.

    A start that was not given is named by the attribute `start`. It is left out where it is also the problem's.
    sampling : that of the run, needed only where it is from outside fedlsa
    """
    record = dict(value(dataset.attrs["sampling"]))
    if "repr" not in record:
        made: Sampling = SAMPLINGS[record.pop("name")](**record)
    elif sampling is None or sampling_record(sampling) != record:
        raise ArgumentError(f"sampling must be passed, that of the run, {record['repr']}; got {checks.show(sampling)}")
    else:
        made = sampling
    if sampling is not None and sampling != made:
        raise ArgumentError(f"sampling must be the one this result was made with, {made}; got {sampling}")
    stored = {"sampling": made, **value(dataset.attrs["arguments"])}
    named = dataset.attrs.get("start")  # a sweep over problems has one for each, in its record
    usual = isinstance(problem, Problem) and problem.start_label() == named
    if stored.get("theta_0") is None and named is not None and not usual:
        solution = np.asarray(dataset.attrs["theta_star"], np.float64)
        stored["theta_0"] = solution + 1 if named == LABORATORY_START else np.zeros_like(solution)
    return stored


def stored_problem(stored_text: str | LongText, given: Any) -> Problem:
    """The problem of a text, or the one that is given in its place, which must be the same."""
    stored = value(stored_text)
    if given is not None:
        checks.instance("problem", given, Problem, "a fedlsa problem")
        same = problem_text(given) == stored_text or problem_digest(given) == (
            problem_digest(problems.from_recipe(stored)) if stored["embedded"] else stored["digest"]
        )
        if not same:
            raise ArgumentError("problem must be the one this result was made with; got a different one")
        return given
    lacks = missing(stored_text)
    if lacks:
        raise ArgumentError(f"problem must be passed, for a run needs {lacks}; got None")
    return problems.from_recipe(stored)


def _size(entry: Any) -> int:
    """Bytes of all arrays in a recipe."""
    if isinstance(entry, Mapping):
        entry = tuple(entry.values())
    return sum(map(_size, entry)) if isinstance(entry, (list, tuple)) else getattr(entry, "nbytes", 0)


def _encode(entry: Any) -> Any:
    if entry is None or isinstance(entry, (bool, int, float, str)):
        return entry
    if isinstance(entry, (np.bool_, np.integer, np.floating)):
        return entry.item()
    if isinstance(entry, np.ndarray) and entry.dtype.kind in "biuf":
        flat = _little(entry)
        raw = flat.tobytes()
        few = zlib.compress(raw[:SAMPLE], 1)
        level = 1 if len(few) < 0.8 * len(raw[:SAMPLE]) else 0  # random numbers shrink by 4%, in 50 ms per megabyte
        packed = base64.b64encode(zlib.compress(raw, level)).decode("ascii")
        return {"array": packed, "dtype": flat.dtype.str, "shape": list(entry.shape)}
    if isinstance(entry, Mapping):
        return {str(k): _encode(v) for k, v in entry.items()}
    if isinstance(entry, LongText):
        return entry.text
    if isinstance(entry, (list, tuple, range)):
        return [_encode(v) for v in entry]
    if type(entry) in SETTINGS.values():
        return {type(entry).__name__: _encode(fields_of(entry))}
    raise ArgumentTypeError(f"a recipe must hold numbers, strings, arrays and lists of them; got {checks.show(entry)}")


def _decode(entry: dict[str, Any]) -> Any:
    if set(entry) == {"array", "dtype", "shape"}:
        flat = np.frombuffer(zlib.decompress(base64.b64decode(entry["array"])), entry["dtype"])
        return flat.reshape(entry["shape"]).astype(flat.dtype.newbyteorder("="))
    name, *others = entry or [""]
    return SETTINGS[name](**entry[name]) if name in SETTINGS and not others else entry


def _little(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _feed(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(_little(array)).reshape(-1).view(np.uint8).data)


class LongText(tuple[str]):
    """A long text, whole in `text`; equal to any text of the same letters.

    Not a str: xarray prints all of one, and h5py does not write what is derived from it.
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        return self[0]

    def __repr__(self) -> str:
        return f"{self.text[:BEGINNING]}... ({len(self.text):,} letters: .text)"

    def __eq__(self, other: object) -> bool:
        return self.text == (other.text if isinstance(other, LongText) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)


class LongList(list[Any]):
    """A list of many numbers that prints the first of them."""

    def __repr__(self) -> str:
        beginning = ", ".join(map(str, self[:6]))[:BEGINNING]
        return f"[{beginning}, ... ({len(self):,} in all)]"


def abridged(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The same attributes, of which the long ones print short."""
    short: dict[type, Callable[[Any], Any]] = {str: lambda text: LongText([text]), list: LongList}
    return {
        name: short[type(value)](value) if type(value) in short and len(str(value)) > SHOWN else value
        for name, value in attributes.items()
    }


def full_text(text: Any) -> Any:
    """A text as it is, long or not."""
    return text.text if isinstance(text, LongText) else text
