"""Which names of a package the reference shows: those that it imports under their own name, `from .x import y as y`."""

from typing import Any

import griffe


class PublicNames(griffe.Extension):
    """Packages of fedlsa write their public names once, as imports from within, and have no other list of them."""

    def on_module_members(self, *, mod: griffe.Module, **rest: Any) -> None:
        """Make exports of a package's imports."""
        if mod.is_init_module and not mod.exports:
            within = {name for name, path in mod.imports.items() if path.startswith(f"{mod.path}.")}
            names = [name for name, member in mod.members.items() if member.is_alias and name in within]
            mod.exports = [name for name in names if mod.imports[name].rpartition(".")[2] == name]
