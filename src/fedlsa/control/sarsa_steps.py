"""FedSARSA's rounds, compiled: a loop over seeds, rounds, agents and local steps.

What is held of theta_hat after h steps is theta_hat - h eta xi_c, and of features what is not 0, so a step costs what
phi(s, a) holds, not d. As sum_c w_c xi_c is 0 and the gain 0 or 1 / (eta H), a round ends with the average of what is
held, and xi_c is the gain times what that differs by. So it costs the coordinates that some agent's steps have changed,
of which a list is kept, and for xi_c, which then goes back to 0, those of the round before. All agents' numbers of a
coordinate stand side by side.

Step k has the random words 2 k, for s', and 2 k + 1, for a'; starts have a stream of their own.
"""

# Numba infers the types of these functions itself.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
import numpy as np
from numba.extending import register_jitable

from ..engine.random import OBSERVATION, START, block
from ..kernel_cache import kernel

UNIT = 2.0**-32  # of a random word, as a number in [0, 1)


@register_jitable
def _draw(below, u):
    b = 0
    while u >= below[b]:
        b += 1
    return b


@register_jitable
def _value(columns, values, theta, xi, own, c, steps):
    """phi^T (theta + steps xi) of agent c, whose theta is number `own`; columns, values : (K,) of phi."""
    total = 0.0
    for k in range(len(columns)):
        total += values[k] * (theta[columns[k], own] + steps * xi[columns[k], c])
    return total


@register_jitable
def _local_steps(rules, of, at, spare, tally, held, xi, q):
    """Local steps of all agents in a round; q : (A,) for values.

    of : seed, round, steps, step size; rules, at, tally : as below, of this seed
    spare : (N, 2), what an even step leaves of its block of random words to the next one
    held : what is held of theta_hat; what agents act by, (d, N) or (d, 1); (d,) the last round with a change there; and
        these coordinates, with their number at the end
    """
    (seed, t, H, eta), (hat, acting, changed, touched), A = of, held, len(q)
    successor, below, reward, terminal, begin, columns, values, discount, temperature, epsilon, frozen = rules
    (rewards, ends), drift, number = tally, 0.0 if frozen else eta, 0
    for c in range(len(at)):
        (s, a), own = at[c], 0 if frozen else c
        for h in range(H):
            k = t * H + h
            if k % 2 == 0:
                w = block(seed, c, OBSERVATION, k // 2)
                spare[c, 0], spare[c, 1] = w[2] * UNIT, w[3] * UNIT
                chance, u = w[0] * UNIT, w[1] * UNIT
            else:
                chance, u = spare[c]
            b = _draw(below[c, s, a], chance)
            r, s_next = reward[c, s, a, b], successor[c, s, a, b]
            over = terminal[s_next]
            if over:
                s_next = _draw(begin[c], block(seed, c, START, k + 1)[0] * UNIT)
            best = 0
            for j in range(A):
                q[j] = _value(columns[s_next, j], values[s_next, j], acting, xi, own, c, h * drift)
                if q[j] > q[best]:
                    best = j
            a_next = best
            if temperature > 0:
                top, total, hardness = q[best], 0.0, 1 / temperature
                for j in range(A):
                    q[j] = np.exp((q[j] - top) * hardness)
                    total += q[j]
                u, a_next = u * total - q[0], 0
                while u >= 0 and a_next < A - 1:
                    a_next += 1
                    u -= q[a_next]
            elif u < epsilon:
                a_next = min(int(u / epsilon * A), A - 1)
            error = r - _value(columns[s, a], values[s, a], hat, xi, c, c, h * eta)
            if not over:
                error += discount * _value(columns[s_next, a_next], values[s_next, a_next], hat, xi, c, c, h * eta)
            for i in range(columns.shape[2]):
                j = columns[s, a, i]
                hat[j, c] += eta * error * values[s, a, i]
                if changed[j] != t:
                    changed[j], touched[number] = t, j
                    number += 1
            rewards, ends = rewards + r, ends + over
            s, a = s_next, a_next
        at[c, 0], at[c, 1] = s, a
    touched[-1], tally[0], tally[1] = number, rewards, ends


@kernel(error_model="numpy", nogil=True, _nrt=False)
def run_rounds(rules, weights, runs, schedule, H, first, low, high):
    """Rounds first, first + 1, ... of runs low, ..., high - 1; schedule : (2, rounds), their step sizes and gains.

    rules : successor, below, reward, all (N, S, A, B), where `below` is the chance of a successor or one before it, and
        2 at the last; terminal : (S,); begin : (N, S), as `below` for first states; columns, values : (S, A, K), of the
        features that are not 0; discount; temperature, 0 for epsilon-greedy; epsilon; whether agents act by theta
    runs : seeds (R,); theta (R, d); xi (R, d, N); state and action (R, N, 2); sum of rewards and ends of episodes
        (R, 2); first round that is not finite, or -1 (R,); what is held of theta_hat (R, d, N), theta at first; last
        round with a change, by any agent, or -1 (R, d); of the even rounds and of the odd ones the coordinates with a
        change in the last one, and their number (R, 2, d + 1); numbers left to the next step (R, N, 2); room for
        values (R, A)
    """
    seeds, thetas, variates, at, tally, diverged_at, room, last, lists, spare, q = runs
    d, N = variates.shape[1:]
    for i in range(low, high):
        theta, xi, hats, changed = thetas[i], variates[i], room[i], last[i]
        for k in range(schedule.shape[1]):
            if diverged_at[i] >= 0:
                break
            t, gain = first + k, schedule[1, k]
            now, before, finite = lists[i, t % 2], lists[i, 1 - t % 2], True
            held = hats, theta.reshape((d, 1)) if rules[-1] else hats, changed, now
            _local_steps(rules, (seeds[i], t, H, schedule[0, k]), at[i], spare[i], tally[i], held, xi, q[i])
            for j in now[: now[d]]:
                shift = 0.0  # the average of differences, so that coordinates without a change stay as they are
                for c in range(N):
                    shift += weights[c] * (hats[j, c] - theta[j])
                theta[j] += shift
                finite &= np.isfinite(theta[j])
                for c in range(N):
                    if gain > 0:
                        xi[j, c] = gain * (theta[j] - hats[j, c])  # keeps sum_c w_c xi_c = 0
                    hats[j, c] = theta[j]
            if gain > 0:
                for j in before[: before[d]]:
                    if changed[j] < t:
                        xi[j] = 0.0
            if not finite:
                diverged_at[i] = t + 1
