"""The site's ledger: what was asked, what left, what it cost in privacy. Nothing leaves the site without an entry.

It is the hash chain of the site's folder (network/disk.py). Its totals are kept in a second place outside that folder,
and every answer carries a receipt with them, signed by the site, that the coordinator keeps and gives back when a run
begins. Where the chain is behind its copy or a receipt, it has been lost or restored from a backup: then the larger
totals count from there on, the runs of before are closed, and the fact is an entry of its own.

The ledger also keeps masks safe. A mask is a function of the order (its label), so two different answers to one order
would betray their difference: what was answered to a label is remembered, and only the same answer leaves again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, replace

from ...errors import FedLSAError, NetworkError, PolicyError
from ...files import reason, write
from ...theory.privacy import delta_left, epsilon_of
from .. import disk
from ..disk import ChainHead, Database, place_of
from ..folder.config import SiteFolder
from ..processes import only_one
from ..protocol.codec import Message, encode, is_signed, printable, sign_bytes
from .policy import Policy

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Spent = Annotated[float, msgspec.Meta(ge=0)]
Hash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class LedgerTotals(msgspec.Struct, frozen=True):
    """Over all runs. rho : spent by answers with noise (privacy.py), of which there are `noised`.

    noised_site, rho_site : the part of them whose noise hides the whole table. It hides each row as well, so `rho` is
    what single rows have spent. What the other answers tell of the whole table has no bound.
    """

    answers: Count = 0
    runs: Count = 0
    rounds: Count = 0
    noised: Count = 0
    rho: Spent = 0.0
    noised_site: Count = 0
    rho_site: Spent = 0.0

    def combined(self, other: LedgerTotals, both: bool) -> LedgerTotals:
        """The larger of each, or with `both` their sums: for two branches of one past, of which each was answered."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in LedgerTotals.__struct_fields__}
        return LedgerTotals(**{name: sum(pair) if both else max(pair) for name, pair in pairs.items()})


NO_PROMISE = (
    "answers have left whose noise hides single rows only, and what they tell of the whole table has no bound; "
    "privacy = record counts them"
)


def epsilon_spent(policy: Policy, totals: LedgerTotals, answers: int = 0, rho: float = 0.0) -> float | None:
    """The epsilon that all answers together have spent, and so many more would, each of this rho; None: no bound."""
    if policy.privacy == "none" or (policy.privacy == "site" and totals.noised != totals.noised_site):
        return None  # where some noise was for single rows alone, nothing can be promised about the whole table
    left = delta_left(policy.privacy, policy.delta, totals.noised + answers)
    return epsilon_of(totals.rho + answers * rho, left)


class Kept(LedgerTotals, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a ledger elsewhere: totals, the last entry, the rho that may be spent in all. The copy of it also
    has what receipts do not tell: the runs, groups of sites, their keys, and the last table."""

    site: str
    number: Count
    hash: Hash
    budget: float | None = None
    tokens: list[str] = []
    groups: list[str] = []
    roster: dict[str, str] = {}
    table: tuple[int, str] | None = None

    @property
    def head(self) -> ChainHead:
        return ChainHead(self.number, self.hash)


RECEIPT = b"fedlsa receipt\n"  # stands before what is signed


def digest_of(message: Message) -> str:
    """Of all that a message holds."""
    return hashlib.sha256(encode(message)).hexdigest()


def read_receipt(key: Any, site: str, text: str) -> Kept | None:
    """A receipt that this site signed; None of anything else."""
    try:
        found = msgspec.json.decode(text, type=dict[str, str])
        content, signature = found["said"], bytes.fromhex(found["signature"])
        signed = is_signed(key.public_key(), signature, RECEIPT + content.encode())
    except (msgspec.MsgspecError, ValueError, KeyError, RecursionError):
        return None
    try:
        kept = msgspec.json.decode(content, type=Kept) if signed else None
    except (msgspec.MsgspecError, ValueError):
        raise _of_earlier_state("a receipt that this site has signed") from None
    return kept if kept is not None and kept.site == site else None


def _of_earlier_state(what: str) -> NetworkError:
    """The error of what an earlier state of fedlsa has kept: it is not read, and never ignored."""
    do = "it tells of privacy spent, so go on with the program that wrote it, or make a new network"
    return NetworkError(f"{what} is of an earlier state of fedlsa, which this one does not read: {do}")


MOST_REFUSALS = 10_000  # that are entered: who asks in vain for ever shall not fill the disk
RESTORED, CLOSE = "restored", "close"  # what entries say that raise the totals, or close a run


@dataclass
class RunEntry:
    """What the ledger knows of a run. terms : their digest; labels : of the orders before the rounds, by kind."""

    name: str
    terms: str = ""
    rounds: int = 0
    closed: str = ""  # why it is not answered any more
    labels: dict[str, str] = field(default_factory=dict)

    def check_open(self) -> None:
        """Refuse a run that is not answered any more."""
        if self.closed:
            raise PolicyError(f"this site answers no more orders of the run {self.name}: {self.closed}")


class Ledger:
    """The ledger of one site, opened: verified to its last entry, compared with its copy."""

    def __init__(self, store: Database, copy: Path, site: str, key: Any = None) -> None:
        """copy : the file outside the site's folder; key : the site's private key (ECDSA), for receipts.

        Without a key the ledger is read and nothing is written: another process may be at work on it.
        """
        self.store, self.copy, self.site, self.key = store, copy, site, key
        for name in ("ledger.jsonl", f"ledger.{'[0-9]' * 6}.jsonl"):  # where it was before there was a store
            for path in store.path.parent.glob(name):
                raise _of_earlier_state(f"the ledger {path}")
        if key is not None:
            _make_place(copy)
        kept = self._read_copy()  # first: a process that writes is never behind its copy
        self.totals, self.head = LedgerTotals(), ChainHead()
        self.budget: float | None = None  # the rho that may be spent in all, which receipts tell
        self.runs: dict[str, RunEntry] = {}  # by token
        self.roster: dict[str, str] = {}  # fingerprints of sites, by name
        self.answered: dict[str, str] = {}  # digests of what left, by label
        self.groups: set[str] = set()  # of sites over which sums left
        self.table: tuple[int, str] | None = None  # rows and digest of the table in the last run
        self.hashes: list[str] = []
        self.noted: set[str] = set()  # refusals that are entered, and receipts that have been compared
        self.refusals, self.covered = 0, 0  # covered : number of the last entry whose totals were taken over
        self.numbers = 0  # that left in all
        try:
            self._catch_up()
        except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
            raise NetworkError(f"{store.path} holds an entry that is not of this version: {printable(error)}") from None
        except NetworkError as error:
            raise NetworkError(
                f"{error}. Nothing is answered with a damaged ledger: put it back from a backup, or put it aside "
                f"(rename it); then the totals of its copy {copy} count, and the runs of before are closed"
            ) from None
        if kept is None:
            self._write_copy()
        else:
            self._compare(kept, f"its copy {self.copy}")

    def check_label(self, label: str, digest: str) -> None:
        """Refuse a second answer to one order that is another than the first: masks would betray the difference."""
        if self.answered.get(label, digest) != digest:
            before = "this site has answered the same order before, from other data or another state"
            raise PolicyError(f"{before}, and gives no second answer under the same mask")

    def enter(self, run: str, token: str, asked: str, left: str, label: str, digest: str, **more: Any) -> str:
        """Note an answer that is about to leave, to the disk and to the copy, and return its receipt.

        asked : kind of the order; left : what leaves, in words; label : of the order; digest : of the answer
        more : numbers (how many leave), round, rho and unit, roster, terms, closed
        """
        self.check_label(label, digest)
        entry = {"run": run, "token": token, "asked": asked, "left": left, "label": label, "digest": digest, **more}
        if label in self.answered:
            entry = {name: value for name, value in entry.items() if name not in ("rho", "unit")} | {"again": True}
        self._append(entry)
        return self.receipt()

    def refuse(self, run: str, asked: str, text: str) -> str:
        """Note a refusal, the same one once; the receipt of the last entry."""
        key = f"{run} {asked} {text}"
        if key not in self.noted and self.refusals < MOST_REFUSALS:
            self.noted.add(key)
            self._append({"run": printable(run, 64), "asked": asked, "left": "refusal", "text": printable(text, 300)})
        return self.receipt()

    def close(self, run: str, token: str, why: str) -> None:
        """Note that a run that has an entry is answered no more."""
        if token in self.runs and not self.runs[token].closed:
            self._append({"run": run, "token": token, "asked": CLOSE, "left": "nothing", "closed": printable(why, 300)})

    def receipt(self) -> str:
        """The head and the totals, signed by the site."""
        content = msgspec.json.encode(self._kept())
        return json.dumps({"said": content.decode(), "signature": sign_bytes(self.key, RECEIPT + content).hex()})

    def compare_receipt(self, text: str) -> None:
        """Hold a receipt of before against the chain; one that this site did not sign says nothing."""
        kept = read_receipt(self.key, self.site, text)
        if kept is not None:
            self._compare(kept, "a receipt that the coordinator kept")

    def _append(self, entry: dict[str, Any], compared: ChainHead | None = None) -> None:
        """Write an entry and then the copy, which must be as this folder left it; compared : what it may be too."""
        self._catch_up()
        kept = self._read_copy()
        if kept is not None and kept.head != compared and not self._knows(kept.head):
            two = "two copies of this site's folder are at work, and each would spend the whole budget"
            what = f"its copy {self.copy} was written by another process meanwhile: {two}"
            raise NetworkError(f"{what}. End the other one, and join again: both count")
        self._fold(self.store.append(entry, self.head))  # else what was spent could be forgotten while this goes on
        self._write_copy()

    def _catch_up(self) -> None:
        """Take in the entries that others made in this folder."""
        for entry in self.store.entries(self.head):
            self._fold(entry)

    def _knows(self, kept: ChainHead) -> bool:
        """Whether the chain holds an entry, or what was kept of it has been taken over."""
        return str(kept) in self.noted or kept.hash in self.hashes[kept.number - 1 : kept.number] or kept.number == 0

    def _fold(self, entry: Mapping[str, Any]) -> None:
        """One more entry, in the totals."""
        self.head = ChainHead(entry["number"], entry["hash"])
        self.hashes.append(self.head.hash)
        self.numbers += int(entry.get("numbers", 0))
        t = self.totals
        if entry["asked"] == RESTORED:
            self.totals = msgspec.convert(entry["raised"], LedgerTotals)
            self.noted.add(entry["kept"])
            self.covered = max(self.covered, int(entry["kept"].partition(":")[0]))
            for token in entry["tokens"]:
                self.runs.setdefault(token, RunEntry("?"))
            for known in self.runs.values():
                known.closed = known.closed or "the ledger of this site was lost or restored since it began"
            self.table = tuple(entry["table"]) if entry["table"] else self.table
            self.roster, self.groups = {**entry["roster"], **self.roster}, self.groups | {*entry["groups"]}
            return
        if entry["left"] == "refusal":
            self.refusals += 1
            return
        if entry["asked"] == CLOSE:
            self.runs[entry["token"]].closed = entry["closed"]
            return
        if "group" in entry:  # of an earlier state: its group would not count
            raise KeyError("group")
        token, asked = entry["token"], entry["asked"]
        if token not in self.runs:
            self.runs[token] = RunEntry(entry["run"])
            t = replace(t, runs=t.runs + 1)
        known = self.runs[token]
        if not entry.get("again"):
            t = replace(t, rounds=t.rounds + (asked == "work"))
            if rho := float(entry.get("rho", 0.0)):
                t = replace(t, noised=t.noised + 1, rho=t.rho + rho)
                if entry["unit"] == "site":
                    t = replace(t, noised_site=t.noised_site + 1, rho_site=t.rho_site + rho)
            known.rounds += asked == "work"
        self.totals = replace(t, answers=t.answers + 1)
        known.terms = entry.get("terms", known.terms)
        known.closed = entry.get("closed", known.closed)
        known.labels.setdefault(asked, entry.get("order", entry["label"]))
        self.groups |= {*entry.get("groups", ())}
        self.table = tuple(entry["table"]) if "table" in entry else self.table
        self.answered[entry["label"]] = entry["digest"]
        self.roster.update(entry.get("roster", {}))

    def _write_copy(self) -> None:
        if self.key is None:
            return
        known = {"tokens": sorted(self.runs), "groups": sorted(self.groups), "roster": self.roster, "table": self.table}
        try:
            write(self.copy, msgspec.json.encode(self._kept(**known)), "it", mode=disk.SECRET)
        except FedLSAError as error:
            raise NetworkError(f"the copy of the ledger's totals must be written before an answer: {error}") from None

    def _kept(self, **more: Any) -> Kept:
        head = {"site": self.site, "number": self.head.number, "hash": self.head.hash, "budget": self.budget}
        return msgspec.convert({**asdict(self.totals), **head, **more}, Kept)

    def _read_copy(self) -> Kept | None:
        """What the copy says; None where there is none."""
        try:
            content = msgspec.json.decode(self.copy.read_bytes(), type=dict[str, Any])
            if "totals" in content:
                raise _of_earlier_state(f"the copy of the ledger's totals {self.copy}")
            return msgspec.convert(content, Kept)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(self.copy, error) from None
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            raise NetworkError(
                f"the copy of the ledger's totals {self.copy} is damaged; where the ledger {self.store.path} itself is "
                "whole and was never restored, remove the copy: it is written anew"
            ) from None

    def _compare(self, kept: Kept, where: str) -> None:
        """Raise the totals where the chain does not hold an entry that it once held."""
        if self._knows(kept.head):
            return
        larger = self.totals.combined(kept, both=False)
        if kept.number <= self.covered and larger == self.totals:
            return  # of the past that was taken over already
        branched = self.covered < kept.number <= self.head.number  # both pasts were answered: neither holds the other
        raised = self.totals.combined(kept, both=True) if branched else larger
        what = f"does not hold entry {kept.number} of {where}: it was lost or restored"
        if self.key is None:
            more = "from a backup. When the site joins again, the larger totals are taken over"
            raise NetworkError(f"the ledger {self.store.path} {what} {more}")
        known = {name: getattr(kept, name) for name in ("tokens", "groups", "roster", "table")}
        entry = {"asked": RESTORED, "left": "nothing", "kept": str(kept.head), "raised": asdict(raised), **known}
        self._append(entry | {"text": f"the ledger {what}"}, compared=kept.head)


def copy_place(folder: str, network: str, site: str) -> Path:
    """The file for the copy of a ledger's totals; folder : ledger_copy of the policy, or empty."""
    state_home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fedlsa"
    return (Path(folder) if folder else state_home) / f"{network}-{site}.ledger.json"


@contextlib.contextmanager
def sole_folder(copy: Path, folder: Path) -> Iterator[None]:
    """While it lasts, no copy of a site's folder takes part: a lock beside the ledger's copy says who holds it."""
    _make_place(copy)
    twice = "this site takes part already, and a second copy of its folder would spend the whole budget again"
    with only_one(copy.with_suffix(".lock"), f"{twice}: end that one", folder):
        yield


def _make_place(copy: Path) -> None:
    try:
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unreadable(copy, error) from None


def _unreadable(copy: Path, error: OSError) -> NetworkError:
    where = "ledger_copy of policy.toml names another folder"
    return NetworkError(f"the copy of the ledger's totals {copy} must be readable: {reason(error)}; {where}")


# The ledger for people: verified, its last entries, and what has been spent.


def ledger_report(folder: Path | str, last: int = 20) -> list[str]:
    """Verify a site's ledger against its chain and its copy, and say what it holds."""
    policy, ledger = _opened(folder)
    t, spent = ledger.totals, epsilon_spent(policy, ledger.totals)
    out = [_line(entry) for entry in ledger.store.last(last)]
    out.append(f"{ledger.store.path}: {ledger.head.number} entries, each holds the one before it; its copy agrees")
    most = f"{t.answers} answers of {policy.most_answers}, {t.runs} runs of {policy.most_runs}"
    out.append(f"in all: {most}, {t.rounds} rounds, {ledger.refusals} refusals")
    if policy.privacy != "none" and spent is None:
        out.append(f"privacy ({policy.privacy}): {NO_PROMISE}")
    elif policy.privacy != "none":
        used = f"epsilon {spent:.4g} of {policy.epsilon:g} is spent, at delta {policy.delta:g}"
        out.append(f"privacy ({policy.privacy}): {used}, by {t.noised} answers with noise")
    return [*out, f"keep this elsewhere: {ledger.head}"]


def ledger_facts(folder: Path | str) -> dict[str, Any]:
    """The same for programs, with every entry."""
    policy, ledger = _opened(folder)
    content: dict[str, Any] = {"head": str(ledger.head), "totals": asdict(ledger.totals), "refusals": ledger.refusals}
    content |= {"epsilon_spent": epsilon_spent(policy, ledger.totals)}
    return content | {"peers": ledger.roster, "entries": list(ledger.store.entries())}


def _opened(folder: Path | str) -> tuple[Policy, Ledger]:
    site = SiteFolder.load(folder)
    policy = Policy.load(site.policy)
    return policy, Ledger(Database(site.folder), copy_place(policy.ledger_copy, site.network, site.name), site.name)


def _line(entry: dict[str, Any]) -> str:
    asked = " ".join(str(entry[name]) for name in ("asked", "round") if name in entry)
    left = entry["left"] + (f" ({entry['numbers']} numbers)" if "numbers" in entry else "")
    more = [f"rho {entry['rho']:.3g}"] if "rho" in entry else []
    more += ["again"] * bool(entry.get("again")) + [str(entry[name]) for name in ("text", "closed") if name in entry]
    words = [entry.get("run", ""), asked, left, *more]
    return f"{place_of(entry)}  {printable('; '.join(w for w in words if w), 300)}"
