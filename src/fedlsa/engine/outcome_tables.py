"""A problem's tables as engines read them: alias tables to draw from, and where each outcome stands.

Both engines draw from these, so that they see the same observations.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from ..problems import Dense, Problem, RankOne, Stream
from ..sampling import IID, Markov, Replay, Sampling
from .random import START, alias_bits, alias_tables, block

Words = NDArray[np.uint32]
Integers = NDArray[np.int64]


class OutcomeTables(NamedTuple):
    """Where the engines find what an agent of table m draws; compiled code takes it as it is.

    order : (L,) the problem's outcomes in the engines' order. The outcomes of table m begin at row[m].
    i.i.d. : slots[slot[m]:] is the alias table of table m, with 2^(32 - shift[m]) slots.
    Markov : the alias tables of the states of table m follow one another from slots[row[m]] on; outcomes stand at their
        slots, and successor[k] is where the table of the next state begins.
    Replay : observation n of table m is the outcome row[m] + n % length[m]; so in a stream, whose outcomes are numbers.
    """

    order: Integers
    row: Integers  # (M,)
    length: Integers  # (M,)
    slots: Words
    slot: Integers  # (M,)
    shift: Integers  # (M,)
    successor: Words

    def draw(self, word: NDArray[np.uint64], at: Any, shift: Any) -> Integers:
        """The outcomes that random words pick in alias tables with 2^(32 - shift) slots that begin at `at`."""
        coin, low = word.astype(np.int64), (1 << shift) - 1
        entry = self.slots[at + (coin >> shift)].astype(np.int64)  # `choose` of many words at once
        return np.where(coin & low < entry & low, coin >> shift, entry >> shift)


_NONE = np.empty(0, np.uint32)
DRAW_WORK = 300  # multiply-adds in the time in which a function draws
MOST_DRAWN = 2**32 - 1  # observations of an agent of a stream: the counter of their random numbers
_KNOWN: WeakKeyDictionary[Problem, dict[str, OutcomeTables]] = WeakKeyDictionary()  # problems do not change


def read_only(array: Any, dtype: Any = None) -> Any:
    """A plain array that cannot be written to, as a mapped file cannot: compiled code has one type for all of them."""
    out = np.ascontiguousarray(array, dtype).view(np.ndarray)
    out.flags.writeable = False
    return out


def _tables(*arrays: Any) -> OutcomeTables:
    kinds = dict.fromkeys(OutcomeTables._fields, np.int64) | {"slots": np.uint32, "successor": np.uint32}
    return OutcomeTables(*map(read_only, arrays, kinds.values()))


def _independent(prob: NDArray[np.float64], first: Integers) -> OutcomeTables:
    length = np.diff(first)
    bits = np.array([alias_bits(int(n)) for n in length])
    slots, slot = alias_tables(prob, first[:-1], length, bits)
    return _tables(np.arange(len(prob)), first[:-1], length, slots, slot, 32 - bits, _NONE)


def _trajectory(problem: Problem) -> OutcomeTables:
    chain = problem.chain
    if chain is None:
        raise ArgumentError(
            "sampling must be IID() or Replay() for a problem without a transition kernel; got Markov() "
            f"for a problem made by {problem.made_by}"
        )
    tables, states = problem.n_tables, np.diff(chain.first_state)
    table = np.repeat(np.arange(tables), np.diff(problem.first))
    state = chain.first_state[table] + chain.origin  # numbered over all tables
    by_state = np.argsort(state, kind="stable")
    degree = np.bincount(state, minlength=chain.first_state[-1])
    first = np.cumsum(degree) - degree
    rank = np.empty(len(state), np.int64)
    rank[by_state] = np.arange(len(state)) - first[state[by_state]]
    table_of_state = np.repeat(np.arange(tables), states)
    widest = np.zeros(tables, np.int64)
    np.maximum.at(widest, table_of_state, degree)
    bits = np.array([alias_bits(int(n)) for n in widest])
    prob = np.append(chain.conditional[by_state], 1.0)  # a state without outcomes reads one entry, whichever it is
    slots, begin = alias_tables(prob, first, np.maximum(degree, 1), bits[table_of_state])
    order, successor = np.zeros(len(slots), np.int64), np.zeros(len(slots), np.uint32)
    place = begin[state] + rank
    order[place] = np.arange(len(state))
    successor[place] = begin[chain.first_state[table] + chain.successor]
    row = begin[chain.first_state[:-1]]
    return _tables(order, row, states, slots, row, 32 - bits, successor)


def outcome_tables(problem: Problem, sampling: Sampling) -> OutcomeTables:
    """The tables of a problem under a way of sampling; made once per problem."""
    if isinstance(problem.observations, Stream):
        if not isinstance(sampling, IID):
            raise ArgumentError(f"sampling must be IID() for a stream, whose observations are drawn; got {sampling!r}")
        zero = np.zeros(problem.n_tables, np.int64)
        return _tables(zero[:1], zero, zero + MOST_DRAWN, _NONE, zero, zero + 32, _NONE)
    if isinstance(sampling, Markov) and sampling.start is not None:
        problem.check_start(sampling.start)
    if isinstance(sampling, Replay) and not problem.ordered:
        raise ArgumentError(
            "sampling must be IID() or Markov() for a problem that is not a log; got Replay() "
            f"for a problem made by {problem.made_by}"
        )
    known, kind = _KNOWN.setdefault(problem, {}), "trajectories" if isinstance(sampling, Markov) else "outcomes"
    if kind not in known:
        known[kind] = _independent(problem.prob, problem.first) if kind == "outcomes" else _trajectory(problem)
    return known[kind]


def step_work(z: RankOne | Dense, D: int) -> int:
    """Multiply-adds of a local step."""
    if isinstance(z, Stream):
        return 2 * D + DRAW_WORK
    return D * D if isinstance(z, Dense) else D


def first_states(problem: Problem, sampling: Markov, seeds: NDArray[np.uint64]) -> Integers:
    """(S, N): the state in which each agent's trajectory starts, as given or drawn from its stationary law."""
    if sampling.start is not None:
        return np.broadcast_to(np.array(sampling.start), (len(seeds), problem.n_agents))
    known, chain, m = _KNOWN.setdefault(problem, {}), problem.chain, problem.assignment
    assert chain is not None
    if "first states" not in known:
        known["first states"] = _independent(chain.stationary, chain.first_state)
    law, agents = known["first states"], np.arange(problem.n_agents, dtype=np.uint64)
    return law.draw(block(seeds[:, None], agents, START, 0)[0], law.slot[m], law.shift[m])


def chain_positions(problem: Problem, outcomes: OutcomeTables, chain: Integers) -> Integers:
    """Where the alias tables of states begin; chain, and the result : (..., N)."""
    m = problem.assignment
    return np.asarray(outcomes.row[m] + (chain << (32 - outcomes.shift[m])))


def chain_states(problem: Problem, outcomes: OutcomeTables, positions: Integers) -> Integers:
    """The inverse of `chain_positions`."""
    m = problem.assignment
    return np.asarray((positions - outcomes.row[m]) >> (32 - outcomes.shift[m]))
