"""The gate looks at a header alone: each reason has its refusal, which asks for a token."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from privateer_core.errors import (
    NotFound,
    SpecError,
    TokenExpired,
    TokenInvalid,
    TokenMissing,
    TokenRefused,
    TokenSpent,
    TokenWrongAudience,
)
from privateer_core.serving.settings import TokenSettings
from privateer_core.serving.token_gate import TokenGate, TokenKeys
from privateer_core.wire.token import TOKEN_SIZE, Challenge, PendingToken, authorization
from privateer_core.wire.token_keys import Directory, TokenKey, unbase64url
from privateer_issuer.signing_keys import Signer
from tests.support.clocks import Hands

PRIVATE = [generate_private_key(65537, 2048) for _ in range(2)]
KEYS = [TokenKey.from_rsa_key(rsa.public_key(), 100 * n, 1000 + 100 * n) for n, rsa in enumerate(PRIVATE)]
ORIGINS = ("shuffler.example", "localhost:8001")


def token(
    place: int = 0, name: str = "spring", origin: str = ORIGINS[0], issuer: str = "issuer.example"
) -> PendingToken:
    return PendingToken.draw(Challenge(issuer, origin, name), KEYS[place])


def signed(pending: PendingToken, place: int = 0) -> bytes:
    return pending.finish(KEYS[place], Signer.from_private_key(PRIVATE[place]).sign(pending.request[3:]))


class Gate:
    """A gate with a folder of keys and a clock."""

    def __init__(self, folder: Path) -> None:
        self.spent_nonces: set[bytes] = set()
        self.clock = Hands()
        self.clock.time = 500.0
        self.file = folder / "issuer.json"
        self.show(spring=KEYS, autumn=KEYS[:1])
        self.gate = TokenGate(TokenKeys(str(folder)), ORIGINS, lambda nonce, _: nonce in self.spent_nonces, self.clock)

    def show(self, **keys: list[TokenKey]) -> None:
        self.file.write_bytes(Directory.from_keys("issuer.example", keys).encode())

    def refusal(self, text: bytes | None, name: str = "spring") -> TokenRefused:
        with pytest.raises(TokenRefused) as refused:
            self.gate.admit(text, name)
        assert refused.value.status == 401
        assert refused.value.remedy
        return refused.value


@pytest.fixture
def at(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def header(token: bytes) -> bytes:
    return authorization(token).encode()


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_token_is_admitted(at: Gate, place: int, origin: str) -> None:
    pending = token(place, origin=origin)
    admission = at.gate.admit(header(signed(pending, place)), "spring")
    assert admission.experiment == "spring"
    assert admission.nonce == pending.input[2:34]
    assert admission.expires == KEYS[place].not_after
    assert not admission.is_spent


def test_without_a_token_the_answer_asks_for_one(at: Gate) -> None:
    refused = at.refusal(None)
    assert type(refused) is TokenMissing
    challenge, key = (part.partition("=")[2].strip('"') for part in refused.challenge.split(" ", 1)[1].split(", "))
    assert unbase64url(challenge) == Challenge("issuer.example", ORIGINS[0], "spring").encode()
    assert unbase64url(key) == KEYS[1].encoded  # the newest
    assert at.refusal(None, "winter").challenge == "PrivateToken"


@pytest.mark.parametrize("text", [b"", b"Bearer x", b'PrivateToken token="AAI="', header(bytes(TOKEN_SIZE))])
def test_malformed_tokens_are_invalid(at: Gate, text: bytes) -> None:
    assert type(at.refusal(text)) is TokenInvalid


def test_a_forged_token_is_invalid(at: Gate) -> None:
    assert type(at.refusal(header(token().input + bytes(256)))) is TokenInvalid
    true = signed(token())
    assert type(at.refusal(header(true[:34] + true[34:-1] + bytes([true[-1] ^ 1])))) is TokenInvalid
    nonce = bytes([true[5] ^ 1])
    assert type(at.refusal(header(true[:5] + nonce + true[6:]))) is TokenInvalid


def test_a_token_by_an_unpublished_key_is_invalid(at: Gate) -> None:
    """The issuer of autumn has one key, and a token by another key is invalid."""
    assert type(at.refusal(header(signed(token(1, "autumn"), 1)), "autumn")) is TokenInvalid


@pytest.mark.parametrize("changes", [{"name": "winter"}, {"origin": "other.example"}, {"issuer": "other.example"}])
def test_a_token_for_another_origin_is_refused(at: Gate, changes: dict[str, str]) -> None:
    assert type(at.refusal(header(signed(token(**changes))))) is TokenWrongAudience


def test_a_token_of_another_experiment_is_refused(at: Gate) -> None:
    text = header(signed(token(name="autumn")))
    assert type(at.refusal(text, "spring")) is TokenWrongAudience
    admission = at.gate.admit(text)  # where the address names none, the body will
    assert admission.experiment == "autumn"
    with pytest.raises(TokenWrongAudience):
        admission.check_for("spring")


def test_a_token_of_an_expired_key_is_refused(at: Gate) -> None:
    text = header(signed(token()))
    at.clock.time = 999.0
    at.gate.admit(text, "spring")
    at.clock.time = 1000.0
    assert type(at.refusal(text)) is TokenExpired
    at.clock.time = 99.0
    assert type(at.refusal(header(signed(token(1), 1)))) is TokenExpired


def test_a_spent_token_is_admitted_for_a_duplicate_check_alone(at: Gate) -> None:
    pending = token()
    at.spent_nonces.add(pending.input[2:34])
    admission = at.gate.admit(header(signed(pending)), "spring")
    assert admission.is_spent
    assert type(admission.spent_error()) is TokenSpent


def test_questions_about_a_spent_token_are_bounded(at: Gate) -> None:
    pending = token()
    at.spent_nonces.add(pending.input[2:34])
    text = header(signed(pending))
    for _ in range(30):
        assert at.gate.admit(text, "spring").is_spent
    assert type(at.refusal(text)) is TokenSpent
    at.clock.time += 60.0
    assert at.gate.admit(text, "spring").is_spent


def test_a_token_that_was_verified_early_may_expire(at: Gate) -> None:
    text = header(signed(token()))
    at.gate.admit_early(text, "spring")
    at.clock.time = 1000.0
    assert type(at.refusal(text)) is TokenExpired


def test_changed_key_files_are_read_again(at: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    text = header(signed(token(1, "autumn"), 1))
    assert type(at.refusal(text, "autumn")) is TokenInvalid
    at.show(spring=KEYS, autumn=KEYS)
    monkeypatch.setattr("privateer_core.serving.token_gate._FRESH_SECONDS", {False: 0.0, True: 0.0})
    at.gate.admit(text, "autumn")


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"issuer": "x", "experiments": {"spring": {"issuer-request-uri": ""}}}']
)
def test_a_damaged_file_is_left_out_with_one_warning(at, body, caplog, monkeypatch):
    monkeypatch.setattr("privateer_core.serving.token_gate._FRESH_SECONDS", {False: 0.0, True: 0.0})
    (at.file.parent / "second.json").write_bytes(body)
    for _ in range(3):
        at.gate.admit(header(signed(token())), "spring")
    assert [record.message for record in caplog.records] == ["second.json shows no token keys"]


def test_two_files_with_keys_of_one_experiment_are_refused(at: Gate) -> None:
    """The second file would replace the first issuer, and the refusals of its tokens would have no visible reason."""
    (at.file.parent / "second.json").write_bytes(Directory.from_keys("second.example", {"autumn": KEYS}).encode())
    with pytest.raises(SpecError, match=r"issuer\.json and second\.json both have keys of autumn") as refused:
        TokenKeys(str(at.file.parent))
    assert refused.value.field == "PRIVATEER_TOKEN_KEYS"
    (at.file.parent / "second.json").write_bytes(Directory.from_keys("second.example", {"winter": KEYS}).encode())
    experiments = TokenKeys(str(at.file.parent)).all()
    assert {name: keys.issuer for name, keys in experiments.items()} == {
        "spring": "issuer.example",
        "autumn": "issuer.example",
        "winter": "second.example",
    }


def test_a_later_key_file_does_not_replace_an_issuer(at, caplog, monkeypatch):
    monkeypatch.setattr("privateer_core.serving.token_gate._FRESH_SECONDS", {False: 0.0, True: 0.0})
    at.gate.admit(header(signed(token())), "spring")
    second = at.file.parent / "second.json"
    second.write_bytes(Directory.from_keys("second.example", {"spring": KEYS[1:]}).encode())
    for _ in range(3):
        at.gate.admit(header(signed(token())), "spring")
    (record,) = caplog.records
    assert record.message.endswith("counts as it was before: issuer.json and second.json both have keys of spring")
    second.unlink()
    at.show(winter=KEYS)
    assert at.gate.directory("winter").keys("winter") == KEYS[::-1]


def test_the_token_page_has_the_keys_and_the_origin(at: Gate) -> None:
    assert at.gate.directory("spring").keys("spring") == KEYS[::-1]
    assert at.gate.directory("spring").keys("autumn") == []
    with pytest.raises(NotFound):
        at.gate.directory("winter")


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("PRIVATEER_UPLOAD_TOKENS", {"PRIVATEER_UPLOAD_TOKENS": "yes"}),
        ("PRIVATEER_TOKEN_KEYS", {"PRIVATEER_UPLOAD_TOKENS": "required"}),
        ("PRIVATEER_TOKEN_ORIGIN", {"PRIVATEER_TOKEN_ORIGIN": "https://shuffler.example"}),
        ("PRIVATEER_TOKEN_ORIGIN", {"PRIVATEER_TOKEN_ORIGIN": ","}),
    ],
)
def test_a_bad_setting_is_named(name: str, variables: dict[str, str]) -> None:
    with pytest.raises(SpecError) as refused:
        TokenSettings.read(variables)
    assert refused.value.field == name
    assert refused.value.remedy


def test_a_token_key_address_must_be_http() -> None:
    with pytest.raises(SpecError, match=r"https://issuer\.example"):
        TokenKeys("file:///etc/passwd")
