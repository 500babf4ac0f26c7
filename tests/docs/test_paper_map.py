"""The theory map names functions, files and tests that exist, each label once, and leaves no row without an answer."""

from __future__ import annotations

import ast
import csv
import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import fedlsa
from fedlsa.mathml import ITEMS

ROOT = Path(__file__).parents[2]
with open(ROOT / "src" / "fedlsa" / "paper_map.csv", newline="", encoding="utf8") as file:
    HEADING, *LINES = csv.reader(file)


class Row(NamedTuple):
    section: str
    item: str
    label: str
    says: str
    function: str
    test: str


ROWS = [Row(*cells) for cells in LINES]
TEXT = "\n".join(" | ".join(row) for row in ROWS)
FUNCTIONS = sorted(set(re.findall(r"`((?:fl|fedlsa)\.[\w.]+)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(tests/[^`]+)`", TEXT)))


def resolve(name: str) -> object:
    """What a dotted name stands for. A function comes before the module of its name, as it does for a user."""
    found: object = fedlsa
    path = "fedlsa"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


def test_every_row_has_all_columns() -> None:
    assert HEADING == ["section", "item", "label", "what it says", "function", "test"]
    assert all(len(cells) == len(HEADING) for cells in LINES)
    assert len(ROWS) > 60  # the walk over the table sees what is there


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_the_map_exists(name: str) -> None:
    assert callable(resolve(name))


@pytest.mark.parametrize("named", TESTS)
def test_every_test_of_the_map_exists(named: str) -> None:
    file, _, function = named.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not function or function in defined


def test_no_label_occurs_twice() -> None:
    labels, items = [row.label for row in ROWS if row.label != "none"], [row.item for row in ROWS]
    assert sorted({label for label in labels if labels.count(label) > 1}) == []
    assert sorted({name for name in items if items.count(name) > 1}) == []


def test_items_have_the_names_that_the_library_gives_them() -> None:
    assert {row.label: row.item for row in ROWS if row.label != "none"} == ITEMS


def test_numbers_count_up_within_a_section_of_the_paper() -> None:
    """Theorems, lemmas, claims and corollaries share one counter; no number is left out."""
    counted: dict[str, list[int]] = {}
    for row in ROWS:
        kind, _, number = row.item.partition(" ")
        section, dot, last = number.rpartition(".")
        series = section if dot else kind + re.sub(r"\d+", "", number)
        counted.setdefault(series, []).append(int(re.sub(r"\D", "", last)))
    assert len(counted) > 10
    for series, numbers in counted.items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), series


def test_every_row_has_a_function_or_says_why_not() -> None:
    answered = re.compile(r"`(fl|fedlsa)\.[\w.]+`|^proof device|^not yet")
    assert [row.label for row in ROWS if not (row.label and row.says and answered.search(row.function))] == []


def test_every_row_has_a_test() -> None:
    assert [row.label for row in ROWS if "`tests/" not in row.test] == []


def test_every_entry_in_code_type_is_a_function_or_a_test() -> None:
    spoken = {entry for row in ROWS for entry in re.findall(r"`([^`]*)`", row.function + row.test)}
    assert sorted(spoken - set(FUNCTIONS) - set(TESTS)) == []
