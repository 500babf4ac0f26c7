"""A process that answers one question at a time and drops it when told to.

Work is dropped by raising an exception between two instructions of the main thread, so that no call has to ask whether
it is still wanted; messages therefore go out through a thread of their own, which nothing interrupts.
"""

from __future__ import annotations

import _thread
import os
import queue
import signal
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from ..errors import FedLSAError

LATER = 0.05  # seconds after which an interruption is tried again


class Dropped(KeyboardInterrupt):
    """The question is no longer of interest."""


@dataclass
class Bench:
    """What the threads of a worker share; `armed` is read and written by the main thread alone."""

    unwanted: set[int] = field(default_factory=set)
    current: int = -1
    armed: bool = False

    def stop(self, _: int, frame: FrameType | None) -> None:
        """Drop the question at hand, if it is one of those that are not wanted."""
        if not self.armed or self.current not in self.unwanted:
            return
        if _importing(frame):
            threading.Timer(LATER, _thread.interrupt_main).start()
            return
        self.armed = False
        raise Dropped


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded: one that is left half loaded would stay so for good."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def main(line: Connection, yielding: bool = False) -> None:
    """Answer until the line to the page's process is cut; yielding : let others, and the browser, go first."""
    if yielding and hasattr(os, "nice"):
        os.nice(10)
    bench, questions = Bench(), queue.SimpleQueue[tuple[int, Any, tuple[Any, ...]]]()
    answers = queue.SimpleQueue[tuple[int, str, Any]]()
    signal.signal(signal.SIGINT, bench.stop)
    threading.Thread(target=_listen, args=(line, bench, questions), daemon=True).start()
    threading.Thread(target=_speak, args=(line, answers), daemon=True).start()
    answers.put((-1, "ready", None))
    while True:
        number, function, arguments = questions.get()
        try:
            kind, value = _answer(bench, number, function, arguments, answers)
        except Dropped:  # while it was saying why it had failed
            kind, value = "dropped", None
        answers.put((number, kind, value))


def _answer(bench: Bench, number: int, function: Any, arguments: tuple[Any, ...], answers: Any) -> tuple[str, Any]:
    def tell(done: float, total: float) -> None:
        answers.put((number, "progress", (done, total)))

    try:
        bench.current, bench.armed = number, True
        if number in bench.unwanted:  # since before it began
            raise Dropped
        wants = "tell" in function.__code__.co_varnames[: function.__code__.co_argcount]
        found = function(*arguments, tell) if wants else function(*arguments)
        bench.armed = False
        return "done", found
    except Dropped:
        return "dropped", None
    except FedLSAError as error:
        return "failed", _line(error)
    except Exception as error:  # a fault of ours: the page says so and lives on
        return "failed", f"{type(error).__name__}: {_line(error)}"
    finally:
        bench.armed = False
        bench.unwanted.discard(number)


def _line(error: Exception) -> str:
    """What went wrong, on one line, and with letters that a browser can be sent: files may hold others."""
    return " ".join(str(error).encode("utf-8", "replace").decode().split())


def _listen(line: Connection, bench: Bench, questions: Any) -> None:
    while True:
        try:
            kind, number, *rest = line.recv()
        except (EOFError, OSError):
            os._exit(0)  # the page is gone
        if kind == "ask":
            questions.put((number, *rest))
        else:
            bench.unwanted.add(number)
            _thread.interrupt_main()  # runs Bench.stop in the main thread


def _speak(line: Connection, answers: Any) -> None:
    while True:
        message = answers.get()
        try:
            line.send(message)
        except OSError:
            os._exit(0)
        except Exception as error:  # an answer that cannot be sent must not keep the page waiting
            line.send((message[0], "failed", f"{type(error).__name__}: {_line(error)}"))
