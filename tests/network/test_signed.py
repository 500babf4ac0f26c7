"""Signed orders and answers over a carrier that does what an attacker in its place could do."""

import pytest

import fedlsa as fl
from fedlsa.errors import MessageError
from fedlsa.network.carriers import SignedSite, SignedTransport
from fedlsa.network.folder import setup
from fedlsa.network.protocol.codec import decode, encode, sign
from fedlsa.network.protocol.messages import Describe, Refusal
from fedlsa.network.protocol.ring import Coding
from fedlsa.network.protocol.run_settings import RunTerms


class Wire:
    """A carrier within this process; `meddle` sees every answer, and may put another in its place."""

    def __init__(self, sites):
        self.sites, self.orders, self.answers = sites, [], []
        self.meddle = lambda site, order, answer: answer

    def present(self):
        return tuple(self.sites)

    def ask(self, orders, deadline):
        for site, order in orders.items():
            answer = self.sites[site](order)
            self.orders.append(order)
            self.answers.append(answer)
            yield site, self.meddle(site, order, answer)


def echo(body):
    return encode(Refusal("run", 0, 0, "other", decode(body, Describe).terms.token))


def describe(token):
    said = {"task": "{}", "method": "scafflsa", "local": "rows", "aggregation": "plain", "coding": Coding()}
    return Describe("run", RunTerms(token=token, sites=("site-1",), **said))


@pytest.fixture
def wire(tmp_path):
    network = setup.init(tmp_path / "net", 2, "127.0.0.1", task=fl.Regression("y"))
    folders = {name: setup.enrol(network, network.bundle(name), tmp_path / name) for name in network.sites}
    carrier = Wire({name: SignedSite(folder, echo) for name, folder in folders.items()})
    carrier.network, carrier.folders = network, folders
    carrier.transport = SignedTransport(carrier, network)
    return carrier


def ask(wire, terms="a", sites=("site-1",)):
    return dict(wire.transport.ask({site: describe(terms) for site in sites}, 1.0))


def refused(wire, what, **arguments):
    answer = ask(wire, **arguments)["site-1"]
    assert isinstance(answer, MessageError)
    assert what in str(answer)


def test_a_message_goes_there_and_back_to_the_last_bit(wire):
    found = ask(wire, sites=("site-1", "site-2"))
    assert [answer.text for answer in found.values()] == ["a", "a"]


def test_an_answer_to_an_earlier_order_is_refused_and_one_to_the_same_order_is_good(wire):
    ask(wire, "first")
    wire.meddle = lambda site, order, answer: wire.answers[0]
    refused(wire, "it is to another one", terms="second")
    assert ask(wire, "first")["site-1"].text == "first"  # the same order, sent again


def test_garbage_truncation_flipped_bits_and_what_another_site_signed_are_refused(wire):
    ask(wire, sites=("site-2",))
    other = wire.answers[0]
    for what in (b"", b"\0", b"\xff" * 70, bytes(17 * 2**20), other):
        wire.meddle = lambda site, order, answer, what=what: what
        refused(wire, "must")
    wire.meddle = lambda site, order, answer: answer[:-1]
    refused(wire, "signed")
    for place in (0, 5, 90, -1):
        flip = lambda site, order, answer, place=place: bytes(  # noqa: E731
            b ^ (i == place % len(answer)) for i, b in enumerate(answer)
        )
        wire.meddle = flip
        refused(wire, "signed")


def test_an_order_sent_back_is_no_answer_and_an_answer_is_no_order(wire):
    wire.meddle = lambda site, order, answer: order
    refused(wire, "signed")
    with pytest.raises(MessageError, match="order must be signed"):
        wire.sites["site-1"](wire.answers[0])


def test_a_site_obeys_nobody_but_the_coordinator_and_only_what_is_meant_for_it(wire, tmp_path):
    ask(wire, sites=("site-2",))
    with pytest.raises(MessageError, match="order must be signed"):
        wire.sites["site-1"](wire.orders[0])  # an order for another site
    order = encode(describe("forged"))
    forged = sign(wire.sites["site-2"].key, "order", wire.network.id, "site-1", order)
    with pytest.raises(MessageError, match="order must be signed"):
        wire.sites["site-1"](forged)  # with the key of another site
    other = setup.init(tmp_path / "other", 1, "127.0.0.1", task=fl.Regression("y"))
    foreign = SignedTransport(wire, other)
    with pytest.raises(MessageError, match="order must be signed"):
        list(foreign.ask({"site-1": describe("a")}, 1.0))  # of another network


def test_the_answers_of_a_revoked_site_are_refused(wire):
    wire.network.site_certificate("site-1").unlink()
    refused(wire, "no approved certificate")


def test_an_answer_from_a_key_that_was_replaced_is_refused(wire):
    path = wire.network.site_certificate("site-1")
    path.write_bytes(wire.network.site_certificate("site-2").read_bytes())
    refused(wire, "signed")


def test_what_is_signed_but_is_no_message_is_refused(wire):
    import hashlib

    site = wire.sites["site-1"]

    def meddle(_, order, answer):
        body = hashlib.sha256(wire.body).digest() + b"no record"
        return sign(site.key, "answer", wire.network.id, "site-1", body)

    wire.body, wire.meddle = encode(describe("a")), meddle
    refused(wire, "must have version")
