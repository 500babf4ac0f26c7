"""The documentation's site: it builds strictly, is whole, and loads nothing from another host."""

import html
import importlib
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from mkdocs.config.defaults import MkDocsConfig

import fedlsa
from fedlsa.errors import ArgumentError
from fedlsa.mathml import mathml

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
REFERENCE = {
    "problems": "problems",
    "features": "problems.features",
    "methods": "algorithms",
    "simulate": "engine",
    "results": "results",
    "theory": "theory",
    "fit": "fitting",
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
def pages(site: tuple[MkDocsConfig, Path]) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf8")) for path in site[1].rglob("*.html")}


def in_nav(item: object) -> list[str]:
    if isinstance(item, str):
        return [item]
    return [page for part in (item.values() if isinstance(item, dict) else item) for page in in_nav(part)]


def test_every_page_is_in_the_nav_and_every_page_of_the_nav_was_built(site):
    config, folder = site
    listed = [name for name in in_nav(config.nav) if name != "play/index.html"]  # written by hand, copied as it is
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
        text = re.sub(
            r"!\[[^\]]*\]\([^)]*\)|(?<=\])\([^)]*\)|^\$\$.*?\$\$$|(?<!\w)\$[^$\n]+\$", "", text, flags=re.S | re.M
        )
        shown = (site[1] / page.name).with_suffix(".html").read_text(encoding="utf8")
        shown = re.sub(r"</?su[bp]>", " ", shown[shown.find("<article") : shown.find("</article")])
        shown = html.unescape(re.sub(r"<[^>]+>", "", shown))
        lost = Counter(re.findall(r"[A-Za-z0-9]+", text)) - Counter(re.findall(r"[A-Za-z0-9]+", shown))
        assert not lost, page.name


def test_links_to_files_outside_the_docs_read_as_text(site):
    text = (site[1] / "extending.html").read_text(encoding="utf8")
    assert "<code>examples/new_method.py</code>" in text
    assert 'href="../examples' not in text


def test_formulas_are_mathml_and_none_is_left_as_latex(site):
    drawn = 0
    for page in (ROOT / "docs").glob("*.md"):
        source = page.read_text(encoding="utf8")
        shown = (site[1] / page.name).with_suffix(".html").read_text(encoding="utf8")
        words = re.sub(r"<(script|style|pre|code|math).*?</\1>", "", shown, flags=re.S)
        assert "$" not in words, page.name
        assert shown.count('<math display="block"') == len(re.findall(r"^\$\$", source, re.M)), page.name
        assert not re.search(
            r"\$[^$]*\\[|,{][^$]*\$", re.sub(r"^\$\$.*?\$\$$|`[^`]*`", "", source, flags=re.S | re.M)
        ), f"{page.name}: a repository's browser reads a sign after a backslash as Markdown"
        drawn += shown.count("<math ")
    assert drawn >= 80


def test_examples_of_docstrings_are_code(site):
    pages = [path.read_text(encoding="utf8") for path in (site[1] / "api").glob("*.html")]
    assert sum(page.count("&gt;&gt;&gt;") for page in pages) > 30
    assert not any("<blockquote>" in page for page in pages)


def test_a_formula_has_the_structure_that_latex_gives_it():
    drawn = mathml(r"\sqrt{\frac{2\eta}{N}}+x_c^2-\bar\rho_H")
    body = drawn[drawn.index("<mrow>") :]
    assert body == (
        "<mrow><msqrt><mrow><mfrac><mrow><mn>2</mn><mi>&eta;</mi></mrow><mrow><mi>N</mi></mrow></mfrac></mrow></msqrt>"
        '<mo stretchy="false">+</mo><msubsup><mi>x</mi><mi>c</mi><mn>2</mn></msubsup><mo stretchy="false">&minus;</mo>'
        '<msub><mover accent="true"><mi>&rho;</mi><mo>‾</mo></mover><mi>H</mi></msub></mrow></math>'
    )


def test_a_command_that_formulas_do_not_know_ends_the_build():
    with pytest.raises(ArgumentError, match=r"fedlsa/mathml.py; got .nabla"):
        mathml(r"\nabla f")


def test_no_index_or_power_is_left_as_text_and_labels_stay_labels(site):
    for path in site[1].glob("*.html"):
        shown = path.read_text(encoding="utf8").replace("<wbr>", "")
        words = re.sub(
            r"<(script|style|pre|code|math).*?</\1>|<[^>]*>", "", shown[shown.find("<article") :], flags=re.S
        )
        assert not re.search(r"(?<!\w)\w[_^](?:\w(?!\w)|heter|corr|mix|[{(])|‖", words), path.name
    labels = (site[1] / "paper-map.html").read_text(encoding="utf8").replace("<wbr>", "")
    assert "<td>th:2nd_moment_no_cv_constants</td>" in labels


def test_a_theorem_leads_to_its_row_of_the_theory_map(site):
    """And the anchors exist, or the build would have failed."""
    theory, table = ((site[1] / f"{name}.html").read_text(encoding="utf8") for name in ("theory", "paper-map"))
    assert '<a href="paper-map.html#theorem-4.1">Theorem 4.1</a>' in theory
    assert '<span id="theorem-4.1">Theorem 4.1</span>' in table
    assert re.findall(r'href="paper-map.html">(?:Theorem|Lemma|Corollary)', theory) == []


def test_search_has_its_index_as_a_script_for_pages_opened_from_the_disk(site):
    folder = site[1] / "search"
    index = (folder / "search_index.json").read_text(encoding="utf8")
    assert (folder / "search_index.js").read_text(encoding="utf8") == f"var __index = {index}"
    assert 'src="../search.js"' in (site[1] / "api" / "index.html").read_text(encoding="utf8")
