"""Upload tokens: the vectors of RFC 9578 and RFC 9474, and refusals of malformed tokens."""

import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from privateer_core.errors import Malformed, TokenInvalid, TokenRequestRefused
from privateer_core.wire import blind_rsa
from privateer_core.wire.token import (
    TYPE,
    Challenge,
    PendingToken,
    Token,
    authorization,
    origin_name,
    parse_token_request,
    read_authorization,
)
from privateer_core.wire.token_keys import Directory, TokenKey, base64url, unbase64url
from privateer_issuer.signing_keys import Signer

TEXT = json.loads(Path(__file__).with_name("rfc9578.json").read_text())
VECTOR = {name: bytes.fromhex(text) for name, text in TEXT.items() if name != "source"}
KEY = TokenKey(VECTOR["pkS"], 0, 1)


def private() -> RSAPrivateKey:
    key = load_pem_private_key(VECTOR["skS"], None)
    assert isinstance(key, RSAPrivateKey)
    return key


def pending() -> PendingToken:
    """The token of the vector, blinded as there."""
    unsigned = TYPE + VECTOR["nonce"] + hashlib.sha256(VECTOR["token_challenge"]).digest() + KEY.id
    inverse = pow(int.from_bytes(VECTOR["blind"]), -1, KEY.public.public_numbers().n)
    return PendingToken.from_blinded(
        unsigned, KEY, blind_rsa.blind(KEY.public, unsigned, salt=VECTOR["salt"], inverse=inverse)
    )


def test_the_key_is_encoded_as_in_the_rfc() -> None:
    assert TokenKey.from_rsa_key(private().public_key(), 0, 1).encoded == VECTOR["pkS"]


def test_the_request_is_that_of_the_rfc() -> None:
    assert pending().request == VECTOR["token_request"]
    assert parse_token_request(VECTOR["token_request"]) == (KEY.id[-1], VECTOR["token_request"][3:])


def test_the_answer_is_that_of_the_rfc() -> None:
    signer = Signer.from_private_key(private())
    assert {signer.sign(VECTOR["token_request"][3:]) for _ in range(5)} == {VECTOR["token_response"]}


def test_the_token_is_that_of_the_rfc() -> None:
    token = pending().finish(KEY, VECTOR["token_response"])
    assert token == VECTOR["token"]
    assert Token.decode(token).is_signed(KEY)


def test_the_challenge_is_that_of_the_rfc() -> None:
    """The vector's redemption context is random; all else has the form of ours."""
    challenge = Challenge("issuer.example", "origin.example", "spring").encode()
    context = slice(2 + 2 + 14 + 1, 2 + 2 + 14 + 1 + 32)
    assert challenge[: context.start] == VECTOR["token_challenge"][: context.start]
    assert challenge[context.stop :] == VECTOR["token_challenge"][context.stop :]


@pytest.mark.parametrize("changed", range(3))
def test_challenges_differ_by_all_that_they_name(changed: int) -> None:
    names = ["issuer.example", "origin.example", "spring"]
    before = Challenge(*names)
    names[changed] += "2"
    assert Challenge(*names).digest != before.digest


def test_tokens_of_one_key_are_drawn_apart() -> None:
    challenge = Challenge("issuer.example", "origin.example", "spring")
    pending_tokens = [PendingToken.draw(challenge, KEY) for _ in range(20)]
    for part in ("input", "request", "inverse"):
        assert len({getattr(token, part) for token in pending_tokens}) == 20
    signer = Signer.from_private_key(private())
    for token in pending_tokens[:3]:
        assert Token.decode(token.finish(KEY, signer.sign(token.request[3:]))).is_signed(KEY)


def test_a_signed_request_does_not_identify_the_token() -> None:
    """Every token has a blinding that gives any request: r = (token's message/z)^d."""
    signer, n = Signer.from_private_key(private()), KEY.public.public_numbers().n
    tokens = [Token.decode(t.finish(KEY, signer.sign(t.request[3:]))) for t in (draw_token(), draw_token())]
    request = draw_token().request[3:]
    for token in tokens:
        signature = int.from_bytes(token.authenticator)
        factor = int.from_bytes(signer.sign(request)) * pow(signature, -1, n) % n
        encoded = pow(signature, 65537, n)
        assert (encoded * pow(factor, 65537, n) % n).to_bytes(256) == request


def draw_token() -> PendingToken:
    return PendingToken.draw(Challenge("issuer.example", "origin.example", "spring"), KEY)


@pytest.mark.parametrize("place", [0, 2, 40, 80, 98, 353])
def test_a_changed_token_is_not_signed(place: int) -> None:
    token = bytearray(VECTOR["token"])
    token[place] ^= 1
    if place < 2:
        with pytest.raises(TokenInvalid):
            Token.decode(bytes(token))
    else:
        assert not Token.decode(bytes(token)).is_signed(KEY)


@pytest.mark.parametrize("answer", [b"", bytes(256), b"\xff" * 256, VECTOR["token_response"][:-1], bytes(257)])
def test_a_false_answer_makes_no_token(answer: bytes) -> None:
    with pytest.raises(Malformed, match="did not sign"):
        pending().finish(KEY, answer)


def test_an_answer_by_another_key_makes_no_token() -> None:
    """A key for a single device would mark the tokens that it spends."""
    other = Signer.from_private_key(generate_private_key(65537, 2048))
    blinded = b"\0" + pending().request[4:]  # below any modulus
    with pytest.raises(Malformed):
        pending().finish(KEY, other.sign(blinded))


@pytest.mark.parametrize("blinded", [bytes(256), b"\xff" * 256, b"\x01" * 255, b"\x01" * 257])
def test_the_signer_signs_nothing_else(blinded: bytes) -> None:
    with pytest.raises(TokenRequestRefused):
        Signer.from_private_key(private()).sign(blinded)


def test_a_faulty_computation_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong half of a CRT signature reveals the key."""
    signer = Signer.from_private_key(private())
    monkeypatch.setattr(signer, "_q_inverse", signer._q_inverse + 1)
    with pytest.raises(ArithmeticError):
        signer.sign(VECTOR["token_request"][3:])


@pytest.mark.parametrize("body", [b"", VECTOR["token_request"][:-1], b"\0\1" + VECTOR["token_request"][2:]])
def test_a_malformed_request_is_refused(body: bytes) -> None:
    with pytest.raises(TokenRequestRefused):
        parse_token_request(body)


def test_a_token_is_encoded_in_a_header() -> None:
    assert read_authorization(authorization(VECTOR["token"]).encode()).input == VECTOR["token"][:98]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"Bearer abc",
        b"PrivateToken",
        b'PrivateToken token=""',
        b'PrivateToken token="abc"',
        b'PrivateToken token="' + b"A" * 472 + b'"',
        b'PrivateToken token="\xff"',
        authorization(VECTOR["token"]).encode() + b", x=1",
    ],
)
def test_a_malformed_token_is_refused(text: bytes) -> None:
    with pytest.raises(TokenInvalid):
        read_authorization(text)


def _other_exponent() -> bytes:
    return VECTOR["pkS"][:-1] + b"\x03"


@pytest.mark.parametrize(
    "encoded", [b"", VECTOR["pkS"][:-1], VECTOR["pkS"] + b"\0", b"\0" + VECTOR["pkS"][1:], _other_exponent()]
)
def test_a_malformed_key_is_refused(encoded: bytes) -> None:
    with pytest.raises(Malformed):
        TokenKey(encoded, 0, 1)


@pytest.mark.parametrize("bits", [1024, 3072])
def test_a_key_of_another_size_is_refused(bits: int) -> None:
    with pytest.raises(Malformed):
        TokenKey.from_rsa_key(generate_private_key(65537, bits).public_key(), 0, 1)


@pytest.mark.parametrize("times", [(1, 1), (2, 1), (-1, 1)])
def test_times_are_in_order(times: tuple[int, int]) -> None:
    with pytest.raises(Malformed):
        TokenKey(VECTOR["pkS"], *times)


def test_a_directory_is_read_as_it_was_written() -> None:
    keys = [TokenKey(VECTOR["pkS"], 5, 9), TokenKey(VECTOR["pkS"], 7, 11)]
    read = Directory.decode(Directory.from_keys("issuer.example", {"spring": keys}).encode())
    assert read.issuer == "issuer.example"
    assert read.keys("spring") == keys[::-1]  # the newest first
    assert read.keys("autumn") == []
    assert json.loads(read.encode())["experiments"]["spring"]["token-keys"][0]["token-type"] == 2


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"issuer": 1, "experiments": {}}', b"[" * 100_000])
def test_a_malformed_directory_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        Directory.decode(body)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://issuer.example", "issuer.example"),
        ("https://Issuer.Example:443/path", "issuer.example"),
        ("https://issuer.example:8443", "issuer.example:8443"),
        ("http://127.0.0.1:8001", "127.0.0.1:8001"),
        ("http://issuer", "issuer:80"),
        ("http://[::1]:8001", "[::1]:8001"),
    ],
)
def test_services_have_names(url: str, name: str) -> None:
    assert origin_name(url) == name


def test_base64url_has_padding_and_nothing_else() -> None:
    assert unbase64url(base64url(b"\xff\xfe")) == b"\xff\xfe"
    for text in ("//4=", "__4", "__4=\n", "\N{SNOWMAN}"):
        with pytest.raises(Malformed):
            unbase64url(text)
