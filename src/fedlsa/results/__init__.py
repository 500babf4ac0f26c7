"""What came out: labelled datasets over (seed, round), saved, loaded, run again and summed up."""

from .dataset import assemble, method_label, recorded_rounds
from .files import load, save
from .recipe import arguments, problem_text
from .summary import summary, table

__all__ = [
    "arguments",
    "assemble",
    "load",
    "method_label",
    "problem_text",
    "recorded_rounds",
    "save",
    "summary",
    "table",
]
