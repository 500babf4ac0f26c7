"""What a network's folders say: the coordinator's network.toml and a site's site.toml, flat TOML with a version."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from ... import checks
from ...errors import ArgumentError, ArgumentTypeError, FedLSAError, NetworkError
from ...files import reason
from ...fit import Regression, Value, models
from ...fit.tasks import Task
from .. import disk
from ..protocol.run_settings import plain_name
from . import bundles

PORT = 9092
VERSION = 1  # of network.toml and site.toml


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
    content = models.to_plain(task)
    features = content.get("features")
    if isinstance(features, dict) and models.LOST in features:
        raise ArgumentError(
            "the task's features must be a map of fl.problems.features, a table or columns, for a file must hold them; "
            f"got code ({features[models.LOST]})"
        )
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def task_from_text(text: str) -> Task:
    """The task that `task_text` wrote."""
    try:
        return models.task_from_plain(json.loads(text), Path("task"))
    except FedLSAError:
        raise
    except Exception as error:  # text that was edited by hand can go wrong anywhere
        raise NetworkError(f"this is no task: {checks.show(text)} ({_flaw(error)})") from error


def _flaw(error: BaseException) -> str:
    """What is wrong with a file, on one line."""
    return f"it lacks {error}" if isinstance(error, KeyError) else reason(error)


def parse(content: bytes, where: str) -> dict[str, Any]:
    """TOML with a version that this program knows."""
    try:
        entries = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NetworkError(f"{where} is damaged: {reason(error)}") from None
    version = entries.get("version")
    if isinstance(version, int) and version > VERSION:
        raise NetworkError(f"{where} has version {version}; this fedlsa reads version {VERSION}: install a newer one")
    if version != VERSION or isinstance(version, bool):
        raise NetworkError(f"{where} is damaged: its version must be {VERSION}; got {checks.show(version)}")
    return entries


def _file(name: str) -> Any:
    """A file of the folder."""
    return property(lambda self: self.folder / name)


@dataclass(frozen=True)
class _Folder:
    """A folder with one TOML file, whose entries are the fields."""

    FILE: ClassVar[str]
    COMMENT: ClassVar[str]
    MADE_BY: ClassVar[str]

    folder: Path

    def text(self) -> str:
        """The content of the TOML file; JSON's text and lists of text are TOML's as well."""
        lines = [f"# {self.COMMENT}", f"version = {VERSION}"]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            value = task_text(value) if field.name == "task" else value
            if isinstance(value, str) and '"' in value and "'" not in value and value.isprintable():
                lines.append(f"{field.name} = '{value}'")  # as it is, without escapes
            else:
                lines.append(f"{field.name} = " + json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f"))
        return "\n".join(lines) + "\n"

    @classmethod
    def _read(cls, folder: Path) -> Self:
        path = folder / cls.FILE
        try:
            entries = parse(path.read_bytes(), str(path))
        except FileNotFoundError:
            raise NetworkError(f"{folder} is not {cls.MADE_BY}: it has no {cls.FILE}") from None
        except OSError as error:
            raise NetworkError(f"cannot read {path}: {reason(error)}") from error
        try:
            values = {field.name: entries[field.name] for field in fields(cls)[1:]}
            return cls(folder, **values | {"task": task_from_text(values["task"])})
        except (KeyError, TypeError, FedLSAError) as error:
            raise NetworkError(f"{path} is damaged: {_flaw(error)}") from error


@dataclass(frozen=True)
class Network(_Folder):
    """The coordinator's folder. host, port : where sites connect; inner_port : the SuperLink, on loopback only.

    sites : their names; the order gives the agents their numbers
    """

    FILE, MADE_BY = "network.toml", "a network's folder (fedlsa network init makes one)"
    COMMENT = "A network of fedlsa, as its coordinator sees it. The order of sites gives them their numbers."

    host: str
    sites: tuple[str, ...]
    task: Task
    port: int = PORT
    inner_port: int = PORT + 1

    ca, ca_key, certificate, key = _file("ca.pem"), _file("ca.key"), _file("server.pem"), _file("server.key")
    secret, runs = _file("superexec.secret"), _file("runs")

    def __post_init__(self) -> None:
        host_kind(self.host)
        checks.integer("port", self.port, at_least=1, at_most=65535)
        checks.integer("inner_port", self.inner_port, at_least=1, at_most=65535)
        if self.port == self.inner_port:
            raise ArgumentError(f"inner_port must differ from port; got {self.inner_port} for both")
        object.__setattr__(self, "sites", site_names(self.sites))

    @classmethod
    def load(cls, folder: Path | str) -> Network:
        """Read a folder that `fedlsa network init` made; its secrets must be closed to others."""
        out = cls._read(checks.path("folder", folder))
        for path, what in ((out.ca_key, "the CA's key"), (out.key, "the server's key"), (out.secret, "the secret")):
            if path != out.ca_key or path.exists():  # the CA's key may be kept elsewhere between renewals
                disk.check_secret(path, what)
        for path in (out.ca, out.certificate, *(out.public_key(site) for site in out.sites)):
            if not path.is_file():
                raise NetworkError(f"the network's folder {folder} lacks {path.relative_to(out.folder)}")
        return out

    @property
    def superlink(self) -> str:
        """Where the SuperLink answers, on loopback."""
        return f"127.0.0.1:{self.inner_port}"

    def public_key(self, site: str) -> Path:
        """The file with a site's public key, for `flwr supernode register`."""
        return self.folder / "sites" / f"{site}.pub"

    def bundle(self, site: str) -> Path:
        """What the site is sent; it holds the site's private key."""
        return self.folder / "bundles" / f"{site}.zip"


@dataclass(frozen=True)
class Bundle(_Folder):
    """A site's folder: what the coordinator sent, unpacked, and the site's own state beside it."""

    FILE, MADE_BY = "site.toml", "a site's folder (fedlsa network join makes one from a bundle)"
    COMMENT = "A site of a fedlsa network."

    name: str
    host: str
    port: int
    task: Task

    key, ca = _file("site.key"), _file("ca.pem")

    def __post_init__(self) -> None:
        site_names([self.name])
        host_kind(self.host)
        checks.integer("port", self.port, at_least=1, at_most=65535)

    @classmethod
    def open(cls, path: Path | str, into: Path | str | None = None, *, new_key: bool = False) -> Bundle:
        """Unpack a bundle and read it; a folder that was unpacked before is read as it is.

        into : the site's folder, by default named as the bundle, beside it. Unpacking the same bundle again changes
        nothing; another bundle is refused, unless it is the same site's with a new key and new_key says so.
        """
        path = checks.path("bundle", path)
        if path.is_dir():
            return cls.load(path)
        target = path.with_suffix("") if into is None else checks.path("folder", into)
        content = bundles.read(path)
        parse(content[cls.FILE], f"{cls.FILE} in {path}")  # version, before it unpacks
        bundles.unpack(path, content, target, new_key=new_key)
        return cls.load(target)

    @classmethod
    def load(cls, folder: Path | str) -> Bundle:
        """Read a site's folder; its key must be closed to others."""
        out = cls._read(checks.path("folder", folder))
        disk.check_secret(out.key, "the site's key")
        if not out.ca.is_file():
            raise NetworkError(f"the site's folder {folder} lacks ca.pem")
        return out
