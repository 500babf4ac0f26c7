"""The report: whole in itself, well formed, escaped, the same bytes for the same outcomes."""

import base64
import csv
import re
from html.parser import HTMLParser

import pytest
import tiny

from fedlsa.errors import ArgumentError, UnknownNameError
from fedlsa.experiments import Local, Outcome, Verdict, reproduce
from fedlsa.experiments.report_page import claims, interval, page, verdict_words

VOID = {"meta", "img", "br", "link", "input", "hr"}
CATALOGUE = {**tiny.CATALOGUE, "wrong": tiny.WRONG}


class Reader(HTMLParser):
    """Tags that balance, what they link to, and the text between them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def attributes(self, name):
        return [held[name] for _, held in self.tags if name in held]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    outcomes, _ = reproduce(["one", "two", "wrong"], tiny.SCALES, out, Local(), catalogue=CATALOGUE)
    return out, outcomes, (out / "report" / "index.html").read_text()


def test_tags_balance_and_the_page_fits_a_phone(made):
    reader = Reader(made[2])
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [held for _, held in reader.tags]
    assert "max-width: 100%" in made[2]
    assert "prefers-color-scheme: dark" in made[2]


def test_the_page_asks_nothing_of_anyone(made):
    reader = Reader(made[2])
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in reader.tags}
    assert "url(" not in made[2]
    assert "@import" not in made[2]
    sources = reader.attributes("src")
    assert len(sources) == 4  # two pictures of two instances
    assert all(s.startswith("data:image/png;base64,") for s in sources)
    assert base64.b64decode(sources[0].partition(",")[2]) == (made[0] / "figures" / "paper" / "one.png").read_bytes()


def test_every_link_leads_somewhere(made):
    out, _, text = made
    reader = Reader(text)
    names = set(reader.attributes("id"))
    links = reader.attributes("href")
    assert {link[1:] for link in links if link.startswith("#")} == names == {"one", "two", "wrong"}
    files = [link for link in links if not link.startswith("#")]
    assert sorted({f.rpartition(".")[2] for f in files}) == ["csv", "pdf"]
    assert all((out / "report" / f).exists() for f in files)


def test_text_is_escaped_and_comes_back_as_it_was(made):
    text = Reader(made[2]).text
    for words in ("First & foremost", "Means of 3 seeds, <paper>", "The means & more", "mean <i>", "<right> & near"):
        assert words in text
    assert "<right>" not in made[2]
    assert "<i>" not in made[2]


def test_it_shows_titles_labels_parameters_commands_and_verdicts(made):
    text = Reader(made[2]).text
    for words in (
        "fig:one",
        "fedlsa reproduce one --preset authors --seeds 3 --instances 0 --quick",
        "place 0, 1, 2, 3, 4, 5, 6, 7",
        "mean of all draws; holds if 1 … 2",
        "does not hold as stated",
        "FAILED",
        "Quick run.",
    ):
        assert words in text, words


def test_the_summary_counts_verdicts_of_both_instances(made):
    first = made[2].split("<section", 1)[0]
    text = Reader(first + "</main></body></html>").text
    assert "of the paper: 2 hold 2 not as stated beyond the paper: 2 FAILED" in text
    assert "First & foremost of the paper: 1 hold 1 not as stated of the paper: 1 hold 1 not as stated" in text
    assert "Second no claims no claims" in text


def test_equal_outcomes_give_equal_bytes_without_dates(made, tmp_path):
    again, _ = reproduce(["one", "two", "wrong"], tiny.SCALES, tmp_path / "elsewhere", Local(), catalogue=CATALOGUE)
    assert page(again) == made[2]
    assert not re.search(r"20\d\d-\d\d", made[2])
    assert str(made[0]) not in made[2]


def test_a_verdict_says_holds_not_as_stated_or_failed(made):
    def words(value, **bounds):
        return verdict_words(Verdict(tiny.claim("it", **bounds), tiny.SCALES[0], value))

    assert words(1.0, at_most=2.0) == "holds"
    assert words(3.0, at_most=2.0) == "FAILED"
    assert words(3.0, at_most=2.0, expected=False) == "does not hold as stated"
    assert words(1.0, at_most=2.0, expected=False) == "FAILED"
    assert interval(tiny.claim("it", at_least=0.5)) == "≥ 0.5"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("expected", [True, False])
@pytest.mark.parametrize("bounds", [{"at_most": 2.0}, {"at_least": -1.0}])
def test_what_is_no_number_is_a_failure_whatever_was_expected(value, expected, bounds):
    claim = tiny.claim("it", expected=expected, **bounds)
    here, there = Verdict(claim, tiny.SCALES[0], value), Verdict(claim, tiny.SCALES[0], 0.0, (0.0, value))
    assert verdict_words(here) == verdict_words(there) == "FAILED"
    assert (here.holds, there.holds_elsewhere) == (False, 1)


def test_a_claim_of_the_paper_quotes_it_and_every_claim_could_fail():
    with pytest.raises(ArgumentError, match="quote must hold the paper's words"):
        tiny.claim("it", at_most=1.0, kind="paper")
    with pytest.raises(ArgumentError, match="could not fail"):
        tiny.claim("it")
    with pytest.raises(UnknownNameError, match="kind must be one of"):
        tiny.claim("it", at_most=1.0, kind="papers")


def test_claims_are_there_for_programs_too(made):
    out, outcomes, _ = made
    assert all(isinstance(o, Outcome) for o in outcomes)
    rows = list(csv.DictReader((out / "report" / "claims.csv").open()))
    assert [r["verdict"] for r in rows if r["preset"] == "paper"] == ["holds", "does not hold as stated", "FAILED"]
    assert claims(outcomes) == (out / "report" / "claims.csv").read_text()
    assert float(rows[0]["value"]) == outcomes[0].verdicts[0].value
