"""The panel of eleven firms: federated least squares is pooled least squares, with its HC3 errors."""

import numpy as np
import panel
import pytest

import fedlsa as fl


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return panel.write_sites(tmp_path_factory.mktemp("firms"))


def test_a_long_run_matches_pooled_least_squares_and_hc3(files):
    theta, hc3 = panel.pooled()
    fit = fl.fit(files, panel.TASK, 1e-10, local="means")
    assert (len(fit.per_site), sum(s.rows for s in fit.per_site)) == (11, 220)
    assert np.abs(fit.theta / theta - 1).max() < 1e-10
    assert np.abs(fit.protocol / theta - 1).max() < 1e-6
    assert np.abs(fit.standard_error / hc3 - 1).max() < 1e-6


def test_errors_clustered_by_firm_are_those_of_a_jackknife_of_firms(files):
    found = fl.fit(files, panel.TASK, 1e-6, local="means", cluster="sites")
    off = np.stack([site.without for site in found.per_site]) - found.theta
    np.testing.assert_allclose(found.covariance, off.T @ off, rtol=1e-8)
    assert (found.covariance_kind, found.degrees_of_freedom) == ("CR3, 11 clusters", 10)


def test_the_example_prints_its_tables_and_draws_its_picture(tmp_path, capsys, pictures):
    panel.main(tmp_path, methods=("fedlsa", "scafflsa"))
    out = capsys.readouterr().out
    rounds = {w[0]: int(w[1]) for w in map(str.split, out.splitlines()) if w and w[0] in ("FedLSA", "SCAFFLSA")}
    assert rounds["SCAFFLSA"] < rounds["FedLSA"] / 10
    assert pictures == ["forest.png", "panel.png"]
    assert "all together" in out
