"""The network page shows the numbers that its script measures, and names commands and options that exist."""

import csv
import re
import runpy
from pathlib import Path

import numpy as np
from print_quality import faults

from fedlsa.cli import main

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "".join((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("network", "network-security"))


def test_the_table_of_uploads_is_what_the_script_measures():
    script = runpy.run_path(str(DOCS / "make_network_picture.py"))
    shown = TEXT.split("<!-- uploads -->\n")[1].split("<!-- /uploads -->")[0].splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in shown[2:]] == list(script["UPLOADS"])
    some = {name: script["UPLOADS"][name] for name in ("8 bits", "a site, ε = 10")}  # the others take longer
    head, rule, coded, private = script["table"](script["measured"](some))
    assert {head, rule, coded} <= set(shown)
    # the sampler of discrete noise takes another path where the planned variance has another last bit, as it may on
    # another processor: what is measured agrees within standard errors, all else to the digit
    (private_shown,) = (line for line in shown if line.startswith("| a site, ε = 10 |"))
    *same, measured = private.strip(" |").split(" | ")
    *same_shown, measured_shown = private_shown.strip(" |").split(" | ")
    assert same == same_shown
    error = float(same[-1]) / np.sqrt(2 * script["SEEDS"] * script["D"])  # of a root mean square of normal numbers
    for found in (measured, measured_shown):
        assert abs(float(found) - float(same[-1])) < 3 * error


def test_the_picture_of_uploads_is_fit_for_print():
    script = runpy.run_path(str(DOCS / "make_network_picture.py"))
    assert faults(script["draw"]({name: np.geomspace(1, 0.1, 2 + i) for i, name in enumerate(script["UPLOADS"])})) == []


def test_every_command_and_option_of_the_page_exists(capsys, monkeypatch):
    commands = set(re.findall(r"fedlsa network ([a-z-]+)", TEXT))
    assert {"init", "enrol", "approve", "join", "run", "serve", "status", "result", "demo"} <= commands
    monkeypatch.setenv("COLUMNS", "200")
    for command in sorted(commands):
        assert main(["network", command, "--help"]) == 0
    known = capsys.readouterr().out
    for option in sorted(set(re.findall(r"`(--[a-z-]+)", TEXT))):
        assert option in known, option


def test_every_test_that_the_table_of_threats_names_exists():
    with (DOCS / "threats.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 20
    for row in rows:
        assert row["what stops them"]
        named = re.findall(r"`([\w./-]+\.py)::(\w+)`", row["tests"])
        assert bool(named) == bool(row["tests"]), row["tests"]
        for file, name in named:
            text = (DOCS.parent / "tests" / file).read_text(encoding="utf-8")
            assert f"\ndef {name}(" in text, (file, name)
