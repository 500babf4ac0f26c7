"""What a method or a sampling brings of its own: checked first, compiled once, its errors reported.

A server step and a rule work on float64 arrays. Divisions by zero give inf or NaN, as they do in NumPy. An exception
ends the run with an ArgumentError that names the round; on a GPU nothing can be raised, so what raises by itself is
refused there.
"""

from __future__ import annotations

import dis
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, cfunc, float64, int64, njit, none
from numba.extending import register_jitable
from numpy.typing import NDArray

from .. import checks
from ..algorithms import Algorithm, Exchange
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, Problem, Stream, to_normals
from ..problems.streams import DRAW
from ..sampling import Sampling
from .random import OBSERVATION, block, fill_uniforms
from .schedule import schedule
from .task_struct import KERNEL, pointer, stack

register_jitable(to_normals)  # for functions of streams
SERVER_STEP = "a plain function or staticmethod of (theta, mean, parameters) that Numba can compile"
RULE = "a plain function of (server, means, t, parameters) that Numba can compile"


def check_server_step(algorithm: Algorithm, theta: Floats) -> None:
    """Whether the server's step, where there is one, takes its three arguments (no self), runs and writes theta."""
    step, name = type(algorithm).server_step, type(algorithm).__name__
    if step is None:
        return
    if type(algorithm).server is not Algorithm.server:
        raise ArgumentError(f"server and server_step must not both be declared; got both of {name}")
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):
        raise ArgumentError(f"server_step of {name} must be {SERVER_STEP}; got {checks.show(step)}") from None
    try:
        signature.bind("theta", "mean", "parameters")
    except TypeError:
        raise ArgumentError(f"server_step of {name} must be {SERVER_STEP}; got one of {signature}") from None
    apply_server_step(algorithm, theta, theta.copy(), 1)
    if not any(_writes(algorithm, theta, theta + shift) for shift in (0.0, 1e-3, 1.0, 1e3)):
        raise ArgumentError(f"server_step of {name} must overwrite theta; got one that leaves it as it is")


def _writes(algorithm: Algorithm, theta: Floats, mean: Floats) -> bool:
    """Whether the step writes into theta: then it fails where that is read-only."""
    kept = theta.copy()
    kept.flags.writeable = False
    try:
        with np.errstate(all="ignore"):
            type(algorithm).server_step(kept, mean, parameters(algorithm))
    except Exception:
        return True
    return False


def apply_server_step(algorithm: Algorithm, theta: Floats, mean: Floats, t: int) -> Floats:
    """What the method's server step makes of the average in round t : (d,)."""
    theta, step = theta.copy(), type(algorithm).server_step
    returned = apply_own("server_step", algorithm, t, step, theta, mean, parameters(algorithm))
    if returned is not None:
        rule = f"server_step of {type(algorithm).__name__} must overwrite theta and return nothing"
        raise ArgumentError(f"{rule}; got {checks.show(returned)} back")
    return theta


def apply_own(name: str, algorithm: Algorithm, t: int, function: Callable[..., Any], *given: Any) -> Any:
    """What a method's own server step or rule returns in round t."""
    try:
        with np.errstate(all="ignore"):
            return function(*given)
    except Exception as error:  # a user's function
        raise failure(name, algorithm, t, f"{type(error).__name__}: {error}") from error


def failure(name: str, algorithm: Algorithm, t: int, what: str) -> ArgumentError:
    """The error of a server step or a rule that raised in round t."""
    return ArgumentError(f"{name} of {type(algorithm).__name__} must not raise; got in round {t} {what}")


def parameters(algorithm: Algorithm) -> Floats:
    """The third argument of the step; without one, the rows of a linear server and how change moves it."""
    if algorithm.server_step is None:
        return np.concatenate([np.ravel(each) for each in algorithm.server()])
    return np.array(algorithm.server_parameters(), np.float64)


def refuse_raising(name: str, algorithm: type[Algorithm], function: Any) -> None:
    """For engines in which nothing can be raised."""
    code = getattr(function, "__code__", None)
    if code is not None and any(i.opname == "RAISE_VARARGS" for i in dis.get_instructions(code)):
        raise ArgumentError(f"{name} of {algorithm.__name__} must not raise with engine='cuda'; got one that can")


# --- compiled ---------------------------------------------------------------------------------------------------------


def _kernel(
    function: Any, arguments: tuple[Any, ...], guard: Callable[[Any], Any], expected: str, returns: bool = False
) -> Any:
    """A user's function of such arguments, compiled, within what `guard` makes of it, for task_struct.invoke.

    returns : whether it gives a number; else it must overwrite what it is given, and what it returned would be lost
    """
    try:
        step = njit(error_model="numpy", boundscheck=True)(function)
        step.compile(arguments)
        (given,) = (each.signature.return_type for each in step.overloads.values())
        kernel = cfunc(KERNEL)(guard(step))
    except Exception as error:  # Numba raises many kinds for a function that it cannot compile
        raise ArgumentError(f"{expected}; got from Numba: {cause(error)}") from error
    if not returns and given != none:
        raise ArgumentError(f"{expected}, and must return nothing; got one that returns {given}")
    return kernel


def cause(error: Exception) -> str:
    """The line of an error of Numba that says why."""
    lines = [line.strip() for line in re.sub("\x1b\\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith("Failed in ")]  # which step of Numba's: not the cause
    return (causes or lines or [type(error).__name__])[0]


@register_jitable
def _note(failed, t):  # type: ignore[no-untyped-def]
    """Write the round in which a step raised, the first one, to an address."""
    first = carray(pointer(failed, int64), 1)
    if first[0] == 0:
        first[0] = t


@functools.cache
def compiled_hook(kind: type[Algorithm]) -> Any:
    """The method's server_step (address of theta, mean, parameters, failed; t, d, p); None where there is none."""

    def guard(step: Any) -> Any:
        def apply(theta, mean, given, failed, t, d, p, _):  # type: ignore[no-untyped-def]
            try:
                step(
                    carray(pointer(theta, float64), d),
                    carray(pointer(mean, float64), d),
                    carray(pointer(given, float64), p),
                )
            except Exception:
                _note(failed, t)

        return apply

    if kind.server_step is None:
        return None
    return _kernel(
        kind.server_step, (float64[::1],) * 3, guard, f"server_step of {kind.__name__} must be {SERVER_STEP}"
    )


@functools.cache
def compiled_rule(rule: Any) -> Any:
    """The rule of an exchange (address of the shared vectors, parameters, failed; t, k, n, d, p)."""

    def guard(step: Any) -> Any:
        def apply(shared, given, failed, t, k, n, d, p):  # type: ignore[no-untyped-def]
            vectors = carray(pointer(shared, float64), (k + n, d))
            try:
                step(vectors[:k], vectors[k:], t, carray(pointer(given, float64), p))
            except Exception:
                _note(failed, t)

        return apply

    return _kernel(rule, (float64[:, ::1], float64[:, ::1], int64, float64[::1]), guard, f"rule must be {RULE}")


def compiled_draw(z: Stream) -> Any:
    """The function of a stream as a kernel (address of u, stride, seed, agent, number); v and -y are a stride further.

    failed[0] becomes number + 1 of an observation for which it raises.
    """
    return _draw(z.draw, z.uniforms, z.dim)


@functools.cache
def _draw(function: Any, count: int, d: int) -> Any:
    failed = np.zeros(1, np.int64)
    note = failed.ctypes.data

    def guard(step: Any) -> Any:
        def draw(at, stride, seed, agent, number, _a, _b, _c):  # type: ignore[no-untyped-def]
            place, uniforms = pointer(at, float64), carray(stack(float64, count), count)
            u, v = carray(place, d), carray(pointer(at + 8 * stride, float64), d)
            fill_uniforms(seed, agent, number, uniforms)
            u[:], v[:] = 0.0, 0.0
            try:
                place[2 * stride] = -step(agent, uniforms, u, v)
            except Exception:
                pointer(note, int64)[0] = number + 1

        return draw

    kernel = _kernel(function, (int64, float64[::1], float64[::1], float64[::1]), guard, f"draw must be {DRAW}", True)
    kernel.failed = failed
    return kernel


@functools.cache
def compiled_order(order: Any) -> Any:
    """The order as a kernel (address of place, length, seed, agent, number); None where there is none.

    place[1:] becomes the rows of a pass and place[0] its number + 1, or minus that where the order raises or gives what
    is no row. Its words are those of the pass's observations.
    """

    def guard(step: Any) -> Any:
        def fill(at, length, seed, agent, number, _a, _b, _c):  # type: ignore[no-untyped-def]
            place, words = carray(pointer(at, int64), length + 1), np.empty(length, np.int64)
            rows, sound, first = place[1:], place[0] >= 0, number * length  # what has failed is not forgotten
            x = block(seed, agent, OBSERVATION, first // 4)
            for k in range(length):
                if (first + k) % 4 == 0:
                    x = block(seed, agent, OBSERVATION, (first + k) // 4)
                rows[k], words[k] = k, x[(first + k) % 4]
            try:
                step(rows, words)
            except Exception:
                sound = False
            for k in range(length):
                if not 0 <= rows[k] < length:
                    rows[k], sound = 0, False
            place[0] = number + 1 if sound else -1 - number

        return fill

    if order is None:
        return None
    name = getattr(order, "__qualname__", order)
    expected = f"order, {name}, must be a static function (rows, words) that Numba can compile"
    return _kernel(order, (int64[::1],) * 2, guard, expected)


def draw_pass(sampling: Sampling, seed: int, agent: int, number: int, length: int) -> NDArray[np.int64]:
    """(length,): the rows of a table in the order of a pass."""
    place = np.zeros(length + 1, np.int64)
    key = int(np.uint64(seed).astype(np.int64))
    compiled_order(sampling.order).ctypes(place.ctypes.data, length, key, agent, number, 0, 0, 0)
    if place[0] < 0:
        raise bad_order(sampling, f"pass {number} of agent {agent}")
    return place[1:]


def check_draws(z: Any) -> None:
    """Raise what the compiled function of a stream raised."""
    if isinstance(z, Stream) and (failed := compiled_draw(z).failed).any():
        number, failed[0] = failed[0], 0
        raise ArgumentError(f"draw must not raise; got an exception in observation {number - 1} of an agent")


def bad_order(sampling: Sampling, where: str) -> ArgumentError:
    """The error of an order that raised, or gave what is no row."""
    rule = f"order of {type(sampling).__name__} must give numbers of rows, below their length, and not raise"
    return ArgumentError(f"{rule}; got another in {where}")


# --- the exchange of a method -----------------------------------------------------------------------------------------


def first_exchange(algorithm: Algorithm, sampling: Sampling, problem: Problem, dtype: str) -> Exchange | None:
    """The exchange of the first round of a method, checked; None where its rounds are not declared as one."""
    own, N = type(algorithm), problem.n_agents
    if own.exchange is Algorithm.exchange:
        return None
    plan = schedule(algorithm, sampling, 0, 1, N)
    exchange = algorithm.checked_exchange(plan.step_sizes[0], plan.updates[0], N, problem.dim)
    for name in ("server", "server_step"):
        if getattr(own, name) is not getattr(Algorithm, name):
            raise ArgumentError(f"exchange and {name} must not both be declared; got both of {own.__name__}")
    if dtype != "float64":
        raise ArgumentError(f"dtype must be 'float64' for {own.__name__}, which declares an exchange; got {dtype!r}")
    if exchange.table is not None:
        problem.observations.factors(slice(0, 0))  # a stream has none
    return exchange


def begin_memory(exchange: Exchange, problem: Problem, theta: Floats, xi: Floats) -> Floats:
    """(S, k - 1 + N (l - 1) + rows, d): what the server remembers, then what each agent does, at the start.

    Then, one number after the other, what the rows of tables last gave. theta : (S, d); xi : (S, N, d)
    """
    S, N, d = xi.shape
    known = {"theta": theta[:, None], "xi": xi}
    shared = [combine(exchange.begin.get(name, {}), known, (S, 1, d)) for name in exchange.server]
    own = [combine(exchange.begin.get(name, {}), known, (S, N, d)) for name in exchange.agent]
    of_agents = [np.stack(own, 2).reshape(S, -1, d)] if own else []
    rows = 0 if exchange.table is None else rows_remembered(problem)[1]
    checks.memory("seeds", S, 16 * rows * d, "what the rows of all agents' tables last gave")
    return np.concatenate([np.empty((S, 0, d)), *shared, *of_agents, np.zeros((S, rows, d))], 1)


def rows_remembered(problem: Problem) -> tuple[NDArray[np.int64], int]:
    """Of what each row of each agent's table last gave, the place of row 0, and how many vectors of d hold it all.

    It is one number where observations are of rank one, d where they are dense; row z stands as many times z later.
    """
    each = problem.dim if isinstance(problem.observations, Dense) else 1
    table = problem.assignment
    sizes = each * np.diff(problem.first)[table]
    return np.cumsum(sizes) - sizes - each * problem.first[table], -(-int(sizes.sum()) // problem.dim)


def combine(row: Any, known: dict[str, Floats], shape: tuple[int, ...]) -> Floats:
    """A row of the vectors that are known by name."""
    out = np.zeros(shape)
    for name, factor in row.items():
        out = out + np.asarray(factor) * known[name]
    return out
