"""The list of mutations cannot rot: every change can still be made, in one place, and its tests exist."""

import ast
import re

import pytest
from mutations import MUTATIONS
from run import ROOT, changed


def test_every_change_can_be_made_and_gives_another_program():
    assert len(MUTATIONS) >= 60
    assert len({(m.file, m.old, m.new) for m in MUTATIONS}) == len(MUTATIONS)
    for m in MUTATIONS:
        text = (ROOT / "src" / "fedlsa" / m.file).read_text(encoding="utf-8")
        ast.parse(changed(text, m))
        assert m.old.split() != m.new.split(), m


def test_every_named_test_exists():
    for test in {test for m in MUTATIONS for test in m.tests.split(" ")}:
        path, *name = re.sub(r"\[.*", "", test).split("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or f"\ndef {name[0]}(" in text, test


def test_a_change_that_fits_nowhere_or_in_two_places_is_refused():
    with pytest.raises(ValueError, match="0 times"):
        changed("a", MUTATIONS[0])
    with pytest.raises(ValueError, match="2 times"):
        changed(2 * MUTATIONS[0].old, MUTATIONS[0])
