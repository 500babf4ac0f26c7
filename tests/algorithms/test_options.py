"""What methods, step sizes and ways of sampling accept, and what they make of it."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError

nan, inf = float("nan"), float("inf")

WRONG = [
    (lambda: fl.FedLSA(step_size=0, local_steps=10), ArgumentError, "step_size", "got 0"),
    (lambda: fl.FedLSA(step_size=-0.1, local_steps=10), ArgumentError, "step_size", "got -0.1"),
    (lambda: fl.FedLSA(step_size=nan, local_steps=10), ArgumentError, "step_size", "got nan"),
    (lambda: fl.SCAFFLSA(step_size=inf, local_steps=10), ArgumentError, "step_size", "got inf"),
    (lambda: fl.FedLSA(step_size="big", local_steps=10), ArgumentTypeError, "step_size", "got 'big'"),
    (lambda: fl.FedLSA(step_size=True, local_steps=10), ArgumentTypeError, "step_size", "got True"),
    (lambda: fl.FedLSA(step_size=[0.1], local_steps=10), ArgumentTypeError, "step_size", "got [0.1]"),
    (lambda: fl.FedLSA(step_size=0.1, local_steps=0), ArgumentError, "local_steps must be a positive integer", "got 0"),
    (lambda: fl.SCAFFLSA(step_size=0.1, local_steps=-3), ArgumentError, "local_steps", "got -3"),
    (lambda: fl.SCAFFLSA(step_size=0.1, local_steps=2.0), ArgumentTypeError, "local_steps", "got 2.0"),
    (lambda: fl.FedLSA(step_size=0.1, local_steps=True), ArgumentTypeError, "local_steps", "got True"),
    (lambda: fl.FedLSA(step_size=0.1, local_steps=None), ArgumentTypeError, "local_steps", "got None"),
    (lambda: fl.Scaffnew(step_size=0.1, probability=0), ArgumentError, "probability", "got 0"),
    (lambda: fl.Scaffnew(step_size=0.1, probability=1.5), ArgumentError, "probability", "got 1.5"),
    (lambda: fl.Scaffnew(step_size=0.1, probability=nan), ArgumentError, "probability", "got nan"),
    (lambda: fl.Scaffnew(step_size=0.1, probability="p"), ArgumentTypeError, "probability", "got 'p'"),
    (lambda: fl.FedLSA(0.1, 10, participation=0.0), ArgumentError, "participation", "got 0"),
    (lambda: fl.FedLSA(0.1, 10, participation=1.01), ArgumentError, "participation", "got 1.01"),
    (lambda: fl.FedLSA(0.1, 10, participants=0), ArgumentError, "participants", "got 0"),
    (lambda: fl.SCAFFLSA(0.1, 10, participants=-2), ArgumentError, "participants", "got -2"),
    (lambda: fl.SCAFFLSA(0.1, 10, participants=1.0), ArgumentTypeError, "participants", "got 1.0"),
    (lambda: fl.FedLSA(0.1, 10, participants=True), ArgumentTypeError, "participants", "got True"),
    (
        lambda: fl.FedLSA(0.1, 10, participation=0.5, participants=3),
        ArgumentError,
        "participation and participants must not both be given",
        "0.5 and 3",
    ),
    (lambda: fl.FedLSA(0.1, 10, participation="all"), ArgumentTypeError, "participation", "got 'all'"),
    (
        lambda: fl.FedLSA(0.1, 10, participation="x"),
        ArgumentTypeError,
        "participation must be a share, a float above 0 and at most 1 (participants= is for a count)",
        "got 'x'",
    ),
    (lambda: fl.FedLSA(0.1, 10, participation=True), ArgumentTypeError, "participation", "got True"),
    (lambda: fl.FedLSA(0.1, 10, participation=1), ArgumentTypeError, "participation", "got 1"),
    (lambda: fl.FedLSA(0.1, 10, participation=np.int64(3)), ArgumentTypeError, "participation", "got np.int64(3)"),
    (lambda: fl.FedLSA(0.1, 10, projection=0), ArgumentError, "projection", "got 0"),
    (lambda: fl.Scaffnew(0.1, 0.1, projection=-1.0), ArgumentError, "projection", "got -1"),
    (lambda: fl.FedLSA(0.1, 10, projection=nan), ArgumentError, "projection", "got nan"),
    (lambda: fl.FedLSA(0.1, 10, projection="1"), ArgumentTypeError, "projection", "got '1'"),
    (lambda: fl.FedLSA(0.1, 10, average_after=-1), ArgumentError, "average_after", "got -1"),
    (lambda: fl.SCAFFLSA(0.1, 10, average_after=0.5), ArgumentTypeError, "average_after", "got 0.5"),
    (lambda: fl.PowerStep(0, 0.5), ArgumentError, "eta_0", "got 0"),
    (lambda: fl.PowerStep(nan, 0.5), ArgumentError, "eta_0", "got nan"),
    (lambda: fl.PowerStep("1", 0.5), ArgumentTypeError, "eta_0", "got '1'"),
    (lambda: fl.PowerStep(0.1, -0.5), ArgumentError, "power", "got -0.5"),
    (lambda: fl.PowerStep(0.1, None), ArgumentTypeError, "power", "got None"),
    (lambda: fl.Markov(thin=0), ArgumentError, "thin", "got 0"),
    (lambda: fl.Markov(thin=1.0), ArgumentTypeError, "thin", "got 1.0"),
    (lambda: fl.Markov(start="abc"), ArgumentTypeError, "start", "got 'abc'"),
    (lambda: fl.Markov(start=3), ArgumentTypeError, "start", "got 3"),
    (lambda: fl.Markov(start=[0, -1]), ArgumentError, "start", "got -1"),
    (lambda: fl.Markov(start=[0, 0.5]), ArgumentTypeError, "start", "got 0.5"),
    (lambda: fl.Replay(thin=-1), ArgumentError, "thin", "got -1"),
    (lambda: fl.Replay(thin="2"), ArgumentTypeError, "thin", "got '2'"),
    (lambda: fl.FedLSA(0.1, 2).observations(np.zeros(1), 3), ArgumentError, "local_steps must be at least thin", "2"),
    (lambda: fl.FedLSA(0.1, 2, participants=5).taking_part(4), ArgumentError, "participants", "got 5"),
]


@pytest.mark.parametrize(("make", "kind", "name", "value"), WRONG)
def test_wrong_options_are_refused_with_their_name_and_value(make, kind, name, value):
    with pytest.raises(fl.errors.FedLSAError) as caught:
        make()
    assert type(caught.value) is kind
    assert str(caught.value).startswith(name)
    assert str(caught.value).endswith(value)


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="learning_rate"):
        fl.FedLSA(step_size=0.1, local_steps=10, learning_rate=1)


@pytest.mark.parametrize(
    ("share", "agents", "count"), [(1.0, 7, 7), (0.5, 8, 4), (0.3, 10, 3), (0.01, 10, 1), (0.999, 10, 10)]
)
def test_a_share_of_the_agents_is_rounded_to_a_count_of_at_least_one(share, agents, count):
    assert fl.FedLSA(0.1, 10, participation=share).taking_part(agents) == count


def test_one_agent_and_all_agents_are_two_wishes_with_two_names():
    one, all_of_them = fl.FedLSA(0.1, 10, participants=1), fl.FedLSA(0.1, 10, participation=1.0)
    assert (one.taking_part(7), all_of_them.taking_part(7)) == (1, 7)
    assert fl.FedLSA(0.1, 10, participants=7).taking_part(7) == 7
    assert one != all_of_them == fl.FedLSA(0.1, 10)
    assert fl.results.method_label(one) != fl.results.method_label(all_of_them)


def test_a_power_step_decreases_from_round_to_round():
    eta = fl.FedLSA(fl.PowerStep(0.4, 0.5), 10).eta(np.arange(4))
    np.testing.assert_allclose(eta, [0.4, 0.4 / 2**0.5, 0.4 / 3**0.5, 0.2], rtol=1e-15)
    assert (fl.FedLSA(0.4, 10).eta(np.arange(4)) == 0.4).all()


def test_gains_are_those_of_the_table_in_the_design():
    eta, updates = np.array([0.1, 0.2]), np.array([10, 5])
    assert (fl.FedLSA(0.1, 10).gain(eta, updates) == 0).all()
    np.testing.assert_allclose(fl.SCAFFLSA(0.1, 10).gain(eta, updates), [1, 1])
    np.testing.assert_allclose(fl.Scaffnew(0.1, 0.3).gain(eta, updates), [3, 1.5])


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_scaffnew_has_rounds_of_geometric_length(p):
    n = 200_000
    lengths = fl.Scaffnew(0.1, p).observations((np.arange(n) + 0.5) / n, 1)
    for k in range(1, 20):  # on an even grid each probability is met to one grid point
        assert abs((lengths == k).sum() - n * p * (1 - p) ** (k - 1)) <= 1.001
    assert lengths.min() == 1


def test_scaffnew_tosses_its_coin_after_each_update_so_thinned_rounds_are_multiples():
    u = np.linspace(0, 0.999, 50)
    assert (fl.Scaffnew(0.1, 0.3).observations(u, 3) == 3 * fl.Scaffnew(0.1, 0.3).observations(u, 1)).all()
    assert (fl.Scaffnew(0.1, 1.0).observations(u, 3) == 3).all()


def test_methods_and_samplings_are_values():
    assert fl.FedLSA(0.1, 10) == fl.FedLSA(step_size=0.1, local_steps=10, participation=1.0)
    assert fl.FedLSA(0.1, 10) != fl.SCAFFLSA(0.1, 10)
    assert fl.Markov(start=[1, 2]) == fl.Markov(start=np.array([1, 2]))
    assert len({fl.Scaffnew(0.1, 0.5), fl.Scaffnew(0.1, 0.5), fl.Scaffnew(0.1, 0.25)}) == 2
    with pytest.raises(AttributeError):
        fl.FedLSA(0.1, 10).step_size = 0.2
