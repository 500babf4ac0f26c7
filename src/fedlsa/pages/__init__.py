"""What every page in a browser shares: scripts and styles under static/, for play, explorer, report and network."""

from importlib import resources

COLOURS = "colours.css"  # the first style of every page
SCRIPTS = {  # by what a page draws, in the order in which it takes them
    "numbers": ("axes.js",),
    "chart": ("axes.js", "chart.js"),
    "report": ("axes.js", "chart.js", "report.js"),
    "scene": ("axes.js", "canvas.js", "plane.js", "curves.js", "scene.js"),
}


def scripts(*wanted: str) -> dict[str, str]:
    """The scripts of a page by their names, in the order in which it takes them. wanted : of SCRIPTS"""
    return {name: static_text(name) for what in wanted for name in SCRIPTS[what]}


def static_text(name: str, package: str = __package__) -> str:
    """The text of a file under static/ of a package, by default of this one."""
    return resources.files(package).joinpath("static", name).read_text(encoding="utf-8")
