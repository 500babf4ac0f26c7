"""Public names that are loaded when they are first asked for: a program waits only for what it uses.

    load_lazily(__name__, {"estimate": ("fit",), "tasks": ("Regression", "Value")})

Type checkers and editors read the same names from imports under `if TYPE_CHECKING:`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package that imports the module of a public name, or a module of its own, when that is asked for."""

    _homes: Mapping[str, str]  # of each public name: its module

    def __getattr__(self, name: str) -> Any:
        home = self.__dict__["_homes"].get(name, name)
        path, missing = f"{self.__name__}.{home}", f"module {self.__name__!r} has no attribute {name!r}"
        if not name.isidentifier():
            raise AttributeError(missing)
        try:
            module = import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            raise AttributeError(missing) from None
        value = getattr(module, name) if name in self._homes else module
        setattr(self, name, value)  # asked for once
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """What the import system does with a submodule that it has loaded must not hide a public name like it."""
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__dict__.get("__all__", self._homes))  # what users call, not modules and helpers

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return import_module, (self.__name__,)


def load_lazily(package: str, names: Mapping[str, Sequence[str]]) -> None:
    """Have the public names of a package loaded when they are first asked for; names : by module of the package."""
    module = sys.modules[package]
    module.__dict__["_homes"] = {name: home for home, several in names.items() for name in several}
    module.__class__ = LazyPackage
