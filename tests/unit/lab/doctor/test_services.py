"""``privateer doctor`` on services that run, hang or are stopped, on their machine and their last backup."""

import json
import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from privateer_core.wire.keys import load_or_create_key
from privateer_lab.cli.command_line import main
from privateer_lab.doctor import checkup
from privateer_lab.doctor import places as answers
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.places import check_shown_clock
from privateer_lab.doctor.server import examine_server
from privateer_lab.services.processes import free_port
from privateer_server.settings import ServerSettings
from tests.support.doctor import TOKEN, Deployment, contents, ports, run, run_checks
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK, SMALL
from tests.support.specs import tables
from tests.support.stores import embedded_journal, embedded_store


def test_services_that_run_are_fine(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--data", str(deployment.data), *ports(deployment.at))
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) > 15
    assert {line.split()[0] for line in lines} == {"ok"}
    assert {line.split()[1] for line in lines} == {"server", "shuffler", "sender"}


def test_rounds_that_close_meanwhile_are_no_finding(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    """Several rounds close in a second, and each changes journal, database and keys in turn."""
    busy, headers = SMALL | {"experiment.name": "busy"}, {"authorization": f"Bearer {TOKEN}"}
    httpx.post(f"{deployment.at.admin}/experiments", json=tables(busy), headers=headers).raise_for_status()
    ended = Event()

    def fill() -> None:
        with httpx.Client(base_url=deployment.at.server) as client:
            while not ended.is_set():
                body = client.get("/experiments/busy/policy", headers=MSGPACK).content
                for sealed_report in sealed_reports(body, 20):
                    client.post("/reports", content=body_of(body, [sealed_report]))

    filling, checkups, version = Thread(target=fill), [], 1
    filling.start()
    try:
        while len(checkups) < 3 or version <= 3:
            checkups.append(run_checks(capsys, deployment.data, *ports(deployment.at)))
            version = httpx.get(f"{deployment.at.server}/experiments/busy").json()["version"]
    finally:
        ended.set()
        filling.join()
    assert checkups == [(0, {})] * len(checkups)


def test_a_service_that_hangs_and_one_that_is_elsewhere(deployment, capsys, monkeypatch):
    monkeypatch.setattr(answers, "_TIMEOUT_SECONDS", 0.5)
    os.kill(deployment.at.processes.pid("shuffler"), signal.SIGSTOP)
    try:
        code, checks = run_checks(capsys, deployment.data, *ports(deployment.at))
    finally:
        os.kill(deployment.at.processes.pid("shuffler"), signal.SIGCONT)
    assert (code, set(checks)) == (1, {"shuffler answers"})
    assert checks["shuffler answers"][0]["detail"].startswith("a process has the data open, and nothing answers at")
    _, checks = run_checks(capsys, deployment.killed, *ports(deployment.at))
    assert {name: checks[name][0]["detail"] for name in checks} == {
        "server answers": f"a server answers at {deployment.at.server}, and it does not use this folder",
        "shuffler answers": f"a shuffler answers at {deployment.at.shuffler}, and it does not use this folder",
    }


def test_a_shuffler_whose_server_is_gone_says_so_and_keeps_its_round(deployment, capsys, monkeypatch):
    deployment.at.processes.kill("server")
    try:
        code, checks = run_checks(capsys, deployment.data, *ports(deployment.at))
    finally:
        deployment.at.processes.start("server")
        deployment.at.processes.wait("server")
    assert code == 1
    (row,) = checks["shuffler its server"]
    assert (row["level"], row["detail"]) == ("fail", f"no server answers at {deployment.at.admin}")
    assert "shuffler answers" not in checks  # it takes reports for a round that is open
    assert checks["server answers"][0]["level"] == "warn"


def test_a_service_that_is_not_privateers_is_named(deployment, data, capsys, monkeypatch):
    monkeypatch.setattr(answers, "fetch_or_none", lambda _: httpx.Response(200, content=b"<html>secret</html>"))
    code, checks = run_checks(capsys, data)
    assert code == 1
    assert "is no Privateer service" in checks["server answers"][0]["detail"]
    assert "secret" not in json.dumps(checks)


def test_a_shuffler_with_another_key_than_the_claims(deployment, data, capsys, monkeypatch):
    monkeypatch.setenv("PRIVATEER_SERVER_URL", deployment.at.admin)
    monkeypatch.setenv("PRIVATEER_PORT", str(free_port()))
    _, checks = run_checks(capsys, data / "shuffler", "shuffler")
    assert "shuffler trust" not in checks
    for key in (data / "shuffler" / "shuffler.key", data / "shuffler" / "shuffler.pub"):
        key.unlink(missing_ok=True)
    load_or_create_key(data / "shuffler" / "shuffler.key", "PRIVATEER_DATA")
    code, checks = run_checks(capsys, data / "shuffler", "shuffler")
    (claim,) = checks["shuffler trust"]
    assert (code, claim["level"]) == (1, "fail")
    assert "has the claim of shuffled" in claim["detail"]


def test_services_that_are_stopped_are_warned_of(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a kill has left the write-ahead logs. Nothing changes, and nothing comes to be beside the files."""
    before = contents(data)
    code, checks = run_checks(capsys, data)
    assert contents(data) == before
    assert code == 0
    assert set(checks) == {"server answers", "shuffler answers", "shuffler its server"}
    assert all(row["remedy"] for rows in checks.values() for row in rows)


def test_a_service_that_never_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("server", "shuffler"):
        (tmp_path / name).mkdir(mode=0o700)
    code, checks = run_checks(capsys, tmp_path)
    assert (code, set(checks)) == (0, {"server folder", "shuffler folder"})


@pytest.mark.parametrize("missing", ["server", "shuffler"])
def test_a_folder_that_is_gone_while_the_other_is_there(missing, tmp_path, capsys):
    """Its disk may not be mounted."""
    (tmp_path / ("shuffler" if missing == "server" else "server")).mkdir(mode=0o700)
    code, checks = run_checks(capsys, tmp_path)
    assert (code, checks[f"{missing} folder"][0]["level"]) == (1, "fail")


def test_a_folder_that_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server").write_text("")
    code, checks = run_checks(capsys, tmp_path)
    assert (code, checks["server folder"][0]["level"]) == (1, "fail")


def test_a_clock_that_is_behind(data, capsys, monkeypatch):
    monkeypatch.setattr(checkup.time, "time", lambda: time.mktime((2025, 6, 1, 0, 0, 0, 0, 0, 0)))
    code, checks = run_checks(capsys, data)
    assert code == 1
    for service in ("server", "shuffler"):
        (row,) = checks[f"{service} clock"]
        assert row["detail"] == "the clock is more than a minute behind the newest time on record"
    monkeypatch.setattr(checkup.time, "time", lambda: 0.0)
    assert run_checks(capsys, data)[1]["server clock"][0]["detail"] == "the clock is not set"


@pytest.mark.parametrize(("free", "level"), [(500 << 20, "fail"), (700 << 20, "warn"), (1 << 40, "ok")])
def test_a_disk_that_is_full(free, level, data, capsys, monkeypatch):
    usage = shutil.disk_usage(data)
    monkeypatch.setattr(checkup.shutil, "disk_usage", lambda _: usage._replace(free=free))
    code, checks = run_checks(capsys, data)
    levels = {row["level"] for service in ("server", "shuffler") for row in checks.get(f"{service} disk", [])}
    assert levels == ({level} if level != "ok" else set())
    assert code == (1 if level == "fail" else 0)


def test_a_disk_that_stands_still_is_told_in_time(data, capsys, monkeypatch):
    """Planted: a write that does not end. Real ones are in tests/operations. Others are looked at all the same."""
    monkeypatch.setattr(checkup, "_TRIAL_SECONDS", 0.5)
    monkeypatch.setattr(checkup, "_TRIAL_CODE", "import sys, time; time.sleep(60 * sys.argv[1].endswith('server'))")
    code, checks = run_checks(capsys, data)
    assert code == 1
    (row,) = checks.pop("server folder")
    assert row["detail"].startswith(f"a write to {data / 'server'} did not end within 0.5 seconds")
    assert not [key for key in checks if key.startswith("server ")]
    assert "shuffler answers" in checks


@pytest.mark.parametrize("locked", ["server", "server/keys", "server/journal.db", "shuffler", "shuffler/taken.sqlite"])
def test_files_must_be_writable(locked: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Root sees the problem, too, because the service's user cannot write the file."""
    path = data / locked
    path.chmod(path.stat().st_mode & ~0o222)
    try:
        code, checks = run_checks(capsys, data)
    finally:
        path.chmod(path.stat().st_mode | 0o200)
    service = locked.partition("/")[0]
    assert code == 1
    assert checks[f"{service} folder"][0]["detail"] == f"{path.name} cannot be written"
    assert run_checks(capsys, data)[0] == 0


@pytest.mark.parametrize(("seconds", "levels"), [(0, []), (59, []), (-59, []), (70, ["FAIL"]), (-3600, ["FAIL"])])
@pytest.mark.parametrize("prefix", ["", "shuffler_", "issuer_"])
def test_the_clock_that_a_service_shows_is_compared(prefix: str, seconds: float, levels: list[str]) -> None:
    checkup, registry = Checkup("shuffler"), CollectorRegistry()
    Gauge(f"privateer_{prefix}time_seconds", "The time of day.", registry=registry).set(time.time() + seconds)
    check_shown_clock(checkup, generate_latest(registry).decode(), "http://127.0.0.1:8002")
    assert [check.level.name for check in checkup.checks] == levels


HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("start", "completed", "level", "detail"),
    [
        (None, None, "ok", "privateer backup was never used here"),
        (3 * HOUR, 3 * HOUR - 60, "ok", "the last backup (3 MiB) was made 2 hours ago"),
        (60, 30, "ok", "the last backup (3 MiB) was made within the last hour"),
        (7 * DAY, 7 * DAY - 60, "ok", "the last backup (3 MiB) was made 6 days ago"),
        (8.5 * DAY, 8.5 * DAY - 60, "warn", "the last backup was made 8 days ago"),
        (
            5 * HOUR + 1,
            3 * DAY,
            "warn",
            "the backup that was begun 5 hours ago is not complete; the last complete one was made 3 days ago",
        ),
        (5 * HOUR + 1, None, "warn", "the backup that was begun 5 hours ago is not complete; none was complete before"),
    ],
)
def test_the_age_of_the_last_backup_is_checked(start, completed, level, detail, tmp_path):
    embedded_store(tmp_path).close()
    embedded_journal(tmp_path / "journal.db").close()
    if start is not None:
        now = time.time() - 1
        is_complete = completed is not None and completed < start
        row = (0.0 if is_complete else now - start, now - completed if completed else 0.0, 30.0, (2 << 20) + 1)
        with closing(sqlite3.connect(tmp_path / "server.db")) as db:
            db.execute("INSERT INTO backup VALUES (1, ?, ?, ?, ?)", row)
            db.commit()
    checkup = examine_server(ServerSettings(data=tmp_path, admin_token=bytes(32)))
    (line,) = [check for check in checkup.checks if check.check == "backup"]
    assert (line.level.name.lower(), line.detail, bool(line.remedy)) == (level, detail, level == "warn")


def test_the_environment_names_one_service(deployment, capsys, monkeypatch):
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
def test_bad_use_is_one_line_and_exit_code_2(arguments, says, capsys):
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_setting_out_of_range_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATEER_DECRYPT_WORKERS", "many")
    code, out, err = run(capsys, "server")
    assert (code, out, err.count("\n"), "PRIVATEER_DECRYPT_WORKERS: " in err) == (2, "", 1, True)


@pytest.mark.parametrize(("size", "level"), [(32, "ok"), (31, "fail")])
def test_shared_data_that_cannot_be_reached_are_a_line_with_a_remedy(size, level, tmp_path, monkeypatch, capsys):
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
