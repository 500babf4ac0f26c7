"""What a site keeps of a run.

<site's folder>/state/EXPERIMENT.json   what the run is: its terms, the run's coordinates, the sites' weights
<site's folder>/state/EXPERIMENT.npz    the control variate and the last answer (client.py)
<site's folder>/results/EXPERIMENT.json the estimate, when the run is over
<site's folder>/draws.secret            the site's own randomness
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import NetworkError, ResultFileError
from ..disk import check_secret, create, load_state, read_json, save_state, write_json
from ..folder.config import SiteFolder
from ..protocol.client import ClientState

SECRET_BYTES = 32


@dataclass(frozen=True)
class RunFiles:
    """The files of a site's runs; a folder that was lost is made again."""

    site: SiteFolder
    say: Callable[[str], None]
    latest: dict[tuple[str, int, int], ClientState] = field(default_factory=dict)  # one, as of a file as it was written

    def _path(self, experiment: str, kind: str) -> Path:
        self.site.state.mkdir(exist_ok=True, mode=0o700)
        return self.site.state / f"{experiment}.{kind}"

    def note(self, experiment: str) -> dict[str, Any] | None:
        """What the site has been told of a run; a damaged note is none."""
        try:
            return read_json(self._path(experiment, "json"))
        except ValueError:
            return None

    def remember(self, experiment: str, note: dict[str, Any]) -> None:
        """Write the note."""
        write_json(self._path(experiment, "json"), note, "a site's note")

    def state(self, experiment: str) -> ClientState | None:
        """The stored state; a damaged one is put aside, and the site begins again as one that forgot."""
        path = self._path(experiment, "npz")
        key = _key(path)
        if key in self.latest:
            return self.latest[key]
        try:
            arrays = load_state(path)
        except ResultFileError as error:
            os.replace(path, path.with_suffix(".damaged"))
            self.say(str(error))
            return None
        return None if arrays is None else ClientState.from_arrays(arrays)

    def store(self, experiment: str, old: ClientState | None, new: ClientState | None) -> None:
        """Write a state that has changed, to the disk."""
        if new is not None and new is not old:
            path = self._path(experiment, "npz")
            save_state(path, new.arrays())
            self.latest.clear()
            self.latest[_key(path)] = new

    def forget(self, experiment: str) -> None:
        """Remove the state of a run, for another one of the same name."""
        self._path(experiment, "npz").unlink(missing_ok=True)

    def write_result(self, experiment: str, content: dict[str, Any]) -> None:
        """Write the estimate of a run."""
        self.site.results.mkdir(exist_ok=True)
        write_json(self.site.results / f"{experiment}.json", content, "a result")

    def draws_secret(self) -> bytes:
        """The secret from which the site draws its rows; made at first, of mode 600."""
        path = self.site.folder / "draws.secret"
        if not path.exists():
            create(path, secrets.token_bytes(SECRET_BYTES), secret=True)
        content = check_secret(path, "the site's secret for draws").read_bytes()
        if len(content) != SECRET_BYTES:
            raise NetworkError(f"the site's secret for draws {path} is damaged; remove it, and a new one is made")
        return content


def _key(path: Path) -> tuple[str, int, int]:
    """What tells a file from another of the same name: files are replaced, never changed."""
    try:
        there = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), there.st_ino, there.st_mtime_ns
