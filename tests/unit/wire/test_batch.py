import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from privateer.errors import BatchRefused
from privateer.wire.batch import check_claim, check_signature, decode_batch, sign_batch, sign_claim
from privateer.wire.envelope import Envelope, encode_envelope, header_of
from privateer.wire.publication import Round

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
ENVELOPE = Envelope(header_of(Round("spring", 3, "shuffle", 2000, 96, bytes(32)), b"d" * 32), b"s" * 96 * 2000)
BODY = encode_envelope(ENVELOPE)


def test_a_signed_batch_verifies_with_any_trusted_key():
    check_signature(BODY, sign_batch(BODY, KEY), [OTHER.public_key(), KEY.public_key()])


def test_a_batch_may_hold_more_reports_than_a_request():
    assert decode_batch(BODY) == ENVELOPE


def test_the_signature_of_a_batch_is_good_for_nothing_else():
    plain = KEY.sign(BODY).hex()
    with pytest.raises(BatchRefused):
        check_signature(BODY, plain, [KEY.public_key()])


@pytest.mark.parametrize("keys", [[], [OTHER.public_key()]])
def test_an_untrusted_signature_is_refused(keys):
    with pytest.raises(BatchRefused, match="not signed by a trusted shuffler"):
        check_signature(BODY, sign_batch(BODY, KEY), keys)


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_a_changed_batch_is_refused(place, change):
    body = bytearray(BODY)
    body[place] ^= change
    with pytest.raises(BatchRefused):
        check_signature(bytes(body), sign_batch(BODY, KEY), [KEY.public_key()])


@given(st.text() | st.binary(max_size=80).map(bytes.hex))
def test_no_other_text_is_a_signature(text):
    with pytest.raises(BatchRefused):
        check_signature(BODY, text, [KEY.public_key()])


@given(st.binary(max_size=200))
def test_noise_is_refused(body):
    with pytest.raises(BatchRefused):
        decode_batch(body)


def test_a_claim_names_its_signer_and_its_experiment():
    one, two = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    trusted = [two.public_key(), one.public_key()]
    assert check_claim("spring", sign_claim("spring", one), trusted) == one.public_key().public_bytes_raw().hex()
    for experiment, signature in (("summer", sign_claim("spring", one)), ("spring", sign_batch(b"spring", one))):
        with pytest.raises(BatchRefused):
            check_claim(experiment, signature, trusted)
