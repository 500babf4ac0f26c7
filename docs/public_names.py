"""Which names of a package the reference shows: those that it imports under their own name, `from .x import y as y`."""

from typing import Any

import griffe


class PublicNames(griffe.Extension):
    """Packages of fedlsa write their public names once, as imports, and have no list of them beside that."""

    def on_module_members(self, *, mod: griffe.Module, **rest: Any) -> None:
        """Make exports of a package's imports."""
        if mod.is_init_module and mod.exports is None:
            names = (name for name, member in mod.members.items() if member.is_alias and not name.startswith("_"))
            mod.exports = [name for name in names if mod.imports.get(name, "").rpartition(".")[2] == name]
