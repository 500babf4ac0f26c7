"""What jobs send to the device: tables once per problem and way of sampling, and how long their rounds are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...problems import Dense, Problem
from ..jobs import Job
from ..tables import Layout
from .steps import IID, MARKOV, PACKED

Array = NDArray[Any]


def row_table(p: Problem) -> Array:
    """The rows that a problem's steps look up : (R, d); for temporal differences the features and a row of zeros."""
    z = p.observations
    if z.following is None:  # type: ignore[union-attr]
        return z.rows  # type: ignore[union-attr]
    return np.vstack([z.rows[: z.features], np.zeros((1, p.dim))])  # type: ignore[union-attr]


def outcome_pairs(p: Problem, half: int) -> NDArray[np.int64]:
    """The two rows of each outcome, the first above the lower `half` bits of a word."""
    z = p.observations
    if isinstance(z, Dense):
        return np.arange(len(z), dtype=np.int64)
    second = z.right if z.following is None else z.following
    return (z.left.astype(np.int64) << half) | second.astype(np.int64)


def packed_slots(p: Problem, where: Layout) -> NDArray[np.uint64]:
    """Alias tables of i.i.d. draws with the rows at hand: entry, then the pairs of its own outcome and of its alias."""
    size = np.int64(1) << (32 - where.shift.astype(np.int64))
    table = np.repeat(np.arange(len(size)), size)
    entry = where.slots.astype(np.int64)
    own = np.arange(len(entry)) - where.slot[table]
    alias = entry >> where.shift[table].astype(np.int64)
    pair = outcome_pairs(p, 8)[where.order]
    first, last = where.row[table], where.length[table] - 1  # slots beyond the outcomes are never their own choice
    mine, other = pair[first + np.minimum(own, last)], pair[first + np.minimum(alias, last)]
    words = entry.astype(np.uint64), mine.astype(np.uint64), other.astype(np.uint64)
    return words[0] | (words[1] << np.uint64(32)) | (words[2] << np.uint64(48))


def joined(parts: list[Array], dtype: Any) -> Array:
    return np.concatenate(parts).astype(dtype) if parts else np.zeros(1, dtype)


class Shared:
    """What jobs share: the tables of a problem under a way of sampling, sent once, and where each begins."""

    def __init__(self, kind: Any, D: int) -> None:
        self.kind, self.D = kind, D
        self.known: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.parts: dict[str, list[Array]] = defaultdict(list)
        self.sizes: dict[str, int] = defaultdict(int)

    def _add(self, name: str, values: Array) -> int:
        self.parts[name].append(values)
        self.sizes[name] += len(values)
        return self.sizes[name] - len(values)

    def add(self, job: Job) -> tuple[int, int, int]:
        """Where the job's rows and its agents' entries begin, and how many rows there are."""
        key = (id(job.problem), id(job.where))
        if key not in self.known:
            self.known[key] = self._send(job)
        return self.known[key]

    def _send(self, job: Job) -> tuple[int, int, int]:
        p, where, D, dtype = job.problem, job.where, self.D, self.kind.dtype
        z, d = p.observations, p.dim
        rows = count = 0
        first = self.sizes["pair"]
        pair = outcome_pairs(p, 16 if self.kind.copies else 32)[where.order]
        if isinstance(z, Dense):
            columns = np.zeros((len(where.order), D, D), dtype)
            columns[:, :d, :d] = z.A[where.order].transpose(0, 2, 1)
            minus_b = np.zeros((len(where.order), D), dtype)
            minus_b[:, :d] = -z.b[where.order]
            self._add("columns", columns.ravel())
            self._add("minus_b", minus_b.ravel())
            self._add("minus_y", np.zeros(len(where.order), dtype))
            pair = first + np.arange(len(where.order))
        else:
            table = np.zeros((len(row_table(p)), D), dtype)
            table[:, :d] = row_table(p)
            rows, count = self._add("rows", table.ravel()), len(table)
            self._add("minus_y", (-z.y[where.order]).astype(dtype))
        self._add("pair", pair.astype(np.int32 if self.kind.copies else np.int64))
        slot = self._add("slots", packed_slots(p, where) if self.kind.sampling == PACKED else where.slots)
        self._add("successor", where.successor.astype(np.int64) + slot)
        m = p.assignment
        shift_by = slot if self.kind.sampling == MARKOV else first
        own = self._add("own_row", where.row[m] + shift_by)
        self._add(
            "own_slot", (where.slot[m] if self.kind.sampling in (IID, PACKED) else np.zeros(len(m), np.int64)) + slot
        )
        self._add("own_shift", where.shift[m].astype(np.int64))
        self._add("own_length", where.length[m].astype(np.int64))
        self._add("weights", p.weights)
        return rows, own, count

    def positions(self, job: Job, own: int, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the table of each agent's present state begins."""
        rows, shift = np.concatenate(self.parts["own_row"]), np.concatenate(self.parts["own_shift"])
        mine = slice(own, own + job.problem.n_agents)
        return rows[mine] + (states << (32 - shift[mine]))

    def arrays(self) -> Iterable[Array]:
        """Everything in the order in which the kernel takes it."""
        names = ["rows", "pair", "minus_y", "columns", "minus_b", "slots", "successor"]
        names += ["own_row", "own_slot", "own_shift", "own_length", "weights"]
        kinds = {
            "slots": np.uint64 if self.kind.sampling == PACKED else np.uint32,
            "rows": self.kind.dtype,
            "columns": self.kind.dtype,
            "minus_b": self.kind.dtype,
        }
        kinds |= dict.fromkeys(("successor", "own_row", "own_slot", "own_length", "own_shift"), np.uint32)
        for name in names:
            yield joined(self.parts[name], kinds.get(name, self.parts[name][0].dtype if self.parts[name] else np.int64))
