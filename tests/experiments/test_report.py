"""The report: whole in itself, well formed, escaped, the same bytes for the same outcomes."""

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import parse_qsl

import numpy as np
import pandas as pd
import pytest
import tiny

from fedlsa.errors import ArgumentError, UnknownNameError
from fedlsa.experiments import EXPERIMENTS, LocalExecutor, Outcome, Scale, Verdict, reproduce
from fedlsa.experiments.experiment import interval, summary, verdict_words
from fedlsa.experiments.report import claims, explorer_settings, page, panels
from fedlsa.explore.page_settings import PageSettings
from fedlsa.figures.chart_data import chart_data
from fedlsa.figures.lines import Chart, ChartRows, Line, mean_line
from fedlsa.mathml import ITEMS, LABEL, PLACES, cite, mathml

VOID = {"meta", "img", "br", "link", "input", "hr"}
QUICK = Scale("paper", 3, quick=True)
CATALOGUE = {**tiny.CATALOGUE, "wrong": tiny.WRONG}


def charts(experiment, scale=QUICK, panel=None):
    """Charts with the titles that the experiment declares, the same lines in all."""
    panel = panel or Chart([Line(np.arange(3.0), np.ones(3), "it")])
    titled = {p.name: [[replace(panel, title=title) for title in p.panels(scale)]] for p in experiment.pictures}
    return {name: chart_data(ChartRows(rows)) for name, rows in titled.items()}


def outcome(experiment, values, scale=QUICK, rows=None):
    """With made-up values of claims, and the same rows in every table."""
    frame = pd.DataFrame(rows or [{"method": "it", "n": 1}])
    tables = {t.name: frame for t in experiment.tables}
    return Outcome(experiment, scale, {}, charts(experiment, scale), tables, values)


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
    outcomes, _ = reproduce(["one", "two", "wrong"], tiny.SCALES, out, LocalExecutor(), catalogue=CATALOGUE)
    return out, outcomes, (out / "report" / "index.html").read_text()


def test_tags_balance_and_the_page_fits_a_phone(made):
    reader = Reader(made[2])
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in [held for _, held in reader.tags]
    assert "prefers-color-scheme: dark" in made[2]


def test_the_page_asks_nothing_of_anyone(made):
    reader = Reader(made[2])
    assert not {"link", "iframe", "object", "img"} & {tag for tag, _ in reader.tags}
    assert "import(" not in made[2]
    assert reader.attributes("src") == []
    assert "url(" not in made[2]
    assert "@import" not in made[2]
    assert {link.partition("?")[0] for link in reader.attributes("href") if "://" in link} <= {"http://127.0.0.1:8765/"}


def test_every_link_leads_somewhere(made):
    out, _, text = made
    reader = Reader(text)
    names = reader.attributes("id")
    assert len(names) == len(set(names))
    links = reader.attributes("href")
    assert {link[1:] for link in links if link.startswith("#")} <= set(names)
    assert {"one", "two", "wrong", "claim-near", "paper", "beyond", "charts"} <= set(names)
    files = [link for link in links if link.startswith("..")]
    assert sorted({f.rpartition(".")[2] for f in files}) == ["csv", "pdf"]
    assert all((out / "report" / f).exists() for f in files)


def test_every_chart_stands_once_and_is_shown_wherever_it_is_needed(made):
    data = json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', made[2])[1])
    assert set(data) == {f"{name}-{preset}-0" for name in ("one", "two") for preset in ("paper", "authors")}
    reader = Reader(made[2])
    assert set(reader.attributes("data-chart")) == set(data)
    assert {i for ids in reader.attributes("data-charts") for i in ids.split()} == set(data)
    assert made[2].count('data-chart="one-paper-0"') == 5  # twice in each of two entries, and among all pictures
    assert len(data["one-paper-0"]["lines"]) == 9


def test_text_is_escaped_and_comes_back_as_it_was(made):
    text = Reader(made[2]).text
    for words in ("First & foremost", "Means of 3 seeds, <paper>", "The means & more", "mean <i>", "<right> & near"):
        assert words in text
    assert "the <means>" in text
    assert "<means>" not in made[2]
    assert "<right>" not in made[2]
    assert "<i>" not in made[2]


def test_it_shows_titles_numbers_parameters_commands_and_verdicts(made):
    text = Reader(made[2]).text
    for words in (
        "one · Figure 1 in the paper",
        "means are small in Figure 1",
        "fedlsa reproduce one --preset authors --seeds 3 --instances 0 --quick",
        "place 0, 1, 2, 3, 4, 5, 6, 7",
        "mean of draws: holds if 1 … 2 holds",
        "the mean is <right> & near Number: mean of draws; of all.",
        "does not hold as stated",
        "They are not.",
        "FAILED",
        "The number does not lie where the claim says",
    ):
        assert words in text, words


def test_kinds_of_claims_stand_apart_with_totals_of_their_own_and_contradictions_first(made):
    reader = Reader(made[2])
    assert "What the paper says 1 does not hold as stated 1 holds Beyond the paper 1 FAILED" in reader.text
    entries = [(held["data-kind"], held["data-verdict"]) for _, held in reader.tags if "data-kind" in held]
    assert entries == [("paper", "note"), ("paper", "good"), ("beyond", "bad")]


def test_what_is_printed_and_fails_has_an_entry_each_as_a_correction_with_its_numbers():
    e = EXPERIMENTS["corrections"]
    gaps = [(-0.5,) if c.at_least == 0 else (0.5,) for c in e.claims]
    table = [{"statement": c.row, "what": "RMSE, at most", "printed": 0.25, "exact": 0.75} for c in e.claims]
    outcomes = [outcome(e, gaps, scale, table) for scale in tiny.SCALES]
    reader = Reader(page(outcomes))
    entries = [held["data-verdict"] for tag, held in reader.tags if tag == "article"]
    assert entries == ["note"] * len(e.claims) == ["note"] * 22
    assert "Printed statements that are corrected 22 corrected" in reader.text
    assert reader.text.count("what RMSE, at most printed 0.25 exact 0.75") == 22  # once, and not on each instance
    assert reader.text.count("corrected RMSE, at most 0.25 : printed; 0.75 : exact, on a counterexample") == 22
    assert "Lemma A.3" in reader.text
    assert summary(outcomes) == ["22 printed statements are corrected: each fails on an exact counterexample"]


def test_several_claims_on_one_sentence_are_one_entry_that_holds_if_they_all_do():
    e = EXPERIMENTS["fig2"]
    assert e.claims[2].quote == e.claims[3].quote
    values = [(-1.0,), (-1.0,), (0.0,), (500.0,), (1.5,), (0.5,)]
    both = [outcome(e, values, scale) for scale in tiny.SCALES]
    assert summary(both)[0] == "4 of 4 sentences of the paper hold on both instances"
    reader = Reader(page(both))
    assert reader.attributes("id").count("claim-bias-ignores-agents") == 1
    assert "claim-speed-up-ends" not in reader.attributes("id")
    assert "agents at which FedLSA's noise has fallen to its drift: holds if ≤ 1000 holds 500" in reader.text
    later = [both[0], outcome(e, [*values[:3], (2000.0,), *values[4:]], tiny.SCALES[1])]  # on one instance, one of two
    assert summary(later)[0] == "3 of 4 sentences of the paper hold on both instances; 1 FAILED"
    assert summary(both[:1])[0] == "4 of 4 sentences of the paper hold on the instance of the paper's text"


def numbered(experiment, row):
    """A row for each claim that has its numbers in a table, or one row."""
    rows = [{"statement": c.row, "what": "it", "printed": 0.25, "exact": 0.75} for c in experiment.claims if c.row]
    return rows or [row]


def test_formulas_of_entries_are_mathml_and_none_is_left_as_text():
    row = {"method": "q = τ_mix", "exponent of N": 2.5, "theta_star": -1e-5}
    every = [outcome(e, [(0.5,)] * len(e.claims), rows=numbered(e, row)) for e in EXPERIMENTS.values()]
    text = page(every)
    formula = mathml(r"\le \eta^2H^2\,E_c[e^{\eta H\Vert\bar A_c\Vert}\Vert\theta_\star^c-\theta_\star\Vert]", "inline")
    assert formula in text
    words = re.sub(r"<(math|script|style|code|pre|defs).*?</\1>", "", text, flags=re.S)
    words = Reader(words).text.replace("--", "")
    assert "$" not in words
    assert not re.search(r"[\u0391-\u03c9‖\\]|\w_\w|\^", words), re.findall(r".{20}[\u0391-\u03c9‖\\_^].{9}", words)


def test_a_quick_run_says_what_it_ran_and_which_claims_it_decided():
    claims = EXPERIMENTS["fig1"].claims
    values = [(0.0,)] * (len(claims) - 1) + [(float("nan"),)]
    text = Reader(page([outcome(EXPERIMENTS["fig1"], values)])).text
    assert "It ran N = 10; H = 10, 1 000; η = 0.1; 5, 60, 200, 20 000 rounds; 3, 40 seeds." in text
    assert "the same test as in a full run: 1 of 6" in text
    assert "Not to be decided at this size: simulation-agrees-main" in text
    assert "decided at a smaller size: N = 10 (full run: 100)" in text
    assert "A quick picture, which may not show the claim: N = 10 (full run: 10, 100); 5, 200 (full run:" in text
    full = Reader(page([outcome(EXPERIMENTS["fig1"], values, replace(QUICK, quick=False))])).text
    assert "Quick run" not in full
    assert "quick picture" not in full


def test_what_is_no_number_has_its_reason_and_numbers_stand_at_the_right(made):
    assert "nan" not in Reader(made[2]).text.split()
    assert '<span title="it was left out">—</span>' in made[2]
    assert "— none: it was left out." in Reader(made[2]).text
    assert '<td class="n">' in made[2]


def test_a_table_with_many_columns_and_few_rows_stands_on_its_side():
    e = EXPERIMENTS["markov"]
    row = {"setting": "FedLSA", **{f"number {i}": float(i) for i in range(20)}, "squared bias": float("nan")}
    reader = Reader(page([outcome(e, [(0.0,)] * 5, rows=[row, {**row, "setting": "SCAFFLSA"}])]))
    assert [held["scope"] for tag, held in reader.tags if tag == "th"] == ["col"] * 3 + ["row"] * 21
    assert "setting FedLSA SCAFFLSA number 0 0 0 number 1 1 1" in reader.text
    assert "squared bias: a simulation does not know the mean of its law" in reader.text


def test_the_chart_in_an_entry_is_the_one_that_the_claim_names():
    claims = {c.name: c for c in EXPERIMENTS["fig1"].claims}
    made = outcome(EXPERIMENTS["fig1"], [(0.0,)] * 6)
    assert panels([claims["fedlsa-stalls"]], made) == {("fig1", 1): "heterogeneous, N = 10, H = 1,000"}
    assert panels([claims["alike-when-homogeneous"]], made) == {("fig1", 3): "homogeneous, N = 10, H = 1,000"}
    full = outcome(EXPERIMENTS["fig1"], [(0.0,)] * 6, Scale())
    assert panels([claims["fedlsa-stalls"]], full) == {("fig1", 3): "heterogeneous, N = 100, H = 1,000"}
    both = [replace(claims["fedlsa-stalls"], panel=f"fig1: heterogeneous, N = 10, H = {H}") for H in ("10", "1,000")]
    assert [place for _, place in panels([*both, *both], made)] == [0, 1]


@pytest.mark.parametrize("scale", [QUICK, Scale("authors")], ids=["quick", "full"])
def test_links_into_the_explorer_are_settings_that_it_takes(scale):
    every = {c.name: explorer_settings(c, scale) for e in EXPERIMENTS.values() for c in e.claims}
    for name, text in every.items():
        if text:
            settings = PageSettings.from_address(text)
            assert (settings.problem, settings.preset) == ("garnet", scale.preset), name
            assert settings.from_query(dict(parse_qsl(text)))[1] == {}
    stalls = PageSettings.from_address(every["fedlsa-stalls"])
    wanted = (10 if scale.quick else 100, 0.1, 1000, True)
    assert (stalls.agents, stalls.step_size, stalls.local_steps, stalls.heterogeneous) == wanted
    printed = PageSettings.from_address(every["debiased-as-printed"])  # that of the picture in its entry
    assert (printed.step_size, printed.local_steps, printed.heterogeneous) == (0.1, 1000, True)
    assert not PageSettings.from_address(every["alike-when-homogeneous"]).heterogeneous
    assert every["lower-bound-psi"] == every["table1-fedlsa-a"] == every["values-home"] == ""
    assert PageSettings.from_address(every["markov-whole"]).sampling == "markov" if not scale.quick else True


def test_every_label_has_the_number_that_the_paper_prints():
    texts = [t for e in EXPERIMENTS.values() for c in e.claims for t in (c.source, c.quote)]
    texts += [label for e in EXPERIMENTS.values() for label in e.labels]
    assert {label for text in texts for label in LABEL.findall(text)} <= ITEMS.keys() | PLACES.keys()
    assert not LABEL.search(" ".join(map(cite, texts)))
    printed = {
        "fig1": "Figure 1", "fig2": "Figure 2", "local-steps": "Figure 3, Figure 4",
        "small-steps": "Figure 5, Figure 6", "debiased": "Figure 7, Figure 8", "table1": "Table 1, Theorem F.4",
        "table2": "Table 2", "markov": "Corollary 4.5, Algorithm 3", "values": "Section 3.2, Appendix E",
    }  # fmt: skip
    assert {e.name: ", ".join(map(cite, e.labels)) for e in EXPERIMENTS.values() if e.labels} == printed
    sources = {c.name: cite(c.source) for e in EXPERIMENTS.values() for c in e.claims}
    assert sources["fedlsa-stalls"] == "Section 6, Figure 1; Theorem 4.1"
    assert sources["scafflsa-unbiased"] == "Section 6, Figure 1; Theorem C.8"
    assert sources["scafflsa-speed-up"] == "Section 6, Figure 2; Corollary 5.2"
    assert sources["speed-up-synchronous"] == "Corollary A.7"
    assert sources["markov-mixing-time"] == "Section 4, before Corollary 4.5"


def test_equal_outcomes_give_equal_bytes_without_dates(made, tmp_path):
    again, _ = reproduce(
        ["one", "two", "wrong"], tiny.SCALES, tmp_path / "elsewhere", LocalExecutor(), catalogue=CATALOGUE
    )
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
    with pytest.raises(ArgumentError, match="quote must hold the words of a claim of the paper"):
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
    assert claims(outcomes) == (out / "report" / "claims.csv").read_bytes()
    assert float(rows[0]["value"]) == outcomes[0].verdicts[0].value


def test_a_full_report_is_under_two_megabytes():
    rng = np.random.default_rng(0)
    x = np.arange(0, 50_250, 250)

    def panel():
        noisy = 10 ** rng.normal(np.linspace(1, -3, 201), 0.2, (10, 201))
        means = [mean_line(x, noisy, name, "#d55e00") for name in ("FedLSA", "SCAFFLSA")]
        exact = [Line(x, noisy.mean(0), "exact expectation", role="expectation", name=f"exact {k}") for k in range(2)]
        return Chart([*means, *exact])

    row = {"method": "SCAFFLSA, N = 10", **dict.fromkeys(map(str, range(25)), 0.1)}
    outcomes = []
    for scale in (Scale("paper"), Scale("authors")):
        for e in EXPERIMENTS.values():
            made = outcome(e, [(0.5, *[0.25] * 10)] * len(e.claims), scale, numbered(e, row) * 30)
            outcomes.append(replace(made, charts=charts(e, scale, panel())))
    assert sum(len(e.pictures) for e in EXPERIMENTS.values()) == 14
    assert 1_000_000 < len(page(outcomes).encode()) < 2_000_000


def test_an_entry_that_holds_here_says_on_how_many_other_instances_it_holds():
    e = EXPERIMENTS["values"]
    text = page([outcome(e, [(0.5, 2.0, 0.25)] * len(e.claims))])
    assert text.count('<span class="few">holds on 1 of 2 others</span>') == len(e.claims)
    text = page([outcome(e, [(0.5, 0.5, 0.25)] * len(e.claims))])
    assert text.count("<span>holds on 2 of 2 others</span>") == len(e.claims)
