"""The site's policy: a file that says what it means, strict reading, and refusals that name the entry."""

import dataclasses
import os
import tomllib

import numpy as np
import pytest
from msgspec.structs import replace as changed

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, NetworkError, PolicyError
from fedlsa.fitting.rows import FeatureScale, Piece
from fedlsa.fitting.run_plan import RowSizes, power_of_two, row_sizes
from fedlsa.fitting.sums import Summary
from fedlsa.network.protocol.ring import Coding
from fedlsa.network.protocol.run_settings import RunTerms
from fedlsa.network.site import limits
from fedlsa.network.site.limits import TableFacts
from fedlsa.network.site.policy import Policy, explain, template

REGRESSION = fl.Regression("y", columns=["age", "dose"])
FACTS = TableFacts(200, ("age", "dose", "y"), ("dose", 60))
TERMS = RunTerms(
    task="", token="t", method="scafflsa", local="rows", aggregation="secure", coding=Coding(), sites=("a", "b", "c"),
    certificates=("", "", ""), rounds=100,
)  # fmt: skip


def sizes_of(rows, largest, leverage):
    """Sizes of a table whose rows are at most so long, as far as averages tell."""
    return RowSizes(rows, largest / (rows * power_of_two(leverage)), leverage)


def loaded(tmp_path, **changes):
    path = tmp_path / "policy.toml"
    lines = template(REGRESSION).splitlines()
    for name, value in changes.items():
        (at,) = [i for i, line in enumerate(lines) if line.startswith(f"{name} = ")]
        lines[at] = f"{name} = {value}"
    path.write_text("\n".join(lines))
    return Policy.load(path)


def test_the_template_says_every_entry_with_a_sentence_above_it_and_reads_back_as_the_default(tmp_path):
    text = template(REGRESSION)
    lines = text.splitlines()
    names = [field.name for field in dataclasses.fields(Policy)]
    assert [line.partition(" = ")[0] for line in lines if line and line[0] != "#"] == ["version", *names]
    for name in names:
        (at,) = [i for i, line in enumerate(lines) if line.startswith(f"{name} = ")]
        assert lines[at - 1].startswith("# ")
    assert max(map(len, lines)) <= 120
    assert loaded(tmp_path) == Policy(tasks=("regression",), columns=("age", "dose", "y"))
    assert tomllib.loads(template(fl.Value(0.9)))["columns"] == ["*"]


def test_the_default_is_careful():
    p = Policy()
    assert (p.least_rows, p.least_rows_off_common_value, p.least_local_steps, p.least_sites) == (50, 5, 20, 3)
    assert not p.share_moments
    assert not p.noiseless_sums
    assert p.largest_step <= 1


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("least_rows", "0", "least_rows must be a positive integer; got 0"),
        ("least_rows", "50.0", "least_rows must be a positive integer; got 50.0"),
        ("least_rows", "true", "least_rows must be a positive integer; got True"),
        ("least_rows", '"fifty"', "least_rows must be a positive integer; got 'fifty'"),
        ("least_sites", "-1", "least_sites must be a positive integer"),
        ("largest_step", "1.5", "largest_step must be a finite number above 0 and at most 1; got 1.5"),
        ("largest_step", "nan", "largest_step must be a finite number"),
        ("largest_weight", "2", "largest_weight must be a finite number above 0 and at most 1"),
        ("largest_row_share", "inf", "largest_row_share must be a finite number"),
        ("draw_rows", "1", "draw_rows must be True or False; got 1"),
        ("tasks", '"regression"', "tasks must be a list of texts; got 'regression'"),
        ("tasks", '["regresion"]', "each of tasks must be one of .*did you mean 'regression'"),
        ("columns", "[1, 2]", "columns must be a list of texts"),
        ("peers", '["abc"]', "each of peers must be a fingerprint of 32 hexadecimal digits; got 'abc'"),
        ("privacy", '"rows"', "privacy must be one of 'none', 'record', 'site'; got 'rows'"),
        ("epsilon", "0", "epsilon must be a finite number above 0"),
        ("delta", "1", "delta must be a finite number above 0 and below 1"),
        ("ledger_copy", "3", "ledger_copy must be a path as text; got 3"),
        ("version", "2", "has version 2; this fedlsa reads version 1"),
        ("version", "true", "its version must be 1; got True"),
        ("version", "1.0", "its version must be 1; got 1.0"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_name(tmp_path, name, value, words):
    with pytest.raises(NetworkError, match=words) as caught:
        loaded(tmp_path, **{name: value})
    assert "policy.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


WHOLE = ["five", 5.0, True, None, [5]], [0, -1, 2**63]
PART = ["half", True, None, [0.5]], [0, -0.5, 1.5, float("nan"), float("inf")]
POSITIVE = PART[0], [0, -0.5, float("nan"), float("inf")]
FLAG = ["true", 1, None], []
BAD = {  # of every entry: values of a wrong type, values out of range
    "tasks": (["regression", 1, None, [1]], [["regresion"], [""]]),
    "columns": (["age", 1, None, [1]], [[""]]),
    "named_levels": (["age", 1, None, [1]], [[""]]),
    "least_rows_per_level": WHOLE,
    "most_levels": WHOLE,
    "least_rows": WHOLE,
    "least_rows_off_common_value": WHOLE,
    "least_changed_rows": WHOLE,
    "draw_rows": FLAG,
    "least_local_steps": WHOLE,
    "most_local_steps": WHOLE,
    "largest_step": PART,
    "largest_row_share": POSITIVE,
    "largest_deviation": POSITIVE,
    "least_sites": WHOLE,
    "largest_weight": PART,
    "most_groups": WHOLE,
    "peers": (["ab" * 16, 1, None, [1]], [["abc"], ["xy" * 16]]),
    "most_rounds": WHOLE,
    "most_runs": WHOLE,
    "most_answers": WHOLE,
    "privacy": ([1, True, None, ["none"]], ["rows", ""]),
    "epsilon": POSITIVE,
    "delta": (PART[0], [*PART[1], 1]),
    "noiseless_sums": FLAG,
    "share_moments": FLAG,
    "share_scores": FLAG,
    "approve_runs": FLAG,
    "ledger_copy": ([3, None, ["a"]], ["a\0b"]),
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Policy)])
def test_every_entry_refuses_a_wrong_type_and_a_value_out_of_range_by_its_name(name):
    wrong_types, out_of_range = BAD[name]
    for value in wrong_types:
        with pytest.raises(ArgumentTypeError, match=rf"^{name} must .*; got "):
            Policy(**{name: value})
    for value in out_of_range:
        with pytest.raises((ArgumentError, ArgumentTypeError), match=rf"^(each of )?{name} must .*; got "):
            Policy(**{name: value})


def test_an_unknown_entry_a_missing_file_and_damaged_text_are_refused(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("version = 1\nleast_row = 3\n")
    with pytest.raises(NetworkError, match="got 'least_row'; did you mean 'least_rows'"):
        Policy.load(path)
    path.write_text("version = 1\n[limits]\nleast_rows = 3\n")
    with pytest.raises(NetworkError, match="entries of its own only; got 'limits'"):
        Policy.load(path)
    path.write_text("version = 1\nleast_rows = 3\nleast_rows = 4\n")
    with pytest.raises(NetworkError, match=r"the policy .* is damaged"):
        Policy.load(path)
    path.write_text("version = 1\na = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(NetworkError, match=r"the policy .* is damaged"):
        Policy.load(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(NetworkError, match="is not a file"):  # and nobody waits for what it may say
        Policy.load(tmp_path / "pipe")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(NetworkError, match=r"the policy .* is damaged"):
        Policy.load(path)
    with pytest.raises(NetworkError, match="without one nothing may leave"):
        Policy.load(tmp_path / "gone.toml")
    with pytest.raises(NetworkError, match="is not a file"):
        Policy.load(tmp_path)
    path.write_text("version = 1\nleast_rows = 70\n")
    assert Policy.load(path) == Policy(least_rows=70)


@pytest.mark.parametrize(
    ("policy", "terms", "facts", "name"),
    [
        (Policy(tasks=("value",)), {}, FACTS, "tasks"),
        (Policy(columns=("age", "y")), {}, FACTS, "columns"),
        (Policy(least_rows=201), {}, FACTS, "least_rows"),
        (Policy(least_rows_off_common_value=61), {}, FACTS, "least_rows_off_common_value"),
        (Policy(draw_rows=False), {}, FACTS, "draw_rows"),
        (Policy(), {"aggregation": "plain"}, FACTS, "least_sites"),
        (Policy(), {"sites": ("a", "b"), "certificates": ("", "")}, FACTS, "least_sites"),
        (Policy(most_rounds=99), {}, FACTS, "most_rounds"),
        (Policy(), {"method": "scaffnew"}, FACTS, "least_local_steps"),
        (Policy(), {"coding": Coding(row_clip=1.0)}, FACTS, "privacy"),
    ],
)
def test_terms_that_ask_for_more_are_refused_by_the_name_of_the_entry(policy, terms, facts, name):
    with pytest.raises(PolicyError, match=rf"\({name}\)"):
        limits.check_terms(policy, changed(TERMS, **terms), facts, REGRESSION)


def test_terms_within_the_policy_pass():
    limits.check_terms(Policy(), TERMS, FACTS, REGRESSION)
    limits.check_terms(Policy(draw_rows=False), changed(TERMS, local="means"), FACTS, REGRESSION)
    limits.check_terms(Policy(least_sites=1), changed(TERMS, aggregation="plain", sites=("a",)), FACTS, REGRESSION)


def test_a_sum_in_which_the_others_hardly_count_is_refused():
    names = ("a", "b", "c", "d")
    limits.check_sum(Policy(), "a", names, np.full(4, 0.25))
    limits.check_sum(Policy(), "b", names, np.array([0.9, 0.05, 0.03, 0.02]))  # drowned by a: nothing to see
    with pytest.raises(PolicyError, match=r"\(least_sites\).*has 1"):
        limits.check_sum(Policy(), "a", names, np.array([1.0, 1e-300, 1e-300, 1e-300]))
    with pytest.raises(PolicyError, match=r"\(least_sites\).*has 2"):
        limits.check_sum(Policy(), "a", ("a", "b"), np.array([0.5, 0.5]))
    with pytest.raises(PolicyError, match=r"\(largest_weight\)"):
        limits.check_sum(Policy(), "a", names, np.array([0.7, 0.1, 0.1, 0.1]))
    limits.check_sum(Policy(least_sites=1), "a", ("a",), np.ones(1))


SUMMARY = Summary(100, np.array([50.0, 2.0, 7.0]), 100 * np.array([100.0, 0.25, 4.0]), np.zeros(3))


@pytest.mark.parametrize(
    ("centre", "spread", "y", "good"),
    [
        ([50.0, 2.0], [10.0, 0.5], (7.0, 2.0), True),
        ([30.0, 2.0], [10.0, 0.5], (7.0, 2.0), True),  # another site's mean is pooled in
        ([50.0, 2.0], [1e6, 0.5], (7.0, 2.0), True),
        ([50.0, 2.0], [10.0, 1e-3], (7.0, 2.0), False),
        ([50.0, 2.0], [10.0, 5e-324], (7.0, 2.0), False),
        ([1e9, 2.0], [10.0, 0.5], (7.0, 2.0), False),
        ([50.0, 2.0], [10.0, 0.5], (7.0, 1e-6), False),
    ],
)
def test_coordinates_far_from_the_sites_own_are_refused(centre, spread, y, good):
    scale = FeatureScale(np.array(centre), np.array(spread), *y, True)
    if good:
        limits.check_coordinates(Policy(), scale, SUMMARY, REGRESSION)
    else:
        with pytest.raises(PolicyError, match=r"\(largest_deviation\)"):
            limits.check_coordinates(Policy(), scale, SUMMARY, REGRESSION)


def test_a_task_without_coordinates_of_its_own_takes_none():
    raw, moved = fl.Regression("y", standardise=False), fl.Regression("y", standardise=False, ridge=0.1)
    own = FeatureScale(np.zeros(2), np.ones(2), 0.0, 1.0, True)
    other = FeatureScale(np.zeros(2), np.array([1.0, 0.5]), 0.0, 1.0, True)
    shifted = FeatureScale(np.array([3.0, 1.0]), np.ones(2), 1.0, 1.0, True)
    limits.check_coordinates(Policy(), own, SUMMARY, raw)
    limits.check_coordinates(Policy(), shifted, SUMMARY, moved)
    for scale, task in ((other, raw), (shifted, raw), (other, moved), (shifted, fl.Regression("y", intercept=False))):
        with pytest.raises(PolicyError, match=r"\(largest_deviation\)"):
            limits.check_coordinates(Policy(), scale, SUMMARY, task)


def test_steps_behind_which_a_row_could_stand_alone_are_refused():
    sizes = sizes_of(1000, 20.0, 0.012)  # an ordinary table: its outlier is 12 of 1000 rows, so 20 * 12 draws
    limits.check_steps(Policy(), 1 / 640, 256, sizes, True)
    for eta, steps, name in (
        (1 / 640, 255, "least_local_steps"),
        (1 / 639, 256, "largest_step"),
        (1.0, 1, "least_local"),
    ):
        with pytest.raises(PolicyError, match=name):
            limits.check_steps(Policy(), eta, steps, sizes, True)
    limits.check_steps(Policy(), 1.0, 1, sizes, False)  # all rows are behind it
    with pytest.raises(PolicyError, match=r"\(largest_step\)"):  # steps that leave every range hide nobody
        limits.check_steps(Policy(), 1.01, 1, sizes, False)
    for drawn in (True, False):
        with pytest.raises(PolicyError, match=r"\(largest_row_share\)"):
            limits.check_steps(Policy(), 1e-9, 10**6, sizes_of(1000, 20.0, 0.6), drawn)


def test_refusals_tell_what_depends_on_one_row_to_a_power_of_two_only():
    def texts(sizes):
        out = []
        for eta, steps in ((1.0, 10**6), (1e-9, 21)):
            with pytest.raises(PolicyError) as caught:
                limits.check_steps(Policy(), eta, steps, sizes, True)
            out.append(str(caught.value))
        return out

    assert texts(sizes_of(1000, 17.0, 0.027)) == texts(sizes_of(1000, 31.9, 0.051))
    assert texts(sizes_of(1000, 17.0, 0.027)) != texts(sizes_of(1000, 33.0, 0.027))
    assert texts(sizes_of(1000, 17.0, 0.027)) != texts(sizes_of(1000, 17.0, 0.052))


def test_leverage_is_that_of_the_table_in_any_coordinates():
    rng = np.random.default_rng(0)
    x, y = np.column_stack([rng.normal(size=(300, 2)), np.ones(300)]), rng.normal(size=300)
    x[:, 1] = np.arange(300) < 5
    w = np.column_stack([x, y])
    hat = w @ np.linalg.inv(w.T @ w) @ w.T
    mixed = x @ np.array([[1e6, 1.0, 0], [0, 1e-3, 0], [4.0, 5.0, 1.0]])
    for u in (x, mixed):
        sizes = row_sizes(lambda u=u: iter([Piece(u[:200], u[:200], y[:200]), Piece(u[200:], u[200:], y[200:])]))
        assert sizes.rows == 300
        assert sizes.leverage == pytest.approx(np.diag(hat).max(), rel=1e-6)
        longest = (u**2).sum(axis=1).max()
        assert longest * (1 - 1e-9) <= sizes.largest  # and no more than powers of two and the directions explain
        assert sizes.mean == pytest.approx(np.linalg.eigvalsh(u.T @ u / 300)[-1], rel=1e-9)
    alone = np.zeros((300, 1))
    alone[7] = 1e-9
    pieces = [Piece(np.ones((300, 1)), alone, y)]  # of a value function: v stands out, u does not
    assert row_sizes(lambda: iter(pieces)).leverage == pytest.approx(1.0)
    assert row_sizes(lambda: iter([Piece(alone, np.ones((300, 1)), y)])).leverage == pytest.approx(1.0)


def test_what_may_leave_is_explained_with_what_is_not_promised():
    said = " ".join(explain(Policy()))
    assert "at least 3 sites" in said
    assert "at least 20 rows" in said
    assert "Not promised: without noise, averages over many rows leave exactly" in said
    assert "compare fingerprints" in said
    assert "the coordinator knows its own solution" in " ".join(explain(Policy(share_moments=True)))
    assert "may read this site's own answers" in " ".join(explain(Policy(least_sites=1)))
    private = " ".join(explain(Policy(privacy="site", epsilon=2.0)))
    assert "(2, 1e-05)-differentially private about the whole table." in private
    assert "Not promised" not in private
    assert "sums of columns" not in private
    assert "Not in this: the number of rows" in private
    loud = " ".join(explain(Policy(privacy="record", noiseless_sums=True)))
    assert "sums of columns" in loud
    assert "and the sums that leave before a run without noise" in loud


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o664])
def test_a_policy_that_others_can_write_is_refused(tmp_path, mode):
    path = tmp_path / "policy.toml"
    path.write_text(Policy().text())
    path.chmod(mode)
    with pytest.raises(NetworkError, match=rf"must be writable by its owner alone; got mode {mode:o}\. .*chmod go-w"):
        Policy.load(path)
    path.chmod(0o644)
    assert Policy.load(path) == Policy()


def test_rare_values_are_counted_over_the_whole_table_however_it_is_cut(tmp_path):
    """The first rows of a file decided what is common, so that three rows of a rare value passed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fedlsa.network.site.facts import view
    from fedlsa.network.site.site_data import open_data

    rng, n = np.random.default_rng(0), 400
    columns = {"flag": np.r_[np.ones(3), np.zeros(n - 3)], "x": rng.normal(size=n), "y": rng.normal(size=n)}
    table, task = pa.table(columns), fl.Regression("y")
    for first in (n, 5, 4, 3, 1):
        path = tmp_path / f"{first}.parquet"
        with pq.ParquetWriter(path, table.schema) as file:
            file.write_table(table.slice(0, first))
            file.write_table(table.slice(first))
        assert view(open_data(path, None, task).opened, task).facts.rarest == ("flag", 3)
