"""A site's no: why an order was not followed, in words that tell nothing of the table."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import FedLSAError, MessageError, PolicyError, SiteDataError
from ..protocol.messages import Finish, Refusal, Work
from ..protocol.records import Message, Record, printable
from .approvals import ApprovalMissing
from .ledger import Ledger


def refusal(message: Message | None, error: Exception, ledger: Ledger, say: Callable[[str], None]) -> Record:
    """What is answered, with an entry in the ledger; what may quote the table stays in the site's log (say)."""
    reasons = ((ApprovalMissing, "approval"), (PolicyError, "policy"), (MessageError, "other"))
    reason = next((word for kind, word in reasons if isinstance(error, kind)), "data")
    round_ = message.round if isinstance(message, Work) else 0
    generation = message.generation if isinstance(message, Work | Finish) else 0
    name, asked = (printable(message.experiment, 64), message.KIND) if message else ("", "?")
    text = printable(error, 500)
    if isinstance(error, SiteDataError | OSError) or not isinstance(error, FedLSAError):
        say(f"{name}: {type(error).__name__}: {text}")  # it may quote what is in the table
        text = "this site cannot read its data or its files; its own log says why"
    try:
        receipt = ledger.refuse(name, asked, text)
    except FedLSAError as unwritten:  # a full disk: a refusal holds nothing that must be counted
        say(str(unwritten))
        receipt = ""
    return Refusal(name, generation, round_, reason, text, receipt).record()
