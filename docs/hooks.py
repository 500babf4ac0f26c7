"""What MkDocs is told beyond mkdocs.yml, so that pages written for a repository's browser read well on the site."""

import csv
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

from fedlsa.mathml import INLINE, inline, mathml

OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")
TABLE = re.compile(r"^\[([^\]]+)\]\(([\w./-]+\.csv)\)$", re.M)
PLAY = re.compile(r"^\[([^\]]+)\]\((play/index\.html)\)$", re.M)
FRAME = r'<iframe class="play" src="\2?embed" title="\1" loading="lazy"></iframe>'
IMAGE = re.compile(r'<img([^>]*)src="(images/[^"]+\.png)"')
NAMED = re.compile(
    r"\b(?:(?:Theorem|Lemma|Corollary|Claim) [A-H\d]\.\d+|Assumption (?:A|TD|UGE)\d+|(?:Algorithm|Figure|Table) \d+)\b"
)
ITEM = re.compile(rf"\[({NAMED.pattern})\]\(paper-map\.md\)")
FORMULA = re.compile(r"^\$\$(.*?)\$\$$", re.S | re.M)
ARGUMENT = re.compile(r"\n(?=\*{0,2}\w+(?:, \*{0,2}\w+)* : )|\n(?=Returns? )")


class Examples(Preprocessor):
    """An example of a docstring, from `>>>` to the next empty line, is code."""

    def run(self, lines: list[str]) -> list[str]:
        out, inside = [], False
        for line in [*lines, ""]:
            if line.startswith(">>> ") and not inside:
                out, inside = [*out, "```python"], True
            elif inside and not line.strip():
                out, inside = [*out, "```"], False
            out.append(line)
        return out


class Formula(InlineProcessor):
    """A formula in a sentence, `$x^2$`."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:
        return self.md.htmlStash.store(inline(m)), m.start(), m.end()


class OwnMarkdown(Extension):
    """Markdown that knows both: examples before fences are read, formulas after code and before all else in a line."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(Examples(md), "examples", 100)
        md.inlinePatterns.register(Formula(INLINE, md), "formula", 185)


def on_config(config: Any, **_: Any) -> None:
    """Docstrings are read with the extensions of pages."""
    config.markdown_extensions.append(OwnMarkdown())


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Formulas are drawn, a line that is a link to a .csv file is its table, and one to play/ has its picture above it.

    `[Theorem 4.1](paper-map.md)` leads to its row of the map.

    `[text](../src/file.py)`, a link in the repository, becomes text: the site has no such page.

    Pages in a folder of docs/ link to their neighbours with `../`, so only those at the top are changed.
    """
    if "/" in page.file.src_uri:
        return markdown
    markdown = TABLE.sub(lambda found: f"{found[1]}:\n\n{table(Path(__file__).parent / found[2])}", markdown)
    markdown = ITEM.sub(lambda found: f"[{found[1]}](paper-map.md#{anchor(found[1])})", markdown)
    markdown = FORMULA.sub(lambda found: f'<div class="formula">{mathml(found[1])}</div>', markdown)
    markdown = PLAY.sub(rf"{FRAME}\n\n\g<0>", markdown)
    return OUTSIDE.sub(_as_text, markdown)


def table(path: Path) -> str:
    """A .csv file in Markdown; a first column `section` becomes headings, items of the paper lead to the theory map."""
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    if "item" in head:
        at = head.index("item")
        rows = [[*row[:at], f'<span id="{anchor(row[at])}">{row[at]}</span>', *row[at + 1 :]] for row in rows]
    else:
        rows = [[NAMED.sub(r"[\g<0>](paper-map.md)", cell) for cell in row] for row in rows]
    if head[0] != "section":
        return _rows(head, rows)
    parts = [(name, [row[1:] for row in part]) for name, part in groupby(rows, key=lambda row: row[0])]
    return "\n\n".join(f"## {name}\n\n{_rows(head[1:], part)}" for name, part in parts)


def anchor(item: str) -> str:
    """The name of an item's row in the theory map."""
    return item.lower().replace(" ", "-")


def _rows(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _as_text(link: re.Match[str]) -> str:
    text, path = link[1], link[2].removeprefix("../")
    return f"`{path}`" if path.endswith(text.rstrip("/")) else f"{text} (`{path}`)"


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Pictures have their size, a docstring's arguments have a line each.

    Long names in tables break after a sign.
    """
    if "/" in page.file.src_uri:
        return re.sub(r"<p>.*?</p>", lambda found: ARGUMENT.sub("<br>", found[0]), html, flags=re.S)
    html = IMAGE.sub(_at_half_size, html)
    return re.sub(r"<t[dh][ >].*?</t[dh]>", _breakable, html, flags=re.S)


def _at_half_size(image: re.Match[str]) -> str:
    """Two pixels of the file for one of the page: crisp on fine screens, and nothing jumps while pictures load."""
    head = (Path(__file__).parent / image[2]).read_bytes()[16:24]
    width, height = (int.from_bytes(head[i : i + 4], "big") // 2 for i in (0, 4))
    return f'<img{image[1]}src="{image[2]}" width="{width}" height="{height}"'


def _breakable(cell: re.Match[str]) -> str:
    parts = re.split(r"(<[^>]+>)", cell[0])
    parts[::2] = [re.sub(r"(?<=\w)(?<!\bfl)(::?|[/._])(?=[^\W\d])", r"\1<wbr>", text) for text in parts[::2]]
    return "".join(parts)


def on_post_build(config: Any, **_: Any) -> None:
    """The search index as a script, which pages opened from the disk can read (see search.js); a way home."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
    play = Path(config.site_dir) / "play" / "index.html"
    text = play.read_text(encoding="utf-8")
    play.write_text(text.replace("<!-- the site's link -->", '<a href="../index.html">fedlsa</a>'), encoding="utf-8")
