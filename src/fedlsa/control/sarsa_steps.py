"""FedSARSA's rounds, compiled: a loop over seeds, rounds, agents and local steps.

What is held of theta_hat after h steps is theta_hat - h eta xi_c, and of features what is not 0, so a step costs what
phi(s, a) holds, not d. As sum_c w_c xi_c is 0 and the gain 0 or 1 / (eta H), a round ends with the average of what is
held, and xi_c is the gain times what that differs by. So it costs the coordinates that some agent's steps have changed,
and for xi_c, which then goes back to 0, those of the round before.

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
def _value(columns, values, theta, xi, steps):
    """phi^T (theta + steps xi); columns, values : (K,) of phi."""
    total = 0.0
    for k in range(len(columns)):
        total += values[k] * (theta[columns[k]] + steps * xi[columns[k]])
    return total


@register_jitable
def _local_steps(rules, of, at, tally, held, acting, xi, q):
    """Local steps of an agent in a round; acting : whose policy it follows; q : (A,) for values.

    of : seed, agent, round, steps, step size; rules, at, tally : as below, of this agent
    held : what is held of theta_hat, and (d,) the last round with a change there
    """
    (seed, c, t, H, eta), (s, a), (hat, changed), A = of, at, held, len(q)
    successor, below, reward, terminal, begin, columns, values, discount, temperature, epsilon, frozen = rules
    successor, below, reward, begin, drift = successor[c], below[c], reward[c], begin[c], 0.0 if frozen else eta
    w = block(seed, c, OBSERVATION, t * H // 2)
    for h in range(H):
        k = t * H + h
        if h > 0 and k % 2 == 0:
            w = block(seed, c, OBSERVATION, k // 2)
        chance, u = (w[0] * UNIT, w[1] * UNIT) if k % 2 == 0 else (w[2] * UNIT, w[3] * UNIT)
        b = _draw(below[s, a], chance)
        r, s_next = reward[s, a, b], successor[s, a, b]
        over = terminal[s_next]
        if over:
            s_next = _draw(begin, block(seed, c, START, k + 1)[0] * UNIT)
        best = 0
        for j in range(A):
            q[j] = _value(columns[s_next, j], values[s_next, j], acting, xi, h * drift)
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
        error = r - _value(columns[s, a], values[s, a], hat, xi, h * eta)
        if not over:
            error += discount * _value(columns[s_next, a_next], values[s_next, a_next], hat, xi, h * eta)
        for j in range(columns.shape[2]):
            hat[columns[s, a, j]] += eta * error * values[s, a, j]
            changed[columns[s, a, j]] = t
        tally[0], tally[1] = tally[0] + r, tally[1] + over
        s, a = s_next, a_next
    at[0], at[1] = s, a


@kernel(error_model="numpy", nogil=True, _nrt=False)
def run_rounds(rules, weights, runs, schedule, H, first, low, high):
    """Rounds first, first + 1, ... of runs low, ..., high - 1; schedule : (2, rounds), their step sizes and gains.

    rules : successor, below, reward, all (N, S, A, B), where `below` is the chance of a successor or one before it, and
        2 at the last; terminal : (S,); begin : (N, S), as `below` for first states; columns, values : (S, A, K), of the
        features that are not 0; discount; temperature, 0 for epsilon-greedy; epsilon; whether agents act by theta
    runs : seeds (R,); theta (R, d); xi (R, N, d); state and action (R, N, 2); sum of rewards and ends of episodes
        (R, 2); first round that is not finite, or -1 (R,); what is held of theta_hat (R, N, d), theta at first; last
        round with a change, by any agent, or -1 (R, d); room for values (R, A)
    """
    seeds, thetas, variates, at, tally, diverged_at, room, last, q = runs
    N, d = variates.shape[1:]
    for i in range(low, high):
        theta, xi, hats, changed = thetas[i], variates[i], room[i], last[i]
        for k in range(schedule.shape[1]):
            if diverged_at[i] >= 0:
                break
            t, gain = first + k, schedule[1, k]
            for c in range(N):
                of, acting = (seeds[i], c, t, H, schedule[0, k]), theta if rules[-1] else hats[c]
                _local_steps(rules, of, at[i, c], tally[i], (hats[c], changed), acting, xi[c], q[i])
            finite, since = True, t - 1 if gain > 0 else t
            for j in range(d):
                if changed[j] >= since:
                    shift = 0.0  # the average of differences, so that coordinates without a change stay as they are
                    for c in range(N):
                        shift += weights[c] * (hats[c, j] - theta[j])
                    theta[j] += shift
                    finite &= np.isfinite(theta[j])
                    for c in range(N):
                        if gain > 0:
                            xi[c, j] = gain * (theta[j] - hats[c, j])  # keeps sum_c w_c xi_c = 0
                        hats[c, j] = theta[j]
            if not finite:
                diverged_at[i] = t + 1
