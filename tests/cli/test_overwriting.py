"""No command replaces a file without --force, and it says so before it has computed anything."""

import pytest

import fedlsa as fl
from fedlsa import experiments
from fedlsa.cli import problem_options
from fedlsa.network.folder import setup

WRITING = [  # with inputs that are not there, which would be the complaint of a command that has begun
    ("simulate --method fedlsa", "--out", "x.nc"),
    ("simulate", "--plot", "x.png"),
    ("plot none.nc", "--out", "x.pdf"),
    ("theory", "--out", "x.csv"),
    ("theory", "--plot", "x.svg"),
    ("plan --epsilon 0.1", "--plot", "x.png"),
    ("fit regression none.csv --target y", "--out", "x.json"),
    ("fit regression none.csv --target y", "--plot", "x.png"),
    ("fit value none.csv --discount 0.9", "--out", "x.json"),
    ("fit value none.csv --discount 0.9", "--plot", "x.png"),
    ("evaluate none.json none.csv", "--out", "x.csv"),
    ("predict none.json none.csv", "--out", "x.csv"),
    ("explore", "--save", "x.csv"),
    ("explore", "--copy", "x.py"),
    ("reproduce", "--out", "x"),
    ("network result none", "--out", "x.json"),
    ("network run none --epsilon 1", "--out", "x.json"),
]
TARGETS = {"--out", "--plot", "--save", "--copy"}  # options that name a file to be written


def test_every_option_that_names_a_file_to_be_written_is_tried_below(commands):
    options = {(words, flag) for words, flags in commands.items() for flag in flags if flag in TARGETS}
    tried = {(words, flag) for line, flag, _ in WRITING for words, _ in options if f"{line} ".startswith(f"{words} ")}
    assert tried == options
    forced = {words for words, flags in commands.items() if "--force" in flags}
    assert forced == {words for words, _ in options}


@pytest.mark.parametrize(("line", "flag", "name"), WRITING, ids=lambda word: word.split(" none")[0])
def test_a_file_that_exists_is_left_alone(fedlsa, tmp_path, monkeypatch, line, flag, name):
    for module, function in ((problem_options, "make"), (experiments, "reproduce")):
        monkeypatch.setattr(module, function, lambda *_, **__: pytest.fail("it began"))
    file = tmp_path / name / "report" if line == "reproduce" else tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("precious")
    code, out, err = fedlsa(*line.split(), flag, name)
    assert (code, out, err) == (2, "", f"fedlsa: {file.relative_to(tmp_path)} exists; --force replaces it\n")
    assert file.read_text() == "precious"


def test_folders_are_made_anew_or_not_at_all(fedlsa, tmp_path):
    setup.init(tmp_path / "net", 3, "127.0.0.1", task=fl.Regression("y"))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("precious")
    for line in ("init here --sites 3 --host h", "demo --folder here"):
        code, out, err = fedlsa("network", *line.split())
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "here" in err
    assert [p.name for p in (tmp_path / "here").iterdir()] == ["file"]
