import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.errors import Malformed, RoundClosed, RoundUnknown, WrongDigest, WrongEndpoint, WrongKey, WrongSize
from privateer_core.wire.publication import (
    REPORTS_PER_BODY_MAX,
    Envelope,
    Header,
    Round,
    check_header,
    decode_envelope,
    encode_envelope,
    hpke_info,
    report_header,
    split_sealed,
)

DIGEST = b"d" * 32
ROUND = Round("spring", 3, "shuffle", 100, 96, bytes(range(32)))
HEADER = report_header(ROUND, DIGEST)

headers = st.builds(
    Header,
    experiment=st.text(max_size=20),
    version=st.integers(1, 2**62),
    key_id=st.binary(min_size=8, max_size=8),
    digest=st.binary(min_size=32, max_size=32),
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=10,
)


@given(headers, st.binary(max_size=300))
def test_an_envelope_survives_the_wire(header, sealed):
    envelope = Envelope(header, sealed)
    assert decode_envelope(encode_envelope(envelope)) == envelope


@given(st.binary(max_size=300))
def test_noise_is_refused_as_malformed(body):
    with pytest.raises(Malformed):
        decode_envelope(body)


@given(plain)
def test_other_messages_are_refused_as_malformed(message):
    with pytest.raises(Malformed):
        decode_envelope(msgspec.msgpack.encode(message))


@given(st.data())
def test_a_damaged_envelope_is_refused_as_malformed_or_another_one(data):
    envelope = Envelope(HEADER, b"s" * 96)
    body = bytearray(encode_envelope(envelope))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(Malformed):
        assert decode_envelope(bytes(body)) != envelope


@pytest.mark.parametrize(
    "message",
    [
        [["spring", 3, b"short", DIGEST], b"sealed"],
        [["spring", 3, HEADER.key_id, b"short"], b"sealed"],
        [["spring", 0, HEADER.key_id, DIGEST], b"sealed"],
        [["spring", 3, HEADER.key_id, DIGEST, "more"], b"sealed"],
        [["spring", 3, HEADER.key_id, DIGEST], b"sealed", "more"],
        [["spring", 3, HEADER.key_id, DIGEST]],
    ],
)
def test_fields_of_the_wrong_size_or_number_are_refused(message):
    with pytest.raises(Malformed):
        decode_envelope(msgspec.msgpack.encode(message))


def test_nesting_without_end_is_refused():
    with pytest.raises(Malformed):
        decode_envelope(b"\x92" * 100_000)


def test_the_binding_names_purpose_model_and_every_field_of_the_header():
    others = [
        Header("summer", 3, HEADER.key_id, DIGEST),
        Header("spring", 4, HEADER.key_id, DIGEST),
        Header("spring", 3, b"k" * 8, DIGEST),
        Header("spring", 3, HEADER.key_id, b"e" * 32),
    ]
    bindings = {hpke_info(header, "shuffle") for header in [HEADER, *others]} | {hpke_info(HEADER, "local")}
    assert len(bindings) == 6
    assert all(b"privateer/report/1" in info for info in bindings)


def test_the_header_of_the_round_passes():
    check_header(HEADER, ROUND, DIGEST, "shuffler")


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        (Header("spring", 2, HEADER.key_id, DIGEST), RoundClosed),
        (Header("spring", 4, HEADER.key_id, DIGEST), RoundUnknown),
        (Header("spring", 3, b"k" * 8, DIGEST), WrongKey),
        (Header("spring", 3, HEADER.key_id, b"e" * 32), WrongDigest),
    ],
)
def test_a_header_for_another_round_is_refused(header, refusal):
    with pytest.raises(refusal):
        check_header(header, ROUND, DIGEST, "shuffler")


def test_an_experiment_that_is_over_takes_nothing():
    over = msgspec.structs.replace(ROUND, batch_size=0)
    with pytest.raises(RoundClosed):
        check_header(HEADER, over, DIGEST, "shuffler")


@pytest.mark.parametrize(("model", "endpoint"), [("shuffle", "server"), ("local", "shuffler"), ("central", "shuffler")])
def test_every_report_has_one_endpoint(model, endpoint):
    with pytest.raises(WrongEndpoint):
        check_header(HEADER, msgspec.structs.replace(ROUND, model=model), DIGEST, endpoint)


@given(st.integers(1, 20))
def test_sealed_reports_are_split_in_order(count):
    reports = [bytes([index]) * 96 for index in range(count)]
    assert split_sealed(Envelope(HEADER, b"".join(reports)), ROUND) == reports


@pytest.mark.parametrize("size", [0, 1, 95, 97, 96 * 3 + 1, 96 * (REPORTS_PER_BODY_MAX + 1)])
def test_sealed_bytes_of_another_size_are_refused(size):
    with pytest.raises(WrongSize):
        split_sealed(Envelope(HEADER, bytes(size)), ROUND)
