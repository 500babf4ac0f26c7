"""The engine on an NVIDIA GPU (numba-cuda): the same recursion, random numbers and tables as on the CPU.

Nothing here is imported before it is asked for: a machine without a GPU, or without the extra, needs none of it.
"""

from __future__ import annotations

import functools

from ...errors import ArgumentError, MissingExtraError
from ...files import reason
from ..jobs import Job, JobOutcome
from ..progress import Progress

LEAST_UPDATES = 1e9  # of all agents: from here on a GPU beats starting one


@functools.cache
def why_not() -> str | None:
    """Why no GPU can be used here, in one line; None where one can."""
    from numba import config

    if config.ENABLE_CUDASIM:
        return None
    try:
        from numba import cuda
    except Exception as error:  # a broken driver can raise anything while its bindings are imported
        return f"numba-cuda cannot be loaded ({reason(error)}): pip install 'fedlsa[cuda]'"
    try:
        if cuda.is_available():
            return None
    except Exception as error:
        return f"the GPU's driver cannot be used ({reason(error)})"
    return "there is no NVIDIA GPU here that numba-cuda can use: pip install 'fedlsa[cuda]', or engine='cpu'"


def available() -> bool:
    """Whether a GPU can be used."""
    return why_not() is None


def takes(jobs: list[Job]) -> bool:
    """Whether there is a GPU that refuses none of these jobs for its dimension, its memory or its server step."""
    if not available():
        return False
    from . import gpu_launch

    if any(job.exchange is not None for job in jobs):  # which a processor does as quickly
        return False
    try:
        gpu_launch.parts(jobs)
    except ArgumentError:
        return False
    return True


def run_all(jobs: list[Job], report: Progress | None) -> list[JobOutcome]:
    """Bring all jobs to their end."""
    reason = why_not()
    if reason is not None:
        raise MissingExtraError(f"engine='cuda' needs a GPU: {reason}")
    from . import gpu_launch

    return gpu_launch.run_all(jobs, report)
