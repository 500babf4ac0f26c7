"""Formulas as text, "log(wage) ~ educ * exper + C(region)": what they name, and how their transformations are computed.

formulaic splits a formula into terms and factors, and no part of it is ever run as code, for a formula may come from a
file or over a network: an expression is read as Python's syntax tree, of which numbers, columns, arithmetic,
comparisons and the functions below are known, and all else is refused.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from keyword import iskeyword
from operator import itemgetter
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, MissingExtraError, SiteDataError

MAX_LENGTH = 10_000  # characters of a formula
MAX_TERMS = 10_000  # that products and powers of a formula may make
MAX_POWER = 16  # of a sum of terms: (a + b)**2
Calculation = Callable[[Mapping[str, Floats]], Any]  # from columns of numbers, (n,) each, to numbers
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in (
        *("log", "log2", "log10", "log1p", "exp", "exp2", "expm1", "sqrt", "cbrt", "square", "abs", "sign", "floor"),
        *("ceil", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh"),
        *("minimum", "maximum"),
    )
}
TWO = ("minimum", "maximum")  # which take two arguments
STATEFUL = ("center", "scale", "standardize", "poly", "bs", "cs", "cr", "cc", "te", "lag", "hashed")
CONTRASTS = {  # by the option that each takes
    "contr.treatment": "base",
    "contr.SAS": "base",
    "contr.sum": None,
    "contr.helmert": "reverse",
    "contr.diff": "backward",
    "contr.poly": None,
}
PATSY = {name.removeprefix("contr.").capitalize(): name for name in CONTRASTS}  # as it calls them: Treatment, Sum, ...
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.USub: np.negative,
    ast.UAdd: np.positive,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}


def plain_level(value: Any) -> Any:
    """A level of a category as it counts: text, a number, or true and false; whole numbers are integers."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise SiteDataError(f"levels must be text, numbers, or true and false; got {checks.show(value)}")


def kind_of(level: Any) -> str:
    """What a level is, in words."""
    level = plain_level(level)
    return "text" if isinstance(level, str) else "true and false" if isinstance(level, bool) else "numbers"


def typed_labels(texts: Iterable[str], kind: str | None = None) -> dict[str, Any]:
    """What texts of files without types stand for: numbers, or true and false, where all are; else what is written.

    Only what is written as one writes a number is one, so that 01067 and 1067 stay two levels. kind : that other sites
    declare, which decides

    >>> from fedlsa.fitting.formulas import typed_labels
    >>> typed_labels(["7", "8.0"]), typed_labels(["7", "07"])
    ({'7': 7, '8.0': 8}, {'7': '7', '07': '07'})
    """
    texts = list(texts)
    for name in READERS if kind is None else [kind]:
        levels = {text: READERS[name](text) for text in texts} if name in READERS else {}
        if levels and None not in levels.values():
            return levels
    return {text: str(text) for text in texts}


def _read_number(text: str) -> Any:
    """The number that a text is the usual way to write, but for blanks around it; 3.0 is 3, for so are integers
    written beside missing ones."""
    text = text.strip(" ")
    if re.fullmatch(r"(0|-?[1-9]\d{0,19})(\.0)?", text, re.ASCII):
        integer = int(text.removesuffix(".0"))
        return integer if -(2**63) <= integer < 2**64 else None
    usual = re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?", text, re.ASCII) and str(float(text)) == text
    return plain_level(float(text)) if usual else None


READERS: dict[str, Callable[[str], Any]] = {
    "numbers": _read_number,
    "true and false": lambda text: {"true": True, "false": False}.get(text.lower()),
}


@dataclass(frozen=True, eq=False)
class FormulaFactor:
    """A column, C(column), or an expression of columns that is one number in each row.

    name : as the formula has it; columns : that it is made of
    calculate : an expression's; None for a column itself, whose values are numbers or categories
    marked : whether it is C(column); contrast : its coding and options, ("treatment", {"base": "b"}); levels : in the
        order in which C(column, levels=[...]) lists them
    """

    name: str
    columns: tuple[str, ...]
    calculate: Calculation | None = None
    marked: bool = False
    contrast: tuple[str, dict[str, Any]] | None = None
    levels: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class ParsedFormula:
    """What a formula says: factors by name, those of the right side's terms; terms : formulaic's, in its order."""

    target: FormulaFactor
    factors: dict[str, FormulaFactor]
    terms: tuple[Any, ...]
    intercept: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """That the right side names, once each."""
        return tuple(dict.fromkeys(c for f in self.factors.values() for c in f.columns))

    @property
    def calculates(self) -> bool:
        """Whether it makes numbers that are no column's own."""
        return any(f.calculate is not None for f in (self.target, *self.factors.values()))

    @property
    def candidates(self) -> tuple[str, ...]:
        """Columns that stand for themselves, or in C(): they may be categories."""
        return tuple(dict.fromkeys(f.columns[0] for f in self.factors.values() if f.calculate is None))

    @property
    def marked(self) -> frozenset[str]:
        """Columns in C(): they are categories."""
        return frozenset(f.columns[0] for f in self.factors.values() if f.marked)

    @property
    def listed(self) -> dict[str, tuple[Any, ...]]:
        """The levels that the formula itself lists, by column."""
        return {f.columns[0]: f.levels for f in self.factors.values() if f.levels}


@lru_cache(maxsize=64)
def parse_formula(text: str) -> ParsedFormula:
    """The parts of a formula; what is not one, or would be code, is an ArgumentError.

    >>> from fedlsa.fitting.formulas import parse_formula
    >>> parse_formula("log(wage) ~ educ * exper + C(region)").columns
    ('educ', 'exper', 'region')
    """
    if len(text) > MAX_LENGTH:
        raise ArgumentError(f"a formula must have at most {MAX_LENGTH:,} characters; got {len(text):,}")
    try:
        from formulaic import Formula
        from formulaic.parser import DefaultFormulaParser
    except ImportError:
        raise MissingExtraError("formulas need formulaic: pip install 'fedlsa[data]'") from None
    parser = DefaultFormulaParser(feature_flags={"twosided"})
    # names that need no backticks lose them, for formulaic would put `x` into exp(`x`) twice
    plain = re.sub(r"(\"[^\"]*\"|'[^']*')|`([^\W\d]\w*)`", lambda m: m[0] if m[1] or iskeyword(m[2]) else m[2], text)
    try:
        if _most_terms(parser.get_ast(plain, context={})) > MAX_TERMS:
            raise ArgumentError(f"a formula must make at most {MAX_TERMS:,} terms; got more from {checks.show(text)}")
        formula = Formula(plain, _parser=parser)
    except ArgumentError:
        raise
    except Exception as error:  # whatever a text that is no formula may end in
        why = (str(error).splitlines() or [""])[0].rstrip(". ") or type(error).__name__
        raise ArgumentError(f"{checks.show(text)} cannot be read as a formula: {why[:200]}") from None
    sides = getattr(formula, "lhs", ()), getattr(formula, "rhs", ())
    for word in re.findall(r"\"[^\"]*\"|'[^']*'|`[^`]*`|\w+", text):
        if re.fullmatch(r"`[\d.]+`|`?Intercept`?", word):  # which formulaic takes for the constant
            raise ArgumentError(f"a formula must not name a column {word.strip('`')!r}, a constant's name; rename it")
    left, right = ([t for t in side if str(t) != "1"] for side in sides)
    if len(left) != 1 or len(left[0].factors) != 1 or len(sides[0]) != 1:
        raise ArgumentError(f"a formula must have one target on its left, 'y ~ a + b'; got {checks.show(text)}")
    target = _factor(left[0].factors[0])
    if target.marked:
        raise ArgumentError(f"the target of a formula must be a number; got {target.name}")
    numbers = (t for t in right if all(f.eval_method.value == "literal" for f in t.factors))
    if not sides[1] or not text.rpartition("~")[2].strip() or any(numbers):
        raise ArgumentError(f"a formula must have terms of columns on its right; got {checks.show(text)}")
    factors: dict[str, FormulaFactor] = {}
    for given in (f for term in right for f in term.factors if f.eval_method.value != "literal"):
        found = factors.setdefault(given.expr, _factor(given))
        if (given.eval_method.value == "lookup") != (found.calculate is None and not found.marked):
            raise ArgumentError(f"a formula must not call a column as an expression; got {given.expr!r} for both")
    # formulaic takes `exp(x)`, a column, and exp(x) for one; Python reads some letters as others, as the micro sign
    bare = re.sub("`[^`]*`", "", plain).replace(" ", "")
    for name in (n for n in re.findall("`([^`]*)`", plain) if "(" in n and n.replace(" ", "") in bare):
        raise ArgumentError(f"a formula must not call a column as an expression; got {name!r} for both")
    for factor in (target, *factors.values()):
        for column in (c for c in factor.columns if c not in text):
            raise ArgumentError(f"{checks.show(text)} would be read as one of a column {column!r}; rename the column")
    out = ParsedFormula(target, factors, tuple(sides[1]), len(right) < len(sides[1]))
    for column in (c for c in target.columns if c in out.columns):
        raise ArgumentError(
            f"the target's column {column!r} must not stand on the right as well; got {checks.show(text)}"
        )
    return out


def _most_terms(node: Any) -> int:
    """An upper bound on how many terms a part of a formula makes, before they are made."""
    added = 0
    while hasattr(node, "operator") and node.operator.symbol in ("+", "-"):  # a long sum is deep, to the left
        *first, last = node.args
        added, node = added + _most_terms(last), first[0] if first else None
    if not hasattr(node, "operator"):
        return added + 1
    parts, symbol = list(node.args), node.operator.symbol
    if symbol in ("**", "^"):
        power = getattr(parts[1], "token", "")
        if not power.isdecimal() or not 1 <= int(power) <= MAX_POWER:
            rule = f"a power of terms must be a whole number from 1 to {MAX_POWER}, of a column itself I(x**2)"
            raise ArgumentError(f"{rule}; got {power or parts[1]!r}")
        terms = _most_terms(parts[0])
        if terms == 1 and int(power) > 1:
            what = f"{getattr(parts[0], 'token', 'x')}{symbol}{power}"
            rule = "a power in a formula makes products of terms, as in (a + b)**2"
            raise ArgumentError(f"{rule}; of one term it changes nothing, and a square is I(x**2); got {what}")
        return added + terms ** int(power)
    counts = [_most_terms(part) for part in parts]
    if len(counts) == 2 and symbol in (":", "*"):
        return added + counts[0] * counts[1] + (sum(counts) if symbol == "*" else 0)
    return added + sum(counts)


def _factor(given: Any) -> FormulaFactor:
    """A factor of formulaic, checked; an expression becomes a calculation."""
    name, quoted = given.expr, dict[str, str]()
    if given.eval_method.value == "lookup":
        return FormulaFactor(name, (name,))
    if given.eval_method.value == "literal":
        raise ArgumentError(f"a formula must be made of columns; got {name}")

    prefix = "_quoted_" + "_" * len(name)  # longer than any name in the expression

    def unquoted(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[0]
        return quoted.setdefault(match[2], f"{prefix}{len(quoted)}_")

    try:  # a column in backticks may have any name
        tree = ast.parse(re.sub(r"(\"[^\"]*\"|'[^']*')|`([^`]*)`", unquoted, name), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(f"the expression {checks.show(name)} of a formula cannot be read") from None
    names = {place: column for column, place in quoted.items()}
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "C":
        return _category(name, tree, names)
    columns: list[str] = []
    try:
        calculate = _calculation(tree, name, names, columns)
    except RecursionError:
        raise ArgumentError(f"the expression {checks.show(name)} of a formula has too many parts") from None
    if not columns:
        raise ArgumentError(f"an expression of a formula must name a column; got {name}")
    return FormulaFactor(name, tuple(dict.fromkeys(columns)), calculate)


def _category(name: str, tree: ast.Call, names: Mapping[str, str]) -> FormulaFactor:
    """C(column), C(column, contrast), C(column, levels=[...]), or all three."""
    given = dict(zip(("column", "contrasts"), tree.args, strict=False)) | {k.arg: k.value for k in tree.keywords}
    column, contrast, levels = (given.pop(key, None) for key in ("column", "contrasts", "levels"))
    if not isinstance(column, ast.Name):
        raise ArgumentError(f"C(...) must be of a column itself, as C(region); got {name}")
    if given or len(tree.args) > 2:
        raise ArgumentError(f"C(column, contrast, levels=[...]) has no other arguments; got {name}")
    coding = None if contrast is None else _contrast(name, contrast)
    rule = "levels of C(column, levels=[...]) must be values of one kind, each once"
    listed = () if levels is None else _constants(levels.elts if isinstance(levels, ast.List) else [levels], rule, name)
    if levels is not None and (not listed or len({*listed}) < len(listed) or len({*map(kind_of, listed)}) > 1):
        raise ArgumentError(f"{rule}; got {checks.show(name)}")
    return FormulaFactor(name, (names.get(column.id, column.id),), marked=True, contrast=coding, levels=listed)


def _contrast(name: str, node: ast.expr) -> tuple[str, dict[str, Any]]:
    """contr.sum, contr.treatment("b"), Treatment(reference="b"), ..., as the coding's name and its option."""
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    kind = PATSY.get(ast.unparse(call.func), ast.unparse(call.func))
    option = CONTRASTS.get(kind)
    given = [*call.args, *(k.value for k in call.keywords if k.arg in (option, "reference"))]
    rule = f"a contrast must be one of {', '.join(CONTRASTS)}, with its option by value"
    if kind not in CONTRASTS or not (option is not None) >= len(given) == len(call.args) + len(call.keywords):
        raise ArgumentError(f"{rule}; got {checks.show(name)}")
    return kind.removeprefix("contr."), {str(option): value for value in _constants(given, rule, name)}


def _constants(nodes: Sequence[ast.expr], rule: str, name: str) -> tuple[Any, ...]:
    """Text, numbers, or true and false that are written out; rule, name : for the error where one is something else."""
    try:
        return tuple(plain_level(ast.literal_eval(node)) for node in nodes)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ArgumentError(f"{rule}; got {checks.show(name)}") from None


def _calculation(node: ast.expr, text: str, names: Mapping[str, str], columns: list[str]) -> Calculation:
    """What a syntax tree computes; text : the whole expression; names : of columns in backticks; columns : takes those
    that the tree names."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            try:
                number = np.float64(value)
            except OverflowError:
                raise ArgumentError(f"a number of a formula must be finite; got {text[:60]}") from None
            return lambda _: number
        case ast.Name(id=name):
            columns.append(names.get(name, name))
            return itemgetter(columns[-1])
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]) if (
            type(op) in OPERATORS
        ):
            function, arguments = OPERATORS[type(op)], [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            function, arguments = OPERATORS[type(op)], [operand]
        case ast.Call(func=ast.Name(id=name)) if name in STATEFUL:
            raise ArgumentError(
                f"{name}(...) of a formula takes its numbers from a site's own rows, and would differ from site to "
                f"site; write them out, as in I(x - 3.5); got {text}"
            )
        case ast.Call(func=ast.Name(id="I"), args=[inner], keywords=[]):
            return _calculation(inner, text, names, columns)
        case ast.Call(
            func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name),
            args=arguments,
            keywords=[],
        ) if name not in FUNCTIONS or len(arguments) == 1 + (name in TWO):
            if name not in FUNCTIONS:
                known = f"the functions of a formula are {', '.join(FUNCTIONS)}, I and C"
                raise ArgumentError(f"{known}; got {checks.show(text)}{checks.did_you_mean(name, FUNCTIONS)}")
            function = FUNCTIONS[name]
        case _:
            rule = "a formula must be made of columns, numbers, + - * / **, comparisons and functions such as log(x)"
            raise ArgumentError(f"{rule}; got {checks.show(text)} ({type(node).__name__})")
    parts = [_calculation(argument, text, names, columns) for argument in arguments]
    return lambda values: function(*(part(values) for part in parts))
