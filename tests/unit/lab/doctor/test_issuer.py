"""What ``privateer doctor`` says of an issuer, and of the keys by which services check upload tokens."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privateer_core.serving.settings import TokenSettings
from privateer_core.wire.token_keys import BITS
from privateer_issuer.signing_keys import IssuerKeys
from privateer_issuer.store import FILE, IssuerStore
from privateer_lab.doctor import credentials as upload_tokens
from privateer_lab.doctor import listeners as answers
from privateer_lab.doctor import services
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.credentials import check_upload_tokens
from privateer_lab.doctor.places import IssuerPlace
from privateer_lab.doctor.services import examine_issuer
from tests.support.clocks import Hands
from tests.support.doctor import edit, run

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
    """An issuer of two experiments, whose keys began today and live for 20 days."""
    assert BITS == 2048
    data, clock = tmp_path / "issuer", Hands()
    data.mkdir(mode=0o700)
    clock.time, mask = NOW, os.umask(0o077)
    try:
        store = IssuerStore(data)
        IssuerKeys(store, ["offers", "news"], 10, "issuer.test", data / "issuer.json", clock)
        store.close()
    finally:
        os.umask(mask)
    return IssuerPlace(data, data / "issuer.json")


def told(found: Checkup) -> list[tuple[str, str, str]]:
    return [(one.level.name, one.check, one.detail) for one in found.all if one.level.name != "OK"]


def at(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    for module in (services, upload_tokens):
        monkeypatch.setattr(module, "time", At(NOW + days * DAY))


def test_an_issuer_that_is_sound(place: IssuerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 3)
    found = examine_issuer(place)
    assert told(found) == []
    lines = [one.detail for one in found.all]
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
def test_keys_that_grow_old(
    days: float, level: str, says: str, place: IssuerPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, days)
    assert (level, "keys", says) in told(examine_issuer(place))


DAMAGE: list[tuple[Callable[[IssuerPlace], object], str, str]] = [
    (lambda place: (place.data / FILE).chmod(0o644), "permissions", "other users may read or change issuer.db"),
    (lambda place: (place.data / FILE).write_bytes(b"x" * 9999), "database", "issuer.db is damaged, or no database"),
    (lambda place: edit(place.data / FILE, "PRAGMA user_version=9"), "database", "was made by a newer Privateer"),
    (lambda place: place.shown.unlink(), "keys", "issuer.json does not show the keys of this folder"),
    (lambda place: edit(place.data / FILE, "DELETE FROM keys WHERE experiment = 'news'"), "keys", "does not show the"),
]


@pytest.mark.parametrize(("damage", "check", "says"), DAMAGE, ids=[says for _, _, says in DAMAGE])
def test_damage(
    damage: Callable[[IssuerPlace], object],
    check: str,
    says: str,
    place: IssuerPlace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at(monkeypatch, 1)
    damage(place)
    assert any(
        level == "FAIL" and one == check and says in detail for level, one, detail in told(examine_issuer(place))
    )


def test_the_secrets_are_there_for_their_owner_alone(place: IssuerPlace, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    where = IssuerPlace(place.data, place.shown, None, secrets)
    assert ("FAIL", "permissions", "there is no secrets") in told(examine_issuer(where))
    secrets.write_text("ab" * 32)
    secrets.chmod(0o644)
    assert ("FAIL", "permissions", "other users may read secrets") in told(examine_issuer(where))


def test_the_command_looks_at_an_issuer(
    place: IssuerPlace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVATEER_EXPERIMENTS", "offers")
    monkeypatch.setenv("PRIVATEER_ATTESTATION", "open")
    monkeypatch.setattr(answers, "get", lambda _: None)
    at(monkeypatch, 1)
    code, out, err = run(capsys, "issuer", "--data", str(place.data), "--json")
    checks = {one["check"] for one in json.loads(out)["checks"]}
    assert (code, err) == (0, "")
    assert {"permissions", "database", "keys", "clock", "disk", "answers"} == checks


def checked(source: Any, host: str = "127.0.0.1", required: bool = True, **more: Any) -> list[tuple[str, str, str]]:
    found = Checkup("server")
    tokens = TokenSettings(required=required, keys=str(source), origins=more.get("origins", ("127.0.0.1:8000",)))
    check_upload_tokens(found, tokens, host, more.get("experiments", ["offers"]))
    return told(found)


def test_a_service_with_keys_is_fine_until_they_expire(place: IssuerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 1)
    for source in (place.shown, place.data):
        assert checked(source) == []
    at(monkeypatch, 12)
    assert {level for level, _, _ in checked(place.shown)} == {"WARN"}
    at(monkeypatch, 21)
    assert checked(place.shown) == [("FAIL", "upload keys", "reports need upload tokens, and no issuer's key is valid")]


def test_what_keeps_reports_out_is_told(place: IssuerPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 1)
    (detail,) = [detail for _, _, detail in checked(place.shown, experiments=["offers", "other"])]
    assert detail == "other has no valid token key: no report to it counts"
    (tmp_path / "empty").mkdir()
    assert [level for level, _, _ in checked(tmp_path / "empty")] == ["FAIL"]
    assert checked(tmp_path / "empty", required=False) == []
    assert ("FAIL", "upload keys", "nowhere.json cannot be read") in checked(tmp_path / "nowhere.json")
    (tmp_path / "junk.json").write_text("{}")
    assert ("FAIL", "upload keys", "junk.json shows no token keys") in checked(tmp_path / "junk.json")
    for name in ("copy.json", "issuer.json"):
        (tmp_path / "empty" / name).write_bytes(place.shown.read_bytes())
    told_twice = "copy.json and issuer.json both have keys of offers: the service does not start"
    assert ("FAIL", "upload keys", told_twice) in checked(tmp_path / "empty")
    monkeypatch.setattr(upload_tokens, "get", lambda _: None)
    assert "does not answer" in checked("https://issuer.example")[0][2]


def test_names_that_devices_do_not_know(place: IssuerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, 1)
    assert "by another name than 127.0.0.1:8000" in checked(place.shown, host="0.0.0.0")[0][2]
    assert checked(place.shown, host="0.0.0.0", origins=("learn.example",)) == []


def test_without_keys_nothing_is_said() -> None:
    assert checked("", required=False) == []
