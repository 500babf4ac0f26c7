"""Columns and levels that all sites agree on: matched by name, read strictly, held against each site's own table."""

import json

import numpy as np
import pytest
from hostile import Hostile, design, gaussian_table
from memory_world import MemoryWorld, by_hand

import fedlsa as fl
from fedlsa.errors import MessageError, NetworkError, SiteDataError
from fedlsa.fitting.design import MAX_LEVELS
from fedlsa.fitting.rows import Columns
from fedlsa.network.coordinator.run_loop import complete_run
from fedlsa.network.protocol.agreed_design import AgreedDesign, common_design, look_alikes

REGION = (("region", ("north", "south")),)


def rewrite(path, order):
    """The columns of a CSV file in another order."""
    head, *rows = path.read_text().splitlines()
    chosen = [head.split(",").index(name) for name in order]
    path.write_text("\n".join(",".join(line.split(",")[j] for j in chosen) for line in (head, *rows)) + "\n")


def finished(world, **options):
    run = world.start(**by_hand(6, local="means", **options))
    complete_run(world.network, run, world)
    return run.read("result.json")


def test_levels_keep_the_order_of_every_site_and_orders_that_differ_are_an_error():
    orders = ("low", "high"), ("low", "mid", "high"), ("high", "low")
    low, mid, high = (AgreedDesign(("dose",), (("dose", levels),)) for levels in orders)
    assert common_design([low, mid], ["a", "b"]) == mid
    with pytest.raises(SiteDataError, match="'low' before 'high' at b and 'high' before 'low' at c"):
        common_design([low, mid, high], ["a", "b", "c"])


def test_columns_in_another_order_at_every_site_give_the_same_coefficients(tmp_path):
    task = fl.Regression("y")
    plain = MemoryWorld(tmp_path / "plain", task)
    mixed = MemoryWorld(tmp_path / "mixed", task)
    rng = np.random.default_rng(0)
    for name in mixed.network.sites[1:]:
        rewrite(mixed.root / f"{name}.csv", rng.permutation([*(f"x{j}" for j in range(8)), "y"]).tolist())
    one, other = finished(plain), finished(mixed)
    assert one["names"] == other["names"] == [*(f"x{j}" for j in range(8)), "intercept"]
    blurred = 1e-8  # by 2^-32, in the sums of each site
    np.testing.assert_allclose(other["coefficients"], one["coefficients"], rtol=0, atol=blurred)
    assert np.abs(one["coefficients"]).min() > 1e-3  # a permutation of them would show


def test_a_column_that_a_site_lacks_is_named_with_the_site(tmp_path):
    world = MemoryWorld(tmp_path, fl.Regression("y"))
    rewrite(tmp_path / "site-3.csv", ["x0", "x1", "x2", "x3", "x4", "x5", "x7", "y"])
    run = world.start(**by_hand(2, local="means"))
    with pytest.raises((NetworkError, SiteDataError), match="site-3 lacks the column 'x6' that site-1 has"):
        complete_run(world.network, run, world)


def test_sites_that_do_not_fit_together_are_told_apart():
    good = AgreedDesign(("x", "z"))
    assert common_design([good, AgreedDesign(("z", "x"))], ["a", "b"]) == good
    with pytest.raises(SiteDataError, match="b lacks the column 'z' that a has"):
        common_design([good, AgreedDesign(("x", "w"))], ["a", "b"])
    with pytest.raises(SiteDataError, match=r"a lacks the column ' \[2J' that b has"):
        common_design([good, AgreedDesign(("x", "z", "\x1b[2J"))], ["a", "b"])


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", '"x"', "[" * 100_000, '{"columns": [], "levels": []}',
        '{"columns": ["x", "x"], "levels": []}', '{"columns": "xy", "levels": []}', '{"columns": [1], "levels": []}',
        '{"columns": ["x"], "levels": {}}', '{"columns": ["\\ud800"], "levels": []}',
        '{"columns": ["x"], "levels": [], "more": 1}',
        '{"columns": ["x"], "levels": [["x", []]]}', '{"columns": ["x"], "levels": [["x", ["a", "a"]]]}',
        '{"columns": ["x"], "levels": [["x", ["a"]], ["x", ["b"]]]}', '{"columns": ["x"], "levels": [["x", [NaN]]]}',
        '{"columns": ["x"], "levels": [["x", [1e999]]]}', '{"columns": ["x"], "levels": [["x", [1, true]]]}',
        '{"columns": ["x"], "levels": [["x", [1, 1.0]]]}', '{"columns": ["x"], "levels": [["x", [null]]]}',
        '{"columns": ["x"], "levels": [["x", [["a"]]]]}', '{"columns": ["x"], "levels": [["x", [{"a": 1}]]]}',
        '{"columns": ["x"], "levels": [["x", ["\\ud800"]]]}',
        json.dumps({"columns": ["x"], "levels": [["x", ["a" * 201]]]}),
        json.dumps({"columns": ["x" * 201], "levels": []}),
        json.dumps({"columns": ["x"], "levels": [["x", [*range(MAX_LEVELS + 1)]]]}),
    ],
)  # fmt: skip
def test_a_design_is_read_strictly(text):
    with pytest.raises(MessageError, match="'design' must be columns and levels"):
        AgreedDesign.from_text(text)


@pytest.mark.parametrize("levels", [(), REGION, (("year", (1990, 1991)), ("used", (False, True)), ("z", (0.1, 1e300)))])
def test_a_design_comes_back_as_it_was_written(levels):
    one = AgreedDesign(("x", "\N{GREEK SMALL LETTER BETA}", "a,b"), levels)
    assert AgreedDesign.from_text(one.text()) == one


def test_a_site_takes_a_design_of_its_own_columns_and_all_its_levels_alone():
    task, own = fl.Regression("y"), Columns(("x", "region"), (), "y", levels=REGION)
    wider = (("region", ("east", "north", "south")),)
    found = AgreedDesign(("region", "x"), wider).chosen(own, task)
    assert (found.state, found.levels) == (("region", "x"), wider)
    for columns, levels in (
        (("x",), REGION), (("x", "salary"), REGION), (("x", "region", "salary"), REGION), (("x", "region"), ()),
        (("x", "region"), (("region", ("north", "east")),)), (("x", "region"), (("x", (1, 2)), *REGION)),
        (("x", "region"), (("salary", ("north", "south")),)), (("x", "region"), (("region", ("north", "South")),)),
        (("x", "region"), (("region", ("north", "s\N{CYRILLIC SMALL LETTER O}uth")),)),
    ):  # fmt: skip
        with pytest.raises(MessageError, match="'design' must have"):
            AgreedDesign(columns, levels).chosen(own, task)
    with pytest.raises(MessageError, match="'design' must have"):  # the task has an order of its own
        AgreedDesign(("region", "x"), REGION).chosen(own, fl.Regression("y", columns=["x", "region"]))
    numbers = Columns(("x",), (), "y", levels=(("x", (0, 1)),))
    for other in ((False, True), (0.0, 1.0)):  # equal in Python, and not the same
        with pytest.raises(MessageError, match="'design' must have all levels"):
            AgreedDesign(("x",), (("x", other),)).chosen(numbers, task)


def test_levels_that_look_alike_are_told():
    composed, apart = "S\N{LATIN SMALL LETTER A WITH TILDE}o", "Sa\N{COMBINING TILDE}o"
    levels = ("North", "north ", "south", composed, apart)
    told = look_alikes(AgreedDesign(("x",), (("region", levels), ("year", (1, 2)))))
    assert len(told) == 2
    assert "'region' has the levels 'North' and 'north ', which look alike" in told[0]
    assert "'S\\xe3o' and 'Sa\\u0303o'" in told[1]


def test_a_coordinator_cannot_change_the_design_within_a_run_nor_choose_other_columns(tmp_path):
    world = Hostile(tmp_path, gaussian_table(60, 3))
    other = AgreedDesign(("x2", "x0", "x1"))
    assert world.describe().kind == "description"
    for bad in (design(2), design(4), AgreedDesign(("x0", "x1", "y"))):
        assert "'design' must" in world.standardise(design=bad).text
    assert world.standardise().kind == "sums"
    assert world.standardise(design=other).kind == "refusal"
    assert "the one that the run began with" in world.measure(design=other).text
    assert world.measure().kind == "measurement"
    assert world.work().kind == "reply"
