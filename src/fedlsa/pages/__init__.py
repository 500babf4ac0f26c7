"""What every page in a browser shares: scripts and styles under static/, for play, explorer, report and network."""

from importlib import resources


def static_text(name: str) -> str:
    """The text of a file under static/."""
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")
