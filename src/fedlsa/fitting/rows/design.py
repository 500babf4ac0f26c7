"""From a block of a site to the rows that coefficients are multiplied with: columns, or what a formula makes of them.

The levels of categories are agreed by all sites before: each gives the levels that it has, never a row. Then every site
codes them alike, whatever it lacks. formulaic says which columns a term has and how a contrast codes its levels; each
term is then a table, with a row for each combination of its levels, times the numbers of the term.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, ArgumentTypeError, SiteDataError
from ...problems.features import FeatureMap
from ..sites.arrays import ColumnBlock, from_columns, has_names
from ..sites.conversion import finite_array, plain_array, row_number
from ..tasks import Regression, Task
from .columns import Columns
from .formulas import FormulaFactor, parse_formula
from .levels import LevelCodes, Levels, are_numbers, check_levels, known_levels

MAX_COLUMNS = 4096  # of a formula: beyond, its tables and the system itself would fill the memory


@dataclass(frozen=True, eq=False)
class TermTable:
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

    names : of the features, the intercept not among them; numbers : columns that are read as numbers, the target's
    first
    """

    target: FormulaFactor
    factors: dict[str, FormulaFactor]
    codes: dict[str, LevelCodes]  # by factor
    terms: tuple[TermTable, ...]
    names: tuple[str, ...]
    intercept: bool
    numbers: tuple[str, ...]

    def features(self, site: str, block: ColumnBlock) -> Floats:
        """(n, d) from a block, ending in 1 where there is an intercept; it lies column by column, as columns come."""
        n = block.values.shape[1]
        values = {
            name: self.calculated(factor, site, block)
            for name, factor in self.factors.items()
            if name not in self.codes
        }
        index = {
            name: codes.of(site, self.factors[name].columns[0], block.labels[self.factors[name].columns[0]], block.rows)
            for name, codes in self.codes.items()
        }
        out = np.empty((len(self.names) + self.intercept, n))
        at = 0
        for term in self.terms:
            rows = out[at : at + len(term.table)]
            at += len(term.table)
            combination: Any = 0
            for name in term.categories:
                combination = combination * len(self.codes[name].levels) + index[name]
            if term.categories:
                np.take(term.table, combination, axis=1, out=rows, mode="clip")  # which writes into the rows at once
            else:
                rows[:] = term.table
            for name in term.numbers:
                rows *= values[name]
        out[at:] = 1.0
        return out.T

    def of_table(self, argument: str, table: Any) -> Floats:
        """(n, d) from a table that has the columns of the right side by name; argument : what errors call it."""
        if not has_names(table):
            rule = f"{argument} must be a table with the columns of the formula by name"
            raise ArgumentTypeError(f"{rule}; got {checks.show(table)}")
        found = from_columns(argument, table)
        numbers = self.numbers[len(self.target.columns) :]
        labels = dict.fromkeys(self.factors[name].columns[0] for name in self.codes)
        for column in (c for c in (*numbers, *labels) if c not in found.columns):
            hint = checks.did_you_mean(column, found.columns)
            raise ArgumentError(f"{argument} must have the column {column!r} that the formula names{hint}")
        values = [finite_array(argument, c, found.held[c]) for c in numbers]
        block = np.stack([*values, np.ones(found.rows)])
        place = {c: j for j, c in enumerate(numbers)}
        beside = {c: plain_array(found.held[c], labels=True) for c in labels}
        return self.features(argument, ColumnBlock(place, block, beside))

    def calculated(self, factor: FormulaFactor, site: str, block: ColumnBlock) -> Floats:
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
                f"{site}: {factor.name} must be a finite number; got {out[at]:g} of {made_of} in row "
                f"{row_number(block.rows, at)} of the data"
            )
        return out


def design_of(task: Task, levels: Levels) -> FormulaDesign | None:
    """The design of a formula with the levels that were agreed; None where columns are the features themselves."""
    if not isinstance(task, Regression) or task.formula is None:
        return None
    return _compiled(task.formula, json.dumps(levels))  # as text, for 1 and True are one key


def feature_names(task: Task, columns: Columns, k: int) -> tuple[str, ...]:
    """Of the k features, the intercept not among them."""
    if not isinstance(task, Regression) and task.features is not None:
        return tuple(f"feature {j}" for j in range(k))
    design = design_of(task, columns.levels)
    names = columns.state if design is None else design.names
    counts = Counter([*names, *(["intercept"] if task.intercept else [])])
    for name in (n for n, count in counts.items() if count > 1):
        raise SiteDataError(f"coefficients must have a name each; {name!r} would be of two: rename a column")
    return names


def feature_count(task: Task, columns: Columns) -> int:
    """How many features the task has, the intercept not among them."""
    if not isinstance(task, Regression) and task.features is not None:
        return task.features.dim if isinstance(task.features, FeatureMap) else np.shape(task.features)[-1]
    return len(feature_names(task, columns, 0))


@lru_cache(maxsize=64)
def _compiled(formula: str, agreed: str) -> FormulaDesign:
    """The design, from formulaic's model matrix of a table with every combination of a term's levels."""
    from formulaic import Formula

    parsed = parse_formula(formula)
    levels = {column: tuple(values) for column, values in json.loads(agreed)}
    marked = {f.columns[0] for f in parsed.factors.values() if f.marked}
    for column in (c for c in (*marked, *levels) if not levels.get(c)):
        raise SiteDataError(f"column {column!r}, a category, must have a level; no row of any site has one")
    for column, known in levels.items():
        check_levels({"the model": known}, column)
    own = {c for c, known in levels.items() if c not in marked or not are_numbers(known)}
    codes = {
        name: LevelCodes(levels[f.columns[0]])
        for name, f in parsed.factors.items()
        if f.marked or (f.calculate is None and f.columns[0] in own)
    }
    for name in codes:
        _check_base(parsed.factors[name], codes[name].levels)
    sorts = [_sorted_factors(term, codes) for term in parsed.terms]
    sizes = [math.prod(len(codes[c].levels) for c in categories) for _, categories in sorts]
    if sum(sizes) > MAX_COLUMNS:
        raise ArgumentError(
            f"categories of a formula must make at most {MAX_COLUMNS:,} columns; got up to {sum(sizes):,} of "
            f"{checks.show(formula)}"
        )
    lookups = Formula([_lookups(term) for term in parsed.terms])
    terms, names = [], []
    matrices: dict[tuple[str, ...], Any] = {}  # terms of the same categories share one
    spec: Any = lookups
    for term, (numbers, categories), size in zip(lookups, sorts, sizes, strict=True):
        if categories not in matrices:
            matrices[categories] = _model_matrix(spec, parsed.factors, codes, categories, size)
            spec = matrices[categories].model_spec
        place = spec.term_slices[term]
        if str(term) != "1" and place.stop > place.start:
            table = np.asarray(matrices[categories])[:, place].T
            terms.append(TermTable(numbers, categories, np.ascontiguousarray(table)))
            names += spec.column_names[place]
    numeric = (c for n, f in parsed.factors.items() if n not in codes for c in f.columns)
    read = tuple(dict.fromkeys([*parsed.target.columns, *numeric]))
    return FormulaDesign(parsed.target, parsed.factors, codes, tuple(terms), tuple(names), parsed.intercept, read)


def _sorted_factors(term: Any, codes: Mapping[str, LevelCodes]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a term's factors that are numbers, and of those that are categories."""
    names = [f.expr for f in term.factors if f.eval_method.value != "literal"]
    return tuple(n for n in names if n not in codes), tuple(n for n in names if n in codes)


def _lookups(term: Any) -> Any:
    """The term with its factors as names, which formulaic looks up and never computes."""
    from formulaic.parser.types import Factor, Term

    literal = Factor.EvalMethod.LITERAL
    return Term([f if f.eval_method is literal else Factor(f.expr, eval_method="lookup") for f in term.factors])


def _model_matrix(
    spec: Any,
    factors: Mapping[str, FormulaFactor],
    codes: Mapping[str, LevelCodes],
    categories: Sequence[str],
    size: int,
) -> Any:
    """formulaic's matrix of a table with a row for each combination of the levels of some categories; the others have
    their first level there, and numbers are 1."""
    import pandas as pd
    from formulaic.transforms import C, ContrastsRegistry

    grid = list(product(*(range(len(codes[name].levels)) for name in categories)))
    context = {}
    for name, known in codes.items():
        place = categories.index(name) if name in categories else None
        index = [0] * size if place is None else [row[place] for row in grid]
        kind, options = factors[name].contrast or ("treatment", {})
        values = pd.Categorical.from_codes(index, categories=pd.Index(known.levels))
        context[name] = C(pd.Series(values), getattr(ContrastsRegistry, kind)(**options))
    numbers = pd.DataFrame({n: np.ones(size) for n in factors if n not in codes}, index=range(size))
    return spec.get_model_matrix(numbers, context=context)


def _check_base(factor: FormulaFactor, levels: Sequence[Any]) -> None:
    """Refuse a reference level that no site has."""
    base = (factor.contrast or ("", {}))[1].get("base")
    if base is not None and base not in levels:
        raise SiteDataError(f"{factor.name}: {base!r} is no level of {factor.columns[0]!r}; {known_levels(levels)}")
