"""What a thread of a GPU does on its own: draw outcomes, look their rows up, multiply, move; a step at a time, or four.

Random words and the choice of an outcome are those of engine/random.py.

In long rounds of few agents the steps are cut into segments, which run at the same time. A step is an affine map of
theta_hat, and which one is drawn does not depend on theta_hat. Where a segment begins is not known before those ahead
of it have ended, so each begins at the server's theta, ends at some f, and carries the linear part P of its steps
along, P = I at first. Begun at theta + delta it would have ended at f + P delta. So delta <- f - theta + P delta,
segment after segment, gives what the agent's steps add to theta: the same numbers up to rounding, which is amplified by
the same products of steps. Two threads run a segment. Each carries f and four columns of P, and draws every other block
of four outcomes.
"""

from __future__ import annotations

from numba import int32, uint32, uint64

from ..random import OBSERVATION, block, choose
from .gpu_threads import SIMULATED, WARP, ask, device, fold, halve, tally, together

THREADS = 2  # of a segment
COLUMNS = 4  # of the linear part, for each thread
COORDINATES = THREADS * COLUMNS  # of theta_hat, at most
SEGMENTS = WARP // THREADS
INDEPENDENT, TRAJECTORY, LOG, PACKED = range(4)  # ways to draw; packed : independent, with rows in the alias tables

if SIMULATED:

    def random_block(key, agent, index):
        """The four random words of a block of observations."""
        return block(key, agent, OBSERVATION, index)

else:
    from numba.cuda.libdevice import umulhi

    @device
    def random_block(key, agent, index):
        """What engine/random.py gives for a block of observations, on 32-bit words, which are quicker here."""
        c0, c1, c2, c3 = uint32(index), uint32(agent), uint32(OBSERVATION), uint32(0)
        k0, k1 = uint32(key), uint32(key >> uint64(32))
        for _ in range(10):
            high0, low0 = uint32(umulhi(c0, uint32(0xD2511F53))), uint32(c0 * uint32(0xD2511F53))
            high1, low1 = uint32(umulhi(c2, uint32(0xCD9E8D57))), uint32(c2 * uint32(0xCD9E8D57))
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0, k1 = uint32(k0 + uint32(0x9E3779B9)), uint32(k1 + uint32(0xBB67AE85))
        return c0, c1, c2, c3


@device
def agent_entries(tables, i):
    """Where the alias table and the outcomes of agent entry i begin, 32 - bits of the table, how many outcomes."""
    return tables.agent_slot[i], tables.agent_row[i], tables.agent_shift[i], tables.agent_length[i]


@device
def pick(word, slots, table, shift):
    """The outcome, counted from the table's first, that a random word picks in the alias table at `table`."""
    word = uint32(word)
    return uint32(choose(word, slots[uint32(table + uint32(word >> shift))], shift))


@device
def draw(kind, key, agent, index, tables, entries, position):
    """The outcomes of the steps 4 index, ..., 4 index + 3, and where a trajectory stands after them."""
    slots, successor = tables.slots, tables.successor
    slot, row, shift, length = entries
    if kind == LOG:
        n = 4 * index
        k0, k1 = row + uint32(n % length), row + uint32((n + 1) % length)
        return k0, k1, row + uint32((n + 2) % length), row + uint32((n + 3) % length), position
    x = random_block(key, agent, index)
    if kind == TRAJECTORY:
        k0 = position + pick(x[0], slots, position, shift)
        position = successor[uint32(k0)]
        k1 = position + pick(x[1], slots, position, shift)
        position = successor[uint32(k1)]
        k2 = position + pick(x[2], slots, position, shift)
        position = successor[uint32(k2)]
        k3 = position + pick(x[3], slots, position, shift)
        return k0, k1, k2, k3, successor[uint32(k3)]
    k0, k1 = row + pick(x[0], slots, slot, shift), row + pick(x[1], slots, slot, shift)
    return k0, k1, row + pick(x[2], slots, slot, shift), row + pick(x[3], slots, slot, shift), position


@device
def packed(word, slots, table, shift):
    """The same with the outcome's pair of rows, in a table of 64-bit slots: entry, its own pair, its alias's pair."""
    word = uint32(word)
    outcome = uint32(word >> shift)
    slot = slots[uint32(table + outcome)]
    k = uint32(choose(word, uint32(slot), shift))
    return k, int32((slot >> uint64(32)) & uint64(0xFFFF)) if k == outcome else int32(slot >> uint64(48))


@device
def outcomes_of(kind, key, agent, index, tables, entries, position):
    """The pairs of rows and -y of the steps 4 index, ..., 4 index + 3, and where a trajectory stands after them.

    entries : of the agent, from `agent_entries`
    """
    pair, minus_y = tables.pair, tables.minus_y
    if kind == PACKED:
        slots, (slot, row, shift, _) = tables.slots, entries
        x = random_block(key, agent, index)
        k0, a0 = packed(x[0], slots, slot, shift)
        k1, a1 = packed(x[1], slots, slot, shift)
        k2, a2 = packed(x[2], slots, slot, shift)
        k3, a3 = packed(x[3], slots, slot, shift)
        y0, y1 = minus_y[uint32(row + k0)], minus_y[uint32(row + k1)]
        return a0, a1, a2, a3, y0, y1, minus_y[uint32(row + k2)], minus_y[uint32(row + k3)], position
    k0, k1, k2, k3, position = draw(kind, key, agent, index, tables, entries, position)
    y0, y1, y2, y3 = minus_y[uint32(k0)], minus_y[uint32(k1)], minus_y[uint32(k2)], minus_y[uint32(k3)]
    return pair[uint32(k0)], pair[uint32(k1)], pair[uint32(k2)], pair[uint32(k3)], y0, y1, y2, y3, position


@device
def draw_into_memory(kind, key, agent, index, tables, entries, stored):
    """Four threads of an agent draw the four blocks around `index`, one each: `stored` is what this one has drawn."""
    pairs, minus_y, tid = stored
    block_drawn = uint32((index & 0xFFFFFFFC) + (tid & 3))
    pairs[0], pairs[1], pairs[2], pairs[3], minus_y[0], minus_y[1], minus_y[2], minus_y[3], _ = outcomes_of(
        kind, key, agent, block_drawn, tables, entries, uint32(0)
    )


@device
def next_block(drawing, key, agent, index, tables, entries, position, stored):
    """`outcomes_of` a block; drawing : how, and whether the threads of an agent split the work (all agents at once)."""
    kind, split = drawing
    if not split:
        return outcomes_of(kind, key, agent, index, tables, entries, position)
    pairs, minus_y, tid = stored
    if index & 3 == 0:
        draw_into_memory(kind, key, agent, index, tables, entries, stored)
    whom = (tid & (WARP - 4)) + (index & 3)
    a0, a1, a2, a3 = ask(pairs[0], whom), ask(pairs[1], whom), ask(pairs[2], whom), ask(pairs[3], whom)
    y0, y1, y2, y3 = ask(minus_y[0], whom), ask(minus_y[1], whom), ask(minus_y[2], whom), ask(minus_y[3], whom)
    return a0, a1, a2, a3, y0, y1, y2, y3, position


@device
def fetch(u, v, pair, how, static):
    """u, v : (E,) <- a thread's share of the two vectors of an outcome, their rows in the halves of `pair`.

    differences : v is u - discount times the second row (temporal differences), so that features alone are looked up.
    half : the bits of its lower half; copies : of the rows in shared memory, 0 if they are elsewhere; coordinate i of
    the thread stands i * threads * copies numbers after its first.
    """
    table, begin, discount = how[0], how[1], how[3]
    threads, E, copies, half, differences = static[0], static[1], static[2], static[3], static[4]
    wide = threads * max(copies, 1)
    if copies:  # few rows, in shared memory
        stride = uint32(E * wide + (wide == 1))
        first, second = uint32((pair >> half) * stride + begin), uint32((pair & ((1 << half) - 1)) * stride + begin)
    else:
        first, second = uint64((pair >> 32) * E * threads + begin), uint64((pair & 0xFFFFFFFF) * E * threads + begin)
    for i in range(E):
        u[i] = table[first + uint32(i * wide)]
        v[i] = table[second + uint32(i * wide)]
        if differences:
            v[i] = u[i] - discount * v[i]


@device
def inner(v, w, scratch, static):
    """The inner product of two vectors that an agent's threads share."""
    threads, E = static[0], static[1]
    for i in range(E):
        scratch[i] = v[i] * w[i]
    return fold(tally(scratch, E), threads)


@device
def move(moved, theta, drift, vectors, minus_y, how, static):
    """moved <- drift - eta (u (v . theta - y) + ridge theta), which a step adds to theta; vectors hold u and v."""
    eta, decay, E, ridged = how[2], how[4], static[1], static[5]
    u, v, scratch = vectors[0], vectors[4], vectors[5]
    length = -eta * (inner(v, theta, scratch, static) + minus_y)
    for i in range(E):
        moved[i] = length * u[i] + drift[i]
        if ridged:
            moved[i] -= decay * theta[i]


@device
def step(theta, drift, vectors, pair, minus_y, how, static):
    """theta <- theta + drift - eta (u (v . theta - y) + ridge theta); vectors : six of (E,) to work with."""
    fetch(vectors[0], vectors[4], pair, how, static)
    move(vectors[1], theta, drift, vectors, minus_y, how, static)
    for i in range(static[1]):
        theta[i] += vectors[1][i]


@device
def along(v, w, start, E):
    """start + this thread's share of v . w."""
    for i in range(E):
        start += v[i] * w[i]
    return start


@device
def prepare(theta, drift, vectors, products, pairs, how, static):
    """What `four_steps` from theta needs: u_0, ..., u_3 and, for v_k times -eta, this thread's share of ten products.

    They are v_k . (theta + k drift) in products[k], and v_k . u_j for j < k in the others, row by row.
    """
    eta, E = how[2], static[1]
    u0, u1, u2, u3, v, _ = vectors
    fetch(u0, v, pairs[0], how, static)
    for i in range(E):
        v[i] *= -eta
    products[0] = along(v, theta, 0 * eta, E)
    fetch(u1, v, pairs[1], how, static)
    for i in range(E):
        v[i] *= -eta
    products[1] = along(v, theta, along(v, drift, 0 * eta, E), E)
    products[4] = along(v, u0, 0 * eta, E)
    fetch(u2, v, pairs[2], how, static)
    for i in range(E):
        v[i] *= -eta
    products[2] = along(v, theta, 2 * along(v, drift, 0 * eta, E), E)
    products[5], products[6] = along(v, u0, 0 * eta, E), along(v, u1, 0 * eta, E)
    fetch(u3, v, pairs[3], how, static)
    for i in range(E):
        v[i] *= -eta
    products[3] = along(v, theta, 3 * along(v, drift, 0 * eta, E), E)
    products[7], products[8], products[9] = along(v, u0, 0 * eta, E), along(v, u1, 0 * eta, E), along(v, u2, 0 * eta, E)


@device
def four_steps(theta, drift, vectors, products, minus_y, how, static):
    """Four steps without a ridge, prepared, whose inner products with theta do not wait for one another.

    With s_k the length of step k along u_k, v_k . theta_k = v_k . (theta_0 + k drift) + sum_{j < k} (v_k . u_j) s_j. Of
    it all but the s_j is known beforehand: one multiply-add per step is left for which the next step must wait.
    """
    eta, threads, E = how[2], static[0], static[1]
    u0, u1, u2, u3, _, _ = vectors
    for i in range(10):
        products[i] = fold(products[i], threads)
    s0, s1 = products[0] - eta * minus_y[0], products[1] - eta * minus_y[1]
    s2, s3 = products[2] - eta * minus_y[2], products[3] - eta * minus_y[3]
    s1 += products[4] * s0
    s2 = (s2 + products[5] * s0) + products[6] * s1
    s3 = ((s3 + products[7] * s0) + products[8] * s1) + products[9] * s2
    for i in range(E):
        theta[i] = (((theta[i] + 4 * drift[i]) + s0 * u0[i]) + s1 * u1[i]) + s2 * u2[i] + s3 * u3[i]


@device
def dense(theta, drift, tables, k, at, eta, meeting, shape):
    """theta <- theta + drift - eta (A theta - b) of outcome k, A by columns.

    meeting : memory that the agent's threads share, and where their part of it begins; shape : threads and E
    """
    columns, minus_b, (share, place), (threads, E) = tables.columns, tables.minus_b, meeting, shape
    D = E * threads
    for i in range(E):
        share[place + i * threads + at] = theta[i]
    together()
    for i in range(E):
        row = i * threads + at
        total = minus_b[k * D + row]
        for j in range(D):
            total += columns[(k * D + j) * D + row] * share[place + j]
        theta[i] += drift[i] - eta * total
    together()


@device
def step_all(f, linear, drift, vectors, outcome, how, static):
    """A step of f and of the linear part's columns; outcome : rows, -y, and 1, or 0 for a step beyond the round."""
    pair, minus_y, made = outcome
    eta, decay, E, ridged = -how[2] * made, how[4] * made, static[1], static[5]
    u, v, scratch = vectors[0], vectors[4], vectors[5]
    fetch(u, v, pair, how, static)
    length = eta * (inner(v, f, scratch, static) + minus_y)
    for i in range(E):
        if ridged:
            f[i] -= decay * f[i]
        f[i] = length * u[i] + (made * drift[i] + f[i])
    for c in range(COLUMNS):
        length = eta * inner(v, linear[c], scratch, static)
        for i in range(E):
            if ridged:
                linear[c][i] -= decay * linear[c][i]
            linear[c][i] += length * u[i]


@device
def segments(moved, theta, drift, work, when, drawn, how, static):
    """moved <- what the steps of a round add to theta, by the threads of one warp.

    work : six vectors, the columns, and some numbers; when : words of the first block that were used before, and the
    steps of the round; drawn : how outcomes are drawn, key, agent, number of the first block, tables, the agent's
    entries in them, and the number of the thread
    """
    (vectors, linear, delta), (phase, H), (kind, key, agent, index, tables, entries, tid) = work, when, drawn
    u, f, scratch, E = vectors[0], vectors[1], vectors[5], static[1]
    lane, nth = int32(tid % WARP), int32(tid % THREADS)
    first = int32(lane - nth)
    times = ((phase + H + 3) // 4 + WARP - 1) // WARP  # that each thread of a segment draws a block
    begin = int32(first * times)
    for i in range(E):
        f[i] = theta[i]
        for c in range(COLUMNS):
            linear[c][i] = i == COLUMNS * nth + c
    n, block, none = int32(4 * begin - phase), uint32(index + uint32(begin + nth)), uint32(0)
    b0, b1, b2, b3, z0, z1, z2, z3, _ = outcomes_of(kind, key, agent, block, tables, entries, none)
    for k in range(THREADS * times):
        if k % THREADS == 0:  # the next blocks are drawn while these are stepped through
            a0, a1, a2, a3, y0, y1, y2, y3 = b0, b1, b2, b3, z0, z1, z2, z3
            block = uint32(block + uint32(THREADS))
            b0, b1, b2, b3, z0, z1, z2, z3, _ = outcomes_of(kind, key, agent, block, tables, entries, none)
        whom = first + k % THREADS
        for j in range(4):
            delta[j] = 0 <= n + j < H
        step_all(f, linear, drift, vectors, (ask(a0, whom), ask(y0, whom), delta[0]), how, static)
        step_all(f, linear, drift, vectors, (ask(a1, whom), ask(y1, whom), delta[1]), how, static)
        step_all(f, linear, drift, vectors, (ask(a2, whom), ask(y2, whom), delta[2]), how, static)
        step_all(f, linear, drift, vectors, (ask(a3, whom), ask(y3, whom), delta[3]), how, static)
        n = int32(n + 4)
    for i in range(E):
        u[i] = theta[i]
        f[i] = f[i] - u[i] if nth == 0 else 0 * u[i]
    for c in range(COLUMNS):
        delta[c] = 0  # coordinates of delta, those of the thread's columns
    for s in range(SEGMENTS):
        for i in range(E):
            scratch[i] = f[i]
            for c in range(COLUMNS):
                scratch[i] += linear[c][i] * delta[c]
        halve(scratch, COLUMNS, lane, 1)
        for c in range(COLUMNS):
            delta[c] = ask(scratch[c], THREADS * s + nth)
    for i in range(E):
        moved[i] = ask(delta[i % COLUMNS], i // COLUMNS)
