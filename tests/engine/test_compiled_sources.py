"""Compiled code on disk is never older than its sources: cached functions know all files that they are made of."""

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.engine import compiled, local

ROOT = Path(fl.__file__).parent
TEXTS = {p.relative_to(ROOT): p.read_text() for p in ROOT.rglob("*.py")}
COMPILED = {
    path for path, text in TEXTS.items() if re.search(r"^(import|from) numba|import kernel$", text, re.MULTILINE)
}
COMPILED -= {Path("kernel_cache.py")}  # which compiles nothing of its own


@cache
def tree(path):
    return ast.parse(TEXTS[path])


def names_in(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


@cache
def imported(path):
    """name -> the module of this package from which it is imported, for relative imports."""
    out = {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            home = path.parents[node.level - 1] / Path(*node.module.split(".")).with_suffix(".py")
            out |= {alias.asname or alias.name: home for alias in node.names}
    return out


@cache
def functions(path):
    return {n.name: n for n in tree(path).body if isinstance(n, ast.FunctionDef)}


def reached(path, name, seen=None):
    """Every (file, function) that a function calls, itself included, as far as names tell."""
    seen = set() if seen is None else seen
    node = functions(path).get(name)
    if (path, name) in seen or node is None:
        return seen
    seen.add((path, name))
    overloads = [f for f in functions(path).values() if any(name in names_in(d) for d in f.decorator_list)]
    for used in set().union(*(names_in(f) for f in [node, *overloads])) | {f.name for f in overloads}:
        reached(path, used, seen)
        home = imported(path).get(used)
        if home in TEXTS:
            reached(home, used, seen)
    return seen


def cached():
    """(file, function) of every function that is cached on disk."""
    for path in sorted(COMPILED):
        for name, node in functions(path).items():
            if any("kernel" in names_in(d) for d in node.decorator_list):
                yield pytest.param(path, name, id=f"{path}:{name}")


def kernels():
    """(file, function) of every function that makes a kernel of the compiled engine."""
    for path in sorted(COMPILED):
        for name, node in functions(path).items():
            if "compiled" in names_in(node.body[-1]) and name != "compiled":
                yield path, name


@pytest.mark.parametrize(("path", "name"), list(cached()))
def test_a_cached_function_that_calls_other_files_knows_their_digest(path, name):
    others = {p for p, _ in reached(path, name)} & COMPILED - {path}
    listed = {Path("engine") / f for f in compiled.FILES}
    scalar = path.name == "random.py"  # its vectors are used by the kernel alone
    if others and not scalar:
        assert others <= listed
        assert functions(path)[name].args.args[-1].arg == "sources"


@pytest.mark.parametrize(("path", "name"), [pytest.param(*kernel, id=kernel[1]) for kernel in kernels()])
def test_a_kernel_closes_over_the_digest_of_all_files_that_it_is_made_of(path, name):
    """Numba puts what a function closes over into the key of its cache."""
    others = {p for p, _ in reached(path, name)} & COMPILED - {path}
    assert others <= {Path("engine") / f for f in compiled.FILES}
    assert Path("engine/addresses.py") in others
    (inner,) = (n for n in ast.walk(functions(path)[name]) if isinstance(n, ast.FunctionDef) and n.name != name)
    assert ast.unparse(functions(path)[name].body[-1]) == f"return compiled({inner.name})"
    assert "sources" in names_in(inner)


def test_the_digest_changes_with_each_file_and_is_part_of_the_key_of_every_signature():
    for name in compiled.FILES:
        assert compiled.digest((name,)) != compiled.digest(())
    assert len({compiled.digest((name,)) for name in compiled.FILES}) == len(compiled.FILES)
    rows = local.Rows(np.ones((3, 2)), np.ones((3, 2)), np.ones(3), 0.0, local.alias_slots(3))
    rows(np.zeros(2), np.zeros(2), 0.1, 1, 0, 0, 0)
    (signature, *_) = local._on_rows.signatures
    assert compiled.SOURCES in str(signature[-1])
    assert local._on_rows.py_func.__defaults__ == (compiled.SOURCES,)
    assert compiled.digest() == compiled.SOURCES
