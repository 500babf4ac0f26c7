"""The options of a run are checked together, before anybody is asked."""

import json
from dataclasses import asdict

import pytest

from fedlsa.errors import ArgumentError, FedLSAError
from fedlsa.network.protocol.run_settings import StartOptions


def test_options_of_a_run_are_checked_together():
    hand = {"step_size": 0.1, "local_steps": 10, "rounds": 5}
    options = StartOptions(**hand, clip=1, noise=0.5, quantise=8, trim=1, name="trial-1", participation=0.5)
    assert StartOptions.from_entries(json.loads(json.dumps(asdict(options)))) == options
    assert (options.taking_part(7), options.least(7)) == (4, 3)
    assert StartOptions(epsilon=0.1).least(5) == 5  # exact masked sums are over one group of sites
    assert StartOptions(epsilon=0.1, min_sites=3).least(5) == 3
    assert StartOptions(epsilon=0.1, clip=1, noise=1).least(5) == 3
    assert StartOptions(epsilon=0.1, aggregation="plain").least(5) == 3
    assert StartOptions(epsilon=0.1, participants=4).taking_part(4) is None
    for wrong, what in (
        ({}, "got none of them"),
        ({"epsilon": 0.1, "rounds": 4}, "got epsilon and rounds"),
        ({"step_size": 0.1, "rounds": 4}, "got step_size and rounds"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": 0.1, "noise": 1.0}, "noise must come with clip"),
        ({"epsilon": 0.1, "quantise": 9}, "quantise must be 8 or 16"),
        ({"epsilon": 0.1, "method": "scaflsa"}, "did you mean 'scafflsa'"),
        ({"epsilon": 0.1, "absence": "ignore"}, "absence must be"),
        ({"epsilon": 0.1, "deadline": float("inf")}, "deadline must be"),
        ({"epsilon": 0.1, "participation": 1.5}, "participation must be"),
        ({"epsilon": 0.1, "participation": 1}, "participants= is for a count"),
        ({"epsilon": 0.1, "participation": 0.5, "participants": 2}, "must not both be given"),
        ({"epsilon": 0.1, "name": "../x"}, "name must be"),
    ):
        with pytest.raises(FedLSAError, match=what):
            StartOptions(**wrong)
    with pytest.raises(ArgumentError, match=r"above twice trim \(4\)"):
        StartOptions(epsilon=0.1, trim=2, min_sites=4).least(9)
    with pytest.raises(ArgumentError, match="at most the 3 sites"):
        StartOptions(epsilon=0.1, min_sites=4).least(3)
