"""Elimination of the states of a chain one after the other, compiled: what is left is a chain on fewer states.

Leave state k out, and whoever would have gone there goes on to where k leads: p_ij <- p_ij + p_ik p_kj / s_k, with
s_k = sum_j p_kj over the states j that are left. Nothing is ever subtracted (Grassmann, Taksar and Heyman), so every
probability keeps its digits, however nearly the chain falls apart. Back: mu_k = sum_i mu_i p_ik / s_k.

Transitions are entries of a list; each is linked to the next one of its origin (`right`) and of its successor (`down`).
Entries of states that have left are dropped when the links are next followed.
"""

import math

import numpy as np

from ..kernel_cache import kernel

ALWAYS_ELIMINATED = 1024  # states left of a chain: at worst 4e8 pairs, a few seconds
MOST_FILL = 8  # times the transitions of a chain: one that resists elimination so much mixes fast instead


@kernel()
def eliminate(origin, successor, value, used, states, most_pairs):
    """Eliminate states of few neighbours first: all but one of them, unless more than `most_pairs` had to be touched.

    origin, successor, value : lists with room for new entries, of which the first `used` are the transitions between
        different states; changed in place
    Returns order : the states that have left; leaving : (states,) their s_k; when : (states,) their places in `order`,
        `states` for those still there; used; column, down : (states,) an entry of each successor, and the next ones.
    """
    right, down = np.empty(len(value), np.int32), np.empty(len(value), np.int32)
    row, column = np.full(states, -1, np.int32), np.full(states, -1, np.int32)
    out, into = np.zeros(states, np.int64), np.zeros(states, np.int64)
    for e in range(used):
        i, j = origin[e], successor[e]
        right[e], row[i] = row[i], e
        down[e], column[j] = column[j], e
        out[i] += 1
        into[j] += 1
    when, leaving, order = np.full(states, states, np.int32), np.zeros(states), np.empty(states, np.int32)
    entry, target, share = np.zeros(states, np.int32), np.empty(states, np.int32), np.empty(states)
    eliminated, limit, touched, live, most = 0, 4, 0, used, MOST_FILL * used
    while eliminated < states - 1:
        before = eliminated
        for k in range(states):
            pairs = out[k] * into[k]
            if when[k] < states or pairs > limit or eliminated == states - 1:
                continue
            too_long = (live > most or touched > most_pairs) and states - eliminated > ALWAYS_ELIMINATED
            too_much = too_long or used + pairs > len(value)
            n, e = 0, row[k]
            while e >= 0 and not too_much:
                if when[successor[e]] == states:
                    target[n], share[n] = successor[e], value[e]
                    leaving[k] += value[e]
                    n += 1
                e = right[e]
            if too_much or leaving[k] == 0:
                return order[:eliminated], leaving, when, used, column, down
            for a in range(n):
                share[a] /= leaving[k]
                into[target[a]] -= 1
            when[k], order[eliminated] = eliminated, k
            eliminated += 1
            touched += pairs
            live -= out[k] + into[k]
            e = column[k]
            while e >= 0:
                i = origin[e]
                if when[i] == states:
                    out[i] -= 1
                    by_row = out[i] <= 64 * n  # else it is a hub with a long row: the columns are shorter
                    if by_row:
                        _prune(row, right, successor, when, i)
                        f = row[i]
                        while f >= 0:
                            entry[successor[f]] = f
                            f = right[f]
                    for a in range(n):
                        j = target[a]
                        if j == i:
                            continue
                        f = entry[j]
                        if not by_row:
                            _prune(column, down, origin, when, j)
                            f = column[j]
                            while f >= 0 and origin[f] != i:
                                f = down[f]
                        if f >= 0 and origin[f] == i and successor[f] == j:
                            value[f] += value[e] * share[a]
                        else:
                            origin[used], successor[used], value[used] = i, j, value[e] * share[a]
                            right[used], row[i] = row[i], used
                            down[used], column[j] = column[j], used
                            out[i] += 1
                            into[j] += 1
                            used += 1
                            live += 1
                e = down[e]
        if eliminated - before <= (states - eliminated) // 16:
            limit *= 2
    return order[:eliminated], leaving, when, used, column, down


@kernel()
def _prune(first, link, end, when, i):
    """Drop entries of states that have left from a row (first, link, end : row, right, successor) or a column."""
    last, e = -1, first[i]
    while e >= 0:
        if when[end[e]] == len(when):
            last = e
        elif last < 0:
            first[i] = link[e]
        else:
            link[last] = link[e]
        e = link[e]


@kernel()
def bring_back(law, order, leaving, when, origin, value, column, down):
    """The law of all states up to a factor, in place; law : (states,) that of the states which are left, 0 elsewhere.

    Numbers have an exponent of their own on the way: laws of long corridors span more than the range of doubles.
    """
    exponent, top = np.zeros(len(law), np.int64), np.int64(0)
    for n in range(len(order) - 1, -1, -1):
        k = order[n]
        lift = np.int64(-(2**62))
        for summing in range(2):  # first the largest exponent, then the sum
            total, e = 0.0, column[k]
            while e >= 0:
                i = origin[e]
                if when[i] > n and law[i] > 0:
                    if summing:
                        total += value[e] * math.ldexp(law[i], max(exponent[i] - lift, -1100))
                    else:
                        lift = max(lift, exponent[i])
                e = down[e]
        law[k], up = math.frexp(total)
        part, down_by = math.frexp(leaving[k])
        law[k] /= part
        exponent[k] = lift + up - down_by
        top = max(top, exponent[k])
    for k in range(len(law)):
        law[k] = math.ldexp(law[k], max(exponent[k] - top, -1100))
