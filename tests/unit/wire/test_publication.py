import contextlib
import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.errors import Malformed
from privateer_core.wire.publication import Drain, Publication, Round, decode_publication, digest, encode_publication

ROUND = Round("spring", 3, "shuffle", 100, 96, bytes(range(32)))
PUBLICATION = Publication(ROUND, b'{"experiment": {}}', b"\x81")

rounds = st.builds(
    Round,
    experiment=st.text(max_size=20),
    version=st.integers(1, 2**62),
    model=st.sampled_from(["local", "shuffle", "central", "none"]),
    batch_size=st.integers(0, 2**40),
    sealed_size=st.integers(1, 2**20),
    public_key=st.binary(min_size=32, max_size=32),
)


drains = st.none() | st.builds(Drain, until=st.integers(1, 2**62), policy=st.binary(max_size=50))


@given(rounds, st.binary(max_size=50), st.binary(max_size=50), st.binary(max_size=50), drains)
def test_a_publication_survives_the_wire(round_, spec, policy, result, drain):
    publication = Publication(round_, spec, policy, result, drain if round_.batch_size else None)
    assert decode_publication(encode_publication(publication)) == publication


@pytest.mark.parametrize("fields", [[], [b""]])
def test_a_publication_without_a_result_or_a_drain_is_read(fields):
    body = msgspec.msgpack.encode([ROUND, b"{}", b"\x81", *fields])
    assert decode_publication(body) == Publication(ROUND, b"{}", b"\x81", b"", None)


@pytest.mark.parametrize(
    ("model", "endpoint"), [("shuffle", "shuffler"), ("local", "server"), ("central", "server"), ("rows", "server")]
)
def test_every_model_has_one_endpoint(model, endpoint):
    assert msgspec.structs.replace(ROUND, model=model).endpoint == endpoint


def test_ids_are_derived_from_what_they_name():
    body = encode_publication(PUBLICATION)
    assert ROUND.key_id == hashlib.sha256(ROUND.public_key).digest()[:8]
    assert digest(body) == hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": 1 << 63},
        {"deadline": 1 << 63, "least": 1},
        {"batch_size": -1},
        {"sealed_size": 0},
        {"model": "trust-me"},
        {"model": ""},
        {"model": "Local"},
        {"public_key": b"short"},
    ],
)
def test_an_inconsistent_round_is_refused(change):
    fields = {name: getattr(ROUND, name) for name in ROUND.__struct_fields__} | change
    with pytest.raises(ValueError, match=r"version|model|deadline"):
        Round(**fields)
    with pytest.raises(Malformed):
        decode_publication(msgspec.msgpack.encode([list(fields.values()), b"{}", b""]))


@given(st.binary(max_size=200))
def test_noise_is_refused_as_malformed(body):
    with pytest.raises(Malformed):
        decode_publication(body)


@given(st.data())
def test_a_damaged_publication_is_refused_or_another_one(data):
    body = bytearray(encode_publication(PUBLICATION))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(Malformed):
        assert decode_publication(bytes(body)) != PUBLICATION
    assert digest(bytes(body)) != digest(encode_publication(PUBLICATION))
