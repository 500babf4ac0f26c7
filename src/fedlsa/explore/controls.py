"""The sliders and choices of the page, and settings from their values.

They come in groups, each a dictionary that marimo watches: a cell that shows a group and makes it is not run again when
one of its sliders moves, so that nothing is drawn anew under the reader's finger.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import marimo as mo
from marimo._plugins.ui._core.ui_element import UIElement  # the base of all of mo.ui; it has no other address

from .page_settings import SETTINGS, PageSettings
from .uploads import Sites

SCRIPT = Path(__file__).with_name("controls.js")
OF_METHOD = ("step_size", "local_steps", "rounds", "sampling", "thin", "own", "probability")
OF_VIEW = ("x", "scale", "seeds")


class OwnControl(UIElement[Any, Any]):  # type: ignore[misc]
    """An element of controls.js; about : what it shows, on_change : called with its new value."""

    def __init__(self, tag: str, value: Any, on_change: Callable[[Any], None] | None = None, **about: Any) -> None:
        super().__init__(tag, value, None, on_change, about)

    def _convert_value(self, value: Any) -> Any:
        return value


def script() -> Any:
    """What makes the elements of controls.js work, on the page and in a notebook of the user's own."""
    return mo.Html(f'<script src="data:text/javascript;base64,{b64encode(SCRIPT.read_bytes()).decode()}"></script>')


class PageHistory:
    """The page's steps, which the browser's Back undoes: a chosen problem, a reset, a plan that is used.

    entry : counts them; put : shows settings on the page
    """

    def __init__(self, put: Callable[[PageSettings], None]) -> None:
        self.entry, self._put = 0, put
        self.back = OwnControl("marimo-fedlsa-back", None, self._go)

    def begin(self, s: PageSettings) -> None:
        """Another step, from these settings on."""
        self.entry += 1
        self._put(s)

    def _go(self, to: Mapping[str, Any]) -> None:
        """To the step that the browser has gone to; query : the address's settings."""
        self.entry = int(to["entry"])
        self._put(PageSettings.from_query(dict(parse_qsl(str(to["query"]).removeprefix("?"))))[0])

    def address(self, s: PageSettings) -> Any:
        """Puts the settings into the page's address."""
        shown = f'data-query="{escape(s.address())}" data-entry="{self.entry}"'
        return mo.Html(f"<marimo-fedlsa-address {shown}></marimo-fedlsa-address>")


def problem_choice(s: PageSettings, steps: PageHistory) -> Any:
    """The choice of the problem; another one begins at settings of its own."""
    return _control(s, "problem", on_change=lambda kind: steps.begin(PageSettings.start(kind)))


def reset_button(problem: str, steps: PageHistory) -> Any:
    """Back to where the problem began."""
    return mo.ui.button(label="Reset", on_change=lambda _: steps.begin(PageSettings.start(problem)))


def target_choice(s: PageSettings, sites: Sites) -> Any:
    """The column to be explained, among those of the files that hold numbers."""
    numbers = [name for name in sites.columns if name not in sites.texts]
    if not numbers:
        return _control(s, "target")
    value = s.target if s.target in numbers else numbers[-1]
    return mo.ui.dropdown(numbers, value=value, label=SETTINGS["target"].metadata["label"], full_width=True)


def column_choice(s: PageSettings, sites: Sites, target: str | None) -> Any:
    """The columns that explain the target: numbers as they are, text as categories."""
    offered = {_shown_column(name): name for name in explaining(sites, target)}
    chosen = [name for name in s.columns.split(",") if name in offered.values()]
    chosen = chosen or [name for name in offered.values() if not name.startswith("C(")]
    shown = [text for text, name in offered.items() if name in chosen]
    return mo.ui.multiselect(offered, value=shown, label=SETTINGS["columns"].metadata["label"], full_width=True)


def _shown_column(name: str) -> str:
    return f"{name[2:-1]} (categories)" if name.startswith("C(") else name


def explaining(sites: Sites, target: str | None) -> list[str]:
    """The columns that may explain the target, C(name) for text; a name that a list cannot hold is left out."""
    names = [name for name in sites.columns if name != target and not set(",`") & set(name)]
    return [f"C({name})" if name in sites.texts else name for name in names]


def columns_text(chosen: Sequence[str], sites: Sites, target: str | None) -> str:
    """The chosen columns as a setting: "" where they are all others than the target, numbers all of them."""
    everything = explaining(sites, target)
    whole = sites.complete and len(everything) == len(sites.columns) - 1 and not sites.texts
    return "" if whole and list(chosen) in ([], everything) else ",".join(chosen)


def group(s: PageSettings, names: Sequence[str]) -> Any:
    """Controls of those names at the values of s, as one dictionary that marimo watches."""
    return mo.ui.dictionary({name: _control(s, name) for name in names})


def settings(
    problem: str, target: str | None, columns: str, groups: Sequence[Mapping[str, Any]], otherwise: PageSettings
) -> tuple[PageSettings, str]:
    """The settings that the controls show, or others and why these cannot be; target, columns : of files."""
    named = {name: value for values in groups for name, value in values.items()}
    if not named.pop("own"):
        named["probability"] = None
    try:
        return PageSettings(problem=problem, target=target or "", columns=columns, **named), ""
    except ValueError as error:
        return otherwise, str(error)


def _control(s: PageSettings, name: str, **more: Any) -> Any:
    """The control of one setting, at its value in s; more : for the element of marimo."""
    if name == "own":
        return mo.ui.switch(s.probability is not None, label="Scaffnew at a rate of its own")
    about = SETTINGS[name].metadata
    element, offers = about["element"], about["offers"]
    value = s.chance if name == "probability" else getattr(s, name)
    if element == "slider":
        return OwnControl("marimo-fedlsa-slider", value, name=about["label"], steps=list(offers), unit=about["unit"])
    if element == "number":
        more |= {"start": offers[0], "stop": offers[-1], "step": 1}
    elif element in ("dropdown", "radio"):
        more["options"] = {text: key for key, text in offers.items()}
        value = offers[value]
    if element == "radio":
        more["inline"] = True
    elif element in ("dropdown", "text"):
        more["full_width"] = True
    return getattr(mo.ui, element)(value=value, label=about["label"], **more)
