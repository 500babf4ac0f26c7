"""What the report quotes are the paper's words, formulas and numbers.

The paper's LaTeX source is not part of the repository: FEDLSA_PAPER=paper.tex says where it lies.
"""

import os
import re
import unicodedata
from pathlib import Path

import pytest

from fedlsa.experiments import EXPERIMENTS
from fedlsa.mathml import ITEMS, PLACES, cite

INSIDE = r"((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)"  # of braces
NUMBERED = {"theorem": "Theorem", "lemma": "Lemma", "claim": "Claim", "corollary": "Corollary", "remark": "Remark"}
COUNTED = {"assum": "Assumption A", "assumTD": "Assumption TD", "assumptionM": "Assumption UGE"}
FLOATS = ("figure", "table", "algorithm")
CLAIMS = [c for e in EXPERIMENTS.values() for c in e.claims if c.kind == "paper"]
OF_TABLES = [c for c in CLAIMS if c.source.startswith("tab:")]
SENTENCES = [c for c in CLAIMS if c not in OF_TABLES]


@pytest.fixture(scope="module")
def source():
    path = os.environ.get("FEDLSA_PAPER")
    if not path:
        pytest.skip("FEDLSA_PAPER does not say where the paper's LaTeX source lies")
    return re.sub(r"(?<!\\)%.*", "", Path(path).read_text(encoding="utf8"))


@pytest.fixture(scope="module")
def printed(source):
    """The paper with its own commands written out, and names instead of labels."""
    text = source[source.index(r"\begin{document}") :]
    text = re.sub(r"\{" + INSIDE + r"\\over " + INSIDE + r"\}", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\norm\{" + INSIDE + r"\}", r"\\Vert \1\\Vert ", text)
    commands = dict(re.findall(r"\\def\s*\\(\w+)\s*\{" + INSIDE + r"\}", source)) | {"taumix": r"\tau_{mix}"}
    for _ in range(4):  # commands are made of others
        text = re.sub(r"\\([A-Za-z]+)", lambda found: commands.get(found[1], found[0]), text)
    return re.sub(r"(?:Algorithm~)?\\(?:Cref|ref)\{([^}]*)\}", lambda found: cite(found[1]), text)


def letters(text):
    """Words and formulas without what does not tell them apart: spaces, braces, sizes, fonts."""
    text = re.sub(r"\\(?:left|right|[bB]igg?[lr]?|text\w*|math\w+|sf|emph|eqsp)(?![A-Za-z])|\\[,; ]", "", text)
    text = re.sub(r"\\(?:varepsilon|epsilon)(?![A-Za-z])", "ε", text).replace(r"\tfrac", r"\frac")
    return re.sub(r"[\s{}$~.,]|\\(?=\w)", "", unicodedata.normalize("NFC", text)).lower()


@pytest.mark.parametrize("claim", SENTENCES, ids=lambda c: c.name)
def test_a_sentence_is_the_papers_but_for_what_is_left_out(claim, printed):
    whole, end = letters(printed), 0
    for part in map(letters, cite(claim.quote).split("[...]")):
        end = whole.find(part, end)
        assert end >= 0, part


@pytest.mark.parametrize("claim", OF_TABLES, ids=lambda c: c.name)
def test_an_entry_of_a_table_stands_in_its_row_and_column(claim, source, printed):
    method, column, entry = re.fullmatch(r"(\w+), (.*?): (.*)", claim.quote).groups()
    table = printed[printed.index(rf"\label{{{claim.source}}}") :]
    table = table[table.index(r"\toprule") : table.index(r"\bottomrule")].replace(r"\nrounds", "T")
    head, *rows = [[letters(cell) for cell in row.split("&")] for row in table.split("\\\\")]
    (row,) = [r for r in rows if r[0].removeprefix("midrule").startswith(f"{method.lower()}(cor")]
    place = [cell.removeprefix("toprule") for cell in head].index(letters(column))
    assert row[place] == letters(entry)


def test_items_have_the_numbers_that_latex_gives_them(source):
    section, appendix, theorems, counts, inside, found = 0, False, 0, {}, [], {}
    body = source[source.index(r"\begin{document}") :]
    for command, star, name in re.findall(r"\\(section|appendix|begin|end|caption|label)(\*?)(?:\{([^}]*)\}?)?", body):
        if command == "appendix":
            appendix, section = True, 0
        elif command == "section" and not star:
            section, theorems, inside = section + 1, 0, []
        elif command == "begin" and name in NUMBERED:
            theorems += 1
            inside.append((name, f"{NUMBERED[name]} {chr(64 + section) if appendix else section}.{theorems}"))
        elif command == "begin" and name in COUNTED:
            counts[name] = counts.get(name, 0) + 1
            inside.append((name, f"{COUNTED[name]}{counts[name]}"))
        elif command == "begin" and name in FLOATS:
            inside.append((name, ""))
        elif command == "caption":
            kind = inside.pop()[0]
            counts[kind] = counts.get(kind, 0) + 1
            inside.append((kind, f"{kind.capitalize()} {counts[kind]}"))
        elif command == "end" and inside and inside[-1][0] == name:
            inside.pop()
        elif command == "label":
            found[name] = inside[-1][1] if inside else f"{'Appendix' if appendix else 'Section'} {section}"
    letter = {label: f"Appendix {chr(64 + int(n.split()[1]))}" for label, n in found.items() if n[:8] == "Appendix"}
    named = ITEMS | {label: place for label, place in PLACES.items() if label.startswith("sec:")}
    assert {label: {**found, **letter}[label] for label in named} == named
