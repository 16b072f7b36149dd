import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.errors import BatchRefused, SenderRefused
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
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import Envelope, Round, encode_envelope, report_header

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
