"""What came out: labelled datasets over (seed, round), saved, loaded, run again, combined and summed up."""

from .curves import save_curves
from .dataset import assemble, method_label, recorded_rounds
from .files import load, save
from .recipe import arguments, problem_text
from .romberg import richardson_romberg
from .summary import summary, table

__all__ = [
    "arguments",
    "assemble",
    "load",
    "method_label",
    "problem_text",
    "recorded_rounds",
    "richardson_romberg",
    "save",
    "save_curves",
    "summary",
    "table",
]
