"""A method's own server step and a sampling's own order: checked first, compiled once, their errors reported.

A step works on float64 arrays. Divisions by zero give inf or NaN, as they do in NumPy. An exception ends the run with
an ArgumentError that names the round; on a GPU nothing can be raised, so a step that raises by itself is refused there.
"""

from __future__ import annotations

import dis
import functools
import inspect
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types
from numpy.typing import NDArray

from .. import checks
from ..algorithms import Algorithm
from ..checks import Floats
from ..errors import ArgumentError
from ..sampling import Sampling
from .random import OBSERVATION, block
from .task_struct import HOOK, KERNEL, pointer

SERVER_STEP = "a plain function or staticmethod of (theta, mean, parameters) that Numba can compile"


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
    theta = theta.copy()
    try:
        with np.errstate(all="ignore"):
            returned = type(algorithm).server_step(theta, mean, parameters(algorithm))
    except Exception as error:  # a user's function
        raise failure(algorithm, t, f"{type(error).__name__}: {error}") from error
    if returned is not None:
        rule = f"server_step of {type(algorithm).__name__} must overwrite theta and return nothing"
        raise ArgumentError(f"{rule}; got {checks.show(returned)} back")
    return theta


def failure(algorithm: Algorithm, t: int, what: str) -> ArgumentError:
    """The error of a step that raised in round t."""
    return ArgumentError(f"server_step of {type(algorithm).__name__} must not raise; got in round {t} {what}")


def parameters(algorithm: Algorithm) -> Floats:
    """The third argument of the step; without one, the rows of a linear server and how change moves it."""
    if algorithm.server_step is None:
        return np.concatenate([np.ravel(each) for each in algorithm.server()])
    return np.array(algorithm.server_parameters(), np.float64)


def refuse_raising(kind: type[Algorithm]) -> None:
    """For engines in which nothing can be raised."""
    code = getattr(kind.server_step, "__code__", None)
    if code is not None and any(i.opname == "RAISE_VARARGS" for i in dis.get_instructions(code)):
        raise ArgumentError(f"server_step of {kind.__name__} must not raise with engine='cuda'; got one that can")


@functools.cache
def compiled_hook(kind: type[Algorithm]) -> Any:
    """The method's server_step for task_struct.invoke_hook: 0, or 1 where it raised; None where there is none."""
    if kind.server_step is None:
        return None
    vector = types.Array(types.float64, 1, "C")
    step = njit(error_model="numpy", boundscheck=True)(kind.server_step)

    def guarded(theta, mean, parameters, n, m):  # type: ignore[no-untyped-def]
        try:
            step(carray(theta, n), carray(mean, n), carray(parameters, m))
        except Exception:
            return 1
        return 0

    try:
        step.compile((vector, vector, vector))
        return cfunc(HOOK)(guarded)
    except Exception as error:  # Numba raises many kinds for a function that it cannot compile
        rule = f"server_step of {kind.__name__} must be {SERVER_STEP}"
        raise ArgumentError(f"{rule}; got from Numba: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """The line of an error of Numba that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith("Failed in ")]  # which step of Numba's: not the cause
    return (causes or lines or [type(error).__name__])[0]


def apply_rule(algorithm: Algorithm, rule: Any, server: Floats, means: Floats, t: int, given: Floats) -> None:
    """Let the rule of an exchange overwrite the server's vectors in round t : (k, d)."""
    try:
        with np.errstate(all="ignore"):
            rule(server, means, t, given)
    except Exception as error:  # a user's function
        raise rule_failure(algorithm, t, f"{type(error).__name__}: {error}") from error


def rule_failure(algorithm: Algorithm, t: int, what: str) -> ArgumentError:
    """The error of a rule that raised in round t."""
    return ArgumentError(f"rule of {type(algorithm).__name__} must not raise; got in round {t} {what}")


@functools.cache
def compiled_rule(rule: Any) -> Any:
    """The rule of an exchange for task_struct.invoke; where it raises, it writes the round."""
    matrix, vector = types.Array(types.float64, 2, "C"), types.Array(types.float64, 1, "C")
    float64, int64 = types.float64, types.int64

    def guarded(shared, given, failed, t, k, n, d, p):  # type: ignore[no-untyped-def]
        vectors = carray(pointer(shared, float64), (k + n, d))
        try:
            step(vectors[:k], vectors[k:], t, carray(pointer(given, float64), p))
        except Exception:
            carray(pointer(failed, int64), 1)[0] = t

    try:
        step = njit(error_model="numpy", boundscheck=True)(rule)
        step.compile((matrix, matrix, types.int64, vector))
        return cfunc(KERNEL)(guarded)
    except Exception as error:  # as above
        expected = "rule must be a plain function of (server, means, t, parameters) that Numba can compile"
        raise ArgumentError(f"{expected}; got from Numba: {_cause(error)}") from error


# --- a sampling's own order -------------------------------------------------------------------------------------------


@functools.cache
def compiled_order(order: Any) -> Any:
    """The order as a kernel (address of place, length, seed, agent, number); None where there is none.

    place[1:] becomes the rows of a pass and place[0] its number + 1, or minus that where the order raises or gives what
    is no row. Its words are those of the pass's observations.
    """
    if order is None:
        return None
    compiled = njit(error_model="numpy", boundscheck=True)(order)

    def fill(at, length, seed, agent, number, _a, _b, _c):  # type: ignore[no-untyped-def]
        place, words = carray(pointer(at, types.int64), length + 1), np.empty(length, np.int64)
        rows, sound, first = place[1:], place[0] >= 0, number * length  # what has failed is not forgotten
        x = block(seed, agent, OBSERVATION, first // 4)
        for k in range(length):
            if (first + k) % 4 == 0:
                x = block(seed, agent, OBSERVATION, (first + k) // 4)
            rows[k], words[k] = k, x[(first + k) % 4]
        try:
            compiled(rows, words)
        except Exception:
            sound = False
        for k in range(length):
            if not 0 <= rows[k] < length:
                rows[k], sound = 0, False
        place[0] = number + 1 if sound else -1 - number

    try:
        compiled.compile((types.Array(types.int64, 1, "C"),) * 2)
        return cfunc(KERNEL)(fill)
    except Exception as error:
        rule = f"order, {order.__qualname__}, must be a static function (rows, words) that Numba can compile"
        raise ArgumentError(f"{rule}; got from Numba: {_cause(error)}") from error


def draw_pass(sampling: Sampling, seed: int, agent: int, number: int, length: int) -> NDArray[np.int64]:
    """(length,): the rows of a table in the order of a pass."""
    place = np.zeros(length + 1, np.int64)
    key = int(np.uint64(seed).astype(np.int64))
    compiled_order(sampling.order).ctypes(place.ctypes.data, length, key, agent, number, 0, 0, 0)
    if place[0] < 0:
        raise bad_order(sampling, f"pass {number} of agent {agent}")
    return place[1:]


def bad_order(sampling: Sampling, where: str) -> ArgumentError:
    """The error of an order that raised, or gave what is no row."""
    rule = f"order of {type(sampling).__name__} must give numbers of rows, below their length, and not raise"
    return ArgumentError(f"{rule}; got another in {where}")
