"""Prometheus' text format (version 0.0.4), written by hand: a name, a kind, a sentence, and samples with labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class MetricFamily(NamedTuple):
    """One family; samples : (labels, value)."""

    name: str
    kind: str
    text: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def gauge(name: str, text: str, value: float | None, labels: Mapping[str, str] | None = None) -> MetricFamily:
    """A family of one sample; without a value, of none."""
    return MetricFamily(name, "gauge", text, [] if value is None else [(labels or {}, float(value))])


def exposition(metrics: Iterable[MetricFamily]) -> str:
    """The families as a monitor reads them; those without samples are left out."""
    lines = []
    for metric in metrics:
        if not metric.samples:
            continue
        text = metric.text.replace("\\", "\\\\").replace("\n", "\\n")
        lines += [f"# HELP {metric.name} {text}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            inside = ",".join(f'{name}="{_escaped(label)}"' for name, label in labels.items())
            lines.append(f"{metric.name}{{{inside}}} {value!r}" if inside else f"{metric.name} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
