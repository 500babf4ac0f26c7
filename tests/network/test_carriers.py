"""Carriers that other distributions bring along are found by their entry points."""

import sys

import pytest

from fedlsa.cli import main
from fedlsa.errors import ArgumentError
from fedlsa.network.carriers import installed_carrier
from fedlsa.network.folder import setup


def test_a_carrier_is_found_by_the_entry_point_of_its_distribution(tmp_path, monkeypatch):
    described = tmp_path / "pigeon-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[fedlsa.carriers]\npigeon = carried_by_pigeon\n")
    (tmp_path / "carried_by_pigeon.py").write_text("open_site = print\n")
    monkeypatch.syspath_prepend(tmp_path)
    module, place = installed_carrier("pigeon:C:/roof")
    assert (module.open_site, place) == (print, "C:/roof")
    monkeypatch.delitem(sys.modules, "carried_by_pigeon")


def test_a_carrier_that_is_not_installed_is_named_with_what_to_install(tmp_path, capsys):
    setup.init(tmp_path / "net", 3, "127.0.0.1")
    assert main(["network", "serve", str(tmp_path / "net"), "--no-page", "--carrier", "pigeon:roof"]) == 2
    assert "fedlsa: the carrier 'pigeon' is not installed" in (err := capsys.readouterr().err)
    assert "pip install ./integrations/fedlsa-pigeon" in err


@pytest.mark.parametrize("text", ["", "nvflare", "nvflare:", ":roof"])
def test_a_carrier_needs_a_name_and_a_place(text):
    with pytest.raises(ArgumentError, match="carrier must be NAME:PLACE"):
        installed_carrier(text)
