"""The law of theta and all else that goes on from round to round: the server's memory and every control variate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..algorithms import Algorithm
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..value_objects import Displayed, ReadOnly
from . import tuning
from .exchange_rounds import Agents, ExchangeRound
from .joint import Joint
from .linear import Index
from .problem_moments import Moments


@dataclass(frozen=True, eq=False, repr=False)
class JointLaw(Displayed, ReadOnly):
    """The law of (theta, v_1, ..., xi_1, ..., xi_N): the server's memory, then control variates where they change.

    Agents who remember more, in methods that are an exchange, have that after their xi_c.

    mean : (q,); covariance : (q, q), infinite where second moments do not converge
    """

    mean: Floats
    covariance: Floats


def check_joint_size(N: int, d: int) -> None:
    """Refuse a law of more coordinates than fit."""
    most = tuning.JOINT_COORDINATES // d - 1
    if most < N:
        raise ArgumentError(f"agents must be at most {most} for a joint law in dimension {d}; got {N}")


def joint_law(form: Joint, vector: Floats, group: Index) -> JointLaw:
    """The same from a fixed point of joint.py; theta is measured from theta_star. group : (N,), of each agent.

    Agents of a group vary about its mean as equals do: two of n have -1 / (n - 1) of the covariance of one.
    """
    d, N, m = form.d, len(group), form.step.moments
    _, u, x = form.read(np.eye(form.n + form.l))
    rows = np.concatenate([np.eye(form.n + form.l)[form.n :] if form.l else u, x[group].reshape(N * d, -1)])
    memory = len(rows) - N * d
    mean = np.append(np.zeros(memory), m.xi_star[m.table][group])
    if not np.isfinite(vector).all():
        return JointLaw(mean, np.full((len(rows),) * 2, np.inf))
    Y, zY, zz, own = form.parts(vector)
    out = rows @ np.block([[Y, zY.T], [zY, zz]]) @ rows.T
    alike = np.equal.outer(group, group) / np.maximum(form.count.ravel()[group] - 1, 1)[:, None]
    apart = (np.eye(N) * (1 + alike) - alike)[:, :, None, None] * own[group][:, None]
    out[memory:, memory:] += apart.swapaxes(1, 2).reshape(N * d, N * d)
    return JointLaw(mean, (out + out.T) / 2)


def exchange_law(agents: Agents, step: ExchangeRound, mean: Floats, covariance: Floats) -> JointLaw:
    """The same from mean and covariance of the state of an exchange, centred."""
    centre, d = np.zeros(len(mean)), step.d
    centre[:d] = agents.moments.theta_star
    centre[step.k * d :].reshape(step.N, step.l, d)[:, 0] = agents.xi_star
    return JointLaw(centre + mean, covariance)


def group_of(problem: Problem | Moments, a: Algorithm) -> Index:
    """(N,): the group of each agent, in the order of `groups_of`; of moments alone agents stand group by group."""
    if isinstance(problem, Moments):
        return np.repeat(np.arange(len(problem.table)), problem.count)
    rows = np.column_stack([problem.assignment, problem.weights, *(a.agent_factors(problem.n_agents) or ())])
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()
