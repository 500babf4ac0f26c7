"""Bad command lines: valid ones with an option, a value or a file replaced by something odd, and options added."""

from __future__ import annotations

import contextlib
import io
import random
from functools import cache, partial
from pathlib import Path

import calls
import numpy as np
import typer

import fedlsa as fl
from fedlsa.cli import main
from fedlsa.cli.command_line import COMMANDS, app
from fedlsa.network.folder.setup import init

PROBLEM = ("--agents", "3", "--states", "5", "--features", "2")
QUICK = (*PROBLEM, "--local-steps", "2", "--rounds", "4")
# Commands that are quick as they stand; those that would serve, wait or take minutes have something wrong in them.
LINES = (
    ("simulate", *QUICK, "--seeds", "2", "--engine", "reference", "--force"),
    ("simulate", *QUICK, "--method", "scaffnew", "--sampling", "markov", "--seeds", "1", "--engine", "reference"),
    ("plot", "run.nc", "--out", "figure.svg"),
    ("theory", *QUICK, "--perturbation", "0", "--limit"),
    ("plan", *PROBLEM, "--perturbation", "0", "--epsilon", "0.3"),
    ("evaluate", "model.json", "a.csv"),
    ("predict", "model.json", "a.csv"),
    ("fit", "regression", "a.csv", "b.csv", "--target", "y", "--epsilon", "0.3", "--local", "means", "--force"),
    ("fit", "value", "log.csv", "--discount", "0.9", "--state", "s", "--next-state", "n", "--local", "means"),
    ("explore", "agents=3&rounds=5", "--save", "curve.csv", "--force"),
    ("reproduce", "fig99", "--quick"),
    ("network", "init", "net", "--sites", "1", "--host", "fed.example.org", "--target", "y"),
    ("network", "serve", "nowhere"),
    ("network", "run", "nowhere", "--epsilon", "0.1"),
    ("network", "status", "made"),
    ("network", "stop", "made"),
    ("network", "result", "made"),
    ("network", "join", "junk.zip", "--data", "a.csv", "--yes"),
    ("network", "enrol", "junk.zip"),
    ("network", "approve", "made", "junk.zip", "--fingerprint", "0000"),
    ("network", "revoke", "made", "site-1"),
    ("network", "add-site", "made", "site-1"),
    ("network", "remove-site", "made", "site-9"),
    ("network", "renew", "nowhere"),
    ("network", "budget", "--privacy", "1", "--sites", "4", "--coefficients", "2", "--clip", "1"),
)  # fmt: skip
ODD = (
    "", " ", "x", "-1", "0", "1", "0.5", "-0.5", "nan", "inf", "-inf", "1e400", "1e308", "1e-300", "1e-9", "1e18",
    "1_0", "9" * 20, "9" * 400, "9" * 5000, "1099511627776", "0x10", "\uff11\uff12", "1,2", "1,", ",", "3,3", "1,x",
    "1,-1", "0," * 9, "1j", "True", "None", "-", "--", "---", "=", "a b", "a\nb", "é", "\udcff", "%s", "{}", "[]",
    "~", "*",
    "$HOME", "x" * 5000, ".", "..", "/", "//", "nowhere", "nowhere/x.nc", "folder", "folder.nc", "folder.png",
    "/dev/null", "/proc/x.nc", "x.nc", "x.png", "x.csv", "x.json", "x.pdf", "x.", ".nc", "run.nc", "half.nc",
    "empty.csv", "a.csv", "b.csv", "log.csv", "junk.nc", "junk.csv", "junk.zip", "junk.parquet", "junk.json",
    "model.json", "text.csv", "ragged.csv", "huge.csv", "y", "s", "fedlsa", "scafflsa", "scaffnew", "markov", "log",
    "rows", "cuda", "float32", "paper", "authors", "samples", "OneHot(4)", "OneHot(10**9)", "Fourier([0],[1],10**9)",
    "OneHot", "os:getcwd", "json:loads", "no.such:thing", "http://x", "agents=1e9&rounds=-1", "problem=files", "a=b",
    "1=1", "&&&", "agents=999999999999",
)  # fmt: skip


def prepare():
    calls.prepare()
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        x = rng.normal(size=(30, 3))
        rows = np.column_stack([x[:, :2], x @ [2.0, -3.0, 0.3]])
        np.savetxt(f"{name}.csv", rows, delimiter=",", header="u,v,y", comments="")
    walk = rng.normal(size=21)
    log = np.column_stack([walk[:-1], walk[1:], 3 + rng.normal(size=20), np.arange(20) % 5 == 4, np.zeros(20)])
    np.savetxt("log.csv", log, delimiter=",", header="s,n,reward,terminated,truncated", comments="")
    junk = rng.bytes(3000)
    for suffix in ("nc", "csv", "zip", "parquet", "json"):
        Path(f"junk.{suffix}").write_bytes(junk)
    Path("half.nc").write_bytes(Path("run.nc").read_bytes()[:2000])
    Path("empty.csv").write_bytes(b"")
    Path("text.csv").write_text("u,v,y\na,b,c\nd,e,f\n")
    Path("ragged.csv").write_text("u,v,y\n1,2\n3,4,5,6\n")
    Path("huge.csv").write_text("u,v,y\n1e308,1e308,1e308\n-1e308,1,2\n1e-308,4,1\n")
    for name in ("folder", "folder.nc", "folder.png"):
        Path(name).mkdir()
    init("made", 1, "fed.example.org", 9000, task=fl.Regression("y"))


@cache
def options():
    """The options of each command, as typer knows them: (name, whether it takes a value)."""

    def below(command, path):
        if not hasattr(command, "commands"):
            return {path: [(p.opts[0], not p.is_flag) for p in command.params if p.param_type_name == "option"]}
        return {k: v for name, each in command.commands.items() for k, v in below(each, (*path, name)).items()}

    fedlsa = typer.main.get_command(app)
    fedlsa.load(*COMMANDS)
    return below(fedlsa, ())


def cases(count, seed):
    """Command lines, drawn with a seed, as (the line, function that runs it and says what is wrong with that)."""
    rng = random.Random(seed)
    for _ in range(count):
        line = list(rng.choice(LINES))
        words = 2 if line[0] in ("fit", "network") else 1
        for _ in range(rng.choice((1, 1, 1, 2))):
            known = options()[tuple(line[:words])]
            kind = rng.random()
            if kind < 0.6 and known:  # an option with an odd value
                name, valued = rng.choice([o for o in known if o[0] not in NEVER])
                line += [name, rng.choice(ODD)] if valued else [name]
            elif kind < 0.8 and len(line) > words:  # something else instead of a word
                line[rng.randrange(words, len(line))] = rng.choice(ODD)
            elif kind < 0.9:  # a word too many
                line.insert(rng.randrange(words, len(line) + 1), rng.choice(ODD))
            elif len(line) > words:  # a word too few
                del line[rng.randrange(words, len(line))]
        if not waits(line):
            yield " ".join(line)[:300], partial(outcome, line)


NEVER = ("--ray", "--threads", "--copy", "--help")  # would wait, or write pages


def waits(line):
    """Whether a line would serve, wait, or take minutes if what is odd in it happens to be valid."""
    serves = {"serve": "made", "run": "made"}  # there is no folder that a site could join with
    if line[0] == "network":
        return serves.get(line[1], "\0") in line[2:]
    if line[0] == "explore":
        return "--save" not in line
    return line[0] == "reproduce" and "fig99" not in line


def outcome(line):
    """ "ran" or "refused", and what is wrong with that, if anything."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(line)
    told = [text for text in err.getvalue().splitlines() if text.startswith("fedlsa:") and "WARNING" not in text]
    told = [text for text in told if not text.startswith(("fedlsa: warning", "fedlsa: compiling"))]
    if "Traceback" in err.getvalue() + out.getvalue():
        return "refused", f"a traceback: {err.getvalue()[-200:]}"
    if code == 0:
        return "ran", None
    if code != 2 or len(told) != 1 or len(told[0]) < 15:
        return "refused", f"exit code {code} with {told or err.getvalue()[-200:]!r}"
    return "refused", None
