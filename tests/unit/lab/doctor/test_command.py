"""``privateer doctor``: its arguments, and its checks of settings."""

import json
from pathlib import Path

import pytest

from privateer_lab.cli.command_line import main
from tests.support.doctor import Deployment, run


def test_the_environment_names_one_service(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVATEER_DATA", str(deployment.data / "shuffler"))
    monkeypatch.setenv("PRIVATEER_SERVER_URL", deployment.at.server)
    monkeypatch.setenv("PRIVATEER_PORT", deployment.at.shuffler.rpartition(":")[2])
    monkeypatch.setenv("PRIVATEER_ADMIN_PORT", deployment.at.shuffler_admin.rpartition(":")[2])
    monkeypatch.setenv("PRIVATEER_PUBLIC_KEY_FILE", str(deployment.data / "trusted" / "shuffler.pub"))
    code, out, _ = run(capsys, "shuffler")
    bad = [line for line in out.splitlines() if not line.startswith("ok ")]
    assert (code, len(bad)) == (1, 1)
    assert "is not a server's private listener" in bad[0]
    monkeypatch.setenv("PRIVATEER_SERVER_URL", deployment.at.admin)
    assert run(capsys, "shuffler")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nobody"], "Invalid value for 'SERVICE': 'nobody' is not one of 'server', 'shuffler', 'issuer'"),
        (["--data", "nowhere"], "--data: there is neither a server nor a shuffler in nowhere"),
        (["--data", "nowhere/else"], "there is neither a server nor a shuffler in nowhere/else (name"),
        (["--server-port", "0"], "'--server-port' (env var: 'PRIVATEER_PORT'): must be greater than or equal to 1"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_use_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_setting_out_of_range_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATEER_DECRYPT_WORKERS", "many")
    code, out, err = run(capsys, "server")
    assert (code, out, err.count("\n"), "PRIVATEER_DECRYPT_WORKERS: " in err) == (2, "", 1, True)


@pytest.mark.parametrize(("size", "level"), [(32, "ok"), (31, "fail")])
def test_shared_data_that_cannot_be_reached_are_a_line_with_a_remedy(
    size: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "store.key"
    key.write_bytes(b"k" * size)
    key.chmod(0o600)
    settings = {
        "PRIVATEER_DATABASE": "postgresql://nowhere/one",
        "PRIVATEER_JOURNAL_DATABASE": "postgresql://nowhere/two",
        "PRIVATEER_STORE_KEY_FILE": str(key),
        "PRIVATEER_PUBLICATION_KEY": str(tmp_path / "identity.key"),
        "PRIVATEER_ADMIN_TOKEN": "t" * 32,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main(["doctor", "server", "--json"])
    checks = {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert (checks["database"]["level"], checks["round keys"]["level"]) == ("fail", level)
    for check, setting in (("database", "PRIVATEER_DATABASE"), ("journal", "PRIVATEER_JOURNAL_DATABASE")):
        assert checks[check]["detail"].startswith(f"{setting}: the database cannot be used: ")
        assert checks[check]["remedy"] == "check that it runs, its address and its owner"
