"""The shape of the source: imports point one way, files stay short, what is public is explained."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedlsa

SOURCE = Path(fedlsa.__file__).parent
ORDER = [
    "errors", "checks", "formatting", "frozen", "files", "problems", "sampling", "algorithms", "results", "theory",
    "engine", "figures", "experiments", "fit", "network", "explore", "cli",
]  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {
    ".".join(("fedlsa", *f.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): f for f in FILES
}


def room(module):
    """The part of fedlsa that a module belongs to; None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def imports(module):
    """Modules of fedlsa that a module imports, anywhere in its text."""
    path, out = MODULES[module], set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, base]).rstrip(".")
            names = {f"{base}.{alias.name}" for alias in node.names}
            out |= {n if n in MODULES else base for n in names}
    return {m for m in out if m in MODULES}


def imported_names(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_every_room_stands_in_the_order():
    assert {room(m) for m in MODULES} - {None} <= set(ORDER)


@pytest.mark.parametrize("module", [m for m in MODULES if room(m)])
def test_a_module_imports_only_what_stands_to_its_left(module):
    here = ORDER.index(room(module))
    against = {m for m in imports(module) if room(m) is not None and ORDER.index(room(m)) > here}
    assert not against
    if module != "fedlsa.cli" and not module.startswith("fedlsa.cli."):
        assert "fedlsa" not in imports(module)  # the front door is for users


def test_the_walk_over_imports_sees_what_is_there():
    assert {"fedlsa.engine.cpu_kernel", "fedlsa.problems", "fedlsa.engine.jobs"} <= imports("fedlsa.engine.cpu")
    assert "fedlsa.engine" in imports("fedlsa")


def test_no_imports_go_round_in_a_circle():
    waiting = {m: {i for i in imports(m) if i != m and not m.startswith(i + ".")} for m in MODULES}
    while waiting:
        ready = [m for m, needs in waiting.items() if not needs & waiting.keys()]
        assert ready, f"these import one another: {sorted(waiting)}"
        for m in ready:
            del waiting[m]


@pytest.mark.parametrize("path", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_source_files_are_short_begin_with_a_docstring_and_name_no_machine(path):
    text = path.read_text()
    assert len(text.splitlines()) < 300
    assert ast.get_docstring(ast.parse(text))
    roots = "|".join(("home", "root", "Users", "tmp", "work"))
    assert not re.search(rf"""["'\s](/({roots})\b|[A-Z]:\\)""", text)
    assert not {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"} & set(imported_names(path))


@pytest.mark.parametrize("module", MODULES)
def test_everything_public_has_a_docstring(module):
    loaded = importlib.import_module(module)
    for name in getattr(loaded, "__all__", ()):
        thing = getattr(loaded, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            own = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
            assert own, f"{module}.{name} lacks a docstring"
            assert not own.startswith(f"{name}("), f"{module}.{name} has the docstring that dataclass makes"


def test_figures_stand_at_the_front_door_and_matplotlib_waits_until_one_is_drawn():
    script = "import sys, fedlsa as fl; fl.figures.error_curves; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
    assert "figures" in fedlsa.__all__


def test_no_two_test_files_share_a_name():
    names = [f.name for f in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))  # pytest imports them by name and refuses the second
