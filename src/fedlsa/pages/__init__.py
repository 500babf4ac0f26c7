"""What every page in a browser shares: scripts and styles under static/, for play, explorer, report and network."""

from importlib import resources

SCRIPTS = {  # by what a page draws, in the order in which it takes them
    "chart": ("axes.js", "chart.js"),
    "scene": ("axes.js", "canvas.js", "plane.js", "curves.js", "scene.js"),
}


def scripts(*wanted: str) -> dict[str, str]:
    """The scripts of a page by their names, in the order in which it takes them. wanted : "chart", "scene" """
    return {name: static_text(name) for what in wanted for name in SCRIPTS[what]}


def static_text(name: str) -> str:
    """The text of a file under static/."""
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")
