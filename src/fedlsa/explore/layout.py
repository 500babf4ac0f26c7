"""Small pieces of the page's look that panels share."""

from __future__ import annotations

import html
import re
from typing import Any

import marimo as mo

BARE = {"displayModeBar": False, "responsive": True}  # pictures without Plotly's own buttons


def box(kind: str, *parts: Any) -> Any:
    """Parts in a row of the kind that explore.css knows."""
    return mo.Html(f'<div class="explore-{kind}">{"".join(f"<div>{mo.as_html(p).text}</div>" for p in parts)}</div>')


def plain(text: str) -> str:
    """Text from files, links and errors as Markdown that shows it letter by letter."""
    return re.sub(r"([\\`*_\[\]$|#~])", r"\\\1", html.escape(text, quote=False))


def code(text: str) -> Any:
    """Lines to copy: Python, or a command."""
    kind = "python" if text.startswith("import") else "bash"
    return mo.md(f"```{kind}\n{text}\n```")
