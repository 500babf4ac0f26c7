"""Formulas as text, "log(wage) ~ educ * exper + C(region)": what they name, and how their transformations are computed.

formulaic splits a formula into terms and factors, and no part of it is ever run as code, for a formula may come from a
file or over a network: an expression is read as Python's syntax tree, of which numbers, columns, arithmetic,
comparisons and the functions below are known, and all else is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, MissingExtraError

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
CONTRASTS = {"treatment": "base", "SAS": "base", "sum": None, "helmert": "reverse", "diff": "backward", "poly": None}
PATSY = {"Treatment": "treatment", "Sum": "sum", "Helmert": "helmert", "Diff": "diff", "Poly": "poly"}
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


@dataclass(frozen=True, eq=False)
class FormulaFactor:
    """A column, C(column), or an expression of columns that is one number in each row.

    name : as the formula has it; columns : that it is made of
    calculate : an expression's; None for a column itself, whose values are numbers or categories
    marked : whether it is C(column); contrast : its coding and options, ("treatment", {"base": "b"})
    """

    name: str
    columns: tuple[str, ...]
    calculate: Calculation | None = None
    marked: bool = False
    contrast: tuple[str, dict[str, Any]] | None = None


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
    try:
        if _most_terms(parser.get_ast(text, context={})) > MAX_TERMS:
            raise ArgumentError(f"a formula must make at most {MAX_TERMS:,} terms; got more from {checks.show(text)}")
        formula = Formula(text, _parser=parser)
    except ArgumentError:
        raise
    except Exception as error:  # whatever a text that is no formula may end in
        if "`.` operator" in str(error):
            raise ArgumentError(f"a formula must name its columns; got '.' in {checks.show(text)}") from None
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
    name, quoted = given.expr, []
    if given.eval_method.value == "lookup":
        return FormulaFactor(name, (name,))
    if given.eval_method.value == "literal":
        raise ArgumentError(f"a formula must be made of columns; got {name}")

    def unquoted(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[0]
        quoted.append(match[2])
        return f"_quoted_{len(quoted) - 1}_"

    try:  # a column in backticks may have any name
        tree = ast.parse(re.sub(r"(\"[^\"]*\"|'[^']*')|`([^`]*)`", unquoted, name), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(f"the expression {checks.show(name)} of a formula cannot be read") from None
    names = {f"_quoted_{j}_": column for j, column in enumerate(quoted)}
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "C":
        return _category(name, tree, names)
    reader = _ExpressionReader(name, names)
    try:
        calculate = reader.read(tree)
    except RecursionError:
        raise ArgumentError(f"the expression {checks.show(name)} of a formula has too many parts") from None
    if not reader.columns:
        raise ArgumentError(f"an expression of a formula must name a column; got {name}")
    return FormulaFactor(name, tuple(dict.fromkeys(reader.columns)), calculate)


def _category(name: str, tree: ast.Call, names: Mapping[str, str]) -> FormulaFactor:
    """C(column) or C(column, contrast)."""
    options = [*tree.args[1:], *(k.value for k in tree.keywords if k.arg == "contrasts")]
    if not tree.args or not isinstance(tree.args[0], ast.Name):
        raise ArgumentError(f"C(...) must be of a column itself, as C(region); got {name}")
    if len(options) > 1 or len(options) + 1 != len(tree.args) + len(tree.keywords):
        raise ArgumentError(f"C(column, contrast) has no other arguments; got {name}")
    column = names.get(tree.args[0].id, tree.args[0].id)
    return FormulaFactor(name, (column,), marked=True, contrast=_contrast(name, options[0]) if options else None)


def _contrast(name: str, node: ast.expr) -> tuple[str, dict[str, Any]]:
    """contr.sum, contr.treatment("b"), Treatment(reference="b"), ..., as the coding's name and its option."""
    call = node if isinstance(node, ast.Call) else None
    what = ast.unparse(node if call is None else call.func)
    kind = PATSY.get(what, what.removeprefix("contr.") if what.startswith("contr.") else None)
    rule = f"a contrast must be one of {', '.join(f'contr.{c}' for c in CONTRASTS)}, with its option by value"
    if kind not in CONTRASTS:
        raise ArgumentError(f"{rule}; got {name}")
    if call is None:
        return kind, {}
    option = CONTRASTS[kind]
    values = [*call.args, *(k.value for k in call.keywords if k.arg in (option, "reference"))]
    known = [v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, (str, int, float))]
    if len(known) > (option is not None) or len(known) != len(call.args) + len(call.keywords):
        raise ArgumentError(f"{rule}; got {name}")
    return kind, {str(option): value for value in known}


class _ExpressionReader:
    """Makes calculations of syntax trees; columns : those that they name."""

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        self.text, self.names = text, names
        self.columns: list[str] = []

    def read(self, node: ast.expr) -> Calculation:
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() | float() as value):
                try:
                    number = np.float64(value)
                except OverflowError:
                    raise ArgumentError(f"a number of a formula must be finite; got {self.text[:60]}") from None
                return lambda columns: number
            case ast.Name(id=name):
                column = self.names.get(name, name)
                self.columns.append(column)
                return lambda columns: columns[column]
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]) if (
                type(op) in OPERATORS
            ):
                return self.applied(OPERATORS[type(op)], left, right)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return self.applied(OPERATORS[type(op)], operand)
            case ast.Call(func=ast.Name(id=name)) if name in STATEFUL:
                raise ArgumentError(
                    f"{name}(...) of a formula takes its numbers from a site's own rows, and would differ from site to "
                    f"site; write them out, as in I(x - 3.5); got {self.text}"
                )
            case ast.Call(func=func, args=arguments, keywords=[]):
                return self.call(func, arguments)
        raise self.refused(node)

    def call(self, func: ast.expr, arguments: list[ast.expr]) -> Calculation:
        match func:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name):
                pass
            case _:
                raise self.refused(func)
        if isinstance(func, ast.Name) and name == "I" and len(arguments) == 1:
            return self.read(arguments[0])
        if name not in FUNCTIONS:
            known = f"the functions of a formula are {', '.join(FUNCTIONS)}, I and C"
            raise ArgumentError(f"{known}; got {checks.show(self.text)}{checks.did_you_mean(name, FUNCTIONS)}")
        if len(arguments) != (2 if name in TWO else 1):
            raise self.refused(func)
        return self.applied(FUNCTIONS[name], *arguments)

    def applied(self, function: Callable[..., Any], *arguments: ast.expr) -> Calculation:
        parts = [self.read(argument) for argument in arguments]
        return lambda columns: function(*(part(columns) for part in parts))

    def refused(self, node: ast.AST) -> ArgumentError:
        """The error for what a formula must not hold."""
        rule = "a formula must be made of columns, numbers, + - * / **, comparisons and functions such as log(x)"
        return ArgumentError(f"{rule}; got {checks.show(self.text)} ({type(node).__name__})")
