"""Certificates that change while a run goes on: its terms stay, and nobody masks with a key that others do not know."""

import shutil

import pytest

from fedlsa.errors import MessageError, NetworkError
from fedlsa.network.coordinator.agreement import Inquiry
from fedlsa.network.coordinator.runs import RunFolder
from fedlsa.network.folder import certificates, setup
from fedlsa.network.folder.config import Network, SiteFolder
from fedlsa.network.protocol.run_settings import StartOptions
from fedlsa.network.site.limits import mask_secrets


class Lobby:
    """A transport that reaches nobody; while a run waits, `happens` takes place."""

    def __init__(self, happens=lambda: None):
        self.happens, self.looks = happens, 0

    def present(self):
        self.looks += 1
        assert self.looks < 30, "it waits for ever"
        self.happens()
        return ()

    def ask(self, orders, deadline):
        return iter(())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A network of three sites that nobody changes, two of them enrolled."""
    root = tmp_path_factory.mktemp("made")
    network = setup.init(root / "net", 3, "127.0.0.1")
    for site in ("site-1", "site-2"):
        setup.enrol(network, network.bundle(site), root / site)
    return root


@pytest.fixture
def world(made, tmp_path):
    """A copy of it, and a run."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    network = Network.load(tmp_path / "net")
    return network, RunFolder.create(network, StartOptions(epsilon=0.1, name="trial"))


def enrol(network, site):
    return setup.enrol(network, network.bundle(site), network.folder.parent / site)


def change_keys(network, site):
    """The site makes new keys in the middle of a run, and they are approved."""
    setup.enrol_site(site.folder, new_key=True)
    asked = certificates.fingerprint(site.certificate.read_bytes())
    setup.approve(network.folder, site.certificate, asked, renew=True)


def terms(inquiry):
    return inquiry.describe("site-1").terms


def test_a_run_waits_until_every_site_is_approved_and_says_for_whom(world):
    network, run = world
    waited = []

    def happens():
        waited.append(run.last_text())
        if len(waited) == 2:
            enrol(network, "site-3")

    said = terms(Inquiry(network, run, Lobby(happens)))
    assert waited[1].startswith("waiting for site-3, whose certificate nobody has approved (fedlsa network approve)")
    assert said.sites == network.sites
    assert [p.encode() for p in said.certificates] == [network.site_certificate(s).read_bytes() for s in said.sites]


def test_a_run_that_waits_can_be_stopped(world):
    network, run = world
    with pytest.raises(NetworkError, match="it was stopped before site-3 had a certificate"):
        Inquiry(network, run, Lobby(run.ask_to_stop)).describe("site-1")


def test_a_certificate_that_is_not_of_this_network_ends_the_run(world, tmp_path):
    network, run = world
    other = setup.init(tmp_path / "other", 3, "127.0.0.1")
    enrol(network, "site-3")
    foreign = setup.enrol(other, other.bundle("site-3"), tmp_path / "foreign")
    shutil.copy(foreign.certificate, network.site_certificate("site-3"))
    with pytest.raises(NetworkError, match="must be for site-3 of network"):
        Inquiry(network, run, Lobby()).describe("site-1")


def test_terms_stay_when_certificates_are_renewed_or_revoked_and_sites_come_and_go(world):
    network, run = world
    enrol(network, "site-3")
    first = terms(Inquiry(network, run, Lobby()))
    setup.revoke(network.folder, "site-1")
    change_keys(network, SiteFolder.load(network.folder.parent / "site-2"))
    setup.remove_site(network.folder, "site-3")
    setup.add_site(network.folder, "oslo")
    again = Inquiry(Network.load(network.folder), run, Lobby())  # as after a restart
    assert terms(again) == first
    assert again.network.sites == ("site-1", "site-2", "site-3")


def test_without_secure_aggregation_no_certificate_is_waited_for(world):
    network, _ = world
    shutil.rmtree(network.runs / "trial")
    run = RunFolder.create(network, StartOptions(epsilon=0.1, name="plain", aggregation="plain"))
    said = terms(Inquiry(network, run, Lobby()))
    assert (said.sites, said.certificates) == (network.sites, ())
    setup.add_site(network.folder, "oslo")
    assert terms(Inquiry(Network.load(network.folder), run, Lobby())) == said


def test_a_site_does_not_mask_with_keys_that_the_run_does_not_know(world):
    network, run = world
    enrol(network, "site-3")
    sites = [SiteFolder.load(network.folder.parent / name) for name in network.sites]
    said = terms(Inquiry(network, run, Lobby()))
    shared = {site.name: mask_secrets(said, site) for site in sites}
    for a in network.sites:
        assert set(shared[a]) == set(network.sites) - {a}
        for b in shared[a]:
            assert shared[a][b] == shared[b][a]
    change_keys(network, sites[0])
    with pytest.raises(MessageError, match="the run began with other keys of this site"):
        mask_secrets(said, sites[0])
