"""``privateer doctor`` on keys: that sign publications, and by which services check upload tokens."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.serving.settings import TokenSettings
from privateer_core.wire.token_keys import MODULUS_BITS
from privateer_issuer.signing_keys import KeyRing
from privateer_issuer.store import FILE, IssuerStore
from privateer_lab.doctor import credentials as upload_tokens
from privateer_lab.doctor import places as answers
from privateer_lab.doctor import services
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.credentials import check_token_keys
from privateer_lab.doctor.places import IssuerPlace
from privateer_lab.doctor.services import examine_issuer
from tests.support.clocks import Hands
from tests.support.doctor import edit, ports, run, run_checks


@pytest.mark.parametrize("is_same", [True, False])
def test_the_key_is_that_of_the_server_that_answers(is_same, deployment, tmp_path, capsys, monkeypatch):
    key = tmp_path / "other.key"
    text = (deployment.data / "server" / "identity.key").read_text()
    key.write_text(text if is_same else Ed25519PrivateKey.generate().private_bytes_raw().hex())
    key.chmod(0o600)
    monkeypatch.setenv("PRIVATEER_PUBLICATION_KEY", str(key))
    code, checks = run_checks(capsys, deployment.data, *ports(deployment.at))
    assert (code, set(checks)) == ((0, set()) if is_same else (1, {"server identity"}))
    if not is_same:
        assert "signs with another key than this file's" in checks["server identity"][0]["detail"]
        assert text not in str(checks)


def test_a_key_elsewhere_is_its_owners_alone(deployment, tmp_path, capsys, monkeypatch):
    key = tmp_path / "shared.key"
    key.write_text((deployment.data / "server" / "identity.key").read_text())
    key.chmod(0o644)
    monkeypatch.setenv("PRIVATEER_PUBLICATION_KEY", str(key))
    code, checks = run_checks(capsys, deployment.data, *ports(deployment.at))
    assert (code, checks["server permissions"][0]["detail"]) == (1, "other users may read shared.key")


@pytest.mark.parametrize("is_same", [True, False])
def test_the_shuffler_knows_the_key_of_the_server_that_answers(is_same, deployment, capsys, monkeypatch):
    pin = (deployment.data / "shuffler" / "server.pin").read_text().strip()
    pinned_key = pin if is_same else Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    monkeypatch.setenv("PRIVATEER_SERVER_KEY", pinned_key)
    code, checks = run_checks(capsys, deployment.data, *ports(deployment.at))
    assert (code, set(checks)) == ((0, set()) if is_same else (1, {"shuffler server key"}))
    if not is_same:
        assert "signs with another key than this shuffler knows" in checks["shuffler server key"][0]["detail"]
        assert pin not in str(checks)


@pytest.mark.parametrize("damage", ["key", "pin", "no pin"])
def test_the_keys_of_stopped_services_are_compared(damage: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server was started on a folder without its key, or the shuffler's file holds no key."""
    pin, other = data / "shuffler" / "server.pin", Ed25519PrivateKey.generate()
    if damage == "key":
        (data / "server" / "identity.key").write_text(other.private_bytes_raw().hex())
    elif damage == "pin":
        pin.write_text("no key")
    else:
        pin.unlink()
    _, checks = run_checks(capsys, data)
    details = [row["detail"] for row in checks.get("shuffler server key", [])]
    expected = {"key": "the server signs with another key", "pin": "server.pin holds no key"}.get(damage)
    assert [expected in detail for detail in details] == ([True] if expected else [])


DAY = 86_400
NOW = 1_790_000_000.0


class At:
    """The time module at another time."""

    def __init__(self, now: float) -> None:
        self._now = now

    def time(self) -> float:
        return self._now


@pytest.fixture
def place(tmp_path: Path) -> IssuerPlace:
    """Create an issuer of two experiments, whose keys are valid from today for 20 days."""
    assert MODULUS_BITS == 2048
    data, clock = tmp_path / "issuer", Hands()
    data.mkdir(mode=0o700)
    clock.time, mask = NOW, os.umask(0o077)
    try:
        store = IssuerStore(data)
        KeyRing(store, ["offers", "news"], 10, "issuer.test", data / "issuer.json", clock)
        store.close()
    finally:
        os.umask(mask)
    return IssuerPlace(data, data / "issuer.json")


def problems(checkup: Checkup) -> list[tuple[str, str, str]]:
    return [(check.level.name, check.check, check.detail) for check in checkup.checks if check.level.name != "OK"]


def at(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    for module in (services, upload_tokens):
        monkeypatch.setattr(module, "time", At(NOW + days * DAY))


def test_a_sound_issuer_has_no_problems(place: IssuerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 3)
    checkup = examine_issuer(place)
    assert problems(checkup) == []
    lines = [check.detail for check in checkup.checks]
    assert "keys of 2 experiments: 4 days old at most, 16 days left" in lines
    assert "issuer.json shows public halves of these keys" in lines


@pytest.mark.parametrize(
    ("days", "level", "says"),
    [
        (11, "WARN", "the key of news has lived for half of its time, and has no successor, and so for 1 more"),
        (21, "FAIL", "the newest key of news has expired: no token of it counts, and so for 1 more"),
        (21, "WARN", "private halves of 2 expired keys are not erased"),
    ],
)
def test_old_keys_are_a_warning_and_then_a_failure(days, level, says, place, monkeypatch):
    at(monkeypatch, days)
    assert (level, "keys", says) in problems(examine_issuer(place))


DAMAGE: list[tuple[Callable[[IssuerPlace], object], str, str]] = [
    (lambda place: (place.data / FILE).chmod(0o644), "permissions", "other users may read or change issuer.db"),
    (lambda place: (place.data / FILE).write_bytes(b"x" * 9999), "database", "issuer.db is damaged, or no database"),
    (lambda place: edit(place.data / FILE, "PRAGMA user_version=9"), "database", "was made by a newer Privateer"),
    (lambda place: place.public_keys_file.unlink(), "keys", "issuer.json does not show the keys of this folder"),
    (lambda place: edit(place.data / FILE, "DELETE FROM keys WHERE experiment = 'news'"), "keys", "does not show the"),
]


@pytest.mark.parametrize(("damage", "check", "says"), DAMAGE, ids=[says for _, _, says in DAMAGE])
def test_damage_of_the_issuers_folder_is_a_failed_check(damage, check, says, place, monkeypatch):
    at(monkeypatch, 1)
    damage(place)
    assert any(
        level == "FAIL" and name == check and says in detail for level, name, detail in problems(examine_issuer(place))
    )


def test_the_secrets_are_there_for_their_owner_alone(place: IssuerPlace, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    issuer_place = IssuerPlace(place.data, place.public_keys_file, None, secrets)
    missing = "PRIVATEER_ATTESTATION_SECRETS names secrets, which does not exist"
    assert ("FAIL", "permissions", missing) in problems(examine_issuer(issuer_place))
    secrets.write_text("ab" * 32)
    secrets.chmod(0o644)
    assert ("FAIL", "permissions", "other users may read secrets") in problems(examine_issuer(issuer_place))


def test_the_command_looks_at_an_issuer(place, capsys, monkeypatch):
    monkeypatch.setenv("PRIVATEER_EXPERIMENTS", "offers")
    monkeypatch.setenv("PRIVATEER_ATTESTATION_VERIFIER", "open")
    monkeypatch.setattr(answers, "fetch_or_none", lambda _: None)
    at(monkeypatch, 1)
    code, out, err = run(capsys, "issuer", "--data", str(place.data), "--json")
    checks = {check["check"] for check in json.loads(out)["checks"]}
    assert (code, err) == (0, "")
    assert {"permissions", "database", "keys", "clock", "disk", "answers"} == checks


def check_tokens(
    source: Any, host: str = "127.0.0.1", required: bool = True, **options: Any
) -> list[tuple[str, str, str]]:
    checkup = Checkup("server")
    tokens = TokenSettings(required=required, keys=str(source), origins=options.get("origins", ("127.0.0.1:8000",)))
    check_token_keys(checkup, tokens, host, options.get("experiments", ["offers"]))
    return problems(checkup)


def test_a_service_with_keys_is_fine_until_they_expire(place: IssuerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 1)
    for source in (place.public_keys_file, place.data):
        assert check_tokens(source) == []
    at(monkeypatch, 12)
    assert {level for level, _, _ in check_tokens(place.public_keys_file)} == {"WARN"}
    at(monkeypatch, 21)
    assert check_tokens(place.public_keys_file) == [
        ("FAIL", "upload keys", "reports need upload tokens, and no issuer's key is valid")
    ]


def test_unusable_token_keys_are_problems(place: IssuerPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 1)
    (detail,) = [detail for _, _, detail in check_tokens(place.public_keys_file, experiments=["offers", "other"])]
    assert detail == "other has no valid token key: no report to it counts"
    (tmp_path / "empty").mkdir()
    assert [level for level, _, _ in check_tokens(tmp_path / "empty")] == ["FAIL"]
    assert check_tokens(tmp_path / "empty", required=False) == []
    assert ("FAIL", "upload keys", "nowhere.json cannot be read") in check_tokens(tmp_path / "nowhere.json")
    (tmp_path / "junk.json").write_text("{}")
    assert ("FAIL", "upload keys", "junk.json shows no token keys") in check_tokens(tmp_path / "junk.json")
    for name in ("copy.json", "issuer.json"):
        (tmp_path / "empty" / name).write_bytes(place.public_keys_file.read_bytes())
    told_twice = "copy.json and issuer.json both have keys of offers: the service does not start"
    assert ("FAIL", "upload keys", told_twice) in check_tokens(tmp_path / "empty")
    monkeypatch.setattr(upload_tokens, "fetch_or_none", lambda _: None)
    assert "does not answer" in check_tokens("https://issuer.example")[0][2]


def test_unknown_token_origins_are_problems(place: IssuerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 1)
    assert "by another name than 127.0.0.1:8000" in check_tokens(place.public_keys_file, host="0.0.0.0")[0][2]
    assert check_tokens(place.public_keys_file, host="0.0.0.0", origins=("learn.example",)) == []


def test_a_service_without_token_keys_has_no_checks() -> None:
    assert check_tokens("", required=False) == []
