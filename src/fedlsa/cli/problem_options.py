"""The options that choose a problem and methods, from the two registries: every command that needs one takes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from .. import checks
from ..algorithms import FAMILY, Algorithm, PowerStep
from ..errors import ArgumentError, ArgumentTypeError
from ..problems import FAMILIES, Problem, make
from ..problems.arguments import Parameter
from ..results.recipe import fields_of
from ..value_objects import given_fields
from .options import Option, Options, Words, read_call

USUAL = "garnet"  # the family that is meant without --problem
FLAGS = {"heterogeneous": "--heterogeneous/--homogeneous", "ideal": "--ideal/--no-ideal", "seed": "--problem-seed"}
REPEATED = f"{', '.join(FAMILY)}, with settings of its own 'fedprox(pull=0.1)'; repeat it to compare."
COMPARED = ("fedlsa", "scafflsa")  # without --method
ChosenMethod = tuple[type[Algorithm], dict[str, Any]]  # and its own settings


def make_problem(problem: str = USUAL, **settings: Any) -> Problem:
    """The problem that the options describe; a parameter that its family does not have is an error."""
    known = FAMILIES[problem].parameters
    given = {name: value for name, value in settings.items() if value is not None}
    for name in given:
        if name not in known:
            owners = ", ".join(_owners(name))
            raise ArgumentError(f"{_flag(name)} must go with --problem {owners}; got --problem {problem}")
    return make(problem, **given)


def as_options(problem: str, **settings: Any) -> list[str]:
    """The options that differ from the defaults: what a reader types to have a problem again."""
    words = [] if problem == USUAL else ["--problem", problem]
    for name, parameter in FAMILIES[problem].parameters.items():
        value = settings.get(name)
        if value is None or value == parameter.default:
            continue
        on, _, off = _flag(name).partition("/")
        words += [on if value else off] if parameter.kind is bool else [on, str(value)]
    return words


def _owners(name: str) -> dict[str, Parameter]:
    """The families that have a parameter, the usual one first."""
    families = sorted(FAMILIES.values(), key=lambda family: family.name != USUAL)
    return {family.name: family.parameters[name] for family in families if name in family.parameters}


def _flag(name: str) -> str:
    return FLAGS.get(name, "--" + name.replace("_", "-"))


def _option(name: str) -> Option:
    """A parameter of one family or of several; each says what it is where they differ, and its default."""
    owners = _owners(name)
    first, kind = next(iter(owners)), next(iter(owners.values())).kind
    text = owners[first].help
    if first != USUAL:
        text = " ".join(f"{family}: {parameter.help}" for family, parameter in owners.items())
    words = _flag(name).replace("--", "").split("/")
    defaults = {family: words[not p.default] if kind is bool else str(p.default) for family, p in owners.items()}
    shown = [value if family == first else f"{family}: {value}" for family, value in defaults.items()]
    default = shown[0] if len(set(defaults.values())) == 1 else ", ".join(shown)
    return Option(text, _flag(name), shown=default, kind=kind | None, names=owners[first].options)


LISTED = "; ".join(f"{name} ({', '.join(map(_flag, family.parameters))})" for name, family in FAMILIES.items())
PARAMETERS = {name: _option(name) for family in (FAMILIES[USUAL], *FAMILIES.values()) for name in family.parameters}
FAMILY_NAME = Option(f"Family of problems: {LISTED}.", names=FAMILIES)
PROBLEM = Options(make_problem, {"Problem": {"problem": FAMILY_NAME, **PARAMETERS}})


def make_methods(
    method: list[ChosenMethod] | None = None,
    step_size: Sequence[float] = (0.1,),
    local_steps: Sequence[int] = (10,),
    probability: Sequence[float] | None = None,
    power: float | None = None,
    **options: Any,
) -> list[Algorithm]:
    """Each method with each step size and length; rounds of random length are as long in the mean."""
    chosen = method or [(FAMILY[name], {}) for name in COMPARED]
    if probability is not None and not any(kind.random_lengths for kind, _ in chosen):
        names = ", ".join(kind.name for kind, _ in chosen)
        raise ArgumentError(f"--probability is a parameter of scaffnew; got the methods {names}")
    lengths = [checks.integer("--local-steps", H, at_least=1) for H in local_steps]
    sizes = [checks.real("--step-size", eta, above=0) for eta in step_size]
    steps: list[Any] = [eta if power is None else PowerStep(eta, power) for eta in sizes]
    out: list[Algorithm] = []
    for kind, own in chosen:
        more: dict[str, Any] = options | own
        if probability is None or not kind.random_lengths:
            out += [kind.with_steps(eta, H, **more) for eta in steps for H in lengths]
        else:
            out += [kind(eta, probability=p, **more) for eta in steps for p in probability]  # type: ignore[call-arg]
    return out


def own_settings(kind: type[Algorithm]) -> list[str]:
    """The settings of a method that have no options: they stand in brackets behind its name."""
    return [f.name for f in fields(kind) if f.name not in (*BASIC, *FURTHER)]


def method_word(a: Algorithm) -> str:
    """A method as --method takes it: scafflsa, fedprox(pull=0.1)."""
    own = ", ".join(f"{k}={v!r}" for k, v in given_fields(a).items() if k in own_settings(type(a)))
    return f"{a.name}({own})" if own else a.name


def sweep_axes(chosen: Sequence[Algorithm], given: Mapping[str, Any]) -> dict[str, Any]:
    """The dimensions of methods that `make_methods` made of what was given; empty where each has one setting."""
    kinds: list[type[Algorithm]] = list(dict.fromkeys(type(a) for a in chosen))
    if len(kinds) == len(chosen):
        return {}
    length = "local_steps" if given["probability"] is None else "probability"
    if length == "probability" and not all(kind.random_lengths for kind in kinds):
        names = ", ".join(dict.fromkeys(a.name for a in chosen))
        raise ArgumentError(f"--probability must stand with scaffnew alone where --out saves a sweep; got {names}")
    axes = {"algorithm": kinds, "step_size": list(dict.fromkeys(a.step_size for a in chosen)), length: given[length]}
    rest = {name: given[name] for name in FURTHER if given[name] is not None}
    for kind, own in given["method"] or ():
        if own and len(kinds) > 1:
            rule = "--method must have no settings of its own where --out saves a sweep of several methods"
            raise ArgumentError(f"{rule}; got those of {kind.name}")
        rest |= own
    return {name: values if len(values) > 1 else values[0] for name, values in axes.items()} | rest


def described(algorithm: Algorithm) -> dict[str, Any]:
    """A method with its parameters, for programs."""
    return {"algorithm": algorithm.name, **fields_of(algorithm)}


def chosen_methods(option: str, given: list[str]) -> list[ChosenMethod]:
    """Methods by name, each once, with settings of their own: svrg, fedprox(pull=0.1), compressed(send=RandK(1))."""
    such = "a method, alone or with its settings, such as 'fedprox(pull=0.1)'"
    found = [read_call(option, text if "(" in text else f"{text}()", FAMILY, such) for text in given]
    names = [kind.name for kind, _ in found]
    for (kind, own), name in zip(found, names, strict=True):
        if names.count(name) > 1:
            raise ArgumentError(f"{option} must name each method once; got {name!r} {names.count(name)} times")
        if own and not own_settings(kind):
            raise ArgumentError(f"{option} {name} must stand without settings in brackets; got {', '.join(own)}")
        for setting in own:
            checks.choice(f"what is set of {option} {name}", setting, own_settings(kind))
    return found


def count_or_list(option: str, text: str) -> int | list[int]:
    """A count such as 10, or a list such as 3,5,8 (a list of one ends in a comma)."""
    try:
        return [int(part) for part in text.split(",") if part.strip()] if "," in text else int(text)
    except ValueError:
        rule = f"{option} must be a count such as 10 or a list such as 3,5,8"
        raise ArgumentTypeError(f"{rule}; got {text!r}") from None


def several(kind: Callable[[str], Any], rule: str, option: str, given: list[str]) -> list[Any]:
    """Numbers, one option each or several with commas, each once."""
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    try:
        out = [kind(word) for word in words]
    except ValueError:
        out = []
    if not out:
        raise ArgumentTypeError(f"{option} must be {rule}; got {','.join(given)!r}")
    twice = next((word for word, value in zip(words, out, strict=True) if out.count(value) > 1), None)
    if twice is not None:
        raise ArgumentError(f"{option} must name each value once; got {twice} again")
    return out


def share(option: str, text: str) -> float:
    """A share, written with a point or an exponent (0.3, 1.0): a plain integer might be meant as a count."""
    try:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
            return float(text)
    except ValueError:
        pass
    rule = f"{option} must be a share such as 0.3 or 1.0 (--participants is for a count)"
    raise ArgumentTypeError(f"{rule}; got {text!r}")


REALS = partial(several, float, "a number such as 0.1, or several such as 0.1,0.2")
INTEGERS = partial(several, int, "an integer such as 10, or several such as 10,100")
SEVERAL = "Several, a,b or repeated, are compared."
BASIC: Words = {
    "method": Option(
        f"{REPEATED} By default {' and '.join(COMPARED)}.", kind=list[str] | None, read=chosen_methods, names=FAMILY
    ),
    "step_size": Option(f"Step size eta. {SEVERAL}", kind=list[str], read=REALS),
    "local_steps": Option(f"Observations between communications, H. {SEVERAL}", kind=list[str], read=INTEGERS),
    "probability": Option(
        f"Scaffnew: chance to communicate. By default 1 / local steps. {SEVERAL}", kind=list[str] | None, read=REALS
    ),
}
FURTHER: Words = {
    "participation": Option(
        "Share of the agents that take part in a round, such as 0.3.", shown="all agents", kind=str, read=share
    ),
    "participants": Option("The same as a count.", kind=int),
    "projection": Option("Radius of the ball that holds theta.", kind=float),
    "average_after": Option("Report the mean of iterates from this round on.", kind=int),
}
POWER: Words = {"power": "Decrease the step: eta / (t + 1)^power in round t."}
BASIC_METHODS = Options(make_methods, {"Method": BASIC})
ALL_METHODS = Options(make_methods, {"Method": {**BASIC, **POWER, **FURTHER}})
