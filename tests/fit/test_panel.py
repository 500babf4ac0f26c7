"""The panel of eleven firms: federated least squares is pooled least squares, with its HC0 errors."""

import numpy as np
import panel
import pytest

import fedlsa as fl


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return panel.write_sites(tmp_path_factory.mktemp("firms"))


def test_a_long_run_matches_pooled_least_squares_and_hc0(files):
    theta, hc0 = panel.pooled()
    fit = fl.fit(files, panel.TASK, 1e-10, weight="samples", local="means", centred=False)
    assert (len(fit.per_site), sum(s.rows for s in fit.per_site)) == (11, 220)
    assert np.abs(fit.theta / theta - 1).max() < 1e-10
    assert np.abs(fit.protocol / theta - 1).max() < 1e-6
    assert np.abs(fit.standard_error / hc0 - 1).max() < 1e-6


def test_errors_about_each_firms_own_mean_are_smaller(files):
    about_zero, within = (
        fl.fit(files, panel.TASK, 1e-6, weight="samples", local="means", centred=c) for c in (False, True)
    )
    # firms differ by more than the factors n_c / (n_c - 1) and n / (n - d) of centred scores, 7%, give back
    assert np.linalg.eigvalsh(about_zero.covariance - within.covariance).min() > -1e-12


def test_the_example_prints_its_tables_and_draws_its_picture(tmp_path, capsys):
    panel.main(tmp_path, methods=("fedlsa", "scafflsa"))
    out = capsys.readouterr().out
    rounds = {w[0]: int(w[1]) for w in map(str.split, out.splitlines()) if w and w[0] in ("FedLSA", "SCAFFLSA")}
    assert rounds["SCAFFLSA"] < rounds["FedLSA"] / 10
    assert (tmp_path / "panel.png").stat().st_size > 20_000
