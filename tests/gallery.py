"""Small problems that break things, each with a step size that suits it.

Random matrices are kind: their averages have eigenvectors, their modes do not turn, their noise is neither large nor
absent. Users' problems are not like that. Every theory function, plan and engine is held to the slow twin
(tests/twin.py) on all of these.
"""

import functools
from dataclasses import dataclass

import numpy as np

import fedlsa as fl
from fedlsa.theory.linear import symkron


@dataclass(frozen=True, eq=False)
class Case:
    """A problem and a step size at which its methods are stable in mean square, except where a case says otherwise.

    H, p : local steps of FedLSA and SCAFFLSA, and the probability of Scaffnew, that go with it.
    """

    problem: fl.Problem
    eta: float
    H: int = 3
    p: float = 0.4

    def methods(self, **options):
        """One of each kind."""
        makes = ((fl.FedLSA, self.H), (fl.SCAFFLSA, self.H), (fl.Scaffnew, self.p))
        return [make(self.eta, length, **options) for make, length in makes]


CASES = {}
# what `make test` runs where all of them take long: one of each kind of matrix, noise, weights and chain
CORE = ("jordan block", "singular site", "no noise", "one dimension", "weights from one to a millionth")
CORE += ("shared tables and unequal weights", "absorbing chain")


def case(make):
    """List a maker under its name, in words; it is called once."""
    CASES[make.__name__.replace("_", " ")] = functools.cache(make)
    return make


def shaken(A, b, noise_A=0.1, noise_b=1.0):
    """A table of two equally likely outcomes on both sides of (A, b); noise_A : of A, relative to its size."""
    A, b = np.array(A, float), np.array(b, float)
    E = noise_A * np.abs(A).max() * np.cos(np.arange(A.size)).reshape(A.shape)
    e = noise_b * np.sin(1 + np.arange(len(b)))
    return [0.5, 0.5], np.stack([A + E, A - E]), np.stack([b + e, b - e])


def sure(A, b):
    """A table of one outcome."""
    return [1.0], np.array([A], float), np.array([b], float)


def uncentred(m):
    """The noise of moments as a function of (theta, 1) instead of (theta - centre, 1)."""
    shift = np.eye(m.dim + 1)
    shift[:-1, -1] = -m.centre
    return m.noise @ symkron(shift)


def mdp(P, r, features, **keywords):
    """Value functions of Markov chains P (N, S, S) with rewards r (N, S)."""
    P, r = np.array(P, float)[:, :, None], np.array(r, float)[:, :, None]
    return fl.problems.from_mdps(P, r, np.ones((P.shape[1], 1)), features, 0.9, **keywords)


@case
def jordan_block():
    """A_bar has one eigenvector, and so has every outcome."""
    A, E = np.array([[1.0, 1.0], [0.0, 1.0]]), 0.1 * np.eye(2)
    vectors = ([[2.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [-2.0, 1.0]])
    return Case(fl.problems.from_observations([([0.5, 0.5], [A + E, A - E], b) for b in vectors]), 0.1)


@case
def nearly_defective():
    A = [[1.0, 1.0], [0.0, 1.0 + 1e-8]]
    return Case(fl.problems.from_observations([shaken(A, [1, 2]), shaken(A, [-1, 0.5])]), 0.2)


@case
def corridor():
    """A deterministic walk along four states that starts again at its end; A_bar is bidiagonal, one Jordan block."""
    S = 4
    P = np.tile(np.eye(S, k=1), (2, 1, 1))
    P[:, -1, -1] = 1
    r = [np.arange(S) / S, 0.3 - np.arange(S) / S]
    ends = {"terminal": np.arange(S) == S - 1, "initial": np.eye(S)[0]}
    return Case(mdp(P, r, np.eye(S)[:, : S - 1], **ends), 0.5)


@case
def turning_modes():
    """Eigenvalues whose imaginary part is 100 times the real one."""
    A = np.array([[0.01, 1.0], [-1.0, 0.01]])
    one, other = shaken(A, [1, 0], 0.002), shaken(A + 1e-4 * np.array([[1, 2], [0, 1]]), [0, 1], 0.002)
    return Case(fl.problems.from_observations([one, other]), 0.01)


@case
def nearly_singular_average():
    """An averaged eigenvalue of 1e-4 from sites of 1 and -1 + 2e-4: theta_star is far and slow; FedLSA diverges."""
    one, other = shaken(np.diag([1, 1.0]), [1, 1], 0.0), shaken(np.diag([1, 2e-4 - 1]), [1, -0.9], 0.0)
    return Case(fl.problems.from_observations([one, other]), 0.1, H=2, p=0.6)


@case
def singular_site():
    """A site that knows nothing of one coordinate."""
    one, other = shaken([[1, 0.2], [0, 1]], [1, 1]), shaken(np.diag([1, 0]), [0, 1], 0.0)
    return Case(fl.problems.from_observations([one, other]), 0.2)


@case
def unstable_site():
    """A site that would diverge alone."""
    one, other = shaken([[2, 0], [0.3, 1.5]], [1, 1]), shaken([[-0.5, 0.1], [0, 0.5]], [-1, 0])
    return Case(fl.problems.from_observations([one, other]), 0.1)


@case
def no_noise():
    tables = [sure([[1, 0.3], [0, 0.5]], [1, 2]), sure([[2, 0], [-0.4, 0.7]], [0.3, 0.2]), sure(np.eye(2), [0, 1])]
    return Case(fl.problems.from_observations(tables), 0.3)


@case
def tiny_noise():
    """Noise of 1e-8: the variance is 1e-16 of the error. Numbers are dyadic, so that they are what they say."""
    E, e = 2.0**-27 * np.array([[1, -1], [0.5, 1]]), 2.0**-27 * np.array([1, 2])
    means = ([[1, 0.25], [0, 0.5]], [1, 2]), ([[2, 0], [-0.5, 0.75]], [0.25, 0.5])
    tables = [([0.5, 0.5], [np.add(A, E), np.subtract(A, E)], [np.add(b, e), np.subtract(b, e)]) for A, b in means]
    return Case(fl.problems.from_observations(tables), 0.25)


@case
def no_heterogeneity():
    """Three agents with one table, so one group."""
    tables = [shaken([[1, 0.5], [-0.5, 1]], [1, -1], 0.3)]
    return Case(fl.problems.from_observations(tables, assignment=[0, 0, 0]), 0.2)


@case
def one_agent():
    return Case(fl.problems.from_observations([shaken([[1, 0.5], [-0.5, 1]], [1, -1], 0.3)]), 0.3)


@case
def weights_from_one_to_a_millionth():
    tables = [shaken([[1, 0.5], [0, 1]], [1, 0]), shaken([[1.5, 0], [0.2, 1]], [0, 3]), shaken(np.eye(2), [-9, 4])]
    return Case(fl.problems.from_observations(tables, weights=[1e-3, 1.0, 1e-6]), 0.2)


@case
def shared_tables_and_unequal_weights():
    tables = [shaken([[1.0]], [2.0], 0.5), shaken([[0.5]], [-1.0], 0.2)]
    return Case(fl.problems.from_observations(tables, assignment=[0, 1, 0, 1], weights=[1, 2, 3, 2]), 0.3)


@case
def absorbing_chain():
    """All time is spent in a state that is never left, so nothing is random."""
    return Case(mdp([[[0.5, 0.5], [0, 1]]] * 2, [[1, 2], [1, -1]], [[0.5], [1.0]]), 0.8)


@case
def periodic_chain():
    """Three states in turn."""
    P = np.roll(np.eye(3), 1, axis=1)
    return Case(mdp([P, P[::-1, ::-1]], [[1, 0, 2], [0, -1, 1]], [[1, 0], [0.3, 0.8], [0, 1]]), 0.3)


@case
def badly_scaled():
    """One coordinate a thousand times slower than the other, and theta_star of 1e4."""
    tables = [shaken(np.diag([1, 1e-3]), [1e4, 10], 0.1), shaken(np.diag([1.5, 2e-3]), [1e4, 20], 0.1)]
    return Case(fl.problems.from_observations(tables), 0.1)


@case
def one_dimension():
    tables = [shaken([[1.0]], [1.0], 0.5), shaken([[0.4]], [-1.0], 0.5), shaken([[2.0]], [0.0], 0.2)]
    return Case(fl.problems.from_observations(tables), 0.4)


@case
def seventeen_dimensions():
    """Beyond any vector register, and no multiple of one."""
    A = np.eye(17) + 0.2 * np.sin(np.arange(289)).reshape(17, 17)
    return Case(fl.problems.from_observations([shaken(A, np.arange(17) / 17, 0.02)]), 0.1, H=2, p=0.7)


@case
def single_steps():
    """H = 1: all methods are one."""
    tables = [shaken([[1, 0.2], [0, 0.6]], [1, 0], 0.2), shaken([[0.8, 0], [0.5, 1.1]], [0, 1], 0.2)]
    return Case(fl.problems.from_observations(tables), 0.3, H=1, p=1.0)


@case
def very_long_rounds():
    """H = 100,000 steps of 1e-4; lengths of Scaffnew's rounds are left short, or nobody could sum over them."""
    tables = [shaken([[1.0]], [1.0], 0.5), shaken([[0.4]], [-1.0], 0.5)]
    return Case(fl.problems.from_observations(tables), 1e-4, H=100_000, p=0.2)


@case
def at_the_edge():
    """0.99 of the largest stable step size, 2 E[A] / E[A^2], of a single agent that steps alone."""
    return Case(fl.problems.from_observations([shaken([[1.0]], [1.0], 0.9)]), 0.99 * 2 / (1 + 0.9**2), H=2, p=0.8)


def everything():
    """(name, case, method) of all of them."""
    return [(name, make(), a) for name, make in CASES.items() for a in make().methods()]
