"""What the tests of all commands share."""

import shutil

import pytest
import typer

import fedlsa as fl
from fedlsa.cli import command_line, main
from fedlsa.network.folder import setup


@pytest.fixture
def fedlsa(capsys, tmp_path, monkeypatch):
    """Run a command in an empty folder: its exit code, what it printed, what it complained of.

    That the engine is compiled is no complaint: which test comes first to a dimension is nobody's business.
    """
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = main([str(a) for a in arguments])
        printed = capsys.readouterr()
        lines = printed.err.splitlines(keepends=True)
        return code, printed.out, "".join(line for line in lines if not line.startswith("fedlsa: compiling the engine"))

    return command


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A network of four sites that nobody changes."""
    return setup.init(tmp_path_factory.mktemp("made") / "net", 4, "127.0.0.1", task=fl.Regression("charges"))


@pytest.fixture
def net(made, fedlsa, tmp_path):
    """The name of a copy of it in the folder where commands run."""
    shutil.copytree(made.folder, tmp_path / "net")
    return "net"


@pytest.fixture(scope="session")
def commands():
    """Every command by its words, with its options."""

    def walk(command, words):
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, [*words, name])
        if not hasattr(command, "commands"):
            yield " ".join(words), {flag: p for p in command.params for flag in p.opts}

    fedlsa = typer.main.get_command(command_line.app)
    fedlsa.load(*command_line.COMMANDS)
    return dict(walk(fedlsa, []))
