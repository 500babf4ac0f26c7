"""The other sites of a run: whether they are who they were, and the secrets that this site shares with each for masks.

Masks hide this site's answers from who does not know these secrets. A coordinator that could put keys of its own in
the place of other sites' would know them: so keys are those whose fingerprints a person has compared (`peers` of the
policy), or where there are none those of the first run, and others are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import MessageError
from ..folder.certificates import SiteIdentity, check_site, mask_key
from ..folder.config import SiteFolder
from ..protocol.ring import pair_secret
from ..protocol.run_settings import RunTerms
from .limits import refused
from .policy import Policy, plain_fingerprint


def check_peers(policy: Policy, terms: RunTerms, site: SiteFolder, pinned: Mapping[str, str]) -> dict[str, str]:
    """The fingerprints of the other sites by name; keys that are not known here are refused.

    pinned : fingerprints of the first run, by name; empty before it
    """
    if not terms.secure:
        return {}
    compared = {plain_fingerprint(text) for text in policy.peers}
    out: dict[str, str] = {}
    for name, found in _others(terms, site).items():
        own = plain_fingerprint(found.fingerprint)
        out[name] = own
        known = own in compared if compared else pinned.get(name, "" if pinned else own) == own
        if not known:
            what = "another key than before" if name in pinned else "a key that nobody here has compared"
            raise refused(
                "peers", f"{name} comes with {what}, fingerprint {found.fingerprint}; ask that site, then enter it"
            )
    return out


def mask_secrets(terms: RunTerms, site: SiteFolder) -> dict[str, bytes]:
    """What this site shares with each other site of a run; nothing with plain aggregation."""
    if not terms.secure:
        return {}
    private = mask_key(site.mask_key.read_bytes())
    return {name: pair_secret(private, found.mask) for name, found in _others(terms, site).items()}


def _others(terms: RunTerms, site: SiteFolder) -> dict[str, SiteIdentity]:
    """The other sites by name, all of this network, each with a key of its own; the run must know this site's own."""
    ca, mask = site.ca.read_bytes(), mask_key(site.mask_key.read_bytes()).public_key().public_bytes_raw()
    pems = zip(terms.sites, terms.certificates, strict=True)
    out = {name: check_site(pem.encode(), ca, site.network, name) for name, pem in pems}
    if len({found.mask for found in out.values()}) < len(out):
        raise MessageError("'certificates' must have a key for masks for each site; two are the same")
    if out.pop(site.name).mask != mask:  # nobody could take away what this site adds
        raise MessageError("the run began with other keys of this site; with new ones it takes part in later runs")
    return out
