"""A coordinator that asks for the levels of a category to learn who is in a table, or writes code into a formula."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hostile import Hostile, gaussian_table, statistics
from memory_world import MemoryWorld
from msgspec.structs import replace as changed

import fedlsa as fl
from fedlsa.errors import FedLSAError, MessageError, NetworkError, SiteDataError
from fedlsa.network.coordinator import commands
from fedlsa.network.coordinator.run_loop import complete_run
from fedlsa.network.folder.config import task_from_text, task_text
from fedlsa.network.protocol.agreed_design import AgreedDesign
from fedlsa.network.protocol.messages import Standardise
from fedlsa.network.protocol.ring import Coding
from fedlsa.network.site.facts import check
from fedlsa.network.site.orders import OrderHandler
from fedlsa.network.site.policy import Policy, explain, template
from fedlsa.network.site.site_data import open_data

FORMULA = "y ~ x0 + C(region)"
REGIONS = ["east", "north", "south"]


def people(n=90, seed=0):
    """A table in which each row, and each family, has a name of its own."""
    rows = gaussian_table(n, 2, seed)
    out = pd.DataFrame(rows, columns=["x0", "x1", "y"])
    out["region"] = np.array(REGIONS)[np.arange(n) % 3]
    out["patient"] = [f"P{1000 + k}" for k in range(n)]
    out["number"] = 1000 + np.arange(n)
    out["family"] = [f"family {k // 10}" for k in range(n)]
    out["person"] = [f"person {k // 5}" for k in range(n)]
    return out


class Curious(Hostile):
    """The coordinator of a formula; `table` are the victim's people, `named_levels` what its policy lets be named."""

    def __init__(self, root, formula=FORMULA, table=None, named_levels=("*",), **policy):
        task = fl.Regression(formula) if isinstance(formula, str) else formula
        super().__init__(root, gaussian_table(60), task, named_levels=named_levels, **policy)
        self.people = people() if table is None else table
        self.table = root / "people.parquet"
        self.people.to_parquet(self.table)
        self.handler = self.opened()


def said(world):
    """What leaves the site when it describes its table, and that as text, without the signed totals of its ledger."""
    answer = world.describe()
    return answer, str(changed(answer, receipt=""))


@pytest.mark.parametrize(
    ("column", "entry"), [("patient", "least_rows_per_level"), ("number", "least_rows_per_level"), ("person", None)]
)
def test_a_coordinator_that_asks_for_names_of_rows_gets_none(tmp_path, column, entry):
    """Identifiers are levels of few rows; where each person has five rows there are too many levels."""
    policy = {} if entry else {"most_levels": 10}
    answer, text = said(Curious(tmp_path, f"y ~ x0 + C({column})", **policy))
    assert answer.kind == "refusal"
    assert f"({entry or 'most_levels'})" in answer.text
    assert not any(name in text for name in ("P10", "1000", "1001", "person 1"))


@pytest.mark.parametrize("formula", ["y ~ x0 + region", FORMULA, "y ~ x0 * C(region, contr.sum)", "y ~ x0:region"])
def test_no_level_is_named_of_a_column_that_the_policy_does_not_list(tmp_path, formula):
    for k, listed in enumerate(((), ("x0", "y", "Region"))):
        answer, text = said(Curious(tmp_path / str(k), formula, named_levels=listed))
        assert "(named_levels)" in answer.text
        assert "north" not in text
    answer, text = said(Curious(tmp_path / "listed", formula, named_levels=("region",)))
    assert answer.kind == "description"
    assert answer.design.levels == (("region", tuple(REGIONS)),)


def test_a_level_of_a_few_rows_is_not_named_whichever_comes_first(tmp_path):
    """The level that a coding leaves out has no column of its own, and counts as well."""
    for k, rare in enumerate(("aaa", "zzz")):
        table = people()
        table.loc[:3, "region"] = rare
        answer, text = said(Curious(tmp_path / str(k), table=table))
        assert "(least_rows_per_level)" in answer.text
        assert rare not in text
    table.loc[4, "region"] = "zzz"
    answer, _ = said(Curious(tmp_path / "five", table=table))
    assert answer.kind == "description"


def test_with_privacy_no_level_leaves_unless_sums_may(tmp_path):
    coding = Coding(clip=1.0, noise=20.0)
    world = Curious(tmp_path, privacy="site", epsilon=10.0)
    assert "(noiseless_sums)" in world.describe(coding=coding).text
    allowed = Curious(tmp_path / "b", privacy="site", epsilon=10.0, noiseless_sums=True)
    assert allowed.describe(coding=coding).kind == "description"


def test_a_reference_level_that_nobody_has_does_not_bring_the_levels_out(tmp_path):
    world = Curious(tmp_path, "y ~ C(region, contr.treatment(3))", named_levels=("region",))
    answer, text = said(world)
    assert answer.text == "this site cannot read its data or its files; its own log says why"
    assert "north" not in text
    assert any("'north'" in line for line in world.lines)  # for its own person


def agreed(*levels, columns=("x0", "region"), column="region"):
    return AgreedDesign(columns, ((column, levels),))


def test_levels_of_the_coordinators_own_choosing_are_refused(tmp_path):
    world = Curious(tmp_path)
    assert world.describe().kind == "description"
    own = tuple(REGIONS)
    for bad in (
        agreed(*own[:2]), agreed(*own, column="x0"), AgreedDesign(("x0", "region")),
        AgreedDesign(("x0", "region"), (("region", own), ("x0", (0, 1)))), agreed(0, 1, 2),
        agreed("East", "north", "south"), agreed("e\N{CYRILLIC SMALL LETTER A}st", "north", "south"),
        agreed(*own, columns=("x0", "region", "x1")), agreed(*own, columns=("x0",)),
    ):  # fmt: skip
        answer = world.standardise(design=bad)
        assert answer.kind == "refusal"
        assert "'design' must" in answer.text
    for levels in ((*own, *(f"l{k}" for k in range(100_000))), (*own, "east"), (*own, "x" * 201)):
        with pytest.raises(MessageError):  # as every order is read
            agreed(*levels)
    many = Curious(tmp_path / "many")
    many.describe()
    answer = many.standardise(design=agreed(*own, *(f"l{k}" for k in range(148))))
    assert "(most_levels)" in answer.text
    more = agreed(*sorted((*own, "west")))
    assert world.standardise(design=more).kind == "sums"
    for other in (agreed(*own), agreed(*sorted((*own, "westt")))):  # another one later, in the same run
        assert world.measure(design=other).kind == "refusal"


def test_a_cell_of_few_rows_that_only_the_agreed_levels_show_ends_the_run(tmp_path):
    """With region coded from `aaa` on, the product of x1's flag with the level that was left out has a column."""
    table = people(200)
    table["flag"] = (np.arange(200) % 3 == 0) & (np.arange(200) < 10)  # 4 rows, all of them of the first region
    table.loc[150:, "flag"] = np.arange(50) % 3 > 0
    table["flag"] = table["flag"].astype(float)
    world = Curious(tmp_path, "y ~ C(region) + flag + C(region):flag", table)
    assert world.describe().kind == "description"
    more = agreed("aaa", *REGIONS, columns=("region", "flag"))
    assert "(least_rows_off_common_value)" in world.standardise(design=more).text
    assert "no more orders" in world.standardise(design=more).text


APART = (
    "y ~ x0 + I(x0 + 1e6 * (number < 1004))", "y ~ x0 + I(x0 + (number == 1000))",
    "y ~ x0 + I(x0 + 1e-5 * (number == 1000))", "y ~ x0 + I(x0 + 1e-8 * (number == 1000))",
    "y ~ x0 + I(x0 * (number != 1000))", "I(y * (1 + 1e6 * (number == 1000))) ~ x0",
    "y ~ x0 + I(x0 + exp(-100 * (number - 1000) ** 2))", "y ~ x0 + maximum(x0, 1e3 * (1001.5 - number))",
    "y ~ x0 + I(x0 + 1e-3 * (number == 1000)):region + x0:region",
)  # fmt: skip


@pytest.mark.parametrize("formula", APART)
def test_a_formula_that_sets_a_few_rows_apart_is_refused_before_any_sum_leaves(tmp_path, formula):
    table = people()
    table["x0"] = table["x0"].abs() + 1
    answer = Curious(tmp_path, formula, table).describe()
    assert "(least_rows_off_common_value)" in answer.text


def test_what_a_formula_that_sets_one_row_apart_would_read_from_the_first_sums(tmp_path):
    """Mean squares of x and of x + a, a in one row alone, differ by (2 a x + a^2) / n there."""
    world = Curious(tmp_path, "y ~ x0 + I(x0 + 1e-3 * (number == 1000))", least_rows_off_common_value=1)
    design = world.describe().design
    order = Standardise("trial", **world.agreed() | {"design": design})
    sums = statistics(world, order, world.answer(order)) * 3
    read = ((sums[5] - sums[4]) * 90 - 1e-6) / 2e-3
    assert abs(read - world.people["x0"][0]) < 1e-3


def test_formulas_that_set_no_row_apart_are_answered(tmp_path):
    for k, formula in enumerate(
        ("log(y + 100) ~ x0 * x1 + I(x0 ** 2) + C(region)", "y ~ I(x0 > 0) + sqrt(abs(x1)):region")
    ):
        assert Curious(tmp_path / str(k), formula, people(1000)).describe().kind == "description"


EVIL = (
    "y ~ __import__('os').system('touch /tmp/owned')", "y ~ I(().__class__.__mro__)", "y ~ eval('1')",
    "y ~ x0 + {open('/etc/passwd').read()}", "y ~ np.load('x')", "y ~ [x for x in x0]",
    "y ~ C(region, __import__('os'))", "y ~ I(x0.__class__)", "y ~ exec(x0)", "__import__('os').getcwd() ~ x0",
    "y ~ I(x0 if x1 else x0)", "y ~ f'{x0}'", "y ~ C(`region`, contr.treatment(open('x')))", "y ~ x0 + (x0 := 1)",
)  # fmt: skip


@pytest.mark.parametrize("evil", EVIL)
def test_a_formula_that_is_code_is_refused_by_the_site_before_anything_is_read(evil):
    sent = json.dumps(json.loads(task_text(fl.Regression("y ~ x0"))) | {"target": evil})
    with pytest.raises(FedLSAError, match=r"formula|expression|contrast|C\("):  # as site.toml is read, from a bundle
        task_from_text(sent)


def test_a_formula_other_than_the_one_that_the_site_was_sent_is_refused(tmp_path):
    answer = Curious(tmp_path).describe(task=task_text(fl.Regression("y ~ x0 + C(patient)")))
    assert "about the task that this site was sent" in answer.text


@pytest.mark.parametrize("task", [fl.Regression(FORMULA, missing="drop"), fl.Regression("y", ["x0"], missing="drop")])
def test_rows_that_are_left_out_are_told_to_the_sites_own_person_alone(tmp_path, task):
    table = people()
    table.loc[:6, "x0"] = np.nan
    table.loc[3:8, "y"] = np.nan
    world = Curious(tmp_path, task, table)
    answer, text = said(world)
    assert answer.rows == 81
    assert "9" not in text
    lines = " ".join(check(world.handler.table.data.opened, task))
    assert "81 rows" in lines
    assert "9 more rows lack a value that the task needs, and are left out" in lines
    refused = Curious(tmp_path / "error", replace(task, missing="error"), table)
    assert refused.describe().text == "this site cannot read its data or its files; its own log says why"
    assert any("missing" in line for line in refused.lines)


def test_levels_of_rows_that_are_left_out_are_not_named(tmp_path):
    table = people()
    table.loc[:5, "region"] = "secret"
    table.loc[:5, "x0"] = np.nan
    answer, text = said(Curious(tmp_path, fl.Regression(FORMULA, missing="drop"), table))
    assert answer.kind == "description"
    assert "secret" not in text
    table.loc[2:5, "x0"] = 0.5  # four are used: too few to be named
    answer, text = said(Curious(tmp_path / "few", fl.Regression(FORMULA, missing="drop"), table))
    assert "(least_rows_per_level)" in answer.text
    assert "secret" not in text


def test_all_columns_of_a_formula_and_the_offset_must_be_allowed(tmp_path):
    formula = "log(x1 + 100) ~ x0 + C(region) + I(number ** 2)"
    needed = ("x0", "x1", "region", "number")
    for k, left_out in enumerate(needed):
        world = Curious(tmp_path / str(k), formula, columns=tuple(c for c in needed if c != left_out))
        answer = world.describe()
        assert f"(columns): the task uses {left_out!r}" in answer.text
    assert Curious(tmp_path / "all", formula, columns=needed).describe().kind == "description"
    task = fl.Regression("y", columns=["x0"], offset="x1")
    assert 'columns = ["x0", "y", "x1"]' in template(task)
    answer = Curious(tmp_path / "offset", task, columns=("x0", "y")).describe()
    assert "(columns): the task uses 'x1'" in answer.text


def test_the_template_lists_what_a_formula_names_and_a_person_is_told_what_would_leave(tmp_path):
    task = fl.Regression("log(y) ~ x0 + C(region) + patient + x0:x1")
    text = template(task)
    assert 'columns = ["y", "x0", "region", "patient", "x1"]' in text
    assert 'named_levels = ["x0", "region", "patient", "x1"]' in text
    assert "named_levels = []" in template(fl.Regression("y"))
    sentences = " ".join(explain(Policy(named_levels=("region",))))
    assert "levels of region, where at least 5 rows have each" in sentences
    assert "levels" not in " ".join(explain(Policy()))
    people().to_parquet(tmp_path / "people.parquet")
    site = open_data(tmp_path / "people.parquet", None, fl.Regression(FORMULA))
    lines = " ".join(check(site.opened, site.task))
    assert "Levels of 'region' that would leave: east, north, south (the rarest has 30 rows)." in lines


class Honest(MemoryWorld):
    """Four sites with tables of their own in Parquet files."""

    def __init__(self, root, formula, tables, **policy):
        super().__init__(root, fl.Regression(formula), sites=len(tables), named_levels=("*",), **policy)
        self.handlers = {}
        for name, table in zip(self.network.sites, tables, strict=True):
            table.to_parquet(root / f"{name}.parquet")
            data = open_data(root / f"{name}.parquet", None, self.task)
            self.handlers[name] = OrderHandler(self.sites[name], data, self.policy, lambda text: None)

    def handler(self, site):
        return self.handlers[site]


def regional(counts, seed):
    """Rows of each region, of which y depends on x and the region."""
    rng = np.random.default_rng(seed)
    region = np.repeat(list(counts), list(counts.values()))
    x = rng.normal(size=len(region))
    level = {"east": 0.0, "north": 1.0, "south": -1.0, "west": 2.0}
    y = 0.5 * x + np.array([level[r] for r in region]) + 0.3 * rng.normal(size=len(region))
    return pd.DataFrame({"y": y, "x": x, "region": region})


def test_sites_that_lack_levels_agree_on_all_and_reach_pooled_least_squares(tmp_path):
    """Unequal sites, one with a single level, and a reference level that most of them lack."""
    tables = [
        regional({"north": 40, "south": 30}, 0), regional({"north": 60}, 1), regional({"east": 50, "west": 40}, 2),
        regional({"south": 25, "west": 55, "north": 20}, 3),
    ]  # fmt: skip
    world = Honest(tmp_path, 'y ~ C(region, contr.treatment("west")) + x', tables, share_moments=True)
    run = world.start(epsilon=1e-3, local="means")
    complete_run(world.network, run, world)
    found = run.read("result.json")
    assert found["settings"]["weight"] == "samples"
    assert run.read("terms.json")["curve"][-1][1] <= 1e-3  # though sites ask for smaller steps than fl.plan has
    pooled = pd.concat(tables)
    others = ("east", "north", "south")
    X = np.column_stack([*(pooled["region"] == r for r in others), pooled["x"], np.ones(len(pooled))]).astype(float)
    best = np.linalg.lstsq(X, pooled["y"], rcond=None)[0]
    assert found["names"] == [*(f"C(region, contr.treatment('west'))[T.{r}]" for r in others), "x", "intercept"]
    np.testing.assert_allclose(found["coefficients"], best, rtol=0, atol=5e-3)
    told = json.loads((world.folder("site-2") / "results" / "trial.json").read_text())
    assert told["names"] == found["names"]
    commands.model(world.network.folder).save(tmp_path / "model.json")
    model = fl.Fit.load(tmp_path / "model.json")
    new = pd.DataFrame({"other": [0, 0], "region": ["north", "west"], "x": [2.0, 0.0]})  # by name, in another order
    c = dict(zip(found["names"], found["coefficients"], strict=True))
    north = c["C(region, contr.treatment('west'))[T.north]"]
    np.testing.assert_allclose(model.predict(new), [c["intercept"] + north + 2 * c["x"], c["intercept"]], rtol=1e-12)
    assert np.isnan(model.standard_error).all()
    assert model.rows == len(pooled)
    assert "none: share_scores is not true in the policy of" in str(model.summary())
    assert model._repr_html_()


def test_sites_that_disagree_about_what_a_column_is_are_told_apart(tmp_path):
    tables = [regional({"north": 40, "south": 30}, k) for k in range(3)]
    tables[1] = tables[1].assign(region=np.arange(70) % 3)
    world = Honest(tmp_path, "y ~ x + C(region)", tables)
    with pytest.raises(
        (NetworkError, SiteDataError), match="levels of one kind; got numbers at site-2 and text at site-1"
    ):
        complete_run(world.network, world.start(epsilon=0.1, local="means"), world)
