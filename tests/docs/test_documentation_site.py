"""The documentation's site: it builds strictly, is whole, and loads nothing from another host."""

import html
import importlib
import logging
import os
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import fedlsa

os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")  # read when the theme is imported
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
REFERENCE = {
    "problems": "problems",
    "features": "problems.features",
    "methods": "algorithms",
    "simulate": "engine",
    "results": "results",
    "theory": "theory",
    "fit": "fit",
    "figures": "figures",
}


class Page(HTMLParser):
    """What a page loads, as (tag, address), and the names that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[tuple[str, str]] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if name := values.get("id"):
            self.names.add(name)
        if values.get("rel") == "canonical":  # names the page, loads nothing
            return
        if address := values.get(LOADED.get(tag, "")):
            self.loaded.append((tag, address))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[MkDocsConfig, Path]:
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)  # strict: a warning, such as a link between pages that leads nowhere, raises
    config.plugins.on_shutdown()
    return config, folder


@pytest.fixture(scope="module")
def pages(site: tuple[MkDocsConfig, Path]) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf8")) for path in site[1].rglob("*.html")}


def in_nav(item: object) -> list[str]:
    if isinstance(item, str):
        return [item]
    return [page for part in (item.values() if isinstance(item, dict) else item) for page in in_nav(part)]


def test_every_page_is_in_the_nav_and_every_page_of_the_nav_was_built(site):
    config, folder = site
    listed = in_nav(config.nav)
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    assert [name for name in listed if not (folder / name).with_suffix(".html").stat().st_size] == []


def test_every_page_loads_only_files_of_the_site_and_they_exist(pages):
    assert any(tag == "img" for page in pages.values() for tag, _ in page.loaded)
    for path, page in pages.items():
        for tag, address in page.loaded:
            parts = urlsplit(address)
            assert not parts.netloc, f"{path.name} loads {address}"
            if parts.scheme == "data":
                continue
            assert not parts.scheme, f"{path.name} loads {address}"
            if path.name != "404.html":  # its addresses are absolute, for it is shown under any address
                assert (path.parent / unquote(parts.path)).exists(), f"{path.name}: {tag} {address}"


def test_style_sheets_fetch_nothing_from_another_host(site):
    sheets = [*site[1].rglob("*.css")]
    assert sheets
    assert [sheet.name for sheet in sheets if "url(http" in sheet.read_text(encoding="utf8").replace('"', "")] == []


@pytest.mark.parametrize("name", REFERENCE)
def test_every_public_function_and_class_is_in_the_reference(name, site, pages):
    module = importlib.import_module(f"fedlsa.{REFERENCE[name]}")
    wanted = {n for n in module.__all__ if callable(getattr(module, n))}
    anchors = {anchor.rpartition(".")[2] for anchor in pages[site[1] / "api" / f"{name}.html"].names}
    assert wanted - anchors == set()


def test_every_name_at_the_top_of_the_package_is_in_the_reference(site, pages):
    anchors = {a.rpartition(".")[2] for path, page in pages.items() if path.parent.name == "api" for a in page.names}
    assert {n for n in fedlsa.__all__ if isinstance(getattr(fedlsa, n), type)} - anchors == set()
    assert {"fit", "plan", "evaluate", "simulate", "simulate_grid"} <= anchors


def test_no_word_of_a_page_is_lost_on_the_way(site):
    """The site's renderer reads emphasis and lists by other rules than those the pages were written for."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = re.sub(r"<!--.*?-->|^```\w*|^\d+\.(?= )", "", page.read_text(encoding="utf8"), flags=re.S | re.M)
        text = re.sub(r"!\[[^\]]*\]\([^)]*\)|(?<=\])\([^)]*\)", "", text)
        shown = (site[1] / page.name).with_suffix(".html").read_text(encoding="utf8")
        shown = html.unescape(re.sub(r"<[^>]+>", "", shown[shown.find("<article") : shown.find("</article")]))
        lost = Counter(re.findall(r"[A-Za-z0-9]+", text)) - Counter(re.findall(r"[A-Za-z0-9]+", shown))
        assert not lost, page.name


def test_links_to_files_outside_the_docs_read_as_text(site):
    text = (site[1] / "extending.html").read_text(encoding="utf8")
    assert "<code>examples/new_method.py</code>" in text
    assert 'href="../examples' not in text


def test_the_figures_of_the_comparison_are_those_of_the_performance_page():
    measured = (ROOT / "docs" / "performance.md").read_text(encoding="utf8").partition("<!-- /bench -->")[0]
    shown = (ROOT / "docs" / "comparison.md").read_text(encoding="utf8")
    rows = re.findall(r"^\| [^|]+ \| ([\d.]+) ns(?: \(([\d.]+).\))? \|", measured, re.M)
    assert len(rows) == 4
    for time, ratio in rows:
        assert f"| {time} | {ratio or 1} |" in shown
