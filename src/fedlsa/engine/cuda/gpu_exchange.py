"""Rounds of an exchange on a GPU: a block of threads does a run, and they share each phase of a round."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda
from numba.core.errors import NumbaError

from ...errors import ArgumentError
from ...kernel_cache import cached_on_gpu
from ..exchange_kernel import (
    OF_AGENTS,
    Rounds,
    average,
    average_residuals,
    end_round,
    find_next,
    find_residuals,
    go_local,
    move_on,
)
from ..exchange_runs import ExchangeTask
from ..hooks import RULE, cause
from .gpu_threads import SIMULATED, device

MOST_THREADS = 4 if SIMULATED else 256  # of a run


@functools.cache
def build(rule: Any) -> Any:
    """The kernel, with the rule of an exchange in it; without one it is cached on disk."""
    hooked = int(rule is not None)
    apply: Any = device(rule) if hooked else None  # type: ignore[no-untyped-call]

    @cuda.jit
    def run(z, layout, rounds, runs):  # type: ignore[no-untyped-def]
        r, first, step = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
        shared, k, n, N = runs.shared[r], layout.server, layout.means, len(z.table)
        for s in range(rounds.table.shape[1]):
            place = layout, rounds, runs, r, s
            find_residuals(z, *place, first, step)
            cuda.syncthreads()
            average_residuals(z, *place, first, step)
            cuda.syncthreads()
            go_local(z, *place, first, step)
            cuda.syncthreads()
            average(*place, first, step)
            cuda.syncthreads()
            find_next(*place, first, step)
            cuda.syncthreads()
            move_on(*place, first, step)
            cuda.syncthreads()
            if first == 0:
                if hooked:
                    numbers = rounds.numbers[rounds.table[r % len(rounds.table), s]]
                    given = numbers[OF_AGENTS + N * (1 + layout.starts + n) :][: layout.parameters]
                    apply(shared[:k], shared[k : k + n], rounds.first + s + 1, given)
                end_round(*place)
            cuda.syncthreads()

    return run if SIMULATED or hooked else cached_on_gpu(run)


class GpuExchangeTask(ExchangeTask):
    """A job on the GPU."""

    segment = 1e8

    def prepare(self, addresses: dict[str, int]) -> None:
        """Compile the kernel, and send what all rounds read."""
        self.kernel = build(self.numbers.exchange.rule)
        given = self.tables._replace(observe=0.0), self.numbers.layout, self.runs
        self.sent = [on_device(each) for each in given]
        self._run(self._next_rounds(1)._replace(table=np.zeros((1, 0), np.int64)))

    def _run(self, rounds: Rounds) -> None:
        tables, layout, runs = self.sent
        threads = min(MOST_THREADS, -(-max(self.job.problem.n_agents, self.job.problem.dim) // 32) * 32)
        try:
            self.kernel[len(self.job.seeds), threads](tables, layout, on_device(rounds), runs)
        except NumbaError as error:
            name, what = type(self.job.algorithm).__name__, f"{RULE} for engine='cuda', such as loops over numbers"
            raise ArgumentError(f"rule of {name} must be {what}; got from Numba: {cause(error)}") from error
        cuda.synchronize()
        if rounds.first + rounds.table.shape[1] == self.job.rounds and not SIMULATED:
            for host, there in zip(self.runs, runs, strict=True):
                if isinstance(host, np.ndarray) and host.flags.writeable:
                    there.copy_to_host(host)


def on_device(given: Any) -> Any:
    """The same numbers, with all arrays on the device."""
    if isinstance(given, tuple):
        return type(given)(*map(on_device, given))
    return cuda.to_device(given) if isinstance(given, np.ndarray) and not SIMULATED else given
