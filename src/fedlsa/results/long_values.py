"""Long attributes of datasets, which print short: a notebook shows a screen of a result, not megabytes of its problem.

xarray prints every attribute in full. A text or a list that is longer than `SHOWN` letters is therefore held in a tuple
or list that prints its beginning. Both are copied, pickled, compared and written to netCDF like any other attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHOWN = 1000  # letters of an attribute that are printed; a result has about ten attributes
BEGINNING = 150  # of these, where there are more


class LongText(tuple[str]):
    """A long text, whole in `text`; equal to any text of the same letters.

    Not a str: xarray prints all of one, and h5py does not write what is derived from it.
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        """All of it."""
        return self[0]

    def __repr__(self) -> str:
        return f"{self.text[:BEGINNING]}... ({len(self.text):,} letters: .text)"

    def __eq__(self, other: object) -> bool:
        return self.text == (other.text if isinstance(other, LongText) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)


class LongList(list[Any]):
    """A list of many numbers that prints the first of them."""

    def __repr__(self) -> str:
        beginning = ", ".join(map(str, self[:6]))[:BEGINNING]
        return f"[{beginning}, ... ({len(self):,} in all)]"


def abridged(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The same attributes, of which the long ones print short."""
    return {name: _abridged(value) for name, value in attributes.items()}


def _abridged(value: Any) -> Any:
    if isinstance(value, str):
        return LongText([value]) if len(value) > SHOWN else value
    return LongList(value) if isinstance(value, list) and len(str(value)) > SHOWN else value


def whole(text: Any) -> Any:
    """A text as it is, long or not."""
    return text.text if isinstance(text, LongText) else text
