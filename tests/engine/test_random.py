"""The random numbers: a published generator, exact alias tables, fair choices, the same in every engine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba import njit

from fedlsa.engine import cpu_steps
from fedlsa.engine.random import (
    LENGTH,
    OBSERVATION,
    PARTICIPATION,
    alias_bits,
    alias_tables,
    block,
    choose,
    participants,
    philox,
    uniforms,
    words,
)
from fedlsa.engine.task_struct import AGENT, BLOCK, KEY_HIGH, KEY_LOW, WORDS, align
from fedlsa.engine.vectors import load, store


def alias_table(prob, bits):
    """The table of one law, which stands between two others."""
    laws = np.concatenate([[0.3, 0.7], prob, [1.0]])
    first, length = np.array([0, 2, 2 + len(prob)]), np.array([2, len(prob), 1])
    slots, slot = alias_tables(laws, first, length, np.array([1, bits, 1]))
    assert slot.tolist() == [0, 2, 2 + (1 << bits)]
    return slots[2:-2]


def alias_probabilities(table, bits):
    """The probabilities that an alias table really draws : (2^bits,)."""
    unit = 1 << (32 - bits)
    out = np.zeros(1 << bits)
    for slot, entry in enumerate(table.tolist()):
        threshold = entry & (unit - 1)
        out[slot] += threshold
        out[entry >> (32 - bits)] += unit - threshold
    return out / 2.0**32


KNOWN_ANSWERS = [  # counter, key, block: Random123's kat_vectors for philox4x32-10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@njit
def compiled_philox(c0, c1, c2, c3, k0, k1):
    return philox(c0, c1, c2, c3, k0, k1)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
@pytest.mark.parametrize("function", [philox, compiled_philox], ids=["interpreted", "compiled"])
def test_philox_gives_the_published_known_answers(function, counter, key, expected):
    out = function(*(np.uint64(x) for x in (*counter, *key)))
    assert tuple(int(x) & 0xFFFFFFFF for x in out) == expected


def test_a_block_has_the_seed_as_key_and_step_agent_and_stream_as_counter():
    seed = 0x299F31D0A4093822
    expected = philox(*(np.uint64(x) for x in (7, 5, 2, 0, seed & 0xFFFFFFFF, seed >> 32)))
    assert block(seed, 5, 2, 7) == tuple(int(x) & 0xFFFFFFFF for x in expected)
    assert block(0, 0, 0, 0) == KNOWN_ANSWERS[0][2]


def test_words_are_the_blocks_one_after_the_other():
    flat = [w for i in range(4) for w in block(9, 3, 1, i)]
    assert words(9, 3, 1, 0, 16).tolist() == flat
    assert words(9, 3, 1, 5, 7).tolist() == flat[5:12]


def test_uniforms_lie_in_the_unit_interval_and_hold_53_bits_of_their_block():
    u = uniforms(4, 10, 2000)
    assert ((u >= 0) & (u < 1)).all()
    for i in (0, 1999):
        a, b, _, _ = block(4, 0, LENGTH, 10 + i)
        assert u[i] == ((a >> 5) * 2**26 + (b >> 6)) / 2**53
    assert u[5:9].tolist() == uniforms(4, 15, 4).tolist()
    assert abs(u.mean() - 0.5) < 4.5 / np.sqrt(12 * 2000)


@pytest.mark.parametrize("wide", [True, False], ids=["64-bit lanes", "32-bit lanes"])
def test_sixteen_lanes_draw_the_words_that_each_would_draw_alone(wide, monkeypatch):
    monkeypatch.setattr(cpu_steps, "WIDE", wide)

    @njit
    def run(held, n, ahead, keys, out):
        cpu_steps.round_keys(keys, held, n - 16, n)
        cpu_steps.random_words(out, keys, held, n - 16, n, ahead)

    g, n = np.random.default_rng(0), 20
    held = g.integers(0, 2**31, (len(WORDS), n), dtype=np.uint64).astype(np.uint32)
    out = np.empty((16, 16), np.uint32)
    run(held.ravel(), n, 3, align(np.empty(cpu_steps.KEY_WORDS, np.uint32)), out.ravel())
    for lane in range(16):
        block, agent, low, high = (int(held[row, n - 16 + lane]) for row in (BLOCK, AGENT, KEY_LOW, KEY_HIGH))
        assert out[12:, lane].tolist() == words(low | high << 32, agent, OBSERVATION, 4 * (block + 3), 4).tolist()


@njit
def picks(word, entry, shift):
    out = np.empty(16, np.uint32)
    store(out, 0, cpu_steps.pick(load(word, 0, 16), load(entry, 0, 16), load(shift, 0, 16)))
    return out


@given(
    arrays(np.uint32, 16, elements=st.integers(0, 2**32 - 1)),
    arrays(np.uint32, 16, elements=st.integers(0, 2**32 - 1)),
    arrays(np.uint32, 16, elements=st.integers(1, 31)),
)
def test_a_choice_on_lanes_is_the_scalar_choice_without_its_branch(word, entry, shift):
    alone = [choose(w, e, s) for w, e, s in zip(word.tolist(), entry.tolist(), shift.tolist(), strict=True)]
    assert picks(word, entry, shift).tolist() == alone


@given(st.lists(st.floats(0, 1), min_size=1, max_size=70).filter(lambda p: sum(p) > 1e-6))
def test_alias_tables_draw_every_outcome_with_its_probability(law):
    prob = np.array(law) / sum(law)
    bits = alias_bits(len(prob))
    table = alias_table(prob, bits)
    drawn = alias_probabilities(table, bits)
    assert np.abs(drawn[: len(prob)] - prob).max() <= 2.0**-32 * (1 + 1e-5)
    assert (drawn[len(prob) :] == 0).all()  # padding never happens
    assert drawn.sum() == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(lambda p: sum(p) > 1e-6), st.integers(0, 2**32 - 1))
def test_the_probabilities_of_an_alias_table_are_those_that_choose_draws(law, offset):
    """Words at equal distances fall on each outcome as often as its probability says, up to one per piece of a slot."""
    prob = np.array(law) / sum(law)
    bits = alias_bits(len(prob))
    table, n = alias_table(prob, bits), 2048
    entries, shift = table.tolist(), 32 - bits
    grid = [(offset + i * (2**32 // n)) % 2**32 for i in range(n)]
    counts = np.bincount([choose(w, entries[w >> shift], shift) for w in grid], minlength=1 << bits)
    assert np.abs(counts - n * alias_probabilities(table, bits)).max() <= 2 << bits


def test_impossible_outcomes_are_never_drawn_even_at_the_ends():
    table = alias_table(np.array([0, 0.1, 0, 0.2, 0.7, 0.0]), 3)
    assert alias_probabilities(table, 3)[[0, 2, 5, 6, 7]].tolist() == [0] * 5


def test_participants_are_sorted_distinct_and_the_same_however_the_rounds_are_cut():
    out = np.empty((50, 5), np.int64)
    participants(3, 0, 13, out)
    assert (np.diff(out, axis=1) > 0).all()
    assert out.min() >= 0
    assert out.max() < 13
    part = np.empty((7, 5), np.int64)
    participants(3, 20, 13, part)
    assert (part == out[20:27]).all()


def test_participants_are_drawn_by_a_partial_shuffle_of_the_participation_stream():
    out, N = np.empty((1, 6), np.int64), 9
    participants(8, 4, N, out)
    order = list(range(N))
    for j in range(6):
        k = j + ((int(block(8, 4, PARTICIPATION, j // 4)[j % 4]) * (N - j)) >> 32)
        order[j], order[k] = order[k], order[j]
    assert out[0].tolist() == sorted(order[:6])


def test_every_pair_of_agents_takes_part_equally_often():
    rounds, N, m = 20_000, 7, 3
    out = np.empty((rounds, m), np.int64)
    participants(1, 0, N, out)
    present = np.zeros((rounds, N))
    np.put_along_axis(present, out, 1, axis=1)
    together = present.T @ present / rounds
    one, two = m / N, m * (m - 1) / (N * (N - 1))
    assert np.abs(np.diag(together) - one).max() < 4.5 * np.sqrt(one * (1 - one) / rounds)
    off = together[~np.eye(N, dtype=bool)]
    assert np.abs(off - two).max() < 4.5 * np.sqrt(two * (1 - two) / rounds)
