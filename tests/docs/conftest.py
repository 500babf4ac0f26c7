"""What the tests of several pages share."""

import glob
import logging
import os
import shlex
from pathlib import Path

import pytest

from fedlsa.cli import main

os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")  # read when the theme is imported
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """Run a printed command in a folder of its own, with patterns of files looked up as a shell does."""
    monkeypatch.chdir(tmp_path)

    def run(line):
        words = shlex.split(line)[1:]
        code = main([w for x in words for w in (sorted(glob.glob(x)) if "*" in x or "[" in x else [x])])
        return code, capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[MkDocsConfig, Path]:
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)  # strict: a warning, such as a link between pages that leads nowhere, raises
    config.plugins.on_shutdown()
    return config, folder
