"""The sliders and choices of the page, and settings from their values.

They come in groups, each a dictionary that marimo watches: a cell that shows a group and makes it is not run again when
one of its sliders moves, so that nothing is drawn anew under the reader's finger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import marimo as mo

from .page_settings import SETTINGS, PageSettings

OF_METHOD = ("step_size", "local_steps", "rounds", "sampling", "thin", "own", "probability")
OF_VIEW = ("x", "scale", "seeds")


def problem_choice(s: PageSettings, put: Callable[[PageSettings], None]) -> Any:
    """The choice of the problem; another one begins at settings of its own."""
    return _control(s, "problem", on_change=lambda kind: put(PageSettings.start(kind)))


def target_choice(s: PageSettings, columns: Sequence[str]) -> Any:
    """The column to be explained, among those of the files."""
    if not columns:
        return _control(s, "target")
    value = s.target if s.target in columns else columns[-1]
    return mo.ui.dropdown(list(columns), value=value, label=SETTINGS["target"].metadata["label"], full_width=True)


def group(s: PageSettings, names: Sequence[str]) -> Any:
    """Controls of those names at the values of s, as one dictionary that marimo watches."""
    return mo.ui.dictionary({name: _control(s, name) for name in names})


def settings(
    problem: str, target: str | None, groups: Sequence[Mapping[str, Any]], otherwise: PageSettings
) -> tuple[PageSettings, str]:
    """The settings that the controls show, or others and why these cannot be; target : the column that is chosen."""
    named = {name: value for values in groups for name, value in values.items()}
    if not named.pop("own"):
        named["probability"] = None
    try:
        return PageSettings(problem=problem, target=target or "", **named), ""
    except ValueError as error:
        return otherwise, str(error)


def _control(s: PageSettings, name: str, **more: Any) -> Any:
    """The control of one setting, at its value in s; more : for the element of marimo."""
    if name == "own":
        return mo.ui.switch(s.probability is not None, label="Scaffnew at a rate of its own")
    about = SETTINGS[name].metadata
    element, offers = about["element"], about["offers"]
    value = s.chance if name == "probability" else getattr(s, name)
    if element == "slider":  # a value from elsewhere (a link, a plan) gets a place of its own on it
        more |= {"steps": sorted({*offers, value}), "show_value": True}
    elif element == "number":
        more |= {"start": offers[0], "stop": offers[-1], "step": 1}
    elif element in ("dropdown", "radio"):
        more["options"] = {text: key for key, text in offers.items()}
        value = offers[value]
    if element == "radio":
        more["inline"] = True
    elif element in ("slider", "dropdown", "text"):
        more["full_width"] = True
    return getattr(mo.ui, element)(value=value, label=about["label"], **more)
