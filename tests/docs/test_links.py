"""Links lead to files and headings that exist; every picture is shown, described, and made by a command."""

import re
import unicodedata
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
IMAGES = sorted((ROOT / "docs" / "images").iterdir())
PIXELS = [i for i in IMAGES if i.suffix != ".svg"]  # lines have none; test_gallery_page.py says who drew them


def prose(page: Path) -> str:
    """The page without its code."""
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf8"), flags=re.S | re.M)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as both the site and a repository's browser make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf8"), flags=re.S | re.M)
    names = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = unicodedata.normalize("NFKD", heading.replace("`", "")).encode("ascii", "ignore").decode()
        names.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_of_the_repository(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            assert link.startswith("https://"), link
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_the_walk_sees_links_and_headings() -> None:
    assert sum(len(LINK.findall(prose(page))) for page in PAGES) > 100
    assert "where-the-papers-statements-are-corrected" in anchors(ROOT / "docs" / "theory.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_picture_is_described(page: Path) -> None:
    assert [file for words, file in PICTURE.findall(prose(page)) if len(words.split()) < 2] == []


SCREENS = {"explore": "docs/make_explorer_pictures.py", "network": "docs/make_network_screens.py"}


@pytest.mark.parametrize("image", PIXELS, ids=lambda p: p.name)
def test_a_picture_says_by_which_command_of_the_repository_it_was_made(image: Path) -> None:
    with Image.open(image) as picture:
        source = picture.info.get("Source")  # figures.save leaves it in the file; a screenshot has none
    if source is None:
        source = f"python {SCREENS[image.name.partition('-')[0].removesuffix('.png')]}"
    command, what, *_ = source.split()
    assert (command, what) == ("make", "demo") or (command == "python" and (ROOT / what).is_file())


@pytest.mark.parametrize("image", [i for i in PIXELS if not i.name.startswith("explore")], ids=lambda p: p.name)
def test_a_picture_has_two_pixels_for_each_of_a_column_of_840(image: Path) -> None:
    with Image.open(image) as picture:
        assert picture.width >= 1680


@pytest.mark.parametrize("image", IMAGES, ids=lambda p: p.name)
def test_every_picture_is_shown_on_a_page(image: Path) -> None:
    shown = {(page.parent / file).resolve() for page in PAGES for _, file in PICTURE.findall(prose(page))}
    assert image in shown
