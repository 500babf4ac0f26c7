"""Messages come back as they were written, and whatever else comes is a MessageError that names what is wrong."""

import contextlib
import json
from dataclasses import fields, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedlsa.errors import FedLSAError, MessageError
from fedlsa.network.protocol.agreed_design import AgreedDesign
from fedlsa.network.protocol.messages import (
    ANSWERS,
    ORDERS,
    Describe,
    Description,
    Finish,
    Finished,
    Measure,
    Measurement,
    Refusal,
    Reply,
    Standardise,
    Sums,
    Work,
    mark,
    with_receipt,
)
from fedlsa.network.protocol.messages import read as read_one_of
from fedlsa.network.protocol.records import MAX_BYTES, VERSION, Record, pack, sign, unpack, verify

v = np.array([1.5, -2.0])
share = np.array([[1, -3], [7, 32767]], np.int16)
both = ('["a", "b"]', np.array([0.25, 0.75]))
acked = (np.array([0, 3]), np.array([0, 77]), np.array([3]), np.array([[0.5, 1.0]]))
design = AgreedDesign(("age", "bmi", "region"), (("region", ("north", "south")),)).text()
EXAMPLES = [
    Describe("e", '{"kind": "regression"}'),
    Description("e", 100, design, "receipt"),
    Standardise("e", *both, design),
    Sums("e", share),
    Measurement("e", 10, 20, 0.5, share),
    Measurement("e", 10, 20, 0.5, share, np.eye(2), v, np.zeros((3, 6))),
    Work("e", *both, 1, v, *acked, 5, 0.1, 10, 2.0, 0.0),
    Measure("e", *both, design, v, v, 0.5, 2.0, True, False),
    Reply("e", 0, 1, "aa", share),
    Refusal("e", 0, 1, "forgot", "the disk"),
    Finish("e", *both, 0, v, *acked, '["a", "b"]'),
    Finished("e", share),
]


def read(record):
    return read_one_of(record, (*ORDERS, *ANSWERS))


def same(one, other):
    assert type(one) is type(other)
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        else:
            assert (a, type(a)) == (b, type(b))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: m.KIND)
def test_a_message_survives_its_record(message):
    record = message.record()
    assert (record.meta["version"], record.meta["kind"]) == (VERSION, message.KIND)
    json.dumps(record.meta)
    same(type(message).from_record(record), message)
    same(read(record), message)
    same(read(unpack(pack(record))), message)
    assert record.size >= sum(a.nbytes for a in record.arrays.values())


def test_every_kind_has_an_example():
    assert {type(m) for m in EXAMPLES} == {*ORDERS, *ANSWERS}


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: m.KIND)
def test_a_record_with_any_field_missing_changed_in_type_or_added_is_refused(message):
    good = message.record()
    optional = {"A", "b", "noise_map"}
    for name in good.meta:
        rest = {n: value for n, value in good.meta.items() if n != name}
        with pytest.raises(MessageError):
            read(replace(good, meta=rest))
        for wrong in (None, [], b"x", 1j, np.float64(1.0), np.int64(1), float("nan"), 10**30):
            with pytest.raises(MessageError):
                read(replace(good, meta=good.meta | {name: wrong}))
    with pytest.raises(MessageError, match="no field 'zeal'"):
        read(replace(good, meta=good.meta | {"zeal": 1}))
    for name in good.arrays:
        rest = {n: value for n, value in good.arrays.items() if n != name}
        with pytest.raises(MessageError, match="come together" if name in optional else name):
            read(replace(good, arrays=rest))
        for wrong in (np.zeros(3, np.float32), np.zeros((4, 4, 4)), np.zeros(7, np.int8)):
            with pytest.raises(MessageError, match=name):
                read(replace(good, arrays=good.arrays | {name: wrong}))
        for wrong in (None, [1.0], np.array([{}]), np.array(["x"]), np.zeros(2, ">f8"), np.ma.masked_array([1.0])):
            with pytest.raises(MessageError, match="plain array"):
                read(replace(good, arrays=good.arrays | {name: wrong}))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (replace(EXAMPLES[1], design="nonsense"), "'design' must be columns and levels"),
        (replace(EXAMPLES[2], sites="[" * 100_000), "JSON list"),
        (replace(EXAMPLES[2], sites="[1]"), "JSON list"),
        (replace(EXAMPLES[1], rows=0), "'rows' must be positive"),
        (replace(EXAMPLES[2], sites='["a", "a"]'), "different names"),
        (replace(EXAMPLES[2], sites='["a"]'), "a weight each"),
        (replace(EXAMPLES[2], sites="{}"), "JSON list"),
        (replace(EXAMPLES[2], weights=np.array([0.0, 1.0])), "above 0"),
        (replace(EXAMPLES[2], weights=np.array([0.5, 0.6])), "at most 1"),
        (replace(EXAMPLES[4], rows=0), "'rows' and 'least_steps' must be positive"),
        (replace(EXAMPLES[6], gain=-1.0), "'gain' and 'clip' must be at least 0"),
        (replace(EXAMPLES[5], noise_map=np.zeros((3, 5))), "does not fit d = 2"),
        (replace(EXAMPLES[5], A=np.zeros((3, 3))), "'b' must have shape"),
        (replace(EXAMPLES[6], acked=np.array([0, 5]), acked_round=np.array([5])), "'acked' must be below"),
        (replace(EXAMPLES[6], acked=np.array([0, 4])), "'acked_round' must be the rounds of 'acked'"),
        (replace(EXAMPLES[6], acked=np.array([0, -3])), "'acked_round' must be the rounds of 'acked'"),
        (replace(EXAMPLES[6], acked=np.array([0, 3, 3])), "'acked' must have shape"),
        (replace(EXAMPLES[6], steps=0), "must be positive"),
        (replace(EXAMPLES[6], theta=np.array([np.inf, 0])), "'theta' must hold finite numbers"),
        (replace(EXAMPLES[6], acked_mean=np.zeros((1, 3))), "'acked_mean' must have shape"),
        (replace(EXAMPLES[6], acked_mean=np.zeros((2, 2))), "'acked_mean' must have shape"),
        (replace(EXAMPLES[9], reason="bored"), "'reason' must be one of"),
    ],
)
def test_rules_beyond_types_are_named(message, words):
    with pytest.raises(MessageError, match=words):
        read(message.record())


def test_another_kind_version_or_dimension_is_refused():
    record = EXAMPLES[6].record()
    with pytest.raises(MessageError, match="'kind' must be 'reply'; got 'work'"):
        Reply.from_record(record)
    with pytest.raises(MessageError, match="'kind' must be one of"):
        read(Record("gossip", {"version": VERSION, "kind": "gossip"}, {}))
    with pytest.raises(MessageError, match="'version' must be 3; got 1"):
        read(replace(record, meta=record.meta | {"version": 1}))
    with pytest.raises(MessageError, match=r"must have shape \(3\)"):
        Work.from_record(record, dim=3)
    assert issubclass(MessageError, FedLSAError)


def test_what_is_read_does_not_share_memory_with_the_record():
    record = EXAMPLES[6].record()
    work = Work.from_record(record)
    record.arrays["theta"][:] = 9
    np.testing.assert_array_equal(work.theta, v)
    np.testing.assert_array_equal(EXAMPLES[6].theta, v)


def test_a_label_follows_from_everything_in_an_order():
    work = EXAMPLES[6]
    one = work.label("token")
    for name in (field.name for field in fields(work)):
        value = getattr(work, name)
        other = value + "x" if isinstance(value, str) else value + 1
        assert replace(work, **{name: other}).label("token") != one, name
    assert work.label("token2") != one


def test_answers_bear_a_receipt_and_marks_tell_shares_apart():
    assert Reply.from_record(with_receipt(EXAMPLES[8], "r")).receipt == "r"
    assert mark(share) == mark(share.copy()) != mark(share[::-1].copy())
    assert 0 <= mark(share) < 2**48


def damaged(body):
    yield b""
    yield b"\0\0\0"
    for end in (5, 20, len(body) // 2, len(body) - 1):
        yield body[:end]
    yield body + b"\0"
    yield b"\xff\xff\xff\xff" + body[4:]
    for old, new in ((b'"f8"', b'"O8"'), (b"[2]", b"[3]"), (b"[2]", b"[-2]"), (b'"arrays"', b'"arrows"')):
        assert old in body
        changed = body[4:].replace(old, new)
        length = int.from_bytes(body[:4], "big") + len(new) - len(old)
        yield length.to_bytes(4, "big") + changed
    yield (100_000).to_bytes(4, "big") + b"[" * 100_000


def test_bytes_that_are_no_record_are_refused():
    body = pack(EXAMPLES[6].record())
    for bad in damaged(body):
        with pytest.raises(MessageError):
            unpack(bad)
    rng = np.random.default_rng(0)
    for _ in range(300):  # a changed byte is another record, or none; never another error
        at = int(rng.integers(len(body)))
        with contextlib.suppress(MessageError):
            unpack(body[:at] + bytes([body[at] ^ int(rng.integers(1, 256))]) + body[at + 1 :])


def test_a_seal_is_good_for_one_writer_purpose_network_site_and_body():
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    public, body = key.public_key(), pack(EXAMPLES[6].record())
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
