"""A coordinator can read the rows of a site by ordinary orders, and nothing that we print says otherwise."""

import re
from pathlib import Path

import numpy as np

import fedlsa as fl
from fedlsa.network.folder import setup
from fedlsa.network.folder.setup import init
from fedlsa.network.protocol.coding import Coding
from fedlsa.network.protocol.messages import Describe, Measure, Work
from fedlsa.network.site.orders import OrderHandler, run_terms
from fedlsa.network.site.site_data import open_data

ROOT = Path(__file__).parents[2]
ROWS, COLUMNS = 40, 5
PROMISE = re.compile(
    r"\b(rows?|data)\W+(that |which |whose )?(never|do not|does not|cannot)\s+(leave|be read|get out)"
    r"|\b(rows?|data)\s+(that |which )?(always )?(stay|remain)s?\s+(at home|with|local|where)"
    r"|\bnever:\s+rows|\brows never|\bno rows? (ever )?leaves?\b|\bkeeps? (its|their) (rows|data)\b",
    re.I,
)


def rows_read(handler, most):
    """The rows that single steps of size 1 from theta = 0 give away, and how many orders it took to see them all."""
    z = np.zeros(COLUMNS + 1)
    assert (
        handler.answer(Describe("trial", run_terms(handler.task, Coding(), "rows", "t")).record()).kind == "description"
    )
    scale = np.zeros(COLUMNS), np.ones(COLUMNS), 0.0, 1.0
    assert handler.answer(Measure("trial", *scale, True, False).record()).kind == "measurement"
    found = set()
    for order in range(most):
        work = Work("trial", 0, z, 0, z, 0.0, 1.0, 0, z, order + 1, 1.0, 1, order, 0, 0)  # nothing is ever averaged
        reply = handler.answer(work.record()).arrays["delta"]  # y (x, 1)
        found.add(tuple(np.round(np.append(reply[:-1] / reply[-1], reply[-1]), 9)))
        if len(found) == ROWS:
            return found, order + 1
    return found, most


def test_a_coordinator_can_read_every_row_by_ordinary_orders_and_the_page_says_so(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS))
    rows = np.column_stack([X, X @ np.arange(COLUMNS) + rng.normal(size=ROWS)])
    head = ",".join([f"x{i}" for i in range(COLUMNS)] + ["y"])
    np.savetxt(tmp_path / "s.csv", rows, delimiter=",", header=head, comments="", fmt="%.17g")
    task = fl.Regression("y")
    handler = OrderHandler("site-1", tmp_path, open_data(tmp_path / "s.csv", None, task), task)
    found, orders = rows_read(handler, most=400)
    assert found == {tuple(np.round(row, 9)) for row in rows}
    page = (ROOT / "docs" / "network.md").read_text(encoding="utf-8")
    assert f"has all {ROWS} rows of a site after {orders} of them (`tests/network/{Path(__file__).name}`)" in page


def test_no_text_promises_that_rows_cannot_be_read(tmp_path):
    network = init(tmp_path / "net", 1, "fed.example.org", 8000, task=fl.Regression("y"))
    texts = {"coordinator": setup.render("coordinator.md", network), "site": setup.render("site.md", network, "site-1")}
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("templates/*"),
        *ROOT.glob("examples/*"),
    ]
    texts |= {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in files if p.is_file()}
    assert len(texts) > 200
    for name, text in texts.items():
        found = PROMISE.search(" ".join(text.replace("**", "").split()))
        assert found is None, f"{name}: {found.group()}"
    for text in (texts["site"], texts["docs/network.md"]):
        assert "coordinator can read" in text
        assert "--trust-coordinator" in text
    assert " --trust-coordinator --yes\n" in setup.render("site.service", network, "site-1")


def test_the_search_knows_a_promise_when_it_sees_one():
    for text in (
        "Rows never do.", "Never: rows, A_c, b_c, or the control variate itself.", "sites whose data stay at home",
        "real sites, whose rows stay at home", "sites that keep their rows", "data that stay with it", "no row leaves",
        "rows do not leave the site", "your rows cannot be read",
    ):  # fmt: skip
        assert PROMISE.search(text), text
