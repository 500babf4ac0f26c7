"""What a network's folders say: the coordinator's network.toml, a site's site.toml, and the options of a run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from ... import checks
from ...algorithms import METHODS
from ...errors import ArgumentError, ArgumentTypeError, FedLSAError, NetworkError
from ...fit.tasks import Task
from . import bundles, private
from .entries import VERSION, host_kind, lack, parse, plain_name, read, site_names, task_from_text, task_text, toml

PORT = 9092
NETWORK_FILE, SITE_FILE = "network.toml", "site.toml"
POLICIES, LOCAL, WEIGHTS = ("spread", "freeze"), ("rows", "means"), ("sites", "samples")


@dataclass(frozen=True)
class Network:
    """The coordinator's folder. host, port : where sites knock; inner_port : the SuperLink, on loopback only.

    sites : their names; the order gives the agents their numbers
    """

    folder: Path
    host: str
    sites: tuple[str, ...]
    task: Task
    port: int = PORT
    inner_port: int = PORT + 1
    ca: Path = field(init=False)
    ca_key: Path = field(init=False)
    certificate: Path = field(init=False)
    key: Path = field(init=False)
    secret: Path = field(init=False)
    runs: Path = field(init=False)

    def __post_init__(self) -> None:
        host_kind(self.host)
        checks.integer("port", self.port, at_least=1, at_most=65535)
        checks.integer("inner_port", self.inner_port, at_least=1, at_most=65535)
        if self.port == self.inner_port:
            raise ArgumentError(f"inner_port must differ from port; got {self.inner_port} for both")
        object.__setattr__(self, "sites", site_names(self.sites))
        names = {"ca": "ca.pem", "ca_key": "ca.key", "certificate": "server.pem", "key": "server.key"}
        for attribute, name in (names | {"secret": "superexec.secret", "runs": "runs"}).items():
            object.__setattr__(self, attribute, self.folder / name)

    @classmethod
    def load(cls, folder: Path | str) -> Network:
        """Read a folder that `fedlsa network init` made; its secrets must be closed to others."""
        folder = checks.path("folder", folder)
        held = read(folder / NETWORK_FILE, "a network's folder (fedlsa network init makes one)")
        try:
            out = cls(
                folder,
                host=held["host"],
                sites=tuple(held["sites"]),
                task=task_from_text(held["task"]),
                port=held["port"],
                inner_port=held["inner_port"],
            )
        except (KeyError, TypeError, FedLSAError) as error:
            raise NetworkError(f"{folder / NETWORK_FILE} is damaged: {lack(error)}") from error
        for path, what in ((out.ca_key, "the CA's key"), (out.key, "the server's key"), (out.secret, "the secret")):
            if path != out.ca_key or path.exists():  # the CA's key may be kept elsewhere between renewals
                private.check(path, what)
        for path in (out.ca, out.certificate, *(out.public_key(site) for site in out.sites)):
            if not path.is_file():
                raise NetworkError(f"the network's folder {folder} lacks {path.relative_to(folder)}")
        return out

    def text(self) -> str:
        """The content of network.toml."""
        entries = {"version": VERSION, "host": self.host, "port": self.port, "inner_port": self.inner_port}
        return toml(
            "A network of fedlsa, as its coordinator sees it. The order of sites gives them their numbers.",
            entries | {"sites": list(self.sites), "task": task_text(self.task)},
        )

    def public_key(self, site: str) -> Path:
        """The file with a site's public key, for `flwr supernode register`."""
        return self.folder / "sites" / f"{site}.pub"

    def bundle(self, site: str) -> Path:
        """What the site is sent; it holds the site's private key."""
        return self.folder / "bundles" / f"{site}.zip"

    def revoked(self) -> tuple[Path, ...]:
        """Public keys that were rotated or removed and that no site has now: the SuperLink must forget them."""
        current = {self.public_key(site).read_bytes() for site in self.sites if self.public_key(site).is_file()}
        return tuple(p for p in sorted((self.folder / "revoked").glob("*.pub")) if p.read_bytes() not in current)


@dataclass(frozen=True)
class Bundle:
    """A site's folder: what the coordinator sent, unpacked, and the site's own state beside it."""

    folder: Path
    name: str
    host: str
    port: int
    task: Task
    key: Path = field(init=False)
    ca: Path = field(init=False)
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        site_names([self.name])
        host_kind(self.host)
        checks.integer("port", self.port, at_least=1, at_most=65535)
        for attribute, name in (("key", "site.key"), ("ca", "ca.pem"), ("state", "state")):
            object.__setattr__(self, attribute, self.folder / name)

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
        held = bundles.read(path)
        parse(held[SITE_FILE], f"{SITE_FILE} in {path}")  # version, before it unpacks
        bundles.unpack(path, held, target, new_key=new_key)
        return cls.load(target)

    @classmethod
    def load(cls, folder: Path | str) -> Bundle:
        """Read a site's folder; its key must be closed to others."""
        folder = checks.path("folder", folder)
        held = read(folder / SITE_FILE, "a site's folder (fedlsa network join makes one from a bundle)")
        try:
            task = task_from_text(held["task"])
            out = cls(folder, name=held["name"], host=held["host"], port=held["port"], task=task)
        except (KeyError, TypeError, FedLSAError) as error:
            raise NetworkError(f"{folder / SITE_FILE} is damaged: {lack(error)}") from error
        private.check(out.key, "the site's key")
        if not out.ca.is_file():
            raise NetworkError(f"the site's folder {folder} lacks ca.pem")
        return out


def site_text(name: str, network: Network) -> str:
    """The content of a site's site.toml."""
    entries = {"version": VERSION, "name": name, "host": network.host, "port": network.port}
    return toml("A site of a fedlsa network.", entries | {"task": task_text(network.task)})


@dataclass(frozen=True)
class StartOptions:
    """What a run is asked for: fedlsa.network.coordinator.serve.start(folder, options, detach=False).

    epsilon : the accuracy, from which a plan follows; or by hand step_size, local_steps and rounds (Scaffnew
        communicates with probability 1 / local_steps)
    local : a step uses rows at random, or the site's means; weight : each site counts the same, or each row
    min_sites : replies that close a round at its deadline (seconds), by default half of the sites, rounded up
    participation, participants : how many sites take part in a round, as a share or as a count; by default all that
        are present
    clip : longest difference a site may send; trim : replies left out on each side, coordinate by coordinate
    quantise : bits of a number sent, 8 or 16; noise : standard deviation in units of clip
    patience : rounds missed in a row after which a site counts as gone; policy : what then becomes of its xi
    name : of the experiment; None has one made
    """

    method: str = "scafflsa"
    epsilon: float | None = None
    step_size: float | None = None
    local_steps: int | None = None
    rounds: int | None = None
    seed: int = 0
    local: str = "rows"
    weight: str = "sites"
    min_sites: int | None = None
    deadline: float = 120.0
    participation: float | None = None
    participants: int | None = None
    clip: float | None = None
    trim: int = 0
    quantise: int | None = None
    noise: float | None = None
    patience: int = 5
    policy: str = "spread"
    name: str | None = None

    def __post_init__(self) -> None:
        checks.choice("method", self.method, METHODS)
        checks.choice("local", self.local, LOCAL)
        checks.choice("weight", self.weight, WEIGHTS)
        checks.choice("policy", self.policy, POLICIES)
        hand = {"step_size": self.step_size, "local_steps": self.local_steps, "rounds": self.rounds}
        given = [name for name, value in hand.items() if value is not None]
        if (self.epsilon is None) == (not given) or len(given) not in (0, 3):
            got = (["epsilon"] if self.epsilon is not None else []) + given
            raise ArgumentError(
                "epsilon alone, or step_size, local_steps and rounds together, must be given; "
                f"got {' and '.join(got) or 'none of them'}"
            )
        positive = {"epsilon": self.epsilon, "step_size": self.step_size, "clip": self.clip, "noise": self.noise}
        for name, value in (positive | {"deadline": self.deadline}).items():
            if value is not None:
                object.__setattr__(self, name, checks.real(name, value, above=0))
        for name in ("local_steps", "rounds", "min_sites", "patience"):
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), at_least=1)
        checks.integer("seed", self.seed)
        checks.integer("trim", self.trim)
        if self.quantise not in (None, 8, 16):
            raise ArgumentError(f"quantise must be 8 or 16 bits; got {checks.show(self.quantise)}")
        if self.noise is not None and self.clip is None:
            raise ArgumentError(f"noise must come with clip, which bounds what one site can change; got {self.noise:g}")
        if self.name is not None:
            plain_name("name", self.name)
        self.taking_part(10**6)

    def taking_part(self, sites: int) -> int | None:
        """How many sites take part in a round; None is all that are present."""
        if self.participants is not None:
            if self.participation is not None:
                given = f"{checks.show(self.participation)} and {checks.show(self.participants)}"
                raise ArgumentError(f"participation and participants must not both be given; got {given}")
            count = checks.integer("participants", self.participants, at_least=1, at_most=sites)
            return None if count == sites else count
        if self.participation is None:
            return None
        if not isinstance(self.participation, float):
            rule = "participation must be a share, a float above 0 and at most 1 (participants is for a count)"
            raise ArgumentTypeError(f"{rule}; got {checks.show(self.participation)}")
        share = checks.real("participation", self.participation, above=0, at_most=1)
        return None if share == 1 else max(1, math.floor(share * sites + 0.5))

    def least(self, sites: int) -> int:
        """How many replies close a round at its deadline; enough that trimming leaves one."""
        most = self.taking_part(sites) or sites
        out = max((most + 1) // 2, 2 * self.trim + 1) if self.min_sites is None else self.min_sites
        if not 2 * self.trim < out <= most:
            raise ArgumentError(
                f"min_sites must be above twice trim ({2 * self.trim}) and at most the {most} sites of a round; "
                f"got {out}"
            )
        return out

    def text(self) -> str:
        """JSON, for a file."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_text(cls, text: str) -> StartOptions:
        """What `text` wrote."""
        held = json.loads(text)
        known = {f.name for f in fields(cls)}
        if not isinstance(held, dict) or not held.keys() <= known:
            raise NetworkError(f"these are not the options of a run of this version: {checks.show(text)}")
        if type(held.get("participation")) is int:  # older files: a count
            held["participants"] = held.pop("participation")
        return cls(**held)
