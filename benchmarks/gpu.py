"""The GPU engine's times on the paper's grids and on large problems, beside the CPU engine and JAX; run it on a GPU.

    python benchmarks/gpu.py                 the tables; about two minutes
    python benchmarks/gpu.py --quick         small sizes, to see that all of it works
    python benchmarks/gpu.py --write         also rewrite the table of benchmarks/measured/README.md

Kernel times are the engine's own (sending, compiling and fetching stand apart), the best of a few; the CPU's are whole
calls on all cores. JAX (vmap and scan, as a researcher would write it) runs on the same GPU, compiled before, for a few
rounds; all are given per agent update. Rows of one table are measured one after the other in one process.
"""

from __future__ import annotations

import time
from typing import Any

import baselines
import documents
import machine
import numpy as np

import fedlsa as fl
from fedlsa.engine.cuda import gpu_launch as gpu

STEPS = 500_000
TIMES = "\N{MULTIPLICATION SIGN}"


def paper(steps: int) -> tuple[list[fl.Problem], list[fl.algorithms.Algorithm], list[int]]:
    """The main and appendix grids: N = 10, 100, both settings, H = 1 ... 10000, two step sizes, both methods."""
    problems = [
        fl.problems.garnet(agents=N, heterogeneous=h, preset="authors") for N in (100, 10) for h in (True, False)
    ]
    methods = [m(eta, H) for H in (1, 10, 100, 1000, 10_000) for eta in (0.1, 0.01) for m in (fl.FedLSA, fl.SCAFFLSA)]
    return problems, methods, [max(1, steps // a.local_steps) for a in methods]


def on_gpu(problems: Any, methods: Any, rounds: Any, seeds: int, repeats: int) -> tuple[float, Any, float]:
    """Kernel seconds, all phases of the first call, and the agent updates."""
    first, best = None, np.inf
    for _ in range(repeats + 1):
        fl.simulate_grid(problems, methods, rounds=rounds, seeds=seeds, engine="cuda")
        timing = gpu.last.copy()
        first, best = first or timing, min(best, timing["kernels"])
    held = problems if isinstance(problems, list) else [problems]
    each = rounds if isinstance(rounds, list) else [rounds] * len(methods)
    updates = sum(p.n_agents * a.local_steps * T * seeds for p in held for a, T in zip(methods, each, strict=True))
    return best, first, float(updates)  # type: ignore[return-value]


def on_cpu(problem: fl.Problem, a: fl.SCAFFLSA, rounds: int, seeds: int) -> float:
    """Nanoseconds per agent update of a whole call."""
    fl.simulate(problem, a, rounds=1, seeds=seeds)
    begin = time.perf_counter()
    fl.simulate(problem, a, rounds=rounds, seeds=seeds)
    return (time.perf_counter() - begin) / (problem.n_agents * a.local_steps * rounds * seeds) * 1e9


def on_jax(problem: fl.Problem, a: fl.SCAFFLSA, rounds: int, seeds: int) -> float:
    """The same for JAX on the GPU; NaN where it is missing."""
    try:
        import jax
    except ImportError:
        return float("nan")
    jax.config.update("jax_enable_x64", True)
    loop = baselines.jax_loop(problem, float(a.step_size), a.local_steps)  # type: ignore[arg-type]
    loop(1, np.arange(seeds)).block_until_ready()
    begin = time.perf_counter()
    loop(rounds, np.arange(seeds)).block_until_ready()
    return (time.perf_counter() - begin) / (problem.n_agents * a.local_steps * rounds * seeds) * 1e9


def cases(quick: bool) -> list[tuple[str, fl.Problem, fl.SCAFFLSA, int, int, int]]:
    """name, problem, method, rounds, seeds, and the rounds that JAX does."""
    few = 20 if quick else 1
    many = fl.problems.garnet(agents=100_000 // few, perturbation=0)
    large = fl.problems.garnet(agents=100 // few, states=256, features=128, perturbation=0)
    usual, more = fl.problems.garnet(agents=100 // few), fl.problems.garnet(agents=1000 // few)
    return [
        ("N = 100, H = 1,000, 10 seeds", usual, fl.SCAFFLSA(0.1, 1000), 100 // few, 10, 2),
        ("one seed: N = 100, H = 1,000", usual, fl.SCAFFLSA(0.1, 1000), 500 // few, 1, 2),
        ("N = 1,000, H = 100, 10 seeds", more, fl.SCAFFLSA(0.1, 100), 200 // few, 10, 5),
        ("N = 100,000, H = 100, 10 seeds", many, fl.SCAFFLSA(0.1, 100), 20 // min(few, 10), 10, 2),
        ("one seed: N = 100,000, H = 100", many, fl.SCAFFLSA(0.1, 100), 40 // few, 1, 2),
        ("d = 128, N = 100, H = 100, 10 seeds", large, fl.SCAFFLSA(0.1, 100), 200 // few, 10, 5),
    ]


def report(quick: bool) -> str:
    seconds, first, updates = on_gpu(*paper(1000 if quick else STEPS), 10, 1 if quick else 4)
    lines = [
        f"The paper's main and appendix grids, {updates:.2g} agent updates in float64: **{seconds:.3f} s of kernel "
        f"time** (the first call {first['kernels']:.2f} s), {seconds / updates * 1e9:.4f} ns per update. Apart from "
        f"it: sending {first['sending']:.2f} s, compiling or loading kernels {first['compiling']:.1f} s, fetching "
        f"{first['fetching']:.2f} s.",
        "",
        "| SCAFFLSA, ns per agent update | GPU kernel | CPU, all cores | JAX, same GPU | CPU / GPU | JAX / GPU |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, problem, a, rounds, seeds, few in cases(quick):
        best, _, count = on_gpu(problem, [a], rounds, seeds, 1 if quick else 2)
        ours, cpu, jax = (best / count * 1e9, on_cpu(problem, a, rounds, seeds), on_jax(problem, a, few, seeds))
        ratios = f"{cpu / ours:,.0f}{TIMES} | {jax / ours:,.0f}{TIMES}"
        lines.append(f"| {name} | {ours:.3f} ns | {cpu:.2f} ns | {jax:.2f} ns | {ratios} |")
        print(lines[-1], flush=True)
    from numba import cuda

    name = cuda.get_current_device().name
    name = name.decode() if isinstance(name, bytes) else name
    return "\n".join([*lines, "", f"GPU: {name}. {machine.sentence(machine.describe())}"])


def main() -> None:
    documents.publish(documents.options(__doc__), "gpu", lambda chosen: report(chosen.quick))


if __name__ == "__main__":
    main()
