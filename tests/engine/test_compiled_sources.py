"""Compiled code on disk is never older than its sources: cached functions know all files that they are made of."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from numba import njit, types

import fedlsa as fl
from fedlsa import kernel_cache

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
                yield pytest.param(path, name, id=f"{path}:{name}")


@pytest.mark.parametrize(("path", "name"), [*cached(), *kernels()])
def test_all_files_that_a_cached_function_is_made_of_are_part_of_its_key(path, name):
    others = {p for p, _ in reached(path, name)} & COMPILED - {path}
    assert others <= {Path("engine") / f for f in kernel_cache.CALLED}


def test_the_list_of_kernels_is_not_empty():
    assert {"driver", "server", "rank_one_steps"} <= {kernel.values[1] for kernel in kernels()}
    assert {"participants", "_fill_slots", "_on_rows"} <= {function.values[1] for function in cached()}


def test_the_digest_changes_with_each_file_and_is_part_of_every_key(monkeypatch):
    digests = {kernel_cache.digest((name,)) for name in kernel_cache.CALLED}
    assert len(digests) == len(kernel_cache.CALLED)
    kernel, of_gpu = kernel_cache.kernel()(lambda x: 2 * x), kernel_cache.cached_on_gpu(njit(lambda x: 2 * x))
    for cache_of in (kernel._cache, of_gpu._cache):
        signature = (types.int64,), kernel.targetctx.codegen()
        assert cache_of._index_key(*signature)[-1] == kernel_cache.digest()
        with monkeypatch.context() as m:
            m.setattr(kernel_cache, "digest", lambda: "of other sources")
            assert cache_of._index_key(*signature)[-1] == "of other sources"
