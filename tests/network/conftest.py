"""Copies of ledgers belong to the state directory of the user: tests have one of their own."""

import pytest


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
