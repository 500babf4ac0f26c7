"""Rounds of an exchange, compiled: all that algorithms/exchanges.py can say, for any dimension and any problem.

One function does whole runs, one seed after the other. It is compiled once for all methods: vectors stand as
`Exchange.vectors` has them, rows are tables. The readable twin is `reference.run_exchange`.
"""

# Numba infers the types of these functions itself.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
from __future__ import annotations

from math import cos, floor, log, pi, sin, sqrt
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from ..checks import Floats
from ..kernel_cache import kernel
from .random import MESSAGE, OBSERVATION, PRESENCE, block, choose, two_uniforms
from .task_struct import invoke

Integers = NDArray[np.int64]
IID, MARKOV, REPLAY = 0, 1, 2
KICK, PRODUCT, NEXT = 0, 1, 2  # room behind an agent's vectors: eta times what pulls, A(z) theta_hat, what is next


class Observations(NamedTuple):
    """A problem as steps read it; engine/outcome_tables.py says how outcomes are drawn. Rank-one, or dense.

    table : (N,), of each agent; A_bar : (M, d, d), b_bar : (M, d)
    """

    sampling: int
    thin: int
    table: Integers
    order: Integers
    row: Integers
    length: Integers
    slots: NDArray[np.uint32]
    slot: Integers
    shift: Integers
    successor: NDArray[np.uint32]
    dense: int
    rows: Floats
    left: NDArray[np.uint32]
    right: NDArray[np.uint32]
    y: Floats
    ridge: float
    A: Floats
    b: Floats
    A_bar: Floats
    b_bar: Floats
    weights: Floats


class Rounds(NamedTuple):
    """The next rounds: of P schedules, of which a run takes that of its number modulo P; n is 1, or N.

    first : rounds that are done; lengths, step_sizes : (P, T, n); answering : (P, T, N), or (P, T, 0) where all do or
    presence decides; numbers : (tables, size); table : (P, T); recorded : (records + 1,), which ends in -1
    rule : the address of a compiled rule, or 0
    """

    first: int
    lengths: Integers
    step_sizes: Floats
    answering: NDArray[np.uint8]
    numbers: Floats
    table: Integers
    recorded: Integers
    radius: float
    average_after: int
    rule: int


class Runs(NamedTuple):
    """Where R runs stand, and what is recorded of them.

    shared : (R, shared vectors + server, d), behind whose vectors is room for what is next; own : (R, N, ..., d)
    steps, position, answers : (R, N); received : (R, records), observations of all agents
    """

    seeds: NDArray[np.uint64]
    shared: Floats
    own: Floats
    running: Floats
    steps: Integers
    position: Integers
    answers: NDArray[np.uint8]
    diverged: Integers
    failed: Integers
    theta: Floats
    received: Integers
    records: Integers  # (R,): how many there are so far


@register_jitable
def combine(row, c, layout, numbers, shared, own, out, at):
    """out[at] = a row of the vectors that agent c sees."""
    d, first = out.shape[1], layout.first[row]
    if layout.first[row + 1] == first:
        for i in range(d):
            out[at, i] = 0.0
    for e in range(first, layout.first[row + 1]):
        v, place, by = layout.terms[e, 0], layout.terms[e, 1] + c * layout.terms[e, 2], layout.terms[e, 3]
        x, v = (own, v) if v >= 0 else (shared, -1 - v)
        if e == first:
            for i in range(d):
                out[at, i] = numbers[place + by * i] * x[v, i]
        elif by == 0:  # what most factors are, in a loop that a compiler can shorten
            factor = numbers[place]
            for i in range(d):
                out[at, i] += factor * x[v, i]
        else:
            for i in range(d):
                out[at, i] += numbers[place + i] * x[v, i]


@register_jitable
def residual_of(A_bar, b_bar, m, theta, at, out, to):
    """out[to] = b_bar - A_bar theta[at] of table m."""
    d = out.shape[1]
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += A_bar[m, i, j] * theta[at, j]
        out[to, i] = b_bar[m, i] - total


@register_jitable
def take_steps(stream, length, eta, z, pull, anchored, w, places):
    """Local steps of w[hat]; where they are anchored it is the way from the start. Returns where the agent is then.

    stream : seed, agent, observations so far, position; places : hat, kick (what pulls, times eta) and product (room
    for A(z) theta_hat)
    """
    seed, c, step, position = stream
    (hat, kick, product), m, d = places, z.table[c], w.shape[1]
    row, slot, shift = z.row[m], z.slot[m], z.shift[m]
    x0 = x1 = x2 = x3 = np.uint64(0)
    for h in range(length):
        if z.sampling == REPLAY:
            k = row + step % z.length[m]
        else:
            j = step & 3
            if j == 0 or h == 0:
                x0, x1, x2, x3 = block(seed, c, OBSERVATION, step >> 2)
            word = np.int64(x0 if j == 0 else (x1 if j == 1 else (x2 if j == 2 else x3)))
            if z.sampling == MARKOV:
                k = position + choose(word, np.int64(z.slots[position + (word >> shift)]), shift)
                position = np.int64(z.successor[k])
            else:
                k = row + choose(word, np.int64(z.slots[slot + (word >> shift)]), shift)
        step += 1
        if (h + 1) % z.thin != 0:
            continue
        k = z.order[k]
        if z.dense:
            for i in range(d):
                total = 0.0 if anchored else -z.b[k, i]
                for j in range(d):
                    total += z.A[k, i, j] * w[hat, j]
                w[product, i] = total
            for i in range(d):
                w[hat, i] += w[kick, i] - eta * (w[product, i] + pull * w[hat, i])
        else:
            u, v = z.left[k], z.right[k]
            t0, t1, t2, t3, whole = 0.0 if anchored else -z.y[k], 0.0, 0.0, 0.0, d - d % 4
            for i in range(0, whole, 4):  # four sums, since each waits for the one before it
                t0 += z.rows[v, i] * w[hat, i]
                t1 += z.rows[v, i + 1] * w[hat, i + 1]
                t2 += z.rows[v, i + 2] * w[hat, i + 2]
                t3 += z.rows[v, i + 3] * w[hat, i + 3]
            for i in range(whole, d):
                t0 += z.rows[v, i] * w[hat, i]
            total = (t0 + t1) + (t2 + t3)
            keep, total = 1.0 - eta * (z.ridge + pull), eta * total
            for i in range(d):
                w[hat, i] = keep * w[hat, i] + w[kick, i] - total * z.rows[u, i]
    return step, position


@register_jitable
def send(kind, settings, stream, own, at, to):
    """own[to] = what is left of a message, own[at], under way; algorithms/sending.py says what the kinds are.

    stream : seed, agent, round, which of its messages
    """
    (one, two), (seed, c, t, j), d = settings, stream, own.shape[1]
    size = 0.0
    for i in range(d):
        own[to, i] = own[at, i]
        size += abs(own[at, i])
    if kind == 0 or size != size:  # what is not a number stays so: a run that diverges shows it
        for i in range(d):
            own[to, i] = own[at, i] if kind == 0 else size
        return
    if kind == 4:  # one pass over the coordinates for each that is sent
        largest, place = np.inf, -1
        for i in range(d):
            own[to, i] = 0.0
        for _ in range(min(np.int64(one), d)):
            best, best_at = -1.0, -1
            for i in range(d):
                s = abs(own[at, i])
                if (s < largest or (s == largest and i > place)) and s > best:
                    best, best_at = s, i
            largest, place = best, best_at
            own[to, place] = own[at, place]
        return
    if kind == 5:
        for i in range(d):
            own[to, i] = size / d if own[at, i] >= 0 else -size / d
        return
    left, half = min(np.int64(one), d), (d + 1) // 2  # of rand-k: how many are still to be chosen
    times, top, radius = d / left if two > 0 and kind == 1 else 1.0, 0.0, abs(two)
    if kind == 2:
        top = floor(2 * radius / one + 0.5)
    for pair in range(half):
        first, second = two_uniforms(seed, c, MESSAGE, t, j * half + pair)
        if kind == 3:
            r = one * sqrt(-2.0 * log(1.0 - first))
            first, second = r * cos(2 * pi * second), r * sin(2 * pi * second)
        for i in range(2 * pair, min(2 * pair + 2, d)):
            u = first if i == 2 * pair else second
            if kind == 1:
                if u * (d - i) < left:
                    own[to, i] = times * own[at, i]
                    left -= 1
                else:
                    own[to, i] = 0.0
            elif kind == 3:
                own[to, i] += u
            else:
                dither = one * (u - 0.5)
                level = floor((own[at, i] + dither + radius) / one + 0.5)
                sent = -radius + one * min(max(level, 0.0), top)
                own[to, i] = sent - dither if two > 0 else sent


@register_jitable
def end_round(r, t, rounds, runs):
    """Projection, running mean, what is recorded; as `reference.settle`."""
    theta, running, norm = runs.shared[r, 0], runs.running[r], 0.0
    for x in theta:
        norm += x * x
    norm = sqrt(norm)
    if rounds.radius > 0 and norm > rounds.radius:
        for i in range(len(theta)):
            theta[i] *= rounds.radius / norm
    if not norm < np.inf and runs.diverged[r] < 0:
        runs.diverged[r] = t
    averaged, at = 0 <= rounds.average_after <= t, runs.records[r]
    if averaged:
        for i in range(len(theta)):
            running[i] += (theta[i] - running[i]) / (t + 1 - rounds.average_after)
    if rounds.recorded[at] == t:
        for i in range(len(theta)):
            runs.theta[r, at, i] = running[i] if averaged else theta[i]
        for steps in runs.steps[r]:
            runs.received[r, at] += steps
        runs.records[r] = at + 1


@kernel(error_model="numpy", nogil=True, _nrt=False)
def run_all(z, layout, rounds, runs):
    """The next rounds of all runs, one after the other."""
    k, n, split, N = layout.server, layout.means, layout.server + layout.means + 1, runs.own.shape[1]
    residual, start, hat = layout.agent, layout.agent + 1, layout.agent + 2
    sent = hat + 1 + layout.messages
    room = sent + layout.messages
    rows_then = layout.starts + 1 + layout.messages
    rows_absent = rows_then + k + layout.agent
    for r in range(len(runs.seeds)):
        shared, own, answers, seed, p = (
            runs.shared[r],
            runs.own[r],
            runs.answers[r],
            runs.seeds[r],
            r % len(rounds.table),
        )
        d = shared.shape[1]
        for s in range(rounds.table.shape[1]):
            t, numbers = rounds.first + s + 1, rounds.numbers[rounds.table[p, s]]
            for i in range(d):
                shared[k + n, i] = 0.0
            for c in range(N if layout.residual else 0):
                residual_of(z.A_bar, z.b_bar, z.table[c], shared, 0, own[c], residual)
                for i in range(d):
                    shared[k + n, i] += z.weights[c] * own[c, residual, i]
            for c in range(N):
                w, row = own[c], 0
                answers[c] = rounds.answering[p, s, c] if rounds.answering.shape[2] else 1
                if layout.presence or layout.starts > 1:
                    u, v = two_uniforms(seed, c, PRESENCE, t, 0)
                    if layout.presence:
                        answers[c] = u < numbers[layout.at_presence + c]
                    while row < layout.starts - 1 and v >= numbers[layout.at_starts + row * N + c]:
                        row += 1
                if not answers[c]:
                    continue
                combine(row, c, layout, numbers, shared, w, w, start)
                combine(layout.starts, c, layout, numbers, shared, w, w, room + KICK)
                if layout.anchored:
                    residual_of(z.A_bar, z.b_bar, z.table[c], w, start, w, room + PRODUCT)
                e, pull = c % rounds.lengths.shape[2], numbers[layout.at_pull]
                eta = rounds.step_sizes[p, s, e]
                for i in range(d):
                    w[hat, i] = 0.0 if layout.anchored else w[start, i]
                    w[room + KICK, i] += w[room + PRODUCT, i] if layout.anchored else pull * w[start, i]
                    w[room + KICK, i] *= eta
                places, stream = (hat, room + KICK, room + PRODUCT), (seed, c, runs.steps[r, c], runs.position[r, c])
                now = take_steps(stream, rounds.lengths[p, s, e], eta, z, pull, layout.anchored, w, places)
                runs.steps[r, c], runs.position[r, c] = now
                for i in range(d if layout.anchored else 0):
                    w[hat, i] += w[start, i]
                for j in range(layout.messages):
                    combine(layout.starts + 1 + j, c, layout, numbers, shared, w, w, hat + 1 + j)
                    settings = numbers[layout.at_sending], numbers[layout.at_sending + 1]
                    send(layout.sending, settings, (seed, c, t, j), w, hat + 1 + j, sent + j)
            for j in range(n):
                for i in range(d):
                    shared[k + j, i] = 0.0
                for c in range(N):
                    if answers[c]:
                        share, message = numbers[layout.at_means + j * N + c], sent + layout.of_mean[j]
                        for i in range(d):
                            shared[k + j, i] += share * own[c, message, i]
            for j in range(k):
                combine(rows_then + j, 0, layout, numbers, shared, own[0], shared, split + j)
            for c in range(N):
                for j in range(layout.agent):
                    row = (rows_then + k if answers[c] else rows_absent) + j
                    combine(row, c, layout, numbers, shared, own[c], own[c], room + NEXT + j)
            for i in range(d):
                for j in range(k):
                    shared[j, i] = shared[split + j, i]
            for c in range(N):
                for j in range(layout.agent):
                    for i in range(d):
                        own[c, j, i] = own[c, room + NEXT + j, i]
            if rounds.rule:
                given = numbers[layout.at_parameters :].ctypes.data
                places = shared.ctypes.data, given, runs.failed[r:].ctypes.data
                invoke(rounds.rule, (places[0], places[1], places[2], t, k, n, d, layout.parameters))
            end_round(r, t, rounds, runs)


@kernel(error_model="numpy", nogil=True)
def count_answers(seeds, presence, recorded, out):
    """out[s, i] = how many answers there have been by round recorded[i]; out : (S, records)."""
    for s in range(len(seeds)):
        total, at = 0, 0
        for t in range(recorded[-1] + 1):
            for c in range(len(presence) if t > 0 else 0):
                total += two_uniforms(seeds[s], c, PRESENCE, t, 0)[0] < presence[c]
            if recorded[at] == t:
                out[s, at] = total
                at += 1


def read_only(array: Any, dtype: Any = np.float64) -> Any:
    """A view that cannot be written to, whatever it is of: compiled code has one type for it."""
    out = np.ascontiguousarray(array, dtype).view()
    out.flags.writeable = False
    return out
