"""Public names that are loaded when they are first asked for: a program waits only for what it uses.

A package writes its public names once, as imports for type checkers and editors, and they become lazy:

    if TYPE_CHECKING:
        from . import errors as errors
        from .estimate import fit as fit

    load_lazily(__name__)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package that imports the module of a public name, or a module of its own, when that is asked for."""

    _modules: Mapping[str, str | None]  # of each public name: its module; None where it is a module itself

    def __getattr__(self, name: str) -> Any:
        source = self.__dict__["_modules"].get(name)
        path, missing = f"{self.__name__}.{source or name}", f"module {self.__name__!r} has no attribute {name!r}"
        if not name.isidentifier():
            raise AttributeError(missing)
        try:
            module = import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            raise AttributeError(missing) from None
        value = getattr(module, name) if source else module
        setattr(self, name, value)  # asked for once
        return value

    def __dir__(self) -> list[str]:
        return self.__dict__["__all__"]  # what users call, not modules and helpers

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return import_module, (self.__name__,)


def load_lazily(package: str, needs: Mapping[str, str] | None = None) -> None:
    """Have what a package imports `if TYPE_CHECKING` loaded when it is first asked for, and make it its `__all__`.

    needs : names that need a library which may not be installed; without it they are not listed
    """
    module = sys.modules[package]
    source = module.__loader__.get_source(package)  # type: ignore[union-attr]
    blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for body in blocks for node in body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module for node in imports for alias in node.names}
    absent = {name for name, library in (needs or {}).items() if not _is_installed(library)}
    module.__dict__.update(_modules=modules, __all__=sorted(modules.keys() - absent))
    module.__class__ = LazyPackage


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ImportError:  # from a finder of somebody's own, which refuses it
        return False
