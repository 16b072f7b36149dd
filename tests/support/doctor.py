"""What tests of the doctor have in common."""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from privateer_lab.cli.command_line import main
from privateer_lab.services.processes import Services, free_port
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK

TOKEN = "token-of-the-doctors-tests"


class Deployment(NamedTuple):
    """Two services with an experiment each way, and copies of their folder: while they ran, and after a kill."""

    at: Services
    data: Path
    early: Path
    killed: Path


def report(at: Services, name: str, url: str, people: int) -> None:
    body = httpx.get(f"{at.server}/experiments/{name}/policy", headers=MSGPACK).content
    for sealed_report in sealed_reports(body, people, seed=int(time.monotonic_ns()) % 1000):
        httpx.post(url, content=body_of(body, [sealed_report])).raise_for_status()


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


def run_checks(
    capsys: pytest.CaptureFixture[str], data: Path, *ports_options: str
) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Return the exit code, and the checks that are not ok by ``service check``."""
    code, out, err = run(capsys, "--data", str(data), "--json", *(ports_options or free_ports()))
    assert not err
    problems: dict[str, list[dict[str, Any]]] = {}
    for check in json.loads(out)["checks"]:
        if check["level"] != "ok":
            problems.setdefault(f"{check['service']} {check['check']}", []).append(check)
    return code, problems


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


def edit(path: Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


def garbage(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink(missing_ok=True)
    path.write_bytes(b"no database" * 1000)


def find(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[0]
