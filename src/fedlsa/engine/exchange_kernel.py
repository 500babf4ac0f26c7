"""Rounds of an exchange, compiled: all that algorithms/exchanges.py can say, for any dimension and any problem.

A round is a few phases, each for all agents or all coordinates of a run; on a GPU, threads share these and wait for one
another in between. All is compiled once for all methods: vectors stand as `Exchange.vectors` has them, rows are tables.
The readable twin is `reference.run_exchange`.
"""

# Numba infers the types of these functions itself.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
from __future__ import annotations

from math import cos, floor, log, pi, sin, sqrt
from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload, register_jitable
from numpy.typing import NDArray

from ..checks import Floats
from ..kernel_cache import kernel
from .outcome_tables import OutcomeTables
from .random import MESSAGE, OBSERVATION, PRESENCE, block, choose, two_uniforms
from .task_struct import invoke

Integers = NDArray[np.int64]
IID, MARKOV, REPLAY, DRAWN = 0, 1, 2, 3
KICK, PRODUCT, NEXT = 0, 1, 2  # room behind an agent's vectors: eta times what pulls, A(z) theta_hat, what is next
PULL, SENDING, OF_AGENTS = 0, 1, 3  # places among a round's numbers


class ExchangeLayout(NamedTuple):
    """What is the same in all rounds. What may depend on a round's step size and length is a row of numbers.

    These are the pull, two of what is sent, (N,) probabilities to answer, (starts, N) those of starts, added up,
    (means, N) w_c factor_c / P(c in S), the parameters of the rule, and then all factors.

    server, agent : vectors that each remembers, theta and xi among them; starts, ..., parameters : how many there are
    sending : the number of its kind; anchored, residual, presence : whether there is such a thing
    table : the agent's vector that is the mean of what the rows of its table last gave, or 0
    first : (rows + 1,), where the terms of each of `Exchange.rows` begin
    terms : (terms, 4), an agent's vector, or -1 - v of a shared one, place, and two strides: the factor of agent c and
        coordinate i stands at place + c stride_0 + i stride_1
    of_mean : (means,), the message of each
    """

    server: int
    agent: int
    starts: int
    messages: int
    means: int
    parameters: int
    sending: int
    anchored: int
    table: int
    residual: int
    presence: int
    first: Integers
    terms: Integers
    of_mean: Integers


class Observations(NamedTuple):
    """A problem as steps read it; outcomes : how they are drawn.

    table : (N,), of each agent; A_bar : (M, d, d), b_bar : (M, d)
    rows, left, right, y : as `RankOne` has them; dense : A(z) are d rows each and b(z) d numbers of y
    observe : the address of the function of a stream, if it is one; 0.0 on a GPU
    prob : of each z in its table; place : (N,), of what is remembered of z, of d numbers in a row, or one, as it stands
    """

    sampling: int
    thin: int
    outcomes: OutcomeTables
    table: Integers
    dense: int
    rows: Floats
    left: NDArray[np.uint32]
    right: NDArray[np.uint32]
    y: Floats
    ridge: float
    A_bar: Floats
    b_bar: Floats
    weights: Floats
    prob: Floats
    place: Integers
    observe: float


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
    given : (R, ...), what each row of each agent's table last gave, where that is remembered
    steps, position, answers : (R, N); received : (R, records), observations of all agents
    """

    seeds: NDArray[np.uint64]
    shared: Floats
    own: Floats
    given: Floats
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
def residual_of(z, m, theta, at, out, to):
    """out[to] = b_bar - A_bar theta[at] of table m."""
    d = out.shape[1]
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += z.A_bar[m, i, j] * theta[at, j]
        out[to, i] = z.b_bar[m, i] - total


def draw_into(w, at, observe, seed, agent, number):
    """w[at], w[at + 1] and w[at + 2, 0] = u, v and -y of an observation of a stream, in code for processors alone."""


@overload(draw_into)
def _draw_into(w, at, observe, seed, agent, number):
    if not isinstance(observe, types.Integer):
        return lambda w, at, observe, seed, agent, number: None
    return lambda w, at, observe, seed, agent, number: invoke(
        observe, (w[at:].ctypes.data, w.shape[1], np.int64(seed), agent, number, 0, 0, 0)
    )


@register_jitable
def take_steps(stream, length, eta, pull, z, layout, w, given):
    """Local steps of theta_hat; where they are anchored it is the way from the start. Returns where the agent is then.

    stream : seed, agent, observations so far, position; given : of all agents of the run, as `Runs` has it
    """
    seed, c, step, position = stream
    anchored, table, hat, d = layout.anchored, layout.table, layout.agent + 2, w.shape[1]
    kick, product = hat + 1 + 2 * layout.messages + KICK, hat + 1 + 2 * layout.messages + PRODUCT
    o, m = z.outcomes, z.table[c]
    row, slot, shift = o.row[m], o.slot[m], o.shift[m]
    x0 = x1 = x2 = x3 = np.uint64(0)
    for h in range(length):
        if z.sampling == DRAWN:
            k = 0
            draw_into(w, product, z.observe, seed, c, step)
        elif z.sampling == REPLAY:
            k = row + step % o.length[m]
        else:
            j = step & 3
            if j == 0 or h == 0:
                x0, x1, x2, x3 = block(seed, c, OBSERVATION, step >> 2)
            word = np.int64(x0 if j == 0 else (x1 if j == 1 else (x2 if j == 2 else x3)))
            if z.sampling == MARKOV:
                k = position + choose(word, np.int64(o.slots[position + (word >> shift)]), shift)
                position = np.int64(o.successor[k])
            else:
                k = row + choose(word, np.int64(o.slots[slot + (word >> shift)]), shift)
        step += 1
        if (h + 1) % z.thin != 0:
            continue
        k = o.order[k]
        if z.dense:
            for i in range(d):
                total = 0.0 if anchored else -z.y[k * d + i]
                for j in range(d):
                    total += z.rows[k * d + i, j] * w[hat, j]
                w[product, i] = total
            for i in range(d if table else 0):
                at = z.place[c] + k * d + i
                news = w[product, i] - given[at]
                given[at] = w[product, i]
                w[product, i] = news + w[table, i]
                w[table, i] += z.prob[k] * news
            for i in range(d):
                w[hat, i] += w[kick, i] - eta * (w[product, i] + pull * w[hat, i])
        else:
            if z.sampling == DRAWN:
                rows, u, v, y = w, np.uint32(product), np.uint32(product + 1), -w[product + 2, 0]
            else:
                rows, u, v, y = z.rows, z.left[k], z.right[k], z.y[k]
            t0, t1, t2, t3, whole = 0.0 if anchored else -y, 0.0, 0.0, 0.0, d - d % 4
            for i in range(0, whole, 4):  # four sums, since each waits for the one before it
                t0 += rows[v, i] * w[hat, i]
                t1 += rows[v, i + 1] * w[hat, i + 1]
                t2 += rows[v, i + 2] * w[hat, i + 2]
                t3 += rows[v, i + 3] * w[hat, i + 3]
            for i in range(whole, d):
                t0 += rows[v, i] * w[hat, i]
            total = (t0 + t1) + (t2 + t3)
            keep, at = 1.0 - eta * (z.ridge + pull), z.place[c] + k
            if table:
                news, given[at] = total - given[at], total
                for i in range(d):
                    w[hat, i] = keep * w[hat, i] + w[kick, i] - eta * (news * rows[u, i] + w[table, i])
                    w[table, i] += z.prob[k] * news * rows[u, i]
                continue
            total *= eta
            for i in range(d):
                w[hat, i] = keep * w[hat, i] + w[kick, i] - total * rows[u, i]
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
def find_residuals(z, layout, rounds, runs, r, s, first, step):
    """b_bar_c - A_bar_c theta of every agent."""
    for c in range(first, runs.own.shape[1] if layout.residual else 0, step):
        residual_of(z, z.table[c], runs.shared[r], 0, runs.own[r, c], layout.agent)


@register_jitable
def average_residuals(z, layout, rounds, runs, r, s, first, step):
    """Their average over all agents."""
    shared, at = runs.shared[r], layout.server + layout.means
    for i in range(first, shared.shape[1], step):
        shared[at, i] = 0.0
    for c in range(runs.own.shape[1] if layout.residual else 0):
        for i in range(first, shared.shape[1], step):
            shared[at, i] += z.weights[c] * runs.own[r, c, layout.agent, i]


@register_jitable
def go_local(z, layout, rounds, runs, r, s, first, step):
    """Who answers, local steps, messages."""
    shared, seed, p, t = runs.shared[r], runs.seeds[r], r % len(rounds.table), rounds.first + s + 1
    start, (N, d), numbers = layout.agent + 1, (runs.own.shape[1], shared.shape[1]), rounds.numbers[rounds.table[p, s]]
    hat, sent = start + 1, start + 2 + layout.messages
    kick, product, pull = sent + layout.messages + KICK, sent + layout.messages + PRODUCT, numbers[PULL]
    for c in range(first, N, step):
        w, row, answers = runs.own[r, c], 0, True
        if rounds.answering.shape[2]:
            answers = rounds.answering[p, s, c] != 0
        if layout.presence or layout.starts > 1:
            u, v = two_uniforms(seed, c, PRESENCE, t, 0)
            if layout.presence:
                answers = u < numbers[OF_AGENTS + c]
            while row < layout.starts - 1 and v >= numbers[OF_AGENTS + (1 + row) * N + c]:
                row += 1
        runs.answers[r, c] = answers
        if not answers:
            continue
        combine(row, c, layout, numbers, shared, w, w, start)
        combine(layout.starts, c, layout, numbers, shared, w, w, kick)
        if layout.anchored:
            residual_of(z, z.table[c], w, start, w, product)
        e = c % rounds.lengths.shape[2]
        eta = rounds.step_sizes[p, s, e]
        for i in range(d):
            w[hat, i] = 0.0 if layout.anchored else w[start, i]
            w[kick, i] += w[product, i] if layout.anchored else pull * w[start, i]
            w[kick, i] *= eta
        stream = seed, c, runs.steps[r, c], runs.position[r, c]
        now = take_steps(stream, rounds.lengths[p, s, e], eta, pull, z, layout, w, runs.given[r])
        runs.steps[r, c], runs.position[r, c] = now
        for i in range(d if layout.anchored else 0):
            w[hat, i] += w[start, i]
        for j in range(layout.messages):
            combine(layout.starts + 1 + j, c, layout, numbers, shared, w, w, hat + 1 + j)
            settings = numbers[SENDING], numbers[SENDING + 1]
            send(layout.sending, settings, (seed, c, t, j), w, hat + 1 + j, sent + j)


@register_jitable
def average(layout, rounds, runs, r, s, first, step):
    """The means of what arrives."""
    shared, own, k, at = runs.shared[r], runs.own[r], layout.server, OF_AGENTS + runs.own.shape[1] * (1 + layout.starts)
    numbers, sent = rounds.numbers[rounds.table[r % len(rounds.table), s]], layout.agent + 3 + layout.messages
    for j in range(layout.means):
        message = sent + layout.of_mean[j]
        for i in range(first, shared.shape[1], step):
            shared[k + j, i] = 0.0
        for c in range(len(own)):
            if runs.answers[r, c]:
                share = numbers[at + j * len(own) + c]
                for i in range(first, shared.shape[1], step):
                    shared[k + j, i] += share * own[c, message, i]


@register_jitable
def find_next(layout, rounds, runs, r, s, first, step):
    """The next vectors of agents, and of the server, which still needs those of now."""
    shared, k, m, then = runs.shared[r], layout.server, layout.agent, layout.starts + 1 + layout.messages
    numbers, room = rounds.numbers[rounds.table[r % len(rounds.table), s]], m + 3 + 2 * layout.messages + NEXT
    for j in range(first, k, step):
        combine(then + j, 0, layout, numbers, shared, runs.own[r, 0], shared, k + layout.means + 1 + j)
    for c in range(first, runs.own.shape[1], step):
        own, rows = runs.own[r, c], then + k if runs.answers[r, c] else then + k + m
        for j in range(m):
            combine(rows + j, c, layout, numbers, shared, own, own, room + j)
        for j in range(m):
            for i in range(own.shape[1]):
                own[j, i] = own[room + j, i]


@register_jitable
def move_on(layout, rounds, runs, r, s, first, step):
    """The next vectors of the server are those of now."""
    shared, k = runs.shared[r], layout.server
    for i in range(first, shared.shape[1], step):
        for j in range(k):
            shared[j, i] = shared[k + layout.means + 1 + j, i]


@register_jitable
def end_round(layout, rounds, runs, r, s):
    """Projection, running mean, what is recorded; as `reference.settle`."""
    theta, running, norm, t = runs.shared[r, 0], runs.running[r], 0.0, rounds.first + s + 1
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
    for r in range(len(runs.seeds)):
        for s in range(rounds.table.shape[1]):
            place = layout, rounds, runs, r, s
            find_residuals(z, *place, 0, 1)
            average_residuals(z, *place, 0, 1)
            go_local(z, *place, 0, 1)
            average(*place, 0, 1)
            find_next(*place, 0, 1)
            move_on(*place, 0, 1)
            if rounds.rule:
                numbers = rounds.numbers[rounds.table[r % len(rounds.table), s]]
                at = len(z.table) * (1 + layout.starts + layout.means)
                places = runs.shared[r].ctypes.data, numbers[OF_AGENTS + at :].ctypes.data, runs.failed[r:].ctypes.data
                sizes = layout.server, layout.means, runs.shared.shape[2], layout.parameters
                invoke(rounds.rule, (*places, rounds.first + s + 1, *sizes))
            end_round(*place)


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
