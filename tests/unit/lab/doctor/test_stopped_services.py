"""``privateer doctor`` on services that are stopped, never started, or gone changes nothing."""

from pathlib import Path

import pytest

from tests.support.doctor import contents, run_checks


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
def test_a_folder_that_is_gone_while_the_other_is_there(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its disk may not be mounted."""
    (tmp_path / ("shuffler" if missing == "server" else "server")).mkdir(mode=0o700)
    code, checks = run_checks(capsys, tmp_path)
    assert (code, checks[f"{missing} folder"][0]["level"]) == (1, "fail")


def test_a_folder_that_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "server").write_text("")
    code, checks = run_checks(capsys, tmp_path)
    assert (code, checks["server folder"][0]["level"]) == (1, "fail")
