"""Golden numbers of fedlsa itself: curves, limits, bounds, plans, fits, bits of runs and refusals as they are today.

    python tests/golden/own_numbers.py                  writes those that are new into own_numbers.json
    python tests/golden/own_numbers.py --replace NAME   and anew those whose name begins with NAME; prints each change
    python -m pytest -p no:cacheprovider tests/golden/test_own_numbers.py

A number changes only with a line in CHANGELOG.md that says why the old one was wrong.

The cases stand in own_cases.py, and calls that are refused in refused.txt. An entry is named by its group, its problem
and the call. Texts, integers and truth values must be equal. A list of numbers is compared one by one, each relative to
itself. Of a list of rows, each row is a vector (coefficients, a row of a covariance, the means of a whole curve) and is
compared relative to its largest entry. All agree to 1e-11 on any machine: problems whose own tables' rounding moves a
number by more are left out. Runs on the processor are compared by their bits, which the kernel promises, from tables
and starts that no library has rounded. Only public names are used.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # the gallery's, where this is run as a script
from own_cases import GROUPS, fields

import fedlsa as fl

NUMBERS = Path(__file__).with_name("own_numbers.json")
RULE = "A number changes only with a line in CHANGELOG.md that says why the old one was wrong."
TOLERANCE = 1e-11


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Entries in the form in which they are kept."""
    if dataclasses.is_dataclass(value) or isinstance(value, dict):
        for key, inner in (value if isinstance(value, dict) else fields(value)).items():
            yield from flat(f"{name} / {key}", inner)
    else:
        array = np.asarray(value)
        rows = isinstance(value, np.ndarray) and value.ndim
        yield name, array.reshape(-1, array.shape[-1]).tolist() if rows else array.tolist()


def compute(group: str) -> dict[str, Any]:
    """The entries of a group, as the code has them now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.errors.FedLSAWarning)
        return {key: inner for name, value in GROUPS[group]() for key, inner in flat(name, value)}


def stored() -> dict[str, dict[str, Any]]:
    return json.loads(NUMBERS.read_text(encoding="utf-8"))["groups"] if NUMBERS.exists() else {}


def count(value: Any) -> int:
    return sum(map(count, value)) if isinstance(value, list) else 1


def difference(old: Any, new: Any) -> float:
    """The largest relative difference of two entries; infinite where they are not of one kind."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        vectors = bool(old) and isinstance(old[0], list) and np.shape(old) == np.shape(new) and np.isfinite(old).all()
        if not vectors:
            return max(map(difference, old, new), default=0.0)
        gap, size = np.abs(np.subtract(new, old)).max(axis=1), np.abs(old).max(axis=1)
        return float(np.divide(gap, size, out=np.where(gap == 0, 0.0, np.inf), where=size > 0).max())
    if isinstance(old, float) and isinstance(new, float) and old and math.isfinite(old) and not math.isnan(new):
        return abs(new - old) / abs(old)
    return 0.0 if type(old) is type(new) and (old == new or (old != old and new != new)) else math.inf


def changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    """What changed, came or went, by name: stored, now, relative difference."""
    found = {}
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new:
            found[name] = "new" if name in new else "gone"
        elif not (gap := difference(old[name], new[name])) <= TOLERANCE:
            found[name] = f"stored {old[name]!r:.300}, now {new[name]!r:.300}, relative difference {gap:.3g}"
    return found


def write(replaced: tuple[str, ...]) -> None:
    """Write what is new, and anew what is to be replaced; print what changed, and what did but was not asked for."""
    before, text = stored(), []
    for group in GROUPS:
        old, new = before.get(group, {}), compute(group)
        kept = {n: old[n] for n in old if not f"{group} / {n}".startswith(replaced or ("\n",))}
        for name, change in changes(old, new).items():
            if old and (change == "new" or name not in kept):
                print(f"{group} / {name}: {change}")
            elif old:
                print(f"LEFT AS IT WAS {group} / {name}: {change}")
        entries = new | kept
        lines = [f"   {json.dumps(n)}: {json.dumps(v, separators=(',', ':'))}" for n, v in entries.items()]
        text.append(f"  {json.dumps(group)}: {{\n" + ",\n".join(lines) + "\n  }")
        print(f"{sum(map(count, entries.values())):6,} {group}")
    made = {name: version(name) for name in ("numpy", "scipy", "numba")}
    head = {"rule": RULE, "command": "python tests/golden/own_numbers.py", "made with": made}
    text = json.dumps(head)[1:-1] + ',\n "groups": {\n' + ",\n".join(text)
    NUMBERS.write_text("{" + text + "\n }\n}\n", encoding="utf-8")


if __name__ == "__main__":
    reader = argparse.ArgumentParser(description="Write the golden numbers that are new.")
    reader.add_argument(
        "--replace", action="append", default=[], metavar="NAME", help="also those that begin with NAME"
    )
    write(tuple(reader.parse_args().replace))
