"""The totals of a ledger, and receipts of them that the site signs and the coordinator keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import FedLSAError
from ..chain import ChainHead
from ..protocol.records import Message


@dataclass(frozen=True)
class LedgerTotals:
    """Over all runs. rho : spent by answers with noise (privacy.py), of which there are `noised`."""

    answers: int = 0
    runs: int = 0
    rounds: int = 0
    noised: int = 0
    rho: float = 0.0

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> LedgerTotals:
        """From JSON that somebody else may have written."""
        values = {name: content[name] for name in ("answers", "runs", "rounds", "noised")}
        rho = content["rho"]
        if any(type(v) is not int or not 0 <= v < 2**53 for v in values.values()):
            raise ValueError("counts must be integers of at least 0")
        if type(rho) not in (int, float) or not 0 <= rho < float("inf"):
            raise ValueError("rho must be at least 0")
        return cls(**values, rho=float(rho))

    def combined(self, other: LedgerTotals, both: bool) -> LedgerTotals:
        """The larger of each, or with `both` their sums: for two branches of one past, of which each was answered."""
        pairs = {name: (value, asdict(other)[name]) for name, value in asdict(self).items()}
        return LedgerTotals(**{name: sum(pair) if both else max(pair) for name, pair in pairs.items()})


def digest_of(message: Message) -> str:
    """Of all that a message holds."""
    record = message.record()
    digest = hashlib.sha256(json.dumps(record.meta, sort_keys=True).encode())
    for name in sorted(record.arrays):
        digest.update(name.encode() + record.arrays[name].tobytes())
    return digest.hexdigest()


def write_receipt(key: Any, content: Mapping[str, Any]) -> str:
    """A receipt; key : the site's private key (ECDSA); content : site, number and hash of the head, totals."""
    said = json.dumps(content, sort_keys=True)
    return json.dumps({"said": said, "signature": _sign(key, said).hex()})


def read_receipt(key: Any, site: str, text: str) -> tuple[ChainHead, LedgerTotals] | None:
    """Head and totals of a receipt that this site signed; None of anything else."""
    try:
        found = json.loads(text)
        said, signature = found["said"], bytes.fromhex(found["signature"])
        if not _verify(key, said, signature):
            return None
        kept = json.loads(said)
        if kept["site"] != site:
            return None
        return ChainHead.from_text(f"{kept['number']}:{kept['hash']}"), LedgerTotals.read(kept)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, FedLSAError):
        return None


def _sign(key: Any, content: str) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return bytes(key.sign(b"fedlsa receipt\n" + content.encode(), ec.ECDSA(hashes.SHA256())))


def _verify(key: Any, content: str, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key.public_key().verify(signature, b"fedlsa receipt\n" + content.encode(), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
