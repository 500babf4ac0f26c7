"""The gallery: one picture for each method of the field, drawn by the script, small."""

from __future__ import annotations

import re

from test_theory_page import DOCS, script

import fedlsa as fl
from fedlsa.algorithms import FAMILY, METHODS

TEXT = (DOCS / "gallery.md").read_text(encoding="utf8")


def test_every_method_of_the_field_has_a_small_picture_that_the_script_draws() -> None:
    drawing = script("make_gallery_pictures")
    linked = re.findall(r"!\[[^\]]+\]\((images/[^)]+)\)", TEXT)
    assert linked == [f"images/gallery-{name}.svg" for name in drawing.METHODS]
    assert {type(method) for method in drawing.METHODS.values()} == {k for n, k in FAMILY.items() if n not in METHODS}
    for picture in linked:
        assert 0 < (DOCS / picture).stat().st_size < 60_000
        assert "python docs/make_gallery_pictures.py" in (DOCS / picture).read_text(encoding="utf8")


def test_the_page_says_the_settings_of_the_script_and_is_short() -> None:
    drawing = script("make_gallery_pictures")
    assert drawing.instance() == fl.problems.ring(agents=6)
    assert f"{drawing.H} local steps of\nsize {drawing.ETA}" in TEXT
    assert f"middle 80% of {drawing.SEEDS} seeds" in " ".join(TEXT.split())
    assert len(re.sub(r"!\[.*", "", TEXT).split()) <= 300  # beside the pictures
