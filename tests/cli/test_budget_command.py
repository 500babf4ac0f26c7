"""`fedlsa network budget`: a sentence for a budget that buys something, one line for one that does not."""

import numpy as np
import pytest
from refusals import refused


@pytest.fixture
def files(tmp_path):
    rng, names = np.random.default_rng(0), []
    for c in range(4):
        x = rng.uniform(-1, 1, (400, 2))
        y = x @ [1.0, -2.0] + rng.uniform(-0.2, 0.2, 400)
        name = tmp_path / f"like-{c}.csv"
        name.write_text("a,b,y\n" + "\n".join(",".join(f"{v:.6f}" for v in row) for row in np.column_stack([x, y])))
        names.append(name.name)
    return names


def test_a_budget_for_rows_buys_an_error_that_is_said_beforehand(fedlsa, files):
    code, out, err = fedlsa(
        "network", "budget", *files, "--target", "y", "--no-standardise", "--no-intercept", "--privacy", "2", "--unit",
        "record", "--row-clip", "6", "--local-steps", "20", "--max-rounds", "20",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "(2, 1e-05)-differential privacy of a row" in out
    assert "the expected error is" in out
    assert "Not covered" not in out


def test_a_budget_that_cannot_be_afforded_is_one_line_with_one_that_can(fedlsa, files):
    ran = fedlsa("network", "budget", *files, "--privacy", "0.1", "--max-rounds", "5")
    refused(ran, "--privacy must be larger", "would do")


def test_numbers_alone_give_a_lower_bound(fedlsa):
    code, out, _ = fedlsa(
        "network", "budget", "--privacy", "1", "--sites", "10", "--coefficients", "8", "--clip", "1"
    )  # fmt: skip
    assert code == 0
    assert "noise of 62.7 times the clip; no method then ends nearer than 56.1" in out


def test_what_is_missing_is_named(fedlsa, files):
    for line, words in (
        (("--privacy", "1", "--sites", "3", "--clip", "1"), "--coefficients must be given"),
        ((*files, "--privacy", "1", "--unit", "record"), "--row-clip must be given"),
        ((*files, "--privacy", "1", "--unit", "record", "--discount", "0.9"), "--unit must be 'site'"),
        ((*files, "--privacy", "0"), "--privacy must be"),
    ):
        refused(fedlsa("network", "budget", *line), words)
