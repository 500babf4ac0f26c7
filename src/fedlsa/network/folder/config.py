"""What a network's folders say: the coordinator's network.toml and a site's site.toml, flat TOML with a version."""

from __future__ import annotations

import ipaddress
import json
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from ... import checks
from ...errors import ArgumentError, ArgumentTypeError, FedLSAError, NetworkError
from ...files import reason
from ...fitting import Regression, Value, model_files
from ...fitting.tasks import Task
from .. import disk
from ..protocol.run_settings import plain_name

PORT = 9092
VERSION = 1  # of network.toml and site.toml
MAX_FILE_BYTES = 2**20  # thousands of times what a bundle or a certificate needs


def site_names(given: Any) -> tuple[str, ...]:
    """Names of sites, each once, also where upper and lower case are the same."""
    if not checks.is_sequence(given) or not len(given):
        raise ArgumentTypeError(f"sites must be a count or a list of names; got {checks.show(given)}")
    names = tuple(plain_name("each of sites", name) for name in given)
    twice = [n for n in names if [m.lower() for m in names].count(n.lower()) > 1]
    if twice:
        raise ArgumentError(f"sites must have each name once; got {twice[0]!r} twice")
    return names


def check_host(host: Any) -> None:
    """Refuse what is neither an IP address nor the name of a host; a port or a scheme is no part of it."""
    rule = f"host must be an IP address or a host name such as fl.example.org, without a port; got {checks.show(host)}"
    if not isinstance(host, str):
        raise ArgumentTypeError(rule)
    label = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    if len(host) > 253 or not re.fullmatch(rf"{label}(?:\.{label})*", host) or re.fullmatch(r"[\d.]+", host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ArgumentError(rule) from None


def check_task(task: Task) -> None:
    """Refuse what a run across sites cannot honour, when a network is made and when a site reads what it was sent."""
    checks.instance("task", task, (Regression, Value), "fl.Regression(...) or fl.Value(...)")
    if isinstance(task, Regression) and task.row_weights is not None:
        rule = "row_weights must not be given on a network, whose sites count rows"
        raise ArgumentError(f"{rule}; got {checks.show(task.row_weights)}")
    if isinstance(task, Value) and task.discount == 1:
        raise ArgumentError("discount must be below 1 on a network, whose sites do not tell if episodes end; got 1")


def task_text(task: Task) -> str:
    """A task as JSON on one line, every number to its last bit; features that are code cannot be sent."""
    check_task(task)
    content = model_files.to_plain(task)
    features = content.get("features")
    if isinstance(features, dict) and model_files.LOST in features:
        rule = "the task's features must be a map of fl.problems.features, a table or columns"
        raise ArgumentError(f"{rule}, for a file must hold them; got code ({features[model_files.LOST]})")
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def task_from_text(text: str) -> Task:
    """The task that `task_text` wrote."""
    try:
        return model_files.task_from_plain(json.loads(text), Path("task"))
    except FedLSAError:
        raise
    except Exception as error:  # text that was edited by hand can go wrong anywhere
        raise NetworkError(f"this is no task: {checks.show(text)} ({_flaw(error)})") from error


def _flaw(error: BaseException) -> str:
    """What is wrong with a file, on one line."""
    return f"it lacks {error}" if isinstance(error, KeyError) else reason(error)


def write_toml(entries: Mapping[str, Any]) -> str:
    """Text, numbers and lists of text as TOML, which JSON writes as well but for one character; read again to check."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entries.items()]
    text = "\n".join(lines).replace("\x7f", "\\u007f") + "\n"
    try:
        same = tomllib.loads(text.encode().decode()) == json.loads(json.dumps(entries))
    except ValueError:  # half a character
        same = False
    if not same:
        raise ArgumentError(f"{checks.show(entries)} cannot be written as TOML")
    return text


def parse(content: bytes, where: str) -> dict[str, Any]:
    """TOML with a version that this program knows."""
    try:
        entries = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # of hostile text, too
        raise NetworkError(f"{where} is damaged: {reason(error)}") from None
    version = entries.get("version")
    if isinstance(version, int) and version > VERSION:
        raise NetworkError(f"{where} has version {version}; this fedlsa reads version {VERSION}: install a newer one")
    if type(version) is not int or version != VERSION:
        raise NetworkError(f"{where} is damaged: its version must be {VERSION}; got {checks.show(version)}")
    return entries


def _file(name: str) -> Any:
    """A file of the folder."""
    return property(lambda self: self.folder / name)


@dataclass(frozen=True)
class _Folder:
    """A folder with one TOML file, whose entries are the fields."""

    FILE: ClassVar[str]
    SERVICE: ClassVar[str]  # its systemd unit
    COMMENT: ClassVar[str]
    MADE_BY: ClassVar[str]
    SECRETS: ClassVar[Mapping[str, str]]  # what must be closed to others, in words

    folder: Path

    ca, signing_public = _file("ca.pem"), _file("signing.pem")

    def text(self, **more: str) -> str:
        """The content of the TOML file; more : further entries."""
        entries = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        entries = {"version": VERSION, **entries, "task": task_text(entries["task"]), **more}
        return f"# {self.COMMENT}\n{write_toml(entries)}"

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a folder that our commands have made; its secrets must be closed to others."""
        folder = checks.path("folder", folder)
        path = folder / cls.FILE
        if not path.exists():
            raise NetworkError(f"{folder} is not {cls.MADE_BY}: it has no {cls.FILE}")
        out = cls.from_entries(folder, parse(read_file(path), str(path)), str(path))
        out.check_id(read_file(out.ca), read_file(out.signing_public), folder)
        for name, what in cls.SECRETS.items():
            disk.check_secret(getattr(out, name), what)
        return out

    @classmethod
    def from_entries(cls, folder: Path, entries: Mapping[str, Any], where: str) -> Self:
        """What a file says; where : its name, for errors."""
        try:
            values = {field.name: entries[field.name] for field in fields(cls)[1:]}
            return cls(folder, **values | {"task": task_from_text(values["task"])})
        except (KeyError, TypeError, FedLSAError) as error:
            raise NetworkError(f"{where} is damaged: {_flaw(error)}") from error

    def check_id(self, ca: bytes, signing: bytes, where: Path) -> None:
        """The id is a digest of two keys: where one of them was exchanged, nothing is believed."""
        from . import certificates

        found, own = certificates.network_id(ca, signing), getattr(self, "id", None) or getattr(self, "network", None)
        if found != own:
            what = "the keys of authority and coordinator"
            raise NetworkError(f"{where}: {what} are those of network {found}, not of {checks.show(own)}")


def read_file(path: Path) -> bytes:
    """A small file, whole; one that is too large for ours, a link to a device or missing is refused."""
    with disk.trying_to(f"read {path}"):
        if not path.is_file() and path.exists():
            raise NetworkError(f"{path} is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise NetworkError(f"{path} must have at most {MAX_FILE_BYTES} bytes; got more")
    return content


@dataclass(frozen=True)
class Network(_Folder):
    """The coordinator's folder. host, port : where sites connect; page_port : the page, on loopback only.

    id : a digest of the network's keys; sites : their names, whose order gives the agents their numbers
    """

    FILE, MADE_BY = "network.toml", "a network's folder (fedlsa network init makes one)"
    SERVICE = "fedlsa-coordinator.service"
    COMMENT = "A network of fedlsa, as its coordinator sees it. The order of sites gives them their numbers."
    SECRETS = MappingProxyType({"key": "the server's key", "signing_key": "the signing key"})

    id: str
    host: str
    sites: tuple[str, ...]
    task: Task
    port: int = PORT
    page_port: int = PORT + 1

    ca_key, certificate, key = _file("ca.key"), _file("server.pem"), _file("server.key")
    signing_key, runs, revoked = _file("signing.key"), _file("runs"), _file("revoked")

    def __post_init__(self) -> None:
        check_host(self.host)
        checks.integer("port", self.port, at_least=1, at_most=65535)
        checks.integer("page_port", self.page_port, at_least=1, at_most=65535)
        if self.port == self.page_port:
            raise ArgumentError(f"page_port must differ from port; got {self.page_port} for both")
        object.__setattr__(self, "sites", site_names(self.sites))
        check_task(self.task)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a folder that `fedlsa network init` made."""
        out = super().load(folder)
        if out.ca_key.exists():  # it may be kept elsewhere between renewals
            disk.check_secret(out.ca_key, "the authority's key")
        read_file(out.certificate)
        return out

    def site_certificate(self, site: str) -> Path:
        """A site's certificate: the one that counts. Missing until it was approved."""
        return self.folder / "sites" / f"{site}.pem"

    def bundle(self, site: str) -> Path:
        """What the site is sent; it holds no secret."""
        return self.folder / "bundles" / f"{site}.toml"


@dataclass(frozen=True)
class SiteFolder(_Folder):
    """A site's folder: what the coordinator sent, the keys that the site made, its policy, its ledger, its state."""

    FILE, MADE_BY = "site.toml", "a site's folder (fedlsa network enrol makes one from a bundle)"
    SERVICE = "fedlsa-site.service"
    COMMENT = "A site of a fedlsa network."
    SECRETS = MappingProxyType({"key": "the site's key", "mask_key": "the site's key for masks"})

    name: str
    network: str
    host: str
    port: int
    task: Task

    key, mask_key = _file("site.key"), _file("mask.key")
    policy, state = _file("policy.toml"), _file("state")
    results, logs = _file("results"), _file("logs")

    def __post_init__(self) -> None:
        site_names([self.name])
        check_host(self.host)
        checks.integer("port", self.port, at_least=1, at_most=65535)
        check_task(self.task)

    @property
    def certificate(self) -> Path:
        """Which the site has signed itself, and sends to the coordinator to be approved."""
        return self.folder / f"{self.name}.pem"

    def check_certificate(self) -> None:
        """Refuse to go on without a certificate for the site's own keys, good today."""
        from . import certificates

        if not self.certificate.exists():
            raise NetworkError(f"{self.name} has no certificate: fedlsa network enrol {self.folder} makes one")
        found = certificates.check_site(read_file(self.certificate), self.network, self.name)
        key, mask = certificates.private_key(read_file(self.key)), certificates.mask_key(read_file(self.mask_key))
        if (found.key, found.mask) != (key.public_key(), mask.public_key().public_bytes_raw()):
            raise NetworkError(f"the certificate of {found.name} is for other keys than the site's")


# Certificates that end soon: a program that goes on for years says so when it starts, and once a day.

DAY = 86400.0  # seconds


def certificate_warnings(of: Network | SiteFolder) -> list[str]:
    """What must be renewed within 30 days, and what is damaged: the folder's own certificates, a network's sites'."""
    from . import certificates

    sites = [of.site_certificate(site) for site in of.sites] if isinstance(of, Network) else []
    out, now = [], datetime.now(UTC)
    for path in (path for path in (of.ca, of.certificate, *sites) if path.exists()):
        try:
            end = certificates.expires(read_file(path))
        except FedLSAError as error:
            out.append(f"{path}: {error}")
            continue
        if end - now <= certificates.WARNED:
            when = f"ends on {end:%Y-%m-%d}, in {(end - now).days} days" if end > now else f"ended on {end:%Y-%m-%d}"
            out.append(f"the certificate {path} {when}: renew it (README.md says how)")
    return out


def warn_daily(
    of: Network | SiteFolder, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Callable[[], None]:
    """A function that may be called often; it tells the warnings the first time, and again when a day is over."""
    due = clock()

    def warn() -> None:
        nonlocal due
        if clock() >= due:
            due = clock() + DAY
            for text in certificate_warnings(of):
                tell(f"WARNING: {text}")

    return warn
