"""A coordinator that wants a site's own intercept, or the mean of its target, of which no message may tell."""

import json

import numpy as np
import pytest
from hostile import Hostile, gaussian_table
from test_standard_errors import UnevenWorld

import fedlsa as fl
from fedlsa.network.coordinator.run_loop import complete_run
from fedlsa.network.protocol.ring import STATISTICS, VECTORS, Coding, from_share, to_floats
from fedlsa.network.site.facts import check

OWN = fl.Regression("y", own="intercept")
MOVED = np.array([64.0, -32.0, 0.0, 1024.0])  # what is added to the columns of one site, the target's last
READABLE = {"least_sites": 1, "share_scores": True, "share_moments": True}


class OpenWorld(UnevenWorld):
    """Sites that hide nothing behind others; `told` are the numbers of all answers of the first, in their order."""

    def __init__(self, root, moved, task=OWN):
        root.mkdir()
        super().__init__(root, task, **READABLE)
        self.told, path = [], self.root / "site-1.csv"
        rows = np.loadtxt(path, delimiter=",", skiprows=1)
        np.savetxt(path, rows + moved, delimiter=",", header="x0,x1,x2,y", comments="", fmt="%.17g")
        self.meddle = self.listen

    def listen(self, site, answer):
        for name in answer.__struct_fields__ if site == "site-1" else ():
            value = getattr(answer, name)
            if name == "share":
                unit = (VECTORS if answer.kind in ("reply", "finished") else STATISTICS).unit
                value = np.array(to_floats(from_share(value), unit))
            if isinstance(value, np.ndarray | float | int):
                self.told.append((f"{answer.kind} {name}", np.ravel(value).astype(float)))
        return answer

    def heard(self, **options):
        run = self.start(aggregation="plain", local="means", **options)
        complete_run(self.network, run, self)
        return json.loads((self.sites["site-1"].results / "trial.json").read_text()), run.read("result.json")


@pytest.mark.parametrize("options", [{"epsilon": 1e-3}, {"step_size": 0.05, "local_steps": 20, "rounds": 3}])
def test_no_message_of_a_run_tells_what_a_site_adds_to_its_columns(tmp_path, options):
    """Every number that it sends, with nothing to hide it, is the same whatever its means and its intercept are."""
    still, moved = OpenWorld(tmp_path / "still", 0.0), OpenWorld(tmp_path / "moved", MOVED)
    (own, result), (other, _) = still.heard(**options), moved.heard(**options)
    assert {name for name, _ in still.told} >= {"sums share", "measurement A", "reply share", "finished share"}
    for (name, one), (same, two) in zip(still.told, moved.told, strict=True):
        assert name == same
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-8, err_msg=name)  # sums are blurred by 2^-32
    shift = MOVED[-1] - MOVED[:-1] @ own["coefficients"]
    assert other["own_intercept"] - own["own_intercept"] == pytest.approx(shift, rel=1e-6)
    assert "intercept" not in json.dumps(result["names"])


def test_who_joins_is_told_that_the_intercept_stays_at_the_site(tmp_path):
    world = OpenWorld(tmp_path / "still", 0.0)
    task, folders = world.network.task, (world.network, world.sites["site-1"])
    assert "it stays here" in " ".join(check(world.handler("site-1").table.data.opened, task))
    for of in folders:
        assert "an intercept of its own, which stays there" in " ".join((of.folder / "README.md").read_text().split())


def test_the_attack_hears_the_means_of_a_site_that_shares_its_intercept(tmp_path):
    still, moved = (OpenWorld(tmp_path / f"{k}", k * MOVED, fl.Regression("y")) for k in (0, 1))
    for world in (still, moved):
        world.heard(step_size=0.05, local_steps=20, rounds=3)
    apart = [np.abs(one - two).max() for (_, one), (_, two) in zip(still.told, moved.told, strict=True)]
    assert max(apart) > 100


def test_a_run_of_own_intercepts_ends_where_one_machine_does_and_each_site_keeps_its_own(tmp_path):
    world = UnevenWorld(tmp_path, OWN, share_scores=True)
    found, fit = world.model(rounds=60, step_size=1.0, local_steps=1), fl.fit(world.tables, OWN, plan=False)
    np.testing.assert_allclose(found.protocol, fit.theta, rtol=1e-9)
    assert found.degrees_of_freedom == fit.degrees_of_freedom == sum(s.rows for s in fit.per_site) - 3 - 4
    for site in world.network.sites:
        kept = json.loads((world.sites[site].results / "trial.json").read_text())
        assert kept["own_intercept"] == pytest.approx(fit.own_effects[site], rel=1e-8)
    assert found.own_effects is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"intercept": True}, "that of 5 features, with intercept=False; got one of 5, with intercept=True"),
        ({"centre": np.full(5, 0.5)}, "columns of a task without an intercept cannot be shifted"),
        ({"y_centre": 0.5}, "columns of a task without an intercept cannot be shifted"),
    ],
)
def test_coordinates_that_would_bring_a_constant_back_are_refused(tmp_path, more, words):
    world = Hostile(tmp_path, gaussian_table(), OWN)
    assert world.describe().kind == "description"
    assert world.standardise().kind == "sums"
    honest = {"centre": np.zeros(5), "y_centre": 0.0, "intercept": False}
    answer = world.measure(**honest | more)
    assert answer.kind == "refusal"
    assert words in answer.text


def test_noise_for_single_rows_is_refused_for_a_row_moves_the_means_of_its_site(tmp_path):
    world = Hostile(tmp_path, gaussian_table(), OWN, privacy="record", epsilon=10.0, noiseless_sums=True)
    answer = world.describe(coding=Coding(clip=1.0, noise=1.0, unit="record", row_clip=1.0))
    assert "unit must be 'site' where sites have intercepts of their own: one row moves all of its site" in answer.text
