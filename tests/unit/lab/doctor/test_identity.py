"""``privateer doctor`` on the key that signs publications."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.doctor import Deployment, ports, run_checks


@pytest.mark.parametrize("is_same", [True, False])
def test_the_key_is_that_of_the_server_that_answers(
    is_same: bool,
    deployment: Deployment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_a_key_elsewhere_is_its_owners_alone(
    deployment: Deployment, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "shared.key"
    key.write_text((deployment.data / "server" / "identity.key").read_text())
    key.chmod(0o644)
    monkeypatch.setenv("PRIVATEER_PUBLICATION_KEY", str(key))
    code, checks = run_checks(capsys, deployment.data, *ports(deployment.at))
    assert (code, checks["server permissions"][0]["detail"]) == (1, "other users may read shared.key")


@pytest.mark.parametrize("is_same", [True, False])
def test_the_shuffler_knows_the_key_of_the_server_that_answers(
    is_same: bool, deployment: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
