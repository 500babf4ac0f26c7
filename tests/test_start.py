"""What starts light stays light: heavy libraries load when they are first needed, public names whatever came before."""

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import fedlsa
from fedlsa.cli.command_line import COMMANDS, app
from fedlsa.lazy_names import LazyPackage

SOURCE = Path(fedlsa.__file__).parent
HEAVY = ["numba", "scipy", "xarray", "pandas", "matplotlib", "h5netcdf", "pyarrow", "sklearn"]
LAZY = sorted(
    ".".join(("fedlsa", *f.parent.relative_to(SOURCE).parts))
    for f in SOURCE.rglob("__init__.py")
    if "_load_lazily(" in f.read_text()
)


def run(script):
    """What a script prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(*lines):
    """The heavy libraries that are loaded after each of some lines, in one process."""
    tell = f"\nimport sys; print(); print('loaded:', *({set(HEAVY)} & set(sys.modules)))\n"
    said = run(tell.join((*lines, ""))).splitlines()
    after = [line.split()[1:] for line in said if line.startswith("loaded:")]
    assert len(after) == len(lines)
    return after


COMMAND_LINE = "from fedlsa.cli import main; assert main(['{}']) == 0"


def test_nothing_heavy_is_loaded_before_it_is_needed():
    """What one line loaded would be there after all later ones."""
    lines = [
        "import fedlsa",
        "import fedlsa as fl; fl.SCAFFLSA(0.1, local_steps=10), fl.Scaffnew(0.1, 0.2), fl.IID(), fl.errors, dir(fl)",
        "import fedlsa.theory, fedlsa.engine, fedlsa.figures, fedlsa.results",
        "fl.problems.regression([([[1.0], [2.0]], [3.0, 4.0])])",
        "fl.problems.garnet(agents=100)",
        COMMAND_LINE.format("--help"),
        COMMAND_LINE.format("--version"),
    ]
    assert dict(zip(lines, loaded(*lines), strict=True)) == {line: [] for line in lines}


def test_the_help_of_commands_loads_neither_tables_nor_figures():
    """The compiler belongs to `simulate`, whose defaults the help shows."""
    allowed = {"explore": [], "plot": [], "theory": [], "plan": [], "simulate": ["numba", "scipy"]}
    lines = [f"from fedlsa.cli import main; assert main(['{name}', '--help']) == 0" for name in allowed]
    for name, found in zip(allowed, loaded(*lines), strict=True):
        assert set(found) <= set(allowed[name]), name


def test_saved_results_are_drawn_without_the_compiler():
    (found,) = loaded("import fedlsa as fl; fl.figures.error_curves, fl.results.load")
    assert set(found) <= {"xarray", "pandas", "pyarrow"}


SMALL = (
    "import fedlsa as fl; p = fl.problems.regression([([[1.0], [2.0]], [3.0, 4.0]), ([[0.5], [1.0]], [1.0, 3.0])]); "
)


def test_theory_of_small_problems_needs_no_compiler_and_plans_and_limits_no_xarray():
    lines = [
        f"import warnings; warnings.simplefilter('ignore'); {SMALL} fl.plan(p, 0.1)",
        "fl.theory.stationary(p, fl.SCAFFLSA(0.1, 10))",
        "fl.theory.bound(p, fl.FedLSA(0.1, 1), 9)",
        "[fl.theory.exact(p, a) for a in (fl.SCAFFLSA(0.1, 9), fl.Scaffnew(0.1, 0.1))]",
    ]
    *before, curves = loaded(*lines)
    assert before == [["scipy"]] * 3
    assert "numba" not in curves


def test_a_small_fit_compiles_no_engine_and_loads_no_data_frames():
    script = """
        import numpy as np, fedlsa as fl
        x = np.random.default_rng(0).standard_normal((2, 50, 2))
        sites = [(a, a.sum(axis=1) + np.cos(np.arange(50))) for a in x]
        found = fl.fit(sites, fl.Regression("y"), share_moments=True)
        assert found.local == "rows" and found.plan.samples > 1e4
    """
    (found,) = loaded("\n".join(line.strip() for line in script.splitlines()))
    assert set(found) == {"scipy", "numba"}


def test_the_check_of_what_is_loaded_sees_what_is_there():
    assert loaded("import sys", "import scipy") == [[], ["scipy"]]


@pytest.mark.parametrize("package", LAZY)
def test_every_public_name_is_that_of_its_module_and_listed(package):
    module = importlib.import_module(package)
    assert dir(module) == module.__all__ == sorted(module._modules)
    for name, source in module._modules.items():
        value = getattr(module, name)
        assert value is (
            getattr(sys.modules[f"{package}.{source}"], name) if source else sys.modules[f"{package}.{name}"]
        )


def test_scikit_learn_is_listed_and_loaded_when_it_is_asked_for():
    """That it is not loaded before is seen where nothing heavy is."""
    assert "sklearn" in dir(fedlsa)
    assert fedlsa.sklearn.__name__ == "fedlsa.sklearn"


@pytest.fixture(scope="module")
def without_scikit_learn():
    """What a process says in which it is missing, and all other names are first asked for by threads, then listed."""
    script = """
        import importlib.util, sys
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "sklearn" else found(name, *rest)
        sys.modules["sklearn"] = None
        import inspect, threading, fedlsa as fl
        failed, names = [], [n for n in fl.__all__ if n not in ("experiments", "figures", "sklearn")]
        threading.excepthook = lambda hook: failed.append(hook.exc_value)
        threads = [threading.Thread(target=getattr, args=(fl, n)) for n in names]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(failed, len(threads) > 20)
        print("sklearn" in dir(fl), len(inspect.getmembers(fl)) == len(dir(fl)))
        try:
            fl.sklearn
        except fl.errors.MissingExtraError as error:
            print(error)
    """
    return run("\n".join(line.removeprefix(8 * " ") for line in script.splitlines())).splitlines()


def test_threads_may_ask_for_their_first_names_at_the_same_moment(without_scikit_learn):
    assert without_scikit_learn[0] == "[] True"


def test_without_scikit_learn_it_is_not_listed_and_the_error_says_how_to_install_it(without_scikit_learn):
    """What walks over dir(fl), as help(fl) does, must find nothing that cannot be loaded."""
    said = ["False True", "fl.sklearn needs scikit-learn: pip install 'fedlsa[sklearn]'"]
    assert without_scikit_learn[1:] == said


def test_the_package_and_several_rooms_are_lazy():
    assert {"fedlsa", "fedlsa.theory", "fedlsa.engine", "fedlsa.figures"} <= set(LAZY)
    assert all(isinstance(importlib.import_module(package), LazyPackage) for package in LAZY)


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """A package with a public function `toy` and a module that cannot be loaded."""
    for name, text in {
        "__init__": "from fedlsa.lazy_names import load_lazily\nif False:\n    from .blocks import toy, number\n"
        "load_lazily(__name__)",
        "blocks": "number = 3\ndef toy():\n    return number",
        "broken": "import no_such_module",
    }.items():
        path = tmp_path / "toys" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    _forget()


def _forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "toys"]:
        del sys.modules[name]


def test_modules_of_a_lazy_package_are_attributes_and_what_is_not_there_is_an_error(toys):
    package = importlib.import_module("toys")
    assert {"toy", "number"} <= set(dir(package))
    assert package.toy() == package.number == package.blocks.number == 3
    assert not hasattr(package, "nothing")
    with pytest.raises(AttributeError, match="module 'toys' has no attribute 'nothing'"):
        package.nothing  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        package.broken  # noqa: B018


def test_fit_is_the_function_whatever_was_imported_first():
    """Each order in a process of its own, forked from one that has loaded all but the package."""
    script = """
        import inspect, os, sys, numba, scipy.linalg, scipy.stats
        tell = "print(*list(inspect.signature(fl.fit).parameters)[:2], fl.Regression.__name__, flush=True)"
        assert not any(name.startswith("fedlsa") for name in sys.modules)
        for first in "import fedlsa.fitting.tasks", "import fedlsa.fitting", "from fedlsa.fitting.estimate import fit":
            child = os.fork()
            if not child:
                exec(f"{first}\\nimport fedlsa as fl\\n{tell}\\nimport fedlsa.fitting.estimate\\n{tell}")
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, first
    """
    assert run("\n".join(line.removeprefix(8 * " ") for line in script.splitlines())) == "sites task Regression\n" * 6


def test_what_refers_to_the_package_can_be_sent_to_other_processes():
    for thing in (fedlsa, fedlsa.theory, fedlsa.fitting, fedlsa.theory.exact, fedlsa.FedLSA(0.1, 10)):
        assert pickle.loads(pickle.dumps(thing)) == thing


def test_the_list_of_commands_shows_the_first_line_of_each():
    fedlsa = typer.main.get_command(app)
    fedlsa.load(*COMMANDS)
    said = {name: command.help.partition("\n")[0] for name, command in fedlsa.commands.items()}
    assert said == COMMANDS
