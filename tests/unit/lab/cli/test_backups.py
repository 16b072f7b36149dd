"""``privateer backup`` and ``privateer restore``: from a running server into an empty folder, or an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from privateer_lab.services.processes import Services, free_port, run_services
from privateer_server.store.backup import MEDIA_TYPE
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK, SMALL
from tests.support.specs import tables
from tests.support.stores import embedded_store
from tests.unit.lab.cli.test_command_line import call

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port()) as services:
        headers = {"authorization": f"Bearer {services.token}"}
        httpx.post(f"{services.admin}/experiments", json=tables(SMALL), headers=headers).raise_for_status()
        first = httpx.get(f"{services.server}/experiments/test/policy", headers=MSGPACK).content
        for sealed_report in sealed_reports(first, 12):
            httpx.post(f"{services.server}/reports", content=body_of(first, [sealed_report])).raise_for_status()
        yield services


def backup(at: Services, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "backup", str(folder), "--admin-url", at.admin, "--token", at.token)[0] == 0


def test_a_restored_server_goes_on_under_a_version_never_published(at, tmp_path, capsys):
    backup(at, tmp_path / "copy", capsys)
    assert (tmp_path / "copy" / "server.db").stat().st_mode & 0o777 == 0o600
    code, out = call(capsys, "restore", str(tmp_path / "copy"), str(tmp_path / "new" / "server"))
    assert (code, "PRIVATEER_DATA=" in out) == (0, True)
    with run_services(tmp_path / "new", free_port(), free_port()) as new:
        facts = httpx.get(f"{new.server}/experiments/test").json()
        assert facts | {"version": 1_000_001, "accepted": 12, "received": 0, "status": "open"} == facts
        row = httpx.get(f"{new.server}/experiments/test/privacy").json()["rounds"][0]
        assert (row["version"], row["received"], row["released"]) == (1, 12, False)


@pytest.mark.nightly
def test_a_second_restore_goes_on_above_the_first_with_the_firsts_journal(at, tmp_path, capsys, monkeypatch):
    backup(at, tmp_path / "copy", capsys)
    for number in (1, 2):
        data = tmp_path / str(number)
        assert call(capsys, "restore", str(tmp_path / "copy"), str(data / "server"))[0] == 0
        with run_services(data, free_port(), free_port()) as new:
            assert httpx.get(f"{new.server}/experiments/test").json()["version"] == number * 1_000_000 + 1
        monkeypatch.setenv("PRIVATEER_JOURNAL", str(data / "server" / "journal.db"))


def test_a_backup_overwrites_none_and_needs_the_token(at, tmp_path, capsys):
    backup(at, tmp_path, capsys)
    code, text = call(capsys, "backup", str(tmp_path), "--admin-url", at.admin, "--token", at.token)
    assert (code, text.count("\n"), "DIR: there is a server.db already" in text) == (2, 1, True)
    code, text = call(capsys, "backup", str(tmp_path / "b"), "--admin-url", at.admin, "--token", "not-the-token-at-all")
    assert (code, text.count("\n"), "admin token" in text) == (2, 1, True)
    assert not (tmp_path / "b").exists()


@contextmanager
def answering(content_type: str, length: int, *chunks: bytes) -> Iterator[str]:
    """Serve a response with this declared length, of which only a part is sent."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            for chunk in chunks:
                self.wfile.write(chunk)

        def log_message(self, *_: object) -> None: ...

    class Listener(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """Ignore a client that has closed its connection."""

    with Listener(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def backup_body(tmp_path: Path) -> bytes:
    (tmp_path / "source").mkdir()
    store = embedded_store(tmp_path / "source")
    with store.backup() as copy:
        body = copy.read()
    store.close()
    return body


@pytest.mark.parametrize(
    ("content_type", "missing", "changed", "says"),
    [
        (MEDIA_TYPE, 0, 0, ""),
        ("text/html", 0, 0, "--admin-url: the answer is not a backup"),
        (MEDIA_TYPE, 1, 0, "--admin-url: the answer broke off after "),
        (MEDIA_TYPE, 5000, 0, "--admin-url: the answer broke off after "),
        (MEDIA_TYPE, 0, 3000, ".server.db.new is damaged, or no backup"),
    ],
)
def test_an_answer_that_is_not_a_whole_backup_is_not_kept(
    backup_body: bytes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content_type: str,
    missing: int,
    changed: int,
    says: str,
) -> None:
    body = (backup_body[:100] + bytes(changed) + backup_body[100 + changed :])[: len(backup_body) - missing]
    with answering(content_type, len(backup_body), body[:3000], body[3000:]) as url:
        code, output = call(capsys, "backup", str(tmp_path / "copy"), "--token", "any", "--admin-url", url)
    assert (code, output.count("\n"), says in output) == (3 if "the answer" in says else 2 if says else 0, 1, True)
    assert [path.name for path in tmp_path.glob("copy/*")] == ([] if says else ["server.db"])


@pytest.mark.parametrize(
    ("identity", "says"),
    [
        ("/keys/my identity.key", "PRIVATEER_PUBLICATION_KEY='/keys/my identity.key' privateer serve server"),
        ("", "PRIVATEER_PUBLICATION_KEY to the old identity.key, which no backup has"),
    ],
)
def test_the_hint_has_the_key_by_which_devices_know_the_server(identity, says, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PRIVATEER_PUBLICATION_KEY", identity)
    (tmp_path / "copy").mkdir()
    embedded_store(tmp_path / "copy").close()
    code, out = call(capsys, "restore", str(tmp_path / "copy"), str(tmp_path / "new"))
    assert (code, says in out) == (0, True)


def test_a_file_that_is_no_backup_is_not_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "copy").mkdir()
    target = str(tmp_path / "new")
    assert "there is no server.db" in call(capsys, "restore", str(tmp_path / "copy"), target)[1]
    (tmp_path / "copy" / "server.db").write_bytes(b"not a database" * 500)
    code, output = call(capsys, "restore", str(tmp_path / "copy"), target)
    assert (code, output.count("\n"), "server.db is damaged, or no backup" in output) == (2, 1, True)
    assert not (tmp_path / "new").exists()


def test_a_backup_is_not_restored_to_a_folder_with_files(at, tmp_path, capsys):
    backup(at, tmp_path / "copy", capsys)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "something").write_text("")
    code, output = call(capsys, "restore", str(tmp_path / "copy"), str(tmp_path / "new"))
    assert (code, "DATA: the folder is not empty" in output) == (2, True)


@pytest.mark.parametrize(
    ("address", "token", "says"),
    [
        ("admin", "not-the-token-at-all", "--token: this is not the server's admin token (set PRIVATEER_ADMIN_TOKEN"),
        ("server", "any", "--admin-url: this is not the server's private listener (its port is 8002 "),
        ("shuffler", "any", "--admin-url: this is not the server's private listener (its port is 8002 "),
    ],
)
def test_a_wrong_token_or_address_is_named(at, tmp_path, capsys, address, token, says):
    connection = ("--admin-url", getattr(at, address), "--token", token)
    for command in (("backup", str(tmp_path / "copy")), ("create", str(ROOT / "examples" / "peaks-local.toml"))):
        code, output = call(capsys, *command, *connection)
        assert (code, output.count("\n"), says in output) == (2, 1, True)


@pytest.mark.parametrize(
    "words", [["load"], ["answer", "--as", "progress"], ["answer", "--as", "policy"]], ids=" ".join
)
def test_a_shuffler_is_not_taken_for_a_server(at, capsys, words):
    code, output = call(capsys, *words, "test", "--url", at.shuffler)
    assert (code, output.count("\n"), "--url: this is not a learning server" in output) == (2, 1, True)
