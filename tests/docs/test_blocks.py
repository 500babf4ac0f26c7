"""Every fenced block of README, CONTRIBUTING and docs is run, compared, or parsed by what it calls; none escapes."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

from fedlsa.cli.command_line import COMMANDS, app

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.M)
SPAN = re.compile(r"`((?:fedlsa|make|pip install|python) [^`]*)`")

OWN_SESSION = {  # their Python has tests of its own, which also look at what it prints
    "docs/data.md": "test_data_pages.py",
    "docs/report.md": "test_data_pages.py",
    "docs/statistics.md": "test_data_pages.py",
    "docs/theory.md": "test_theory_page.py",
    "docs/tutorial.md": "test_tutorial.py",
    "docs/values.md": "test_data_pages.py",
}
OUTPUTS = {  # blocks of output that nothing compares here
    "docs/report.md": 1,  # test_data_pages.py compares these two
    "docs/statistics.md": 1,
}
RUN = {  # the command lines that are run here, in their order; those of data.md and values.md run in test_data_pages.py
    "docs/tutorial.md": [
        "fedlsa simulate --preset authors --agents 10 --perturbation 0 --local-steps 1000 --rounds 100 --out out/first",
        "fedlsa plot out/first/*.nc --x samples --out out/samples.png",
        "fedlsa simulate --agents 10 --step-size 0.05,0.1 --local-steps 10,100 --rounds 50 --out out/sweep.nc",
        "fedlsa theory --problem ring --spread 2 --json",
    ],
    "docs/network.md": ["fedlsa network init net --sites lyon,oslo,turin --host fed.example.org --target outcome"],
    "docs/explore.md": [
        'fedlsa explore "agents=8&local_steps=300" --save error.pdf --save error.csv --save error.nc',
        'fedlsa explore "agents=8&local_steps=300&round=4" --save agents.png --agents',
    ],
}
PARSED = {  # the command lines that are only parsed, by the command's own parser: command, options, types of values
    "fedlsa network demo": "starts five processes: tests/network/long",
    "fedlsa network serve net": "waits for sites: tests/network",
    "fedlsa network budget like-*.csv --target outcome --privacy 1 --unit record --row-clip 8": "needs files that "
    "resemble the sites': tests/cli/test_budget_command.py",
    "fedlsa network enrol lyon.toml": "a file that the site was sent: tests/network/test_nine_commands.py",
    "fedlsa network approve net lyon.pem oslo.pem turin.pem": "asks a person: tests/network/test_nine_commands.py",
    "fedlsa network join lyon --data lyon.parquet": "waits for orders: tests/network/test_nine_commands.py",
    "fedlsa network run net --epsilon 0.02 --model model.json": "needs sites: tests/network/test_nine_commands.py",
    "fedlsa network status net": "needs a network: tests/cli/test_json.py",
    "fedlsa network result net NAME --out result.json": "needs a finished run: tests/network/test_nine_commands.py",
    'fedlsa explore "problem=files&target=response" --file north.csv --file south.csv': "serves: tests/browser",
    "fedlsa reproduce --quick": "minutes: tests/experiments runs it smaller still",
    "fedlsa reproduce fig1 debiased --preset paper --seeds 20": "minutes: tests/experiments",
    "fedlsa reproduce all --ray local": "an hour",
    "fedlsa reproduce all --ray 10.0.0.5:6379": "needs a cluster",
}


def blocks(page: str, kind: str) -> list[str]:
    return [text for language, text in FENCE.findall(PAGES[page]) if language == kind]


def commands(page: str) -> list[str]:
    """The lines of the page's command blocks, without remarks."""
    return [shlex.join(words) for text in blocks(page, "") for line in text.splitlines() if (words := split(line))]


def split(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def printed(lines: list[str]) -> list[str]:
    return [shlex.join(split(line)) for line in lines]


def check_fedlsa(words: list[str]) -> None:
    """The command exists and its own parser takes the rest of the line; nothing runs."""
    command = typer.main.get_command(app)
    command.load(*COMMANDS)
    context = command.make_context("fedlsa", [], resilient_parsing=True)
    own = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
    rest = ["all" if word == "NAME..." else word for word in words[1:] if word not in own]  # a name is one of a list
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        command = command.commands[name]
        if hasattr(command, "commands"):
            context = command.make_context(name, [], parent=context, resilient_parsing=True)
    if rest:
        command.make_context(command.name, rest, parent=context)


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf8"), re.M)
    assert words[1] in targets, f"the Makefile has no target {words[1]}"


def check_pip(words: list[str]) -> None:
    """What is installed is this project, with extras that it has, or a distribution in its repository."""
    if words[-1].startswith("./"):
        assert (ROOT / words[-1] / "pyproject.toml").is_file(), words
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    what, _, extras = words[-1].rstrip("]").partition("[")
    assert what in (".", project["name"]), words
    assert set(filter(None, extras.split(","))) <= set(project["optional-dependencies"]), words


def check_python(words: list[str]) -> None:
    """The script is in the repository and spells every option; the module is the command."""
    if words[1] == "-m":
        if words[2] == "pytest":
            assert all((ROOT / path).exists() for path in words[3:]), words
        else:
            check_fedlsa(words[2:])
        return
    source = (ROOT / words[1]).read_text(encoding="utf8")
    if "import documents" in source:  # which spells the options that benchmarks share
        source += (ROOT / "benchmarks" / "documents.py").read_text(encoding="utf8")
    assert [word for word in words[2:] if word.startswith("--") and f'"{word}"' not in source] == []


CHECKS = {
    "fedlsa": check_fedlsa,
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    ".venv/bin/python": check_python,
}


def test_the_walk_sees_every_fence() -> None:
    for page, text in PAGES.items():
        assert 2 * len(FENCE.findall(text)) == len(re.findall(r"^ *(?:```|~~~)", text, re.M)), page


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_python_a_command_or_an_output(page: str) -> None:
    assert {language for language, _ in FENCE.findall(PAGES[page])} <= {"", "python", "text"}
    if page != "docs/tutorial.md":
        assert len(blocks(page, "text")) == OUTPUTS.get(page, 0)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") and page not in OWN_SESSION])
def test_python_blocks_run_in_their_order_as_one_session(page, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {}
    for i, text in enumerate(blocks(page, "python")):
        exec(compile(text, f"{page}, block {i}", "exec"), session)


@pytest.mark.parametrize("page", OWN_SESSION)
def test_pages_that_have_tests_of_their_own_have_them(page: str) -> None:
    assert Path(page).name in (Path(__file__).parent / OWN_SESSION[page]).read_text(encoding="utf8")


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_every_command_line_is_understood_by_what_it_calls(page: str) -> None:
    for line in commands(page):
        words = split(line)
        CHECKS[words[0]](words)


def test_commands_in_sentences_are_understood_too() -> None:
    spans = [(page, " ".join(span.split())) for page, text in PAGES.items() for span in SPAN.findall(text)]
    assert len(spans) > 30
    for page, span in spans:
        words = split(span)
        assert words[0] in CHECKS, page
        CHECKS[words[0]](words)


def test_every_fedlsa_line_is_run_or_listed_with_a_reason() -> None:
    lines = {line for page in PAGES for line in commands(page) if line.startswith("fedlsa ")}
    run = {line for page in RUN for line in printed(RUN[page])} | set(commands("docs/data.md"))
    run |= set(commands("docs/values.md"))
    assert lines == run | set(printed(list(PARSED)))


@pytest.mark.parametrize("page", RUN)
def test_command_lines_run_as_printed(page, shell) -> None:
    assert set(printed(RUN[page])) <= set(commands(page))
    for line in RUN[page]:
        code, out = shell(line)
        assert (code, out.err) == (0, ""), line
    if page == "docs/tutorial.md":
        assert Path("out", "samples.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "line",
    ["fedlsa simulte", "fedlsa fit value a.csv --discont 0.9", "fedlsa plan --epsilon small", "make demos",
     "pip install 'fedlsa[everything]'", "python examples/nothing.py", "python examples/drift.py --agent 3"],
)  # fmt: skip
def test_a_wrong_line_would_be_seen(line: str) -> None:
    words = split(line)
    with pytest.raises((KeyError, AssertionError, OSError, typer.BadParameter.__mro__[2])):
        CHECKS[words[0]](words)
