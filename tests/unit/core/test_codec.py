"""The codec: round trips keep dtypes and shapes; arbitrary bytes raise no error but Malformed."""

from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionPolicy
from privateer_core.codec import decode, encode
from privateer_core.errors import Malformed, SpecError
from privateer_core.mechanisms.mechanism import KeyedTotal, VectorTotal
from privateer_core.primitives.public_coins import Layout
from privateer_papers.paper_1.ldpmab import LdpmabState
from privateer_server.algorithms.partition.state import PartitionState
from tests.support.partitions import make_policy, same
from tests.support.specs import make_spec

KINDS = [PartitionPolicy, PartitionState, LdpmabState, KeyedTotal, VectorTotal]


@dataclass(frozen=True)
class Box:
    number: int
    values: NDArray[np.float64]


dtypes = st.one_of(
    hnp.floating_dtypes(endianness="<"),
    hnp.integer_dtypes(endianness="<"),
    hnp.unsigned_integer_dtypes(endianness="<"),
    hnp.boolean_dtypes(),
)


@given(
    dtypes.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))),
    st.integers(0, 2**63),
)
def test_arrays_round_trip(values, number):
    box = decode(encode(Box(number, values)), Box)
    assert box.number == number
    assert box.values.dtype == values.dtype
    assert box.values.shape == values.shape
    np.testing.assert_array_equal(box.values, values)


def test_strided_arrays_round_trip():
    values = np.arange(12.0).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(decode(encode(Box(1, values)), Box).values, values)


def test_keys_that_need_no_bytes_round_trip():
    """Keys that hold the arm have no thresholds; a policy with more than 65,536 such keys could not be read."""
    layout = Layout(3, np.zeros((1 << 20, 0), np.uint32))
    assert decode(encode(layout), Layout).keys == 1 << 20


def test_policies_round_trip():
    policy = make_policy()
    assert same(decode(encode(policy), PartitionPolicy), policy)


@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary(max_size=200))
def test_arbitrary_bytes_are_malformed(kind, body):
    with pytest.raises(Malformed):
        decode(body, kind)


packable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=16),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(packable)
@example(["<f8", [2**63], b""])
@example(["<f8", [2**64 - 1, 2**64 - 1], b""])
@example(["<f8", [-1], b"12345678"])
@example(["|O", [1], b"12345678"])
@example(["V0", [1], b""])
@example(["O,O", [1], bytes(16)])
@example(["(2,", [1], bytes(16)])
@example(["f8," * 500, [0], b""])
@example(["<f8", None, bytes(16)])
@example(["<f8", 2.5, bytes(16)])
@example([None, [1], bytes(8)])
@example([{}, [1], bytes(8)])
@example([["a", "b"], [1], bytes(8)])
@example([0, [1], bytes(8)])
@example(["<M8[ns]", [1], bytes(8)])
@example([{"names": ["a"], "formats": ["O"]}, [1], bytes(8)])
def test_arbitrary_array_fields_decode_or_are_malformed(field):
    body = msgspec.msgpack.encode({"number": 1, "values": field})
    try:
        box = decode(body, Box)
    except Malformed:
        return
    assert isinstance(box.values, np.ndarray)
    assert not box.values.dtype.hasobject


@given(st.data())
def test_a_damaged_policy_is_malformed_or_fails_its_check(data):
    """Whatever a byte does, a device sees an error of ours or a policy that passes its check and can be played."""
    body = bytearray(encode(make_policy()))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        policy = decode(bytes(body), PartitionPolicy)
        policy.check(make_spec())
    except (Malformed, SpecError):  # the latter of a mechanism that cannot be
        return
    contexts = np.array([[0.0, 0.5], [1.0, 1.0], [0.3, 0.9]])
    if policy.dimension == 2:
        arms = policy.decide(contexts, np.array([0, 1, 2**32 - 1], np.uint32)).arms
        assert policy.active[policy.locate(contexts), arms].all()


def test_a_truncated_policy_is_malformed():
    body = encode(make_policy())
    for size in range(0, len(body), 7):
        with pytest.raises(Malformed):
            decode(body[:size], PartitionPolicy)
