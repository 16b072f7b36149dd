"""``privateer doctor``: what it says of sound, running, stopped and damaged services; and that it changes nothing."""

import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_lab.cli import main
from privateer_lab.doctor import answers, files
from privateer_lab.services import Services, free_port, running
from privateer_server.store import LogLine
from privateer_server.store.journal import Journal
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK, SHUFFLED, SMALL
from tests.support.specs import tables

TOKEN = "token-of-the-doctors-tests"


class Made(NamedTuple):
    """Two services with an experiment each way, and copies of their folder: while they ran, and after a kill."""

    at: Services
    data: Path
    early: Path
    killed: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("doctor")
    data, early, killed = folder / "data", folder / "early", folder / "killed"
    with running(data, free_port(), free_port(), TOKEN) as at:
        for changes in (SMALL, SHUFFLED | {"experiment.name": "shuffled"}):
            headers = {"authorization": f"Bearer {TOKEN}"}
            httpx.post(f"{at.admin}/experiments", json=tables(changes), headers=headers).raise_for_status()
        report(at, "test", f"{at.server}/reports", 19)
        report(at, "shuffled", f"{at.shuffler}/experiments/shuffled/reports", 5)
        shutil.copytree(data, early)
        report(at, "test", f"{at.server}/reports", 1)  # the round closes
        report(at, "test", f"{at.server}/reports", 3)
        for name in ("server", "shuffler"):
            at.processes.kill(name)
        shutil.copytree(data, killed)
        for name in ("server", "shuffler"):
            at.processes.start(name)
        for name in ("server", "shuffler"):
            at.processes.wait(name)
        yield Made(at, data, early, killed)


def report(at: Services, name: str, url: str, people: int) -> None:
    body = httpx.get(f"{at.server}/experiments/{name}/policy", headers=MSGPACK).content
    for one in sealed_reports(body, people, seed=int(time.monotonic_ns()) % 1000):
        httpx.post(url, content=body_of(body, [one])).raise_for_status()


@pytest.fixture
def data(made: Made, tmp_path: Path) -> Path:
    """The folder of killed services, to be damaged."""
    return Path(shutil.copytree(made.killed, tmp_path / "data"))


def ports(at: Services) -> list[str]:
    named = {
        "--server-port": at.server,
        "--shuffler-port": at.shuffler,
        "--admin-port": at.admin,
        "--shuffler-admin-port": at.shuffler_admin,
    }
    return [part for option, url in named.items() for part in (option, url.rpartition(":")[2])]


def free_ports() -> list[str]:
    names = ("--server-port", "--shuffler-port", "--admin-port", "--shuffler-admin-port")
    return [part for name in names for part in (name, str(free_port()))]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["doctor", *arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def examined(capsys: pytest.CaptureFixture[str], data: Path, *more: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Exit code, and what is not fine by ``service check``."""
    code, out, err = run(capsys, "--data", str(data), "--json", *(more or free_ports()))
    assert not err
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(out)["checks"]:
        if one["level"] != "ok":
            found.setdefault(f"{one['service']} {one['check']}", []).append(one)
    return code, found


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file with its mode, its time and its bytes."""
    paths = sorted(folder.rglob("*"))
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in paths
    }


def test_services_that_run_are_fine(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--data", str(made.data), *ports(made.at))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) > 15
    assert {line.split()[0] for line in lines} == {"ok"}
    assert {line.split()[1] for line in lines} == {"server", "shuffler", "sender"}


def test_rounds_that_close_meanwhile_are_no_finding(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """Several a second, each of which changes journal, database and keys one after the other."""
    busy, headers = SMALL | {"experiment.name": "busy"}, {"authorization": f"Bearer {TOKEN}"}
    httpx.post(f"{made.at.admin}/experiments", json=tables(busy), headers=headers).raise_for_status()
    ended = Event()

    def fill() -> None:
        with httpx.Client(base_url=made.at.server) as client:
            while not ended.is_set():
                body = client.get("/experiments/busy/policy", headers=MSGPACK).content
                for one in sealed_reports(body, 20):
                    client.post("/reports", content=body_of(body, [one]))

    filling = Thread(target=fill)
    filling.start()
    try:
        found = [examined(capsys, made.data, *ports(made.at)) for _ in range(3)]
    finally:
        ended.set()
        filling.join()
    assert found == [(0, {})] * 3
    assert httpx.get(f"{made.at.server}/experiments/busy").json()["version"] > 3


def test_services_that_are_stopped_are_warned_of(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a kill has left the write-ahead logs. Nothing changes, and nothing comes to be beside the files."""
    before = contents(data)
    code, found = examined(capsys, data)
    assert contents(data) == before
    assert code == 0
    assert set(found) == {"server answers", "shuffler answers", "shuffler its server"}
    assert all(one["remedy"] for ones in found.values() for one in ones)


def test_the_environment_names_one_service(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVATEER_DATA", str(made.data / "shuffler"))
    monkeypatch.setenv("PRIVATEER_SERVER_URL", made.at.server)
    monkeypatch.setenv("PRIVATEER_PORT", made.at.shuffler.rpartition(":")[2])
    monkeypatch.setenv("PRIVATEER_ADMIN_PORT", made.at.shuffler_admin.rpartition(":")[2])
    monkeypatch.setenv("PRIVATEER_PUBLIC_KEY_FILE", str(made.data / "trusted" / "shuffler.pub"))
    code, out, _ = run(capsys, "shuffler")
    bad = [line for line in out.splitlines() if not line.startswith("ok ")]
    assert (code, len(bad)) == (1, 1)
    assert "is not a server's private listener" in bad[0]
    monkeypatch.setenv("PRIVATEER_SERVER_URL", made.at.admin)
    assert run(capsys, "shuffler")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nobody"], "Invalid value for 'service': 'nobody' is not one of 'server', 'shuffler'"),
        (["--data", "nowhere"], "--data: there is neither a server nor a shuffler in nowhere"),
        (["--data", "nowhere/else"], "there is neither a server nor a shuffler in nowhere/else (name"),
        (["--server-port", "0"], "'--server-port': must be greater than or equal to 1"),
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
    monkeypatch.setenv("PRIVATEER_OPENERS", "many")
    code, out, err = run(capsys, "server")
    assert (code, out, err.count("\n"), "PRIVATEER_OPENERS: " in err) == (2, "", 1, True)


def edit(path: Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


def garbage(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink(missing_ok=True)
    path.write_bytes(b"no database" * 1000)


def one(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[0]


def swapped_keys(data: Path) -> None:
    first, second = sorted((data / "server" / "keys").glob("*.key"))
    body = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(body)


def torn_pages(data: Path) -> None:
    """Damage the pages of the table that is read last, and remove the log, which may have them whole."""
    edit(data / "server" / "server.db", "PRAGMA wal_checkpoint(TRUNCATE)")
    with (data / "server" / "server.db").open("r+b") as file:
        for page in range(4, 24):
            file.seek(page * 4096 + 100)
            file.write(os.urandom(3000))


def other_sums(data: Path) -> None:
    edit(data / "server" / "server.db", "UPDATE rounds SET total = x'00' WHERE total != x''")


def key_of_nobody(data: Path) -> None:
    from privateer_server.round_keys import RoundKeys

    RoundKeys(data / "server" / "keys").make()


def other_public_key(data: Path) -> None:
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    (data / "trusted" / "shuffler.pub").write_text(public + "\n")


def open_to_writers(data: Path) -> None:
    (data / "trusted").chmod(0o777)


CASES: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda data: garbage(data / "server" / "server.db"), "server database", "damaged, or no database"),
    (lambda data: garbage(data / "server" / "journal.db"), "server journal", "damaged, or no database"),
    (lambda data: garbage(data / "shuffler" / "taken.sqlite"), "shuffler history", "damaged, or no database"),
    (lambda data: garbage(one(data / "shuffler", "*.db")), "shuffler rounds", "a .db file of shuffler is damaged"),
    (lambda data: (data / "server" / "server.db").unlink(), "server database", "server.db is missing"),
    (torn_pages, "server database", "damaged"),
    (
        lambda data: edit(data / "server" / "server.db", "PRAGMA user_version=77"),
        "server database",
        "server.db was made by a newer Privateer: schema 77, and this one reads",
    ),
    (
        lambda data: edit(data / "server" / "journal.db", "PRAGMA user_version=1"),
        "server journal",
        "journal.db has schema 1, and this version of Privateer reads",
    ),
    (
        lambda data: edit(one(data / "shuffler", "*.db"), "PRAGMA user_version=77"),
        "shuffler rounds",
        "was made by a newer Privateer",
    ),
    (
        lambda data: edit(one(data / "shuffler", "*.db"), "DELETE FROM place WHERE id = 7"),
        "shuffler rounds",
        "a .db file of shuffler is damaged",
    ),
    (
        lambda data: edit(data / "shuffler" / "taken.sqlite", "DELETE FROM taken"),
        "shuffler history",
        "does not know the round of shuffled",
    ),
    (lambda data: one(data / "server" / "keys", "*.key").unlink(), "server round keys", "the key of the open round of"),
    (swapped_keys, "server round keys", "2 files hold no key, or not that of their name"),
    (other_sums, "server round keys", "the sums of the open round of"),
    (lambda data: one(data / "server" / "keys", "*.key").chmod(0o644), "server permissions", "a .key file of keys"),
    (lambda data: (data / "shuffler" / "shuffler.key").chmod(0o640), "shuffler permissions", "shuffler.key"),
    (lambda data: (data / "shuffler").chmod(0o755), "shuffler permissions", "other users may read or change shuffler"),
    (lambda data: (data / "sender.key").chmod(0o604), "sender permissions", "other users may read sender.key"),
    (lambda data: (data / "shuffler" / "shuffler.key").write_text("no key"), "shuffler key", "holds no key"),
    (lambda data: (data / "sender.key").write_text("no key"), "sender key", "sender.key holds no key"),
    (other_public_key, "shuffler key", "shuffler.pub is not the public half of this key"),
    (other_public_key, "shuffler trust", "the server does not trust this shuffler's key"),
    (other_public_key, "server shufflers", "shuffled is claimed by a shuffler that is not trusted"),
    (lambda data: (data / "trusted" / "shuffler.pub").unlink(), "server shufflers", "shuffled needs a shuffler"),
    (
        lambda data: (data / "trusted" / "shuffler.pub").write_text("x"),
        "server shufflers",
        "shuffler.pub holds no public key",
    ),
    (open_to_writers, "server shufflers", "other users may change shuffler.pub"),
]


@pytest.mark.parametrize(("damage", "check", "says"), CASES, ids=[f"{check}: {says}" for _, check, says in CASES])
def test_what_fails_is_told(
    damage: Callable[[Path], object], check: str, says: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data)
    before = contents(data)
    code, found = examined(capsys, data)
    assert contents(data) == before
    assert code == 1
    assert any(one["level"] == "fail" and says in one["detail"] and one["remedy"] for one in found[check])


def earlier_database(made: Made, data: Path) -> None:
    for path in (data / "server").glob("server.db*"):
        path.unlink()
    for path in (made.early / "server").glob("server.db*"):
        shutil.copy2(path, data / "server")


def lost_experiment(_: Made, data: Path) -> None:
    edit(data / "server" / "server.db", "DELETE FROM rounds WHERE experiment = 'test'")
    edit(data / "server" / "server.db", "DELETE FROM experiments WHERE name = 'test'")


def deleted_experiment(_: Made, data: Path) -> None:
    journal = Journal(data / "server" / "journal.db")
    journal.bury("test", LogLine(0.0, "delete", "", "somebody", 1, 1))
    journal.close()


WARNINGS: list[tuple[Callable[[Made, Path], object], str, str]] = [
    (lambda _, data: (data / "server" / "journal.db").unlink(), "server journal", "there is no journal.db"),
    (earlier_database, "server journal", "a start gives up the open round of test: an earlier copy"),
    (lost_experiment, "server journal", "test was published, and is not in the database"),
    (deleted_experiment, "server journal", "test was deleted, and an earlier copy has brought it back"),
    (lambda _, data: key_of_nobody(data), "server round keys", "keys of 1 closed rounds are not erased"),
    (lambda _, data: (data / "shuffler" / "taken.sqlite").write_bytes(b""), "shuffler history", "is empty"),
]


@pytest.mark.parametrize(("change", "check", "says"), WARNINGS, ids=[says for _, _, says in WARNINGS])
def test_what_somebody_should_look_at_is_a_warning(
    change: Callable[[Made, Path], object],
    check: str,
    says: str,
    made: Made,
    data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(made, data)
    _, found = examined(capsys, data)
    assert any(one["level"] == "warn" and says in one["detail"] and one["remedy"] for one in found[check])


def test_a_clock_that_is_behind(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.time, "time", lambda: time.mktime((2025, 6, 1, 0, 0, 0, 0, 0, 0)))
    code, found = examined(capsys, data)
    assert code == 1
    for service in ("server", "shuffler"):
        (said,) = found[f"{service} clock"]
        assert said["detail"] == "the clock is more than a minute behind the newest time on record"
    monkeypatch.setattr(files.time, "time", lambda: 0.0)
    assert examined(capsys, data)[1]["server clock"][0]["detail"] == "the clock is not set"


@pytest.mark.parametrize(("free", "level"), [(10 << 20, "fail"), (100 << 20, "warn"), (1 << 40, "ok")])
def test_a_disk_that_is_full(
    free: int, level: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(data)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage._replace(free=free))
    code, found = examined(capsys, data)
    said = {one["level"] for service in ("server", "shuffler") for one in found.get(f"{service} disk", [])}
    assert said == ({level} if level != "ok" else set())
    assert code == (1 if level == "fail" else 0)


def test_a_service_that_hangs_and_one_that_is_elsewhere(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_SECONDS", 0.5)
    os.kill(made.at.processes.pid("shuffler"), signal.SIGSTOP)
    try:
        code, found = examined(capsys, made.data, *ports(made.at))
    finally:
        os.kill(made.at.processes.pid("shuffler"), signal.SIGCONT)
    assert (code, set(found)) == (1, {"shuffler answers"})
    assert found["shuffler answers"][0]["detail"].startswith("a process has the data open, and nothing answers at")
    _, found = examined(capsys, made.killed, *ports(made.at))
    assert {name: found[name][0]["detail"] for name in found} == {
        "server answers": f"a server answers at {made.at.server}, and it does not use this folder",
        "shuffler answers": f"a shuffler answers at {made.at.shuffler}, and it does not use this folder",
    }


def test_a_shuffler_whose_server_is_gone_is_not_ready(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.at.processes.kill("server")
    try:
        code, found = examined(capsys, made.data, *ports(made.at))
    finally:
        made.at.processes.start("server")
        made.at.processes.wait("server")
    assert code == 1
    assert "/readyz is not: the learning server does not answer" in found["shuffler answers"][0]["detail"]
    assert found["server answers"][0]["level"] == "warn"


def test_what_answers_may_be_something_else(
    made: Made, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "get", lambda _: httpx.Response(200, content=b"<html>secret</html>"))
    code, found = examined(capsys, data)
    assert code == 1
    assert "is no Privateer service" in found["server answers"][0]["detail"]
    assert "secret" not in json.dumps(found)


def test_a_service_that_never_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("server", "shuffler"):
        (tmp_path / name).mkdir(mode=0o700)
    code, found = examined(capsys, tmp_path)
    assert (code, set(found)) == (0, {"server folder", "shuffler folder"})


@pytest.mark.parametrize("missing", ["server", "shuffler"])
def test_a_folder_that_is_gone_while_the_other_is_there(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its disk may not be mounted."""
    (tmp_path / ("shuffler" if missing == "server" else "server")).mkdir(mode=0o700)
    code, found = examined(capsys, tmp_path)
    assert (code, found[f"{missing} folder"][0]["level"]) == (1, "fail")


def test_a_folder_that_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server").write_text("")
    code, found = examined(capsys, tmp_path)
    assert (code, found["server folder"][0]["level"]) == (1, "fail")
