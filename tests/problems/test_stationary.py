"""Stationary laws of chains with transient states, periods, and more than one closed class."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlsa.errors import StationaryLawError
from fedlsa.problems import finite_chains, from_mdps


def chain(kernel, **options):
    """The problem of Markov chains (M, S, S) with one action, one-hot features and zero rewards."""
    kernel = np.asarray(kernel, float)
    M, S, _ = kernel.shape
    features = options.pop("features", np.ones((S, 1)))
    return from_mdps(kernel[:, :, None], np.zeros((M, S, 1)), np.ones((S, 1)), features, 0.5, **options)


def law(kernel, **options):
    p = chain(kernel, **options)
    return p.chain.stationary.reshape(p.n_tables, -1)


def test_a_periodic_chain_has_its_law():
    cycle = np.roll(np.eye(4), 1, axis=1)
    np.testing.assert_allclose(law([cycle])[0], np.full(4, 0.25), atol=1e-15)


def test_transient_states_have_probability_zero_but_keep_their_outcomes():
    K = [[0.5, 0.25, 0.25], [0, 0.5, 0.5], [0, 0.2, 0.8]]
    p = chain([K])
    np.testing.assert_allclose(p.chain.stationary, [0, 2 / 7, 5 / 7], atol=1e-15)
    from_transient = p.chain.origin == 0
    assert from_transient.sum() == 3
    assert (p.prob[from_transient] == 0).all()
    assert p.chain.conditional[from_transient].sum() == pytest.approx(1)


def test_an_absorbing_state_takes_all_the_mass():
    np.testing.assert_allclose(law([[[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0, 1]]])[0], [0, 0, 1], atol=1e-15)


def test_birth_and_death_chain_has_the_law_of_detailed_balance():
    S, up, down = 12, 0.3, 0.45
    K = np.zeros((S, S))
    for s in range(S):
        K[s, min(s + 1, S - 1)] += up
        K[s, max(s - 1, 0)] += down
        K[s, s] += 1 - up - down
    expected = (up / down) ** np.arange(S)
    np.testing.assert_allclose(law([K])[0], expected / expected.sum(), rtol=1e-12)


@pytest.mark.parametrize("bad", [0, 2])
def test_two_closed_classes_are_an_error_that_names_the_agent(bad):
    good, split = np.full((3, 3), 1 / 3), np.eye(3)
    kernels = [split if c == bad else good for c in range(3)]
    with pytest.raises(StationaryLawError, match=rf"agent {bad} must have one closed class.*got 3 closed classes"):
        law(kernels)


def test_the_agent_named_is_the_first_that_holds_the_table():
    with pytest.raises(StationaryLawError, match="agent 2 "):
        law([np.full((2, 2), 0.5), np.eye(2)], assignment=[0, 0, 1, 1])


def test_classes_that_initial_does_not_reach_do_not_count():
    K = [[0.5, 0.5, 0], [0.25, 0.75, 0], [0, 0, 1]]
    np.testing.assert_allclose(law([K], initial=[1, 0, 0])[0], [1 / 3, 2 / 3, 0], atol=1e-15)
    with pytest.raises(StationaryLawError, match="2 closed classes"):
        law([K], initial=[0.5, 0, 0.5])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.integers(1, 4))
def test_the_law_is_the_eigenvector_of_every_random_sparse_chain(seed, S, M):
    rng = np.random.default_rng(seed)
    K = rng.random((M, S, S)) * (rng.random((M, S, S)) < 0.4)
    K[:, :, 0] += 0.01  # state 0 is reached from everywhere: one closed class
    K /= K.sum(axis=-1, keepdims=True)
    for mu, kernel in zip(law(K), K, strict=True):
        np.testing.assert_allclose(mu @ kernel, mu, atol=1e-13)
        assert mu.min() >= 0
        assert mu.sum() == pytest.approx(1)
        values, vectors = np.linalg.eig(kernel.T)
        v = np.real(vectors[:, np.argmin(abs(values - 1))])
        np.testing.assert_allclose(mu, v / v.sum(), atol=1e-10)


def test_laws_do_not_depend_on_how_tables_are_grouped(monkeypatch):
    rng = np.random.default_rng(0)
    K = rng.dirichlet(np.ones(5), (9, 5))
    together = law(K)
    monkeypatch.setattr(finite_chains, "BLOCK", 50)
    np.testing.assert_allclose(law(K), together, rtol=1e-13)
    np.testing.assert_allclose(law(K[3:4])[0], together[3], rtol=1e-13)


@pytest.mark.parametrize("states", [1, 2, 5, 17, 33])
def test_who_reaches_whom_and_the_search_of_the_graph_find_the_same_classes(states):
    rng, tables, counts = np.random.default_rng(states), 7, set()
    steps = np.arange(states - 1)  # table 0 has a path through all states
    for edges in (0, 1, 2, 4) * 10:
        origin = rng.integers(tables * states, size=edges * tables * states // 2)
        successor = origin // states * states + rng.integers(states, size=len(origin))
        origin, successor = np.append(origin, steps), np.append(successor, steps + 1)
        order = np.argsort(origin, kind="stable")
        graph = origin[order], successor[order], rng.random((tables, states)) < 2 / states
        closed, classes = finite_chains._classes_by_powers(*graph)
        twin = finite_chains._classes_by_search(*graph)
        np.testing.assert_array_equal(closed, twin[0])
        np.testing.assert_array_equal(classes, twin[1])
        counts |= set(classes)
    assert 1 in counts
    assert states < 5 or {0, 2} <= counts
