"""Eleven firms, twenty years each: one investment equation for all, without any firm's figures leaving it.

Grunfeld's panel (it comes with statsmodels) explains a firm's investment by its market value and its capital. Here each
firm is a site with a file of its own. A long run matches pooled least squares; then each method gets the accuracy that
`fl.fit` chooses by itself, and shows how many communications it needs. Run it with `python examples/panel.py`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import fedlsa as fl

TASK = fl.Regression(target="invest", columns=("value", "capital"))
METHODS = ("fedlsa", "scafflsa", "scaffnew")


def write_sites(folder: Path) -> list[Path]:
    """A CSV file for each firm."""
    from statsmodels.datasets import grunfeld

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for firm, rows in grunfeld.load_pandas().data.groupby("firm", sort=False):
        files.append(folder / f"{str(firm).lower().replace(' ', '-')}.csv")
        rows[["year", "invest", "value", "capital"]].to_csv(files[-1], index=False)
    return files


def pooled() -> tuple[np.ndarray, np.ndarray]:
    """Pooled least squares on all rows in one place, with HC3 standard errors."""
    import statsmodels.api as sm
    from statsmodels.datasets import grunfeld

    data = grunfeld.load_pandas().data
    ols = sm.OLS(data["invest"], sm.add_constant(data[["value", "capital"]], prepend=False)).fit(cov_type="HC3")
    return ols.params.to_numpy(), ols.bse.to_numpy()


def main(folder: Path = Path("out/panel"), methods: Sequence[str] = METHODS) -> None:
    files = write_sites(folder / "firms")
    theta, hc3 = pooled()

    # every row counts the same, as in pooled least squares; steps on each site's means have no noise, so that a long
    # run ends at the solution itself
    long_run = fl.fit(files, TASK, epsilon=1e-10, local="means")
    clustered = fl.fit(files, TASK, epsilon=1e-10, local="means", cluster="sites")
    rows = []
    for j, name in enumerate(long_run.names):
        rows.append(
            {
                "coefficient": name,
                "fedlsa": float(long_run.protocol[j]),
                "pooled least squares": float(theta[j]),
                "error": float(long_run.standard_error[j]),
                "HC3": float(hc3[j]),
                "error, clustered by firm": float(clustered.standard_error[j]),
            }
        )
    print(f"{len(files)} firms, {sum(s.rows for s in long_run.per_site)} rows")
    print(fl.results.table(rows))
    print(
        f"largest difference from pooled least squares: {np.max(np.abs(long_run.protocol / theta - 1)):.1e} of its size"
    )
    print(f"largest difference from HC3: {np.max(np.abs(long_run.standard_error / hc3 - 1)):.1e} of its size\n")

    between = long_run.heterogeneity()
    print(between, "\n")
    fl.figures.save(between.plot("capital"), folder / "forest.png", command="python examples/panel.py")

    costs = []
    for method in methods:
        found = fl.fit(files, TASK, method=method, local="rows", baselines=True)  # eleven sites: by default means
        costs.append(
            {
                "method": type(found.plan.algorithm).__name__,
                "communications": found.communications,
                "local steps of a firm": found.plan.samples,
                "bytes": found.plan.bytes,
                "from the data's solution, standard errors": found.baselines[0].distance,
            }
        )
        if method == "scafflsa":
            fl.figures.save(fl.figures.coefficients(found), folder / "panel.png", command="python examples/panel.py")
    print("communications until no combination of coefficients is off by a tenth of its standard error")
    print(f"(on the standardised scale epsilon = {found.epsilon:.2g})")
    print(fl.results.table(costs))
    print(f"pictures: {folder / 'panel.png'}, {folder / 'forest.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/panel"), help="folder of the files and of the picture")
    main(parser.parse_args().out)
