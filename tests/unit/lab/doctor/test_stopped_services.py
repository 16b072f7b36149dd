"""What ``privateer doctor`` says of services that are stopped, never started, or gone; and that it changes nothing."""

from pathlib import Path

import pytest

from tests.support.doctor import contents, examined


def test_services_that_are_stopped_are_warned_of(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a kill has left the write-ahead logs. Nothing changes, and nothing comes to be beside the files."""
    before = contents(data)
    code, found = examined(capsys, data)
    assert contents(data) == before
    assert code == 0
    assert set(found) == {"server answers", "shuffler answers", "shuffler its server"}
    assert all(one["remedy"] for ones in found.values() for one in ones)


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
