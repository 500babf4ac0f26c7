"""An event loop in a thread of its own, for servers whose callers are ordinary functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

MAX_SECONDS = 20.0  # in which a server must have begun or ended


class LoopThread:
    """Runs until `end`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still takes work."""
        return not self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine, which runs in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(MAX_SECONDS)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the loop, soon; nothing is done once the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def end(self) -> None:
        """Stop the loop and its thread."""
        self.call(self._loop.stop)
        self._thread.join(MAX_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
