"""Compiled functions on disk: Numba's cache, which starts afresh where its files are damaged or cannot be written.

Numba looks for a change only in the file of the function that it caches, not in the files of those that it calls. So
the sources of all of them are part of the key: code that was compiled from others is not found.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from numba import njit
from numba.core import serialize
from numba.core.caching import CompileResultCacheImpl, FunctionCache

# of the engine: every file with functions that cached functions of other files call
CALLED = ("random.py", "task_struct.py", "vectors.py", "exchange_kernel.py", "cuda/gpu_steps.py", "cuda/gpu_threads.py")


@functools.cache
def digest(names: tuple[str, ...] = CALLED) -> str:
    """The sha256 of files of the engine."""
    total = hashlib.sha256()
    for name in names:
        total.update(files(f"{__package__}.engine").joinpath(name).read_bytes() + b"\0")
    return total.hexdigest()


class _StartsAfresh:
    """What any cache of Numba does about files that it cannot use: it forgets them, and functions are compiled anew."""

    def _index_key(self: Any, *signature: Any) -> Any:
        return *super()._index_key(*signature), digest()  # type: ignore[misc]

    def load_overload(self: Any, *key: Any) -> Any:
        try:
            return super().load_overload(*key)  # type: ignore[misc]
        except Exception:  # whatever comes of reading what a power cut, or a full disk, has left
            try:
                self.flush()
            except OSError:
                self.disable()
            return None

    def save_overload(self: Any, *entry: Any) -> None:
        with contextlib.suppress(OSError):  # a full disk: this process has its code
            super().save_overload(*entry)  # type: ignore[misc]


class _CheckedCode(CompileResultCacheImpl):
    """Machine code, and all that belongs to it, with a digest: damaged, it would be read without complaint, and run."""

    def reduce(self, result: Any) -> Any:
        content = serialize.dumps(super().reduce(result))
        return hashlib.sha256(content).hexdigest(), content

    def rebuild(self, context: Any, stored: Any) -> Any:
        digest, content = stored
        if digest != hashlib.sha256(content).hexdigest():
            raise ValueError("the machine code is damaged")
        return super().rebuild(context, serialize.loads(content))


class _KernelCache(_StartsAfresh, FunctionCache):
    _impl_class = _CheckedCode


def cached(kernel: Any, function: Callable[..., Any]) -> Any:
    """The same kernel of Numba, from now on with a cache on disk, if there is a place for one."""
    with contextlib.suppress(RuntimeError):
        kernel._cache = _KernelCache(function)
    return kernel


def cached_on_gpu(kernel: Any) -> Any:
    """The same for a kernel of numba-cuda, whose caches have another class."""
    with contextlib.suppress(RuntimeError):
        kernel.enable_caching()
        kernel._cache.__class__ = type("GPUKernelCache", (_StartsAfresh, type(kernel._cache)), {})
    return kernel


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """The decorator of a function that Numba compiles when it is first called, or finds on disk."""
    return lambda function: cached(njit(**options)(function), function)
