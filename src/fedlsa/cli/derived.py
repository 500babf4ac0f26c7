"""Options of commands are derived: types and defaults are those of the function they are for, words come from a table.

    RUN = Options(simulate_grid, {"Run": {"rounds": "Communications T.", "threads": "By default all cores."}})

    @takes({"Output": {"quiet": "No table."}}, run=RUN)
    def simulate(run: Given, quiet: bool = False) -> None:
        results = simulate_grid(problem, methods, **run.arguments)

The table names the options and the panel of the help in which each stands. A switch that is on unless told otherwise
becomes --no-NAME. The decorator also keeps which option set which argument, so that errors can say it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

MISSING = inspect.Parameter.empty
CONNECTIVES = {"and", "or", "alone", "together"}  # what an error may say between names of arguments


@dataclass(frozen=True)
class Option:
    """The words of an option, and how it is read where typer cannot do that by itself.

    flag : its name, if that is not --its-name; "--on/--off" are two, "--long -l" is one with a short form
    shown : the default in words; False for none. metavar : what stands for the value in the help
    kind : the type that is typed, if that is not the argument's; read : from the flag and that value to the argument
    positional : an argument without a flag; least : of a number
    """

    help: str
    flag: str = ""
    shown: str | bool = True
    metavar: str | None = None
    kind: Any = None
    read: Callable[[str, Any], Any] | None = None
    positional: bool = False
    least: float | None = None


Words = Mapping[str, str | Option]  # by the name of the argument
Table = Mapping[str, str | Option | Words]  # the same, or by the panel of the help in which they stand


@dataclass(frozen=True)
class Entry:
    """One option: the argument it sets, its flag, and the parameter that typer sees."""

    name: str
    flag: str
    parameter: inspect.Parameter
    read: Callable[[str, Any], Any] | None
    negated: bool


@dataclass(frozen=True)
class Options:
    """The options of a function or dataclass: those of its parameters that the table describes.

    defaults : where the command's differ from the function's; optional : none is needed, and what is left out is not
    passed on
    """

    function: Callable[..., Any]
    table: Table
    defaults: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False

    @functools.cached_property
    def entries(self) -> list[Entry]:
        """One for each option, in the order of the table."""
        known = inspect.signature(self.function, eval_str=True).parameters
        more = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY, default=None)  # of **settings
        found = []
        for panel, entry in self.table.items():
            alone = {panel: entry} if isinstance(entry, (str, Option)) else None
            for name, words in (alone or entry).items():  # type: ignore[union-attr]
                said = words if isinstance(words, Option) else Option(words)
                found.append(self._entry(known.get(name) or more(name), said, None if alone else panel))
        return found

    def _entry(self, argument: inspect.Parameter, words: Option, panel: str | None) -> Entry:
        default = self.defaults.get(argument.name, argument.default)
        kind, negated = words.kind or argument.annotation, False
        flags = (words.flag or "--" + argument.name.replace("_", "-")).split()
        if kind is bool and "/" not in flags[0]:
            negated = default is True
            flags = ["--no-" + argument.name] if negated and not words.flag else flags
            default = False
        elif kind is str and default is not None and default is not MISSING:
            default = str(default)
        elif kind == list[str] and isinstance(default, str) and not self.optional:
            default = [default]
        shown = words.shown if default is not None else isinstance(words.shown, str) and words.shown
        if self.optional and kind is not bool:
            usual = False if default in (None, MISSING) else str(default)
            shown, kind, default = words.shown if isinstance(words.shown, str) else usual, kind | None, None
        key = flags[0].split("/")[0].lstrip("-").replace("-", "_")
        about: Any = {"help": words.help, "show_default": shown, "rich_help_panel": panel, "metavar": words.metavar}
        about |= {} if words.least is None else {"min": words.least}
        said = typer.Argument(**about) if words.positional else typer.Option(*flags, **about)
        key = argument.name if words.positional else key
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameter = inspect.Parameter(key, keyword, default=default, annotation=Annotated[kind, said])
        return Entry(argument.name, flags[0], parameter, words.read, negated)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The function's arguments from the values that typer gives."""
        out: dict[str, Any] = {}
        for entry in self.entries:
            value = given[entry.parameter.name]
            if value is None and self.optional:
                continue
            if entry.read is not None and value is not None:
                value = entry.read(entry.flag, value)
            out[entry.name] = not value if entry.negated else value
        return out


@dataclass(frozen=True)
class Given:
    """What a command was given for a group of options; calling it calls their function."""

    options: Options
    values: Mapping[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """By name; reading them may raise an error about a value."""
        return self.options.arguments(self.values)

    @property
    def flags(self) -> dict[str, Any]:
        """The values that differ from what is meant without them, by flag."""
        entries = ((e.flag, self.values[e.parameter.name], e.parameter.default) for e in self.options.entries)
        return {flag: value for flag, value, default in entries if value != default and value is not None}

    def __call__(self) -> Any:
        return self.options.function(**self.arguments)


def takes(table: Table, **groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the command's own options by the table; each argument in `groups` by the options of a function."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True).parameters
        own = Options(command, table)
        by_name = {entry.name: entry for entry in own.entries}
        merged: dict[str, inspect.Parameter] = {}
        for name, parameter in signature.items():
            group = groups[name].entries if name in groups else [by_name[name]] if name in by_name else []
            through = [] if group else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]  # typer.Context
            for p in (*(e.parameter for e in group), *through):
                merged.setdefault(p.name, p)  # two groups may share an option

        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            passed = {name: given[name] for name in signature if name not in by_name and name not in groups}
            made = {
                name: Given(group, {e.parameter.name: given[e.parameter.name] for e in group.entries})
                for name, group in groups.items()
            }
            command(**passed, **made, **own.arguments(given))

        with_options.__signature__ = inspect.Signature(list(merged.values()))  # type: ignore[attr-defined]
        with_options.__annotations__ = {p.name: p.annotation for p in merged.values()}
        every = [entry for group in (own, *groups.values()) for entry in group.entries]
        vars(with_options)["flags"] = {e.name: e.flag.split("/")[0] for e in every if e.flag.startswith("--")}
        return with_options

    return decorate


def in_words_of(command: Any, message: str) -> str:
    """An error of the library whose arguments are named as the options that set them: step_size -> --step-size.

    Only what stands before "must" names arguments, and what follows "must be given".
    """
    flags: dict[str, str] = getattr(getattr(command, "callback", None), "flags", {})
    named, must, rest = message.partition(" must ")
    words = set(re.findall(r"[\w-]+", named)) - CONNECTIVES
    if not must or not words <= flags.keys():
        return message

    def flag(word: re.Match[str]) -> str:
        return flags.get(word[0], word[0])

    named = re.sub(r"\w+", flag, named)
    if rest.startswith("be given"):
        rest = re.sub(r"(?<![\w-])\w+", flag, rest)
    return named + must + rest
