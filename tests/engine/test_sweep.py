"""Sweeps: one dataset over options, with the bits of single runs, which can be selected from, saved and made again."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError, DivergenceWarning, UnknownNameError

P = fl.problems.garnet(agents=3, states=6, features=2, seed=1)
OTHER = fl.problems.garnet(agents=3, states=6, features=2, seed=2)
RUN = {"rounds": 6, "seeds": 2, "record": 4}


@dataclass(frozen=True)
class Shorter(fl.FedLSA):
    """A method that fedlsa does not know."""


@pytest.fixture(scope="module")
def swept():
    return fl.sweep(P, fl.SCAFFLSA, step_size=[0.05, 0.1], local_steps=[1, 3], **RUN)


@pytest.fixture(scope="module")
def mixed():
    """Two problems, two methods, step sizes that are not all numbers, and an option that is not swept."""
    steps = [0.1, fl.PowerStep(0.1, 0.5)]
    two = {"first": P, "second": OTHER}
    kinds = [fl.FedLSA, fl.Scaffnew]
    return fl.sweep(two, kinds, step_size=steps, local_steps=4, participants=2, keep=("theta", "xi"), **RUN)


def test_swept_options_are_dimensions_and_given_ones_scalar_coordinates(swept, mixed):
    assert dict(swept.squared_error.sizes) == {"step_size": 2, "local_steps": 2, "seed": 2, "rounds": 4}
    assert swept.step_size.values.tolist() == [0.05, 0.1]
    assert swept.local_steps.dtype == np.int64
    assert swept.algorithm.item() == "SCAFFLSA"
    assert swept.step_size.attrs["long_name"] == "step size"
    assert mixed.theta.dims == ("problem", "algorithm", "step_size", "seed", "rounds", "dim")
    assert mixed.step_size.values.tolist() == ["0.1", "PowerStep(eta_0=0.1, power=0.5)"]
    assert (mixed.participants.item(), mixed.local_steps.item()) == (2, 4)
    assert len(mixed._repr_html_()) < 50_000


def test_each_run_has_the_bits_of_simulate_alone(swept, mixed):
    alone = [fl.SCAFFLSA(eta, H) for eta in (0.05, 0.1) for H in (1, 3)]
    for run, method in zip(fl.results.runs(swept), alone, strict=True):
        xr.testing.assert_identical(run, fl.simulate(P, method, **RUN))
    (last,) = fl.results.runs(mixed.sel(problem="second", algorithm="Scaffnew").isel(step_size=1))
    method = fl.Scaffnew(fl.PowerStep(0.1, 0.5), 0.25, participants=2)
    xr.testing.assert_identical(last, fl.simulate(OTHER, method, **RUN, keep=("theta", "xi")))


def test_a_sweep_is_made_again_from_its_file(swept, mixed, tmp_path):
    for s in (swept, mixed, swept.sel(step_size=0.1, local_steps=3)):
        fl.results.save(s, tmp_path / "s.nc")
        loaded = fl.results.load(tmp_path / "s.nc")
        xr.testing.assert_identical(loaded, s)
        xr.testing.assert_equal(fl.sweep(**fl.results.arguments(loaded)), s)
        assert pickle.loads(pickle.dumps(s)).identical(s)
    xr.testing.assert_identical(fl.sweep(**fl.results.arguments(mixed)), mixed)


def test_a_selection_is_made_again_alone(mixed):
    part = mixed.sel(problem=["second"], algorithm="FedLSA").isel(step_size=[1])
    asked = fl.results.arguments(part)
    assert (asked["algorithm"], asked["step_size"]) == (fl.FedLSA, [fl.PowerStep(0.1, 0.5)])
    assert list(asked["problem"]) == ["second"]
    xr.testing.assert_equal(fl.sweep(**asked), part)


def test_a_summary_of_a_sweep_is_a_data_frame_over_its_options(swept, mixed):
    frame = fl.results.summary(swept)
    assert frame.index.names == ["step_size", "local_steps"]
    last = swept.squared_error.sel(step_size=0.1, local_steps=3).isel(rounds=-1)
    assert frame.loc[(0.1, 3), "mse"] == pytest.approx(last.mean().item(), rel=1e-14)
    assert frame["mse"].unstack("local_steps").shape == (2, 2)
    assert fl.results.summary(swept.isel(local_steps=0)).index.name == "step_size"
    assert fl.results.summary(mixed).index.names == ["problem", "algorithm", "step_size"]
    assert fl.results.summary([swept, mixed]).index[0] == "SCAFFLSA(step_size=0.05, local_steps=1)"
    assert fl.results.table(frame).splitlines()[0].split()[:3] == ["step", "size", "local"]


def test_data_frames_read_well(swept):
    frame = swept.squared_error.to_dataframe()
    assert frame.index.names == ["step_size", "local_steps", "seed", "rounds"]
    assert frame.columns.tolist() == ["algorithm", "squared_error"]


def test_configurations_that_diverge_are_named_in_one_warning():
    with pytest.warns(DivergenceWarning) as caught:
        fl.sweep(P, [fl.FedLSA, fl.SCAFFLSA], step_size=[0.1, 1e3, 1e4], local_steps=10, rounds=60, seeds=2)
    (one,) = caught
    assert "4 of 6 configurations diverged: FedLSA(step_size=1000.0, local_steps=10) (2 of 2 seeds" in str(one.message)
    assert "and 1 more: try a smaller step_size" in str(one.message)
    assert one.filename == __file__


def test_progress_is_told_and_an_interruption_passes_through():
    told = []
    fl.sweep(
        P, fl.FedLSA, step_size=[0.1, 0.2], local_steps=2, **RUN, progress=lambda done, all_: told.append(done / all_)
    )
    assert told[-1] == 1

    def stop(*_):
        raise KeyboardInterrupt

    with warnings.catch_warnings(record=True) as left, pytest.raises(KeyboardInterrupt):
        fl.sweep(P, fl.FedLSA, step_size=[0.1, 0.2], local_steps=2, **RUN, progress=stop)
    assert not left


def test_a_class_from_elsewhere_must_be_passed_again(tmp_path):
    s = fl.sweep(P, Shorter, step_size=0.1, local_steps=[1, 2], **RUN)
    assert fl.results.summary(s).index.tolist() == [1, 2]
    with pytest.raises(ArgumentError, match=r"algorithm must be passed: the sweep was made with .*Shorter"):
        fl.results.arguments(s)
    assert fl.sweep(**fl.results.arguments(s, algorithm=Shorter)).identical(s)


def test_problems_of_sites_must_be_passed_again(tmp_path):
    rng = np.random.default_rng(0)
    p = fl.problems.regression([(rng.standard_normal((5, 2)), rng.standard_normal(5)) for _ in range(2)])
    s = fl.sweep(p, fl.FedLSA, step_size=[0.1, 0.2], local_steps=1, **RUN)
    with pytest.raises(ArgumentError, match="problem must be passed, for a run needs the rows of the sites"):
        fl.results.arguments(s)
    assert fl.results.arguments(s, problem=p)["problem"] is p
    fl.results.save(s, tmp_path / "s.nc", problem=p)
    assert "problem" in fl.results.arguments(fl.results.load(tmp_path / "s.nc"))
    both = fl.sweep({"a": p, "b": P}, fl.FedLSA, step_size=0.1, local_steps=1, **RUN)
    assert fl.results.arguments(both, problem={"a": p})["problem"]["a"] is p
    with pytest.raises(ArgumentTypeError, match="problem must be a mapping"):
        fl.results.arguments(both, problem=p)
    with pytest.raises(ArgumentError, match="problem must be None for a sweep over several problems"):
        fl.results.save(both, tmp_path / "s.nc", problem=p)


LARGER = fl.problems.garnet(agents=3, states=6, features=3, seed=1)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"algorithm": [fl.SCAFFLSA(0.1, 3), fl.FedLSA]},
            ArgumentTypeError,
            "algorithm must be a method's class such as fl.SCAFFLSA",
        ),
        ({"algorithm": []}, ArgumentTypeError, "algorithm must be a method's class"),
        ({"algorithm": [fl.FedLSA, fl.FedLSA]}, ArgumentError, "distinct values; got 'FedLSA' more than once"),
        ({"problem": {}}, ArgumentError, "problem must be a fedlsa problem, or a mapping"),
        ({"problem": [P]}, ArgumentTypeError, "problem must be a fedlsa problem, or a mapping"),
        ({"problem": {"a": P, "b": LARGER}}, ArgumentError, r"one dim where theta is kept; got \[2, 3\]: keep=\(\)"),
        ({"keep": 3}, ArgumentTypeError, "keep must be a sequence of names"),
        ({"step_size": []}, ArgumentError, "step_size must be a value or a list with at least one"),
        ({"step_size": [0.1, 0.1]}, ArgumentError, "step_size must hold distinct values; got 0.1 more than once"),
        ({"step_size": [0.1, -1.0]}, ArgumentError, "step_size must be a finite number above 0; got -1"),
        ({"local_step": 3}, UnknownNameError, "an option of SCAFFLSA must be .*; got 'local_step'; did you mean"),
        ({"rounds": [5, 6]}, ArgumentTypeError, "rounds must be one number for all runs of a sweep"),
        ({"algorithm": fl.Scaffnew, "local_steps": 0}, ArgumentError, "local_steps must be a positive integer; got 0"),
        ({"ray": 3}, ArgumentTypeError, "ray must be"),
    ],
)
def test_what_is_no_sweep_is_refused_by_name(changes, error, message):
    asked = {"problem": P, "algorithm": fl.SCAFFLSA, "step_size": 0.1, "local_steps": 3, **RUN}
    with pytest.raises(error, match=message):
        fl.sweep(**{**asked, **changes})


def test_an_option_that_a_method_needs_is_asked_for_and_numbers_of_numpy_are_numbers():
    with pytest.raises(ArgumentError, match="local_steps must be given for SCAFFLSA"):
        fl.sweep(P, fl.SCAFFLSA, step_size=0.1, **RUN)
    s = fl.sweep(P, fl.SCAFFLSA, step_size=xr.DataArray([0.1]), local_steps=np.array(3), **RUN)
    assert s.local_steps.item() == 3
    assert fl.results.arguments(s)["local_steps"] == 3
    assert (
        fl.sweep({"a": P, "b": LARGER}, fl.FedLSA, step_size=0.1, local_steps=1, keep=(), **RUN).sizes["problem"] == 2
    )


def test_a_dataset_that_lost_what_makes_it_a_sweep_is_refused(swept):
    with pytest.raises(ArgumentError, match="sweep must keep its coordinate step_size"):
        fl.results.runs(swept.isel(step_size=0, drop=True))
    with pytest.raises(ArgumentError, match="must hold runs of one call"):
        fl.results.runs(swept.assign_coords(step_size=[0.05, 0.3]))
    with pytest.raises(ArgumentError, match=r"result must be one result of simulate; got a sweep: fl\.results\.runs"):
        fl.resume(swept, 20)
    with pytest.raises(ArgumentTypeError, match="sweep must be a sweep"):
        fl.results.runs(fl.simulate(P, fl.FedLSA(0.1, 2), **RUN))
