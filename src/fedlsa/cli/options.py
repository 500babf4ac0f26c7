"""Options of commands are derived: types and defaults are those of the function they are for, words come from a table.

    RUN = Options(simulate, {"Run": {"rounds": "Communications T.", "threads": "By default all cores."}})

    @takes(run=RUN)
    def simulate(run: Given, quiet: bool = switch("--quiet", "No table.")) -> None:
        results = simulate_grid(problem, methods, **run.arguments)

The table names the options and the panel of the help in which each stands. A switch that is on unless told otherwise
becomes --no-NAME. The decorator also keeps which option set which argument, so that errors can say it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, FedLSAError, UnknownNameError

MISSING, KEYWORD = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
CONNECTIVES = {"and", "or", "alone", "together"}  # what an error may say between names of arguments
Function = TypeVar("Function", bound=Callable[..., Any])
Reader = Callable[[str, Any], Any]  # from the flag and the value that typer gives to the argument


class Command(TyperCommand):
    """A command that takes each option once, unless it is a list, and whose errors name options, not arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left; an option that is given again is an error: typer would keep the last."""
        given, rest = list(args), super().parse_args(ctx, args)
        again = Counter(p for p in self.make_parser(ctx).parse_args(given)[2] if p.param_type_name == "option")
        for parameter, times in again.items():
            if times > 1 and not getattr(parameter, "multiple", False):
                flags = "/".join((*parameter.opts, *parameter.secondary_opts))
                raise ArgumentError(f"{flags} must be given once; got it {times} times")
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run it; an error of the library in the words of the command line."""
        try:
            return super().invoke(ctx)
        except FedLSAError as error:
            raise FedLSAError(in_words_of(self, str(error))) from error


class CommandGroup(TyperGroup):
    """A group of commands; one that it does not have is answered with the nearest that it has."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name."""
        if cmd_name not in self.commands and not ctx.resilient_parsing:
            raise UnknownNameError(f"there is no command {cmd_name!r}{checks.did_you_mean(cmd_name, self.commands)}")
        return super().get_command(ctx, cmd_name)


class App(typer.Typer):
    """Commands in one place, whose help is written with rich's markup."""

    def __init__(self, cls: type[CommandGroup] = CommandGroup, **more: Any) -> None:
        super().__init__(cls=cls, rich_markup_mode="rich", **more)

    def command(
        self, name: str | None = None, *, examples: Iterable[str] = (), **more: Any
    ) -> Callable[[Function], Function]:
        """A decorator: the function becomes a command; examples : command lines that end its help."""
        if examples:
            more["epilog"] = "\n\n".join(["[bold]Examples[/bold]", *examples])
        return super().command(name, cls=Command, **more)


def named(help: str, names: Iterable[str]) -> dict[str, Any]:
    """The words of an option whose value is one of `names`: the help lists them, shells complete them."""
    known = tuple(names)
    if not known:
        return {"help": help}

    def check(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
        flag = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
        for name in value if isinstance(value, list) else [value]:
            if name is not None and not context.resilient_parsing:
                checks.choice(str(flag), name.partition("(")[0], known)  # in brackets stand its settings
        return value

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    if not all(re.search(rf"\b{re.escape(name)}\b", help) for name in known):
        help += f" One of {', '.join(known)}."
    return {"help": help, "autocompletion": complete, "callback": check}


def option(
    help: str,
    default: Any = None,
    panel: str | None = None,
    *flags: str,
    shown: bool | str = True,
    names: Iterable[str] = (),
    **more: Any,
) -> Any:
    """An option that is a command's own; shown : the default in words, False for none; names : the values known."""
    return typer.Option(default, *flags, rich_help_panel=panel, show_default=shown, **named(help, names), **more)


def argument(help: str, metavar: str | None = None) -> Any:
    """A word of a command that must be given."""
    return typer.Argument(help=help, show_default=False, metavar=metavar)


def read_call(option: str, text: str, kinds: Mapping[str, Any], such: str) -> tuple[Any, dict[str, Any]]:
    """The class that a call such as OneHot(64) names, and the settings that it gives, among them calls of SETTINGS."""
    from ..results.recipe import SETTINGS  # with all methods

    def read(what: str, call: Any, kinds: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        kind = kinds[checks.choice(what, getattr(call, "func", call).id, kinds)]
        known, values = [f.name for f in fields(kind)], [value(a) for a in call.args]
        if len(values) > len(known):
            raise ArgumentError(f"{option} {kind.__name__} must have at most {len(known)} settings; got {len(values)}")
        named = [*zip(known, values, strict=False), *((k.arg, value(k.value)) for k in call.keywords)]
        if None in (settings := dict(named)) or len(settings) < len(named):
            raise ValueError("settings are given once, by their names")
        return kind, settings

    def value(node: ast.expr) -> Any:
        if not isinstance(node, ast.Call):
            return ast.literal_eval(node)
        kind, settings = read(f"a call in {option}", node, SETTINGS)
        return kind(**settings)

    try:
        return read(option, ast.parse(text.strip(), mode="eval").body, kinds)
    except FedLSAError:
        raise
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        raise ArgumentTypeError(f"{option} must be {such}; got {text!r}") from None


def switch(flag: str, help: str, panel: str | None = None) -> Any:
    """An option that is on where its flag is given."""
    return option(help, False, panel, flag)


FORCE = switch("--force", "Replace files that exist.", "Output")
AS_JSON = switch("--json", "One JSON object, with all digits, instead of words and tables.", "Output")


@dataclass(frozen=True)
class Option:
    """The words of an option of a function, and how it is read where typer cannot do that by itself.

    flag : its name, if that is not --its-name; "--on/--off" are two. shown : the default in words; False for none
    kind : the type that is typed, if that is not the argument's; read : from that to the argument
    names : the values known, which shells complete
    """

    help: str
    flag: str = ""
    shown: str | bool = True
    kind: Any = None
    read: Reader | None = None
    names: Iterable[str] = ()


Words = Mapping[str, str | Option]  # by the name of the argument


@dataclass(frozen=True)
class Entry:
    """One option: the argument it sets, its flag, the parameter that typer sees, and how its value is read."""

    name: str
    flag: str
    parameter: inspect.Parameter
    read: Reader | None


@dataclass(frozen=True)
class Options:
    """The options of a function or dataclass: those of its parameters that the table describes, panel by panel.

    defaults : where the command's differ from the function's; optional : what is left out is not passed on
    """

    function: Callable[..., Any]
    table: Mapping[str, Words]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False

    @functools.cached_property
    def entries(self) -> list[Entry]:
        """One for each option, in the order of the table."""
        known = inspect.signature(self.function).parameters
        more = functools.partial(inspect.Parameter, kind=KEYWORD, default=None)  # of a function with **settings
        return [
            self._entry(known.get(name) or more(name), text if isinstance(text, Option) else Option(text), panel)
            for panel, words in self.table.items()
            for name, text in words.items()
        ]

    def _entry(self, argument: inspect.Parameter, words: Option, panel: str) -> Entry:
        default, kind = self.defaults.get(argument.name, argument.default), words.kind or argument.annotation
        if isinstance(kind, str):  # those of other arguments may need what is not loaded
            kind = eval(kind, vars(sys.modules[self.function.__module__]))
        flag, shown, read = words.flag or "--" + argument.name.replace("_", "-"), words.shown, words.read
        if kind is bool:
            if default is True:
                flag, read = words.flag or "--no-" + argument.name, lambda _, value: not value
            default = False
        elif self.optional or default is None:
            usual = not isinstance(shown, str) and default not in (None, MISSING)
            shown = str(default) if usual else isinstance(shown, str) and shown
            kind, default = kind | None, None
        elif kind in (str, list[str]) and default is not MISSING:
            default = str(default) if kind is str else [*map(str, default if isinstance(default, tuple) else [default])]
        key = flag.split("/")[0].lstrip("-").replace("-", "_")
        info = typer.Option(flag, show_default=shown, rich_help_panel=panel, **named(words.help, words.names))
        parameter = inspect.Parameter(key, KEYWORD, default=default, annotation=Annotated[kind, info])
        return Entry(argument.name, flag, parameter, read)


@dataclass(frozen=True)
class Given:
    """What a command was given for a group of options; calling it calls their function."""

    options: Options
    values: Sequence[tuple[Entry, Any]]

    @property
    def arguments(self) -> dict[str, Any]:
        """The function's arguments, by name; reading them may raise an error about a value."""
        return {
            entry.name: value if entry.read is None or value is None else entry.read(entry.flag, value)
            for entry, value in self.values
            if value is not None or not self.options.optional
        }

    @property
    def flags(self) -> dict[str, Any]:
        """The values that differ from what is meant without them, by flag."""
        return {entry.flag: value for entry, value in self.values if value != entry.parameter.default}

    def __call__(self) -> Any:
        return self.options.function(**self.arguments)


def takes(**groups: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: each argument of the command that `groups` names is given by the options of a function."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: dict[str, inspect.Parameter] = {}
        for name, declared in inspect.signature(command, eval_str=True).parameters.items():
            plain = declared.replace(kind=KEYWORD)
            several = [e.parameter for e in groups[name].entries] if name in groups else [plain]
            for parameter in several:
                parameters.setdefault(parameter.name, parameter)  # two groups may share an option

        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            made = {n: Given(g, [(e, given[e.parameter.name]) for e in g.entries]) for n, g in groups.items()}
            command(**{name: value for name, value in given.items() if name in direct}, **made)

        entries = [entry for group in groups.values() for entry in group.entries]
        direct = parameters.keys() - {entry.parameter.name for entry in entries}
        with_options.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        with_options.__annotations__ = {p.name: p.annotation for p in parameters.values()}
        vars(with_options)["flags"] = {entry.name: entry.flag.split("/")[0] for entry in entries}
        return with_options

    return decorate


def in_words_of(command: Any, message: str) -> str:
    """An error of the library whose arguments are named as the options that set them: step_size -> --step-size.

    Only what stands before "must" names arguments, and what follows "must be given".
    """
    flags = {p.name: p.opts[0] for p in command.params if p.param_type_name == "option"}
    flags = getattr(command.callback, "called", flags | getattr(command.callback, "flags", {}))
    named, must, rest = message.partition(" must ")
    words = set(re.findall(r"[\w-]+", named)) - CONNECTIVES
    if not must or not words <= flags.keys():
        return message

    def flag(word: re.Match[str]) -> str:
        return str(flags.get(word[0], word[0]))

    named = re.sub(r"\w+", flag, named)
    if rest.startswith("be given"):
        rest = re.sub(r"(?<![\w-])\w+", flag, rest)
    return named + must + rest
