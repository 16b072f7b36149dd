"""Publications, batches and problems on the wire."""

import contextlib
import hashlib

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from privateer_core import errors
from privateer_core.errors import BatchRefused, Malformed, PrivateerError, SenderRefused, SpecError
from privateer_core.wire.batch import (
    BATCH,
    CLOCK_TOLERANCE_SECONDS,
    UPLOAD,
    decode_batch,
    is_clock_problem,
    sign_claim,
    verify_claim,
)
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.problem import problem_body, problem_type, read_slug
from privateer_core.wire.publication import (
    Drain,
    Envelope,
    Publication,
    Round,
    decode_publication,
    digest,
    encode_envelope,
    encode_publication,
    report_header,
)

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


def test_key_ids_and_digests_are_hashes_of_keys_and_publications():
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


KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
ENVELOPE = Envelope(report_header(Round("spring", 3, "shuffle", 2000, 96, bytes(32)), b"d" * 32), b"s" * 96 * 2000)
BODY = encode_envelope(ENVELOPE)
NOW = 1_800_000_000


def trusted(*keys):
    return {signing_key_id(key.public_key()): key.public_key() for key in keys}


def test_a_signature_announces_the_batch_with_any_trusted_key():
    announced = BATCH.verify(BATCH.sign(BODY, KEY, NOW), trusted(OTHER, KEY), NOW)
    assert announced.key_id == signing_key_id(KEY.public_key())
    assert (announced.length, announced.digest) == (len(BODY), hashlib.sha256(BODY).digest())


def test_a_batch_may_hold_more_reports_than_a_request():
    assert decode_batch(BODY) == ENVELOPE


def test_the_signature_of_a_batch_is_good_for_nothing_else():
    with pytest.raises(BatchRefused):
        BATCH.verify(UPLOAD.sign(BODY, KEY, NOW), trusted(KEY), NOW)
    with pytest.raises(SenderRefused):
        UPLOAD.verify(BATCH.sign(BODY, KEY, NOW), trusted(KEY), NOW)


@pytest.mark.parametrize("keys", [[], [OTHER]])
def test_an_untrusted_signature_is_refused(keys):
    with pytest.raises(BatchRefused, match="not signed by a trusted shuffler"):
        BATCH.verify(BATCH.sign(BODY, KEY, NOW), trusted(*keys), NOW)


@pytest.mark.parametrize("offset", [-CLOCK_TOLERANCE_SECONDS - 1, CLOCK_TOLERANCE_SECONDS + 1])
def test_a_signature_of_another_time_is_refused(offset):
    text = BATCH.sign(BODY, KEY, NOW)
    with pytest.raises(BatchRefused, match="within 300 seconds") as refused:
        BATCH.verify(text, trusted(KEY), NOW + offset)
    assert is_clock_problem(problem_body(refused.value))
    assert "clocks" in str(refused.value.remedy)
    with pytest.raises(BatchRefused, match="not signed by a trusted shuffler") as stranger:
        BATCH.verify(text, trusted(OTHER), NOW + offset)
    assert not is_clock_problem(problem_body(stranger.value))
    assert BATCH.verify(text, trusted(KEY), NOW + offset - offset // abs(offset))


SIGNED = BATCH.sign(BODY, KEY, NOW)


@given(st.integers(0, len(SIGNED) - 1), st.sampled_from("0123456789abcdef.A٣ "))
def test_a_changed_announcement_is_refused(place, new):
    changed = SIGNED[:place] + new + SIGNED[place + 1 :]
    if changed != SIGNED:
        with pytest.raises(BatchRefused):
            BATCH.verify(changed, trusted(KEY), NOW)


@given(st.text() | st.binary(max_size=80).map(bytes.hex))
def test_no_other_text_is_a_signature(text):
    with pytest.raises(BatchRefused):
        BATCH.verify(text, trusted(KEY), NOW)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_as_a_batch(body):
    with pytest.raises(BatchRefused):
        decode_batch(body)


def test_a_claim_names_its_signer_and_its_experiment():
    keys = trusted(OTHER, KEY)
    claimed = verify_claim("spring", sign_claim("spring", KEY, NOW), keys, NOW)
    assert (claimed.key_id, claimed.signed_at) == (signing_key_id(KEY.public_key()), int(NOW))
    for experiment, signature in (
        ("summer", sign_claim("spring", KEY, NOW)),
        ("spring", BATCH.sign(b"spring", KEY, NOW)),
        ("spring", sign_claim("spring", KEY, NOW - CLOCK_TOLERANCE_SECONDS - 1)),
    ):
        with pytest.raises(BatchRefused):
            verify_claim(experiment, signature, keys, NOW)


def every_error(kind=PrivateerError):
    return [kind, *(error for child in kind.__subclasses__() for error in every_error(child))]


ERRORS = [kind for kind in every_error() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_a_problem_document(kind):
    body = problem_body(kind("it went wrong", field="a.b", remedy="do this"), refused={"x": 1})
    assert msgspec.json.decode(body) == {
        "type": f"urn:privateer:problem:{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": "it went wrong",
        "field": "a.b",
        "remedy": "do this",
        "refused": {"x": 1},
    }
    assert read_slug(body) == kind.slug


def test_slugs_are_distinct():
    assert len({kind.slug for kind in ERRORS}) == len(ERRORS)


def test_members_without_content_are_left_out():
    assert set(msgspec.json.decode(problem_body(SpecError("no")))) == {"type", "title", "status", "detail"}


@given(st.binary(max_size=100))
def test_noise_has_no_slug(body):
    assert read_slug(body) == "unknown"


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"type": 3}', b'{"type": "about:blank"}', b"[" * 100_000, b'{"type": "\xff"}', b""]
)
def test_other_documents_have_no_slug(body):
    assert read_slug(body) == "unknown"


def test_a_slug_is_found_by_its_type():
    assert read_slug(msgspec.json.encode({"type": problem_type("too-large")})) == "too-large"
