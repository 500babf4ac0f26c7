"""A site's answers: an order comes in, an answer goes out. What must not be forgotten is on the disk before that.

    <site's folder>/state/EXPERIMENT.json   what the run is: how uploads are coded, the run's coordinates
    <site's folder>/state/EXPERIMENT.npz    the control variate and the last answer (client.py)
    <site's folder>/results/EXPERIMENT.json the estimate, when the run is over

A site does what four orders say and nothing else: no code comes over the wire, and a run about another task than the
one the site agreed to when it joined is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.local import Means, Rows
from ...errors import FedLSAError, MessageError, ResultFileError
from ...fit.observe import FeatureScale
from ...fit.tasks import Task
from ..disk import load_state, read_json, save_state, write_json
from ..folder.config import task_text
from ..protocol.client import ClientState, client_finish, client_step
from ..protocol.coding import Coding
from ..protocol.messages import Describe, Finish, Finished, Measure, Refusal, Work, read
from ..protocol.privacy import promise
from ..protocol.records import Message, Record
from ..protocol.run_settings import LOCAL, plain_name
from .facts import describe, leaves, measure
from .site_data import SiteData, prepare_steps


def run_terms(task: Task, coding: Coding, local: str, token: str = "") -> str:
    """What Describe says of a run (JSON): the task, how uploads are coded, what local steps read.

    token : tells the run from an earlier one of the same name
    """
    terms = {"task": task_text(task), "coding": asdict(coding), "local": local, "token": token}
    return json.dumps(terms, sort_keys=True)


class OrderHandler:
    """Answers one record at a time."""

    def __init__(
        self,
        name: str,
        folder: Path,
        data: SiteData,
        task: Task,
        share_moments: bool = False,
        least_noise: float | None = None,
    ) -> None:
        """least_noise : the site refuses runs whose privacy noise, in units of their clip, is below it."""
        self.name, self.folder, self.data, self.task, self.share_moments = name, folder, data, task, share_moments
        self.least_noise = least_noise
        self.said: dict[bytes, Message] = {}  # answers before the first round, which each take a pass over the data
        self.secret = np.random.default_rng(int.from_bytes(os.urandom(32), "big"))  # of privacy noise; never stored
        self.local: dict[str, Rows | Means] = {}

    def answer(self, record: Record) -> Record:
        """The answer; an order that cannot be followed is answered with a refusal that says why."""
        message: Message | None = None
        try:
            message = read(record)
            plain_name("experiment", message.experiment)  # it becomes a file's name
            match message:
                case Describe() | Measure():
                    return self._once(message).record()
                case Work():
                    return self._work(message).record()
                case Finish():
                    return self._finish(message).record()
            raise MessageError(f"a site answers orders; got a {message.KIND}")
        except (FedLSAError, OSError, ValueError) as error:
            reason = "other" if message is None or isinstance(error, MessageError) else "data"
            round_ = message.round if isinstance(message, Work) else 0
            generation = message.generation if isinstance(message, Work | Finish) else 0
            name = message.experiment if message is not None else ""
            return Refusal(name, generation, round_, reason, str(error)[:500]).record()

    def _once(self, message: Describe | Measure) -> Message:
        """An order that is sent again while the data are being read is answered from memory."""
        record = message.record()
        key = repr((record.kind, sorted(record.meta.items()))).encode()
        key += b"".join(name.encode() + record.arrays[name].tobytes() for name in sorted(record.arrays))
        if key not in self.said or not self._path(message.experiment, "json").exists():
            found = self._describe(message) if isinstance(message, Describe) else self._measure(message)
            self.said = dict([*self.said.items(), (key, found)][-4:])
        return self.said[key]

    def _describe(self, message: Describe) -> Message:
        said = json.loads(message.task)
        if not isinstance(said, dict) or said.get("task") != task_text(self.task):
            raise MessageError("the run must be about the task that this site was sent when it joined; it is not")
        if said.get("local") not in LOCAL:
            raise MessageError("the run must say whether local steps read rows or means")
        coding = Coding(**said["coding"])
        if self.least_noise is not None and (coding.noise or 0.0) < self.least_noise:
            raise MessageError(f"this site takes part only with noise of at least {self.least_noise:g} times the clip")
        known = read_json(self._path(message.experiment, "json"))
        found = describe(self.data.opened, self.task, message.experiment)
        if known is None or known["said"] != said:  # a new run, or another one under an old name
            self._path(message.experiment, "npz").unlink(missing_ok=True)
            self._remember(message.experiment, {"said": said, "scale": None})
            names = json.loads(found.names)
            for line in leaves(self.task, len(names), self.share_moments, coding, names):
                print(f"{message.experiment}: {line}", flush=True)
        return found

    def _measure(self, message: Measure) -> Message:
        known = self._known(message.experiment)
        scale = FeatureScale(message.centre, message.spread, message.y_centre, message.y_spread, message.intercept)
        known["scale"] = scale_to_json(scale)
        self._remember(message.experiment, known)
        self.local.pop(message.experiment, None)
        self._steps(message.experiment, known)  # rows are made ready now, not in the first round
        shared = self.share_moments and message.moments
        return measure(self.data.opened, self.task, scale, message.experiment, share_moments=shared)

    def _work(self, message: Work) -> Message:
        known = self._known(message.experiment)
        if known["scale"] is None:
            raise FedLSAError("this site does not know the run's coordinates")
        state = self._state(message.experiment)
        coding = Coding(**known["said"]["coding"])
        new, answer = client_step(state, message, self._steps(message.experiment, known), coding, self.secret)
        self._store(message.experiment, state, new)  # on the disk before the answer leaves
        return answer

    def _finish(self, message: Finish) -> Message:
        known = self._known(message.experiment)
        state = self._state(message.experiment)
        new = client_finish(state, message)
        self._store(message.experiment, state, new)
        out: dict[str, Any] = {"names": json.loads(message.names), "theta": message.theta.tolist()}
        if known["scale"] is not None:
            T, t = scale_from_json(known["scale"]).original()
            out["coefficients"] = (T @ message.theta + t).tolist()
        coding = Coding(**known["said"]["coding"])
        if coding.noise is not None and new is not None:
            out["privacy"] = promise(coding.noise, new.releases)
        results = self.folder / "results"
        results.mkdir(exist_ok=True)
        write_json(results / f"{message.experiment}.json", out, "a result")
        return Finished(message.experiment)

    def _steps(self, experiment: str, known: dict[str, Any]) -> Rows | Means:
        if experiment not in self.local:
            scale = scale_from_json(known["scale"])
            self.local = {experiment: prepare_steps(self.data, self.task, scale, self.folder, known["said"]["local"])}
        return self.local[experiment]

    def _path(self, experiment: str, kind: str) -> Path:
        (self.folder / "state").mkdir(exist_ok=True, mode=0o700)
        return self.folder / "state" / f"{experiment}.{kind}"

    def _state(self, experiment: str) -> ClientState | None:
        """The stored state; a damaged one is put aside, and the site begins again as one that forgot."""
        path = self._path(experiment, "npz")
        try:
            arrays = load_state(path)
        except ResultFileError as error:
            os.replace(path, path.with_suffix(".damaged"))
            print(error, flush=True)
            return None
        return None if arrays is None else ClientState.from_arrays(arrays)

    def _store(self, experiment: str, old: ClientState | None, new: ClientState | None) -> None:
        if new is not None and new is not old:
            save_state(self._path(experiment, "npz"), new.arrays())

    def _known(self, experiment: str) -> dict[str, Any]:
        """What this site has been told of a run."""
        known = read_json(self._path(experiment, "json"))
        if known is None:
            raise FedLSAError(f"this site does not know the run {experiment}")
        return known

    def _remember(self, experiment: str, known: dict[str, Any]) -> None:
        write_json(self._path(experiment, "json"), known, "a site's note")


def scale_to_json(scale: FeatureScale) -> dict[str, Any]:
    """A scale as JSON holds it, to the last bit."""
    return {k: np.asarray(v).tolist() for k, v in asdict(scale).items()}


def scale_from_json(content: Mapping[str, Any]) -> FeatureScale:
    """The scale that `scale_to_json` wrote."""
    values: dict[str, Any] = {k: np.array(v, np.float64) if isinstance(v, list) else v for k, v in content.items()}
    return FeatureScale(**values)
