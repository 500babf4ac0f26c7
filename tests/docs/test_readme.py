"""What README and docs show must run as printed, and what they link to must exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(text, id=f"{page.name}-{i}")
    for page in PAGES
    if page.name not in ("theory.md", "data.md", "tutorial.md")  # one session each, in tests of their own
    for i, text in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf8"), re.S | re.M))
]


@pytest.mark.parametrize("text", BLOCKS)
def test_python_blocks_run_as_printed(text: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_readme_example_has_at_most_twelve_lines_and_shows_the_bias() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf8"), re.S | re.M)
    assert len([line for line in block.splitlines() if line.strip()]) <= 12
    assert "fl.theory.bias" in block


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_local_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf8")
    lines = re.findall(r"^(fedlsa (?!fit|evaluate).+)$", text, re.M)  # those of files: test_data_page.py
    assert len(lines) == 2
    for line in lines:
        script = f"import sys, glob; from fedlsa.cli import main; a = {line.split()[1:]!r}\n"
        script += "a = [g for x in a for g in (sorted(glob.glob(x)) if '*' in x else [x])]; sys.exit(main(a))"
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "first.png").exists()
    assert (tmp_path / "out" / "samples.png").exists()
