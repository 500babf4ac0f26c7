"""Messages come back as they were written, and whatever else comes is a MessageError that names what is wrong."""

import contextlib
from typing import get_args

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from fedlsa.errors import FedLSAError, MessageError
from fedlsa.network.protocol.agreed_design import AgreedDesign
from fedlsa.network.protocol.codec import MAX_BYTES, VERSION, decode, encode, sign, verify
from fedlsa.network.protocol.messages import (
    Answers,
    Describe,
    Description,
    Finish,
    Finished,
    Measure,
    Measurement,
    Orders,
    Refusal,
    Reply,
    Score,
    Solve,
    Standardise,
    Sums,
    Work,
    mark,
)
from fedlsa.network.protocol.ring import Coding
from fedlsa.network.protocol.run_settings import RunTerms

v = np.array([1.5, -2.0])
share = np.array([[1, -3], [7, 32767]], np.int16)
both = (("a", "b"), np.array([0.25, 0.75]))
past = (4, bytes(32), np.zeros((1, 73), np.uint8), np.array([0, 77]), np.array([3]), np.array([[0.5, 1.0]]))
design = AgreedDesign(("age", "bmi", "region"), (("region", ("north", "south")),))
terms = RunTerms(
    task="{}", token="t", method="scafflsa", local="rows", aggregation="plain", coding=Coding(), sites=("a", "b")
)
EXAMPLES = [
    Describe("e", terms),
    Description("e", 100, design, receipt="receipt"),
    Standardise("e", *both, design),
    Sums("e", share),
    Measurement("e", 10, 20, 0.5, share),
    Measurement("e", 10, 20, 0.5, share, np.eye(2), v, np.zeros((3, 6))),
    Work("e", *both, 1, v, *past, 5, 0.1, 10, 2.0, 0.0),
    Measure("e", *both, design, v, v, 0.5, 2.0, True),
    Reply("e", 0, 1, "aa", share),
    Refusal("e", 0, 1, "forgot", "the disk"),
    Finish("e", *both, 0, v, *past, ("a", "b")),
    Finished("e", share),
    Solve("e", *both, 0, v, *past),
    Score("e", *both, 0, v, *past, v[None]),
    Score("e", *both, 0, v, *past, v[None], np.eye(2), np.eye(2)),
]
ANY = Orders | Answers


def same(one, other):
    assert type(one) is type(other)
    for name in one.__struct_fields__:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        else:
            assert (a, type(a)) == (b, type(b))


def as_written(message, **changes):
    """The bytes of a message whose fields somebody else chose; None leaves one out."""
    fields = msgspec.msgpack.decode(encode(message)[1:]) | changes
    return bytes([VERSION]) + msgspec.msgpack.encode({k: x for k, x in fields.items() if x is not None})


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: m.kind)
def test_a_message_comes_back_as_it_was_and_is_written_in_one_way(message):
    body = encode(message)
    same(decode(body, ANY), message)
    assert encode(decode(body, ANY)) == body


def test_every_kind_has_an_example():
    assert {type(m) for m in EXAMPLES} == {*get_args(ANY)}


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: m.kind)
def test_a_message_with_any_field_missing_changed_in_type_or_added_is_refused(message):
    optional = {"receipt", "target", "scores", "spread"}
    if getattr(message, "A", None) is None or message.kind == "score":
        optional |= {"A", "b", "noise_map"}
    for name in ("type", *message.__struct_fields__):
        if name not in optional:
            with pytest.raises(MessageError):
                decode(as_written(message, **{name: None}), ANY)
        for wrong in (b"x", msgspec.msgpack.Ext(7, b""), {"x": 1}, [[[]]]):
            with pytest.raises(MessageError):
                decode(as_written(message, **{name: wrong}), ANY)
    with pytest.raises(MessageError, match="unknown field `zeal`"):
        decode(as_written(message, zeal=1), ANY)


@pytest.mark.parametrize(
    ("example", "change", "words"),
    [
        (1, {"rows": 0}, "'rows' must be positive"),
        (1, {"rows": -1}, "'rows' must be at least 0"),
        (2, {"sites": ("a", "a")}, "different names"),
        (2, {"sites": ("a",)}, "a weight each"),
        (2, {"sites": ()}, "a weight each"),
        (2, {"weights": np.array([0.0, 1.0])}, "above 0"),
        (2, {"weights": np.array([0.5, 0.6])}, "at most 1"),
        (4, {"rows": 0}, "'rows' and 'least_steps' must be positive"),
        (4, {"largest_eta": float("inf")}, "'largest_eta' must be finite"),
        (6, {"gain": -1.0}, "'gain' and 'clip' must be at least 0"),
        (5, {"noise_map": np.zeros((3, 5))}, "does not fit d = 2"),
        (5, {"A": np.zeros((3, 3))}, "'b' must have shape"),
        (5, {"A": None}, "must come together"),
        (6, {"rounds": np.array([3, 3])}, "'means' must have shape"),
        (6, {"rounds": np.array([3, 2]), "means": np.zeros((2, 2))}, "'rounds' must increase"),
        (6, {"base": b"short"}, "'base' must have 32 bytes"),
        (6, {"marks": np.array([0, 3, 3])}, "'marks' must have shape"),
        (6, {"entries": np.zeros(73, np.uint8)}, "'entries' must have shape"),
        (6, {"entries": np.zeros((1, 73))}, "'entries' must be an array of uint8"),
        (6, {"steps": 0}, "must be positive"),
        (6, {"eta": float("nan")}, "'eta' must be finite"),
        (6, {"theta": np.array([np.inf, 0])}, "'theta' must hold finite numbers"),
        (6, {"means": np.zeros((1, 3))}, "'means' must have shape"),
        (9, {"reason": "bored"}, "'reason' must be one of"),
    ],
)
def test_rules_beyond_types_are_named_when_a_message_is_made_and_when_it_is_read(example, change, words):
    message = EXAMPLES[example]
    with pytest.raises(MessageError, match=words):
        replace(message, **change)
    fields = msgspec.msgpack.decode(encode(message)[1:])
    written = {k: msgspec.msgpack.decode(encode(x)[1:]) for k, x in change.items()}
    body = bytes([VERSION]) + msgspec.msgpack.encode(fields | written)
    with pytest.raises(MessageError, match=words):
        decode(body, ANY)


def test_designs_and_terms_inside_a_message_are_read_as_strictly():
    for levels in ((("region", ()),), (("region", ("a", 1)),), (("r", ("a",)), ("r", ("b",))), (("r", (np.inf,)),)):
        with pytest.raises(MessageError):
            AgreedDesign(("age",), levels)
    for said in ({"columns": ["a", "a"]}, {"columns": []}, {"columns": ["a"], "zeal": 1}, {"columns": ["x" * 201]}):
        with pytest.raises(MessageError):
            decode(as_written(EXAMPLES[1], design=said), ANY)
    said = msgspec.msgpack.decode(encode(terms)[1:])
    for change in (
        {"method": "fedavg"},
        {"sites": ["../x"]},
        {"sites": []},
        {"rounds": True},
        {"coding": {"noise": 1.0}},
    ):
        with pytest.raises(MessageError):
            decode(as_written(EXAMPLES[0], terms=said | change), ANY)


def test_another_kind_or_version_is_refused():
    with pytest.raises(MessageError):
        decode(encode(EXAMPLES[6]), Reply)
    with pytest.raises(MessageError):
        decode(as_written(EXAMPLES[6], type="gossip"), ANY)
    with pytest.raises(MessageError, match=f"must have version {VERSION}; got 1"):
        decode(b"\x01" + encode(EXAMPLES[6])[1:], ANY)
    assert issubclass(MessageError, FedLSAError)


def test_a_label_follows_from_everything_in_an_order_the_run_and_its_past():
    work = EXAMPLES[6]
    one = work.label("token", b"head")
    for name in work.__struct_fields__:
        value = getattr(work, name)
        other = (
            value + "x"
            if isinstance(value, str)
            else (
                ("a", "c")
                if name == "sites"
                else b"\1" * 32
                if name == "base"
                else work.weights / 2
                if name == "weights"
                else value + 1
            )
        )
        assert replace(work, **{name: other}).label("token", b"head") != one, name
    assert work.label("token2", b"head") != one
    assert work.label("token", b"heads") != one


def test_marks_tell_shares_apart():
    assert mark(share) == mark(share.copy()) != mark(share[::-1].copy())
    assert 0 <= mark(share) < 2**48


def test_bytes_that_are_no_message_are_refused():
    body = encode(EXAMPLES[6])
    for bad in (b"", b"\0\0", body + b"\0", body[:1], *(body[:end] for end in range(2, len(body), 7))):
        with pytest.raises(MessageError):
            decode(bad, ANY)
    rng = np.random.default_rng(0)
    for _ in range(2000):  # a changed byte is another message, or none; never another error
        at = int(rng.integers(len(body)))
        with contextlib.suppress(MessageError):
            decode(body[:at] + bytes([body[at] ^ int(rng.integers(1, 256))]) + body[at + 1 :], ANY)


def test_a_seal_is_good_for_one_writer_purpose_network_site_and_body():
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    public, body = key.public_key(), encode(EXAMPLES[6])
    sealed = sign(key, "order", "net", "site-1", body)
    assert verify(public, "order", "net", "site-1", sealed) == body
    for said in (("answer", "net", "site-1"), ("order", "net2", "site-1"), ("order", "net", "site-2")):
        with pytest.raises(MessageError, match="must be signed by who is said"):
            verify(public, *said, sealed)
    with pytest.raises(MessageError, match="must be signed"):
        verify(other.public_key(), "order", "net", "site-1", sealed)
    for at in (0, 1, 5, 40, len(sealed) - 1):
        with pytest.raises(MessageError, match="must be signed"):
            verify(public, "order", "net", "site-1", sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])
    for bad in (b"", b"\0", sealed[:30], body):
        with pytest.raises(MessageError, match="must be signed"):
            verify(public, "order", "net", "site-1", bad)
    with pytest.raises(MessageError, match="at most"):
        verify(public, "order", "net", "site-1", sealed + bytes(MAX_BYTES))
