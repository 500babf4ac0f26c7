"""The version that is installed."""

from importlib.metadata import version

__version__ = version("fedlsa")
