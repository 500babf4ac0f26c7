"""From a block of a site to the rows that coefficients are multiplied with: columns, or what a formula makes of them.

The levels of categories are agreed by all sites before: each gives the levels that it has, never a row. Then every site
codes them alike, whatever it lacks. formulaic says which columns a term has and how a contrast codes its levels; each
term is then a table, with a row for each combination of its levels, times the numbers of the term.

Levels are text, numbers, or true and false; whole numbers are integers, whatever a file makes of them. A column is a
category by itself where it holds text, or true and false, or has a categorical type; numbers are one in C(column).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SiteDataError
from .formulas import READERS, FormulaFactor, ParsedFormula, kind_of, parse_formula, plain_level, typed_labels
from .tables import ColumnBlock, DataTable, MissingRows, distinct, drop_incomplete, is_missing, listed
from .tasks import Regression, Task

MAX_LEVELS = 1000  # of a category
MAX_COLUMNS = 4096  # of a formula: beyond, its tables and the system itself would fill the memory
Levels = tuple[tuple[str, tuple[Any, ...]], ...]  # of each categorical column


class WrittenText(str):
    """A level as a file has it that does not declare what its columns hold, such as CSV."""

    __slots__ = ()


def level_codes(levels: Sequence[Any], column: str, block: ColumnBlock, at: NDArray[np.intp]) -> NDArray[np.intp]:
    """(k,): places of the labels of some rows among the levels, as which text is read."""
    read = READERS.get(kind_of(levels[0]), str)
    place = {(isinstance(level, bool), level): j for j, level in enumerate(levels)}  # for 1 and True are one key
    codes, found = _factorized(column, block, at)
    known = [read(level) if isinstance(level, str) else level for level in found]
    places = np.array([place.get((isinstance(level, bool), level), -1) for level in known], np.intp)
    if len(places) and places.min() < 0:
        new = int(np.argmin(places))
        i = int(at[np.argmax(codes == new)])
        rule = f"{block.site(i)}: column {column!r} must have a level that the model knows"
        raise SiteDataError(f"{rule}; got {found[new]!r} in row {block.row(i)} of the data; {list_levels(levels)}")
    return places[codes]


def level_counts(
    table: DataTable, task: Task, others: Sequence[str] = (), missing: MissingRows | None = None
) -> dict[str, dict[Any, int]]:
    """The levels that a table has of each column that is a category there, and how many rows have each; none where a
    task has no formula. They are in the order that the formula lists, else in that of the column's type, else sorted.

    Categories are columns in C() of a formula, and columns of text or of true and false that a formula names.
    others : further columns of labels, whose missing values leave rows out as well
    missing : counts these rows where the table is part of another: a column without any value, which others may have,
        is then a category without a level
    """
    if not isinstance(task, Regression) or task.formula is None:
        return {}
    parsed = parse_formula(task.formula)
    columns = _categories(table, parsed, missing is not None)
    found: dict[str, Counter[Any]] = {c: Counter() for c in columns}
    blocks = table.blocks((), labels=columns)
    if task.missing == "drop":  # without the rows that a fit leaves out, whose levels no other row may have
        more = [c for c in (task.row_weights, task.offset) if c is not None]
        numbers = dict.fromkeys([*parsed.target.columns, *(c for c in parsed.columns if c not in columns), *more])
        every = table.blocks(tuple(numbers), labels=tuple(dict.fromkeys([*columns, *others])))
        blocks = (block for block, _ in drop_incomplete(every, missing or MissingRows(table.sites), True))
    for block in blocks if columns else ():
        for column, counts in found.items():
            at = np.flatnonzero(~is_missing(block.labels[column]))
            if column in parsed.listed:
                levels = list(parsed.listed[column])
                codes = level_codes(levels, column, block, at)
            else:
                codes, levels = _factorized(column, block, at)
                levels = [WrittenText(level) for level in levels] if column in table.untyped else levels
            times = np.bincount(codes, minlength=len(levels)).tolist()
            counts.update({level: n for level, n in zip(levels, times, strict=True) if n})
        if max(map(len, found.values())) > MAX_LEVELS:
            break
    for column, counts in found.items():
        check_levels({table.name: counts}, column)
    out = {}
    for column, counts in found.items():
        declared = {**table.categories, **parsed.listed}.get(column)
        place = {level: j for j, level in enumerate(declared or ())}
        levels = sorted(counts, key=lambda level: (place.get(level, len(place)), level))
        out[column] = {level: counts[level] for level in levels}
    return out


def _categories(table: DataTable, parsed: ParsedFormula, is_part: bool = False) -> list[str]:
    """The columns in C() of a formula, and those of text or of true and false, in a part of a table perhaps of them."""
    known = parsed.marked | table.categories.keys()
    holds = table.which_are_categories([c for c in parsed.candidates if c not in known])
    for column in (c for c, category in holds.items() if category is None and table.rows != 0):
        if is_part:
            holds[column] = True
            continue
        rule = f"{table.name}: column {column!r} must have a value in some row"
        raise SiteDataError(f"{rule}; all are missing, so that it is neither a number nor a category")
    return [c for c in parsed.candidates if c in known or holds[c]]


def agreed_levels(tables: Sequence[DataTable], task: Regression, others: Sequence[str] = ()) -> Levels:
    """The levels that any of these tables has, of each category of a formula, from a pass over their rows."""
    listed = parse_formula(str(task.formula)).listed
    found = {table.name: level_counts(table, task, others) for table in tables}
    members = [member for table in tables for member in table.members or (table,)]
    return agree_levels(found, {member.name: {**member.categories, **listed} for member in members})


def agree_levels(
    found: Mapping[str, Mapping[str, Iterable[Any]]],
    declared: Mapping[str, Mapping[str, Sequence[Any] | None]] | None = None,
) -> Levels:
    """The levels that any site has, of each category: sorted where all sites have them so, else in an order that keeps
    every site's. found : what `level_counts` gives, by the sites' names; declared : orders that are known beyond that

    >>> from fedlsa.fitting.design import agree_levels
    >>> agree_levels({"north": {"region": ("a", "c")}, "south": {"region": ("b", "c")}})
    (('region', ('a', 'b', 'c')),)
    >>> agree_levels({"north": {"dose": ("low", "high")}, "south": {"dose": ("low", "mid", "high")}})
    (('dose', ('low', 'mid', 'high')),)
    """
    out = []
    for column in dict.fromkeys(c for levels in found.values() for c in levels):
        for site in (s for s, levels in found.items() if column not in levels):
            other, levels = next((s, list(levels[column])) for s, levels in found.items() if column in levels)
            what = "categories" if are_numbers(levels) else kind_of(levels[0])
            rule = f"column {column!r} must hold numbers at all sites, or categories at all"
            raise SiteDataError(f"{rule}; it holds {what} at {other} and numbers at {site}")
        own = _of_one_kind({site: tuple(levels[column]) for site, levels in found.items()})
        check_levels(own, column)
        known = {level: level for levels in own.values() for level in levels}
        sites_of = {levels: site for site, levels in own.items()}
        for site, order in ((s, orders.get(column) or ()) for s, orders in (declared or {}).items()):
            sites_of.setdefault(tuple(known[level] for level in order if level in known), site)
        out.append((column, _merged(column, sites_of)))
    return tuple(out)


def _of_one_kind(own: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Levels by site, where texts of files without types are what all of them can be, or what other sites declare."""
    texts = {level for levels in own.values() for level in levels if isinstance(level, WrittenText)}
    kind = next((kind_of(x) for levels in own.values() for x in levels if not isinstance(x, WrittenText)), None)
    typed = typed_labels(texts, kind)
    return {
        site: tuple(sorted({typed[x] for x in levels})) if isinstance(next(iter(levels), 0), WrittenText) else levels
        for site, levels in own.items()
    }


def _merged(column: str, orders: Mapping[tuple[Any, ...], str]) -> tuple[Any, ...]:
    """All levels in an order that keeps those given, each with its site; where several do, the first as one sorts."""
    levels = sorted({level for order in orders for level in order})
    if all(list(order) == sorted(order) for order in orders):
        return tuple(levels)
    sorter = TopologicalSorter({level: [] for level in levels})
    for before, after in (pair for order in orders for pair in pairwise(order)):
        sorter.add(after, before)
    try:
        sorter.prepare()
    except CycleError as error:
        known = {pair: site for order, site in orders.items() for pair in combinations(order, 2)}
        opposed = next(([(a, b), (b, a)] for a, b in known if (b, a) in known), [*pairwise(error.args[1])][:3])
        got = " and ".join(f"{a!r} before {b!r} at {known[a, b]}" for a, b in opposed)
        rule = f"column {column!r} must have its levels in one order at all sites"
        raise SiteDataError(f"{rule}; got {got}; C({column}, levels=[...]) says which") from None
    out: list[Any] = []
    ready: list[Any] = []
    while sorter.is_active():
        first, *ready = sorted([*ready, *sorter.get_ready()])
        sorter.done(first)
        out.append(first)
    return tuple(out)


def list_levels(levels: Sequence[Any]) -> str:
    return f"its levels are {listed([repr(level) for level in levels])}"


def are_numbers(levels: Iterable[Any]) -> bool:
    """Whether levels are numbers, which are a category in C() alone."""
    return all(type(level) in (int, float) for level in levels)


def check_levels(found: Mapping[str, Iterable[Any]], column: str) -> None:
    """Refuse levels of two kinds, and too many; found : by site."""
    sites = {kind_of(level): site for site in reversed([*found]) for level in found[site]}  # one for each kind
    if len(sites) > 1:
        (one, here), (two, there) = sorted(sites.items())[:2]
        raise SiteDataError(f"column {column!r} must have levels of one kind; got {one} at {here} and {two} at {there}")
    if len({level for levels in found.values() for level in levels}) > MAX_LEVELS:
        where = next(iter(found)) if len(found) == 1 else "all sites together"
        rule = f"column {column!r}, a category, must have at most {MAX_LEVELS:,} levels"
        raise SiteDataError(f"{rule}; {where} has more; is it a number, or a name of each row?")


def _factorized(column: str, block: ColumnBlock, at: NDArray[np.intp]) -> tuple[NDArray[np.intp], list[Any]]:
    """(k,) places of some rows' labels among those that are there, and these; a missing one is an error."""
    codes, found = distinct(block.labels[column][at])
    if len(codes) and codes.min() < 0:
        i = int(at[np.argmin(codes)])
        rule = f"{block.site(i)}: column {column!r} must have a value in every row"
        raise SiteDataError(f"{rule}; row {block.row(i)} of the data has none")
    try:
        return codes, [plain_level(value) for value in found]
    except SiteDataError as error:
        raise SiteDataError(f"{block.site(0)}: column {column!r}, a category: {error}") from None


class TermTable(NamedTuple):
    """A term of a formula: the numbers that it multiplies, and its table of the combinations of its levels.

    numbers : names of factors; categories : names of factors, the last running fastest in the rows of the table
    table : (k, combinations), of the term's k columns
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    table: Floats


@dataclass(frozen=True, eq=False)
class FormulaDesign:
    """What a formula makes of rows once the levels of its categories are agreed.

    levels : by factor; names : of the features, the intercept not among them; cautions : what a user may not expect
    """

    formula: ParsedFormula
    levels: dict[str, tuple[Any, ...]]
    terms: tuple[TermTable, ...]
    names: tuple[str, ...]
    cautions: tuple[str, ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that are read as numbers, the target's first."""
        factors = [self.formula.target, *(f for name, f in self.formula.factors.items() if name not in self.levels)]
        return tuple(dict.fromkeys(c for factor in factors for c in factor.columns))

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns that are read as categories."""
        return tuple(dict.fromkeys(self.formula.factors[name].columns[0] for name in self.levels))

    def features(self, block: ColumnBlock) -> Floats:
        """(n, d) from a block, ending in 1 where there is an intercept; it lies column by column, as columns come."""
        values, codes = {}, {}
        for name, factor in self.formula.factors.items():
            if name in self.levels:
                column = factor.columns[0]
                codes[name] = level_codes(self.levels[name], column, block, np.arange(block.values.shape[1]))
            else:
                values[name] = self.calculated(factor, block)
        out = np.empty((len(self.names) + self.formula.intercept, block.values.shape[1]))
        at = 0
        for term in self.terms:
            rows = out[at : at + len(term.table)]
            at += len(term.table)
            combination: Any = 0
            for name in term.categories:
                combination = combination * len(self.levels[name]) + codes[name]
            if term.categories:
                np.take(term.table, combination, axis=1, out=rows, mode="clip")  # which writes into the rows at once
            else:
                rows[:] = term.table
            for name in term.numbers:
                rows *= values[name]
        out[at:] = 1.0
        return out.T

    def calculated(self, factor: FormulaFactor, block: ColumnBlock) -> Floats:
        """The numbers of a factor, (n,), all finite."""
        columns = {c: block[c] for c in factor.columns}
        if factor.calculate is None:
            return columns[factor.name]
        with np.errstate(all="ignore"):
            out = np.asarray(factor.calculate(columns), np.float64)
        bad = ~np.isfinite(out)
        if bad.any():
            at = int(np.argmax(bad))
            made_of = ", ".join(f"{c} = {values[at]:g}" for c, values in columns.items())
            raise SiteDataError(
                f"{block.site(at)}: {factor.name} must be a finite number; got {out[at]:g} of {made_of} in row "
                f"{block.row(at)} of the data"
            )
        return out


def design_of(task: Task, levels: Levels) -> FormulaDesign | None:
    """The design of a formula with the levels that were agreed; None where columns are the features themselves."""
    if not isinstance(task, Regression) or task.formula is None:
        return None
    return _compiled(task.formula, json.dumps(levels))  # as text, for 1 and True are one key


@lru_cache(maxsize=64)
def _compiled(formula: str, agreed: str) -> FormulaDesign:
    """The design, from formulaic's model matrix of a table with every combination of a term's levels."""
    import pandas as pd
    from formulaic import Formula
    from formulaic.parser.types import Factor, Term
    from formulaic.transforms import C, ContrastsRegistry

    parsed = parse_formula(formula)
    levels = _factor_levels(parsed, {column: tuple(known) for column, known in json.loads(agreed)})
    sorts = []  # numbers and categories of each term
    for term in parsed.terms:
        within = [f.expr for f in term.factors if f.eval_method.value != "literal"]
        sorts.append((tuple(n for n in within if n not in levels), tuple(n for n in levels if n in within)))
    size = sum(math.prod(len(levels[c]) for c in categories) for _, categories in sorts)
    if size > MAX_COLUMNS:
        rule = f"categories of a formula must make at most {MAX_COLUMNS:,} columns"
        raise ArgumentError(f"{rule}; got up to {size:,} of {checks.show(formula)}")
    rows: list[tuple[int, ...]] = []  # places of levels: all combinations of a term's, and the first of the others
    grids = {}
    for categories in dict.fromkeys(categories for _, categories in sorts):
        start = len(rows)
        rows += product(*(range(len(known)) if name in categories else (0,) for name, known in levels.items()))
        grids[categories] = slice(start, len(rows))
    table: dict[str, Any] = {name: np.ones(len(rows)) for name in parsed.factors}
    for j, (name, known) in enumerate(levels.items()):
        kind, options = parsed.factors[name].contrast or ("treatment", {})
        coded = pd.Categorical.from_codes([row[j] for row in rows], categories=pd.Index(known))
        table[name] = C(pd.Series(coded), getattr(ContrastsRegistry, kind)(**options))
    how = {True: "literal", False: "lookup"}  # names are looked up, and nothing is computed
    terms = [
        Term([Factor(f.expr, eval_method=how[f.eval_method.value == "literal"]) for f in term.factors])
        for term in parsed.terms
    ]
    matrix = Formula(terms).get_model_matrix(pd.DataFrame(index=range(len(rows))), context=table)
    spec, values = matrix.model_spec, np.asarray(matrix, np.float64)
    tables: list[TermTable] = []
    names: list[str] = []
    for term, (numbers, categories) in zip(terms, sorts, strict=True):
        place = spec.term_slices[term]
        if str(term) != "1" and place.stop > place.start:
            tables.append(TermTable(numbers, categories, np.ascontiguousarray(values[grids[categories], place].T)))
            names += spec.column_names[place]
    used = {name for table in tables for name in table.categories}
    cautions = []
    for name, known in levels.items():
        column = parsed.factors[name].columns[0]
        if len(known) == 1 and name not in used:
            cautions.append(f"column {column!r} has one level in all rows, {known[0]!r}: {name} has no coefficient")
        for level in (x for x in parsed.factors[name].levels if x not in known):
            cautions.append(f"no row has the level {level!r} of {column!r} that {name} lists: it has no coefficient")
    return FormulaDesign(parsed, levels, tuple(tables), tuple(names), tuple(cautions))


def _factor_levels(parsed: ParsedFormula, agreed: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """The levels of each factor that is a category; agreed : those of columns."""
    for column in (c for c in (*parsed.marked, *agreed) if not agreed.get(c)):
        raise SiteDataError(f"column {column!r}, a category, must have a level; no row of any site has one")
    for column, known in agreed.items():
        check_levels({"the model": known}, column)
    out = {}
    for name, factor in parsed.factors.items():
        column = factor.columns[0]
        numbers = column in parsed.marked and are_numbers(agreed[column])  # which are numbers outside C()
        if factor.marked or (factor.calculate is None and column in agreed and not numbers):
            out[name] = tuple(x for x in factor.levels or agreed[column] if x in agreed[column])
            base = (factor.contrast or ("", {}))[1].get("base")
            if base is not None and base not in out[name]:
                raise SiteDataError(f"{name}: {base!r} is no level of {column!r}; {list_levels(out[name])}")
    return out
