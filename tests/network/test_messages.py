"""Messages come back as they were written, and whatever else comes is a MessageError that names what is wrong."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from fedlsa.errors import FedLSAError, MessageError
from fedlsa.network.protocol.messages import (
    KINDS,
    Describe,
    Description,
    Finish,
    Finished,
    Measure,
    Measurement,
    Refusal,
    Reply,
    Work,
    read,
)
from fedlsa.network.protocol.records import VERSION, Record

v = np.array([1.5, -2.0])
EXAMPLES = [
    Describe("e", '{"kind": "regression"}'),
    Description("e", 100, '["age", "bmi"]', np.ones(3), np.ones(3), np.ones(3)),
    Description("e", 1, '["x"]', np.zeros(0), np.zeros(0), np.zeros(0)),
    Measure("e", v, v, 0.5, 2.0, True, False),
    Measurement("e", 10, 0.1, 2.0, 3.0),
    Measurement("e", 10, -0.1, 2.0, 3.0, np.eye(2), v, np.zeros((3, 6))),
    Work("e", 1, v, 3, v + 1, 2.0, 0.5, 77, v + 2, 5, 0.1, 10, 40, 2**63 - 1, 3),
    Reply("e", 0, 1, 0.5, {"delta": v}),
    Reply("e", 0, 1, 0.5, {"codes": np.array([1, -3], np.int8), "scale": np.array([0.1])}),
    Refusal("e", 0, 1, "forgot", "the disk"),
    Finish("e", 0, v, 1, v, 1.0, 1.0, 5, v, '["a", "b"]'),
    Finished("e"),
]


def same(one, other):
    assert type(one) is type(other)
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, dict):
            assert a.keys() == b.keys()
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])
                assert a[name].dtype == b[name].dtype
        elif isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
        else:
            assert (a, type(a)) == (b, type(b))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: m.KIND)
def test_a_message_survives_its_record(message):
    record = message.record()
    assert (record.meta["version"], record.meta["kind"]) == (VERSION, message.KIND)
    json.dumps(record.meta)
    same(type(message).from_record(record), message)
    same(read(record), message)
    assert record.size >= sum(a.nbytes for a in record.arrays.values())


def test_every_kind_has_an_example():
    assert {m.KIND for m in EXAMPLES} == KINDS.keys()


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: m.KIND)
def test_a_record_with_any_field_missing_changed_in_type_or_added_is_refused(message):
    good = message.record()
    optional = {"A", "b", "noise_map"} if good.arrays.keys() == {"A", "b", "noise_map"} else set()
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
        if not isinstance(message, Reply):  # whose payload coding.py reads
            with pytest.raises(MessageError, match="come together" if optional else name):
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
        (replace(EXAMPLES[1], names="nonsense"), "JSON list"),
        (replace(EXAMPLES[1], names="[" * 100_000), "JSON list"),
        (replace(EXAMPLES[1], names="[1]"), "JSON list"),
        (replace(EXAMPLES[1], rows=0), "'rows' must be positive"),
        (replace(EXAMPLES[1], scatter=-np.ones(3)), "at least 0"),
        (replace(EXAMPLES[1], mean=np.ones(4)), "'scatter' must have shape"),
        (replace(EXAMPLES[4], lowest=5.0), "'lowest' at most 'highest'"),
        (replace(EXAMPLES[5], noise_map=np.zeros((3, 5))), "does not fit d = 2"),
        (replace(EXAMPLES[5], A=np.zeros((3, 3))), "'b' must have shape"),
        (replace(EXAMPLES[6], acked=5), "'acked' must be below"),
        (replace(EXAMPLES[6], steps=0), "must be positive"),
        (replace(EXAMPLES[6], theta=np.array([np.inf, 0])), "'theta' must hold finite numbers"),
        (replace(EXAMPLES[6], shift=np.zeros(3)), "'shift' must have shape"),
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
    with pytest.raises(MessageError, match="'version' must be 1; got 2"):
        read(replace(record, meta=record.meta | {"version": 2}))
    with pytest.raises(MessageError, match=r"must have shape \(3\)"):
        Work.from_record(record, dim=3)
    assert issubclass(MessageError, FedLSAError)


def test_what_is_read_does_not_share_memory_with_the_record():
    record = EXAMPLES[6].record()
    work = Work.from_record(record)
    record.arrays["theta"][:] = 9
    np.testing.assert_array_equal(work.theta, v)
    np.testing.assert_array_equal(EXAMPLES[6].theta, v)
