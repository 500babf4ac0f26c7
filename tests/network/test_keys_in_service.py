"""Certificates and keys change while real processes serve and join: who is let in, what goes on, and what is said."""

import json
import re

import numpy as np
import pytest
from deployment import after_round, deployed

from fedlsa.network.folder import certificates, setup


def approve(it, site, **how):
    folder = it.folders[site]
    asked = certificates.fingerprint(folder.certificate.read_bytes())
    setup.approve(it.network.folder, folder.certificate, asked, **how)


def renew(it, site):
    """New dates for the same keys."""
    folder = it.folders[site]
    keys = folder.key.read_bytes(), folder.mask_key.read_bytes()
    folder.certificate.write_bytes(certificates.certify_site(site, folder.network, *keys))
    approve(it, site, renew=True)


def compare_fingerprints(it):
    """The people at all sites telephone, and enter what they hear."""
    heard = {site: certificates.fingerprint(folder.certificate.read_bytes()) for site, folder in it.folders.items()}
    for site, folder in it.folders.items():
        peers = json.dumps([heard[other] for other in heard if other != site])
        text, count = re.subn(r"^peers = .*$", f"peers = {peers}", folder.policy.read_text(), flags=re.M)
        assert count == 1
        folder.policy.write_text(text)


@pytest.mark.long
def test_certificates_and_keys_change_in_service(tmp_path):
    with deployed(tmp_path, 3) as it:
        two, three = it.sites["site-2"], it.sites["site-3"]
        before = two.pid

        result = it.run("renewed", after_round(2, lambda: renew(it, "site-2")), rounds=30)
        np.testing.assert_allclose(result["theta"], it.simulated(30), rtol=1e-7)
        assert (two.pid, two.running) == (before, True)  # it came back by itself, with the new certificate
        it.until(lambda: "its certificate is no longer approved; closed" in it.said("serve"), "the old one is refused")

        setup.enrol_site(it.folders["site-3"].folder, new_key=True)
        approve(it, "site-3", renew=True)
        assert three.wait() == 2  # it would sign and mask with keys that are no longer the site's
        assert "this site has new keys: join again" in it.said("site-3")
        three.start()
        it.until(lambda: it.here("site-3"), "site-3 is back with new keys")

        run = it.begin("unknown-keys")
        it.until(lambda: run.over, "the run ends")
        assert re.search(
            r"site-[12] refused: .*site-3 comes with another key than before", run.read("failed.json")["error"]
        )
        compare_fingerprints(it)
        it.again(it.sites["site-1"], two)
        result = it.run("compared", rounds=6)
        np.testing.assert_allclose(result["theta"], it.simulated(6), rtol=1e-7)

        setup.revoke(it.network.folder, "site-1")
        it.until(lambda: not it.here("site-1"), "site-1 is shut out")
        it.until(lambda: "or was revoked" in it.said("site-1"), "site-1 is told why")
        run = it.begin("without-one")
        it.until(lambda: "waiting for site-1" in (run.last_text() or ""), "the run waits, and says for whom")
        run.ask_to_stop()
        it.until(lambda: run.over, "the run ends")
        assert run.read("result.json")["over"] == "it was stopped before its first round"
