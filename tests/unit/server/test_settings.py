"""Settings from the environment and flags; a server that cannot start says why in one line."""

import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_core.wire.token_keys import Directory
from privateer_lab.services.processes import free_port
from privateer_server.app import main
from privateer_server.settings import read_settings
from tests.support.issuing import key

GOOD = {"PRIVATEER_DATA": "somewhere", "PRIVATEER_ADMIN_TOKEN": "a-secret-of-the-tests"}


def test_settings_have_defaults() -> None:
    settings = read_settings(GOOD, [])
    assert (settings.data, settings.journal) == (Path("somewhere"), None)
    assert settings.admin_token == hashlib.sha256(b"a-secret-of-the-tests").digest()
    assert (settings.host, settings.port, settings.shuffler_keys, settings.cors_origins) == ("127.0.0.1", 8000, (), ())
    assert (settings.admin_host, settings.admin_port, settings.sender_keys) == ("127.0.0.1", 8002, ())


def test_flags_override_variables() -> None:
    variables = GOOD | {
        "PRIVATEER_HOST": "0.0.0.0",
        "PRIVATEER_PORT": "9000",
        "PRIVATEER_SHUFFLER_KEYS": os.pathsep.join(["keys", "more/one.pub"]),
        "PRIVATEER_REPORT_BYTES_MAX": "1000",
        "PRIVATEER_BATCH_BYTES_MAX": "2000",
        "PRIVATEER_JOURNAL": "elsewhere/journal.db",
        "PRIVATEER_BODY_BUDGET": "2000",
        "PRIVATEER_ADMIN_HOST": "10.0.0.1",
        "PRIVATEER_ADMIN_PORT": "9002",
        "PRIVATEER_SENDER_KEYS": "senders",
        "PRIVATEER_CORS_ORIGINS": "https://shop.example",
    }
    settings = read_settings(variables, ["--port", "9001"])
    assert (settings.host, settings.port) == ("0.0.0.0", 9001)
    assert settings.shuffler_keys == (Path("keys"), Path("more/one.pub"))
    assert (settings.report_bytes_max, settings.batch_bytes_max, settings.body_budget) == (1000, 2000, 2000)
    assert (settings.admin_host, settings.admin_port, settings.sender_keys) == ("10.0.0.1", 9002, (Path("senders"),))
    assert settings.journal == Path("elsewhere/journal.db")
    assert settings.cors_origins == ("https://shop.example",)
    assert read_settings(variables, ["--host", "::1"]).host == "::1"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"PRIVATEER_DATA": ""}, "PRIVATEER_DATA"),
        ({"PRIVATEER_ADMIN_TOKEN": ""}, "PRIVATEER_ADMIN_TOKEN"),
        ({"PRIVATEER_ADMIN_TOKEN": "fifteen-letters"}, "PRIVATEER_ADMIN_TOKEN"),
        ({"PRIVATEER_PORT": "0"}, "PRIVATEER_PORT"),
        ({"PRIVATEER_PORT": "65536"}, "PRIVATEER_PORT"),
        ({"PRIVATEER_PORT": "http"}, "PRIVATEER_PORT"),
        ({"PRIVATEER_BATCH_BYTES_MAX": "-1"}, "PRIVATEER_BATCH_BYTES_MAX"),
        ({"PRIVATEER_BODY_BUDGET": "1000000"}, "PRIVATEER_BODY_BUDGET"),
        ({"PRIVATEER_ADMIN_PORT": "http"}, "PRIVATEER_ADMIN_PORT"),
    ],
)
def test_bad_settings_name_their_variable(changes: dict[str, str], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_settings(GOOD | changes, [])
    assert caught.value.field == field
    assert caught.value.remedy


def test_a_missing_setting_ends_in_one_line_and_code_2() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PRIVATEER_")}
    code = "from privateer_server.app import main; main()"
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("privateer-server: PRIVATEER_")
    assert process.stderr.count("\n") == 1


def start(monkeypatch: pytest.MonkeyPatch, data: Path, *arguments: str) -> int:
    """The exit code of a server that cannot start."""
    monkeypatch.setattr("privateer_server.app.prepare_process", lambda *_: None)  # this process is the tests' own
    monkeypatch.setenv("PRIVATEER_DATA", str(data))
    monkeypatch.setenv("PRIVATEER_ADMIN_TOKEN", "a-secret-of-the-tests")
    monkeypatch.setenv("PRIVATEER_PORT", str(free_port()))
    monkeypatch.setenv("PRIVATEER_ADMIN_PORT", str(free_port()))
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_data_path_to_a_file_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    assert start(monkeypatch, tmp_path / "file") == 2
    assert capsys.readouterr().err.startswith("privateer-server: PRIVATEER_DATA: ")


def test_a_file_other_than_a_database_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "server.db").write_bytes(b"not a database" * 100)
    assert start(monkeypatch, tmp_path) == 2
    assert "server.db is damaged, or no database" in capsys.readouterr().err


def test_two_issuers_of_one_experiment_are_refused(tmp_path, monkeypatch, capsys):
    """Keys of two issuers of an experiment would replace each other. No folder and no key is created."""
    folder = tmp_path / "keys"
    for name in ("first", "second"):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_bytes(Directory.from_keys(f"{name}.example", {"spring": [key()]}).encode())
    monkeypatch.setenv("PRIVATEER_TOKEN_KEYS", str(folder))
    assert start(monkeypatch, tmp_path / "data") == 2
    err = capsys.readouterr().err
    assert err.startswith("privateer-server: PRIVATEER_TOKEN_KEYS: first.json and second.json both have keys of spring")
    assert err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_refused(tmp_path, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert start(monkeypatch, tmp_path, "--port", str(other.getsockname()[1])) == 2
    err = capsys.readouterr().err
    assert "PRIVATEER_PORT: cannot listen" in err
    assert "while attempting" not in err
