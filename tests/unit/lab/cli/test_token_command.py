"""``privateer token new`` shows a token once, and makes the line that a server knows it by."""

import json
import time
from pathlib import Path

import pytest

from privateer_core.errors import ScopeMissing
from privateer_lab.cli.command_line import main
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.credentials import check_admin_tokens
from privateer_server.admin_tokens import AdminTokens, Scope, create_token

DAY = 86_400


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["token", "new", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_printed_token_works_at_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nightly", "--scope", "backup", "--scope", "read", "--days", "30", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["line"].startswith(f"nightly read,backup {printed['expires']} ")
    assert printed["token"] not in printed["line"]
    (tmp_path / "tokens").write_text(printed["line"] + "\n")
    tokens, now = AdminTokens(b"", tmp_path / "tokens"), time.time()
    assert tokens.authorize(printed["token"], Scope.BACKUP, now + 29 * DAY).startswith("nightly ")
    with pytest.raises(ScopeMissing):
        tokens.authorize(printed["token"], Scope.DELETE, now)


def test_the_output_says_where_each_part_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("alice", "--scope", "change") == 0
    out = capsys.readouterr().out
    assert "which nobody can show again" in out
    assert "PRIVATEER_ADMIN_TOKENS:\n  alice change 20" in out


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
    assert run(*arguments) == 2
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
