"""What the tests of several pages share."""

import glob
import shlex

import pytest

from fedlsa.cli import main


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """Run a printed command in a folder of its own, with patterns of files looked up as a shell does."""
    monkeypatch.chdir(tmp_path)

    def run(line):
        words = shlex.split(line)[1:]
        code = main([w for x in words for w in (sorted(glob.glob(x)) if "*" in x or "[" in x else [x])])
        return code, capsys.readouterr()

    return run
