"""What all sites make features of: columns in one order, and the levels of categories, agreed before a run.

Each site describes its own. The coordinator joins them, matched by name, and sends the same back to all: it is part of
the orders for sums, whose digests label the sites' masks, so that sites that were told different designs have no sum.
A site holds what comes back against its own table before it uses it (`chosen`).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from ...errors import MessageError, SiteDataError
from ...fit.rows.columns import Columns
from ...fit.rows.levels import MAX_LEVELS, Levels, agree_levels, kind_of
from ...fit.tasks import Regression, Task
from .records import printable

MAX_LENGTH = 200  # characters of a level
LEVEL_KINDS = (str, int, float, bool)


@dataclass(frozen=True)
class AgreedDesign:
    """columns : of the features or states, in the order of the coefficients; levels : of each categorical column."""

    columns: tuple[str, ...]
    levels: Levels = ()

    def text(self) -> str:
        """JSON, for the wire: one text for one design."""
        return json.dumps({"columns": self.columns, "levels": self.levels}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str, what: str = "design") -> Self:
        """What `text` wrote, read strictly: anything else is a MessageError; what : the field, for errors."""
        try:
            said = json.loads(text)
            levels = tuple((_text(column), tuple(map(_level, listed))) for column, listed in said["levels"])
            out = cls(tuple(map(_text, said["columns"])), levels)
            if not out.columns or len({*out.columns}) < len(out.columns):
                raise ValueError("columns must be named once each")
            if len({column for column, _ in levels}) < len(levels):
                raise ValueError("levels must be those of different columns")
            for column, listed in levels:
                if (
                    not 0 < len(listed) <= MAX_LEVELS
                    or len({*listed}) < len(listed)
                    or len({*map(kind_of, listed)}) > 1
                ):
                    rule = f"must have 1 to {MAX_LEVELS} levels, of one kind and different"
                    raise ValueError(f"{printable(column)!r} {rule}; it has {len(listed)}")
            if out.text() != text:
                raise ValueError("it is written in another way")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MessageError(f"{what!r} must be columns and levels as this version has them: {error}") from None
        return out

    @classmethod
    def of(cls, own: Columns) -> Self:
        """What a site has by itself."""
        return cls(own.state, own.levels)

    def chosen(self, own: Columns, task: Task) -> Columns:
        """The columns of a site as the run reads them; own : as its table has them. Others are a MessageError."""
        free = isinstance(task, Regression) and task.columns is None and task.formula is None  # else it has an order
        if self.columns != own.state and not (free and sorted(self.columns) == sorted(own.state)):
            raise MessageError("'design' must have the columns that this site has; it has others")
        agreed = dict(self.levels)
        if [column for column, _ in self.levels] != [column for column, _ in own.levels]:
            raise MessageError("'design' must have levels of the columns that are categories here; it has others")
        for column, levels in own.levels:
            known = {(type(level), level) for level in agreed[column]}  # for 1, 1.0 and True are one to Python
            if any((type(level), level) not in known for level in levels):
                raise MessageError(f"'design' must have all levels of {column!r} that this site has; one is missing")
        return replace(own, state=self.columns, levels=self.levels)


def common_design(described: Sequence[AgreedDesign], sites: Sequence[str]) -> AgreedDesign:
    """The design of all sites, in the first one's order; columns that do not fit together are a SiteDataError."""
    first = described[0]
    for said, site in zip(described, sites, strict=True):
        for mine, other, lacks, has in ((first, said, site, sites[0]), (said, first, sites[0], site)):
            for column in (c for c in mine.columns if c not in other.columns):
                rule = f"{lacks} lacks the column {printable(column)!r} that {has} has"
                raise SiteDataError(f"{rule}; add it there, or name the columns of the task")
    return AgreedDesign(first.columns, agree_levels({s: dict(d.levels) for s, d in zip(sites, described, strict=True)}))


def look_alikes(design: AgreedDesign) -> list[str]:
    """Levels that differ in case, spaces or the writing of a letter alone, and count as two: a sentence each."""
    out = []
    for column, levels in design.levels:
        seen: dict[str, str] = {}
        for level in (x for x in levels if isinstance(x, str)):
            other = seen.setdefault(" ".join(unicodedata.normalize("NFKC", level).casefold().split()), level)
            if other != level:
                pair = f"{ascii(other)[:80]} and {ascii(level)[:80]}"
                out.append(f"{printable(column)!r} has the levels {pair}, which look alike and count as two")
    return out


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_LENGTH:
        raise ValueError(f"names must be texts of at most {MAX_LENGTH} characters")
    value.encode()  # half of a pair of surrogates is no text
    return value


def _level(value: Any) -> Any:
    if type(value) not in LEVEL_KINDS or value != value or value in (float("inf"), -float("inf")):
        raise ValueError("levels must be texts, numbers or truth values")
    return _text(value) if type(value) is str else value
