"""The examples in the docstrings of public names run, and give what they say."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import fedlsa as fl

NAMES = [name for name in fl.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example_that_holds(name) -> None:
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(getattr(fl, name), name, module=False, globs={"fl": fl, "np": np})  # type: ignore[arg-type]
    assert example.examples, f"fl.{name} has no example"
    output: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=output.append)
    assert not output, "".join(output)
