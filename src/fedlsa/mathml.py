"""The paper's LaTeX on pages: printed names for its labels, and formulas as MathML, which browsers draw by themselves:
the part of LaTeX that the pages use, no more.

In a sentence a formula stands between `$`, on the documentation's pages in a line of its own between `$$`, as a
repository's browser reads them too. Names stand in paper_map.csv, which is also the documentation's theory map: there
th:2nd_moment_no_cv is Theorem 4.1.
"""

import csv
import html
import re
from collections.abc import Iterator
from importlib import resources

from .errors import ArgumentError

_MAP = resources.files(__package__).joinpath("paper_map.csv").read_text(encoding="utf-8")
ITEMS = {row["label"]: row["item"] for row in csv.DictReader(_MAP.splitlines()) if row["label"] != "none"}
PLACES = {  # where something stands that has no number of its own
    "sec:numerical": "Section 6",
    "sec:appendix_numerics": "Appendix G",
    "sec:analysis-fed-lsa-iid": "Section 4",
    "eq:system_matrix": "Section 3.2",
    "eq:td_virtual_iterates": "Appendix E",
    "eq:q_block_size": "Appendix B",
}
LABEL = re.compile(r"\b(?:algo|assum|coro?|eq|fig|lem|lemma|prop|sec|tab|th|thm):[\w-]+")
INLINE = r"(?<![\w\\$])\$(?![\s$])([^$]+?)(?<!\s)\$([.,;:)]*)(?![\w$])"  # of a sentence, with the signs after it
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\S")
GREEK = ("gamma", "delta", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau",
         "phi", "chi", "psi", "omega", "Gamma", "Delta", "Sigma", "Omega")  # fmt: skip
NAMES = ("min", "max", "sup", "log", "cos")
SYMBOLS = {name: f"&{name};" for name in GREEK} | {name: name for name in NAMES}
SYMBOLS |= {"varepsilon": "&epsilon;", "star": "&sstarf;", "top": "&top;", "vartheta": "ϑ", "infty": "∞", "ldots": "…"}
SIGNS = {"le": "≤", "ge": "≥", "in": "∈", "gets": "←", "propto": "∝", "cdot": "·", "mapsto": "↦", "vee": "&vee;"}
FENCES = {"vert": "|", "Vert": "‖", "|": "‖", "lfloor": "⌊", "rfloor": "⌋"}
SPACES = {",": "0.17em", " ": "0.33em", "quad": "1em", "qquad": "2em"}
SUM = "<mo>∑</mo>"
ATOMS = {name: f"<mi>{text}</mi>" for name, text in SYMBOLS.items()} | {"sum": SUM}  # of commands without arguments
ATOMS |= {name: f"<mo>{text}</mo>" for name, text in SIGNS.items()}
ATOMS |= {name: f'<mo stretchy="false" lspace="0" rspace="0">{text}</mo>' for name, text in FENCES.items()}
ATOMS |= {name: f'<mspace width="{width}"/>' for name, width in SPACES.items()}
ACCENTS = {"bar": "‾", "tilde": "~", "hat": "^"}
SIZES = {"big": "1.2em", "Big": "1.8em"}
_NAMED = "|".join(NAMES)
BEFORE_NAME = re.compile(rf"(?<=[\w}}])\s*(?=\\(?:{_NAMED})(?![A-Za-z]))")  # as in print: a thin space on both sides,
AFTER_NAME = re.compile(rf"(?<=\\(?:{_NAMED}))(?![A-Za-z])\s*(?=[^\s(_^])")  # but none before a bracket or an index


def inline(found: re.Match[str]) -> str:
    """What `INLINE` finds in a sentence, as HTML: no line begins with the signs after a formula."""
    return f'<span class="inline-formula">{mathml(found[1], "inline")}{found[2]}</span>'


def mathml(latex: str, display: str = "block") -> str:
    """A formula in a line of its own, or "inline" in a sentence; what is not known here raises."""
    tokens = iter(TOKEN.findall(AFTER_NAME.sub(r"\\,", BEFORE_NAME.sub(r"\\,", latex))))
    return f'<math display="{display}" alttext="{html.escape(latex, quote=True)}">{_row(tokens, None)}</math>'


def _row(tokens: Iterator[str], end: str | None) -> str:
    """Atoms with their indices up to `end`."""
    out: list[tuple[str, str, str]] = []  # atom, lower index, upper index
    for token in tokens:
        if token == end:
            break
        if token in "_^":
            atom, low, high = out.pop()
            index = _atom(next(tokens), tokens)
            out.append((atom, index, high) if token == "_" else (atom, low, index))
        else:
            out.append((_atom(token, tokens), "", ""))
    return f"<mrow>{''.join(_indexed(*part) for part in out)}</mrow>"


def _indexed(atom: str, low: str, high: str) -> str:
    tag = "munder" if atom == SUM and low and not high else f"m{'sub' if low else ''}{'sup' if high else ''}"
    return f"<{tag}>{atom}{low}{high}</{tag}>" if low or high else atom


def _atom(token: str, tokens: Iterator[str]) -> str:
    if token == "{":
        return _row(tokens, "}")
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token.isalpha():
        return f"<mi>{token}</mi>"
    if token == "/":
        return '<mo lspace="0" rspace="0">/</mo>'
    if not token.startswith("\\"):
        return f'<mo stretchy="false">{html.escape(token).replace("-", "&minus;")}</mo>'
    return _command(token[1:], tokens)


def _command(name: str, tokens: Iterator[str]) -> str:
    if name in ATOMS:
        return ATOMS[name]
    if name in ("mathrm", "mathcal"):
        next(tokens)
        return f"<mi>{''.join(iter(lambda: next(tokens), '}'))}</mi>"
    if name in SIZES:
        return f'<mo minsize="{SIZES[name]}" maxsize="{SIZES[name]}">{next(tokens)}</mo>'
    if name in ACCENTS:
        return f'<mover accent="true">{_atom(next(tokens), tokens)}<mo>{ACCENTS[name]}</mo></mover>'
    if name == "sqrt":
        return f"<msqrt>{_atom(next(tokens), tokens)}</msqrt>"
    if name == "frac":
        return f"<mfrac>{_atom(next(tokens), tokens)}{_atom(next(tokens), tokens)}</mfrac>"
    raise ArgumentError(f"a formula must keep to the commands of fedlsa/mathml.py; got \\{name}")


def cite(text: str) -> str:
    """A text with printed names instead of labels; what has no number of its own is named by its section, if at all.

    >>> from fedlsa.mathml import cite
    >>> cite("sec:numerical, fig:show-bias; th:2nd_moment_no_cv, eq:lsa_syst_fed")
    'Section 6, Figure 1; Theorem 4.1, eq:lsa_syst_fed'
    """
    return LABEL.sub(lambda label: (ITEMS | PLACES).get(label[0], label[0]), text)
