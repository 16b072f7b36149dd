"""The codec: stored values, prepared types, and bins of equal width."""

import ast
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

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
from privateer_core.prepared_types import cache_decoder
from privateer_core.primitives.public_coins import Layout
from privateer_core.spec.context import EqualBins
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


ROOT = Path(__file__).parents[3]
ROLES = ("shared", "client", "shuffler", "issuer", "server")


class Pair(msgspec.Struct):
    """A type that no module decodes."""

    left: int
    right: "Pair | None" = None


def test_threads_get_the_prepared_type() -> None:
    body = msgspec.msgpack.encode(Pair(1, Pair(2)))
    assert msgspec.msgpack.decode(body, type=cache_decoder(Pair)) == Pair(1, Pair(2))
    with ThreadPoolExecutor(8) as threads:
        kinds = list(threads.map(lambda _: cache_decoder(Pair), range(64)))
    assert all(kind is Pair for kind in kinds)


def test_a_type_that_cannot_be_decoded_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(TypeError):
            cache_decoder(int | str | dict[int, Pair] | Pair)


def unprepared(source: str) -> Iterator[int]:
    """Yield the lines that have msgspec decode or convert to a class that it may not know."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("msgspec."):
            kinds = [word.value for word in node.keywords if word.arg == "type"]
            kinds += node.args[1:2] if ast.unparse(node.func) == "msgspec.convert" else []
            if any(not ast.unparse(kind).startswith(("cache_decoder(", "dict[str, ", "list[bytes]")) for kind in kinds):
                yield node.lineno


def test_every_decoded_type_is_prepared() -> None:
    sources = [path for role in ROLES for path in (ROOT / role).rglob("*.py")]
    assert len(sources) > 100
    assert {str(path): lines for path in sources if (lines := list(unprepared(path.read_text())))} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("msgspec.json.decode(body, type=Label)", [1]),
        ("msgspec.convert(value, Event)", [1]),
        ("msgspec.json.decode(body, type=cache_decoder(Label))", []),
        ("msgspec.msgpack.decode(body)", []),
    ],
)
def test_a_planted_unprepared_type_is_found(source: str, lines: list[int]) -> None:
    assert list(unprepared(source)) == lines


@pytest.mark.parametrize(("sides", "columns"), [(1, 3), (4, 2), (3, 1), (5, 0)])
def test_a_context_is_between_the_corners_of_its_bin(sides: int, columns: int) -> None:
    bins, contexts = EqualBins(sides, columns), np.random.default_rng(1).random((500, columns))
    lower, upper = (corner[bins.locate(contexts)] for corner in bins.edges())
    assert lower.shape == contexts.shape
    assert ((lower <= contexts) & (contexts < upper)).all()
    assert len(bins.edges()[0]) == bins.count == sides**columns


def test_the_ends_of_columns_are_in_the_outer_bins() -> None:
    assert EqualBins(4, 2).locate(np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])).tolist() == [0, 3, 12, 15]
