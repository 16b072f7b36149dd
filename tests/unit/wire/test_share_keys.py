"""Keys of both servers of a report in shares, beside RFC 8032's and RFC 7748's own arithmetic."""

import os

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.wire.publication import Header
from privateer_core.wire.share_keys import derive_sealing_key, derive_verification_key, sealing_public_key
from privateer_core.wire.shares import ShareParty, ShareSeal


def test_a_sealing_key_follows_from_either_half_of_the_signing_key() -> None:
    for _ in range(50):
        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw()
        assert derive_sealing_key(key).public_key().public_bytes_raw() == sealing_public_key(public)


def test_the_sealing_key_is_that_of_other_libraries() -> None:
    """The pair of libsodium's test of crypto_sign_ed25519_pk_to_curve25519 (test/default/ed25519_convert.c)."""
    seed = bytes.fromhex("421151a459faeade3d247115f94aedae42318124095afabe4d1451a559faedee")
    key = Ed25519PrivateKey.from_private_bytes(seed)
    assert derive_sealing_key(key).public_key().public_bytes_raw().hex() == (
        "f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50"
    )


def test_bytes_of_no_signing_key_are_refused() -> None:
    with pytest.raises(ValueError, match="invertible"):
        sealing_public_key((1).to_bytes(32, "little"))


def test_both_servers_derive_one_verification_key_for_a_context() -> None:
    leader, helper = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    halves = leader.public_key().public_bytes_raw(), helper.public_key().public_bytes_raw()
    keys = {derive_verification_key(leader, halves[1], b"a"), derive_verification_key(helper, halves[0], b"a")}
    assert len(keys) == 1
    assert derive_verification_key(leader, halves[1], b"b") not in keys
    assert derive_verification_key(X25519PrivateKey.generate(), halves[1], b"a") not in keys
    with pytest.raises(ValueError, match="shared key"):
        derive_verification_key(leader, bytes(32), b"a")


@pytest.mark.parametrize("change", ["header", "model", "nonce", "public", "party", "key"])
def test_a_share_opens_for_what_it_was_sealed_for_alone(change: str) -> None:
    key, share = X25519PrivateKey.generate(), os.urandom(64)
    seal = ShareSeal(Header("test", 3, bytes(8), bytes(32)), "split", bytes(16), bytes(64))
    sealed = seal.seal(share, key.public_key().public_bytes_raw(), ShareParty.HELPER)
    assert seal.open(sealed, key, ShareParty.HELPER) == share
    other = {
        "header": seal._replace(header=Header("test", 4, bytes(8), bytes(32))),
        "model": seal._replace(model="shuffle"),
        "nonce": seal._replace(nonce=b"1" * 16),
        "public": seal._replace(public=b"1" * 64),
    }.get(change, seal)
    party = ShareParty.LEADER if change == "party" else ShareParty.HELPER
    assert other.open(sealed, X25519PrivateKey.generate() if change == "key" else key, party) == b""
