"""docs/extending.md leads a stranger to the end: the class of the page in an empty folder, then as a part of fedlsa."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf8")
METHOD, USE, _, PROBLEM, SAMPLING, STREAM = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
AS_PART = """
import numpy as np
import fedlsa as fl
p = fl.problems.garnet(agents=4, seed=1)
method = fl.HalfGain(step_size=0.1, local_steps=20)
run = fl.simulate(p, method, rounds=3, seeds=2, engine="reference")
fl.results.save(run, "run.nc")
again = fl.simulate(**fl.results.arguments(fl.results.load("run.nc")))
limit = fl.theory.stationary(p, method)
print(again.identical(run), 0 < limit.mse < 0.1, np.abs(limit.bias).max() < 1e-12)
print(fl.plan(p, epsilon=0.5, method="halfgain").rounds)
"""


def test_the_page_counts_the_lines_of_each():
    """Of the class or function, without its docstring and empty lines; of the longer of two."""
    for block, name in ((METHOD, "method"), (PROBLEM, "problem"), (SAMPLING, "sampling"), (STREAM, "stream")):
        parts = re.findall(r"^(?:@.*\n)?(?:class|def) .*\n(?:(?: .*)?\n)*", block, re.M)
        lines = [[x for x in part.splitlines() if x.strip() and not x.strip().startswith('"""')] for part in parts]
        assert re.search(rf"^\| \[a {name}\].* \| {max(map(len, lines))} \|", PAGE, re.M), (name, lines)


def run(folder: Path, *words: str, source: Path = ROOT / "src") -> str:
    command = [sys.executable, *words]
    ran = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def put(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf8")
    assert text.count(before) == 1, f"{path.name} does not have {before!r} once, where the page puts something"
    path.write_text(text.replace(before, after), encoding="utf8")


def test_the_method_of_the_page_runs_from_one_file_in_an_empty_folder(tmp_path):
    (tmp_path / "mine.py").write_text(METHOD + "\n\n" + USE)
    shown = run(tmp_path, "mine.py")
    assert "HalfGain(step_size=0.1, local_steps=100)" in shown
    assert "by                 exact moments" in shown


def test_the_method_becomes_a_part_of_fedlsa_by_the_steps_of_the_page(tmp_path):
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src" / "fedlsa", source / "fedlsa", ignore=shutil.ignore_patterns("__pycache__"))
    room = source / "fedlsa" / "algorithms"
    own = METHOD.replace("from fedlsa.algorithms import", "from .methods import")
    (room / "half_gain.py").write_text(own.replace('{"theory", "plan"}', '{"theory", "plan", "fit", "network"}'))
    first = "from .methods import SCAFFLSA as SCAFFLSA"
    put(room / "__init__.py", first, f"from .half_gain import HalfGain as HalfGain\n{first}")
    put(room / "__init__.py", "(FedLSA, SCAFFLSA, Scaffnew)}", "(FedLSA, SCAFFLSA, Scaffnew, HalfGain)}")
    fedlsa = "from .algorithms import FedLSA as FedLSA"
    put(source / "fedlsa" / "__init__.py", fedlsa, f"{fedlsa}\n    from .algorithms import HalfGain as HalfGain")
    for step in ("half_gain.py", "add it to `METHODS`", "from .algorithms import HalfGain as HalfGain"):
        assert step in PAGE
    assert run(tmp_path, "-c", AS_PART, source=source).split() == ["True", "True", "True", "2"]
    command = ["-m", "fedlsa", "plan", "--method", "halfgain", "--agents", "3", "--epsilon", "0.5"]
    assert "HalfGain" in run(tmp_path, *command, source=source)
