"""What configuration files hold: names and hosts that are safe anywhere, tasks as JSON, flat TOML with a version."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import checks
from ...errors import ArgumentError, ArgumentTypeError, FedLSAError, NetworkError
from ...files import reason
from ...fit import Regression, Value, models
from ...fit.tasks import Task

VERSION = 1  # of network.toml and site.toml


def plain_name(argument: str, value: Any) -> str:
    """A name that is safe in files, commands and certificates."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", value):
        raise ArgumentError(
            f"{argument} must be made of letters, digits and dashes (at most 63, no dash first); "
            f"got {checks.show(value)}"
        )
    return value


def site_names(given: Any) -> tuple[str, ...]:
    """Names of sites, each once, also where upper and lower case are the same."""
    if not checks.is_sequence(given) or not len(given):
        raise ArgumentTypeError(f"sites must be a count or a list of names; got {checks.show(given)}")
    names = tuple(plain_name("each of sites", name) for name in given)
    twice = [n for n in names if [m.lower() for m in names].count(n.lower()) > 1]
    if twice:
        raise ArgumentError(f"sites must have each name once; got {twice[0]!r} twice")
    return names


def host_kind(host: Any) -> str:
    """ "ip" or "dns": what kind of name a host is; a port or a scheme is no part of it."""
    rule = f"host must be an IP address or a host name such as fl.example.org, without a port; got {checks.show(host)}"
    if not isinstance(host, str):
        raise ArgumentTypeError(rule)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        label = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        if len(host) > 253 or not re.fullmatch(rf"{label}(?:\.{label})*", host) or re.fullmatch(r"[\d.]+", host):
            raise ArgumentError(rule) from None
        return "dns"
    return "ip"


def task_text(task: Task) -> str:
    """A task as JSON on one line, every number to its last bit; features that are code cannot be sent."""
    checks.instance("task", task, (Regression, Value), "fl.Regression(...) or fl.Value(...)")
    held = models._plain(task)
    features = held.get("features")
    if isinstance(features, dict) and models.LOST in features:
        raise ArgumentError(
            "the task's features must be a map of fl.problems.features, a table or columns, for a file must hold them; "
            f"got code ({features[models.LOST]})"
        )
    return json.dumps(held, ensure_ascii=False, allow_nan=False)


def task_from_text(text: str) -> Task:
    """The task that `task_text` wrote."""
    try:
        return models._task(json.loads(text), Path("task"), None)
    except FedLSAError:
        raise
    except Exception as error:  # text that was edited by hand can go wrong anywhere
        raise NetworkError(f"this is no task: {checks.show(text)} ({lack(error)})") from error


def lack(error: BaseException) -> str:
    """What is wrong with a file, on one line."""
    return f"it lacks {error}" if isinstance(error, KeyError) else reason(error)


def toml(comment: str, entries: Mapping[str, object]) -> str:
    """A flat TOML file; JSON's text and lists of text are TOML's as well."""
    lines = [f"# {comment}"]
    for name, value in entries.items():
        if isinstance(value, str) and '"' in value and "'" not in value and value.isprintable():
            lines.append(f"{name} = '{value}'")  # as it is, without escapes
        else:
            lines.append(f"{name} = " + json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f"))
    return "\n".join(lines) + "\n"


def read(path: Path, what: str) -> dict[str, Any]:
    """The entries of a file, of a version that this program knows."""
    try:
        return parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise NetworkError(f"{path.parent} is not {what}: it has no {path.name}") from None
    except OSError as error:
        raise NetworkError(f"cannot read {path}: {reason(error)}") from error


def parse(content: bytes, where: str) -> dict[str, Any]:
    """TOML with a version of at most ours."""
    try:
        held = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NetworkError(f"{where} is damaged: {reason(error)}") from None
    version = held.get("version")
    if isinstance(version, int) and version > VERSION:
        raise NetworkError(f"{where} has version {version}; this fedlsa reads version {VERSION}: install a newer one")
    if version != VERSION or isinstance(version, bool):
        raise NetworkError(f"{where} is damaged: its version must be {VERSION}; got {checks.show(version)}")
    return held
