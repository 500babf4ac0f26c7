"""What MkDocs is told beyond mkdocs.yml: links to files outside docs/ read as plain text on the site."""

import re
from typing import Any

OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """`[text](../src/file.py)`, a link in the repository, becomes text and `src/file.py`: the site has no such page.

    Pages in a folder of docs/ link to their neighbours with `../`, so only those at the top are changed.
    """
    if "/" in page.file.src_uri:
        return markdown
    return OUTSIDE.sub(lambda link: f"{link[1]} (`{link[2].removeprefix('../')}`)", markdown)
