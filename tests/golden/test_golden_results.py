"""The golden results are those of the calls that they name."""

import json

import numpy as np
import pytest
from cases import CASES
from make import RESULTS, make

GOLDEN = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_results_are_of_the_cases_in_the_list():
    assert [{key: entry[key] for key in case} for case, entry in zip(CASES, GOLDEN, strict=True)] == CASES


def test_many_data_sets_of_four_packages_are_held():
    assert len({entry["data"] for entry in GOLDEN}) >= 16
    assert {entry["package"].split()[0] for entry in GOLDEN} == {
        "statsmodels",
        "scikit-learn",
        "linearmodels",
        "pyfixest",
    }


@pytest.mark.parametrize("entry", [e for e in GOLDEN if e["data"] == "statsmodels:stackloss"])
def test_the_packages_still_say_so(entry):
    case = {key: entry[key] for key in CASES[0]}
    made = make(case)
    assert made["names"] == entry["names"]
    for name in ("coefficients", "standard_errors", "t_values", "p_values", "intervals", "r_squared"):
        np.testing.assert_allclose(made[name], entry[name], rtol=1e-9)
