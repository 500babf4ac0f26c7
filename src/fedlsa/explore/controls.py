"""The sliders and choices of the page, and settings from their values.

Sliders are elements of controls.js, whose values come by a text field of marimo's, out of sight. Choices come in
groups, dictionaries that marimo watches. A cell that makes and shows a group is not run again when the reader chooses,
so that nothing is drawn anew under the finger.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import marimo as mo

from .. import pages
from ..errors import FedLSAError
from .open_page import OpenPage
from .page_settings import OF_PROBLEM, SETTINGS, PageSettings, column_name, column_term, join_names, split_names
from .uploads import Sites

SLIDERS = [name for name, about in SETTINGS.items() if about.metadata["element"] in ("slider", "cursor")]
OF_METHOD = ("step_size", "local_steps", "rounds", "sampling", "thin", "probability")
OF_VIEW = ("x", "scale", "seeds")


def scripts() -> Any:
    """The scripts of the page for a notebook that is being edited, where marimo leaves out the page's head."""
    if mo.app_meta().mode != "edit":
        return mo.Html("")
    texts = [*pages.scripts("scene").values(), Path(__file__).with_name("controls.js").read_text(encoding="utf-8")]
    coded = [b64encode(text.encode()).decode() for text in texts]
    return mo.Html("".join(f'<script src="data:text/javascript;base64,{text}"></script>' for text in coded))


def carrier(of: str, field: Any) -> Any:
    """The element of controls.js that holds a field; of : what the field carries."""
    return mo.Html(f'<marimo-fedlsa-carrier data-of="{of}">{field.text}</marimo-fedlsa-carrier>')


def element(kind: str, **about: Any) -> Any:
    """An element of controls.js; about : what it shows."""
    return mo.Html(f'<marimo-fedlsa-{kind} data-about="{escape(json.dumps(about))}"></marimo-fedlsa-{kind}>')


class PageHistory:
    """The page's steps, which the browser's Back undoes: a chosen problem, a reset, a plan or a place that is used.

    entry : counts them; put : shows settings on the page
    message : carries where the reader wants to go
    """

    def __init__(self, put: Callable[[PageSettings], None], page: OpenPage) -> None:
        self.entry, self._put, self._page = 0, put, page
        self.message = mo.ui.text(debounce=False, on_change=lambda text: self.go(json.loads(text)))

    def begin(self, s: PageSettings) -> None:
        """Another step, from these settings on."""
        self.entry += 1
        self._put(s)

    def go(self, to: Mapping[str, Any]) -> None:
        """To the step that the browser has gone to, whose address has this query, or to a place of the map."""
        if "entry" in to:
            self.entry = int(to["entry"])
            self._put(PageSettings.from_query(dict(parse_qsl(str(to["query"]).removeprefix("?"))))[0])
        else:
            chosen: dict[str, Any] = {"step_size": float(to["step_size"]), "local_steps": int(to["local_steps"])}
            assert self._page.question is not None
            self.begin(replace(self._page.question.page, sampling="iid", probability=None, **chosen))

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
    offered = {_shown_column(term, sites): term for term in explaining(sites, target)}
    chosen = [term for term in split_names(s.columns) if term in offered.values()]
    chosen = chosen or [term for term in offered.values() if not column_name(term)[1]]
    shown = [text for text, term in offered.items() if term in chosen]
    return mo.ui.multiselect(offered, value=shown, label=SETTINGS["columns"].metadata["label"], full_width=True)


def _shown_column(term: str, sites: Sites) -> str:
    name, text = column_name(term)
    shown = f"{name} (categories)"
    return name if not text else f"{name}, in categories" if shown in sites.columns else shown


def explaining(sites: Sites, target: str | None) -> list[str]:
    """The columns that may explain the target, as terms of a setting."""
    return [column_term(name, name in sites.texts) for name in sites.columns if name != target]


def columns_text(chosen: Sequence[str], sites: Sites, target: str | None) -> str:
    """The chosen columns as a setting: "" where they are all others than the target, numbers all of them."""
    everything = explaining(sites, target)
    whole = sites.complete and not sites.texts
    return "" if whole and list(chosen) in ([], everything) else join_names(chosen)


def sliders(s: PageSettings) -> Any:
    """The field that carries the values of all sliders, from those of s on."""
    return mo.ui.text(json.dumps({name: getattr(s, name) for name in SLIDERS}), debounce=False)


def newest(text: str, page: OpenPage) -> dict[str, Any]:
    """The values of the sliders, from their field, unless newer ones have been there: messages overtake each other."""
    values = json.loads(text)
    sent = values.pop("sent", None)  # none: they begin anew
    if sent is None or sent > page.sent:
        page.values, page.sent = values, page.sent if sent is None else sent
    return page.values


def group(s: PageSettings, names: Sequence[str]) -> Any:
    """Choices among those names at the values of s, as one dictionary that marimo watches."""
    return mo.ui.dictionary({name: _control(s, name) for name in names if name not in SLIDERS})


def show(group: Mapping[str, Any], *names: str) -> list[Any]:
    """Sliders, and choices of a group."""
    return [_slider(name, SETTINGS[name].metadata) if name in SLIDERS else group[name] for name in names]


def _slider(name: str, about: Mapping[str, Any]) -> Any:
    return element("slider", name=name, label=about["label"], steps=list(about["offers"]), unit=about["unit"])


def settings(
    problem: str, target: str | None, columns: str, values: Sequence[Mapping[str, Any]], otherwise: PageSettings
) -> tuple[PageSettings, list[str]]:
    """The settings that the controls show, and a line for each value that cannot be, instead of which the one of
    `otherwise` counts; target, columns : of files."""
    of_others = {name for names in OF_PROBLEM.values() for name in names} - {*OF_PROBLEM[problem]}
    named = {name: value for group in values for name, value in group.items() if name not in of_others}
    read: dict[str, Any] = {"target": target or "", "columns": columns} if problem == "files" else {}
    chosen, complaints = PageSettings(problem=problem, **read), list[str]()
    with suppress(FedLSAError):
        return replace(chosen, **named), complaints
    for name, value in named.items():  # to find those that cannot be
        try:
            chosen = replace(chosen, **{name: value})
        except FedLSAError as error:
            chosen = replace(chosen, **{name: getattr(otherwise, name)})
            complaints.append(str(error))
    return chosen, complaints


def _control(s: PageSettings, name: str, **more: Any) -> Any:
    """The control of one setting, at its value in s; more : for the element of marimo."""
    about = SETTINGS[name].metadata
    kind, offers = about["element"], about["offers"]
    value = getattr(s, name)
    if kind == "number":
        more |= {"start": offers[0], "stop": offers[-1], "step": 1}
    elif kind in ("dropdown", "radio"):
        more["options"] = {text: key for key, text in offers.items()}
        value = offers[value]
    if kind == "radio":
        more["inline"] = True
    elif kind in ("dropdown", "text"):
        more["full_width"] = True
    return getattr(mo.ui, kind)(value=value, label=about["label"], **more)
