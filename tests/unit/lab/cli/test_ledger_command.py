"""``privateer ledger`` and ``privateer token``: figures, secrets shown once, and a single line for each error."""

import json
import math
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.ledger import Ledger
from privateer_core.errors import ScopeMissing
from privateer_lab.cli.command_line import main
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.credentials import check_admin_tokens
from privateer_server.admin_tokens import AdminTokens, Scope, create_token
from tests.support.devices import pay
from tests.unit.client.ledger.test_ledger_file import WRONG, set_newer_version
from tests.unit.lab.cli.test_account import figures
from tests.unit.lab.cli.test_command_line import run


@pytest.mark.parametrize("harm", [*WRONG, set_newer_version])
def test_a_file_that_is_not_a_sound_ledger_is_one_line(capsys, tmp_path, harm):
    path = tmp_path / "ledger.db"
    pay(Ledger(path), Payment("a", 2, "local", 1.0, 0.0, 1.0))
    harm(path)
    code, out, err = run(capsys, "account", "ledger", "--path", str(path))
    assert (code, out, len(err.strip().splitlines())) == (2, "", 1)


def test_the_ledger_command_sums_the_spent_epsilons(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    for name in ("a", "b", "c"):
        pay(ledger, Payment(name, 1, "shuffle", 0.5, 1e-6, 4.0))
    output = figures(capsys, "ledger", "--path", str(path))
    assert [row["experiment"] for row in output["payments"]] == ["a", "b", "c"]
    assert output["spent"]["epsilon_in_sum"] == 1.5
    assert 1.0 < output["spent"]["epsilon_composed"] <= 1.5
    assert output["spent"]["local_epsilon_in_sum"] == 12.0
    pay(ledger, Payment("d", 1, "none", math.inf, 0.0, math.inf))
    output = figures(capsys, "ledger", "--path", str(path))
    assert output["spent"]["epsilon_in_sum"] is None
    assert output["spent"]["epsilon_composed"] is None
    code, out, _ = run(capsys, "account", "ledger", "--path", str(path))
    assert code == 0
    assert "together" in out


def test_a_ledger_that_is_not_there_is_not_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "account", "ledger", "--path", str(tmp_path / "none.db"))
    assert (code, out) == (2, "")
    assert "there is no ledger" in err
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE payments SET epsilon = 'much'",
        "UPDATE payments SET epsilon = -1",
        "UPDATE payments SET delta = 2",
        "UPDATE payments SET version = x'ff'",
        "UPDATE payments SET experiment = x'ff'",
        "UPDATE payments SET model = CAST(x'ff' AS TEXT)",
        "ALTER TABLE payments DROP COLUMN model",
        "DROP TABLE payments; CREATE VIEW payments AS SELECT 1 AS a, 2 AS day",
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_ledger_that_somebody_changed_is_one_line(capsys, tmp_path, damage, form):
    path = tmp_path / "ledger.db"
    pay(Ledger(path), Payment("a", 1, "local", 0.5, 0.0, 0.5))
    with closing(sqlite3.connect(path)) as database:
        database.executescript(damage)
    code, out, err = run(capsys, "account", "ledger", "--path", str(path), *form)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_ledger_shows_servers_and_pending_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    for name in ("http://s/a", "http://s/b", "http://t:81/c"):
        pay(ledger, Payment(name, 1, "shuffle", 0.5, 1e-6, 4.0))
    ledger.discard("http://s/a")
    output = figures(capsys, "ledger", "--path", str(ledger.path))
    assert [row["waiting"] for row in output["payments"]] == [False, True, True]
    assert output["servers"] == {
        "http://s": {"epsilon_in_sum": 1.0, "delta_in_sum": 2e-6, "local_epsilon_in_sum": 8.0},
        "http://t:81": {"epsilon_in_sum": 0.5, "delta_in_sum": 1e-6, "local_epsilon_in_sum": 4.0},
    }
    assert output["spent"]["delta_in_sum"] == pytest.approx(3e-6)
    assert output["spent"]["waiting"] == 2
    code, out, _ = run(capsys, "account", "ledger", "--path", str(ledger.path))
    assert code == 0
    assert "at http://t:81" in out


DAY = 86_400


def run_token(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["token", "new", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_printed_token_works_at_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_token("nightly", "--scope", "backup", "--scope", "read", "--days", "30", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["line"].startswith(f"nightly read,backup {printed['expires']} ")
    assert printed["token"] not in printed["line"]
    (tmp_path / "tokens").write_text(printed["line"] + "\n")
    tokens, now = AdminTokens(b"", tmp_path / "tokens"), time.time()
    assert tokens.authorize(printed["token"], Scope.BACKUP, now + 29 * DAY).startswith("nightly ")
    with pytest.raises(ScopeMissing):
        tokens.authorize(printed["token"], Scope.DELETE, now)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["Alice", "--scope", "read"], "NAME: needs a name of lower-case letters"),
        (["admin", "--scope", "read"], "other than admin"),
        (["alice", "--scope", "write"], "--scope"),
        (["alice"], "--scope"),
        (["alice", "--scope", "read", "--days", "0"], "--days"),
    ],
)
def test_bad_names_and_scopes_are_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_token(*arguments) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("days", "level", "says"),
    [(-1, "WARN", "has expired"), (13, "WARN", "expires at 20"), (15, "OK", "none expires within 14 days")],
)
def test_the_doctor_warns_of_tokens_that_expire_soon(days: int, level: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(create_token("alice", ["read"], time.time() + days * DAY)[1].to_line() + "\n")
    checkup = Checkup("server")
    check_admin_tokens(checkup, path)
    (check,) = checkup.checks
    assert (check.level.name, check.check) == (level, "tokens")
    assert says in check.detail


def test_the_doctor_fails_where_others_may_add_tokens_or_a_line_is_none(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(create_token("alice", ["read"], time.time() + 99 * DAY)[1].to_line() + "\n")
    path.chmod(0o666)
    checkup = Checkup("server")
    check_admin_tokens(checkup, path)
    assert [check.detail for check in checkup.checks if check.level.name == "FAIL"] == ["other users may change tokens"]
    path.write_text("alice read\n")
    checkup = Checkup("server")
    check_admin_tokens(checkup, path)
    assert [check.level.name for check in checkup.checks] == ["FAIL"]
    assert checkup.checks[0].detail.startswith("tokens: line 1 must be NAME SCOPES EXPIRES DIGEST")
