"""What the tests of all commands share."""

import pytest

from fedlsa.cli import main


@pytest.fixture
def fedlsa(capsys, tmp_path, monkeypatch):
    """Run a command in an empty folder: its exit code, what it printed, what it complained of."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = main([str(a) for a in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command
