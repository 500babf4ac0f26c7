"""The shape of the source: imports point one way, files stay short, what is public is explained."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import fedlsa

SOURCE = Path(fedlsa.__file__).parent
ORDER = [
    "lazy_names", "installation", "errors", "checks", "value_objects", "mathml", "kernel_cache",
    "files", "threads", "problems", "sampling", "algorithms", "results", "theory", "engine", "conformance", "control",
    "figures", "pages", "experiments", "fitting", "sklearn", "network", "explore", "cli",
]  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {
    ".".join(("fedlsa", *f.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): f for f in FILES
}


def room(module):
    """The part of fedlsa that a module belongs to; None for the package itself; `python -m fedlsa` is its command."""
    parts = module.split(".")
    return {"__main__": "cli"}.get(parts[1], parts[1]) if len(parts) > 1 else None


@cache
def syntax(path):
    return ast.parse(path.read_text())


@cache
def nodes(path):
    return list(ast.walk(syntax(path)))


@cache
def imports(module):
    """Modules of fedlsa that a module imports, anywhere in its text."""
    path, out = MODULES[module], set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes(path):
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
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_every_room_stands_in_the_order():
    assert {room(m) for m in MODULES} - {None} <= set(ORDER)


def test_a_module_imports_only_what_stands_to_its_left():
    place = {None: -1} | {name: i for i, name in enumerate(ORDER)}
    against = {(m, i) for m in MODULES if room(m) for i in imports(m) if place[room(i)] > place[room(m)]}
    assert not against
    # the package itself is for users
    assert [m for m in MODULES if room(m) not in (None, "cli") and "fedlsa" in imports(m)] == []


def test_the_walk_over_imports_sees_what_is_there():
    assert {"fedlsa.engine.cpu_kernel", "fedlsa.problems", "fedlsa.engine.jobs"} <= imports("fedlsa.engine.cpu")
    assert "fedlsa.engine" in imports("fedlsa")


def test_numba_is_imported_whole_before_a_part_of_it():
    """A thread that imports a part waits for no other that is still importing the whole, and both fail."""
    for path in FILES:
        found = [line.split() for line in path.read_text(encoding="utf8").splitlines() if " numba" in line]
        found = [words[1] for words in found if words[0] in ("import", "from")]
        assert not found or found[0] == "numba", path


def test_no_imports_go_round_in_a_circle():
    waiting = {m: {i for i in imports(m) if i != m and not m.startswith(i + ".")} for m in MODULES}
    while waiting:
        ready = [m for m, needs in waiting.items() if not needs & waiting.keys()]
        assert ready, f"these import one another: {sorted(waiting)}"
        for m in ready:
            del waiting[m]


def test_source_files_are_short_begin_with_a_docstring_and_name_no_machine():
    roots = "|".join(("home", "root", "Users", "tmp", "work"))
    for path in FILES:
        text = path.read_text()
        assert len(text.splitlines()) <= 500, path
        assert ast.get_docstring(syntax(path)), path
        assert not re.search(rf"""["'\s](/({roots})\b|[A-Z]:\\)""", text), path
        assert not {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"} & set(imported_names(path)), path


def test_everything_public_has_a_docstring():
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in getattr(loaded, "__all__", ()):
            thing = getattr(loaded, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                own = thing.__dict__.get("__doc__") if inspect.isclass(thing) else thing.__doc__
                assert own, f"{module}.{name} lacks a docstring"
                assert not own.startswith(f"{name}("), f"{module}.{name} has the docstring that dataclass makes"


def test_no_public_name_hides_a_module():
    """`import fedlsa.engine.simulation as m` gives the module, whatever was asked for before."""
    for module, path in MODULES.items():
        package = importlib.import_module(module) if path.name == "__init__.py" else None
        for name in [m.name for m in pkgutil.iter_modules(package.__path__)] if package else ():
            public = vars(package).get(name) or getattr(package, "_modules", {}).get(name)
            assert public is None or inspect.ismodule(public), f"{module}.{name} is a module and something else"


def test_scripts_import_what_there_is():
    root = SOURCE.parents[1]
    for path in (p for folder in ("benchmarks", "examples", "docs", "deploy") for p in (root / folder).rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] == "fedlsa":
                room = importlib.import_module(node.module)
                gone = [
                    a.name for a in node.names if not hasattr(room, a.name) and f"{node.module}.{a.name}" not in MODULES
                ]
                assert not gone, f"{path.relative_to(root)}: {node.module} has no {gone}"


def test_figures_are_public_and_matplotlib_waits_until_one_is_drawn():
    script = "import sys, fedlsa as fl; fl.figures.error_curves; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
    assert "figures" in fedlsa.__all__


def test_no_two_test_files_share_a_name():
    names = [f.name for f in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))  # pytest imports them by name and refuses the second


PAGE = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf8")


def test_the_page_on_architecture_lists_every_room_in_the_order_of_imports():
    rooms = re.findall(r"^\| `(\w+)/` \|", PAGE, re.M)
    assert rooms == [name for name in ORDER if (SOURCE / name).is_dir()]


def test_the_page_on_architecture_names_files_that_exist():
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE))
    assert len(named) > 15
    places = (SOURCE, SOURCE.parents[1], SOURCE / "network", SOURCE / "experiments", SOURCE / "cli")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def definitions(kind):
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, kind):
                yield path.relative_to(SOURCE).as_posix(), node


def test_no_two_classes_and_no_two_modules_share_a_name():
    classes = [node.name for _, node in definitions(ast.ClassDef)]
    assert [name for name, n in Counter(classes).items() if n > 1] == []
    modules = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, n in modules.items() if n > 1] == []


SIZES = re.compile(r"_?(TENTH|QUARTER|HALF|TWICE|MANY|FEW|LONG|SHORT|SMALL|LARGE|BIG|TINY|HUGE|SHARED)")

RIDDLES = (
    "lanes|whole|marks|pending|spare|anew|seat|hold|gone|own|look|seen|said|told|beside|amid|alone|home|apart|root|tiles|"
    "turned|regauged|stillness|lasting"
)


def assigned(node):
    """The names to which an assignment gives values, those in tuples too."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [part.id for t in targets for part in ast.walk(t) if isinstance(part, ast.Name)]


@pytest.mark.parametrize(
    ("line", "names"), [("A = B = 1", ["A", "B"]), ("A, (B, *C) = x", ["A", "B", "C"]), ("A: int = 1", ["A"])]
)
def test_the_walk_over_assignments_sees_chains_tuples_and_annotations(line, names):
    assert assigned(ast.parse(line).body[0]) == names


def test_constants_are_named_for_what_they_mean_and_functions_by_verbs():
    names = [(f, name) for f, node in definitions(ast.Assign | ast.AnnAssign) for name in assigned(node)]
    assert [(f, name) for f, name in names if SIZES.fullmatch(name)] == []
    functions = [(f, node.name) for f, node in definitions(ast.FunctionDef)]
    assert [(f, n) for f, n in functions if re.fullmatch(rf"_?(made|found|tell|held|looks|where|{RIDDLES})", n)] == []
    classes = [(f, node.name.lower()) for f, node in definitions(ast.ClassDef)]
    assert [(f, n) for f, n in classes if re.fullmatch(rf"_?(form|parts|{RIDDLES})", n)] == []


def test_no_function_inside_takes_more_than_eight_arguments():
    """Public functions and commands may have many options, all with defaults."""
    public = {r: getattr(importlib.import_module(f"fedlsa.{r}"), "__all__", ()) for r in ORDER}
    for file, node in definitions(ast.FunctionDef):
        a, here = node.args, file.removesuffix(".py").split("/")[0]
        required = len(a.posonlyargs) + len(a.args) - len(a.defaults) + a.kw_defaults.count(None)
        assert required <= 8 or node.name in public.get(here, ()), f"{file}: {node.name}"
