import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.errors import BatchRefused, SenderRefused
from privateer_core.wire.batch import BATCH, SECONDS_APART, UPLOAD, blames_clock, check_claim, decode_batch, sign_claim
from privateer_core.wire.envelope import Envelope, encode_envelope, header_of
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import Round

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
ENVELOPE = Envelope(header_of(Round("spring", 3, "shuffle", 2000, 96, bytes(32)), b"d" * 32), b"s" * 96 * 2000)
BODY = encode_envelope(ENVELOPE)
NOW = 1_800_000_000


def trusted(*keys):
    return {signing_key_id(key.public_key()): key.public_key() for key in keys}


def test_a_signature_announces_the_batch_with_any_trusted_key():
    announced = BATCH.check(BATCH.sign(BODY, KEY, NOW), trusted(OTHER, KEY), NOW)
    assert announced.key_id == signing_key_id(KEY.public_key())
    assert (announced.length, announced.digest) == (len(BODY), hashlib.sha256(BODY).digest())


def test_a_batch_may_hold_more_reports_than_a_request():
    assert decode_batch(BODY) == ENVELOPE


def test_the_signature_of_a_batch_is_good_for_nothing_else():
    with pytest.raises(BatchRefused):
        BATCH.check(UPLOAD.sign(BODY, KEY, NOW), trusted(KEY), NOW)
    with pytest.raises(SenderRefused):
        UPLOAD.check(BATCH.sign(BODY, KEY, NOW), trusted(KEY), NOW)


@pytest.mark.parametrize("keys", [[], [OTHER]])
def test_an_untrusted_signature_is_refused(keys):
    with pytest.raises(BatchRefused, match="not signed by a trusted shuffler"):
        BATCH.check(BATCH.sign(BODY, KEY, NOW), trusted(*keys), NOW)


@pytest.mark.parametrize("apart", [-SECONDS_APART - 1, SECONDS_APART + 1])
def test_a_signature_of_another_time_is_refused(apart):
    text = BATCH.sign(BODY, KEY, NOW)
    with pytest.raises(BatchRefused, match="within 300 seconds") as refused:
        BATCH.check(text, trusted(KEY), NOW + apart)
    assert blames_clock(problem_body(refused.value))
    assert "clocks" in str(refused.value.remedy)
    with pytest.raises(BatchRefused, match="not signed by a trusted shuffler") as stranger:
        BATCH.check(text, trusted(OTHER), NOW + apart)
    assert not blames_clock(problem_body(stranger.value))
    assert BATCH.check(text, trusted(KEY), NOW + apart - apart // abs(apart))


SIGNED = BATCH.sign(BODY, KEY, NOW)


@given(st.integers(0, len(SIGNED) - 1), st.sampled_from("0123456789abcdef.A٣ "))
def test_a_changed_announcement_is_refused(place, new):
    changed = SIGNED[:place] + new + SIGNED[place + 1 :]
    if changed != SIGNED:
        with pytest.raises(BatchRefused):
            BATCH.check(changed, trusted(KEY), NOW)


@given(st.text() | st.binary(max_size=80).map(bytes.hex))
def test_no_other_text_is_a_signature(text):
    with pytest.raises(BatchRefused):
        BATCH.check(text, trusted(KEY), NOW)


@given(st.binary(max_size=200))
def test_noise_is_refused(body):
    with pytest.raises(BatchRefused):
        decode_batch(body)


def test_a_claim_names_its_signer_and_its_experiment():
    keys = trusted(OTHER, KEY)
    claimed = check_claim("spring", sign_claim("spring", KEY, NOW), keys, NOW)
    assert (claimed.key_id, claimed.signed_at) == (signing_key_id(KEY.public_key()), int(NOW))
    for experiment, signature in (
        ("summer", sign_claim("spring", KEY, NOW)),
        ("spring", BATCH.sign(b"spring", KEY, NOW)),
        ("spring", sign_claim("spring", KEY, NOW - SECONDS_APART - 1)),
    ):
        with pytest.raises(BatchRefused):
            check_claim(experiment, signature, keys, NOW)
